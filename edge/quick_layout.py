"""The blocks of a page without the model: boxes by the detector, text by the PDF itself or by OCR, in reading order.

What the detector misses is not lost: print that none of its boxes holds becomes blocks of its own. Tables and formulas
are left to be read by the model, text that holds a formula too.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from . import typed
from .block_order import block_order
from .blocks_of_lines import body_size
from .detector import PARAGRAPHS, WHOLES, Detector, Found
from .document import DETECTOR, LAYER, OCR, Block, Box
from .glyphs import Glyph, PageGlyphs, turned_box, upright
from .layer_page import heading_type, is_page_number, layer_blocks, trouble
from .ocr import Ocr, PageLines
from .print_check import ink_of
from .structure import area, inside
from .text_layer import TextLayer, is_formula
from .text_lines import Word, lines

_HEADINGS = frozenset({"title", "paragraph_title"})
_PRINT = 0.3  # of a figure's box covered by lines of print: it is no figure
_MISSED = 0.02  # of the page's ink in no block: somebody should look
_MARGIN = 0.08  # of the page: headers and footers stand there
_MOSTLY = 0.3  # of the signs are of a formula: so is all of it
_WORD = re.compile(r"[^\W\d_]{3}")
_RIM = 0.3  # of a line's height: OCR's boxes are that much wider than the print
_INK_PX = 1000  # the long edge of the picture on which ink is counted


class QuickLayout:
    """For the pages of any document; the detector and OCR are opened by the caller."""

    def __init__(self, detector: Detector, ocr: Ocr, *, trusted: Collection[str]) -> None:
        """`trusted` says whose text is taken, of "layer" and "ocr"; the rest is the model's to read."""
        self._detector = detector
        self._ocr = ocr
        self._trusted = trusted

    def blocks(self, image: Image.Image, glyphs: PageGlyphs | None) -> list[Block]:
        """The blocks of an upright RGB page in reading order, with their content where it is text that was read.

        `glyphs` are those of a PDF page, None when its text must not be used. A page whose print runs sideways is
        looked at the right way up, and its blocks say by `angle` how they are turned.
        """
        lines = None
        if glyphs is not None and glyphs.blank:
            return []
        layer = glyphs if glyphs is not None and _is_used(glyphs) else None
        if layer is not None:
            turn = Counter(glyph.turn for glyph in layer.glyphs if glyph.shown).most_common(1)[0][0]
        else:
            lines = self._ocr.page(image)
            turn = lines.turn
        turn = turn if turn % 90 == 0 else 0
        page = _Page(self._ocr, image, layer, lines, turn)
        found = page.blocks(self._detector.blocks(page.image))
        return [
            dataclasses.replace(
                block,
                box=turned_box(block.box, turn),
                angle=None if block.angle is None else (block.angle + turn) % 360,
                content=block.content if block.source in self._trusted else None,
            )
            for block in found
        ]


@dataclass(slots=True)
class _Unit:
    """What keeps together in reading order: a box, and the blocks in it."""

    box: Box
    blocks: list[Block] = field(default_factory=list)


