"""Which blocks of a page belong together: items to their list, captions and footnotes to their figure.

The model lists blocks in reading order and says nothing of what belongs to what; boxes do. Both outputs for people
(`render`, `content_list`) are built on these items, so that they tell the same story.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .document import Block, Box

FIGURES = frozenset({"image", "chart", "image_block"})
CODES = frozenset({"code", "algorithm"})
PARATEXT = frozenset({"header", "footer", "page_number", "aside_text"})  # around the text, not part of it
_TITLE_LEVELS = {"title": 1, "doc_title": 1, "paragraph_title": 2}
_LOWEST_LEVEL = 6
_SECTION = re.compile(r"\s*\d{1,3}((?:\.\d{1,3})+)\.?\s+\D")  # 2.1 and 2.1.3, not 2 and not 2.1 alone

_ITEMS = frozenset({"text", "list_item", "ref_text"})
_LOOSE = frozenset({"list_item", "ref_text"})  # items of a list even where the model names no container
_BODIES: dict[str, frozenset[str]] = {
    "table_caption": frozenset({"table"}),
    "table_footnote": frozenset({"table"}),
    "image_caption": FIGURES,
    "image_footnote": FIGURES,
    "code_caption": CODES,
    "caption": FIGURES | CODES | {"table"},
    "footnote": FIGURES | CODES | {"table"},
}
_BULLET = re.compile(r"^\s*(?:[•●○▪■◦‣·∙*]|[-–—](?=\s))\s*")
_ORDERED = re.compile(r"^\s*(\d{1,9}[.)])\s+")
_FOOTNOTES = frozenset({"table_footnote", "image_footnote", "footnote"})
_INSIDE = 0.8
_NEAR = 0.12  # of the page: a caption farther than this from every figure stands for itself


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to show. `body` is the figure, table, heading, paragraph or list container itself.

    `parts` are the items of a list; a list without a container has its first item as `body`. `number` is the printed
    number of an equation.
    """

    body: Block
    captions: tuple[Block, ...] = ()
    footnotes: tuple[Block, ...] = ()
    parts: tuple[Block, ...] = ()
    number: Block | None = None

    @property
    def above(self) -> tuple[Block, ...]:
        """The captions that stand over the body."""
        return tuple(note for note in self.captions if _height(note) < _height(self.body))

    @property
    def below(self) -> tuple[Block, ...]:
        """The other captions, then the footnotes."""
        return tuple(note for note in self.captions if _height(note) >= _height(self.body)) + self.footnotes


def title_level(block: Block) -> int | None:
    """1 to 6 for a heading, by its type and by how deep its section number goes; None for all other blocks."""
    level = _TITLE_LEVELS.get(block.type)
    if level is None:
        return None
    section = _SECTION.match(block.content or "")
    return min(_LOWEST_LEVEL, level + (section[1].count(".") if section else 0))


def list_item(part: Block) -> tuple[str, str]:
    """The number that an item of a list begins with, "1." or "1)", empty for a bullet; and the item itself."""
    content = " ".join((part.content or "").split())
    if ordered := _ORDERED.match(content):
        return ordered[1], content[ordered.end() :]
    return "", _BULLET.sub("", content)


def figure_words(body: Block, page_number: int) -> str:
    """Where a figure without a written picture is to be found."""
    box = " ".join(str(round(edge * 1000)) for edge in body.box)
    return f"{body.type} on page {page_number}, box {box}"


