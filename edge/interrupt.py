"""Ctrl-C between two writes, never within one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupts:
    """Inside `with`, an interrupt that comes while something is `held` waits until that is done.

    Signals belong to the main thread; in any other this does nothing.
    """

    def __init__(self) -> None:
        self._held = 0
        self._waiting = False
        self._before: object = None
        self._is_main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interrupts:
        if self._is_main:
            self._before = signal.signal(signal.SIGINT, self._arrive)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_main:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """What is done inside is done to its end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._waiting and not self._held:
            self._waiting = False
            raise KeyboardInterrupt

    def _arrive(self, _number: int, _frame: FrameType | None) -> None:
        if not self._held:
            raise KeyboardInterrupt
        self._waiting = True