class _Page:
    """One page, set upright by `turn`."""

    def __init__(
        self, ocr: Ocr, image: Image.Image, layer: PageGlyphs | None, lines: PageLines | None, turn: int
    ) -> None:
        self._ocr, self._seen, self._turn, self._lines = ocr, image, turn, lines
        self.image = image.rotate(turn, expand=True) if turn else image
        self._layer = None if layer is None else upright(layer, turn)
        self._text = None if self._layer is None else TextLayer(self._layer, self.image)
        self._body: float | None = None  # of the page's height

    def blocks(self, found: Sequence[Found]) -> list[Block]:
        found = self._without_print(found)
        owned = self._text.owned_by_line(dict(enumerate(each.box for each in found))) if self._text else {}
        units, doubted = [], []
        for index, each in enumerate(found):
            held = owned.get(index, [])
            if each.type in WHOLES or (each.type == "equation" and not self._is_prose(each.box, held)):
                units.append(_Unit(each.box, [_block(each.type, each.box)]))
            elif (
                self._text is not None
                and self._layer is not None
                and held
                and self._text.doubt(each.box, held, formulas=True, vertical=True) is None
            ):
                units.append(self._read(each, held, self._layer, LAYER))
            else:
                doubted.append(each)
        missed = self._missed(owned.get(None, []))
        units += missed
        boxes = [each.box for each in found] + [unit.box for unit in missed]
        if doubted or self._lines is not None or self._ink_outside(boxes):
            units += self._by_ocr(doubted, [unit.box for unit in units])
        units = [unit for unit in units if unit.blocks]
        order = block_order([unit.box for unit in units], *map(float, self.image.size))
        return [block for index in order for block in units[index].blocks]

    def _without_print(self, found: Sequence[Found]) -> list[Found]:
        """`found` without the figures that are pages of print."""
        if not any(each.type == "image" for each in found):
            return list(found)
        if self._layer is not None:
            boxes = [_fractions(self._layer, glyph.cell) for glyph in self._layer.glyphs if glyph.shown]
        else:
            boxes = [turned_box(box, -self._turn % 360) for box in self._page_lines.boxes]
        return [
            each
            for each in found
            if each.type != "image"
            or sum(area(box) for box in boxes if inside(box, each.box)) < _PRINT * area(each.box)
        ]

    def _is_prose(self, box: Box, held: Sequence[Word]) -> bool:
        """Whether what the detector took for a formula has words for the reader, and no sign of a formula."""
        return (
            self._text is not None
            and any(len(word.text) > 2 and word.text.isalpha() for word in held)
            and self._text.doubt(box, held) is None
        )

    def _read(self, each: Found, held: Sequence[Word], page: PageGlyphs, source: str) -> _Unit:
        """The blocks of one box of text whose words are known."""
        text = typed.paragraph([line.text for line in lines(held)])
        kind = _kind(each, text)
        if kind in PARAGRAPHS:
            part = _part(page, held)
            cells = each.type not in PARAGRAPHS  # it knows tables of many rules, and takes others for formulas
            blocks = layer_blocks(part, body=self._body_size(page), source=source, found_by=DETECTOR, cells=cells)
            if each.type in PARAGRAPHS:  # the detector knows headings
                blocks = tuple(_no_heading(block) for block in blocks)
            return _Unit(_extent(blocks, each.box), [_for_the_model(block, _signs_in(block, part)) for block in blocks])
        if kind == "title":
            kind = heading_type(max(word.size for word in held), self._body_size(page))
        block = _block(kind, each.box, text, source)
        return _Unit(each.box, [_for_the_model(block, _signs(held))])

    def _missed(self, outside: Sequence[Word]) -> list[_Unit]:
        """What the PDF says in no box of the detector's, where that can be trusted."""
        if not outside:
            return []
        assert self._layer is not None
        assert self._text is not None
        blocks = layer_blocks(_part(self._layer, outside), body=self._body_size(self._layer))
        owned = self._text.owned_by_line(dict(enumerate(block.box for block in blocks)))
        units = []
        for index, block in enumerate(blocks):
            held = owned.get(index, [])
            if held and self._text.doubt(block.box, held, formulas=True, vertical=True) is None:
                units.append(_Unit(block.box, [_for_the_model(block, _signs(held))]))
        return units

    def _by_ocr(self, doubted: Sequence[Found], taken: Sequence[Box]) -> list[_Unit]:
        """The boxes in `doubted`, and print outside of all boxes, as OCR reads it."""
        seen = self._page_lines.glyphs(lambda box: not _is_taken(turned_box(box, -self._turn % 360), taken))
        page = upright(seen, self._turn)
        owned = TextLayer(page, self.image).owned_by_line(dict(enumerate(each.box for each in doubted)))
        units = [self._read(each, owned[index], page, OCR) for index, each in enumerate(doubted) if index in owned]
        rest = _part(page, owned.get(None, []))
        blocks = layer_blocks(rest, body=self._body_size(page), source=OCR) if rest.glyphs else ()
        return units + [_Unit(block.box, [block]) for block in blocks]

    def _body_size(self, page: PageGlyphs) -> float:
        """The size of running text, in the units of `page`; the same for the PDF's text and OCR's."""
        if self._body is None:
            self._body = body_size(page.glyphs) / page.height
        return self._body * page.height

    @property
    def _page_lines(self) -> PageLines:
        if self._lines is None:
            self._lines = self._ocr.page(self._seen)
        return self._lines

    def _ink_outside(self, boxes: Iterable[Box]) -> bool:
        """Whether more than specks and rules is printed where no block is."""
        small = self.image.convert("L")
        small.thumbnail((_INK_PX, _INK_PX))
        ink = ink_of(np.asarray(small, dtype=np.int16))
        total = int(np.count_nonzero(ink))
        for left, top, right, bottom in boxes:
            rows = slice(int(top * ink.shape[0]), int(np.ceil(bottom * ink.shape[0])) + 1)
            ink[rows, int(left * ink.shape[1]) : int(np.ceil(right * ink.shape[1])) + 1] = False
        return int(np.count_nonzero(ink)) > _MISSED * total


