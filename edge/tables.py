"""An HTML table as rows of cells, for outputs that cannot take it as it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

from .escape import bare_text

_MOST_SPAN = 1000  # as browsers have it


@dataclass(frozen=True, slots=True)
class Cell:
    """What one cell says, and over how many columns and rows."""

    text: str
    columns: int = 1
    rows: int = 1
    heads: bool = False  # <th>


def table_rows(content: str) -> list[list[Cell]]:
    """The cells of the table `content`, row by row; tags within cells are dropped, their text is kept."""
    reader = _TableReader()
    reader.feed(content)
    reader.close()
    return reader.finished()


def table_text(rows: Sequence[Sequence[Cell]]) -> str:
    """A line for each row, with tabs between cells; what a cell covers beyond its first place stays empty."""
    lines = []
    below: dict[int, int] = {}  # column -> rows that are still covered from above
    for row in rows:
        line: list[str] = []
        for cell in row:
            while _covered(below, len(line)):
                line.append("")
            for extra in range(cell.columns):
                if cell.rows > 1:
                    below[len(line)] = cell.rows - 1
                line.append("" if extra else " ".join(bare_text(cell.text).split()))
        while _covered(below, len(line)):
            line.append("")
        lines.append("\t".join(line))
    return "\n".join(lines)


def _covered(below: dict[int, int], column: int) -> bool:
    """Whether a cell of an earlier row reaches down to this place, which is then used up."""
    left = below.get(column, 0)
    if left:
        below[column] = left - 1
    return left > 0


class _TableReader(HTMLParser):
    """Rows and cells as they come. A tag that is not closed ends where the next one of its kind begins."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._rows: list[list[Cell]] = []
        self._open: Cell | None = None
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self._close_cell()
            self._rows.append([])
        elif tag in ("td", "th"):
            self._close_cell()
            found = dict(attrs)
            self._open = Cell("", _span(found.get("colspan")), _span(found.get("rowspan")), tag == "th")
        elif tag == "br":
            self._text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._close_cell()

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._text.append(data)

    def finished(self) -> list[list[Cell]]:
        self._close_cell()
        return self._rows

    def _close_cell(self) -> None:
        if self._open is not None:
            if not self._rows:
                self._rows.append([])
            cell = self._open
            self._rows[-1].append(Cell("".join(self._text).strip(), cell.columns, cell.rows, cell.heads))
        self._open, self._text = None, []


def _span(value: str | None) -> int:
    return min(_MOST_SPAN, max(1, int(value))) if value and value.isascii() and value.isdigit() else 1
