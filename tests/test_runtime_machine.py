"""Threads and available memory, on machines made of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mineru_edge.runtime.memory import available_bytes
from mineru_edge.runtime.threads import cpu_quota, thread_count


def machine(folder: Path, self_cgroup: str, files: dict[str, str]) -> dict[str, Path]:
    root = folder / "cgroup"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (folder / "self").write_text(self_cgroup)
    return {"cgroup_root": root, "self_cgroup": folder / "self"}


V2 = "0::/system.slice/a.service\n"
V1 = "11:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n"
CPU_CASES = {
    "nothing": ("", {}, None),
    "v2 without a limit": (V2, {"system.slice/a.service/cpu.max": "max 100000\n"}, None),
    "v2": (V2, {"system.slice/a.service/cpu.max": "150000 100000\n"}, 1.5),
    "v2, an ancestor is tighter": (
        V2,
        {"system.slice/a.service/cpu.max": "400000 100000", "system.slice/cpu.max": "50000 100000"},
        0.5,
    ),
    "v2 in a container": ("0::/\n", {"cpu.max": "200000 100000"}, 2.0),
    "v2 in a container that shows the host's path": ("0::/../../x\n", {"cpu.max": "200000 100000"}, 2.0),
    "v1": (
        V1,
        {"cpu,cpuacct/docker/x/cpu.cfs_quota_us": "300000", "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000"},
        3.0,
    ),
    "v1 in a container": (V1, {"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, 2.5),
    "v1 without a limit": (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    "nonsense": (V2, {"cpu.max": "many few"}, None),
}


@pytest.mark.parametrize("case", CPU_CASES)
def test_the_quota(tmp_path: Path, case: str) -> None:
    self_cgroup, files, expected = CPU_CASES[case]
    assert cpu_quota(**machine(tmp_path, self_cgroup, files)) == expected


@pytest.mark.parametrize(
    ("affinity", "quota", "expected"),
    [(12, "200000", 2), (2, "800000", 2), (4, "150000", 2), (4, "140000", 1), (4, "10000", 1), (4, "max", 4)],
)
def test_threads_are_the_least_of_affinity_and_quota(tmp_path: Path, affinity: int, quota: str, expected: int) -> None:
    files = machine(tmp_path, "0::/\n", {"cpu.max": f"{quota} 100000"})
    assert thread_count(affinity=affinity, **files) == expected


def test_this_machine_has_a_thread() -> None:
    assert thread_count() >= 1


def test_memory_is_the_machines(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 4000 kB\nMemAvailable:    1000 kB\n")
    files = machine(tmp_path, "0::/\n", {"memory.max": "max", "memory.current": "5"})
    assert available_bytes(meminfo=tmp_path / "meminfo", **files) == 1_024_000


def test_memory_is_the_cgroups_if_that_is_less_and_cache_is_room(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable:    1000000 kB\n")
    files = machine(
        tmp_path,
        "0::/x\n",
        {"x/memory.max": "1000", "x/memory.current": "700", "x/memory.stat": "anon 1\ninactive_file 200\n"},
    )
    assert available_bytes(meminfo=tmp_path / "meminfo", **files) == 500


def test_memory_in_v1_and_its_way_of_saying_no_limit(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable:    1000000 kB\n")
    files = {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "5"}
    paths = machine(tmp_path, "3:memory:/\n", files)
    assert available_bytes(meminfo=tmp_path / "meminfo", **paths) == 1_024_000_000
    (paths["cgroup_root"] / "memory/memory.limit_in_bytes").write_text("1005")
    assert available_bytes(meminfo=tmp_path / "meminfo", **paths) == 1000


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert available_bytes(meminfo=tmp_path / "none", **machine(tmp_path, "", {})) is None
