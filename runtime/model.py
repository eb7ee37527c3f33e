"""The two graphs with the host work around them: pictures in, rows out; tokens in, logits out. No policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from mineru_edge.models.bundle import Bundle
from mineru_edge.models.errors import MineruEdgeError

from .arrays import F32, I64
from .embedding import Embedding
from .graphs import Graphs
from .patches import Patches, patchify
from .plan import Plan
from .positions import Rotary, prompt_positions, text_rotary, vision_rotary
from .tokens import Tokens


class Seen(NamedTuple):
    """What the vision graph was given, and the rows it gave: f32 [patches / merge^2, width]."""

    patches: Patches
    rows: F32


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation ready for prefill: embeds f32 [tokens, width] with the image's rows in place."""

    embeds: F32
    axes: I64
    rotary: Rotary
    delta: int
    patches: int

    @property
    def tokens(self) -> int:
        return len(self.embeds)


class Model:
    def __init__(self, bundle: Bundle, plan: Plan, graphs: Graphs) -> None:
        self.bundle = bundle
        self.tokens = Tokens(bundle)
        self._plan = plan
        self._graphs = graphs
        self._embedding = Embedding.of(bundle)

    @property
    def row_multiple(self) -> int:
        return self._graphs.decoder.row_multiple

    def see(self, image: Image.Image) -> Seen:
        """Encode one picture. Above the plan's patch cap it is scaled down, by the rule that max_pixels follows."""
        vision = self.bundle.vision
        patches = patchify(image, self.bundle.preprocessing, vision, patch_cap=self._plan.patch_cap)
        rotary = vision_rotary(patches.grid_rows, patches.grid_cols, vision)
        self.rest()  # one phase at a time, so that only its weights are resident
        return Seen(patches, self._graphs.vision.run(patches.values, rotary.cos, rotary.sin))

    def rest(self) -> None:
        """Let go of the decoding phase's weights; what is needed again comes back by itself."""
        self._graphs.decoder.rest()
        self._embedding.rest()

    def prompt(self, text: str, seen: Seen | None) -> Prompt:
        """Put the prompt's text around the image's rows.

        MineruEdgeError when placeholders and rows differ in number, as with a placeholder in `text`, or when the whole
        is longer than a slot.
        """
        rows = seen.rows if seen else np.empty((0, self.bundle.text.width), np.float32)
        before, image, after = self.tokens.prompt(text, image_tokens=len(rows))
        token_ids = [*before, *image, *after]
        if (found := token_ids.count(self.bundle.special.image_pad)) != len(rows):
            raise MineruEdgeError(f"the prompt has {found} image placeholders, the image gives {len(rows)} rows")
        if len(token_ids) > (room := self._plan.capacity_tokens):
            raise MineruEdgeError(
                f"the prompt is {len(token_ids)} tokens, a slot holds {room}",
                hint="raise capacity_tokens or lower patch_cap",
            )
        embeds = self._embedding.rows(token_ids)
        embeds[len(before) : len(before) + len(rows)] = rows
        merge = self.bundle.vision.merge
        grid = (seen.patches.grid_rows // merge, seen.patches.grid_cols // merge) if seen else (0, 0)
        axes, delta = prompt_positions(len(before), *grid, len(after))
        assert axes.shape[1] == len(token_ids), f"{axes.shape[1]} positions for {len(token_ids)} tokens"
        rotary = text_rotary(axes, self.bundle.text)
        return Prompt(embeds, axes, rotary, delta, seen.patches.count if seen else 0)

    def prefill(self, prompt: Prompt, slot: int) -> Iterator[F32]:
        """Fill `slot` from its start, a chunk at a time; yields logits f32 [vocab] after each, the last ones count."""
        for start in range(0, prompt.tokens, self._plan.prefill_chunk):
            chunk = slice(start, start + self._plan.prefill_chunk)
            cos, sin = prompt.rotary.cos[chunk], prompt.rotary.sin[chunk]
            yield self._graphs.decoder.run(slot, prompt.embeds[None, chunk], cos[None], sin[None], [start])[0]

    def decode(self, first_slot: int, fed: Sequence[tuple[int, int, int]]) -> F32:
        """One token more for each of the slots from `first_slot` on: logits f32 [slots, vocab].

        `fed` has token id, valid rows before it, and position, slot by slot.
        """
        token_ids, past_tokens, positions = zip(*fed, strict=True)
        embeds = self._embedding.rows(token_ids)
        cos, sin = text_rotary(np.tile(np.asarray(positions, np.int64), (3, 1)), self.bundle.text)
        return self._graphs.decoder.run(first_slot, embeds[:, None], cos[:, None], sin[:, None], past_tokens)
