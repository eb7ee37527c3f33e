"""Synthetic small pages (600 x 848 px, 76 x 108 mm at 200 dpi) with exact truth, one per seed.

A page is a title, paragraphs, a list, a table, a display formula, headers, footers and page numbers in one column,
in one of three type families, with light scan noise.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
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


_noise: list[np.ndarray] = []


def scan(image: Image.Image, rng: random.Random) -> Image.Image:
    """Light scan noise: paper tone, blur, grain. Greys in, RGB out."""
    if not _noise:
        grain = np.random.default_rng(7).standard_normal((2048, 2048)).astype(np.float32)
        _noise.append(np.clip(np.round(grain * 4), -16, 16).astype(np.int8))
    if rng.random() < 0.6:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 0.7)))
    if rng.random() < 0.7:
        values = np.asarray(image, np.int16)
        top, left = rng.randrange(2048 - image.height + 1), rng.randrange(2048 - image.width + 1)
        grain = _noise[0][top : top + image.height, left : left + image.width]
        values = values - rng.randint(0, 14) + (grain if rng.random() < 0.6 else grain // 2)
        image = Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))
    return image.convert("RGB")


def compose(rng: random.Random) -> tuple[Image.Image, list[Drawn]]:
    """Draw one page in reading order; the picture is still without noise, mode L."""
    width, height = PAGE_PX
    image = Image.new("L", PAGE_PX, 255)
    canvas = ImageDraw.Draw(image)
    family, ink = rng.choice(tuple(draw.FAMILIES)), rng.randint(0, 60)
    left, right = rng.randint(38, 70), rng.randint(38, 70)
    column = width - left - right
    body, small = Style(family, False, rng.randint(18, 21), ink), Style(family, False, rng.randint(17, 18), ink)
    pitch = rng.uniform(1.25, 1.5)
    head: list[Drawn] = []
    tail: list[Drawn] = []
    y = float(rng.randint(36, 66))
    if rng.random() < 0.6:
        block = draw.paragraph(
            canvas,
            rng,
            "header",
            small,
            words.heading(rng).split(),
            left + rng.choice((0, 0, column * 0.45)),
            rng.randint(20, 32),
            column * 0.5,
        )
        head.append(block)
        y = block.box[3] + rng.randint(16, 40)
    bottom = height - rng.randint(46, 76)
    if rng.random() < 0.5:
        text = words.heading(rng).split()[:4]
        block = draw.paragraph(canvas, rng, "footer", small, text, left, height - rng.randint(42, 56), column * 0.55)
        tail.append(block)
        bottom = min(bottom, block.box[1] - 14)
    if rng.random() < 0.6:
        number = rng.choice(("{}", "- {} -", "Page {}", "{} / 99", "p. {}")).format(rng.randint(1, 99))
        at = width - right - small.width(number) if tail or rng.random() < 0.5 else (width - small.width(number)) / 2
        block = draw.paragraph(canvas, rng, "page_number", small, [number], at, height - rng.randint(42, 54), column)
        tail.append(block)
        bottom = min(bottom, block.box[1] - 14)
    blocks = head
    if rng.random() < 0.75:
        title = Style(family, rng.random() < 0.8, rng.randint(26, 33), ink)
        text = words.heading(rng)
        while title.width(text) > column:
            text = text[: text.rfind(" ")] if " " in text else text[:8]
        at = left if rng.random() < 0.6 else (width - title.width(text)) / 2
        blocks.append(draw.paragraph(canvas, rng, "title", title, text.split(" "), at, y, column + 20))
        y = blocks[-1].box[3] + rng.randint(18, 40)
    while y < bottom - 44:
        block = None
        kind = rng.choices(("text", "list", "table", "equation", "title"), (50, 12, 16, 16, 6))[0]
        if kind == "text":
            count = rng.choice((4, 8, 14, 20, 28, 36))
            block = draw.paragraph(scratch(), rng, "text", body, state_words(rng, count), left, y, column, pitch)
        elif kind == "title":
            heading = Style(family, True, rng.randint(21, 25), ink)
            block = draw.paragraph(scratch(), rng, "title", heading, words.heading(rng).split(), left, y, column)
        if kind in ("text", "title"):
            if block is None or block.box[3] > bottom:
                break
            style = body if kind == "text" else heading
            redraw(canvas, block, style)
            blocks.append(block)
        elif kind == "list":
            items = list_items(canvas, rng, body, left + rng.randint(0, 26), y, column, bottom)
            if not items:
                break
            blocks += items
        elif kind == "table":
            style = Style(family, False, rng.randint(17, 20), ink)
            if y + 6 * 2 * style.size_px > bottom:
                break
            blocks.append(draw.table(canvas, rng, style, left, y + draw.PAD_PX, column))
        else:
            if y + 90 > bottom:
                break
            style = Style(family, False, rng.randint(20, 25), ink)
            equation = draw.equation(image, words.formula(rng), style, left, y + draw.PAD_PX, column)
            if equation is None:
                continue
            blocks.append(equation)
        y = max(b.box[3] for b in blocks) + rng.randint(20, 44)
    return image, blocks + tail


def scratch() -> ImageDraw.ImageDraw:
    """A canvas nothing is kept of, for measuring a block before it is drawn."""
    return ImageDraw.Draw(Image.new("L", (1, 1)))


def state_words(rng: random.Random, count: int) -> list[str]:
    return " ".join(words.words(rng, rng.randint(max(1, count // 2), count))).split(" ")


def redraw(canvas: ImageDraw.ImageDraw, block: Drawn, style: Style) -> None:
    face = draw.font(style.family, style.bold, style.size_px)
    for s in block.segments:
        canvas.text((s.x0, s.y + 0.27 * style.size_px - face.getmetrics()[0]), s.text, fill=style.ink, font=face)


def list_items(
    canvas: ImageDraw.ImageDraw, rng: random.Random, style: Style, x: float, y: float, column: float, bottom: float
) -> list[Drawn]:
    """A ``list`` container and its items, which the protocol names ``text``."""
    marker = rng.choice(("•", "-", "1.", "a)"))
    out: list[Drawn] = []
    for n in range(rng.randint(2, 4)):
        sign = {"1.": f"{n + 1}.", "a)": f"{'abcd'[n]})"}.get(marker, marker)
        text = [sign, *state_words(rng, rng.choice((3, 5)))]
        item = draw.paragraph(scratch(), rng, "text", style, text, x, y, column - 30)
        if len(item.segments) > 1:
            item = draw.paragraph(scratch(), rng, "text", style, item.segments[0].text.split(" "), x, y, column)
        if item.box[3] > bottom:
            break
        redraw(canvas, item, style)
        out.append(item)
        y = item.box[3] + rng.randint(0, 8) + draw.PAD_PX
    if len(out) < 2:
        return []
    return [Drawn("list", draw.union([i.box for i in out])), *out]


def generate_page(seed: int) -> TruthPage:
    """The page of ``seed``: the same pixels and truth on every machine with the same Pillow and matplotlib."""
    rng = random.Random(seed)
    image, drawn = compose(rng)
    blocks = tuple(TruthBlock(b.type, thousandths(b.box, PAGE_PX), b.content if b.pieces else None) for b in drawn)
    return TruthPage(seed, scan(image, rng), blocks, tuple(drawn))
