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
    journal = Journal(path, KEY)
    for page in PAGES:
        journal.append(page)
    journal.close()
    return path.read_bytes()


def test_pages_come_back_as_they_were(tmp_path: Path) -> None:
    written(tmp_path / "x.jsonl")
    journal = Journal(tmp_path / "x.jsonl", KEY, resume=True)
    assert (journal.numbers, journal.whole, journal.page_count) == ((1, 2, 3), {1, 2}, 4)
    assert list(journal.pages([3, 1, 4])) == [PAGES[2], PAGES[0]]
    assert {type(value) for value in dataclasses.astuple(next(journal.pages([1])))} >= {int, tuple, float}


def test_any_length_gives_the_lines_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    data = written(path)
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        journal = Journal(path, KEY, resume=True)
        have = max(0, sum(end <= size for end in ends) - 1)
        assert journal.numbers == tuple(range(1, have + 1)), size
        for page in PAGES[have:]:
            journal.append(page)
        journal.close()
        assert path.read_bytes() == data


def test_a_page_read_again_counts_in_place_of_the_first(tmp_path: Path) -> None:
    written(tmp_path / "x.jsonl")
    journal = Journal(tmp_path / "x.jsonl", KEY, resume=True)
    mended = dataclasses.replace(PAGES[2], error=None)
    journal.append(mended)
    assert journal.whole == {1, 2, 3}
    assert list(journal.pages([3])) == [mended]
    journal.close()
    assert list(Journal(tmp_path / "x.jsonl", KEY, resume=True).pages([3])) == [mended]


def test_another_key_begins_anew_with_the_first_page(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    data = written(path)
    journal = Journal(path, {**KEY, "file": "4567"}, resume=True)
    assert journal.is_other
    assert journal.numbers == ()
    assert path.read_bytes() == data
    journal.append(PAGES[1])
    journal.close()
    assert Journal(path, {**KEY, "file": "4567"}, resume=True).numbers == (2,)


def test_without_room_nothing_is_lost_and_the_next_page_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.jsonl"
    journal = Journal(path, KEY)
    journal.append(PAGES[0])

    def no_room(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("os.fsync", no_room)
        with pytest.raises(SpaceError, match="No space left"):
            journal.append(dataclasses.replace(PAGES[1], error="x" * 1000))
    assert journal.numbers == (1,)
    journal.append(PAGES[1])
    assert list(journal.pages([1, 2])) == PAGES[:2]
    journal.close()
    assert Journal(path, KEY, resume=True).numbers == (1, 2)


def test_nothing_is_made_before_the_first_page(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "x.jsonl", KEY, resume=True)
    assert list(journal.pages([1])) == []
    journal.close()
    assert list(tmp_path.iterdir()) == []
