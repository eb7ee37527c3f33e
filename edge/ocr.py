"""Lines of print on a page picture by RapidOCR: where they are, which way they run, and what they say.

The PP-OCRv6 models inside the package `rapidocr` (32 MB) find and read lines; nothing is downloaded. What they read
comes as glyphs, as a PDF's own text does, so that words, lines, paragraphs and columns are made of both by the same
code. Where a letter stands within its line is reckoned, not seen.
"""

from __future__ import annotations

import statistics
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .document import Box
from .glyphs import Glyph, PageGlyphs
from .quick import opening, session_options

SEARCH_PX = 1280  # the page's long edge while lines are looked for; they are read at full size
LEAST_SCORE = 0.5  # a line read with less certainty is noise, or a script that the reader does not know
_MODELS = {
    "Det.model_path": "PP-OCRv6_det_small.onnx",
    "Cls.model_path": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
    "Rec.model_path": "PP-OCRv6_rec_small.onnx",
}
_SIZE, _DESCENT = 0.8, 0.22  # of a line's height: the size of its font, and what hangs below the baseline
_ALIKE = 1.4  # lines whose heights differ less have one size: heights are seen, and vary with the letters
_READ_BOTH_WAYS = 3
_UPSIDE_DOWN = {0: 180, 90: 270}

Pixels = NDArray[np.uint8]


class Ocr:
    """RapidOCR, opened. EngineError when the extra `quick` is missing."""

    def __init__(self, *, threads: int) -> None:
        with opening("OCR"):
            import cv2
            import rapidocr
            from rapidocr.utils.process_img import get_rotate_crop_image

            folder = Path(rapidocr.__file__).parent / "models"
            # By path: asked for by name, a damaged file would be looked for on the network.
            options: dict[str, Any] = {name: str(folder / file) for name, file in _MODELS.items()}
            options |= {f"EngineConfig.onnxruntime.{name}": value for name, value in session_options(threads).items()}
            options |= {"Det.limit_type": "max", "Det.limit_side_len": SEARCH_PX, "Global.log_level": "error"}
            self._rapid: Any = rapidocr.RapidOCR(params=options)
            self._crop: Callable[[Pixels, NDArray[np.float32]], Pixels] = get_rotate_crop_image
            cv2.setNumThreads(threads)

    def page(self, image: Image.Image) -> PageLines:
        """The lines on an upright RGB page, found but not yet read."""
        pixels: Pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])  # it wants blue first
        found = self._rapid(pixels, use_det=True, use_cls=False, use_rec=False)
        quads = [] if found.boxes is None else [np.asarray(quad, dtype=np.float32) for quad in found.boxes]
        crops = [self._crop(pixels, quad.copy()) for quad in quads]
        return PageLines(self, image.size, quads, crops)

    def is_upside_down(self, crop: Pixels) -> float:
        """From -1, surely not, to 1, surely."""
        ((label, score),) = self._rapid(crop, use_det=False, use_cls=True, use_rec=False).cls_res
        return float(score) if label == "180" else -float(score)

    def read(self, crop: Pixels) -> tuple[str, float]:
        """What an upright line says, and how sure that is, 0 to 1."""
        result = self._rapid(crop, use_det=False, use_cls=False, use_rec=True)
        return (str(result.txts[0]).strip(), float(result.scores[0])) if result.txts else ("", 0.0)


@dataclass(slots=True)
class _Line:
    """One line in pixels. `turn` is which way it runs, in degrees clockwise: 0, 90, 180 or 270."""

    centre: tuple[float, float]
    length: float
    height: float
    turn: int
    crop: Pixels
    text: str | None = None  # not read yet

    @property
    def box(self) -> Box:
        across, down = (self.length, self.height) if self.turn % 180 == 0 else (self.height, self.length)
        x, y = self.centre
        return x - across / 2, y - down / 2, x + across / 2, y + down / 2


