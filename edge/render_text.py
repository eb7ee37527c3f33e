"""Pages as plain text: paragraphs parted by blank lines, tables with tabs between cells, formulas as LaTeX."""

from __future__ import annotations

from .document import Block
from .escape import bare_text
from .flow import Flow
from .render import latex
from .structure import FIGURES, Item, list_item
from .tables import table_rows, table_text


def text_flow(*, margins: bool = False) -> Flow:
    """Plain text page by page."""
    return Flow(_show, lambda words: f"[{words}]", margins=margins)


def _show(item: Item, _page_number: int) -> str:
    body = item.body
    content = (body.content or "").strip()
    if item.parts:
        return "\n".join(line for line in map(_list_line, item.parts) if line)
    if body.type in FIGURES:
        shown = ""
    elif body.type == "table" and content.startswith("<table"):
        shown = table_text(table_rows(content))
    elif body.type == "equation":
        number = (item.number.content or "").strip() if item.number is not None else ""
        shown = f"{latex(content)}  {number}".rstrip()
    elif body.type == "code":
        shown = (body.content or "").strip("\n")
    else:
        shown = bare_text(content)
    notes = [[bare_text(note.content or "") for note in found] for found in (item.above, item.below)]
    return "\n\n".join(part for part in [*notes[0], shown, *notes[1]] if part)


def _list_line(part: Block) -> str:
    marker, text = list_item(part)
    return f"{marker or '-'} {bare_text(text)}" if text else ""
