"""Long jobs with a scripted engine: going on after a kill, an interrupt, a failure; what is kept and what is told."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import Bench, FakeEngine, layout, result
from job_results import results
from small_pdf import LINE, pdf

from mineru_edge import reader as reader_module
from mineru_edge.cli import main
from mineru_edge.runtime.request import FinishReason, Request

PAGE = layout(("title", (100, 10, 900, 60)), ("text", (100, 100, 900, 200)), ("image", (100, 300, 900, 600)))
ALL = "md,html,text,content_list,result"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.pdf"
    path.write_bytes(pdf(*[LINE] * 4))
    return path


def engine(pages: int = 4, answer: Callable[[Request], str] = lambda _: "words") -> FakeEngine:
    return FakeEngine([PAGE] * pages, answer)


def pages_read(engine: FakeEngine) -> int:
    return sum("Layout" in request.prompt for request in engine.submitted)


def test_a_resumed_run_reads_what_is_missing(bench: Bench, book: Path, tmp_path: Path) -> None:
    assert bench.parse(engine(), book, "-o", tmp_path / "whole", "--format", ALL) == 0
    assert bench.parse(engine(2), book, "-o", tmp_path / "out", "--pages", "2-3") == 0
    rest = engine(2)
    assert bench.parse(rest, book, "-o", tmp_path / "out", "--format", ALL, "--resume") == 0
    assert pages_read(rest) == 2
    assert results(tmp_path / "out") == results(tmp_path / "whole")
    again = engine(0)
    assert bench.parse(again, book, "-o", tmp_path / "out", "--format", ALL, "--resume") == 0
    assert pages_read(again) == 0
    assert results(tmp_path / "out") == results(tmp_path / "whole")


def test_without_resume_all_is_read_again(bench: Bench, book: Path, tmp_path: Path) -> None:
    for answer in ("one", "two"):
        again = engine(answer=lambda _, answer=answer: answer)
        assert bench.parse(again, book, "-o", tmp_path / "out") == 0
        assert pages_read(again) == 4
        assert answer in (tmp_path / "out" / "book.md").read_text()


def test_another_file_or_option_is_read_anew(
    bench: Bench, book: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert bench.parse(engine(), book, "-o", out) == 0
    other = engine()
    assert bench.parse(other, book, "-o", out, "--resume", "--text", "model") == 0
    assert pages_read(other) == 4
    assert "book.pdf: it was read with another file, bundle, version or option before" in capfd.readouterr().err
    same = engine(0)
    assert bench.parse(same, book, "-o", out, "--resume", "--text", "model", "--slots", "1", "--threads", "1") == 0
    book.write_bytes(pdf(*[LINE] * 5))
    longer = engine(5)
    assert bench.parse(longer, book, "-o", out, "--resume", "--text", "model") == 0
    assert pages_read(longer) == 5


def test_a_journal_cut_within_a_line_gives_the_same(bench: Bench, book: Path, tmp_path: Path) -> None:
    out, journal = tmp_path / "out", tmp_path / "out" / ".mineru-edge" / "book.jsonl"
    assert bench.parse(engine(), book, "-o", out) == 0
    whole, data = results(out), journal.read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    assert len(ends) == 5  # a head and four pages
    for size, left in ((0, 4), (ends[0] - 1, 4), (ends[2] + 40, 2), (ends[4] - 1, 1)):
        journal.write_bytes(data[:size])
        again = engine(left)
        assert bench.parse(again, book, "-o", out, "--resume") == 0
        assert pages_read(again) == left
        assert results(out) == whole


@pytest.mark.parametrize("damage", [b'{"format": 2}\n', b"\0\0\0\n", b'{"number": 1}\n'])
def test_a_strange_line_ends_what_can_be_used(bench: Bench, book: Path, tmp_path: Path, damage: bytes) -> None:
    out, journal = tmp_path / "out", tmp_path / "out" / ".mineru-edge" / "book.jsonl"
    assert bench.parse(engine(), book, "-o", out) == 0
    whole, lines = results(out), journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], damage, *lines[3:]]))
    again = engine(2)
    assert bench.parse(again, book, "-o", out, "--resume") == 0
    assert pages_read(again) == 2
    assert results(out) == whole


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a child that kills itself needs fork")
def test_a_kill_at_every_write_gives_the_same(
    bench: Bench, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process kills itself at the first, second, ... call that makes something lasting."""
    assert bench.parse(engine(), book, "-o", tmp_path / "whole") == 0
    whole = results(tmp_path / "whole")
    for moment in range(1, 100):
        out = tmp_path / f"out{moment}"
        with warnings.catch_warnings():  # from 3.12 on Python warns of threads, which the child has no use for
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            _kill_at(moment, monkeypatch)
            bench.parse(engine(), book, "-o", out)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert bench.parse(engine(), book, "-o", out, "--resume") == 0
        assert results(out) == whole, moment
    assert moment - 1 == 4 * 3 + 3 * 2  # a picture (two calls) and a line for each page, then three files


def _kill_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(do: Callable[..., object]) -> Callable[..., object]:
        def maybe(*arguments: object) -> object:
            nonlocal calls
            calls += 1
            if calls == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return do(*arguments)

        return maybe

    monkeypatch.setattr("os.fsync", counted(os.fsync))
    monkeypatch.setattr("os.replace", counted(os.replace))


