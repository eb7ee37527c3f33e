from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from mineru_edge.memory import MemoryWatch

STATUS = "Name:\tpython\nVmHWM:\t  {hwm} kB\nRssAnon:\t{anon} kB\nVmSwap:\t{swap} kB\n"


def test_the_peak_counts_what_was_swapped_out_and_stays(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(STATUS.format(hwm=900, anon=100, swap=50))
    watch = MemoryWatch(status=status, interval_s=0.001)
    with watch:
        status.write_text(STATUS.format(hwm=900, anon=30, swap=400))
        for _ in range(5000):  # until the thread has seen it
            if watch._peak_private_bytes == 430 * 1024:
                break
            time.sleep(0.001)
        status.write_text(STATUS.format(hwm=900, anon=20, swap=0))
    assert watch.peak().peak_private_bytes == 430 * 1024
    assert watch.peak().peak_rss_bytes == 900 * 1024


def test_other_processes_count_as_long_as_they_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mineru_edge.memory.PROC", tmp_path)
    status = tmp_path / "status"
    status.write_text(STATUS.format(hwm=900, anon=100, swap=0) + "VmRSS:\t 500 kB\n")
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(STATUS.format(hwm=700, anon=40, swap=2) + "VmRSS:\t 600 kB\n")
    others = [7, 8]  # 8 has ended
    watch = MemoryWatch(status=status, others=lambda: others)
    assert watch.peak().to_dict() == {"peak_private_bytes": 142 * 1024, "peak_rss_bytes": 1100 * 1024}
    others.clear()
    assert watch.peak().peak_private_bytes == 142 * 1024


def test_where_the_system_does_not_tell_both_are_unknown(tmp_path: Path) -> None:
    with MemoryWatch(status=tmp_path / "none") as watch:
        pass
    assert watch.peak().to_dict() == {"peak_private_bytes": None, "peak_rss_bytes": None}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_large_array_shows_in_the_peak_after_it_is_gone() -> None:
    watch = MemoryWatch()
    before = watch.peak().peak_private_bytes
    with watch:
        held = b"\x01" * 200_000_000  # more than the C library may have kept of what other tests freed
        watch.peak()
        del held
    after = watch.peak().peak_private_bytes
    assert before is not None
    assert after is not None
    assert after - before > 100_000_000


def test_a_watch_can_be_used_again(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(STATUS.format(hwm=1, anon=1, swap=0))
    watch = MemoryWatch(status=status)
    for _ in range(2):
        with watch:
            pass
    assert watch._thread is None
