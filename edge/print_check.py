"""Does the picture of a page show what its text layer says, no less and no more?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from . import typed
from .document import Box
from .glyphs import Glyph, PageGlyphs

_CONTRAST = 40  # grey values out of 255 between print and ground
_SEEN = 0.9  # of the glyphs must be there
_UNEXPLAINED = 0.2  # of the print may be something else: a speck, a check mark, a little picture
_RULE = 0.7  # a row or column so full of ink is a line drawn, not print
_ASCENT, _DESCENT = 0.95, 0.35  # of the size: where accents and underlines are


class PrintCheck:
    """Compares the glyphs of a page with its picture. `shown` are those that should be seen."""

    def __init__(self, image: Image.Image, page: PageGlyphs, shown: Sequence[Glyph]) -> None:
        self._image = image
        self._x, self._y = image.width / page.width, image.height / page.height  # pixels per point
        self._shown = shown

    def doubt(self, box: Box, glyphs: Sequence[Glyph]) -> str | None:
        """What speaks against `glyphs` being what is printed in `box`; None when nothing does."""
        width, height = self._image.size
        edges = box[0] * width, box[1] * height, box[2] * width, box[3] * height
        extent = [self._pixels(glyph.ink) for glyph in glyphs]
        # Words may stick out of the box; then their print is looked for where they are.
        left = max(0, math.floor(min([edges[0], *(each[0] for each in extent)])))
        top = max(0, math.floor(min([edges[1], *(each[1] for each in extent)])))
        right = min(width, math.ceil(max([edges[2], *(each[2] for each in extent)])))
        bottom = min(height, math.ceil(max([edges[3], *(each[3] for each in extent)])))
        if right <= left or bottom <= top:
            return "it lies outside of the page"
        grey = np.asarray(self._image.crop((left, top, right, bottom)).convert("L"), dtype=np.int16)
        ink = ink_of(grey)
        drawn = [each for each, glyph in zip(extent, glyphs, strict=True) if typed.clean(glyph.text).strip()]
        seen = sum(bool(ink[_part(each, left, top)].any()) for each in drawn)
        if seen < _SEEN * len(drawn):
            return "it cannot be seen"
        ink[ink.mean(axis=1) > _RULE] = False
        ink[:, ink.mean(axis=0) > _RULE] = False
        within = (edges[0], edges[1], edges[2], edges[3])
        rest = np.zeros_like(ink)
        rest[_part(within, left, top)] = ink[_part(within, left, top)]
        total = int(np.count_nonzero(rest))
        for glyph in self._shown:
            rest[_part(self._reach(glyph), left, top)] = False
        if np.count_nonzero(rest) > _UNEXPLAINED * total:
            return "more is printed there than the file says"
        return None

    def _pixels(self, rect: Box) -> Box:
        return rect[0] * self._x, rect[1] * self._y, rect[2] * self._x, rect[3] * self._y

    def _reach(self, glyph: Glyph) -> Box:
        """Where ink may come from this glyph."""
        left, top, right, bottom = glyph.ink
        if not glyph.turn:
            left, right = min(left, glyph.cell[0]), max(right, glyph.cell[2])
            top, bottom = min(top, glyph.y - _ASCENT * glyph.size), max(bottom, glyph.y + _DESCENT * glyph.size)
        return self._pixels((left, top, right, bottom))


def ink_of(grey: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Where `grey`, values from 0 to 255, is not the ground that most of it is."""
    ground = 16 * int(np.bincount(grey.ravel() // 16, minlength=16).argmax()) + 8
    return np.asarray(np.abs(grey - ground) > _CONTRAST)


def _part(pixels: Box, left: int, top: int) -> tuple[slice, slice]:
    """The rows and columns of a crop that starts at (left, top), one pixel more on every side."""
    x0, y0, x1, y1 = pixels
    rows = slice(max(0, math.floor(y0) - 1 - top), max(0, math.ceil(y1) + 1 - top))
    return rows, slice(max(0, math.floor(x0) - 1 - left), max(0, math.ceil(x1) + 1 - left))
