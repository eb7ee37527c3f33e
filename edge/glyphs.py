"""The glyphs of a PDF page as values: where each stands on the page as shown, and what it means."""

from __future__ import annotations

from dataclasses import dataclass

Rect = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Glyph:
    """One drawn sign, in points from the top left of the page as shown: rectangles are (left, top, right, bottom).

    `text` is what the PDF says it means, several characters for a ligature; `known` is False where it says nothing and
    PDFium guessed. `ink` bounds the drawing, `cell` its advance and the font's height, `x`, `y` is its origin on the
    baseline. `size` is the font's size as shown. `turn` is how far the text runs off the horizontal, in degrees
    clockwise, 0 to 359. `shown` is False when it is drawn invisibly or under a picture. `run` numbers the text object.
    """

    text: str
    ink: Rect
    cell: Rect
    x: float
    y: float
    size: float
    turn: int
    font: str
    known: bool
    shown: bool
    run: int


@dataclass(frozen=True, slots=True)
class PageGlyphs:
    """All glyphs of a page in the order of the file. `width` and `height` are those of the page as shown, in points.

    `blank` is True when nothing at all is drawn on it.
    """

    width: float
    height: float
    glyphs: tuple[Glyph, ...]
    blank: bool = False
