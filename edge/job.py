"""Documents one after the other, each page put where it belongs before the next one is asked for.

Text for stdout flows page by page. All else goes through a journal: pages first, and the files that are asked for made
from it at the end of the document, or at the moment when the run is ended. Neither holds a document in memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from mineru_edge.models.bundle import sha256_of
from mineru_edge.models.errors import OK, PARTIAL

from .document import Document, Page
from .escape import comment
from .formats import FLOWING, SUFFIXES, Stream, json_line, open_stream, written
from .intake import Input, printable
from .interrupt import Interrupts
from .journal import Journal, Key
from .outputs import OutputFolder
from .overlay import Overlay
from .pagespec import select_pages
from .progress import Progress
from .reader import Reader
from .sources import STDIN, Work
from .tally import Tally

JOURNALS = ".mineru-edge"


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where results go. `formats` are files in `folder`, else the one that stdout gets; `as_json` puts a line of JSON
    there. `overlay` is the folder for pages with their blocks drawn in, `margins` shows headers and footers in what
    people read, `titled` says on stdout which file begins."""

    folder: OutputFolder | None
    overlay: OutputFolder | None
    formats: tuple[str, ...]
    as_json: bool
    margins: bool
    titled: bool

    @property
    def flows(self) -> bool:
        return self.folder is None and not self.as_json and self.formats[0] in FLOWING


