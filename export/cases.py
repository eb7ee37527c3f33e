"""The requests a bundle is compared on: pages, and the crops of their blocks with the prompt for each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from PIL import Image

from mineru_edge.models import prompts
from mineru_edge.models.errors import InputError

from .parity import Kind, layout_boxes
from .reference import Answer, Asked, Reference

PAGES = 6  # generated when none are given: some 50 requests
FIRST_SEED = 0  # of generated pages; the embedded model is trained on seeds from 1,000,000 up

PROMPTS: dict[Kind, str] = {
    "layout": prompts.LAYOUT_PROMPT, "text": prompts.TEXT_PROMPT,
    "table": prompts.TABLE_PROMPT, "formula": prompts.FORMULA_PROMPT,
}  # fmt: skip

_KIND_OF_BLOCK: dict[str, Kind] = {"table": "table", "equation": "formula"}
_UNREAD = ("list", "image", "chart")  # blocks the protocol asks no reading question about
_SMALLEST_CROP_PX = 14
_SOMEWHERE = ("text", (50, 50, 950, 300))  # what a model that finds no block is asked to read

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Page:
    """A page to ask about. `blocks` are (type, box in thousandths); None leaves finding them to the reference."""

    image: Image.Image
    blocks: tuple[tuple[str, Box], ...] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One request: `image` as it goes to the processor, `page` counted from 0; `asked` if the reference has been."""

    page: int
    kind: Kind
    image: Image.Image
    asked: tuple[Asked, Answer] | None = None

    @property
    def prompt(self) -> str:
        return PROMPTS[self.kind]


def open_page(source: Page | Image.Image | str | os.PathLike[str]) -> Page:
    """A page, a picture, or the path of one. InputError when the file is no picture."""
    if isinstance(source, Page):
        return source
    if isinstance(source, Image.Image):
        return Page(source)
    try:
        with Image.open(source) as image:
            return Page(image.convert("RGB"))
    except OSError as error:
        raise InputError(f"{os.fspath(source)} is not a picture: {error}", hint="give PNG or JPEG files") from error


def generated(count: int, *, first_seed: int = FIRST_SEED) -> list[Page]:
    """Synthetic pages with their blocks, the same for every call."""
    from .tiny.pages import generate_page

    pages = [generate_page(first_seed + i) for i in range(count)]
    return [Page(page.image, tuple((block.type, block.bbox) for block in page.blocks)) for page in pages]


def cases(reference: Reference, pages: Sequence[Page], *, max_new_tokens: int) -> Iterator[Case]:
    """A layout request per page, then one per block that can be read."""
    for number, page in enumerate(pages):
        size = reference.facts.preprocessing.layout_size
        if page.blocks is not None:
            yield from asked_in(page, number, size)
            continue
        layout = _layout_picture(page, size)
        asked = reference.ask(layout, PROMPTS["layout"], max_new_tokens=max_new_tokens)
        found = layout_boxes(reference.text(asked[1].ids))
        yield Case(number, "layout", layout, asked)
        yield from _crops(Page(page.image, tuple((kind, (x0, y0, x1, y1)) for kind, x0, y0, x1, y1 in found)), number)


def asked_in(page: Page, number: int, layout_size: tuple[int, int]) -> Iterator[Case]:
    """The requests of a page whose blocks are known; `layout_size` is (width, height) in pixels."""
    yield Case(number, "layout", _layout_picture(page, layout_size))
    yield from _crops(page, number)


def _layout_picture(page: Page, size: tuple[int, int]) -> Image.Image:
    return page.image.convert("RGB").resize(size, Image.Resampling.BICUBIC)


def _crops(page: Page, number: int) -> Iterator[Case]:
    for kind, box in page.blocks or (_SOMEWHERE,):
        if kind not in _UNREAD and (crop := _crop(page.image, box)) is not None:
            yield Case(number, _KIND_OF_BLOCK.get(kind, "text"), crop)


def _crop(image: Image.Image, box: Box) -> Image.Image | None:
    (width, height), (x0, y0, x1, y1) = image.size, box
    left, top, right, bottom = x0 * width // 1000, y0 * height // 1000, -(-x1 * width // 1000), -(-y1 * height // 1000)
    if min(right - left, bottom - top) < _SMALLEST_CROP_PX:
        return None
    return image.convert("RGB").crop((left, top, right, bottom))
