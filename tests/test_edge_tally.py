"""What a run says while it goes on and at its end."""

from __future__ import annotations

import pytest

from mineru_edge.document import LAYER, Answer, Block, Memory, Page
from mineru_edge.progress import Progress, duration
from mineru_edge.tally import Tally

BOX = (0.0, 0.0, 1.0, 1.0)


def page(*reasons: str, number: int = 1, error: str | None = None) -> Page:
    blocks = tuple(Block("text", BOX, content="x", answer=Answer(reason)) for reason in reasons)
    return Page(number, 9, blocks=blocks, error=error)


def lines(tally: Tally, memory: Memory = Memory()) -> list[str]:  # noqa: B008
    return list(tally.lines(seconds=1234.56, memory=memory))


def test_a_summary() -> None:
    tally = Tally()
    tally.files, tally.failed_files = 3, 1
    tally.add(page("stop", "stop", "length"))
    tally.add(page("stop", "deadline"), kept=True)
    tally.add(Page(3, 9, blocks=(Block("text", BOX, content="x", source=LAYER), Block("image", BOX))))
    broken = Block("table", BOX, answer=Answer("error", error="no memory"))
    tally.add(Page(4, 9, blocks=(broken, broken)))
    for number in (5, 6):
        tally.add(page(number=number, error="cannot be drawn"))
    assert lines(tally, Memory(12_345_678, 98_765_432)) == [
        "3 files (1 not read), 6 pages (1 from before), 1,234.6 s, peak memory 12.3 MB (98.8 MB resident)",
        "blocks: 3 stop, 2 error, 1 length, 1 deadline, 1 from layer",
        "failed in whole or in part: 3 pages",
        "  2 pages: cannot be drawn",
        "  1 page: no memory",
    ]


def test_a_summary_of_nothing() -> None:
    assert lines(Tally()) == ["0 files, 0 pages, 1,234.6 s"]


def test_many_reasons_are_not_all_told() -> None:
    tally = Tally()
    for number in range(1, 13):
        tally.add(page(number=number, error=f"reason {number} " + "x" * 500))
    found = lines(tally)
    assert len(found) == 2 + 10 + 1
    assert found[-1] == "  and 2 other reasons"
    assert max(map(len, found)) < 200


def test_the_time_left_is_that_of_pages_like_those_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    now = 0.0
    progress = Progress(3, clock=lambda: now)
    for file, wanted in (("a", 2), ("b", 4), ("c", 1)):
        progress.begin()
        for done in range(1, wanted + 1):
            now += 60
            progress.page(file, page("stop", number=done), done=done, wanted=wanted)
    shown = [line.split("in all")[1] for line in capsys.readouterr().err.splitlines()]
    assert shown == [
        ", about 5 min left",  # 1 page, and 2 files like this one of 2
        ", about 4 min left",
        ", about 6 min left",  # 3 pages, and 1 file of 3
        ", about 5 min left",
        ", about 4 min left",
        ", about 3 min left",
        "",
    ]


def test_no_terminal_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(1)
    progress.begin()
    progress.page("a", page("stop"), done=1, wanted=2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (119, "119 s"), (121, "2 min"), (7199, "2 h 0 min"), (90061, "25 h 1 min")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
