"""The commands of the build machine: `export` and `verify`. Their work is in `mineru_edge.export`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import click

from mineru_edge.models.bundle import Kind, KVKind
from mineru_edge.models.errors import EngineError

INSTALL = "pip install 'mineru-edge[export]'"


def export_bundle(checkpoint: str, bundle: str, *, precision: Kind, engine: Literal["onnx"], kv: KVKind) -> None:
    """Write `bundle`, with a progress bar on a terminal."""
    with _extra():
        from mineru_edge.export.exporter import export

        with ProgressBar() as bar:
            export(checkpoint, bundle, precision=precision, format=engine, kv=kv, progress=bar.update)
    click.echo(f"{bundle} is written; `mineru-edge verify {checkpoint} {bundle}` compares it with its source", err=True)


def verify_bundle(checkpoint: str, bundle: str, pages: Sequence[str]) -> None:
    """Print the comparison; ParityError when a threshold is missed."""
    with _extra():
        from mineru_edge.export.verify import verify

        with ProgressBar() as bar:
            parity = verify(checkpoint, bundle, pages=list(pages) or None, progress=bar.update)
    click.echo(parity.table())
    parity.check()


class ProgressBar:
    """So much done of so much to do, on stderr, drawn only on a terminal."""

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
        if self._bar is None:
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
