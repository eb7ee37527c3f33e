"""Blocks drawn on a grey canvas, with exact truth: box, content, and where on the page each piece of the content
stands.

A *piece* is one character or one structure token of a block's answer with the page position it is read from; the
training's helpers need the positions, nothing else does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from PIL import Image, ImageDraw, ImageFont

from . import words

FAMILIES = {  # regular, bold, scale that evens out the apparent size
    "sans": ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", 0.92),
    "serif": ("DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf", 0.92),
    "times": ("STIXGeneral.ttf", "STIXGeneralBol.ttf", 1.12),
}
PAD_PX = 12  # truth boxes stand this far off the ink, so that a found box some pixels off cuts no letter
NOWHERE = float("nan")


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of characters on one line, for the reading helper: ``y`` is its middle, all in pixels."""

    text: str
    x0: float
    x1: float
    y: float


@dataclass(slots=True)
class Drawn:
    type: str
    box: tuple[float, float, float, float]  # x0, y0, x1, y1 in pixels
    pieces: list[Piece] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    @property
    def content(self) -> str:
        return "".join(p.text for p in self.pieces)


@lru_cache(maxsize=256)
def font(family: str, bold: bool, size_px: int) -> ImageFont.FreeTypeFont:
    regular, heavy, scale = FAMILIES[family]
    folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
    return ImageFont.truetype(
        str(folder / (heavy if bold else regular)), round(size_px * scale), layout_engine=ImageFont.Layout.BASIC
    )


@lru_cache(maxsize=65536)
def advance(family: str, bold: bool, size_px: int, char: str) -> float:
    return font(family, bold, size_px).getlength(char)


@dataclass(frozen=True, slots=True)
class Style:
    family: str
    bold: bool
    size_px: int
    ink: int

    def width(self, text: str) -> float:
        return sum(advance(self.family, self.bold, self.size_px, c) for c in text)


def line(canvas: ImageDraw.ImageDraw, style: Style, text: str, x: float, y: float) -> tuple[list[Piece], Segment]:
    """Draw one line whose baseline box starts at (x, y); the middle of its x-height is what positions refer to."""
    face = font(style.family, style.bold, style.size_px)
    canvas.text((x, y), text, fill=style.ink, font=face)
    middle = y + face.getmetrics()[0] - 0.27 * style.size_px
    pieces, at = [], x
    for char in text:
        step = advance(style.family, style.bold, style.size_px, char)
        pieces.append(Piece(char, at + step / 2, middle))
        at += step
    return pieces, Segment(text, x, at, middle)


def line_box(style: Style, segment: Segment) -> tuple[float, float, float, float]:
    size = style.size_px
    return segment.x0 - PAD_PX, segment.y - 0.55 * size - PAD_PX, segment.x1 + PAD_PX, segment.y + 0.55 * size + PAD_PX


def union(boxes: list[tuple[float, float, float, float]]) -> tuple[float, float, float, float]:
    xs0, ys0, xs1, ys1 = zip(*boxes, strict=True)
    return min(xs0), min(ys0), max(xs1), max(ys1)


def paragraph(
    canvas: ImageDraw.ImageDraw,
    kind: str,
    style: Style,
    text: list[str],
    x: float,
    y: float,
    width: float,
    pitch: float = 1.35,
) -> Drawn:
    """Ragged-right lines of ``text`` (words) that fit ``width``; lines are joined by one space in the answer."""
    lines: list[str] = [text[0]]
    for w in text[1:]:
        if style.width(lines[-1] + " " + w) <= width:
            lines[-1] += " " + w
        else:
            lines.append(w)
    block, boxes = Drawn(kind, (0, 0, 0, 0)), []
    for n, content in enumerate(lines):
        pieces, segment = line(canvas, style, content, x, y + n * pitch * style.size_px)
        if n:
            last = block.pieces[-1]
            block.pieces.append(Piece(" ", last.x, last.y))
        block.pieces += pieces
        block.segments.append(segment)
        boxes.append(line_box(style, segment))
    block.box = union(boxes)
    return block


