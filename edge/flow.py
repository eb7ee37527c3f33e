"""Pages one after the other as one running text, whatever it is written in.

A paragraph at the end of a page waits, for it may go on on the next one. A table never does: the protocol's library
joins tables over pages only with the help of MinerU itself, so each page's table stays whole where it stands.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable

from .document import Block, Page
from .structure import PARATEXT, Item, structure

_CJK = re.compile(r"[\u3000-\u9fff\uf900-\ufaff\uff00-\uffef]")


class Flow:
    """Text page by page: `feed` every page, then `end`. Paragraphs that go on over a column or page are joined.

    `show` writes one item of a page (its number is given) without blank lines around it, empty for nothing;
    `remark` writes what is said about a page. With `margins` headers, footers, page numbers and margin notes are shown
    too, those within a paragraph after it. `opening` and `closing` frame the whole.
    """

    def __init__(
        self,
        show: Callable[[Item, int], str],
        remark: Callable[[str], str],
        *,
        margins: bool = False,
        opening: str = "",
        closing: str = "",
    ) -> None:
        self._show, self._remark, self._margins = show, remark, margins
        self._opening, self._closing = opening, closing
        self._waiting: tuple[Block, int] | None = None
        self._held: list[str] = []  # of the margins, while a paragraph waits
        self._started = False

    def feed(self, page: Page) -> str:
        """What can be written now that `page` is known."""
        out: list[str] = []
        if page.error:
            self._add(out, self._remark(f"page {page.number} could not be read: {page.error}"))
        for item in structure(page.blocks):
            self._take(out, item, page.number)
        return self._written(out)

    def end(self) -> str:
        """The rest."""
        out: list[str] = []
        self._add(out)
        text = self._written(out)
        return (text if self._started else self._opening) + self._closing

    def all(self, pages: Iterable[Page]) -> str:
        """All of `pages` at once."""
        return "".join([self.feed(page) for page in pages]) + self.end()

    def _take(self, out: list[str], item: Item, number: int) -> None:
        body = item.body
        if body.type == "text" and not item.parts:
            if not (body.content or "").strip():
                return
            if body.continues and self._waiting is not None:
                first, where = self._waiting
                joined = join_paragraphs((first.content or "").strip(), (body.content or "").strip())
                self._waiting = dataclasses.replace(first, content=joined), where
            else:
                self._add(out)
                self._waiting = body, number
        elif body.type not in PARATEXT:
            text = self._show(item, number)
            if text:
                self._add(out, text)
        elif self._margins:
            text = self._show(item, number)
            if text and self._waiting is not None:
                self._held.append(text)
            elif text:
                out.append(text)

    def _add(self, out: list[str], *texts: str) -> None:
        if self._waiting is not None:
            block, number = self._waiting
            out.append(self._show(Item(block), number))
            self._waiting = None
        out += [*self._held, *texts]
        self._held = []

    def _written(self, out: list[str]) -> str:
        if not out:
            return ""
        lead = "\n" if self._started else self._opening
        self._started = True
        return lead + "\n\n".join(out) + "\n"


def join_paragraphs(first: str, second: str) -> str:
    """Two parts of one paragraph: a word cut by a hyphen is mended, and CJK takes no blank."""
    if re.search(r"\w-$", first) and second[:1].islower():
        return first[:-1] + second
    glue = "" if _CJK.match(first[-1:]) or _CJK.match(second[:1]) else " "
    return first + glue + second
