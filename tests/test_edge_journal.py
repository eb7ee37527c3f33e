"""The journal by itself: what it gives back after an end at any byte, and to the last bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mineru_edge.document import LAYER, Answer, Block, Page
from mineru_edge.journal import Journal
from mineru_edge.models.errors import SpaceError

KEY = {"file": "0123", "options": {"text": "auto"}}
ANSWER = Answer("stop", 10, 3, 16, 0.1, 0.2, 0.30000000000000004)
PAGES = [
    Page(
        number,
        4,
        10,
        20,
        (
            Block("text", (1 / 3, 0.1, 2 / 3, 0.2), 90, "\ud800 ü\n\x00", ANSWER, continues=True, source=LAYER),
            Block("image", (0, 0, 1, 1), image_path="images/x.jpg"),
        ),
        ANSWER,
        seconds=0.1 + 0.2,
        error=None if number < 3 else "broken",
        warnings=("a", "b"),
    )
    for number in (1, 2, 3)
]


def written(path: Path) -> bytes:
    with Journal(path, KEY) as journal:
        for page in PAGES:
            journal.append(page)
    return path.read_bytes()


def reopened(path: Path) -> Journal:
    """Closed already: its pages can still be read."""
    with Journal(path, KEY, resume=True) as journal:
        return journal


def test_pages_come_back_as_they_were(tmp_path: Path) -> None:
    written(tmp_path / "x.jsonl")
    journal = reopened(tmp_path / "x.jsonl")
    assert (journal.numbers, journal.whole, journal.page_count) == ((1, 2, 3), {1, 2}, 4)
    assert list(journal.pages([3, 1, 4])) == [PAGES[2], PAGES[0]]


def test_any_length_gives_the_lines_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    data = written(path)
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        have = max(0, sum(end <= size for end in ends) - 1)
        with Journal(path, KEY, resume=True) as journal:
            assert journal.numbers == tuple(range(1, have + 1)), size
            if have == len(PAGES) or size % 97:
                continue
            for page in PAGES[have:]:
                journal.append(page)
        assert path.read_bytes() == data


def test_a_page_read_again_counts_in_place_of_the_first(tmp_path: Path) -> None:
    written(tmp_path / "x.jsonl")
    mended = dataclasses.replace(PAGES[2], error=None)
    with Journal(tmp_path / "x.jsonl", KEY, resume=True) as journal:
        journal.append(mended)
        assert journal.whole == {1, 2, 3}
        assert list(journal.pages([3])) == [mended]
    assert list(reopened(tmp_path / "x.jsonl").pages([3])) == [mended]


def test_another_key_begins_anew_with_the_first_page(tmp_path: Path) -> None:
    path, other = tmp_path / "x.jsonl", {**KEY, "file": "4567"}
    data = written(path)
    with Journal(path, other, resume=True) as journal:
        assert journal.is_other
        assert journal.numbers == ()
        assert path.read_bytes() == data
        journal.append(PAGES[1])
    with Journal(path, other, resume=True) as journal:
        assert journal.numbers == (2,)


def test_without_room_nothing_is_lost_and_the_next_page_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: int) -> None:
        raise OSError(28, "No space left on device")

    with Journal(tmp_path / "x.jsonl", KEY) as journal:
        journal.append(PAGES[0])
        with monkeypatch.context() as full:
            full.setattr("os.fsync", no_room)
            with pytest.raises(SpaceError, match="No space left"):
                journal.append(dataclasses.replace(PAGES[1], error="x" * 1000))
        assert journal.numbers == (1,)
        journal.append(PAGES[1])
        assert list(journal.pages([1, 2])) == PAGES[:2]
    assert reopened(tmp_path / "x.jsonl").numbers == (1, 2)


@pytest.mark.parametrize("resume", [False, True])
def test_two_runs_do_not_write_one_journal(tmp_path: Path, resume: bool) -> None:
    path = tmp_path / "x.jsonl"
    with Journal(path, KEY) as first:
        first.append(PAGES[0])
        with pytest.raises(SpaceError, match="another run"):
            Journal(path, KEY, resume=resume).append(PAGES[1])
        first.append(PAGES[1])
    assert reopened(path).numbers == (1, 2)


def test_a_journal_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").mkdir()
    with pytest.raises(SpaceError, match="Is a directory"):
        Journal(tmp_path / "x.jsonl", KEY, resume=True)


def test_nothing_is_made_before_the_first_page(tmp_path: Path) -> None:
    with Journal(tmp_path / "deep" / "x.jsonl", KEY, resume=True) as journal:
        assert list(journal.pages([1])) == []
    assert list(tmp_path.iterdir()) == []
