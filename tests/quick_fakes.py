"""A layout detector and OCR that say what they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from mineru_edge.detector import Found
from mineru_edge.document import Box
from mineru_edge.ocr import PageLines


@dataclass
class FakeDetector:
    """Finds the same blocks on every page; `sizes` are those of the pages it was shown."""

    found: Sequence[Found] = ()
    sizes: list[tuple[int, int]] = field(default_factory=list)

    def blocks(self, image: Image.Image) -> list[Found]:
        self.sizes.append(image.size)
        return list(self.found)


@dataclass
class FakeOcr:
    """Sees `lines`: (text, box in pixels). All look upside down to it where `doubtful`; reading tells otherwise."""

    lines: Sequence[tuple[str, Box]] = ()
    doubtful: bool = False
    looks: int = 0
    read_texts: list[str] = field(default_factory=list)

    def page(self, image: Image.Image) -> PageLines:
        self.looks += 1
        quads = [
            np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float32)
            for _, (left, top, right, bottom) in self.lines
        ]
        crops = []
        for number, (_, (left, top, right, bottom)) in enumerate(self.lines):
            sides = sorted((int(right - left), int(bottom - top)))
            crops.append(np.full((sides[0], sides[1], 3), number, np.uint8))
        ocr: Any = self
        return PageLines(ocr, image.size, quads, crops)

    def is_upside_down(self, crop: Any) -> float:
        return 1.0 if self.doubtful else -1.0

    def read(self, crop: Any) -> tuple[str, float]:
        self.read_texts.append(self.lines[int(crop[0, 0, 0])][0])
        return self.read_texts[-1], 1.0
