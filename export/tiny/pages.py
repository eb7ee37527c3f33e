"""Synthetic small pages (600 x 848 px, 76 x 108 mm at 200 dpi) with exact truth, one per seed.

A page is a title, paragraphs, a list, a table, a display formula, headers, footers and page numbers in one column,
in one of three type families, with light scan noise.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from . import draw, words
from .draw import Drawn, Style

PAGE_PX = (600, 848)


@dataclass(frozen=True, slots=True)
class TruthBlock:
    """``bbox`` is x0, y0, x1, y1 in thousandths of the page; ``content`` is the model's answer for the block, None
    for a list."""

    type: str
    bbox: tuple[int, int, int, int]
    content: str | None


@dataclass(frozen=True, slots=True)
class TruthPage:
    seed: int
    image: Image.Image
    blocks: tuple[TruthBlock, ...]
    drawn: tuple[Drawn, ...]

    @property
    def layout(self) -> str:
        """The layout answer, as the protocol spells it."""
        return "\n".join(layout_line(b) for b in self.blocks)


def layout_line(block: TruthBlock) -> str:
    box = " ".join(f"{v:03d}" for v in block.bbox)
    return f"<|box_start|>{box}<|box_end|><|ref_start|>{block.type}<|ref_end|><|rotate_up|>"


def thousandths(box: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    scaled = [v / s * 1000 for v, s in zip(box, (*size, *size), strict=True)]
    x0, y0, x1, y1 = (min(999, max(0, round(v))) for v in scaled)
    return x0, y0, x1, y1


_noise: list[NDArray[np.int8]] = []


def scan(image: Image.Image, rng: random.Random) -> Image.Image:
    """Light scan noise: paper tone, blur, grain. Greys in, RGB out."""
    if not _noise:
        noise = np.random.default_rng(7).standard_normal((2048, 2048)).astype(np.float32)
        _noise.append(np.clip(np.round(noise * 4), -16, 16).astype(np.int8))
    if rng.random() < 0.6:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 0.7)))
    if rng.random() < 0.7:
        values = np.asarray(image, np.int16)
        top, left = rng.randrange(2048 - image.height + 1), rng.randrange(2048 - image.width + 1)
        grain = _noise[0][top : top + image.height, left : left + image.width]
        grey = values - rng.randint(0, 14) + (grain if rng.random() < 0.6 else grain // 2)
        image = Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8))
    return image.convert("RGB")


@dataclass(slots=True)
class _Sheet:
    """A page being filled from the top; ``bottom`` is where the body has to end."""

    rng: random.Random
    image: Image.Image
    canvas: ImageDraw.ImageDraw
    family: str
    ink: int
    left: float
    column: float
    pitch: float
    bottom: float
    blocks: list[Drawn]

    def style(self, smallest_px: int, largest_px: int, *, bold: bool = False) -> Style:
        return Style(self.family, bold, self.rng.randint(smallest_px, largest_px), self.ink)

    def paragraph(self, kind: str, style: Style, text: Sequence[str], x: float, y: float, width: float) -> Drawn:
        return draw.paragraph(self.canvas, kind, style, list(text), x, y, width)

    def measured(self, kind: str, style: Style, text: Sequence[str], x: float, y: float, width: float) -> Drawn:
        """The same without a mark on the page."""
        canvas = ImageDraw.Draw(Image.new("L", (1, 1)))
        return draw.paragraph(canvas, kind, style, list(text), x, y, width, self.pitch)

    def ink_in(self, block: Drawn, style: Style) -> None:
        """Draw what was measured."""
        face = draw.font(style.family, style.bold, style.size_px)
        for s in block.segments:
            at = s.x0, s.y + 0.27 * style.size_px - face.getmetrics()[0]
            self.canvas.text(at, s.text, fill=style.ink, font=face)


def compose(rng: random.Random) -> tuple[Image.Image, list[Drawn]]:
    """Draw one page in reading order; the picture is still without noise, mode L."""
    width, height = PAGE_PX
    image = Image.new("L", PAGE_PX, 255)
    left, right = rng.randint(38, 70), rng.randint(38, 70)
    sheet = _Sheet(
        rng=rng,
        image=image,
        canvas=ImageDraw.Draw(image),
        family=rng.choice(tuple(draw.FAMILIES)),
        ink=rng.randint(0, 60),
        left=left,
        column=width - left - right,
        pitch=rng.uniform(1.25, 1.5),
        bottom=height - rng.randint(46, 76),
        blocks=[],
    )
    small = sheet.style(17, 18)
    y = _head(sheet, small)
    tail = _tail(sheet, small, right)
    if rng.random() < 0.75:
        y = _title(sheet, y)
    _body(sheet, y)
    return image, sheet.blocks + tail


def _head(sheet: _Sheet, small: Style) -> float:
    """Perhaps a header; where the body starts."""
    rng = sheet.rng
    y = float(rng.randint(36, 66))
    if rng.random() < 0.6:
        x = sheet.left + rng.choice((0, 0, sheet.column * 0.45))
        text = words.heading(rng).split()
        sheet.blocks.append(sheet.paragraph("header", small, text, x, rng.randint(20, 32), sheet.column * 0.5))
        y = sheet.blocks[-1].box[3] + rng.randint(16, 40)
    return y


def _tail(sheet: _Sheet, small: Style, right: int) -> list[Drawn]:
    """Perhaps a footer, perhaps a page number; the body ends above them."""
    rng, (width, height) = sheet.rng, PAGE_PX
    tail = []
    if rng.random() < 0.5:
        text = words.heading(rng).split()[:4]
        y = height - rng.randint(42, 56)
        tail.append(sheet.paragraph("footer", small, text, sheet.left, y, sheet.column * 0.55))
    if rng.random() < 0.6:
        number = rng.choice(("{}", "- {} -", "Page {}", "{} / 99", "p. {}")).format(rng.randint(1, 99))
        beside = bool(tail) or rng.random() < 0.5
        x = width - right - small.width(number) if beside else (width - small.width(number)) / 2
        tail.append(sheet.paragraph("page_number", small, [number], x, height - rng.randint(42, 54), sheet.column))
    sheet.bottom = min([sheet.bottom, *(block.box[1] - 14 for block in tail)])
    return tail


def _title(sheet: _Sheet, y: float) -> float:
    rng = sheet.rng
    style = sheet.style(26, 33, bold=rng.random() < 0.8)
    text = words.heading(rng)
    while style.width(text) > sheet.column:
        text = text[: text.rfind(" ")] if " " in text else text[:8]
    x = sheet.left if rng.random() < 0.6 else (PAGE_PX[0] - style.width(text)) / 2
    sheet.blocks.append(sheet.paragraph("title", style, text.split(" "), x, y, sheet.column + 20))
    return sheet.blocks[-1].box[3] + rng.randint(18, 40)


def _body(sheet: _Sheet, y: float) -> None:
    """Text, lists, tables, formulas and headings until one does not fit."""
    rng = sheet.rng
    kinds = {"text": 50, "list": 12, "table": 16, "equation": 16, "title": 6}
    body = sheet.style(18, 21)
    while y < sheet.bottom - 44:
        kind = rng.choices(tuple(kinds), tuple(kinds.values()))[0]
        if kind == "list":
            added = _list(sheet, body, sheet.left + rng.randint(0, 26), y)
        elif kind == "table":
            added = _table(sheet, y)
        elif kind == "equation":
            added = _equation(sheet, y)
        elif kind == "title":
            added = _text(sheet, "title", sheet.style(21, 25, bold=True), words.heading(rng).split(), y)
        else:
            added = _text(sheet, "text", body, running(rng, rng.choice((4, 8, 14, 20, 28, 36))), y)
        if not added:
            return
        sheet.blocks += added
        y = max(block.box[3] for block in added) + rng.randint(20, 44)


def running(rng: random.Random, most: int) -> list[str]:
    """At most ``most`` words of running text and at least half as many."""
    return " ".join(words.words(rng, rng.randint(max(1, most // 2), most))).split(" ")


def _text(sheet: _Sheet, kind: str, style: Style, text: list[str], y: float) -> list[Drawn]:
    block = sheet.measured(kind, style, text, sheet.left, y, sheet.column)
    if block.box[3] > sheet.bottom:
        return []
    sheet.ink_in(block, style)
    return [block]


def _list(sheet: _Sheet, style: Style, x: float, y: float) -> list[Drawn]:
    """A ``list`` container and its items of one line each, which the protocol names ``text``."""
    rng = sheet.rng
    marker = rng.choice(("•", "-", "1.", "a)"))
    items: list[Drawn] = []
    for n in range(rng.randint(2, 4)):
        sign = {"1.": f"{n + 1}.", "a)": f"{'abcd'[n]})"}.get(marker, marker)
        item = sheet.measured("text", style, [sign, *running(rng, rng.choice((3, 5)))], x, y, sheet.column - 30)
        first = item.segments[0].text.split(" ")
        item = sheet.measured("text", style, first, x, y, sheet.column)
        if item.box[3] > sheet.bottom:
            break
        items.append(item)
        y = item.box[3] + rng.randint(0, 8) + draw.PAD_PX
    if len(items) < 2:
        return []
    for item in items:
        sheet.ink_in(item, style)
    return [Drawn("list", draw.union([i.box for i in items])), *items]


def _table(sheet: _Sheet, y: float) -> list[Drawn]:
    style = sheet.style(17, 20)
    if y + 12 * style.size_px > sheet.bottom:  # five rows and their padding
        return []
    return [draw.table(sheet.canvas, sheet.rng, style, sheet.left, y + draw.PAD_PX, sheet.column)]


def _equation(sheet: _Sheet, y: float) -> list[Drawn]:
    if y + 90 > sheet.bottom:
        return []
    style = sheet.style(20, 25)
    while True:
        latex = words.formula(sheet.rng)
        block = draw.equation(sheet.image, latex, style, sheet.left, y + draw.PAD_PX, sheet.column)
        if block is not None:
            return [block]


def generate_page(seed: int) -> TruthPage:
    """The page of ``seed``: the same pixels and truth on every machine with the same Pillow and matplotlib."""
    rng = random.Random(seed)
    image, drawn = compose(rng)
    blocks = tuple(TruthBlock(b.type, thousandths(b.box, PAGE_PX), b.content if b.pieces else None) for b in drawn)
    return TruthPage(seed, scan(image, rng), blocks, tuple(drawn))
