from __future__ import annotations

import os
from pathlib import Path

import pytest

from mineru_edge.sources import gather


def made(top: Path, *names: str) -> Path:
    for name in names:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return top


def shown(top: Path, *outputs: Path) -> list[tuple[str, str]]:
    return [(Path(work.path).relative_to(top).as_posix(), work.name) for work in gather([str(top)], outputs=outputs)]


def test_names_never_meet() -> None:
    works = gather(["a/x.pdf", "x.png", "x-2.pdf", "X.tif", "-", ".pdf"], outputs=[])
    assert [work.path for work in works] == ["a/x.pdf", "x.png", "x-2.pdf", "X.tif", "-", ".pdf"]
    assert [work.name for work in works] == ["x", "x-2", "x-2-2", "X-3", "stdin", ".pdf"]


def test_a_folder_is_all_documents_in_it_and_below(tmp_path: Path) -> None:
    made(tmp_path, "b.pdf", "a.JPG", "notes.txt", ".hidden.pdf", "deep/er/c.tiff", ".git/d.pdf", "deep/b.pdf")
    assert shown(tmp_path) == [
        ("a.JPG", "a"), ("b.pdf", "b"), ("deep/b.pdf", "deep/b"), ("deep/er/c.tiff", "deep/er/c"),
    ]  # fmt: skip


def test_documents_of_one_stem_in_a_folder_get_numbers(tmp_path: Path) -> None:
    assert shown(made(tmp_path, "x/a.pdf", "x/a.png")) == [("x/a.pdf", "x/a"), ("x/a.png", "x/a-2")]


def test_what_was_written_into_a_folder_is_not_read(tmp_path: Path) -> None:
    made(tmp_path, "a.pdf", "out/images/a_p0001_001.jpg", "shown/a_page_1.png")
    assert shown(tmp_path, tmp_path / "out", tmp_path / "shown") == [("a.pdf", "a")]
    (work,) = gather([str(tmp_path)], outputs=[tmp_path / "x" / ".."])
    assert "read and written to at once" in str(work.error)


def test_a_folder_without_documents_says_so(tmp_path: Path) -> None:
    (work,) = gather([str(made(tmp_path, "notes.txt"))], outputs=[])
    assert work.error is not None
    assert work.error.exit_code == 3
    assert "no PDF and no picture" in str(work.error)


def test_a_folder_that_cannot_be_read_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "a.pdf", "locked/b.pdf")
    scandir = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    first, second = gather([str(tmp_path)], outputs=[])
    assert (first.name, first.error) == ("a", None)
    assert str(second.error).startswith(f"{tmp_path / 'locked'} cannot be read: Permission denied")
