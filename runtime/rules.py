"""Which token comes next, given one row of logits, and when a row of tokens has become a loop.

Pure functions of one sequence. Only generated tokens count, never the prompt.
"""

from __future__ import annotations

from array import array

import numpy as np

from .arrays import F32, I32
from .request import DecodeParams

LONGEST_CYCLE = 64
LOOP_CYCLES = 96
LOOP_TOKENS = 512
"""A loop is a cycle of up to LONGEST_CYCLE tokens that filled the last LOOP_CYCLES rounds and LOOP_TOKENS tokens.
96 lines are more than a page prints at a readable size, so no table of identical rows reaches it, nor does a wide empty
grid: its row ends break the shorter cycle more often than LOOP_SLIPS allows."""
LOOP_SLIPS = 40
"""One token in so many may differ from the one a cycle before: a ban on 100-grams forces a slip into a loop every 100
tokens, and each counts twice."""


class History:
    """The generated tokens of one sequence, and how often each occurred."""

    __slots__ = ("_counts", "_ids", "_place", "_tokens")

    def __init__(self) -> None:
        self._tokens = array("i")
        self._place: dict[int, int] = {}  # token id -> index into the two below
        self._ids = array("i")
        self._counts = array("f")

    def __len__(self) -> int:
        return len(self._tokens)

    def append(self, token_id: int) -> None:
        self._tokens.append(token_id)
        place = self._place.setdefault(token_id, len(self._ids))
        if place == len(self._ids):
            self._ids.append(token_id)
            self._counts.append(0)
        self._counts[place] += 1

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(self._tokens)

    def counts(self) -> tuple[I32, F32]:
        """The distinct token ids and their counts. Copies, for an array that is looked at cannot grow."""
        return np.array(self._ids, np.int32), np.array(self._counts, np.float32)

    def array(self) -> I32:
        return np.array(self._tokens, np.int32)

    def banned(self, size: int) -> list[int]:
        """The tokens that would complete an n-gram of `size` tokens for the second time; none when `size` is 0."""
        if not size or len(self._tokens) < size:
            return []
        cells, item = self._tokens.tobytes(), self._tokens.itemsize
        prefix = cells[len(cells) - (size - 1) * item :]
        banned = []
        found = cells.find(prefix)
        while 0 <= found < len(cells) - len(prefix):
            if found % item == 0:
                banned.append(self._tokens[(found + len(prefix)) // item])
            found = cells.find(prefix, found + 1)
        return banned


def choose(logits: F32, history: History, params: DecodeParams) -> int | None:
    """The arg-max of one row f32 [vocab] after penalties and bans, the lowest id among equals; None if not all finite.

    Changes the row. Penalties as in vLLM and the OpenAI API: minus frequency * count, minus presence if it occurred.
    The ban is that of transformers' no_repeat_ngram_size, over generated tokens.
    """
    if not np.isfinite(logits).all():
        return None
    if params.presence_penalty or params.frequency_penalty:
        token_ids, counts = history.counts()
        logits[token_ids] -= np.float32(params.frequency_penalty) * counts
        logits[token_ids] -= np.float32(params.presence_penalty)
    for token_id in history.banned(params.no_repeat_ngram):
        logits[token_id] = -np.inf
    return int(logits.argmax())


def loop_period(tokens: I32) -> int:
    """The period of the cycle that the end of `tokens` is stuck in, or 0."""
    for period in range(1, LONGEST_CYCLE + 1):
        span = max(LOOP_TOKENS, LOOP_CYCLES * period)
        if len(tokens) < span + period:
            break
        slips = np.count_nonzero(tokens[-span:] != tokens[-span - period : -period])
        if slips * LOOP_SLIPS <= span:
            return period
    return 0