class Job:
    """Reads documents by `reader` into `outlet`. `pages` is which ones, `key` what they are read with; `resume` takes
    what journals have for the same file and key."""

    def __init__(
        self,
        reader: Reader,
        outlet: Outlet,
        interrupts: Interrupts,
        *,
        pages: str | None,
        password: str | None,
        key: Key,
        resume: bool,
        progress: Progress,
    ) -> None:
        self.tally = Tally()
        self._reader, self._outlet, self._interrupts = reader, outlet, interrupts
        self._pages, self._password, self._key, self._resume = pages, password, key, resume
        self._progress = progress

    def read(self, work: Work) -> int:
        """Read one document; OK, or PARTIAL when something of it is missing. InputError when it cannot be read."""
        self.tally.files += 1
        self._progress.begin()
        if work.error is not None:
            raise work.error
        source = _Stdin(sys.stdin.buffer.read()) if work.path == STDIN else work.path
        with contextlib.ExitStack() as stack:
            overlay = None
            if self._outlet.overlay is not None:
                overlay = Overlay(self._outlet.overlay, work.name, _again(source), password=self._password)
                stack.callback(overlay.close)
            if self._outlet.flows:
                return self._flow(work, source, overlay)
            journal = stack.enter_context(self._journal(work, source, stack))
            return self._keep(work, source, journal, overlay)

    def _flow(self, work: Work, source: Input, overlay: Overlay | None) -> int:
        """To stdout as it comes."""
        facts = self._facts(source, 0, time.monotonic())
        stream = self._stream(self._outlet.formats[0], facts, work)
        if self._outlet.titled:
            click.echo(comment(printable(work.path)) + "\n")
        whole = True

        def take(page: Page) -> None:
            nonlocal whole
            click.echo(stream.feed(page), nl=False)
            if overlay is not None:
                overlay.write(page)
            whole = whole and not page.failures

        self._read(work, source, self._pages, take)
        click.echo(stream.end() + ("\n" if self._outlet.titled else ""), nl=False)
        return OK if whole else PARTIAL

    def _keep(self, work: Work, source: str | _Stdin, journal: Journal, overlay: Overlay | None) -> int:
        """To the journal, and from there to the outlets."""
        started = time.monotonic()
        folder = self._outlet.folder
        numbers: tuple[int, ...] = ()
        kept: list[int] = []
        wanted: str | Sequence[int] | None = self._pages
        if journal.page_count is not None:
            numbers = select_pages(self._pages, journal.page_count)
            whole = journal.whole
            kept = [number for number in numbers if number in whole]
            wanted = [number for number in numbers if number not in whole]

        def take(page: Page) -> None:
            if folder is not None:
                page = folder.keep_pictures(work.name, page)
            if overlay is not None:
                overlay.write(page)
            journal.append(page)

        try:
            for page in journal.pages(kept):
                self.tally.add(page, kept=True)
                if overlay is not None and not overlay.has(page):
                    overlay.write(page)
            if wanted is None or wanted:
                self._read(work, source, wanted, take, kept=len(kept))
        finally:
            if journal.page_count is not None:
                with self._interrupts.held():
                    numbers = select_pages(self._pages, journal.page_count)
                    facts = self._facts(source, journal.page_count, started)
                    self._write(work, facts, lambda: journal.pages(numbers))
        return OK if journal.whole.issuperset(numbers) else PARTIAL

    def _read(
        self,
        work: Work,
        source: Input,
        wanted: str | Sequence[int] | None,
        take: Callable[[Page], None],
        *,
        kept: int = 0,
    ) -> None:
        """Ask for the pages, and deal with each by `take` before the next; then count and show it."""
        pages = self._reader.pages(source, pages=wanted, pictures=self._outlet.folder is not None)
        told: set[str] = set()  # a font that is missing is so on many pages
        with contextlib.closing(pages):
            for done, page in enumerate(pages, kept + 1):
                with self._interrupts.held():
                    take(page)
                    self.tally.add(page)
                    total = len(select_pages(self._pages, page.page_count))
                    self._progress.page(printable(work.path), page, done=done, wanted=total)
                    doubts = [f"page {page.number}: {words}" for words in page.warnings if words not in told]
                    told.update(page.warnings)
                    for trouble in (*page.failures, *doubts, *page.cut_short):
                        click.echo(f"warning: {printable(work.path)}: {trouble}", err=True)

    def _write(self, work: Work, facts: Document, pages: Callable[[], Iterator[Page]]) -> None:
        """All that was asked for of one document, from the pages that there are."""
        folder = self._outlet.folder
        if folder is not None:
            for name in self._outlet.formats:
                pieces = written(self._stream(name, facts, work), pages())
                folder.write_pieces(work.name + SUFFIXES[name], (piece.encode() for piece in pieces))
        if self._outlet.as_json:
            for piece in json_line(facts, pages):
                click.echo(piece, nl=False)
        elif folder is None:
            stream = open_stream(self._outlet.formats[0], facts, indent=None)
            for piece in written(stream, pages()):
                click.echo(piece, nl=False)

    def _stream(self, name: str, facts: Document, work: Work) -> Stream:
        return open_stream(name, facts, title=Path(work.name).name, margins=self._outlet.margins)

    def _facts(self, source: Input, page_count: int, started: float) -> Document:
        return dataclasses.replace(self._reader.document(source, (), started=started), page_count=page_count)

    def _journal(self, work: Work, source: str | _Stdin, stack: contextlib.ExitStack) -> Journal:
        folder = self._outlet.folder
        if folder is None:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="mineru-edge-"))
            return Journal(Path(scratch) / "pages.jsonl", {})
        path = folder.path / JOURNALS / f"{work.name}.jsonl"
        journal = Journal(path, {"file": _hash(work.path, source), **self._key}, resume=self._resume)
        if journal.is_other:
            words = "it was read with another file, bundle, version or option before, and is read anew"
            click.echo(f"{printable(work.path)}: {words}", err=True)
        return journal


class _Stdin(io.BytesIO):
    """What stdin gave, to be read more than once."""

    name = "<stdin>"


def _again(source: str | _Stdin) -> Input:
    return source if isinstance(source, str) else source.getvalue()


def _hash(path: str, source: str | _Stdin) -> str:
    if not isinstance(source, str):
        return hashlib.sha256(source.getvalue()).hexdigest()
    try:
        return sha256_of(Path(source))
    except OSError:
        return ""  # reading it will say why
