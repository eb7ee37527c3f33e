"""Glyphs become words and lines, as the eye takes them in.

All is measured in the frame of the text itself: `along` the baseline and `down` across it, in points, so that text
which runs up or down the page is treated as any other.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from . import typed
from .glyphs import Glyph

_BLANK = 0.17  # of the size: a gap from which on words are apart, where the file writes no blanks
_BLANK_BESIDE_BLANKS = 0.25  # the same where it does
_APART = 1.0  # of the size: farther is another piece of text
_BACK = 0.6
_SAME_SPOT = 0.12  # of the size: two equal signs nearer than this are one, drawn twice to look bold
_ASCENT, _DESCENT = 0.75, 0.2  # of the size
_INITIAL = 1.7  # a letter so much larger than its neighbour opens a chapter


@dataclass(frozen=True, slots=True)
class Word:
    """Glyphs without a blank between them. `start`, `end` and `baseline` are in the frame of the text, in points.

    `piece` is equal for words that follow each other on one line of the file, with a blank between them.
    """

    text: str
    glyphs: tuple[Glyph, ...]
    start: float
    end: float
    baseline: float
    size: float
    piece: int

    @property
    def top(self) -> float:
        return self.baseline - _ASCENT * self.size

    @property
    def bottom(self) -> float:
        return self.baseline + _DESCENT * self.size

    @property
    def right_to_left(self) -> bool:
        return any(_right_to_left(each) for each in self.text)


@dataclass(frozen=True, slots=True)
class Line:
    """Words on one baseline, in reading order."""

    words: tuple[Word, ...]
    text: str
    start: float
    end: float
    baseline: float
    size: float

    @property
    def glyphs(self) -> tuple[Glyph, ...]:
        return tuple(glyph for word in self.words for glyph in word.glyphs)


def words(glyphs: Iterable[Glyph]) -> list[Word]:
    """The words of `glyphs`, all of which run in one direction, in the order of the file."""
    found = [word for piece, placed in enumerate(_pieces(_once(glyphs))) for word in _split(placed, piece)]
    return _level_initials(found)


def lines(words: Iterable[Word]) -> list[Line]:
    """`words` of one column as lines from top to bottom."""
    rows: list[_Row] = []
    for word in sorted(words, key=lambda word: (word.baseline, word.start)):
        # Rows end in order: one that lies a few sizes up is done, and a page has hundreds.
        fitting = next((row for row in reversed(rows[-12:]) if row.holds(word)), None)
        if fitting is None:
            rows.append(_Row(word))
        else:
            fitting.add(word)
    return [_line(row.words) for row in sorted(rows, key=lambda row: row.main.baseline)]


def split_at_gaps(line: Line, least: float) -> list[Line]:
    """`line` in the parts that gaps of `least` times the size set apart: cells, columns, a label and its text."""
    parts = [[line.words[0]]]
    for before, after in pairwise(line.words):
        gap = max(after.start - before.end, before.start - after.end)
        if before.piece != after.piece and gap > least * min(before.size, after.size):
            parts.append([])
        parts[-1].append(after)
    return [line] if len(parts) == 1 else [_line(part) for part in parts]


def joined(parts: Sequence[Line]) -> Line:
    """The parts of one row as one line."""
    return parts[0] if len(parts) == 1 else _line([word for part in parts for word in part.words])


class _Row:
    def __init__(self, word: Word) -> None:
        self.words = [word]
        self.main = word  # the largest: small ones beside it are raised or lowered

    def holds(self, word: Word) -> bool:
        overlap = min(word.bottom, self.main.bottom) - max(word.top, self.main.top)
        return overlap >= 0.5 * (_ASCENT + _DESCENT) * min(word.size, self.main.size)

    def add(self, word: Word) -> None:
        self.words.append(word)
        if word.size > self.main.size:
            self.main = word


@dataclass(frozen=True, slots=True)
class _Placed:
    """A glyph in the frame of the text."""

    glyph: Glyph
    text: str
    start: float
    end: float
    baseline: float


def _placed(glyph: Glyph, text: str) -> _Placed:
    cosine, sine = math.cos(math.radians(glyph.turn)), math.sin(math.radians(glyph.turn))
    left, top, right, bottom = glyph.cell
    origin = glyph.x * cosine + glyph.y * sine
    if glyph.turn % 90 == 0:
        edges = [x * cosine + y * sine for x, y in ((left, top), (right, bottom))]
        start, end = min(edges), max(edges)
    else:  # the cell bounds a slanted rectangle, whose length follows from width and height unless it is at 45 degrees
        spread = abs(cosine) ** 2 - abs(sine) ** 2
        width, height = right - left, bottom - top
        length = (width * abs(cosine) - height * abs(sine)) / spread if abs(spread) > 0.1 else 0.5 * glyph.size
        start, end = origin, origin + max(0.1 * glyph.size, min(length, 1.5 * glyph.size))
    return _Placed(glyph, text, start, end, glyph.y * cosine - glyph.x * sine)


def _once(glyphs: Iterable[Glyph]) -> Iterator[_Placed]:
    """Each sign once, however often it is drawn on its spot."""
    seen: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    for glyph in glyphs:
        text = typed.clean(glyph.text) if glyph.known and typed.known(glyph.text) else typed.LOST
        if typed.is_soft_hyphen(glyph.text) and glyph.ink[3] - glyph.ink[1] > 0.01 * glyph.size:
            text = "-"  # fonts share one drawing for both hyphens: what is drawn is meant
        placed = _placed(glyph, text)
        if text and not text.isspace():
            reach = _SAME_SPOT * max(glyph.size, 0.01)
            column, row = round(placed.start / reach), round(placed.baseline / reach)
            near = [
                spot
                for across in (-1, 0, 1)
                for down in (-1, 0, 1)
                for spot in seen.get((text, column + across, row + down), ())
            ]
            if any(abs(x - placed.start) < reach and abs(y - placed.baseline) < reach for x, y in near):
                continue
            seen.setdefault((text, column, row), []).append((placed.start, placed.baseline))
        yield placed


def _pieces(placed: Iterable[_Placed]) -> Iterator[list[_Placed]]:
    """Runs of glyphs that follow each other on one baseline, in one size."""
    piece: list[_Placed] = []
    for each in placed:
        if piece and not _follows(piece[-1], each):
            yield piece
            piece = []
        piece.append(each)
    if piece:
        yield piece


def _follows(before: _Placed, after: _Placed) -> bool:
    small, large = sorted((before.glyph.size, after.glyph.size))
    if abs(before.baseline - after.baseline) > 0.08 * large or small < 0.85 * large:
        return False
    return -_BACK * large <= _gap(before, after) <= _APART * large


def _gap(before: _Placed, after: _Placed) -> float:
    if _right_to_left(after.text) or (_right_to_left(before.text) and after.start < before.start):
        return before.start - after.end
    return after.start - before.end


def _split(piece: Sequence[_Placed], number: int) -> Iterator[Word]:
    size = piece[0].glyph.size
    gaps = [_gap(a, b) for a, b in pairwise(piece) if not (a.text.isspace() or b.text.isspace())]
    usual = max(0.0, statistics.median(gaps)) if len(gaps) > 3 else 0.0  # letters set apart on purpose
    blank = usual + _BLANK * size
    # A text object that writes its blanks means its other gaps to be none.
    writes = {each.glyph.run for each in piece if each.text.isspace()}
    blank_beside = usual + _BLANK_BESIDE_BLANKS * size
    word: list[_Placed] = []
    for each in piece:
        inner = bool(word) and word[-1].glyph.run == each.glyph.run and each.glyph.run in writes
        if word and (each.text.isspace() or _gap(word[-1], each) > (blank_beside if inner else blank)):
            yield from _word(word, number)
            word = []
        if not each.text.isspace():
            word.append(each)
    yield from _word(word, number)


def _word(placed: Sequence[_Placed], piece: int) -> Iterator[Word]:
    text = "".join(each.text for each in placed)
    if not text:  # nothing, or marks that nobody types
        return
    yield Word(
        text=unicodedata.normalize("NFC", text),
        glyphs=tuple(each.glyph for each in placed),
        start=min(each.start for each in placed),
        end=max(each.end for each in placed),
        baseline=placed[0].baseline,
        size=placed[0].glyph.size,
        piece=piece,
    )


def _level_initials(found: list[Word]) -> list[Word]:
    """A large first letter that reaches over several lines is put on the first of them, next to what it begins."""
    for index, word in enumerate(found):
        if len(word.text) != 1 or not word.text.isalpha():
            continue
        beside = [
            other
            for other in found[index + 1 : index + 200]
            if word.size > _INITIAL * other.size
            and -0.3 * other.size <= other.start - word.end <= other.size
            and word.top - 0.3 * other.size <= other.top <= word.baseline - other.size
        ]
        if beside:
            first = min(beside, key=lambda other: other.baseline)
            found[index] = dataclasses.replace(word, baseline=first.baseline, size=first.size, end=first.start)
    return found


def _line(found: Sequence[Word]) -> Line:
    ordered = _reading_order(found)
    text = ordered[0].text
    for before, after in pairwise(ordered):
        text += (" " if _spaced(before, after) else "") + after.text
    main = max(found, key=lambda word: (word.size, len(word.text)))
    return Line(
        words=tuple(ordered),
        text=text,
        start=min(word.start for word in found),
        end=max(word.end for word in found),
        baseline=main.baseline,
        size=main.size,
    )


def _reading_order(found: Sequence[Word]) -> list[Word]:
    """From left to right, or from right to left where most letters run so; runs against the line are turned round."""
    backwards = sum(len(word.text) for word in found if word.right_to_left)
    line_backwards = 2 * backwards > sum(len(word.text) for word in found if any(map(str.isalpha, word.text)))
    ordered: list[Word] = []
    run: list[Word] = []
    for word in sorted(found, key=lambda word: (word.start, word.end), reverse=line_backwards):
        against = word.right_to_left != line_backwards
        if not against:
            ordered += [*reversed(run), word]
            run = []
        else:
            run.append(word)
    return [*ordered, *reversed(run)]


def _spaced(before: Word, after: Word) -> bool:
    if before.piece == after.piece:
        return True
    gap = max(after.start - before.end, before.start - after.end)
    size = min(before.size, after.size)
    return gap > size * (0.6 if typed.tight(before.text, after.text) else _BLANK)


def _right_to_left(text: str) -> bool:
    return any(unicodedata.bidirectional(each) in ("R", "AL") for each in text)
