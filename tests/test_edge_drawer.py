"""A page that takes its process down costs itself; nothing outlives its owner."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile_pages
import pytest
from small_pdf import LINE, pdf

from mineru_edge import drawer as drawers
from mineru_edge.drawer import Drawer, room_bytes
from mineru_edge.intake import Sheet, open_here
from mineru_edge.models.errors import BudgetError, EngineError, InputError

THREE = pdf(LINE, LINE, LINE)
posix = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA and /proc are Linux's")


@contextlib.contextmanager
def closing(drawer: Drawer) -> Iterator[Drawer]:
    try:
        yield drawer
    finally:
        drawer.close()


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawers, "BOOT", hostile_pages.BOOT)


def three(name: str, **options: Any) -> tuple[list[Sheet], list[tuple[int, ...]]]:
    """The pages of a document in which the second misbehaves, and the processes after each."""
    found, processes = [], []
    with closing(Drawer(**options)) as drawer:
        source = drawer.open(THREE, name)
        for sheet in source.sheets([1, 2, 3]):
            found.append(sheet)
            processes.append(drawer.process_ids)
        source.close()
    return found, processes


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(
    ("way", "words"),
    [
        pytest.param("kill", "it crashed the drawing process (SIGKILL)", marks=posix),
        pytest.param("segv", "it crashed the drawing process (SIGSEGV)", marks=posix),
        ("hang", "it took longer than 1.5 s"),
        ("spin", "it took longer than 1.5 s"),
        pytest.param("eat", "it needs more memory than it may take", marks=linux),
        ("raise", "IndexError('list index out of range')"),
        pytest.param("nonsense", "the drawing process talks nonsense", marks=posix),
    ],
)
def test_a_page_that_misbehaves_costs_itself(way: str, words: str) -> None:
    found, _ = three(f"{way}.pdf", memory_bytes=200_000_000, limit_s=1.5)
    assert [sheet.number for sheet in found] == [1, 2, 3]
    assert [sheet.image is not None for sheet in found] == [True, False, True]
    assert (found[1].error or "").startswith(f"cannot be drawn: {words}")


@pytest.mark.usefixtures("hostile")
def test_what_libraries_print_is_not_in_the_way() -> None:
    found, processes = three("print.pdf")
    assert all(sheet.image is not None for sheet in found)
    assert len(set(processes)) == 1


def test_pages_are_those_drawn_here() -> None:
    data = pdf(LINE, "", LINE, box="0 0 612 792", extra=["", "/Rotate 90", "/UserUnit 2"])
    with closing(Drawer()) as drawer:
        for text in ("model", "auto", "layer"):
            here, there = open_here(data, "x.pdf", text=text), drawer.open(data, "x.pdf", text=text)
            for mine, its in zip(here.sheets([1, 2, 3]), there.sheets([1, 2, 3]), strict=True):
                assert (mine.image and mine.image.tobytes()) == (its.image and its.image.tobytes())
                assert (mine.image and mine.image.size) == (its.image and its.image.size)
                assert mine.glyphs == its.glyphs
            here.close()
            there.close()


def test_one_process_serves_all_pages_and_documents(tmp_path: Path) -> None:
    path = tmp_path / "größe \udcff.pdf" if sys.platform == "linux" else tmp_path / "größe.pdf"
    path.write_bytes(THREE)
    with closing(Drawer()) as drawer:
        seen = set()
        for data in (THREE, path, THREE):
            source = drawer.open(data, "x.pdf")
            for sheet in source.sheets([1, 2, 3]):
                assert sheet.image is not None
                seen.add(drawer.process_ids)
            source.close()
        assert len(seen) == 1


@posix
def test_a_page_whose_process_was_killed_from_outside_is_drawn_by_the_next() -> None:
    with closing(Drawer()) as drawer:
        source = drawer.open(THREE, "x.pdf")
        first, (before,) = next(source.sheets([1])), drawer.process_ids
        os.kill(before, signal.SIGKILL)
        second = next(source.sheets([2]))
        assert first.image is not None
        assert second.image is not None
        assert drawer.process_ids != (before,)


def test_where_memory_is_short_the_process_ends_after_every_page() -> None:
    found, processes = three("x.pdf", stays=False)
    assert all(sheet.image is not None for sheet in found)
    assert processes == [()] * 3


def test_errors_of_the_file_are_the_users(tmp_path: Path) -> None:
    with closing(Drawer()) as drawer:
        with pytest.raises(InputError, match=r"x\.pdf is not a PDF that can be read") as caught:
            drawer.open(b"%PDF-1.7\n", "x.pdf")
        assert caught.value.hint
        assert drawer.open(THREE, "x.pdf").page_count == 3


@posix
def test_a_file_that_cannot_be_opened_without_a_crash_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    boot = "import os, sys; os.kill(os.getpid(), 9)"
    monkeypatch.setattr(drawers, "BOOT", boot)
    with closing(Drawer()) as drawer, pytest.raises(InputError, match=r"x\.pdf cannot be opened: .*SIGKILL"):
        drawer.open(THREE, "x.pdf")


def test_a_process_that_cannot_start_is_no_fault_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawers, "BOOT", "raise SystemExit(3)")
    with closing(Drawer()) as drawer, pytest.raises(EngineError, match="does not start: exit code 3"):
        drawer.open(THREE, "x.pdf")
    monkeypatch.setattr(drawers, "_python", lambda: "no-such-python")
    with pytest.raises(EngineError, match="no process to draw pages in"):
        drawer.open(THREE, "x.pdf")


@posix
def test_a_file_that_has_gone_costs_the_pages_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(THREE)
    with closing(Drawer()) as drawer:
        source = drawer.open(path, "x.pdf")
        assert next(source.sheets([1])).image is not None
        os.kill(drawer.process_ids[0], signal.SIGKILL)
        path.unlink()
        (sheet,) = source.sheets([2])
        assert sheet.image is None
        assert "x.pdf cannot be read" in (sheet.error or "")


def test_no_memory_for_a_picture_costs_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    receive_sheet = drawers.receive_sheet

    def short(stream: Any, message: dict[str, Any]) -> Sheet:
        if message["number"] == 2:
            raise MemoryError
        return receive_sheet(stream, message)

    monkeypatch.setattr(drawers, "receive_sheet", short)
    found, _ = three("x.pdf")
    assert [sheet.image is not None for sheet in found] == [True, False, True]
    assert "more memory than this process has left" in (found[1].error or "")


def test_a_frozen_program_draws_in_itself(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    drawer = Drawer()
    source = drawer.open(THREE, "x.pdf")
    assert next(source.sheets([3])).image is not None
    assert drawer.process_ids == ()
    assert "drawn in this process" in caplog.text
    source.close()


def test_a_limit_without_room_for_a_page_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"memory limit is 100\.0 MB"):
        room_bytes(100_000_000)
    assert room_bytes(100_000_000_000) == drawers.DRAWING_MOST_BYTES


OWNER = """
import os, signal, sys
from mineru_edge.drawer import Drawer
drawer = Drawer()
source = drawer.open(open(sys.argv[1], "rb").read(), "x.pdf")
next(source.sheets([1]))
print(drawer.process_ids[0], flush=True)
{end}
"""


def is_there(process: int) -> bool:
    """Whether it runs; one that has ended and was not yet asked for its code does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ends(process: int) -> bool:
    """Whether it ends soon."""
    end_of_wait = time.monotonic() + 20
    while is_there(process) and time.monotonic() < end_of_wait:
        time.sleep(0.02)
    return not is_there(process)


