"""What PDFium knows of the glyphs of one page: where each stands on the page as shown, and what character it is.

No judgement and no order here: `text_lines` makes words and lines of them. All of it must run under the lock of
`pdf`, for PDFium has none of its own.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pypdfium2.raw as pdfium_c

from .glyphs import Glyph, PageGlyphs, Rect
from .pdf_fonts import font_name

MOST_GLYPHS = 100_000  # a page of newsprint has a fifth of that
PAGE_UNITS = 1 << 24  # PDFium tells places on the page as whole numbers: as many as there can be
_INVISIBLE_MODES = frozenset({pdfium_c.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium_c.FPDF_TEXTRENDERMODE_CLIP})
_LEVEL_DEGREES = 2.0  # scanned and rounded matrices are a little off
_SMALLEST_PT = 0.5  # smaller print is there for machines
_HYPHEN = 0x02  # what PDFium puts for the hyphen of a word that it found cut


def read_glyphs(page: Any) -> PageGlyphs:
    """The glyphs of an open pypdfium2 page; glyphs outside of its crop box are left out.

    ValueError when the page has no size, or more than `MOST_GLYPHS`.
    """
    width, height = page.get_size()
    if not (math.isfinite(width) and math.isfinite(height) and min(width, height) > 0):
        raise ValueError(f"its size is {width:g} x {height:g} points")
    place = _Place(page, width, height)
    text_page = page.get_textpage()
    try:
        found = tuple(_glyphs(text_page, place, _Runs(page, place)))
    finally:
        text_page.close()
    inside = tuple(each for each in found if _on_page(each, width, height))
    return PageGlyphs(width, height, inside, blank=pdfium_c.FPDFPage_CountObjects(page) == 0)


def _on_page(glyph: Glyph, width: float, height: float) -> bool:
    left, top, right, bottom = glyph.cell
    if not (glyph.size > 0 and math.isfinite(glyph.size + glyph.x + glyph.y)):
        return False
    return 0 <= (left + right) / 2 <= width and 0 <= (top + bottom) / 2 <= height


class _Place:
    """PDF space to the page as shown: rotation, crop box and all, taken from PDFium's own mapping of three points."""

    def __init__(self, page: Any, width: float, height: float) -> None:
        # The three points lie one page apart; the origin of PDF space may be far off a cropped page.
        left, bottom, right, top = page.get_cropbox(fallback_ok=True)
        reach = max(right - left, top - bottom, 1.0)
        corner = self._shown(page, left, bottom)
        across, up = self._shown(page, left + reach, bottom), self._shown(page, left, bottom + reach)
        fx, fy = width / PAGE_UNITS, height / PAGE_UNITS
        self.a, self.b = (across[0] - corner[0]) * fx / reach, (across[1] - corner[1]) * fy / reach
        self.c, self.d = (up[0] - corner[0]) * fx / reach, (up[1] - corner[1]) * fy / reach
        self.e = corner[0] * fx - self.a * left - self.c * bottom
        self.f = corner[1] * fy - self.b * left - self.d * bottom

    def point(self, x: float, y: float) -> tuple[float, float]:
        return self.a * x + self.c * y + self.e, self.b * x + self.d * y + self.f

    def vector(self, x: float, y: float) -> tuple[float, float]:
        return self.a * x + self.c * y, self.b * x + self.d * y

    def rect(self, left: float, bottom: float, right: float, top: float) -> Rect:
        (x0, y0), (x1, y1) = self.point(left, bottom), self.point(right, top)
        return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)

    @staticmethod
    def _shown(page: Any, x: float, y: float) -> tuple[int, int]:
        across, down = ctypes.c_int(), ctypes.c_int()
        pdfium_c.FPDF_PageToDevice(page, 0, 0, PAGE_UNITS, PAGE_UNITS, 0, x, y, across, down)
        return across.value, down.value


@dataclass(frozen=True, slots=True)
class _Run:
    """What all glyphs of one text object share."""

    number: int
    size: float
    turn: int
    font: str
    invisible: bool
    covers: tuple[Rect, ...]  # pictures drawn later


