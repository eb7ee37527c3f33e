"""The glyphs of a PDF page as values: where each stands on the page as shown, and what it means."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def upright(page: PageGlyphs, turn: int) -> PageGlyphs:
    """`page` turned back by `turn`, 0, 90, 180 or 270 degrees, so that text which ran that way runs level."""
    if turn == 0:
        return page
    width, height = (page.width, page.height) if turn == 180 else (page.height, page.width)

    def place(x: float, y: float) -> tuple[float, float]:
        if turn == 90:
            return y, page.width - x
        return (page.width - x, page.height - y) if turn == 180 else (page.height - y, x)

    def rect(given: Rect) -> Rect:
        (x0, y0), (x1, y1) = place(given[0], given[1]), place(given[2], given[3])
        return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)

    turned = []
    for glyph in page.glyphs:
        x, y = place(glyph.x, glyph.y)
        turned.append(
            replace(glyph, ink=rect(glyph.ink), cell=rect(glyph.cell), x=x, y=y, turn=(glyph.turn - turn) % 360)
        )
    return replace(page, width=width, height=height, glyphs=tuple(turned))


def turned_box(box: Rect, turn: int) -> Rect:
    """A box of the page that was set `upright`, in fractions, as a box of the page as it was."""
    left, top, right, bottom = box
    if turn == 90:
        return 1 - bottom, left, 1 - top, right
    if turn == 180:
        return 1 - right, 1 - bottom, 1 - left, 1 - top
    return (top, 1 - right, bottom, 1 - left) if turn == 270 else box
