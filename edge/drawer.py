"""The drawing process from its owner's side: started when first needed, replaced when a page has taken it down.

What a file can do to it costs one page: a crash, a hang and a greed for memory are told apart from each other in the
page's error, and the pages after it are drawn by the next process. It is plain `python -c`, so that nothing depends on
how the program around it is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing import spawn
from pathlib import Path
from typing import IO, Any, cast

from mineru_edge.models.errors import BudgetError, EngineError, InputError, megabytes
from mineru_edge.runtime.memory import kernel_bytes
from mineru_edge.runtime.plan import DRAWER_BYTES, DRAWING_BYTES, DRAWING_MOST_BYTES
from mineru_edge.runtime.private_memory import STATUS

from .intake import Sheet, Source, open_here
from .wire import receive, receive_sheet, send

logger = logging.getLogger(__name__)

LIMIT_S = 60.0  # for a page, and to open a document
# sys.path is handed over because programs change it. Nothing is imported before, for "" is on it with -c.
BOOT = "import sys; sys.path[:] = sys.argv[2:]; from mineru_edge.drawing_process import main; main()"
_OUT_OF_MEMORY = frozenset({"SIGABRT", "SIGTRAP", "SIGILL"})  # how PDFium ends itself when it gets none
_APART = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


class Drawer:
    """Opens one document at a time. `memory_bytes` is what drawing may take, `limit_s` how long one page may.

    Without `stays` the process ends after every page, which costs a fifth of a second and saves 40 MB until the next.
    `close` ends it, as do the end of this object and of the program that holds it.
    """

    def __init__(self, *, memory_bytes: int = DRAWING_MOST_BYTES, limit_s: float = LIMIT_S, stays: bool = True) -> None:
        self._memory_bytes, self._limit_s, self._stays = memory_bytes, limit_s, stays
        self._process: _Process | None = None

    def open(self, data: Path | bytes, name: str, *, own: bool = False, **options: Any) -> Source:
        """A document, see `intake.open_source`; `own` closes this drawer with it. InputError when it cannot be opened.
        EngineError when no process can be started."""
        if not _can_start():
            logger.warning("pages are drawn in this process, for there is no Python to start another with")
            return open_here(data, name, **options)
        try:
            return DrawnSource(self, data, name, options, own=own)
        except BaseException:
            if own:
                self.close()
            raise

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Of the process, when there is one."""
        return () if self._process is None else (self._process.popen.pid,)

    @property
    def is_fresh(self) -> bool:
        """Whether the next page would be the first of its process."""
        return self._process is None or not self._process.has_drawn

    def ask(self, message: dict[str, Any], body: bytes = b"") -> dict[str, Any] | Sheet:
        """One answer. InputError is the process's own; Lost when it gave none, and then it has been ended."""
        if self._process is None:
            self._process = _Process(self._memory_bytes)
        try:
            answer = self._process.ask(message, body, self._limit_s if "draw" in message else LIMIT_S)
            if self._process.has_drawn and not self._stays:
                self.close()
            return answer
        except InputError:
            raise
        except BaseException:  # an interrupt too: what is half said cannot be gone on with
            self.close()
            raise

    def close(self) -> None:
        """End the process; a later question starts another."""
        if self._process is not None:
            self._process.end()
            self._process = None


class Lost(Exception):
    """No answer, and why. `for_good` when a new process would do no better."""

    def __init__(self, reason: str, *, for_good: bool = False) -> None:
        super().__init__(reason)
        self.for_good = for_good


class DrawnSource:
    """A document that is open in the process of `drawer`, and opened anew after that had to be replaced."""

    def __init__(
        self, drawer: Drawer, data: Path | bytes, name: str, options: dict[str, Any], *, own: bool = False
    ) -> None:
        self._drawer, self._data, self._name, self._options, self._own = drawer, data, name, options, own
        try:
            self._open()
        except Lost as lost:
            raise InputError(f"{name} cannot be opened: {lost}", hint="the file is damaged or hostile") from lost

    @property
    def page_count(self) -> int:
        return self._page_count

    def sheets(self, numbers: Sequence[int]) -> Iterator[Sheet]:
        for number in numbers:
            yield self._sheet(number)

    def close(self) -> None:
        if self._own:
            self._drawer.close()
        elif self._drawer.process_ids:
            with contextlib.suppress(Lost):
                self._drawer.ask({"close": True})

    def _sheet(self, number: int) -> Sheet:
        while True:
            was_fresh = self._drawer.is_fresh
            try:
                if not self._drawer.process_ids and (trouble := self._opened_again()):
                    return Sheet(number, None, trouble)
                return cast(Sheet, self._drawer.ask({"draw": number}))
            except Lost as lost:
                if was_fresh or lost.for_good:  # else what came before may be to blame: a new process, once more
                    return Sheet(number, None, f"cannot be drawn: {lost}")
                logger.info("page %d is drawn again: %s", number, lost)

    def _opened_again(self) -> str | None:
        """Why that cannot be, for a file that has gone since the first time."""
        try:
            self._open()
        except InputError as error:
            return str(error)
        return None

    def _open(self) -> None:
        path, body = (None, self._data) if isinstance(self._data, bytes) else (str(self._data), b"")
        message = {"open": self._name, "path": path, "bytes": len(body), "options": self._options}
        answer = cast("dict[str, Any]", self._drawer.ask(message, body))
        self._page_count = int(answer["pages"])