def table(canvas: ImageDraw.ImageDraw, rng: random.Random, style: Style, x: float, y: float, width: float) -> Drawn:
    """A simple table: a header row, then rows of one kind of value per column; full rules, row rules or few."""
    columns, rows = rng.randint(2, 4), rng.randint(2, 5)
    kinds = [0] + [rng.randint(0, 4) for _ in range(columns - 1)]
    texts = [[words.cell(rng, 0).split()[0] for _ in kinds]]
    texts += [
        [words.cell(rng, k) if n == 0 or rng.random() > 0.04 else "" for n, k in enumerate(kinds)]
        for _ in range(rows - 1)
    ]
    gap = rng.randint(11, 24)
    while columns > 2 and sum(max(style.width(r[c]) for r in texts) + 2 * gap for c in range(columns)) > width:
        columns -= 1
        texts = [r[:columns] for r in texts]
    return grid(
        canvas,
        style,
        texts,
        x,
        y,
        gap=gap,
        row_px=round(style.size_px * rng.uniform(1.5, 1.9)),
        rules=rng.choice(("grid", "grid", "rows", "edges")),
        rule_px=rng.choice((1, 1, 2)),
        centred=rng.random() < 0.3,
        bold_head=rng.random() < 0.5,
    )


def grid(
    canvas: ImageDraw.ImageDraw,
    style: Style,
    texts: Sequence[Sequence[str]],
    x: float,
    y: float,
    *,
    gap: int,
    row_px: int,
    rules: str = "grid",
    rule_px: int = 1,
    centred: bool = False,
    bold_head: bool = True,
) -> Drawn:
    """``texts`` by row, drawn from (x, y), answered in OTSL. ``rules`` is grid, rows or edges."""
    rows, columns = len(texts), len(texts[0])
    widths = [max(style.width(r[c]) for r in texts) + 2 * gap for c in range(columns)]
    total = sum(widths)
    block = Drawn("table", (x - PAD_PX, y - PAD_PX, x + total + PAD_PX, y + rows * row_px + PAD_PX))
    for r in range(rows + 1):
        if rules != "edges" or r in (0, 1, rows):
            canvas.line([(x, y + r * row_px), (x + total, y + r * row_px)], fill=style.ink, width=rule_px)
    if rules == "grid":
        for c in range(columns + 1):
            at = x + sum(widths[:c])
            canvas.line([(at, y), (at, y + rows * row_px)], fill=style.ink, width=rule_px)
    for r, row in enumerate(texts):
        middle = y + (r + 0.5) * row_px
        face = Style(style.family, bold_head, style.size_px, style.ink) if r == 0 else style
        for c, text in enumerate(row):
            left = x + sum(widths[:c])
            if not text:
                block.pieces.append(Piece("<ecel>", left + widths[c] / 2, middle))
                continue
            start = left + ((widths[c] - face.width(text)) / 2 if centred else gap)
            ascent = font(face.family, face.bold, face.size_px).getmetrics()[0]
            pieces, segment = line(canvas, face, text, start, middle - ascent + 0.33 * face.size_px)
            block.pieces += [Piece("<fcel>", start + 3, middle), *pieces]
            block.segments.append(segment)
        block.pieces.append(Piece("<nl>", x + total - 5, middle))
    return block


_parser = MathTextParser("agg")


def equation(image: Image.Image, latex: str, style: Style, x: float, y: float, width: float) -> Drawn | None:
    """Display LaTeX drawn by matplotlib's mathtext, centred in ``width``; None if it does not fit."""
    fontset = {"sans": "dejavusans", "serif": "dejavuserif", "times": "stix"}[style.family]
    with matplotlib.rc_context({"mathtext.fontset": fontset}):
        raster = _parser.parse(
            f"${latex}$", dpi=72, prop=FontProperties(size=style.size_px * (1.1 if style.family == "times" else 0.95))
        )
    pixels = np.asarray(raster.image)
    rows, cols = np.nonzero(pixels > 40)
    if not len(rows):
        return None
    pixels = pixels[rows.min() : rows.max() + 1, cols.min() : cols.max() + 1]
    height, wide = pixels.shape
    if wide > width:
        return None
    left = round(x + (width - wide) / 2)
    ink = Image.fromarray((255 - pixels.astype(np.int32) * (255 - style.ink) // 255).astype(np.uint8))
    image.paste(ink, (left, round(y)), Image.fromarray(pixels))
    block = Drawn("equation", (left - PAD_PX, y - PAD_PX, left + wide + PAD_PX, y + height + PAD_PX))
    block.pieces = [Piece(t, NOWHERE, NOWHERE) for t in ("\\[", *latex, "\\]")]
    return block
