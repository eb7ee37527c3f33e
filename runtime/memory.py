"""How much memory this process may still take: the machine's, or its cgroup's if that is less.

Every file read is an argument, so that a test can show another machine. Peak use is measured elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .threads import CGROUP_ROOT, SELF_CGROUP, cgroup_folders

MEMINFO = Path("/proc/meminfo")


def available_bytes(
    *, meminfo: Path = MEMINFO, cgroup_root: Path = CGROUP_ROOT, self_cgroup: Path = SELF_CGROUP
) -> int | None:
    """Bytes that can be had without pushing anything out but file cache; None when the system does not say."""
    rooms = []
    if (free_bytes := kernel_bytes(meminfo, "MemAvailable")) is not None:
        rooms.append(free_bytes)
    for folder in cgroup_folders("memory", cgroup_root=cgroup_root, self_cgroup=self_cgroup):
        limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
        if limit is None or used is None:
            continue
        stat = _fields(folder / "memory.stat")
        cache = stat.get("total_inactive_file", stat.get("inactive_file", 0))  # charged, but given back on demand
        rooms.append(max(0, limit - used + cache))
    return min(rooms, default=None)


class OwnMemory(NamedTuple):
    """What this process holds: resident pages with what is swapped out, and private address space."""

    resident_bytes: int
    data_bytes: int


def own_memory(status: Path) -> OwnMemory | None:
    """From /proc/self/status; None when the system does not tell."""
    resident, data = kernel_bytes(status, "VmRSS", "VmSwap"), kernel_bytes(status, "VmData")
    return None if resident is None or data is None else OwnMemory(resident, data)


def kernel_bytes(path: Path, *names: str) -> int | None:
    """The sum of "Name:  123 kB" lines of /proc/meminfo or /proc/PID/status; None when one is not there. The kernel's
    kB are 1024 bytes."""
    found = _fields(path)
    try:
        return sum(found[f"{name}:"] for name in names) * 1024
    except KeyError:
        return None


def _number(*candidates: Path) -> int | None:
    """The whole number in the first file that exists; None for "max", for no file, or for v1's "no limit"."""
    for path in candidates:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None


def _fields(path: Path) -> dict[str, int]:
    """Lines such as `MemAvailable:  123 kB` or `inactive_file 123`, by their first word."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines)
    return {found[0]: int(found[1]) for found in words if len(found) > 1 and found[1].isdigit()}
