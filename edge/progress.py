"""A line per page on a terminal, with the time that is likely left."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable

import click

from .document import Page
from .units import many

_RECENT_PAGES = 20


class Progress:
    """Of `files` files; those not begun yet are taken to be as long as those before them. Silent off a terminal."""

    def __init__(self, files: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._files_left = files
        self._clock = clock
        self._shown = sys.stderr.isatty()
        self._started = self._last = clock()
        self._recent: deque[float] = deque(maxlen=_RECENT_PAGES)  # seconds from page to page
        self._pages_seen = self._files_seen = 0
        self._pages_left = 0  # of this file

    def begin(self) -> None:
        """The next file."""
        self._files_left -= 1
        self._pages_left = 0
        self._last = self._clock()

    def page(self, path: str, page: Page, *, done: int, wanted: int) -> None:
        """One page was read, the `done`th of `wanted` of its file."""
        now = self._clock()
        self._recent.append(now - self._last)
        self._last = now
        if not self._pages_left:
            self._files_seen += 1
            self._pages_seen += wanted
        self._pages_left = wanted - done
        if self._shown:
            what = "failed" if page.error else many(len(page.blocks), "block")
            click.echo(
                f"{path}: page {page.number}/{page.page_count}: {what}, {page.seconds:.1f} s,"
                f" {now - self._started:.1f} s in all{self._left()}",
                err=True,
            )

    def _left(self) -> str:
        pages = self._pages_left + self._files_left * self._pages_seen / self._files_seen
        if not pages:
            return ""
        return f", about {duration(pages * sum(self._recent) / len(self._recent))} left"


def duration(seconds: float) -> str:
    """Whole seconds under two minutes, whole minutes under two hours, else hours and minutes."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
