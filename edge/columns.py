"""The reading order of a page: which lines stand in columns side by side, and which column comes first.

Boxes only, no text but its length: a gutter counts when the lines on both sides of it fill their columns, which those
of a table do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .text_lines import Line

_GUTTER = 0.8  # of the size, at least
_MIN_LINES = 3
_MIN_WIDTH = 6.0  # of the size
_MIN_FILL = 0.6  # of a column's width, by a line longer than three in four
_MIN_CHARACTERS = 20  # of that line: shorter ones are cells


@dataclass(slots=True, eq=False)
class _Strip:
    """A part of the width that lines fill, and those lines."""

    start: float
    end: float
    lines: list[Line]


def in_reading_order(lines: Sequence[Line]) -> list[list[Line]]:
    """`lines`, none of which runs across a gutter, as columns in the order in which they are read."""
    ordered = sorted(lines, key=_from_top)
    columns: list[list[Line]] = []
    single: list[Line] = []
    index = 0
    while index < len(ordered):
        end, strips = _side_by_side(ordered, index)
        if not strips:
            row = ordered[index].baseline
            while index < len(ordered) and ordered[index].baseline == row:
                single.append(ordered[index])
                index += 1
            continue
        if single:
            columns.append(single)
            single = []
        for strip in strips:
            columns += in_reading_order(strip.lines)
        index = end
    return [*columns, single] if single else columns


def _from_top(line: Line) -> tuple[float, float]:
    return line.baseline - line.size, line.start


def _side_by_side(ordered: Sequence[Line], first: int) -> tuple[int, list[_Strip]]:
    """The longest stretch of lines from `first` on that stands in columns: its end and the columns, none if none."""
    strips: list[_Strip] = []
    best: tuple[int, list[_Strip]] = (first, [])
    for index in range(first, len(ordered)):
        line = ordered[index]
        gutter = _GUTTER * line.size
        touched = [each for each in strips if each.start < line.end + gutter and line.start < each.end + gutter]
        if len(touched) != 1 and len(strips) > 1:  # the gutters will be others: are they good as they are?
            if columns := _columns(strips):
                best = index, columns
            if len(touched) == len(strips):
                return best  # this line runs across all of them
        merged = touched[0] if touched else _Strip(line.start, line.end, [])
        merged.lines += [*(each for strip in touched[1:] for each in strip.lines), line]
        merged.start = min(line.start, *(each.start for each in touched), merged.start)
        merged.end = max(line.end, *(each.end for each in touched), merged.end)
        strips = sorted([merged, *(each for each in strips if each not in touched)], key=lambda strip: strip.start)
    if columns := _columns(strips):
        best = len(ordered), columns
    return best


def _columns(strips: Sequence[_Strip]) -> list[_Strip]:
    """`strips` when they are columns of running text beside each other; those too thin join the next. Else none."""
    columns: list[_Strip] = []
    thin: list[Line] = []
    for strip in strips:
        joined = _Strip(
            min([strip.start, *(line.start for line in thin)]),
            strip.end,
            sorted([*thin, *strip.lines], key=_from_top),
        )
        if not thin and not _is_column(strip):
            thin = joined.lines
            continue
        columns.append(joined)
        thin = []
    if thin or len(columns) < 2 or not all(_is_column(each) for each in columns):
        return []
    tops = [min(line.baseline for line in each.lines) for each in columns]
    bottoms = [max(line.baseline for line in each.lines) for each in columns]
    return columns if max(tops) < min(bottoms) else []


def _is_column(strip: _Strip) -> bool:
    if len(strip.lines) < _MIN_LINES:
        return False
    size = statistics.median(line.size for line in strip.lines)
    width = strip.end - strip.start
    long_line = _third_quarter([line.end - line.start for line in strip.lines])
    characters = _third_quarter([len(line.text) for line in strip.lines])
    return width >= _MIN_WIDTH * size and long_line >= _MIN_FILL * width and characters >= _MIN_CHARACTERS


def _third_quarter(values: Sequence[float]) -> float:
    return sorted(values)[3 * len(values) // 4]
