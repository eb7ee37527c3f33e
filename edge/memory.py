"""How much memory this process has held at most, with its drawing process, watched by a small thread while work is
done.

The kernel keeps the peak of resident memory (VmHWM) but not that of anonymous plus swapped memory, which is what a
leak grows and a budget is about; so that one is sampled. Off Linux both are unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from mineru_edge.runtime.memory import kernel_bytes
from mineru_edge.runtime.private_memory import STATUS

from .document import Memory

PROC = Path("/proc")
CLEAR_REFS = Path("/proc/self/clear_refs")
INTERVAL_S = 0.05


class MemoryWatch:
    """Samples inside `with`, as often as wanted; the peak is that of all of them. Costs no thread outside."""

    def __init__(
        self,
        *,
        status: Path = STATUS,
        interval_s: float = INTERVAL_S,
        others: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        """`others` gives the ids of the processes whose memory counts too."""
        self._status = status
        self._interval_s = interval_s
        self._others = others
        self._peak_private_bytes: int | None = None
        self._peak_rss_bytes = 0
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> MemoryWatch:
        assert self._thread is None, "a MemoryWatch is entered once at a time"
        self._sample()
        if self._peak_private_bytes is not None:
            self._done.clear()
            self._thread = threading.Thread(target=self._run, name="mineru-edge memory", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._done.set()
            self._thread.join()
            self._thread = None
        self._sample()

    def peak(self) -> Memory:
        """The peaks so far, this very moment included."""
        self._sample()
        alone = kernel_bytes(self._status, "VmHWM")
        return Memory(self._peak_private_bytes, alone and max(alone, self._peak_rss_bytes))

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            self._sample()

    def _sample(self) -> None:
        now = private_bytes(status=self._status)
        if now is None:
            return
        others = [PROC / str(number) / "status" for number in self._others()]
        now += sum(private_bytes(status=each) or 0 for each in others)  # a process may just have ended
        self._peak_private_bytes = max(self._peak_private_bytes or 0, now)
        if others:
            resident = sum(kernel_bytes(each, "VmRSS") or 0 for each in (self._status, *others))
            self._peak_rss_bytes = max(self._peak_rss_bytes, resident)


def reset_peak(*, clear_refs: Path = CLEAR_REFS) -> bool:
    """Let the kernel's peak of resident memory start anew from now; False where it cannot be done."""
    try:
        clear_refs.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def private_bytes(*, status: Path = STATUS) -> int | None:
    """RssAnon + VmSwap of this process now; None where the system does not tell."""
    return kernel_bytes(status, "RssAnon", "VmSwap")
