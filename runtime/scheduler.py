"""Keeps the slots full: requests wait, are prefilled into a free slot, and decode together, one batch per step.

What a request gives does not depend on its slot, on the others, or on the order they came in. To the last bit: some
products work on pairs of rows and round a row left over in another way (1e-7, then more by every layer's quantisation),
and with those an odd batch gets an idle row, in the free slot behind the live ones.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable

from mineru_edge.models.errors import EngineError, MineruEdgeError

from .arrays import F32
from .decode import Sequence
from .kv import KVStore
from .model import Model
from .request import FinishReason, Request, Step

logger = logging.getLogger(__name__)


class Scheduler:
    """Live sequences are in slot order: `live[i]` owns slot i of the store."""

    def __init__(self, model: Model, kv: KVStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._kv = kv
        self._clock = clock
        self._waiting: deque[tuple[int, Request]] = deque()
        self._live: list[Sequence] = []
        self._cancelled: set[int] = set()
        self._entering: int | None = None  # the ticket that is being prefilled
        self._tickets = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._live

    def submit(self, request: Request) -> int:
        self._tickets += 1
        self._waiting.append((self._tickets, request))
        return self._tickets

    def cancel(self, ticket: int | None = None) -> None:
        """End one request, or all, at the next step or prefill chunk. Any thread may call it; unknown tickets pass."""
        known = [number for number, _ in tuple(self._waiting)] + [sequence.ticket for sequence in tuple(self._live)]
        if self._entering is not None:
            known.append(self._entering)
        self._cancelled.update(known if ticket is None else [ticket])

    def step(self) -> list[Step]:
        """Withdraw what was cancelled, fill free slots, decode one token for every live slot."""
        steps = self._withdraw()
        if self._waiting and not self._live:
            self._kv.release()  # a page's picture comes next, and needs the most memory
        while self._waiting and len(self._live) < self._kv.slots:
            self._entering = self._waiting[0][0]
            steps.append(self._admit(*self._waiting.popleft()))
            self._entering = None
        if self._live:
            steps.extend(self._decode())
        return steps

    def _decode(self) -> list[Step]:
        started = self._clock()
        rows = self._logits()
        now = self._clock()
        steps = []
        for sequence, row in zip(self._live, rows, strict=True):
            sequence.past_tokens += 1
            sequence.decode_s += now - started
            steps.append(
                sequence.end(FinishReason.error, error=_words(row))
                if isinstance(row, Exception)
                else self._take(sequence, row, now)
            )
        self._retire(steps)
        return steps

    def _logits(self) -> list[F32 | Exception]:
        """A row for each live sequence. When the batch fails, one at a time, so that only the guilty one ends."""
        fed = [(sequence.next_token, sequence.past_tokens, sequence.position) for sequence in self._live]
        idle = [(0, 0, 0)] * (-len(fed) % self._model.row_multiple)
        try:
            return list(self._model.decode(0, fed + idle)[: len(fed)])
        except (EngineError, MemoryError) as error:
            logger.warning("a batch of %d failed, trying one at a time: %s", len(fed), error)
        rows: list[F32 | Exception] = []
        for slot, one in enumerate(fed):
            try:
                rows.append(self._model.decode(slot, [one])[0].copy())  # the next run writes over the buffer
            except (EngineError, MemoryError) as error:
                rows.append(error)
        return rows

    def _admit(self, ticket: int, request: Request) -> Step:
        """Prefill one request into the next free slot and choose its first token."""
        started = self._clock()
        slot = len(self._live)
        deadline_s = request.params.deadline_s
        ends_at = math.inf if deadline_s is None else started + deadline_s
        sequence = Sequence(ticket, request.params, self._model.tokens.stream(), ends_at)
        try:
            step = self._prefill(sequence, request, slot, started)
        except AssertionError:
            raise
        except Exception as error:  # a picture can fail in as many ways as Pillow has readers; the others go on
            if not isinstance(error, MineruEdgeError):
                logger.warning("request %d failed", ticket, exc_info=True)
            step = sequence.end(FinishReason.error, error=_words(error))
        if step.result is None:
            self._live.append(sequence)
        elif step.result.finish_reason is FinishReason.error:
            self._kv.clear(slot, sequence.prompt_tokens)
        return step

    def _prefill(self, sequence: Sequence, request: Request, slot: int, started: float) -> Step:
        # In one expression, so that the patches are let go before the prefill.
        prompt = self._model.prompt(request.prompt, self._model.see(request.image) if request.image else None)
        sequence.prompt_tokens, sequence.patches, sequence.delta = prompt.tokens, prompt.patches, prompt.delta
        encoded = self._clock()
        sequence.vision_s = encoded - started
        now = encoded
        for logits in self._model.prefill(prompt, slot):  # noqa: B007
            now = self._clock()
            sequence.prefill_s = now - encoded
            if sequence.ticket in self._cancelled:
                return sequence.end(FinishReason.cancelled)
            if now >= sequence.ends_at:
                return sequence.end(FinishReason.deadline)
        sequence.past_tokens = prompt.tokens
        return self._take(sequence, logits, now)

    def _take(self, sequence: Sequence, logits: F32, now: float) -> Step:
        return sequence.take(
            logits, eos=self._model.bundle.special.eos, capacity_tokens=self._kv.capacity_tokens, now=now
        )

    def _withdraw(self) -> list[Step]:
        """End what was cancelled since the last step."""
        cancelled = set(self._cancelled)
        self._cancelled -= cancelled
        steps = []
        for entry in [entry for entry in self._waiting if entry[0] in cancelled]:
            self._waiting.remove(entry)
            never = Sequence(entry[0], entry[1].params, self._model.tokens.stream(), math.inf)
            steps.append(never.end(FinishReason.cancelled))
        live = [sequence for sequence in self._live if sequence.ticket in cancelled]
        steps.extend(sequence.end(FinishReason.cancelled) for sequence in live)
        self._retire(steps)
        return steps

    def _retire(self, steps: list[Step]) -> None:
        """Free the slots of ended sequences; the last live slot moves into each hole."""
        ended = {step.ticket: step.result for step in steps if step.result is not None}
        for slot in reversed(range(len(self._live))):
            result = ended.get(self._live[slot].ticket)
            if result is None:
                continue
            if result.finish_reason is FinishReason.error:  # the rows may not be finite, which no mask stops
                self._kv.clear(slot, self._live[slot].past_tokens)
            last = self._live.pop()
            if slot < len(self._live):
                self._live[slot] = last
                self._kv.move(len(self._live), slot, last.past_tokens)


def _words(error: Exception) -> str:
    if isinstance(error, MineruEdgeError):
        return str(error)
    if isinstance(error, MemoryError):
        return "no memory for this request; give a higher memory limit"
    return f"{type(error).__name__}: {error}"
