"""Weights mapped from files: found in the map of this process, dropped, and back with the same bytes."""

from __future__ import annotations

import mmap
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mineru_edge.runtime import mapped
from mineru_edge.runtime.mapped import Mapped, Range, can_drop, mapped_ranges

SIZE = 64 * mmap.PAGESIZE

needs_linux = pytest.mark.skipif(not can_drop(), reason="this system does not tell where files are mapped")


def smaps(file: Path) -> str:
    """Two clean mappings of `file`, one that was written to, one of no file, one of another."""
    heads = [
        (f"1000-3000 r--p 00000000 fe:00 12 {file}", 0),
        (f"5000-6000 rw-p 00002000 fe:00 12                     {file}", 0),
        (f"7000-9000 rw-p 00004000 fe:00 12 {file}", 4),
        ("a000-b000 rw-p 00000000 00:00 0 ", 4),
        (f"b000-c000 r--p 00000000 fe:00 13 {file}.other", 0),
    ]
    return "".join(f"{head}\nSize: 8 kB\nAnonymous:             {kb} kB\nVmFlags: rd mr\n" for head, kb in heads)


def test_clean_mappings_of_the_file_are_found(tmp_path: Path) -> None:
    file = tmp_path / "with a space.data"
    file.write_bytes(b"x")
    (tmp_path / "smaps").write_text(smaps(file))
    found = mapped_ranges(file, smaps=tmp_path / "smaps")
    assert found == (Range(0x1000, 0x2000), Range(0x5000, 0x1000))
    assert mapped_ranges(file, smaps=tmp_path / "none") == ()


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[tuple[Path, mmap.mmap]]:
    file = tmp_path / "weights.data"
    file.write_bytes(bytes(range(256)) * (SIZE // 256))
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) as pages:
        assert len(bytes(pages)) == SIZE  # touches every page
        yield file, pages


def resident(file: Path) -> int:
    """kB of the file's pages in this process."""
    text = Path("/proc/self/smaps").read_text()
    return sum(int(kb) for kb in re.findall(rf"{re.escape(str(file))}\n(?:.*\n)*?Rss:\s+(\d+) kB", text))


@needs_linux
def test_dropped_pages_are_gone_and_come_back_the_same(pages: tuple[Path, mmap.mmap]) -> None:
    file, memory = pages
    before = bytes(memory)
    assert resident(file) == SIZE // 1024
    Mapped(file).drop()
    assert resident(file) == 0
    assert bytes(memory) == before


@needs_linux
def test_changed_pages_are_never_dropped(pages: tuple[Path, mmap.mmap]) -> None:
    file, memory = pages
    memory[5000] = 99
    Mapped(file).drop()
    assert memory[5000] == 99


@needs_linux
def test_swept_drops_while_the_body_runs_and_at_its_end(
    pages: tuple[Path, mmap.mmap], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, memory = pages
    monkeypatch.setattr(mapped, "SWEEP_S", 0.001)
    seen = threading.Event()
    weights = Mapped(file)
    drop = weights.drop
    monkeypatch.setattr(weights, "drop", lambda: (drop(), seen.set()))

    def work() -> None:
        with weights.swept():
            assert seen.wait(10)
            assert bytes(memory)  # touched again
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert resident(file) == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "mineru-edge sweep"]


def test_a_file_that_is_not_mapped_is_no_trouble(tmp_path: Path) -> None:
    weights = Mapped(tmp_path / "none")
    weights.drop()
    with weights.swept():
        pass
