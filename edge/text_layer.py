"""The text that a PDF itself has for a block, where it can be trusted; a block without it is the model's to read.

Trusted is what is upright, drawn for all to see, says what its signs mean, and leaves nothing of the block's print
unexplained. Formulas are not: a PDF has their signs and not their structure.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from PIL import Image

from . import typed
from .document import Box
from .glyphs import Glyph, PageGlyphs
from .print_check import PrintCheck
from .structure import area
from .text_lines import Word, lines, words

TEXT_TYPES = frozenset(
    "text title doc_title paragraph_title list_item ref_text index aside_text header footer page_number page_footnote"
    " caption table_caption image_caption code_caption footnote table_footnote image_footnote formula_number".split()
)
_BY_LINE = frozenset({"index"})  # its lines are entries
_FORMULA_FONT = re.compile(r"CMMI|CMEX|MSBM|MTMI|MTEX|Math", re.IGNORECASE)
_PROSE_SIGNS = frozenset("+<=>|~¬±×÷−≤≥≈≠→←↑↓↔⇒")
_MATH_LETTERS = range(0x1D400, 0x1D800)
_MOSTLY = 0.5
_MIDDLE = 0.3  # of the size: half the height of small letters


class TextLayer:
    """The text layer of one page beside its picture, both as shown."""

    def __init__(self, page: PageGlyphs, image: Image.Image) -> None:
        self._page = page
        shown = [glyph for glyph in page.glyphs if glyph.shown]
        self._turned = [glyph for glyph in shown if glyph.turn]
        self._words = words(glyph for glyph in shown if not glyph.turn)
        self._hyphened = typed.vocabulary([word.text for word in self._words])
        self._print = PrintCheck(image, page, shown)

    def texts(self, boxes: Mapping[int, Box], wanted: Mapping[int, str]) -> dict[int, str]:
        """The text of those boxes in `wanted` (index to block type) that have one to be trusted.

        A word belongs to the smallest of all `boxes` that holds most of it, so that none is taken twice and none out
        of the formula or picture within a paragraph.
        """
        owned = self.owned(boxes)
        return {
            index: self.text(owned[index], by_line=kind in _BY_LINE)
            for index, kind in wanted.items()
            if owned.get(index) and self.doubt(boxes[index], owned[index]) is None
        }

    def owned(self, boxes: Mapping[int, Box]) -> dict[int | None, list[Word]]:
        """The upright words of each of `boxes` that has some, and under None those in no box."""
        owned: dict[int | None, list[Word]] = {}
        for word in self._words:
            holding = [index for index, box in boxes.items() if self._holds(box, word)]
            owner = min(holding, key=lambda index: area(boxes[index])) if holding else None
            owned.setdefault(owner, []).append(word)
        return owned

    def owned_by_line(self, boxes: Mapping[int, Box]) -> dict[int | None, list[Word]]:
        """The same where boxes are rough: words of one line that follow each other go where most of them are."""
        owned = self.owned(boxes)
        votes: dict[int, Counter[int | None]] = {}
        for index, held in owned.items():
            for word in held:
                votes.setdefault(word.piece, Counter())[index] += len(word.text)
        together: dict[int | None, list[Word]] = {}
        for held in owned.values():
            for word in held:
                together.setdefault(votes[word.piece].most_common(1)[0][0], []).append(word)
        return together

    def doubt(self, box: Box, inside: Sequence[Word], *, formulas: bool = False, vertical: bool = False) -> str | None:
        """Why the words `inside` are not what the picture shows in `box`; None when they are. `formulas` are let
        pass when their structure is not asked for, `vertical` writing where it is put in order otherwise."""
        glyphs = [glyph for word in inside for glyph in word.glyphs]
        if any(self._within(box, glyph) for glyph in self._turned):
            return "some of it is turned"
        if not all(glyph.known and typed.known(glyph.text) for glyph in glyphs):
            return "some signs have no meaning in the file"
        if not formulas and any(is_formula(glyph) for glyph in glyphs):
            return "it holds a formula"
        if not vertical and is_vertical(inside):
            return "it is written from top to bottom"
        return self._print.doubt(box, glyphs)

    def text(self, inside: Sequence[Word], *, by_line: bool = False) -> str:
        """These words as one text, or line by line."""
        found = [line.text for line in lines(inside)]
        return "\n".join(found) if by_line else typed.paragraph(found, self._hyphened)

    def _holds(self, box: Box, word: Word) -> bool:
        left, top, right, bottom = box
        start, end = word.start / self._page.width, word.end / self._page.width
        middle = (word.baseline - _MIDDLE * word.size) / self._page.height
        inside = min(end, right) - max(start, left)
        return top <= middle <= bottom and inside > 0 and inside >= _MOSTLY * (end - start)

    def _within(self, box: Box, glyph: Glyph) -> bool:
        left, top, right, bottom = glyph.cell
        x, y = (left + right) / 2 / self._page.width, (top + bottom) / 2 / self._page.height
        return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def is_formula(glyph: Glyph) -> bool:
    """Whether this sign is of a formula, by its font or by what it is."""
    if _FORMULA_FONT.search(glyph.font):
        return True
    return any(
        ord(each) in _MATH_LETTERS or (unicodedata.category(each) == "Sm" and each not in _PROSE_SIGNS)
        for each in glyph.text
    )


def is_vertical(words: Sequence[Word]) -> bool:
    """Whether most of several words are single CJK signs, each under the one before."""
    if len(words) < 3:
        return False
    below = sum(
        len(before.text) == len(after.text) == 1
        and typed.tight(before.text, after.text)
        and abs(before.start - after.start) < 0.5 * before.size
        and 0.5 < (after.baseline - before.baseline) / before.size < 2.5
        for before, after in pairwise(words)
    )
    return 2 * below >= len(words)
