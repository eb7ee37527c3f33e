"""The lines of one column as paragraphs, by gaps, indents, sizes and lines that end early."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from . import typed
from .glyphs import Glyph
from .text_lines import Line, joined, split_at_gaps

_ITEM = re.compile(r"(?:[•●○▪■□◦‣·∙❑❖➢➔✓✗☑*]|[-–—](?=\s)|\(?(?:\d{1,3}|[a-z])[.)](?=\s))\s*")
_LABEL = re.compile(
    r"[^\w\s]{1,2}|\(?[\w.]{1,7}[.)]|\d+(?:\.\d+)+|\[\w{1,6}\]"
)  # what stands before an item or heading
_SENTENCE_END = re.compile(r"[.!?:…][\"'”’)\]]*$")
_LEADING = 1.35  # of the usual distance of lines: a larger one parts paragraphs
_OTHER_SIZE = 1.12
_INDENT = 0.8  # of the size
_CENTRED = 0.5
_CELL = 1.5  # of the size: so far apart are cells, at least; justified lines have smaller gaps
_ROWS_APART = 3.0  # of the size: rows of one table are nearer
_ROW = 0.4  # of the size: baselines nearer than this are one row


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Rows of one block, top to bottom; a row has several parts where wide gaps part it, as in a table."""

    rows: tuple[tuple[Line, ...], ...]
    is_item: bool
    tabular: bool
    breaks: frozenset[int]  # rows before which the line was broken on purpose

    @property
    def lines(self) -> list[Line]:
        return [line for row in self.rows for line in row]

    def text(self, hyphened: Collection[str]) -> str:
        """What it says, with the lines broken on purpose kept."""
        parts: list[list[str]] = [[]]
        for index, row in enumerate(self.rows):
            if index in self.breaks or (self.tabular and index):
                parts.append([])
            parts[-1].append(("\t" if self.tabular else " ").join(line.text for line in row))
        return "\n".join(typed.paragraph(part, hyphened) for part in parts).strip()


def body_size(glyphs: Sequence[Glyph]) -> float:
    """The size in points that most of `glyphs` have, to half a point."""
    return Counter(round(2 * glyph.size) / 2 for glyph in glyphs).most_common(1)[0][0]


def paragraphs(column: Sequence[Line], *, cells: bool = True) -> list[Paragraph]:
    """`column` in pieces that a reader would call paragraphs, headings, items or rows of a table.

    Without `cells` no gap parts a line, however wide.
    """
    rows = _rows(column, _CELL if cells else math.inf)
    whole = [joined(row) for row in rows]
    usual = _usual_leading(whole)
    edges = min((line.start for line in whole), default=0.0), max((line.end for line in whole), default=0.0)
    found: list[Paragraph] = []
    start = 0
    breaks: set[int] = set()
    for index in range(1, len(rows) + 1):
        if index < len(rows):
            parted, broken = _parted(rows, whole, start, index, usual=usual, edges=edges)
            if not parted:
                if broken:
                    breaks.add(index - start)
                continue
        found.append(_paragraph(rows[start:index], whole[start], breaks))
        start, breaks = index, set()
    return found


def _paragraph(rows: Sequence[tuple[Line, ...]], first: Line, breaks: set[int]) -> Paragraph:
    tabular = _is_tabular(rows[0])
    return Paragraph(tuple(rows), bool(_ITEM.match(first.text)), tabular, frozenset(breaks))


def _rows(column: Sequence[Line], gap: float) -> list[tuple[Line, ...]]:
    rows: list[list[Line]] = []
    for line in sorted(column, key=lambda line: (line.baseline, line.start)):
        if rows and abs(rows[-1][0].baseline - line.baseline) <= _ROW * min(rows[-1][0].size, line.size):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [tuple(sorted((part for line in row for part in split_at_gaps(line, gap)), key=_start)) for row in rows]


def _start(line: Line) -> float:
    return line.start


def _is_tabular(row: Sequence[Line]) -> bool:
    return len(row) > 2 or (len(row) == 2 and not _LABEL.fullmatch(row[0].text))


def _usual_leading(whole: Sequence[Line]) -> float:
    """The middle distance of following lines of one size, over that size."""
    ratios = [
        (below.baseline - above.baseline) / above.size
        for above, below in pairwise(whole)
        if max(above.size, below.size) < _OTHER_SIZE * min(above.size, below.size)
    ]
    near = [ratio for ratio in ratios if ratio < 2.5]
    return min(statistics.median_low(near), 1.8) if near else 1.2


def _parted(
    rows: Sequence[tuple[Line, ...]],
    whole: Sequence[Line],
    start: int,
    index: int,
    *,
    usual: float,
    edges: tuple[float, float],
) -> tuple[bool, bool]:
    """Whether row `index` begins another paragraph than that which began at `start`, and if not, a line of its own."""
    above, line = whole[index - 1], whole[index]
    small, size = sorted((above.size, line.size))
    distance = line.baseline - above.baseline
    if _is_tabular(rows[index]) and _is_tabular(rows[start]):
        return distance > _ROWS_APART * size, False
    if _is_tabular(rows[index]) or _is_tabular(rows[start]):
        return True, False
    if size > _OTHER_SIZE * small or distance > _LEADING * usual * size:
        return True, False
    if _ITEM.match(line.text) or _is_bold_change(whole[start], line):
        return True, False
    shift = line.start - above.start
    from_margin = shift > 0 and above.start - edges[0] < _CENTRED * size  # that is an indent
    if abs((above.start + above.end) - (line.start + line.end)) < 2 * _CENTRED * size and not from_margin:
        return False, False
    hanging = index - 1 == start and (bool(_ITEM.match(above.text)) or above.text.startswith("["))
    if shift > _INDENT * size and not hanging:
        return True, False
    if shift < -_INDENT * size and index - 1 != start:
        return True, False
    room = edges[1] - above.end
    if room > line.words[0].end - line.words[0].start + 1.5 * size:  # the word would have fitted
        ends = bool(_SENTENCE_END.search(above.text)) and not line.text[0].islower()
        return ends, True
    return False, False


def _is_bold_change(first: Line, line: Line) -> bool:
    """Another weight at both ends of the line: a run-in heading has the weight of the text at its end."""
    fonts = [{each.words[0].glyphs[0].font, each.words[-1].glyphs[-1].font} for each in (first, line)]
    return all(len(each) == 1 for each in fonts) and fonts[0] != fonts[1] and _bold(fonts[0]) != _bold(fonts[1])


def _bold(fonts: Collection[str]) -> bool:
    return any("bold" in font.lower() or "cmbx" in font.lower() for font in fonts)
