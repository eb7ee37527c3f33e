"""A drawing process in which page 2 misbehaves, in the way the document is named for."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from mineru_edge import drawing_process, pdf

BOOT = "import sys; sys.path[:] = sys.argv[2:]; from hostile_pages import main; main()"


def _nonsense() -> None:
    for number in range(3, 30):  # wherever the answers go
        try:
            os.write(number, b"\xff" * 4096)
        except OSError:
            continue


def _spin() -> None:
    while True:
        pass


def _eat() -> None:
    held = []
    while True:
        held.append(b"\x01" * 50_000_000)


WAYS: dict[str, Callable[[], Any]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda: ctypes.string_at(8),
    "hang": lambda: time.sleep(600),
    "spin": _spin,
    "eat": _eat,
    "raise": lambda: [][0],
    "print": lambda: (sys.stdout.write("in the way\n"), sys.stdout.flush(), os.write(1, b"\xff" * 100_000)),
    "nonsense": _nonsense,
}


def main() -> None:
    draw = pdf.PdfSource._draw

    def _draw(self: pdf.PdfSource, index: int) -> Any:
        if index == 1:
            WAYS[self._name.partition(".")[0]]()
        return draw(self, index)

    pdf.PdfSource._draw = _draw  # type: ignore[method-assign]
    drawing_process.main()
