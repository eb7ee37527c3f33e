"""Pages through the engine: while the blocks of one page are read, the layout of the next is asked for already.

The engine's slots stay full across blocks and pages, and still only one page picture waits ahead: a page's picture
is dropped as soon as its blocks are cut out, and the page after the next is drawn when the first one is done.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from PIL import Image

from mineru_edge.runtime.request import FinishReason, Request, Result, Step

from .document import Answer, Block, Page
from .glyphs import PageGlyphs
from .intake import Sheet
from .protocol import Layout, PageProtocol, answer

if TYPE_CHECKING:
    from .quick_layout import QuickLayout

PAGES_AT_ONCE = 2


class Asked(Protocol):
    """What is needed of an engine."""

    def submit(self, request: Request) -> int: ...

    def step(self) -> Sequence[Step]: ...

    def cancel(self, ticket: int | None) -> None: ...


class Conversation:
    """All pages of one document, in order. `cancel` drops what is still asked for.

    `quick` finds the blocks of pages in the model's place. `page_deadline_s` after the page before was done, or its own
    beginning if that is later, a page is ended with what it has; the drawing of the page after it does not count.
    """

    def __init__(
        self,
        engine: Asked,
        protocol: PageProtocol,
        *,
        page_count: int,
        pictures: bool,
        page_deadline_s: float | None = None,
        quick: QuickLayout | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._protocol = protocol
        self._page_count = page_count
        self._pictures = pictures
        self._deadline_s = page_deadline_s
        self._quick = quick
        self._clock = clock
        self._free_since = clock()  # when the page before was done
        self._drawing_s = 0.0  # of later pages, since then
        self._open: deque[_PageInWork] = deque()
        self._asked: dict[int, tuple[_PageInWork, int | None]] = {}  # ticket -> page, and block or None for the layout

    def pages(self, sheets: Iterator[Sheet]) -> Iterator[Page]:
        more = True
        while more or self._open:
            while more and self._has_room():
                more = self._admit(sheets)
            while self._open and self._open[0].done:
                yield self._open.popleft().page(self._protocol, self._clock())
                self._free_since, self._drawing_s = self._clock(), 0.0
            self._end_late_page()
            if self._asked:
                for step in self._engine.step():
                    if step.result is not None:
                        self._take(step.ticket, step.result)

    def cancel(self) -> None:
        for ticket in self._asked:
            self._engine.cancel(ticket)
        self._asked.clear()
        self._open.clear()

    def _has_room(self) -> bool:
        """For another page; not while one is done, for finding its blocks may take a while."""
        if not self._open:
            return True
        return len(self._open) < PAGES_AT_ONCE and self._open[-1].layout_known and not self._open[0].done

    def _admit(self, sheets: Iterator[Sheet]) -> bool:
        """Ask for the layout of the next page; False when there is none."""
        started = self._clock()
        sheet = next(sheets, None)
        if self._open:
            self._drawing_s += self._clock() - started
        if sheet is None:
            return False
        work = _PageInWork(sheet.number, self._page_count, started, sheet.warnings)
        self._open.append(work)
        if sheet.image is None:
            work.fail(sheet.error or "cannot be drawn")
        else:
            work.image, work.size_px, work.glyphs = sheet.image, sheet.image.size, sheet.glyphs
            if self._quick is None:
                self._asked[self._engine.submit(self._protocol.layout_request(sheet.image))] = work, None
            else:
                self._look(work, sheet.image, self._quick)
        return True

    def _look(self, work: _PageInWork, image: Image.Image, quick: QuickLayout) -> None:
        """Find the blocks without the model, and ask it for those that it alone can read."""
        glyphs = work.glyphs
        work.image = work.glyphs = None
        try:
            blocks = quick.blocks(image, glyphs)
            work.layout = self._protocol.found(image, blocks, pictures=self._pictures)
        except Exception as error:  # files hold whatever they hold; one page is what that may cost
            work.fail(f"its blocks could not be found: {error!r}")
            return
        self._ask(work, work.layout)

    def _end_late_page(self) -> None:
        """Withdraw what is still asked for the first page when its time is over; the engine then says `cancelled`."""
        if not self._open or self._deadline_s is None:
            return
        first = self._open[0]
        if self._clock() - max(first.started, self._free_since) - self._drawing_s >= self._deadline_s:
            first.late = True
            for ticket, (work, _) in self._asked.items():
                if work is first:
                    self._engine.cancel(ticket)

    def _take(self, ticket: int, result: Result) -> None:
        work, block = self._asked.pop(ticket, (None, None))
        if work is None:
            return  # of a document that was given up
        if work.late and result.finish_reason is FinishReason.cancelled:
            words = f"the page's deadline of {self._deadline_s:g} s had passed"
            result = dataclasses.replace(result, finish_reason=FinishReason.deadline, error=words)
        if block is not None:
            work.results[block] = result
            work.waiting -= 1
            work.done = work.waiting == 0
            return
        work.answer = answer(result)
        image, work.image = work.image, None
        glyphs, work.glyphs = work.glyphs, None
        assert image is not None
        if work.answer.error:
            work.fail(f"its blocks could not be found: {result.error}")
            return
        try:
            work.layout = self._protocol.layout(image, result.text, pictures=self._pictures, glyphs=glyphs)
        except Exception as error:  # the library meets whatever the model wrote; one page is what that may cost
            work.fail(f"its blocks could not be cut out: {error!r}")
            return
        if glyphs is not None and not work.layout.blocks:
            from .layer_page import blocks_instead

            work.instead = blocks_instead(glyphs)
        self._ask(work, work.layout)

    def _ask(self, work: _PageInWork, layout: Layout) -> None:
        requests, layout.requests = layout.requests, {}
        work.waiting = len(requests)
        work.done = not requests
        for index, request in requests.items():
            self._asked[self._engine.submit(request)] = work, index


class _PageInWork:
    """One page between its picture and its last block."""

    def __init__(self, number: int, page_count: int, started: float, warnings: tuple[str, ...]) -> None:
        self.number, self.page_count, self.started, self.warnings = number, page_count, started, warnings
        self.image: Image.Image | None = None
        self.glyphs: PageGlyphs | None = None
        self.size_px = (0, 0)
        self.answer: Answer | None = None
        self.layout: Layout | None = None
        self.instead: tuple[Block, ...] = ()  # of the page's own text, where the model found nothing
        self.results: dict[int, Result] = {}
        self.waiting = 0
        self.late = False
        self.done = False
        self.error: str | None = None

    @property
    def layout_known(self) -> bool:
        return self.layout is not None or self.done

    def fail(self, error: str) -> None:
        self.error, self.done = error, True

    def page(self, protocol: PageProtocol, now: float) -> Page:
        blocks = protocol.finish(self.layout, self.results) if self.layout else ()
        blocks = blocks or self.instead
        width_px, height_px = self.size_px
        return Page(
            number=self.number,
            page_count=self.page_count,
            width_px=width_px,
            height_px=height_px,
            blocks=blocks,
            layout=self.answer,
            seconds=now - self.started,
            error=self.error,
            warnings=self.warnings,
        )
