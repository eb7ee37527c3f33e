"""The sample page of README and tests: the synthetic pages' styles with sentences a person can follow."""

from __future__ import annotations

import random
from pathlib import Path

from PIL import Image, ImageDraw

from . import draw, pages
from .draw import Drawn, Style

DPI = 200
INK = 20
TITLE = "Coffee Machine Manual"
OPENING = "This machine makes coffee in two minutes. Fill the bottle with water before you press the green button."
WARNING = "Never open the machine while it is hot."
HEADING = "Before you start"
STEPS = "Turn the power on, check the water and place a large cup under the machine."
TABLE = (
    ("Drink", "Water", "Price"),
    ("Coffee", "120 ml", "1.80"),
    ("Lemon", "200 ml", "2.40"),
    ("Orange", "250 ml", "2.90"),
)
FORMULA = "E=mc^{2}"


def compose() -> tuple[Image.Image, list[Drawn]]:
    image = Image.new("L", pages.PAGE_PX, 255)
    canvas = ImageDraw.Draw(image)
    left, column = 56, 492
    body, small = Style("serif", False, 20, INK), Style("serif", False, 18, INK)
    blocks = [draw.paragraph(canvas, "header", small, ["Kitchen", "notes"], left, 26, column)]

    def below(gap: int) -> float:
        return max(b.box[3] for b in blocks) + gap

    title = Style("serif", True, 31, INK)
    blocks.append(draw.paragraph(canvas, "title", title, TITLE.split(" "), left, below(28), column))
    blocks.append(draw.paragraph(canvas, "text", body, OPENING.split(" "), left, below(26), column))
    heading = Style("serif", True, 23, INK)
    blocks.append(draw.paragraph(canvas, "title", heading, HEADING.split(" "), left, below(28), column))
    blocks.append(draw.paragraph(canvas, "text", body, STEPS.split(" "), left, below(28), column))
    blocks.append(draw.grid(canvas, body, TABLE, left, below(30) + draw.PAD_PX, gap=22, row_px=34))
    equation = draw.equation(image, FORMULA, Style("serif", False, 24, INK), left, below(34), column)
    assert equation is not None
    blocks.append(equation)
    blocks.append(draw.paragraph(canvas, "text", body, WARNING.split(" "), left, below(28), column))
    blocks.append(draw.paragraph(canvas, "page_number", small, ["Page", "7"], 470, 800, column))
    return image, blocks


def write(path: Path) -> None:
    """A scan of the page as a PDF of one picture."""
    image, _ = compose()
    pages.scan(image, random.Random(1)).convert("L").save(path, "PDF", resolution=DPI, quality=92)