@linux
@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGINT)",
        "sys.exit()",
        "os._exit(0)",
        "drawer.close(); input()",
        "del drawer, source; input()",
    ],
)
def test_the_process_ends_with_its_owner(tmp_path: Path, end: str) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(THREE)
    code = OWNER.format(end=end)
    command = [sys.executable, "-c", code, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as owner:
        assert owner.stdout is not None
        ended = ends(int(owner.stdout.readline()))
    assert ended


@linux
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_owner_in_the_middle_of_a_page(tmp_path: Path, end: signal.Signals) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(THREE)
    later = f"import threading; threading.Timer(0.3, os.kill, (os.getpid(), {int(end)})).start()"
    code = OWNER.format(end=f"{later}; next(source.sheets([2]))").replace('"x.pdf"', '"spin.pdf"')
    hostile = f"sys.path.insert(0, {str(Path(__file__).parent)!r}); drawers.BOOT = {hostile_pages.BOOT!r}"
    code = f"import sys; from mineru_edge import drawer as drawers; {hostile}\n{code}"
    owner = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert owner.returncode == -end, owner.stderr
    assert ends(int(owner.stdout))


SCRIPT = """
import sys
from mineru_edge.intake import open_source
print("once", flush=True)
source = open_source(sys.argv[1])
print([sheet.image.size for sheet in source.sheets([1, 2])])
source.close()
"""


def test_a_program_without_a_main_guard_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "x.pdf").write_bytes(THREE)
    (tmp_path / "json.py").write_text("raise SystemExit('the json.py of the folder was taken')")
    script = tmp_path / "scripts" / "read.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), "x.pdf"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.stdout.splitlines() == ["once", "[(556, 556), (556, 556)]"], done.stderr
