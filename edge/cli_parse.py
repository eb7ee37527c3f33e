"""The `parse` command: what its options ask for, and what it says at the end."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mineru_edge.models.bundle import BUNDLE_FILE, sha256_of
from mineru_edge.models.errors import OK, PARTIAL, MineruEdgeError, megabytes

from .cli import report
from .document import LAYER
from .formats import USUAL
from .intake import printable
from .interrupt import Interrupts
from .job import Job, Outlet
from .journal import Key
from .outputs import OutputFolder
from .progress import Progress
from .reader import Reader
from .sources import Work, gather

if TYPE_CHECKING:
    from mineru_edge.runtime.plan import Plan

# Options of the Reader that change how a page is read and not what it says.
_HOW = frozenset({"memory_limit", "threads", "slots", "password", "page_deadline_s"})


def parse_files(
    *,
    files: Sequence[str],
    output: str | None,
    formats: tuple[str, ...] | None,
    pages: str | None,
    bundle: str | None,
    overlay: str | None,
    headers_footers: bool,
    resume: bool,
    as_json: bool,
    verbose: bool,
    **reading: Any,
) -> int:
    """Read `files` one after the other; the exit code. `reading` are options of the Reader. A bundle that cannot be
    opened raises."""
    outputs = [Path(folder) for folder in (output, overlay) if folder]
    works = gather(files, outputs=outputs)
    outlet = Outlet(
        OutputFolder(output) if output else None,
        OutputFolder(overlay) if overlay else None,
        formats or (USUAL if output else ("md",)),
        as_json,
        headers_footers,
        titled=len(works) > 1,
    )
    _check(outlet, formats=formats, resume=resume)
    started = time.monotonic()
    with Interrupts() as interrupts, contextlib.ExitStack() as stack:
        with interrupts.held():  # engines that are cut off while they are imported look as if they were missing
            reader = stack.enter_context(Reader(bundle, **reading))
        if verbose and reading["text"] != LAYER:
            _show_plan(reader)
        job = Job(
            reader,
            outlet,
            interrupts,
            pages=pages,
            password=reading["password"],
            key=_key(reader, reading) if output else {},
            resume=resume,
            progress=Progress(len(works)),
        )
        try:
            return _exit_code([_read(job, work, as_json=as_json) for work in works])
        finally:
            if output or verbose or sys.stderr.isatty():
                for line in job.tally.lines(seconds=time.monotonic() - started, memory=reader.peak_memory):
                    click.echo(line, err=True)


def _read(job: Job, work: Work, *, as_json: bool) -> int:
    """One document's exit code; what is wrong with it costs no other."""
    try:
        return job.read(work)
    except MineruEdgeError as error:
        job.tally.failed_files += 1
        if as_json:
            failure = {"source": printable(work.path), "error": str(error), "exit_code": error.exit_code}
            click.echo(json.dumps(failure, ensure_ascii=False))
        return report(error)


def _check(outlet: Outlet, *, formats: tuple[str, ...] | None, resume: bool) -> None:
    """Options that do not go together. click.UsageError."""
    if outlet.folder is not None:
        return
    if resume:
        raise click.UsageError("--resume needs -o DIR: the pages that were read are kept there.")
    if formats and outlet.as_json:
        raise click.UsageError("--json is a format of its own; give -o DIR for the files of --format.")
    if len(outlet.formats) > 1:
        raise click.UsageError("stdout takes one format; give -o DIR for several.")
    if outlet.formats == ("html",) and outlet.titled:
        raise click.UsageError("stdout takes the HTML of one file; give -o DIR for several.")


def _key(reader: Reader, reading: dict[str, Any]) -> Key:
    """What decides what is read, besides the file itself."""
    options = {name: value for name, value in sorted(reading.items()) if name not in _HOW}
    bundle = None
    if reading["text"] != LAYER:
        bundle = sha256_of(reader.bundle.path / BUNDLE_FILE)
    return {"version": version("mineru-edge"), "bundle": bundle, "options": options}


def _exit_code(codes: Sequence[int]) -> int:
    """A lone file's own code; of several, 10 as soon as some came through, else the first one's code."""
    if all(code == OK for code in codes):
        return OK
    came_through = any(code in (OK, PARTIAL) for code in codes)
    return PARTIAL if came_through else codes[0]


def plan_words(plan: Plan) -> str:
    return f"{plan.slots} slots of {plan.capacity_tokens} tokens, {plan.patch_cap} patches at most"


def _show_plan(reader: Reader) -> None:
    plan = reader.plan
    click.echo(reader.engines.words, err=True)
    click.echo(plan_words(plan), err=True)
    for part in plan.parts:
        click.echo(f"{part.name:<28}{megabytes(part.bytes):>14}", err=True)
    click.echo(f"{'total':<28}{megabytes(plan.total_bytes):>14}", err=True)
