"""`Reader`: open a bundle once, read many documents.

with Reader(memory_limit="2G") as reader:
    print(reader.read("letter.pdf").markdown)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mineru_edge.models.bundle import Bundle, KVKind, embedded
from mineru_edge.models.errors import MineruEdgeError

from .document import AUTO, DETECTOR, LAYER, MODEL, OCR, Document, Memory, Page
from .drawer import LIMIT_S, Drawer, room_bytes
from .intake import MAX_IMAGE_PX, Input, Sheet, open_source, source_name
from .memory import MemoryWatch
from .pagespec import select_pages
from .units import parse_bytes

if TYPE_CHECKING:
    from mineru_edge.runtime.engine import Engine
    from mineru_edge.runtime.engines import Engines
    from mineru_edge.runtime.plan import Plan
    from mineru_edge.runtime.request import Request, Step

    from .ocr import Ocr
    from .protocol import PageProtocol
    from .quick_layout import QuickLayout

DPI_RANGE = (36, 600)


class Reader:
    """Reads PDF files and pictures with the model of one bundle, None for the small embedded one.

    `memory_limit` is what the process may take ("2G", or bytes); BudgetError when the model does not fit it.
    `threads` and `slots` (blocks read at once) are chosen by the machine and the limit unless given. `dpi` is for PDF
    pages, whose long edge stays within 3500 pixels. `password` opens encrypted PDFs. `max_image_px` refuses larger
    pictures before they are decoded. `block_deadline_s` ends a block after so many seconds with what it has,
    `page_deadline_s` a page: what it then lacks is among its failures.

    `text` says who reads: "auto" takes a block of text from the PDF where that can be trusted, a whole page where the
    model finds no block, and asks the model for all else; "model" asks it for everything; "layer" takes the PDF's own
    text alone and opens no model, and cannot read pictures.

    `layout` says who finds the blocks: the "model", or a small "detector" in its place. `text` "ocr" lets OCR read all
    blocks of text. `quick` is the detector, and of text what can be trusted in the PDF and for the rest OCR; tables and
    formulas are the model's then, which is opened when the first one comes. These need the extra `quick`.

    `kv` "int8" keeps keys and values in a quarter of the memory, BundleError where the bundle has no
    decoder for it.

    One document at a time: a Reader is not for use by several threads together.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str] | None = None,
        *,
        memory_limit: int | str | None = None,
        threads: int | None = None,
        slots: int | None = None,
        dpi: float = 200,
        password: str | None = None,
        max_image_px: int = MAX_IMAGE_PX,
        block_deadline_s: float | None = None,
        page_deadline_s: float | None = None,
        text: str = AUTO,
        layout: str = MODEL,
        quick: bool = False,
        kv: KVKind = "fp32",
        engine: str = "auto",
    ) -> None:
        low, high = DPI_RANGE
        if not low <= dpi <= high:
            raise MineruEdgeError(f"dpi must be from {low} to {high}, found {dpi}")
        for name, seconds in (("block_deadline_s", block_deadline_s), ("page_deadline_s", page_deadline_s)):
            if seconds is not None and seconds <= 0:
                raise MineruEdgeError(f"{name} must be above 0, found {seconds}")
        for name, value in (("threads", threads), ("slots", slots)):
            if value is not None and value < 1:
                raise MineruEdgeError(f"{name} must be at least 1, found {value}")
        if text not in (AUTO, MODEL, LAYER, OCR):
            raise MineruEdgeError(f"text must be {AUTO}, {MODEL}, {LAYER} or {OCR}, found {text!r}")
        if layout not in (MODEL, DETECTOR):
            raise MineruEdgeError(f"layout must be {MODEL} or {DETECTOR}, found {layout!r}")
        if quick and text != AUTO:
            raise MineruEdgeError(f"quick chooses who reads text, found text {text!r} with it")
        if text == LAYER and layout == DETECTOR:
            raise MineruEdgeError("text layer finds blocks by itself", hint="leave layout out, or take quick")
        if kv not in ("fp32", "int8"):
            raise MineruEdgeError(f"kv must be fp32 or int8, found {kv!r}")
        limit_bytes = None if memory_limit is None else parse_bytes(memory_limit)
        self._dpi = dpi
        self._password = password
        self._max_image_px = max_image_px
        self._block_deadline_s, self._page_deadline_s = block_deadline_s, page_deadline_s
        self._text = text
        self._finder = DETECTOR if quick else layout
        self._quickly = quick
        self._limit_bytes, self._threads, self._slots, self._kv = limit_bytes, threads, slots, kv
        self._wish = _checked_wish(engine)
        self._path = embedded() if bundle is None else bundle
        self._bundle: Bundle | None = None
        self._engine: Engine | None = None
        self._protocol: PageProtocol | None = None
        self._plan: Plan | None = None
        self._ocr: Ocr | None = None
        self._quick: QuickLayout | None = None
        self._reading: str | None = None
        self._closed = False
        self._drawer: Drawer | None = None
        self._watch = MemoryWatch(others=lambda: self._drawer.process_ids if self._drawer else ())
        if text != LAYER:
            with self._watch:  # at once, so that a bad bundle or too small a limit is known before the first page
                if self._finder == DETECTOR:
                    self._plan = _plan_for(self.bundle, self._engine_options())
                    self._quick = self._open_quick()
                else:
                    self._ocr = self._open_ocr() if text == OCR else None
                    self._open()

    @property
    def bundle(self) -> Bundle:
        """The bundle in use."""
        if self._bundle is None:
            self._bundle = Bundle.load(self._path)
        return self._bundle

    @property
    def engines(self) -> Engines:
        """Which engine runs which graph, and why; opens the model when `text` is "layer"."""
        return self._open().engines

    @property
    def plan(self) -> Plan:
        """What the memory is planned for, part by part. It is the model's: opened for it when text is "layer"."""
        return self._plan or self._open().plan

    def read(self, source: Input, *, pages: str | Sequence[int] | None = None, pictures: bool = False) -> Document:
        """Read all `pages` of `source`: a path, bytes, a binary stream or a PIL image. See `pages` for the options."""
        started = time.monotonic()
        return self.document(source, list(self.pages(source, pages=pages, pictures=pictures)), started=started)

    def pages(
        self, source: Input, *, pages: str | Sequence[int] | None = None, pictures: bool = False
    ) -> Generator[Page, None, None]:
        """The pages of `source` in order, each as soon as it is read; `close()` on the iterator gives the rest up.

        `pages` is "1-3,7" or a list of numbers, counted from 1. `pictures` keeps the crops of figures, tables and
        formulas in the blocks. InputError when the file cannot be read, or has no such page; a page that fails comes
        as a Page with an error.
        """
        self._check_open()
        return self._pages(source, pages, pictures)

    def document(self, source: Input, pages: Sequence[Page], *, started: float) -> Document:
        """`pages`, read from `source` since `started` (time.monotonic), as one result."""
        return Document(
            source=source_name(source),
            page_count=pages[0].page_count if pages else 0,
            pages=tuple(pages),
            model=None if self._text == LAYER else self.bundle.model_name,
            seconds=time.monotonic() - started,
            memory=self.peak_memory,
        )

    @property
    def peak_memory(self) -> Memory:
        """The most that the process has held so far."""
        return self._watch.peak()

    def close(self) -> None:
        """Give the model's memory back. Closing twice is fine; reading after it is an error."""
        if not self._closed:
            self._closed = True
            if self._drawer is not None:
                self._drawer.close()
            if self._engine is not None:
                self._engine.close()

    def __enter__(self) -> Reader:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pages(self, source: Input, pages: str | Sequence[int] | None, pictures: bool) -> Generator[Page, None, None]:
        self._check_open()
        if self._reading is not None:
            raise MineruEdgeError(f"{self._reading} is still being read", hint="finish or close that iterator first")
        self._reading = source_name(source)
        try:
            opened = open_source(
                source,
                dpi=self._dpi,
                password=self._password,
                max_image_px=self._max_image_px,
                text=MODEL if self._text == OCR else self._text,
                drawer=self._drawing(),
            )
            try:
                numbers = select_pages(pages, opened.page_count)
                sheets = opened.sheets(numbers)
                with self._watch:
                    if self._text == LAYER:
                        yield from _layer_pages(sheets, opened.page_count)
                    else:
                        yield from self._asked(sheets, opened.page_count, pictures)
            finally:
                opened.close()
        finally:
            self._reading = None

    def _asked(self, sheets: Iterator[Sheet], page_count: int, pictures: bool) -> Iterator[Page]:
        from .conversation import Conversation

        work = Conversation(
            _LateEngine(self._open) if self._quick else self._open(),
            self._page_protocol(),
            page_count=page_count,
            pictures=pictures,
            page_deadline_s=self._page_deadline_s,
            quick=self._quick,
        )
        try:
            yield from work.pages(sheets)
        finally:
            work.cancel()

    def _open(self) -> Engine:
        if self._engine is None:
            self._check_open()
            self._engine = _open_engine(self.bundle, threads=self._threads, **self._engine_options())
            self._plan = self._engine.plan
        return self._engine

    def _engine_options(self) -> dict[str, Any]:
        quick = self._finder == DETECTOR or self._text == OCR
        return {
            "limit_bytes": self._limit_bytes,
            "slots": self._slots,
            "kv": self._kv,
            "engine": self._wish,
            "quick": quick,
        }

    def _open_ocr(self) -> Ocr:
        from mineru_edge.runtime.threads import thread_count

        from .ocr import Ocr

        return Ocr(threads=self._threads or thread_count())

    def _open_quick(self) -> QuickLayout:
        from mineru_edge.runtime.threads import thread_count

        from .detector import Detector
        from .quick_layout import QuickLayout

        trusted = {AUTO: {LAYER, OCR} if self._quickly else {LAYER}, OCR: {OCR}, MODEL: set()}[self._text]
        return QuickLayout(Detector(threads=self._threads or thread_count()), self._open_ocr(), trusted=trusted)

    def _drawing(self) -> Drawer:
        """The process for pages, one for all documents."""
        if self._drawer is None:
            limit_s = min(LIMIT_S, self._page_deadline_s or LIMIT_S)
            if self._plan is not None:
                plan = self._plan
                self._drawer = Drawer(memory_bytes=plan.drawing_bytes, limit_s=limit_s, stays=plan.drawer_stays)
            elif self._limit_bytes is not None:
                self._drawer = Drawer(memory_bytes=room_bytes(self._limit_bytes), limit_s=limit_s)
            else:
                self._drawer = Drawer(limit_s=limit_s)
        return self._drawer

    def _page_protocol(self) -> PageProtocol:
        from .protocol import PageProtocol

        if self._protocol is None:
            size = self.bundle.preprocessing.layout_size
            self._protocol = PageProtocol(size, deadline_s=self._block_deadline_s, ocr=self._ocr)
        return self._protocol

    def _check_open(self) -> None:
        if self._closed:
            raise MineruEdgeError("this Reader is closed", hint="open a new one")


