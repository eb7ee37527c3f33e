"""What goes into the runtime and what comes out: plain values, no arrays."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import Enum

from PIL import Image


@dataclass(frozen=True, slots=True)
class DecodeParams:
    """How one request is decoded. Greedy: arg-max after the rules of `rules.py`, counted over generated tokens.

    `no_repeat_ngram` 0 bans nothing. `deadline_s` is wall-clock time from the moment the request gets a slot.
    `ignore_eos` goes on to `max_new_tokens` through end tokens and loops: for benchmarks, where weights may be random.
    """

    max_new_tokens: int
    _: KW_ONLY
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram: int = 0
    deadline_s: float | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, found {self.max_new_tokens}")
        if self.no_repeat_ngram < 0:
            raise ValueError(f"no_repeat_ngram cannot be negative, found {self.no_repeat_ngram}")
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise ValueError(f"deadline_s must be above 0, found {self.deadline_s}")


@dataclass(frozen=True, slots=True)
class Request:
    """One question. `image` is any PIL picture whose `convert("RGB")` is upright, or None for text alone."""

    image: Image.Image | None
    prompt: str
    params: DecodeParams


class FinishReason(str, Enum):
    """Why a request ended. All but `stop` mean that the text may be incomplete."""

    stop = "stop"  # the model said so
    length = "length"  # token cap, or no room left in the slot
    repetition = "repetition"  # a loop that no honest page explains
    deadline = "deadline"
    cancelled = "cancelled"
    error = "error"  # `Result.error` says what


@dataclass(frozen=True, slots=True)
class Result:
    """One finished request. `token_ids` and `text` are what was generated, without the token that ended it.

    `patches` is what the vision graph saw, after scaling; 0 without an image. Times are seconds of wall clock: for
    preparing and encoding the image, for prefill up to the first token, for the batched steps it took part in.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    error: str | None
    prompt_tokens: int
    patches: int
    vision_s: float
    prefill_s: float
    decode_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """One event of one request. `text` is safe to show: joined over a request's steps it is `Result.text`.

    `token_id` is None where nothing was generated: the end token, an error, a cancel. `result` is set on the last step.
    """

    ticket: int
    token_id: int | None
    text: str
    result: Result | None
