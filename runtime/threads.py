"""How many threads to compute with: what the scheduler and the cgroup allow, not what the machine has.

Every file read is an argument, so that a test can show another machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
SELF_CGROUP = Path("/proc/self/cgroup")
CPUINFO = Path("/proc/cpuinfo")


def thread_count(
    *, affinity: int | None = None, cgroup_root: Path = CGROUP_ROOT, self_cgroup: Path = SELF_CGROUP
) -> int:
    """min(affinity, quota), at least 1. A quota of 1.5 processors counts as 2, one of 1.4 as 1."""
    cpus = affinity if affinity is not None else cpu_count()
    quota = cpu_quota(cgroup_root=cgroup_root, self_cgroup=self_cgroup)
    return max(1, cpus if quota is None else min(cpus, int(quota + 0.5)))


def cpu_quota(*, cgroup_root: Path = CGROUP_ROOT, self_cgroup: Path = SELF_CGROUP) -> float | None:
    """Processors that the cgroup of this process may use, the tightest of its ancestors; None without a limit."""
    quotas = []
    for folder in cgroup_folders("cpu", cgroup_root=cgroup_root, self_cgroup=self_cgroup):
        quota, _, period = _text(folder / "cpu.max").partition(" ")  # v2: "150000 100000" or "max 100000"
        quota = quota or _text(folder / "cpu.cfs_quota_us")  # v1: -1 for none
        period = period or _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(quota) and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def cgroup_folders(
    controller: str, *, cgroup_root: Path = CGROUP_ROOT, self_cgroup: Path = SELF_CGROUP
) -> Iterator[Path]:
    """The folders of this process's cgroup and its ancestors, v1 and v2, that may hold files of `controller`.

    Inside a container the path in /proc/self/cgroup may be the host's and not exist here; then the root alone speaks.
    """
    for line in _text(self_cgroup).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            tops = [cgroup_root, cgroup_root / "unified"]
        elif controller in controllers.split(","):
            tops = [cgroup_root / controllers, cgroup_root / controller]
        else:
            continue
        parts = Path(path.lstrip("/")).parts
        for top in tops:
            if ".." not in parts:
                yield from (top.joinpath(*parts[:depth]) for depth in range(len(parts), 0, -1))
            yield top


def cpu_field(cpuinfo: Path, *names: str) -> str:
    """The first "name : value" line of /proc/cpuinfo under one of `names`, which differ between x86 and ARM; "" without
    one."""
    found = re.search(rf"^(?:{'|'.join(names)})\s*:\s*(.+)$", _text(cpuinfo), re.MULTILINE)
    return found[1].strip() if found else ""


def cpu_count() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
