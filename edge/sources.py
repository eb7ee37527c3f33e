"""What `parse` is given: files as they are named, and folders as the documents in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mineru_edge.models.errors import InputError

from .intake import printable

STDIN = "-"
SUFFIXES = frozenset(".pdf .png .jpg .jpeg .jpe .jfif .tif .tiff .webp .gif .bmp".split())


@dataclass(frozen=True, slots=True)
class Work:
    """One document to read, and the name of its outputs, which has the folders below a named one in it.

    `error` stands for what cannot be read at all.
    """

    path: str
    name: str
    error: InputError | None = None


def gather(given: Sequence[str], *, outputs: Sequence[Path]) -> list[Work]:
    """The documents of `given`, in this order; those of a folder by their paths, of all folders below it too.

    In folders, files that are no document by their suffix, hidden ones and what lies in `outputs` are passed over.
    Names are unique on any file system.
    """
    spared = {folder.resolve() for folder in outputs}
    found: list[tuple[str, str, InputError | None]] = []
    for path in given:
        if path != STDIN and Path(path).is_dir():
            found += _folder(path, spared)
        else:
            found.append((path, "stdin" if path == STDIN else printable(Path(path).stem), None))
    taken: set[str] = set()
    return [Work(path, _unique(name or "document", taken), error) for path, name, error in found]


def _folder(top: str, spared: set[Path]) -> Iterator[tuple[str, str, InputError | None]]:
    if Path(top).resolve() in spared:
        words = f"{printable(top)} would be read and written to at once"
        yield top, "", InputError(words, hint="write to another directory (-o, --overlay)")
        return
    empty = True
    failures: list[OSError] = []
    for here, folders, files in os.walk(top, onerror=failures.append):
        folders[:] = sorted(name for name in folders if name[0] != "." and Path(here, name).resolve() not in spared)
        below = Path(here).relative_to(top)
        for name in sorted(files):
            if name[0] != "." and Path(name).suffix.lower() in SUFFIXES:
                empty = False
                yield os.path.join(here, name), printable((below / Path(name).stem).as_posix()), None
    for failure in failures:
        empty = False
        words = f"{printable(str(failure.filename))} cannot be read: {failure.strerror or failure}"
        yield str(failure.filename), "", InputError(words, hint="check its permissions")
    if empty:
        yield top, "", InputError(f"{printable(top)} has no PDF and no picture in it", hint="name another folder")


def _unique(name: str, taken: set[str]) -> str:
    """`name`, with a number where it would be the same as one before on any file system."""
    unique, count = name, 1
    while unique.casefold() in taken:
        count += 1
        unique = f"{name}-{count}"
    taken.add(unique.casefold())
    return unique