class _Runs:
    """The text objects of a page, each looked at once."""

    def __init__(self, page: Any, place: _Place) -> None:
        self._place = place
        self._known: dict[int, _Run] = {}
        self._later: dict[int, tuple[Rect, ...]] = {}
        above: tuple[Rect, ...] = ()
        for index in reversed(range(pdfium_c.FPDFPage_CountObjects(page))):
            drawn = pdfium_c.FPDFPage_GetObject(page, index)
            kind = pdfium_c.FPDFPageObj_GetType(drawn)
            if kind == pdfium_c.FPDF_PAGEOBJ_IMAGE and not pdfium_c.FPDFPageObj_HasTransparency(drawn):
                above = (*above, self._bounds(drawn))
            elif kind == pdfium_c.FPDF_PAGEOBJ_TEXT and above:
                self._later[_address(drawn)] = above

    def of(self, text_page: Any, index: int) -> _Run | None:
        """That of the character `index`, None for one that PDFium made up."""
        drawn = pdfium_c.FPDFText_GetTextObject(text_page, index)
        if not drawn:
            return None
        address = _address(drawn)
        if address not in self._known:
            self._known[address] = self._look(text_page, index, drawn, address)
        return self._known[address]

    def _look(self, text_page: Any, index: int, drawn: Any, address: int) -> _Run:
        matrix = pdfium_c.FS_MATRIX()
        pdfium_c.FPDFText_GetMatrix(text_page, index, matrix)
        along, up = self._place.vector(matrix.a, matrix.b), self._place.vector(matrix.c, matrix.d)
        degrees = math.degrees(math.atan2(along[1], along[0]))
        right_angle = round(degrees / 90) * 90
        return _Run(
            number=len(self._known),
            size=abs(pdfium_c.FPDFText_GetFontSize(text_page, index)) * math.hypot(*up),
            turn=int(right_angle if abs(degrees - right_angle) <= _LEVEL_DEGREES else round(degrees)) % 360,
            font=font_name(pdfium_c.FPDFTextObj_GetFont(drawn)),
            invisible=pdfium_c.FPDFTextObj_GetTextRenderMode(drawn) in _INVISIBLE_MODES,
            covers=self._later.get(address, ()),
        )

    def _bounds(self, drawn: Any) -> Rect:
        left, bottom, right, top = (ctypes.c_float() for _ in range(4))
        pdfium_c.FPDFPageObj_GetBounds(drawn, left, bottom, right, top)
        return self._place.rect(left.value, bottom.value, right.value, top.value)


def _glyphs(text_page: Any, place: _Place, runs: _Runs) -> Iterator[Glyph]:
    left, right, bottom, top, x, y = (ctypes.c_double() for _ in range(6))
    loose = pdfium_c.FS_RECTF()
    text, waiting = "", None  # a ligature comes as several characters at one place
    count = pdfium_c.FPDFText_CountChars(text_page)
    if count > MOST_GLYPHS:
        raise ValueError(f"it has {count:,} signs, {MOST_GLYPHS:,} are allowed")
    for index in range(count):
        run = runs.of(text_page, index)
        if run is None or pdfium_c.FPDFText_IsGenerated(text_page, index):
            continue
        pdfium_c.FPDFText_GetCharOrigin(text_page, index, x, y)
        pdfium_c.FPDFText_GetLooseCharBox(text_page, index, loose)
        character = _character(text_page, index)
        spot = (run.number, x.value, y.value, loose.left, loose.right)
        if waiting is not None and waiting[0] == spot:
            text += character
            continue
        if waiting is not None:
            yield _glyph(text, *waiting)
        pdfium_c.FPDFText_GetCharBox(text_page, index, left, right, bottom, top)
        known = not pdfium_c.FPDFText_HasUnicodeMapError(text_page, index)
        ink = place.rect(left.value, bottom.value, right.value, top.value)
        cell = place.rect(loose.left, loose.bottom, loose.right, loose.top)
        text, waiting = character, (spot, run, ink, cell, place.point(x.value, y.value), known)
    if waiting is not None:
        yield _glyph(text, *waiting)


def _glyph(text: str, _: object, run: _Run, ink: Rect, cell: Rect, origin: tuple[float, float], known: bool) -> Glyph:
    x, y = (cell[0] + cell[2]) / 2, (cell[1] + cell[3]) / 2
    covered = any(left <= x <= right and top <= y <= bottom for left, top, right, bottom in run.covers)
    shown = run.size >= _SMALLEST_PT and not run.invisible and not covered
    return Glyph(text, ink, cell, *origin, run.size, run.turn, run.font, known, shown, run.number)


def _character(text_page: Any, index: int) -> str:
    code = pdfium_c.FPDFText_GetUnicode(text_page, index)
    if code == _HYPHEN and pdfium_c.FPDFText_IsHyphen(text_page, index) == 1:
        return "-"
    return chr(code) if code <= 0x10FFFF else "\ufffd"


def _address(drawn: Any) -> int:
    return ctypes.addressof(drawn.contents)
