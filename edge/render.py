"""Pages as Markdown: headings, paragraphs, lists, HTML tables, $$ formulas, figures linked to their pictures.

Headers, footers, page numbers and margin notes are left out here and kept in the JSON outputs. Paragraphs that go on
over a column or page are joined. A figure without a written picture leaves an HTML comment in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from .document import Block, Page
from .escape import comment, markdown_line, markdown_text
from .structure import FIGURES, PARATEXT, TITLE_LEVELS, Item, structure

_BULLET = re.compile(r"^\s*(?:[•●○▪■◦‣·∙*]|[-–—](?=\s))\s*")
_ORDERED = re.compile(r"^\s*(\d{1,9})([.)])\s+")
_CJK = re.compile(r"[\u3000-\u9fff\uf900-\ufaff\uff00-\uffef]")


def markdown(pages: Iterable[Page]) -> str:
    """All of `pages`, ending in one line break; empty when there is nothing to show."""
    stream = MarkdownStream()
    return "".join([stream.feed(page) for page in pages]) + stream.end()


class MarkdownStream:
    """Markdown page by page. The last paragraph of a page waits, for it may go on on the next page."""

    def __init__(self) -> None:
        self._waiting: str | None = None
        self._started = False

    def feed(self, page: Page) -> str:
        """What can be written now that `page` is known."""
        out: list[str] = []
        if page.error:
            self._add(out, comment(f"page {page.number} could not be read: {page.error}"))
        for item in structure(page.blocks):
            body = item.body
            text = render_item(item, page.number)
            if not text:
                continue
            if body.type == "text" and body.continues and self._waiting is not None:
                self._waiting = join_paragraphs(self._waiting, text)
            elif body.type == "text" and not item.parts:
                self._add(out)
                self._waiting = text
            else:
                self._add(out, text)
        return self._written(out)

    def end(self) -> str:
        """The rest."""
        out: list[str] = []
        self._add(out)
        return self._written(out)

    def _add(self, out: list[str], *texts: str) -> None:
        if self._waiting is not None:
            out.append(self._waiting)
            self._waiting = None
        out.extend(texts)

    def _written(self, out: list[str]) -> str:
        if not out:
            return ""
        lead = "\n" if self._started else ""
        self._started = True
        return lead + "\n\n".join(out) + "\n"


def render_item(item: Item, page_number: int) -> str:
    """One item as Markdown without the blank lines around it; empty when there is nothing to show."""
    body = item.body
    content = (body.content or "").strip()
    if body.type in PARATEXT:
        return ""
    if item.parts:
        return "\n".join(line for line in (_list_line(part) for part in item.parts) if line)
    if body.type in TITLE_LEVELS:
        return f"{'#' * TITLE_LEVELS[body.type]} {_heading(content)}" if content else ""
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


def join_paragraphs(first: str, second: str) -> str:
    """Two parts of one paragraph: a word cut by a hyphen is mended, and CJK takes no blank."""
    if re.search(r"\w-$", first) and second[:1].islower():
        return first[:-1] + second
    glue = "" if _CJK.match(first[-1:]) or _CJK.match(second[:1]) else " "
    return first + glue + second


def _heading(content: str) -> str:
    return re.sub(r"(#+)$", r"\\\1", markdown_line(content))  # closing hashes would vanish


def _list_line(part: Block) -> str:
    content = " ".join((part.content or "").split())
    if ordered := _ORDERED.match(content):
        return f"{ordered[1]}{ordered[2]} {markdown_line(content[ordered.end() :])}"
    content = _BULLET.sub("", content)
    return f"- {markdown_line(content)}" if content else ""


def _figure(item: Item, page_number: int) -> str:
    body = item.body
    if body.image_path:
        return f"![{body.type.replace('_block', '')}]({quote(body.image_path)})"
    box = " ".join(str(round(edge * 1000)) for edge in body.box)
    return comment(f"{body.type} on page {page_number}, box {box}")


def _with_notes(item: Item, body: str) -> str:
    parts = [markdown_line(note.content or "") for note in item.captions if _above(note, item.body)]
    parts.append(body)
    parts += [markdown_line(note.content or "") for note in item.captions if not _above(note, item.body)]
    parts += [markdown_line(note.content or "") for note in item.footnotes]
    return "\n\n".join(part for part in parts if part)


def _above(note: Block, body: Block) -> bool:
    return note.box[1] + note.box[3] < body.box[1] + body.box[3]
