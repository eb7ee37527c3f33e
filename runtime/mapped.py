"""Weights mapped from files: where in this process they are, and how to let go of them.

Vision and decoding take turns, and each needs its own weights only; vision goes through its layers one after the other,
and needs one layer's. Dropped pages stay in the system's file cache and are mapped again when they are touched, which
takes milliseconds where a picture takes seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SMAPS = Path("/proc/self/smaps")
SWEEP_S = 0.1
_HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S{4} \S+ \S+ \d+\s*(.*)")
_CHANGED = re.compile(r"Anonymous:\s+[1-9]")


@dataclass(frozen=True, slots=True)
class Range:
    """Addresses from `start` up to `start + size`."""

    start: int
    size: int


class Mapped:
    """The pages of one file in this process, as they are mapped now."""

    def __init__(self, file: Path) -> None:
        self._ranges = mapped_ranges(file)

    def drop(self) -> None:
        """Take them out of this process's memory until they are touched again; nothing where that cannot be done."""
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if not self._ranges or advice is None:
            return
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for part in self._ranges:
            madvise(part.start, part.size, advice)  # a refusal costs memory, nothing else

    @contextlib.contextmanager
    def swept(self) -> Iterator[None]:
        """Drop them again and again while the body runs in C, and at its end."""
        if not self._ranges:
            yield
            return
        done = threading.Event()

        def sweep() -> None:
            while not done.wait(SWEEP_S):
                self.drop()

        thread = threading.Thread(target=sweep, name="mineru-edge sweep", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.drop()


def can_drop() -> bool:
    """Whether this system tells where files are mapped and takes advice."""
    return SMAPS.exists() and hasattr(mmap, "MADV_DONTNEED")


def mapped_ranges(file: Path, *, smaps: Path = SMAPS) -> tuple[Range, ...]:
    """Where `file` is mapped, without mappings that hold changed pages, which the file could not give back.

    Empty where the system does not tell.
    """
    try:
        lines = smaps.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ()
    wanted = os.path.realpath(file)
    found: dict[Range, None] = {}
    current: Range | None = None
    for line in lines:
        if head := _HEAD.fullmatch(line):
            start, end = int(head[1], 16), int(head[2], 16)
            current = Range(start, end - start) if head[3] == wanted else None
            if current:
                found[current] = None
        elif current and _CHANGED.match(line):
            found.pop(current, None)
    return tuple(found)
