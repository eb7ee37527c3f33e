"""The formats that results are written in, each as a stream: facts first, then page by page, then the rest.

Nothing but the page at hand is held, so a document of any length takes the same memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from mineru_edge.models.errors import MineruEdgeError

from .content_list import page_entries
from .document import Document, Page
from .render import markdown_flow
from .render_html import html_flow
from .render_text import text_flow

SUFFIXES = {
    "md": ".md",
    "html": ".html",
    "text": ".txt",
    "content_list": "_content_list.json",
    "result": "_result.json",
}
USUAL = ("md", "content_list", "result")
FLOWING = frozenset({"md", "html", "text"})  # known page by page, without facts about the whole


class Stream(Protocol):
    """Text page by page: `feed` every page, then `end`."""

    def feed(self, page: Page) -> str: ...

    def end(self) -> str: ...


def parse_formats(text: str) -> tuple[str, ...]:
    """ "md,html" as names, each once. MineruEdgeError when one is no format."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in SUFFIXES:
            raise MineruEdgeError(f"{name!r} is not a format", hint=f"write some of {','.join(SUFFIXES)}")
    return names


def open_stream(
    name: str, facts: Document, *, title: str = "", margins: bool = False, indent: int | None = 2
) -> Stream:
    """A stream of format `name` for the document whose `facts` (its pages are not looked at) are given.

    `title` is for HTML, `margins` shows headers and footers in what people read, `indent` is for JSON.
    """
    if name == "md":
        return markdown_flow(margins=margins)
    if name == "html":
        return html_flow(title, margins=margins)
    if name == "text":
        return text_flow(margins=margins)
    if name == "content_list":
        return _JSONStream(page_entries, "[", "]", indent, depth=1)
    assert name == "result", name
    opening, closing = _frame(facts, indent)
    return _JSONStream(lambda page: [page.to_dict()], opening, closing, indent, depth=2)


def written(stream: Stream, pages: Iterable[Page]) -> Iterator[str]:
    """Everything that `stream` makes of `pages`, piece by piece."""
    for page in pages:
        yield stream.feed(page)
    yield stream.end()


def json_line(facts: Document, pages: Callable[[], Iterable[Page]]) -> Iterator[str]:
    """One line of JSON in pieces: the facts, the pages and the Markdown. `pages` is called twice."""
    result = open_stream("result", facts, indent=None)
    for page in pages():
        yield result.feed(page)
    yield result.end().removesuffix("}\n") + ', "markdown": "'
    for piece in written(markdown_flow(), pages()):
        yield json.dumps(piece, ensure_ascii=False)[1:-1]
    yield '"}\n'


class _JSONStream:
    """Values in a JSON list, as `json.dumps(..., indent=indent)` would write all of it; ends in a line break."""

    def __init__(
        self, values: Callable[[Page], list[dict[str, Any]]], opening: str, closing: str, indent: int | None, depth: int
    ) -> None:
        self._values, self._opening, self._closing = values, opening, closing
        self._indent = indent
        self._pad = "" if indent is None else "\n" + " " * indent * depth
        self._outer = "" if indent is None else "\n" + " " * indent * (depth - 1)
        self._empty = True

    def feed(self, page: Page) -> str:
        out = []
        for value in self._values(page):
            lead = self._opening if self._empty else "," if self._pad else ", "
            self._empty = False
            text = json.dumps(value, ensure_ascii=False, indent=self._indent)
            out.append(lead + self._pad + (text.replace("\n", self._pad) if self._pad else text))
        return "".join(out)

    def end(self) -> str:
        return (self._opening if self._empty else self._outer) + self._closing + "\n"


def _frame(facts: Document, indent: int | None) -> tuple[str, str]:
    """What stands around the pages in the result, up to and from the brackets of their list."""
    shown = json.dumps({**facts.to_dict(), "pages": []}, ensure_ascii=False, indent=indent)
    opening, bracket, closing = shown.rpartition("[]")
    assert bracket
    return opening + "[", "]" + closing