def test_a_page_that_failed_is_tried_again(
    bench: Bench, book: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    failing = FakeEngine([PAGE, result("", FinishReason.error, error="no luck"), PAGE, PAGE], lambda _: "words")
    assert bench.parse(failing, book, "-o", out) == 10
    assert "page 2 could not be read" in (out / "book.md").read_text()
    assert capfd.readouterr().err.splitlines()[-2:] == [
        "failed in whole or in part: 1 page",
        "  1 page: its blocks could not be found: no luck",
    ]
    again = engine(1)
    assert bench.parse(again, book, "-o", out, "--resume") == 0
    assert pages_read(again) == 1
    assert "could not be read" not in (out / "book.md").read_text()
    assert "1 file, 4 pages (3 from before)" in capfd.readouterr().err


def test_an_interrupt_keeps_the_pages_read(
    bench: Bench, book: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    asked = 0

    def interrupted(_: Request) -> str:
        nonlocal asked
        asked += 1
        if asked == 6:  # two for each page
            raise KeyboardInterrupt
        return "words"

    assert bench.parse(engine(answer=interrupted), book, book, "-o", out) == 130
    assert capfd.readouterr().err.splitlines()[-1] == "interrupted"
    pages = json.loads((out / "book_result.json").read_text())["pages"]
    assert [page["number"] for page in pages] == [1, 2]
    assert (out / "book.md").read_text().count("# words") == 2
    assert not (out / "book-2.md").exists()
    rest = engine(2)
    assert bench.parse(rest, book, "-o", out, "--resume") == 0
    assert pages_read(rest) == 2


def test_an_interrupt_within_a_write_waits_for_its_end(
    bench: Bench, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, fsync, calls = tmp_path / "out", os.fsync, 0

    def interrupting(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:  # picture, page, and now the picture of page 2
            os.kill(os.getpid(), signal.SIGINT)
        fsync(handle)

    monkeypatch.setattr("os.fsync", interrupting)
    before = signal.getsignal(signal.SIGINT)
    assert bench.parse(engine(), book, "-o", out) == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert [page["number"] for page in json.loads((out / "book_result.json").read_text())["pages"]] == [1, 2]
    assert len(list((out / "images").iterdir())) == 2
    assert not list(out.rglob("*.part"))


def test_an_interrupt_while_the_model_is_opened_waits_and_closes_it(
    bench: Bench, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = engine()

    def opening(*_: object, **options: object) -> FakeEngine:
        os.kill(os.getpid(), signal.SIGINT)
        return opened

    monkeypatch.setattr(reader_module, "_open_engine", opening)
    assert main(["parse", "--bundle", str(bench.bundle), str(book), "-o", str(tmp_path / "out")]) == 130
    assert opened.closed == 1
    assert not (tmp_path / "out").exists()


def test_every_page_is_on_disk_before_the_next_is_asked_for(bench: Bench, book: Path, tmp_path: Path) -> None:
    journal = tmp_path / "out" / ".mineru-edge" / "book.jsonl"
    seen: list[int] = []

    def answer(_: Request) -> str:
        seen.append(len(journal.read_bytes().splitlines()) - 1 if journal.exists() else 0)
        return "words"

    assert bench.parse(engine(answer=answer), book, "-o", tmp_path / "out") == 0
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]


def test_overlays_of_pages_kept_are_drawn_when_they_are_not_there(bench: Bench, book: Path, tmp_path: Path) -> None:
    out, shown = tmp_path / "out", tmp_path / "shown"
    assert bench.parse(engine(), book, "-o", out) == 0
    assert bench.parse(engine(0), book, "-o", out, "--resume", "--overlay", shown) == 0
    assert sorted(path.name for path in shown.iterdir()) == [f"book_page_{number}.png" for number in (1, 2, 3, 4)]


def test_what_pages_share_is_warned_of_once_and_resumed_alike(
    bench: Bench, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "font.pdf", tmp_path / "out"
    font = "/Resources << /Font << /F1 << /Type /Font /Subtype /TrueType /BaseFont /MadeUpGothic >> >> >>"
    path.write_bytes(pdf(LINE, LINE, extra=font))
    assert bench.parse(engine(2), path, "-o", tmp_path / "whole") == 0
    assert capfd.readouterr().err.count("MadeUpGothic") == 1
    assert bench.parse(engine(1), path, "-o", out, "--pages", "1") == 0
    assert bench.parse(engine(1), path, "-o", out, "--resume") == 0
    assert results(out) == results(tmp_path / "whole")


def test_folders_keep_their_shape(bench: Bench, book: Path, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for place in ("a.pdf", "deep/a.pdf"):
        (tmp_path / "in" / place).write_bytes(pdf(LINE))
    (tmp_path / "in" / "deep" / "bad.pdf").write_bytes(b"%PDF-1.7\n")
    assert bench.parse(engine(2), tmp_path / "in", "-o", tmp_path / "out", "--format", "md") == 10
    assert sorted(results(tmp_path / "out")) == [
        "a.md", "deep/a.md", "deep/images/a_p0001_003.jpg", "images/a_p0001_003.jpg",
    ]  # fmt: skip
    assert "![image](images/a_p0001_003.jpg)" in (tmp_path / "out" / "deep" / "a.md").read_text()


@pytest.mark.parametrize(
    "options",
    [
        ["--resume"],
        ["--format", "md,html"],
        ["--format", "docx", "-o", "out"],
        ["--format", "md", "--json"],
        ["--page-deadline", "0"],
    ],
)
def test_options_that_do_not_go_together_are_usage_errors(
    book: Path, options: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["parse", str(book), *options]) == 2
    assert "Error: " in capfd.readouterr().err
    assert main(["parse", str(book), str(book), "--format", "html"]) == 2
