"""Pages with their blocks drawn in: boxes in the colour of their type, numbered in reading order.

The page is drawn once more for it, so that reading holds no picture longer than it needs to.
"""

from __future__ import annotations

import math
from io import BytesIO
from itertools import pairwise

from PIL import Image, ImageDraw, ImageFont

from .document import MODEL, Block, Page
from .drawer import Drawer
from .intake import Input, Source, open_source
from .outputs import OutputFolder

Colour = tuple[int, int, int]

_TEXT, _TITLE, _LIST, _TABLE = (31, 119, 180), (214, 39, 40), (140, 86, 75), (44, 160, 44)
_FIGURE, _FORMULA, _NOTE, _CODE = (148, 103, 189), (255, 127, 14), (23, 190, 207), (188, 189, 34)
_AROUND, _OTHER = (127, 127, 127), (227, 119, 194)
COLOURS: dict[str, Colour] = {
    **dict.fromkeys(("text", "index", "ref_text", "phonetic"), _TEXT),
    **dict.fromkeys(("title", "doc_title", "paragraph_title"), _TITLE),
    **dict.fromkeys(("list", "list_item"), _LIST),
    **dict.fromkeys(("image", "chart", "image_block"), _FIGURE),
    **dict.fromkeys(("equation", "equation_block", "formula_number"), _FORMULA),
    **dict.fromkeys(("caption", "table_caption", "image_caption", "code_caption"), _NOTE),
    **dict.fromkeys(("footnote", "table_footnote", "image_footnote", "page_footnote"), _NOTE),
    **dict.fromkeys(("code", "algorithm"), _CODE),
    **dict.fromkeys(("header", "footer", "page_number", "aside_text"), _AROUND),
    "table": _TABLE,
}
_PX_PER_LINE_WIDTH = 700  # of the long edge
_PX_PER_LETTER = 90  # of the long edge, for the height of letters


class Overlay:
    """Writes the pages of one file as NAME_page_N.png into `folder`."""

    def __init__(self, folder: OutputFolder, name: str, source: Input, *, password: str | None = None) -> None:
        self._folder, self._name, self._input, self._password = folder, name, source, password
        self._drawer = Drawer(stays=False)  # beside the one that reads, so that no second one waits all the time
        self._source: Source | None = None

    def has(self, page: Page) -> bool:
        """Whether this page's picture is there already."""
        return (self._folder.path / self._file(page)).exists()

    def write(self, page: Page) -> None:
        """The picture of `page` with its blocks, if it has a picture. SpaceError when it cannot be written."""
        if self._source is None:
            self._source = open_source(self._input, password=self._password, drawer=self._drawer)
        for sheet in self._source.sheets([page.number]):
            if sheet.image is not None:
                stream = BytesIO()
                draw_blocks(sheet.image, page).save(stream, "PNG")
                self._folder.write_file(self._file(page), stream.getvalue())

    def _file(self, page: Page) -> str:
        return f"{self._name}_page_{page.number}.png"

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
        self._drawer.close()


def draw_blocks(image: Image.Image, page: Page) -> Image.Image:
    """A copy of `image`, the picture of `page`, with its blocks drawn in, or why there are none."""
    drawn = image.copy()
    pen = ImageDraw.Draw(drawn)
    long_edge = max(image.size)
    font = ImageFont.load_default(max(10, long_edge // _PX_PER_LETTER))
    width = max(1, long_edge // _PX_PER_LINE_WIDTH)
    if page.error:
        _label(pen, (0, 0), page.error, _TITLE, font)
    centres = [_centre(image, block) for block in page.blocks]
    for here, there in pairwise(centres):
        pen.line((*here, *there), fill=_AROUND, width=width)
    for block in page.blocks:
        pen.rectangle(_pixels(image, block), outline=_colour(block), width=width)
    for number, block in enumerate(page.blocks, 1):
        left, top, _, _ = _pixels(image, block)
        others = ", ".join(name for name in dict.fromkeys((block.found_by, block.source)) if name != MODEL)
        words = f"{number} {block.type}{f' ({others})' if others else ''}"
        above = top - math.ceil(pen.textbbox((0, 0), words, font=font)[3])  # there it hides least
        _label(pen, (left, above if above >= 0 else top + width), words, _colour(block), font)
    return drawn


def _label(
    pen: ImageDraw.ImageDraw,
    place: tuple[int, int],
    words: str,
    colour: Colour,
    font: ImageFont.ImageFont | ImageFont.FreeTypeFont,
) -> None:
    pen.rectangle(pen.textbbox(place, words, font=font), fill=colour)
    pen.text(place, words, fill=(255, 255, 255), font=font)


def _colour(block: Block) -> Colour:
    return COLOURS.get(block.type, _OTHER)


def _pixels(image: Image.Image, block: Block) -> tuple[int, int, int, int]:
    """The outermost pixels of the block, all of them on the picture."""
    left, top, right, bottom = block.box
    x0, y0 = min(int(left * image.width), image.width - 1), min(int(top * image.height), image.height - 1)
    return x0, y0, max(x0, round(right * image.width) - 1), max(y0, round(bottom * image.height) - 1)


def _centre(image: Image.Image, block: Block) -> tuple[float, float]:
    left, top, right, bottom = _pixels(image, block)
    return (left + right) / 2, (top + bottom) / 2
