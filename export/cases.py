"""The requests a bundle is compared on: pages, and the crops of their blocks with the prompt for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from PIL import Image

from mineru_edge.models import prompts

from .parity import Kind, layout_boxes
from .reference import Reference

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
    """One request: `image` as it goes to the processor, `page` counted from 0."""

    page: int
    kind: Kind
    image: Image.Image

    @property
    def prompt(self) -> str:
        return PROMPTS[self.kind]


def generated(count: int, *, first_seed: int = FIRST_SEED) -> list[Page]:
    """Synthetic pages with their blocks, the same for every call."""
    from .tiny.pages import generate_page

    pages = [generate_page(first_seed + i) for i in range(count)]
    return [Page(page.image, tuple((block.type, block.bbox) for block in page.blocks)) for page in pages]


def cases(reference: Reference, pages: Sequence[Page], *, max_new_tokens: int) -> Iterator[Case]:
    """A layout request per page, then one per block that can be read."""
    for number, page in enumerate(pages):
        layout = page.image.convert("RGB").resize(reference.facts.preprocessing.layout_size, Image.Resampling.BICUBIC)
        yield Case(number, "layout", layout)
        blocks = page.blocks if page.blocks is not None else _find_blocks(reference, layout, max_new_tokens)
        for kind, box in blocks or (_SOMEWHERE,):
            if kind not in _UNREAD and (crop := _crop(page.image, box)) is not None:
                yield Case(number, _KIND_OF_BLOCK.get(kind, "text"), crop)


def _find_blocks(reference: Reference, layout: Image.Image, max_new_tokens: int) -> tuple[tuple[str, Box], ...]:
    answer = reference.answer(layout, PROMPTS["layout"], max_new_tokens=max_new_tokens)
    return tuple((kind, (x0, y0, x1, y1)) for kind, x0, y0, x1, y1 in layout_boxes(reference.text(answer.ids)))


def _crop(image: Image.Image, box: Box) -> Image.Image | None:
    (width, height), (x0, y0, x1, y1) = image.size, box
    left, top, right, bottom = x0 * width // 1000, y0 * height // 1000, -(-x1 * width // 1000), -(-y1 * height // 1000)
    if min(right - left, bottom - top) < _SMALLEST_CROP_PX:
        return None
    return image.convert("RGB").crop((left, top, right, bottom))
