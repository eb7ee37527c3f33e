"""Every error a user can meet, with the exit code of the command line.

    MineruEdgeError    1   base: catch this one
    |- InputError      3   a file the user gave cannot be read
    |- BundleError     4   the bundle is missing, damaged, or of another format
    |- BudgetError     5   the plan does not fit the memory limit
    |- CheckpointError 6   the checkpoint given to `export` or `verify` cannot be used
    |- ParityError     7   `verify` missed a threshold
    |- EngineError     8   the inference engine is missing or failed
    |- SpaceError      9   the output cannot be written
    `- PartialError   10   some pages failed, the others were written

Click's usage errors exit with 2, an interrupt with 130. An `assert` marks a mistake of ours, never of a user.
"""

from __future__ import annotations

OK = 0
USAGE = 2
PARTIAL = 10
INTERRUPT = 130


class MineruEdgeError(Exception):
    """What happened, with numbers, and `hint`: what to do about it. `str()` gives both."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}; {hint}")
        self.message = message
        self.hint = hint


class InputError(MineruEdgeError):
    """A file the user gave: not there, not a document, damaged, encrypted, or a page that it does not have."""

    exit_code = 3


class BundleError(MineruEdgeError):
    """The bundle: not there, unfinished, damaged, or written in a format this version does not read."""

    exit_code = 4


class BudgetError(MineruEdgeError):
    """The plan needs `need_bytes` and may take `limit_bytes`."""

    exit_code = 5

    def __init__(self, *, need_bytes: int, limit_bytes: int, hint: str) -> None:
        super().__init__(f"needs {megabytes(need_bytes)}, but the memory limit is {megabytes(limit_bytes)}", hint=hint)
        self.need_bytes = need_bytes
        self.limit_bytes = limit_bytes


class CheckpointError(MineruEdgeError):
    """The export input: not a checkpoint, another architecture, a tensor or a layout token missing."""

    exit_code = 6


class ParityError(MineruEdgeError):
    """The exported model differs from the reference by more than a threshold allows."""

    exit_code = 7


class EngineError(MineruEdgeError):
    """The inference engine is not installed, or failed outside a single request."""

    exit_code = 8


class SpaceError(MineruEdgeError):
    """No space left, or the place to write to cannot be written."""

    exit_code = 9


class PartialError(MineruEdgeError):
    """Some pages failed; what the others gave has been written."""

    exit_code = PARTIAL


def megabytes(count: int) -> str:
    """`count` bytes for a reader: "812.4 MB". 1 MB is 1,000,000 bytes, as disks and `--memory-limit` have it."""
    return f"{count / 1_000_000:,.1f} MB"
