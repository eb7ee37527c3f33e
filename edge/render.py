"""Pages as Markdown: headings, paragraphs, lists, HTML tables, $$ formulas, figures linked to their pictures.

Headers, footers, page numbers and margin notes are left out unless asked for, and kept in the JSON outputs. A figure
without a written picture leaves an HTML comment in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from .document import Block, Page
from .escape import comment, markdown_line, markdown_text
from .flow import Flow
from .structure import FIGURES, Item, figure_words, list_item, title_level


def markdown(pages: Iterable[Page]) -> str:
    """All of `pages`, ending in one line break; empty when there is nothing to show."""
    return markdown_flow().all(pages)


def markdown_flow(*, margins: bool = False) -> Flow:
    """Markdown page by page."""
    return Flow(render_item, comment, margins=margins)


def render_item(item: Item, page_number: int) -> str:
    """One item as Markdown without the blank lines around it; empty when there is nothing to show."""
    body = item.body
    content = (body.content or "").strip()
    if item.parts:
        return "\n".join(line for line in (_list_line(part) for part in item.parts) if line)
    if level := title_level(body):
        return f"{'#' * level} {_heading(content)}" if content else ""
    if body.type in FIGURES:
        return _with_notes(item, _figure(item, page_number))
    if body.type == "table":
        return _with_notes(item, table_html(content) or markdown_text(content) or _figure(item, page_number))
    if body.type == "equation":
        return display_formula(content, item.number) if content else _figure(item, page_number)
    if body.type == "code":
        return _with_notes(item, fenced(body.content or ""))
    if body.type == "algorithm":
        return _with_notes(item, markdown_text(content))
    return markdown_text(content)


def table_html(content: str) -> str:
    """`content` when it is an HTML table, fit for Markdown: a blank line would end the HTML. Empty otherwise."""
    if not content.startswith("<table"):
        return ""
    return re.sub(r"\n\s*\n+", "\n", content)


def latex(content: str) -> str:
    """The formula itself, without the \\[ and \\] around it and without blank lines."""
    content = content.strip().removeprefix("\\[").removesuffix("\\]")
    return "\n".join(line for line in content.splitlines() if line.strip()).strip()


def display_formula(content: str, number: Block | None = None) -> str:
    """A formula on lines of its own, with its printed number as a tag."""
    formula = latex(content)
    if number is not None and "\\tag" not in formula:
        label = (number.content or "").strip().strip("()（）").strip()
        formula += f" \\tag{{{label}}}" if label else ""
    return f"$$\n{formula}\n$$"


def fenced(code: str) -> str:
    """Code between fences longer than any run of backticks in it. Empty stays empty."""
    code = code.strip("\n")
    if not code.strip():
        return ""
    if code.lstrip().startswith("```") and code.rstrip().endswith("```"):
        return code.strip()
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
    return f"{fence}\n{code}\n{fence}"


def _heading(content: str) -> str:
    return re.sub(r"(#+)$", r"\\\1", markdown_line(content))  # closing hashes would vanish


def _list_line(part: Block) -> str:
    marker, content = list_item(part)
    return f"{marker or '-'} {markdown_line(content)}" if content else ""


def _figure(item: Item, page_number: int) -> str:
    body = item.body
    if body.image_path:
        return f"![{body.type.replace('_block', '')}]({quote(body.image_path)})"
    return comment(figure_words(body, page_number))


def _with_notes(item: Item, body: str) -> str:
    above, below = ([markdown_line(note.content or "") for note in notes] for notes in (item.above, item.below))
    return "\n\n".join(part for part in [*above, body, *below] if part)