class _Process:
    """One process and what has been said with it."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self.has_drawn = False
        self._has_answered = False
        command = [_python(), "-c", BOOT, str(memory_bytes), *map(str, sys.path)]
        try:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for its owner, which ends it
                creationflags=_APART,
            )
        except OSError as error:
            raise EngineError(f"no process to draw pages in: {error}", hint="free memory or processes") from error
        self.end = weakref.finalize(self, _end, self.popen)

    def ask(self, message: dict[str, Any], body: bytes, limit_s: float) -> dict[str, Any] | Sheet:
        late = threading.Event()
        watch = threading.Timer(limit_s, _kill, (self.popen, late))
        watch.daemon = True
        watch.start()
        stdin, stdout = cast("IO[bytes]", self.popen.stdin), cast("IO[bytes]", self.popen.stdout)
        try:
            send(stdin, {**message, "limit_s": limit_s})
            stdin.write(body)
            stdin.flush()
            return self._judge(receive(stdout), stdout)
        except (EOFError, OSError) as error:
            if late.is_set():
                raise Lost(f"it took longer than {limit_s:g} s", for_good=True) from error
            raise self._ended() from error
        except MemoryError as error:
            raise Lost("its picture needs more memory than this process has left") from error
        except (ValueError, TypeError, KeyError) as error:
            raise Lost(f"the drawing process talks nonsense: {error!r}") from error
        finally:
            watch.cancel()

    def _judge(self, answer: dict[str, Any], stdout: IO[bytes]) -> dict[str, Any] | Sheet:
        self._has_answered = True
        if "message" in answer:
            raise InputError(str(answer["message"]), hint=answer["hint"])
        if "lost" in answer:
            raise Lost(str(answer["lost"]))
        if "sheet" not in answer:
            return answer
        sheet = receive_sheet(stdout, answer["sheet"])
        self.has_drawn = True
        return sheet

    def _ended(self) -> Exception:
        """Why it did: its page's fault, or that of how Python is installed here."""
        code = self.popen.wait()
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            if name in _OUT_OF_MEMORY:
                return Lost(f"it needs more memory than the {megabytes(self._memory_bytes)} that it may take ({name})")
            return Lost(f"it crashed the drawing process ({name})")
        if code > 0 and not self._has_answered:
            return EngineError(
                f"the process to draw pages in does not start: exit code {code}",
                hint="run `python -m mineru_edge.drawing_process 0` to see why",
            )
        return Lost(f"the drawing process ended with exit code {code}")


def room_bytes(limit_bytes: int) -> int:
    """What drawing may take where no model is open, of what all processes may. BudgetError when it is too little."""
    own_bytes = kernel_bytes(STATUS, "VmRSS") or 0
    need_bytes = own_bytes + DRAWER_BYTES + DRAWING_BYTES
    if limit_bytes < need_bytes:
        raise BudgetError(need_bytes=need_bytes, limit_bytes=limit_bytes, hint="raise the memory limit")
    return min(DRAWING_MOST_BYTES, limit_bytes - own_bytes - DRAWER_BYTES)


def _kill(popen: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    popen.kill()


def _end(popen: subprocess.Popen[bytes]) -> None:
    popen.kill()
    popen.wait()
    for pipe in (popen.stdin, popen.stdout):
        with contextlib.suppress(OSError):  # something was still to be written
            cast("IO[bytes]", pipe).close()


def _python() -> str:
    """The interpreter for other processes; programs that embed Python name it by multiprocessing.set_executable."""
    return os.fsdecode(spawn.get_executable() or "")


def _can_start() -> bool:
    """Not so in a frozen program, whose executable is the program itself."""
    return bool(_python()) and not getattr(sys, "frozen", False)