def structure(blocks: Sequence[Block]) -> list[Item]:
    """`blocks` of one page as items, in reading order; every block with content is in exactly one of them."""
    lists = _lists(blocks)
    notes = _notes(blocks)
    numbers = _equation_numbers(blocks)
    taken = {part for parts in lists.values() for part in parts} | set(notes) | set(numbers.values())
    items: list[tuple[int, Item]] = []
    for index, block in enumerate(blocks):
        if index in lists:
            parts = lists[index]
            items.append((min(index, *parts), Item(block, parts=tuple(blocks[part] for part in parts))))
        elif index not in taken and not _is_empty_container(block, blocks):
            attached = [note for note, body in notes.items() if body == index]
            captions = tuple(blocks[note] for note in attached if blocks[note].type not in _FOOTNOTES)
            footnotes = tuple(blocks[note] for note in attached if blocks[note].type in _FOOTNOTES)
            number = blocks[numbers[index]] if index in numbers else None
            items.append((index, Item(block, captions, footnotes, number=number)))
    return [item for _, item in sorted(items, key=lambda pair: pair[0])]


def area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def inside(inner: Box, outer: Box) -> bool:
    """Whether most of `inner` lies in `outer`."""
    width = min(inner[2], outer[2]) - max(inner[0], outer[0])
    height = min(inner[3], outer[3]) - max(inner[1], outer[1])
    return width > 0 and height > 0 and width * height >= _INSIDE * area(inner)


def _lists(blocks: Sequence[Block]) -> dict[int, list[int]]:
    """Container index -> item indices. A run of items or references without a container goes under its first."""
    lists: dict[int, list[int]] = {}
    owned: set[int] = set()
    for index, block in enumerate(blocks):
        if block.type == "list":
            parts = [
                part
                for part, item in enumerate(blocks)
                if part not in owned and item.type in _ITEMS and inside(item.box, block.box)
            ]
            if parts:
                lists[index] = parts
                owned.update(parts)
    run: int | None = None
    for index, block in enumerate(blocks):
        if block.type not in _LOOSE or index in owned:
            run = None
            continue
        if run is None or blocks[run].type != block.type:
            run = index
        lists.setdefault(run, []).append(index)
    return lists


def _notes(blocks: Sequence[Block]) -> dict[int, int]:
    """Caption or footnote index -> the index of the nearest body that its type allows."""
    bodies = [index for index, block in enumerate(blocks) if not _is_empty_container(block, blocks)]
    notes: dict[int, int] = {}
    for index, block in enumerate(blocks):
        allowed = _BODIES.get(block.type)
        if not allowed:
            continue
        fitting = [body for body in bodies if blocks[body].type in allowed]
        nearest = min(
            fitting, key=lambda body: (round(_gap(block.box, blocks[body].box), 3), abs(body - index)), default=None
        )
        if nearest is not None and _gap(block.box, blocks[nearest].box) <= _NEAR:
            notes[index] = nearest
    return notes


def _equation_numbers(blocks: Sequence[Block]) -> dict[int, int]:
    """Equation index -> the index of the formula number on its line."""
    numbers: dict[int, int] = {}
    for index, block in enumerate(blocks):
        if block.type != "formula_number" or not (block.content or "").strip():
            continue
        middle = (block.box[1] + block.box[3]) / 2
        for other in _by_distance(index, len(blocks)):
            body = blocks[other]
            if body.type == "equation" and other not in numbers and body.box[1] <= middle <= body.box[3]:
                numbers[other] = index
                break
    return numbers


def _by_distance(index: int, count: int) -> Iterable[int]:
    return sorted((other for other in range(count) if other != index), key=lambda other: abs(other - index))


def _is_empty_container(block: Block, blocks: Sequence[Block]) -> bool:
    """A list, or a group of pictures whose pictures are listed on their own: nothing of its own to show."""
    if block.type == "image_block":
        return any(other.type in ("image", "chart") and inside(other.box, block.box) for other in blocks)
    return block.type == "list"


def _gap(one: Box, other: Box) -> float:
    """Distance between two boxes, 0 when they touch."""
    across = max(0.0, one[0] - other[2], other[0] - one[2])
    down = max(0.0, one[1] - other[3], other[1] - one[3])
    return math.hypot(across, down)


def _height(block: Block) -> float:
    return block.box[1] + block.box[3]