def _layer_pages(sheets: Iterator[Sheet], page_count: int) -> Iterator[Page]:
    from .layer_page import layer_page

    return (layer_page(sheet, page_count) for sheet in sheets)


class _LateEngine:
    """An engine that is opened when it is first asked: a page without tables and formulas needs none."""

    def __init__(self, opened: Callable[[], Engine]) -> None:
        self._opened = opened
        self._engine: Engine | None = None

    def submit(self, request: Request) -> int:
        self._engine = self._opened()
        return self._engine.submit(request)

    def step(self) -> Sequence[Step]:
        assert self._engine is not None, "nothing was asked for"
        return self._engine.step()

    def cancel(self, ticket: int | None) -> None:
        if self._engine is not None:
            self._engine.cancel(ticket)


def _plan_for(bundle: Bundle, options: dict[str, Any]) -> Plan:
    from mineru_edge.runtime.engine import plan_for

    return plan_for(bundle, **_of_engine(**options))


def _open_engine(bundle: Bundle, *, threads: int | None, **options: Any) -> Engine:
    from mineru_edge.runtime.engine import Engine

    options = _of_engine(**options)
    return Engine.open(bundle, threads=threads, memory_limit_bytes=options.pop("limit_bytes"), **options)


def _of_engine(*, quick: bool, **options: Any) -> dict[str, Any]:
    """Options of the Reader in the engine's words."""
    from mineru_edge.runtime.plan import NOTHING

    from .quick import BESIDE

    return {"drawn_apart": True, "beside": BESIDE if quick else NOTHING, **options}


def _checked_wish(engine: str) -> str:
    from mineru_edge.runtime.engines import parse_wishes

    parse_wishes(engine)
    return engine
