"""The pages of one document on disk, each as soon as it is read, so that a job can go on where it was ended.

One JSON object a line: first what was read with what, then the pages. A line that a kill cut in two is dropped, and
with it all behind it. Results are made from this file alone, whether it was written in one run or in several.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from mineru_edge.models.errors import SpaceError

from .document import Answer, Block, Page

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
Key = Mapping[str, Any]
"""What decides what is read: hash of the file, bundle, options. JSON values."""


class Journal:
    """`pages` of one document at `path`. Opened for `key`: with `resume` it goes on with what is there for the same
    key, else it begins anew. The file is made with the first page. SpaceError when it cannot be written, or is being
    written by another run."""

    def __init__(self, path: Path, key: Key, *, resume: bool = False) -> None:
        self._path = path
        self._head = _line({"format": FORMAT, **key})
        self._places: dict[int, tuple[int, int]] = {}  # page number -> where its line begins, bytes
        self._whole: set[int] = set()
        self._file: BinaryIO | None = None
        self._end = 0  # of the lines that count
        self.page_count: int | None = None
        self.is_other = False
        if resume and path.exists():
            with self._troubles():
                self._file = _locked(path)
                self._read_back(self._file)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The pages that are here, ascending."""
        return tuple(sorted(self._places))

    @property
    def whole(self) -> frozenset[int]:
        """Those of them with nothing missing."""
        return frozenset(self._whole)

    def append(self, page: Page) -> None:
        """Add `page`, in place of what was here for its number. It is on the disk when this returns."""
        line = _line(_record(page))
        with self._troubles():
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = _locked(self._path)
            if not self._end:
                line = self._head + line
            self._file.seek(self._end)
            self._file.truncate()  # what a kill, another key or a full disk has left
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        start = self._end or len(self._head)
        self._end += len(line)
        self._note(page, start, self._end - start)

    def pages(self, numbers: Sequence[int]) -> Iterator[Page]:
        """Those of `numbers` that are here, in this order, read from the disk one at a time."""
        if not self._places:
            return
        with self._path.open("rb") as file:
            for number in numbers:
                if number in self._places:
                    start, size = self._places[number]
                    file.seek(start)
                    yield _page(json.loads(file.read(size)))

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other runs write here. Pages can still be read."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_back(self, file: BinaryIO) -> None:
        if file.readline() != self._head:
            self.is_other = True
            return
        self._end = len(self._head)
        for line in file:
            page = _page_or_none(line)
            if page is None:
                return
            self._note(page, self._end, len(line))
            self._end += len(line)

    def _note(self, page: Page, start: int, size: int) -> None:
        self.page_count = page.page_count
        self._places[page.number] = start, size
        (self._whole.discard if page.failures else self._whole.add)(page.number)

    @contextlib.contextmanager
    def _troubles(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError as error:
            raise SpaceError(
                f"{self._path} is being written by another run", hint="wait for it, or give another directory"
            ) from error
        except OSError as error:
            raise SpaceError(
                f"{self._path} cannot be written: {error.strerror or error}",
                hint="give a directory with room that can be written to",
            ) from error


def _locked(path: Path) -> BinaryIO:
    """The file, made if it is not there, for this process alone where the system can say so. BlockingIOError when
    another has it."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666), "r+b")
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    except OSError:
        pass  # a file system without locks
    return file


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _record(page: Page) -> dict[str, Any]:
    """All fields, numbers to the last bit. Pictures are files by now."""
    assert all(block.picture is None for block in page.blocks)
    return dataclasses.asdict(page)


def _page_or_none(line: bytes) -> Page | None:
    """None for a line that is not whole, or not of ours."""
    try:
        return _page(json.loads(line)) if line.endswith(b"\n") else None
    except (ValueError, TypeError, KeyError):
        return None


def _page(record: dict[str, Any]) -> Page:
    blocks = tuple(
        Block(**{**block, "box": tuple(block["box"]), "answer": _answer(block["answer"])}) for block in record["blocks"]
    )
    warnings = tuple(record["warnings"])
    return Page(**{**record, "blocks": blocks, "layout": _answer(record["layout"]), "warnings": warnings})


def _answer(record: dict[str, Any] | None) -> Answer | None:
    return None if record is None else Answer(**record)
