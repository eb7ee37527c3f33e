"""Stand-ins for the two graphs whose answers can be worked out on paper, and a bundle to go with them.

Embedding row t is t everywhere, so the fake decoder finds token ids in what it is fed. It writes them and the rotary
cosine into the key-value store it was given, and answers from what it reads back there, and from nothing else: a row
left in the wrong slot, or at the wrong place, changes the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from bundles import CHAT, PREPROCESSING, TEXT, VISION, write_bundle
from tiny_checkpoint import FIRST_SPECIAL, SPECIAL_TOKENS, write_tokenizer

from mineru_edge.models.architecture import SpecialIds
from mineru_edge.models.bundle import EMBED_FILE, TOKENIZER_FILE, Bundle, Precision, measure_files
from mineru_edge.models.errors import EngineError
from mineru_edge.runtime.arrays import F32
from mineru_edge.runtime.graphs import Graphs
from mineru_edge.runtime.kv import KVStore
from mineru_edge.runtime.model import Model
from mineru_edge.runtime.plan import Plan
from mineru_edge.runtime.scheduler import Scheduler

IDS = {token: FIRST_SPECIAL + index for index, token in enumerate(SPECIAL_TOKENS)}
EOS = IDS["<|im_end|>"]
VOCAB = 320
VISION_ROW = 5000  # what the fake vision graph answers, out of reach of token ids

Rule = Callable[[list[int]], int]
"""From the token ids in a slot, oldest first, to the next one."""


def fake_bundle(folder: Path) -> Bundle:
    """A bundle whose tokenizer is one token per byte plus MinerU's special tokens; its graphs are not runnable."""
    bundle = write_bundle(folder)
    write_tokenizer(folder)
    rows = np.repeat(np.arange(VOCAB, dtype=np.float32)[:, None], TEXT.width, axis=1)
    (folder / EMBED_FILE).write_bytes(rows.tobytes())
    assert (folder / TOKENIZER_FILE).is_file()
    return dataclasses.replace(
        bundle,
        text=dataclasses.replace(TEXT, vocab=VOCAB),
        special=SpecialIds(
            image_pad=IDS["<|image_pad|>"],
            vision_start=IDS["<|vision_start|>"],
            vision_end=IDS["<|vision_end|>"],
            eos=(EOS, IDS["<|endoftext|>"]),
            layout=(("<|box_start|>", IDS["<|box_start|>"]),),
        ),
        chat=dataclasses.replace(CHAT, before_image="user\n<|vision_start|>", after_image="<|vision_end|>"),
        precision=Precision(vision="int8", decoder="int8", embedding="fp32"),
        preprocessing=dataclasses.replace(PREPROCESSING, min_pixels=3136),
        files=measure_files(folder),
    )


class FakeVision:
    def __init__(self) -> None:
        self.calls: list[int] = []

    def run(self, patches: F32, cos: F32, sin: F32) -> F32:
        assert patches.shape == (len(patches), VISION.patch_values)
        assert cos.shape == sin.shape == (len(patches), VISION.rotary_width)
        self.calls.append(len(patches))
        return np.full((len(patches) // VISION.merge**2, VISION.out_width), VISION_ROW, np.float32)


class FakeDecoder:
    """Follows `rule`. `fail_when` makes a run fail whose slots hold something; `spoil_when` makes its logits NaN."""

    def __init__(
        self,
        kv: KVStore,
        rule: Rule,
        *,
        fail_when: Rule | None = None,
        spoil_when: Rule | None = None,
    ) -> None:
        self._kv, self._rule, self._fail_when, self._spoil_when = kv, rule, fail_when, spoil_when
        self._logits: F32 = np.empty((kv.slots + kv.slots % 2, VOCAB), np.float32)
        self.row_multiple = 2
        self.runs: list[tuple[int, int]] = []  # (batch, tokens)
        self.cosines: dict[tuple[int, ...], F32] = {}

    def run(self, first_slot: int, embeds: F32, cos: F32, sin: F32, past_tokens: Sequence[int]) -> F32:
        batch, tokens, width = embeds.shape
        assert width == TEXT.width
        assert cos.shape == sin.shape == (batch, tokens, TEXT.rotary_width)
        self.runs.append((batch, tokens))
        for row, past in enumerate(past_tokens):
            for layer in range(self._kv.layers):
                keys, values = self._kv.views(layer, first_slot + row, 1)
                keys[0, :, past : past + tokens] = embeds[row, :, :1]
                values[0, :, past : past + tokens] = cos[row, :, -1:]
        for row, past in enumerate(past_tokens):
            held = self.held(first_slot + row, past + tokens)
            if len(held) == 1:  # the idle row of an odd batch; no prompt is that short
                continue
            if self._fail_when and self._fail_when(held):
                raise EngineError("bad_alloc")
            self._logits[row] = np.arange(VOCAB, dtype=np.float32) / VOCAB
            self._logits[row, self._rule(held)] = 20
            if self._spoil_when and self._spoil_when(held):
                self._logits[row, 7] = np.nan
        return self._logits[:batch]

    def rest(self) -> None:
        pass

    def held(self, slot: int, tokens: int) -> list[int]:
        """The token ids in a slot; every layer and head must agree."""
        stored = np.stack([self._kv.views(layer, slot, 1)[0][0, :, :tokens] for layer in range(self._kv.layers)])
        assert (stored == stored[0, 0, :, 0][:, None]).all()
        return [int(value) for value in stored[0, 0, :, 0]]


@dataclasses.dataclass
class Rig:
    """A scheduler on fake graphs, with its parts in reach."""

    scheduler: Scheduler
    decoder: FakeDecoder
    vision: FakeVision
    kv: KVStore
    model: Model
    clock: list[float]


def rig(
    bundle: Bundle,
    rule: Rule,
    *,
    slots: int = 2,
    capacity_tokens: int = 128,
    prefill_chunk: int = 16,
    patch_cap: int = 400,
    fail_when: Rule | None = None,
    spoil_when: Rule | None = None,
) -> Rig:
    """The clock stands still until a test moves `clock[0]`."""
    plan = Plan(slots, capacity_tokens, patch_cap, prefill_chunk, 3500, (), None)
    kv = KVStore(bundle.text, slots=slots, capacity_tokens=capacity_tokens)
    vision, decoder = FakeVision(), FakeDecoder(kv, rule, fail_when=fail_when, spoil_when=spoil_when)
    model = Model(bundle, plan, Graphs(vision, decoder))
    clock = [0.0]
    return Rig(Scheduler(model, kv, clock=lambda: clock[0]), decoder, vision, kv, model, clock)


def drain(scheduler: Scheduler) -> dict[int, list]:
    """Step until idle; the steps of each ticket."""
    steps: dict[int, list] = {}
    while not scheduler.idle:
        for step in scheduler.step():
            steps.setdefault(step.ticket, []).append(step)
    return steps
