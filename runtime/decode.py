"""One live request: what it has generated, when it ends, and what it reports. No arrays but its row of logits."""

from __future__ import annotations

from dataclasses import dataclass, field

from .arrays import F32
from .request import DecodeParams, FinishReason, Result, Step
from .rules import History, choose, loop_period
from .tokens import StreamText

LOOP_CHECK_EVERY = 16  # tokens; at fixed counts, so that the end does not depend on anything else that runs


@dataclass(slots=True)
class Sequence:
    """`past_tokens` rows of its slot are valid. The token to feed next sits at position past_tokens + delta."""

    ticket: int
    params: DecodeParams
    stream: StreamText
    ends_at: float  # on the scheduler's clock
    prompt_tokens: int = 0
    patches: int = 0
    past_tokens: int = 0
    delta: int = 0
    next_token: int = -1
    vision_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    history: History = field(default_factory=History)
    text: list[str] = field(default_factory=list)

    @property
    def position(self) -> int:
        return self.past_tokens + self.delta

    def take(self, logits: F32, *, eos: tuple[int, ...], capacity_tokens: int, now: float) -> Step:
        """Choose the next token from one row f32 [vocab], which it changes, and say whether it was the last."""
        token_id = choose(logits, self.history, self.params)
        if token_id is None:
            return self.end(FinishReason.error, error="the decoder gave logits that are not finite")
        if token_id in eos and not self.params.ignore_eos:
            return self.end(FinishReason.stop)
        self.next_token = token_id
        self.history.append(token_id)
        reason = self._ending(capacity_tokens, now)
        if reason is not None:
            return self.end(reason, token_id=token_id)
        return Step(self.ticket, token_id, self._say(self.stream.push(token_id)), None)

    def end(self, reason: FinishReason, *, token_id: int | None = None, error: str | None = None) -> Step:
        """The last step, with the result. `token_id` is a token chosen but not yet spoken."""
        said = self.stream.push(token_id) if token_id is not None else ""
        said = self._say(said + self.stream.flush())
        result = Result(
            text="".join(self.text),
            token_ids=self.history.token_ids,
            finish_reason=reason,
            error=error,
            prompt_tokens=self.prompt_tokens,
            patches=self.patches,
            vision_s=self.vision_s,
            prefill_s=self.prefill_s,
            decode_s=self.decode_s,
        )
        return Step(self.ticket, token_id, said, result)

    def _ending(self, capacity_tokens: int, now: float) -> FinishReason | None:
        generated = len(self.history)
        if generated >= self.params.max_new_tokens or self.past_tokens >= capacity_tokens:
            return FinishReason.length
        looks = generated % LOOP_CHECK_EVERY == 0 and not self.params.ignore_eos
        if looks and loop_period(self.history.array()):
            return FinishReason.repetition
        if now >= self.ends_at:
            return FinishReason.deadline
        return None

    def _say(self, text: str) -> str:
        self.text.append(text)
        return text
