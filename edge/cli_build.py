"""The commands of the build machine: `export` and `verify`. Their work is in `mineru_edge.export`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import click
from PIL import Image

from mineru_edge.models.bundle import Formats, KVKind
from mineru_edge.models.errors import EngineError, InputError
from mineru_edge.models.sensitivity import read_sensitivity

from .cli_info import print_rows, sensitivity_rows
from .intake import open_source, printable

INSTALL = "pip install 'mineru-edge[export]'"


def export_bundle(
    checkpoint: str,
    bundle: str,
    *,
    precision: Literal["int8", "fp32"],
    decoder: Literal["int8", "w8a8", "int4"],
    formats: Formats,
    kv: KVKind,
    calibrate: Sequence[str],
) -> None:
    """Write `bundle`, with a progress bar on a terminal; `calibrate` names files, and the ranking goes to stdout."""
    if calibrate and precision == "fp32":
        raise click.UsageError("--calibrate chooses which matrices stay fp32: leave --precision fp32 out")
    if precision == "fp32" and decoder != "int8":
        raise click.UsageError(f"--decoder {decoder} is for --precision int8: leave one of the two out")
    pages = _pictures(calibrate)
    with _extra():
        from mineru_edge.export.exporter import export

        with ProgressBar() as bar:
            written = export(
                checkpoint,
                bundle,
                precision=precision,
                decoder=decoder,
                format=formats,
                kv=kv,
                calibrate=pages,
                progress=bar.update,
            )
    if (found := read_sensitivity(written)) is not None:
        print_rows(sensitivity_rows(found))
    click.echo(f"{bundle} is written; `mineru-edge verify {checkpoint} {bundle}` compares it with its source", err=True)


def verify_bundle(checkpoint: str, bundle: str, pages: Sequence[str], engine: str) -> None:
    """Print the comparison; ParityError when a threshold is missed."""
    with _extra():
        from mineru_edge.export.verify import verify

        with ProgressBar() as bar:
            parity = verify(checkpoint, bundle, pages=_pictures(pages), engine=engine, progress=bar.update)
    click.echo(parity.table())
    parity.check()


def _pictures(files: Sequence[str]) -> list[Image.Image] | None:
    """Every page of these files, as `parse` sees them; None when there are no files. InputError names the first that
    cannot be read: a comparison without it would be another one."""
    pictures: list[Image.Image] = []
    for file in files:
        with contextlib.closing(open_source(file)) as source:
            for sheet in source.sheets(range(1, source.page_count + 1)):
                if sheet.image is None:
                    raise InputError(f"page {sheet.number} of {printable(file)} {sheet.error}", hint="leave it out")
                pictures.append(sheet.image)
    return pictures if files else None


class ProgressBar:
    """So much done of so much to do, on stderr, drawn only on a terminal. A new total begins a new bar."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.render_finish()

    def update(self, done: int, total: int, name: str) -> None:
        """`name` is what is being worked on."""
        if not sys.stderr.isatty():
            return
        if self._bar is None or self._bar.length != total:
            self.__exit__()
            self._bar = click.progressbar(length=total, file=sys.stderr, item_show_func=lambda item: item or "")
            self._bar.__enter__()
        self._bar.update(max(0, done - self._bar.pos), name)


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """A missing package of the extra is an error that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "mineru_edge":
            raise
        raise EngineError(f"{error.name} is not installed, which only the build machine needs", hint=INSTALL) from error
