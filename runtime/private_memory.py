"""How far the private memory of this process may grow, and when it shrinks again, where the system lets us say so."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

from .memory import kernel_bytes

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

STATUS = Path("/proc/self/status")
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK_BYTES = 1_000_000


def limit_data(more_bytes: int) -> tuple[int, int] | None:
    """Allow `more_bytes` of private address space, mappings of files included, beside what there is now (RLIMIT_DATA).

    Gives the limits that were there before, for `restore_data`; None when the system has no such limit, or a tighter
    one is in force already.
    """
    now = kernel_bytes(STATUS, "VmData")
    if resource is None or now is None:
        return None
    before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = now + more_bytes
    if before[0] not in (resource.RLIM_INFINITY, -1) and before[0] <= wanted:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, before[1]))
    except (ValueError, OSError) as error:
        logger.info("the memory limit is planned for but not enforced: %s", error)
        return None
    return before


def restore_data(before: tuple[int, int]) -> None:
    """Undo `limit_data`."""
    resource.setrlimit(resource.RLIMIT_DATA, before)


def give_large_blocks_back() -> None:
    """Let glibc return blocks above 1 MB to the system when freed. With its own moving threshold it kept 1 GB after a
    page in an engine without arena, and 40 MB after one in the drawing process; other C libraries have no such call."""
    try:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    except (OSError, TypeError):  # Windows
        return
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
