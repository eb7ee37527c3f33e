"""The `parse` command: files in, Markdown or JSON out, a line of progress per page."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mineru_edge.models.bundle import KVKind
from mineru_edge.models.errors import OK, PARTIAL, MineruEdgeError, megabytes

from .cli import report
from .document import LAYER, Document, Page
from .escape import comment
from .intake import Input, printable
from .outputs import OutputFolder, output_names
from .overlay import Overlay
from .reader import Reader
from .render import MarkdownStream

if TYPE_CHECKING:
    from mineru_edge.runtime.plan import Plan


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where results go: stdout as Markdown page by page, stdout as JSON, a folder, or the last two.

    `overlay` is the folder for pages with their blocks drawn in.
    """

    folder: OutputFolder | None
    overlay: OutputFolder | None
    as_json: bool
    titled: bool  # several files on one stdout: say which begins

    @property
    def streams(self) -> bool:
        return self.folder is None and not self.as_json


def parse_files(
    *,
    files: Sequence[str],
    output: str | None,
    pages: str | None,
    bundle: str | None,
    memory_limit: int | None,
    threads: int | None,
    slots: int | None,
    kv: KVKind,
    password: str | None,
    text: str,
    overlay: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Read `files` one after the other; the exit code. A bundle that cannot be opened raises."""
    outlet = Outlet(
        OutputFolder(output) if output else None,
        OutputFolder(overlay) if overlay else None,
        as_json,
        titled=len(files) > 1,
    )
    codes: list[int] = []
    with Reader(
        bundle, memory_limit=memory_limit, threads=threads, slots=slots, kv=kv, password=password, text=text
    ) as reader:
        if verbose and text != LAYER:
            _show_plan(reader)
        for path, name in zip(files, output_names(files), strict=True):
            try:
                codes.append(_parse_file(reader, path, name, pages, password, outlet))
            except MineruEdgeError as error:
                codes.append(report(error))
                if as_json:
                    _print_json({"source": printable(path), "error": str(error), "exit_code": error.exit_code})
    return _exit_code(codes)


def _parse_file(reader: Reader, path: str, name: str, pages: str | None, password: str | None, outlet: Outlet) -> int:
    started = time.monotonic()
    source: Input = sys.stdin.buffer if path == "-" else path
    overlay = None
    if outlet.overlay is not None:
        again: Input = path
        if path == "-":
            again = sys.stdin.buffer.read()
            source = _Stdin(again)
        overlay = Overlay(outlet.overlay, name, again, password=password)
    markdown = MarkdownStream()
    if outlet.streams and outlet.titled:
        click.echo(comment(printable(path)) + "\n")
    done: list[Page] = []
    try:
        for page in reader.pages(source, pages=pages, pictures=outlet.folder is not None):
            if outlet.folder is not None:
                page = outlet.folder.keep_pictures(name, page)
            if outlet.streams:
                _print(markdown.feed(page))
            if overlay is not None:
                overlay.write(page)
            done.append(page)
            _progress(path, page, time.monotonic() - started)
    finally:
        if overlay is not None:
            overlay.close()
    if outlet.streams:
        _print(markdown.end() + ("\n" if outlet.titled else ""))
    document = reader.document(source, done, started=started)
    if outlet.folder is not None:
        outlet.folder.write(name, document)
    if outlet.as_json:
        _print_json({**document.to_dict(), "markdown": document.markdown})
    return _judge(path, document)


class _Stdin(io.BytesIO):
    """What stdin gave, to be read more than once."""

    name = "<stdin>"


def _judge(path: str, document: Document) -> int:
    """Say what is missing or may be; PARTIAL when something is."""
    for trouble in (*document.failures, *(text for page in document.pages for text in page.cut_short)):
        click.echo(f"warning: {path}: {trouble}", err=True)
    return PARTIAL if document.failures else OK


def _exit_code(codes: Sequence[int]) -> int:
    """A lone file's own code; of several, 10 as soon as some came through, else the first one's code."""
    if all(code == OK for code in codes):
        return OK
    came_through = any(code in (OK, PARTIAL) for code in codes)
    return PARTIAL if came_through else codes[0]


def _progress(path: str, page: Page, since_start_s: float) -> None:
    if sys.stderr.isatty():
        what = "failed" if page.error else f"{len(page.blocks)} blocks"
        click.echo(
            f"{path}: page {page.number}/{page.page_count}: {what}, {page.seconds:.1f} s, {since_start_s:.1f} s in all",
            err=True,
        )


def plan_words(plan: Plan) -> str:
    return f"{plan.slots} slots of {plan.capacity_tokens} tokens, {plan.patch_cap} patches at most"


def _show_plan(reader: Reader) -> None:
    plan = reader.plan
    click.echo(plan_words(plan), err=True)
    for part in plan.parts:
        click.echo(f"{part.name:<28}{megabytes(part.bytes):>14}", err=True)
    click.echo(f"{'total':<28}{megabytes(plan.total_bytes):>14}", err=True)


def _print(text: str) -> None:
    if text:
        click.echo(text, nl=False)


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
