"""The reading order of blocks of which nothing but the boxes is known.

Each block stands for as many lines of print as fit into it, and those are put in order as lines are.
"""

from __future__ import annotations

from collections.abc import Sequence

from .columns import in_reading_order
from .document import Box
from .text_lines import Line

_LINES_PER_PAGE = 80  # of ordinary print
_LEVEL = 0.5  # of a line's height: blocks that begin so near to each other stand side by side
_FULL_LINE = "x" * 40  # blocks are columns when they stand as such, whatever they hold


def block_order(boxes: Sequence[Box], width: float, height: float) -> list[int]:
    """The indices of `boxes`, fractions of a page of this shape, in the order in which they are read."""
    size = height / _LINES_PER_PAGE
    owner: dict[int, int] = {}
    lines: list[Line] = []
    row = -1.0
    for index in sorted(range(len(boxes)), key=lambda index: boxes[index][1]):
        left, top, right, bottom = boxes[index]
        row = top = row if (top - row) * height < _LEVEL * size else top
        count = max(1, round((bottom - top) * height / size))
        for number in range(1, count + 1):
            lines.append(Line((), _FULL_LINE, left * width, right * width, top * height + number * size, size))
            owner[id(lines[-1])] = index
    ordered = (owner[id(line)] for column in in_reading_order(lines) for line in column)
    return list(dict.fromkeys(ordered))