class PageLines:
    """The lines of one page. They are read when their glyphs are asked for, each once."""

    def __init__(
        self, ocr: Ocr, size_px: tuple[int, int], quads: Sequence[NDArray[np.float32]], crops: Sequence[Pixels]
    ) -> None:
        self._ocr = ocr
        self._width, self._height = size_px
        self._lines = [_line(quad, crop) for quad, crop in zip(quads, crops, strict=True)]
        for level, turned in _UPSIDE_DOWN.items():
            self._set_upright([line for line in self._lines if line.turn == level], turned)
        _level_heights(self._lines)

    @property
    def turn(self) -> int:
        """Which way most of the print runs."""
        lengths = dict.fromkeys((0, 90, 180, 270), 0.0)
        for line in self._lines:
            lengths[line.turn] += line.length
        return max(lengths, key=lambda turn: lengths[turn])

    @property
    def boxes(self) -> list[Box]:
        """Where the lines are, in fractions of the page."""
        return [
            (left / self._width, top / self._height, right / self._width, bottom / self._height)
            for left, top, right, bottom in (line.box for line in self._lines)
        ]

    def glyphs(self, wanted: Callable[[Box], bool] = lambda _: True) -> PageGlyphs:
        """What the lines say whose box, in fractions of the page, is `wanted`; in pixels."""
        found: list[Glyph] = []
        for number, (line, box) in enumerate(zip(self._lines, self.boxes, strict=True)):
            if not wanted(box):
                continue
            if line.text is None:
                text, score = self._ocr.read(line.crop)
                line.text = text if score >= LEAST_SCORE else ""
            found += _glyphs(line, number)
        return PageGlyphs(self._width, self._height, tuple(found))

    def _set_upright(self, lines: Sequence[_Line], turned: int) -> None:
        """All `lines` one way: short ones alone say little about which side is up."""
        if sum(self._ocr.is_upside_down(line.crop) * line.length for line in lines) <= 0:
            return
        # It is wrong now and then about pages of few lines: they are read both ways.
        longest = sorted(lines, key=lambda line: -line.length)[:_READ_BOTH_WAYS]
        gain = sum(self._ocr.read(_turned(line.crop))[1] - self._ocr.read(line.crop)[1] for line in longest)
        if gain <= 0:
            return
        for line in lines:
            line.turn, line.crop = turned, _turned(line.crop)


def _turned(crop: Pixels) -> Pixels:
    return np.ascontiguousarray(crop[::-1, ::-1])


def _line(quad: NDArray[np.float32], crop: Pixels) -> _Line:
    """`quad` has the corners from the top left on, clockwise; a tall one comes with its crop turned left by 90."""
    across = (float(np.linalg.norm(quad[0] - quad[1])) + float(np.linalg.norm(quad[2] - quad[3]))) / 2
    down = (float(np.linalg.norm(quad[0] - quad[3])) + float(np.linalg.norm(quad[1] - quad[2]))) / 2
    x, y = quad.mean(axis=0).tolist()
    tall = crop.shape[1] >= crop.shape[0] and down > across
    return _Line((x, y), max(across, down) if tall else across, min(across, down) if tall else down, 90 * tall, crop)


def _level_heights(lines: Sequence[_Line]) -> None:
    """Lines of about one height get one, beginning with that of most."""
    rest = list(lines)
    while rest:
        height = statistics.median_low(line.height for line in rest)
        alike = [line for line in rest if height / _ALIKE <= line.height <= height * _ALIKE]
        rest = [line for line in rest if not height / _ALIKE <= line.height <= height * _ALIKE]
        for line in alike:
            line.height = height


def _glyphs(line: _Line, number: int) -> list[Glyph]:
    """The characters of a line that was read, side by side; those of CJK take twice the width of others."""
    text = line.text or ""
    widths = [2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text]
    unit = line.length / max(1, sum(widths))
    size = _SIZE * line.height
    found: list[Glyph] = []
    along = -line.length / 2
    for character, width in zip(text, widths, strict=True):
        end = along + unit * width
        (x0, y0), (x1, y1) = (_on_page(line, place, side * line.height / 2) for place, side in ((along, -1), (end, 1)))
        x, y = _on_page(line, along, (0.5 - _DESCENT) * line.height)
        cell = min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)
        found.append(Glyph(character, cell, cell, x, y, size, line.turn, "", known=True, shown=True, run=number))
        along = end
    return found


def _on_page(line: _Line, along: float, down: float) -> tuple[float, float]:
    """A place in the line's own frame, from its centre, as a place on the page."""
    x, y = line.centre
    match line.turn:
        case 0:
            return x + along, y + down
        case 90:
            return x - down, y + along
        case 180:
            return x - along, y - down
    return x + down, y - along