def _is_used(glyphs: PageGlyphs) -> bool:
    """Whether the text layer shows something and means something."""
    return any(glyph.shown and not glyph.text.isspace() for glyph in glyphs.glyphs) and trouble(glyphs) is None


def _part(page: PageGlyphs, words: Iterable[Word]) -> PageGlyphs:
    """`page` with the glyphs of these words alone, and the blanks that the file has after them."""
    kept = {id(glyph) for word in words for glyph in word.glyphs}
    part: list[Glyph] = []
    before = False
    for glyph in page.glyphs:
        before = id(glyph) in kept or (before and glyph.text.isspace())
        if before:
            part.append(glyph)
    return dataclasses.replace(page, glyphs=tuple(part))


def _is_taken(line: Box, taken: Sequence[Box]) -> bool:
    """Whether half of a line of print, without its margins, lies in boxes that have their text already."""
    left, top, right, bottom = line
    rim = _RIM * min(right - left, bottom - top)
    core = left + rim, top + rim, right - rim, bottom - rim
    covered = sum(
        max(0.0, min(core[2], box[2]) - max(core[0], box[0])) * max(0.0, min(core[3], box[3]) - max(core[1], box[1]))
        for box in taken
    )
    return covered >= 0.5 * area(core)


def _signs(held: Iterable[Word]) -> list[Glyph]:
    return [glyph for word in held for glyph in word.glyphs]


def _signs_in(block: Block, page: PageGlyphs) -> list[Glyph]:
    return [glyph for glyph in page.glyphs if inside(_fractions(page, glyph.cell), block.box)]


def _for_the_model(block: Block, signs: Iterable[Glyph]) -> Block:
    """`block` without its content where `signs`, those in it, are of a formula; as one where they are little else."""
    if block.source != LAYER:
        return block
    are_formula = [is_formula(glyph) for glyph in signs if not glyph.text.isspace()]
    if not any(are_formula):
        return block
    mostly = sum(are_formula) > _MOSTLY * len(are_formula) or not _WORD.search(block.content or "")
    return dataclasses.replace(block, type="equation" if mostly else block.type, content=None)


def _kind(each: Found, text: str) -> str:
    """The type of a box of text: headers and footers are left out of Markdown, so what stands elsewhere is none."""
    if each.type == "equation":
        return "text"
    if each.type not in ("header", "footer"):
        return each.type
    if is_page_number(text):
        return "page_number"
    return each.type if each.box[3] <= _MARGIN or each.box[1] >= 1 - _MARGIN else "text"


def _no_heading(block: Block) -> Block:
    return dataclasses.replace(block, type="text") if block.type in _HEADINGS else block


def _extent(blocks: Sequence[Block], otherwise: Box) -> Box:
    if not blocks:
        return otherwise
    left, top, right, bottom = zip(*(block.box for block in blocks), strict=True)
    return min(left), min(top), max(right), max(bottom)


def _block(kind: str, box: Box, content: str | None = None, source: str = LAYER) -> Block:
    return Block(kind, box, angle=0, content=content, source=source, found_by=DETECTOR)


def _fractions(page: PageGlyphs, box: Box) -> Box:
    return box[0] / page.width, box[1] / page.height, box[2] / page.width, box[3] / page.height
