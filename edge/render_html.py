"""Pages as one HTML file that needs nothing else but its pictures: no scripts, no fonts, no network.

Every tag is written here; what the model wrote is text. Formulas stay LaTeX between \\( and \\), \\[ and \\], where a
script for formulas finds them if the reader adds one.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from urllib.parse import quote

from .document import Block
from .escape import comment, html_text
from .flow import Flow
from .render import latex
from .structure import FIGURES, Item, figure_words, list_item, title_level
from .tables import Cell, table_rows

_HEAD = """<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ max-width: 50em; margin: 2em auto; padding: 0 1em; font-family: sans-serif; line-height: 1.5 }}
table {{ border-collapse: collapse }} td, th {{ border: 1px solid #999; padding: .2em .5em }}
img {{ max-width: 100% }} .note, .margin {{ font-size: smaller }} .margin {{ color: #666 }}
</style>
</head>
<body>
"""
_FOOT = "</body>\n</html>\n"


def html_flow(title: str, *, margins: bool = False) -> Flow:
    """HTML page by page."""
    head = _HEAD.format(title=html.escape(title, quote=False))
    return Flow(_show, comment, margins=margins, opening=head, closing=_FOOT)


def _show(item: Item, page_number: int) -> str:
    body = item.body
    content = (body.content or "").strip()
    if item.parts:
        return _list(item.parts)
    if level := title_level(body):
        return _tag(f"h{level}", html_text(content))
    if body.type in FIGURES:
        return _with_notes(item, _figure(body, page_number))
    if body.type == "table":
        rows = table_rows(content) if content.startswith("<table") else []
        return _with_notes(item, _table(rows) or _tag("p", html_text(content)) or _figure(body, page_number))
    if body.type == "equation":
        return _formula(content, item.number) if content else _figure(body, page_number)
    if body.type == "code":
        code = (body.content or "").strip("\n")
        return _with_notes(item, f"<pre><code>{html.escape(code, quote=False)}</code></pre>" if code.strip() else "")
    if body.type in ("header", "footer", "page_number", "aside_text"):
        return _tag("p", html_text(content), "margin")
    return _with_notes(item, _tag("p", html_text(content)))


def _tag(name: str, inside: str, kind: str = "") -> str:
    """Empty when there is nothing inside."""
    return f"<{name}{f' class={kind}' if kind else ''}>{inside}</{name}>" if inside else ""


def _list(parts: Sequence[Block]) -> str:
    items = [(marker, html_text(text)) for marker, text in map(list_item, parts) if text]
    if items and all(marker for marker, _ in items):
        lines = [f"<li value={int(marker[:-1])}>{text}</li>\n" for marker, text in items]
        return _tag("ol", "\n" + "".join(lines))
    lines = [f"<li>{marker}{' ' if marker else ''}{text}</li>\n" for marker, text in items]
    return _tag("ul", "\n" + "".join(lines)) if lines else ""


def _table(rows: Sequence[Sequence[Cell]]) -> str:
    lines = ["".join(_cell(cell) for cell in row) for row in rows]
    return _tag("table", "\n" + "".join(f"<tr>{line}</tr>\n" for line in lines)) if any(lines) else ""


def _cell(cell: Cell) -> str:
    spans = f" colspan={cell.columns}" * (cell.columns > 1) + f" rowspan={cell.rows}" * (cell.rows > 1)
    name = "th" if cell.heads else "td"
    return f"<{name}{spans}>{html_text(cell.text)}</{name}>"


def _formula(content: str, number: Block | None) -> str:
    label = f" {html_text(number.content or '')}" if number is not None else ""
    return _tag("p", f"\\[{html.escape(latex(content), quote=False)}\\]{label}")


def _figure(body: Block, page_number: int) -> str:
    if body.image_path:
        return f'<p><img src="{quote(body.image_path)}" alt="{body.type}"></p>'
    return comment(figure_words(body, page_number))


def _with_notes(item: Item, body: str) -> str:
    above, below = (
        [_tag("p", html_text(note.content or ""), "note") for note in notes] for notes in (item.above, item.below)
    )
    return "\n".join(part for part in [*above, body, *below] if part)
