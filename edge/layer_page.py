"""A page made from the PDF's own text alone: words to lines, lines to columns, columns to blocks. No model, no picture.

Tables come out row by row with tabs between their cells, and formulas as their bare signs: nothing here knows better.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections.abc import Sequence

from . import typed
from .blocks_of_lines import Paragraph, body_size, paragraphs
from .columns import in_reading_order
from .document import LAYER, Block, Box, Page
from .glyphs import Glyph, PageGlyphs
from .intake import Sheet
from .text_layer import is_vertical
from .text_lines import Line, Word, lines, split_at_gaps, words

logger = logging.getLogger(__name__)

_MOST_UNKNOWN = 0.3  # of the signs of a page may be without a meaning
_TITLE, _HEADING = 1.4, 1.15  # of the size of the page's body
_HEADING_LINES, _HEADING_CHARACTERS = 3, 200
_GUTTER = 0.9  # of the size: so far apart are columns, at least
_MOST_COLUMNS = 6
_SENTENCE_CHARACTERS = 60  # what ends in a stop and is longer is no heading
_MARGIN = 0.1  # of the page: where page numbers stand
_BOLD = re.compile(r"bold|black|heavy|cmbx|-bd", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"(page\s+)?[-–—\s]*(\d{1,4}|[ivxl]{1,7})[-–—\s]*((of|/)\s*\d{1,4})?", re.IGNORECASE)
_CURE = "let the model read it (--text auto)"


def layer_page(sheet: Sheet, page_count: int) -> Page:
    """The page of `sheet` by its glyphs; a page without a text layer that can be used says so in `error`."""
    started = time.monotonic()
    blocks: tuple[Block, ...] = ()
    error = sheet.error
    if error is None:
        assert sheet.glyphs is not None
        try:
            error = trouble(sheet.glyphs)
            blocks = () if error else layer_blocks(sheet.glyphs)
        except Exception as accident:  # files hold whatever they hold; one page is what that may cost
            error = f"its text could not be put in order: {accident!r}"
    return Page(
        number=sheet.number,
        page_count=page_count,
        blocks=blocks,
        seconds=time.monotonic() - started,
        error=error,
        warnings=sheet.warnings,
    )


def blocks_instead(page: PageGlyphs) -> tuple[Block, ...]:
    """For a page on which a model found no block at all: what the file has, if it can be seen and means something."""
    try:
        if trouble(page) is None and any(glyph.shown for glyph in page.glyphs):
            return layer_blocks(page)
    except Exception:  # as in `layer_page`
        logger.warning("the text layer could not be put in order", exc_info=True)
    return ()


def trouble(page: PageGlyphs) -> str | None:
    """Why the text layer of `page` cannot be used; None when it can, and for a page with nothing on it."""
    signs = [glyph for glyph in _used(page) if not glyph.text.isspace()]
    if not signs:
        return None if page.blank else f"it has no text layer; {_CURE}"
    unknown = sum(not (glyph.known and typed.known(glyph.text)) for glyph in signs)
    if unknown > _MOST_UNKNOWN * len(signs):
        return f"the file does not say what {unknown} of its {len(signs)} signs mean; {_CURE}"
    return None


def layer_blocks(
    page: PageGlyphs,
    *,
    body: float | None = None,
    cells: bool = True,
    source: str = LAYER,
    found_by: str | None = None,
) -> tuple[Block, ...]:
    """The blocks of `page`. Text that runs in another direction than most comes after it, each direction by itself.

    `body` is the size of running text, by which headings are told: most of the glyphs have it unless it is given.
    Without `cells` wide gaps are gaps of justified text and no table's. `source` is who read the glyphs, `found_by`
    who found where they are, the same unless given.
    """
    by_turn: dict[int, list[Glyph]] = {}
    for glyph in _used(page):
        by_turn.setdefault(glyph.turn, []).append(glyph)
    turns = sorted(by_turn, key=lambda turn: (-len(by_turn[turn]), turn))
    blocks = (block for turn in turns for block in _blocks(page, by_turn[turn], turn, body, cells))
    return tuple(dataclasses.replace(block, source=source, found_by=found_by or source) for block in blocks)


def _used(page: PageGlyphs) -> list[Glyph]:
    """What is drawn; where only invisible text lies under a scan, that."""
    return [glyph for glyph in page.glyphs if glyph.shown] or list(page.glyphs)


def _blocks(page: PageGlyphs, glyphs: Sequence[Glyph], turn: int, body: float | None, cells: bool) -> list[Block]:
    found = words(glyphs)
    if is_vertical(found):
        return [_vertical(page, column) for column in _stacks(found)]
    body = body or body_size(glyphs)
    bold_body = _is_bold(glyphs)
    hyphened = typed.vocabulary([word.text for word in found])
    blocks = []
    parts = [part for line in lines(found) for part in (_parts(line) if cells else [line])]
    for column in in_reading_order(parts):
        for paragraph in paragraphs(column, cells=cells):
            text = paragraph.text(hyphened)
            if text:
                box = _box(page, [glyph for line in paragraph.lines for glyph in line.glyphs])
                kind = _kind(paragraph, text, box, body=body, bold_body=bold_body)
                angle = turn if turn % 90 == 0 else None
                blocks.append(Block(type=kind, box=box, angle=angle, content=text))
    return blocks


def _parts(line: Line) -> list[Line]:
    """Where columns may part `line`; many parts are the cells of a table, which stay together."""
    parts = split_at_gaps(line, _GUTTER)
    return parts if len(parts) <= _MOST_COLUMNS else [line]


def _kind(paragraph: Paragraph, text: str, box: Box, *, body: float, bold_body: bool) -> str:
    glyphs = [glyph for line in paragraph.lines for glyph in line.glyphs]
    if len(paragraph.lines) == 1 and (box[3] <= _MARGIN or box[1] >= 1 - _MARGIN) and is_page_number(text):
        return "page_number"
    if paragraph.tabular:
        return "text"
    short = len(paragraph.lines) <= _HEADING_LINES and len(text) <= _HEADING_CHARACTERS and text[-1] not in ",;"
    short = short and not (text[-1] == "." and len(text) > _SENTENCE_CHARACTERS)
    letters = sum(map(str.isalpha, text))
    if short and letters > 3 and 2 * letters > len(text):
        size = paragraph.lines[0].size
        if size >= _TITLE * body:
            return "title"
        if size >= _HEADING * body:
            return "paragraph_title"
    if paragraph.is_item:
        return "list_item"
    one_bold_line = len(paragraph.lines) == 1 and _is_bold(glyphs) and not bold_body
    if short and one_bold_line and text[-1] not in ".:" and paragraph.lines[0].size >= 0.95 * body:
        return "paragraph_title"
    return "text"


def is_page_number(text: str) -> bool:
    """Whether `text` may be the number of a page, by itself."""
    return _PAGE_NUMBER.fullmatch(text) is not None


def heading_type(size: float, body: float) -> str:
    """The type of a heading of this size over text of the size `body`."""
    return "title" if size >= _TITLE * body else "paragraph_title"


def _is_bold(glyphs: Sequence[Glyph]) -> bool:
    return 2 * sum(bool(_BOLD.search(glyph.font)) for glyph in glyphs) > len(glyphs)


def _stacks(found: Sequence[Word]) -> list[list[Word]]:
    """Words of vertical writing as columns from right to left."""
    columns: list[list[Word]] = []
    for word in sorted(found, key=lambda word: (-word.start, word.baseline)):
        if columns and abs(columns[-1][0].start - word.start) < 0.5 * word.size:
            columns[-1].append(word)
        else:
            columns.append([word])
    return [sorted(column, key=lambda word: word.baseline) for column in columns]


def _vertical(page: PageGlyphs, column: Sequence[Word]) -> Block:
    box = _box(page, [glyph for word in column for glyph in word.glyphs])
    return Block("text", box, angle=0, content="".join(word.text for word in column))


def _box(page: PageGlyphs, glyphs: Sequence[Glyph]) -> Box:
    edges = list(zip(*(glyph.cell for glyph in glyphs), strict=True))
    left, top, right, bottom = min(edges[0]), min(edges[1]), max(edges[2]), max(edges[3])
    across, down = page.width, page.height
    return (
        max(0.0, left / across), max(0.0, top / down), min(1.0, right / across), min(1.0, bottom / down)
    )  # fmt: skip
