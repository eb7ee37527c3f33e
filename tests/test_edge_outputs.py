"""What `parse` writes where: stdout, JSON lines and the files of -o."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import ONE_TEXT, FakeEngine, layout
from PIL import Image
from small_pdf import LINE, pdf

from mineru_edge.outputs import OutputFolder

Run = Callable[..., int]


def engine(pages: int = 1, answer: str = "words") -> FakeEngine:
    return FakeEngine([ONE_TEXT] * pages, lambda _: answer)


def test_markdown_goes_to_stdout_and_nothing_else_does(run: Run, scan: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(engine(), scan) == 0
    assert capfd.readouterr() == ("words\n", "")


def test_several_files_are_told_apart(run: Run, scan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "two.pdf"
    other.write_bytes(pdf(LINE, LINE))
    assert run(engine(3), scan, other) == 0
    out = capfd.readouterr().out
    assert out == f"<!-- {scan} -->\n\nwords\n\n<!-- {other} -->\n\nwords\n\nwords\n\n"


def test_pages_are_written_as_they_come(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "two.pdf"
    path.write_bytes(pdf(LINE, LINE))
    written: list[str] = []
    monkeypatch.setattr("mineru_edge.job.click.echo", lambda text, **_: written.append(text))
    script = FakeEngine([layout(("title", (0, 0, 999, 99))), ONE_TEXT], ["One", "two"])
    assert run(script, path) == 0
    assert written == ["# One\n", "", "\ntwo\n"]


def test_output_files(run: Run, scan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answer = layout(
        ("title", (100, 10, 900, 60)), ("image", (100, 100, 500, 300)), ("equation", (100, 400, 900, 500)),
        ("table", (100, 600, 900, 900)), ("page_number", (480, 960, 520, 990)),
    )  # fmt: skip
    out = tmp_path / "deep" / "out"
    script = FakeEngine([answer], ["Title", "x^2", "<fcel>a<nl>", "7"])
    assert run(script, scan, "-o", out) == 0
    stdout, stderr = capfd.readouterr()
    assert stdout == ""
    assert re.match(r"1 file, 1 page, \d+\.\d s.*\nblocks: 4 stop\n$", stderr)
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    images = [f"images/scan_p0001_{number:03d}.jpg" for number in (2, 3, 4)]
    assert names == [
        ".mineru-edge/scan.jsonl", *images, "scan.md", "scan_content_list.json", "scan_result.json",
    ]  # fmt: skip
    assert (out / "scan.md").read_text("utf-8") == (
        f"# Title\n\n![image]({images[0]})\n\n$$\nx^2\n$$\n\n<table><tr><td>a</td></tr></table>\n"
    )
    listed = json.loads((out / "scan_content_list.json").read_text("utf-8"))
    assert [entry.get("img_path") for entry in listed] == [None, *images, None]
    assert [entry["type"] for entry in listed] == ["text", "image", "equation", "table", "page_number"]
    (page,) = json.loads((out / "scan_result.json").read_text("utf-8"))["pages"]
    assert [block["image_path"] for block in page["blocks"]] == [None, *images, None]
    with Image.open(out / images[0]) as picture:
        assert picture.size == (160, 100)
    assert (out / "scan.md").stat().st_mode & 0o777 == (out / images[0]).stat().st_mode & 0o777 != 0o600


def test_the_same_stem_twice_overwrites_nothing(run: Run, tmp_path: Path, scan: Path) -> None:
    (tmp_path / "b").mkdir()
    other = tmp_path / "b" / "Scan.pdf"
    other.write_bytes(pdf(LINE))
    script = FakeEngine([ONE_TEXT] * 2, ["first", "second"])
    assert run(script, scan, other, "-o", tmp_path / "out") == 0
    assert (tmp_path / "out" / "scan.md").read_text() == "first\n"
    assert (tmp_path / "out" / "Scan-2.md").read_text() == "second\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere file names are text")
def test_file_names_that_are_no_text(run: Run, scan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    odd = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"b\xff d.png"))
    os.link(scan, odd)
    assert run(FakeEngine([layout(("image", (0, 0, 999, 999)))] * 3), odd, "-o", tmp_path / "out") == 0
    assert (tmp_path / "out" / "b\ufffd d.md").read_text("utf-8") == "![image](images/b%EF%BF%BD%20d_p0001_001.jpg)\n"
    assert (tmp_path / "out" / "images" / "b\ufffd d_p0001_001.jpg").exists()
    assert run(engine(), odd, odd + "?", "--json") == 10
    assert "b\ufffd d.png" in capfd.readouterr().out


def test_a_write_that_fails_leaves_nothing(
    run: Run, scan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert run(engine(), scan, "-o", blocked) == 9
    assert capfd.readouterr().err.startswith(f"error: {blocked}")
    assert blocked.read_text() == "in the way"
    out = tmp_path / "out"
    (out / "scan.md").mkdir(parents=True)
    assert run(engine(), scan, "-o", out) == 9
    assert not [path for path in out.rglob("*") if path.suffix == ".part"]


def test_json_is_one_object_a_line(run: Run, scan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.pdf"
    assert run(engine(2, "a\nb ü"), scan, missing, scan, "--json") == 10
    out, err = capfd.readouterr()
    first, second, third = (json.loads(line) for line in out.splitlines())
    assert first["source"] == str(scan)
    assert first["markdown"] == "a  \nb ü\n"
    assert first["pages"][0]["blocks"][0]["content"] == "a\nb ü"
    assert second["exit_code"] == 3
    assert "does not exist" in second["error"]
    assert third["markdown"] == first["markdown"]
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_output_folders_write_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = OutputFolder(tmp_path)
    folder.write_file("a.txt", b"old")

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_room)
    with pytest.raises(Exception, match="No space left"):
        folder.write_file("a.txt", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_bytes() == b"old"


@pytest.mark.parametrize("name", ["content_list", "result"])
def test_json_formats_on_stdout_are_a_line_a_document(
    run: Run, scan: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    assert run(engine(2), scan, scan, "--format", name) == 0
    first, second = (json.loads(line) for line in capfd.readouterr().out.splitlines())
    if name == "result":
        first, second = first["pages"][0]["blocks"], second["pages"][0]["blocks"]
    assert first == second
    assert first[0]["type"] == "text"


def test_text_and_html_on_stdout(run: Run, scan: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(engine(1, "a < b"), scan, "--format", "text") == 0
    assert capfd.readouterr().out == "a < b\n"
    assert run(engine(1, "a < b"), scan, "--format", "html") == 0
    out = capfd.readouterr().out
    assert "<title>scan</title>" in out
    assert "<p>a &lt; b</p>" in out


def test_json_on_stdout_says_what_the_files_say(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.pdf"
    path.write_bytes(pdf(LINE, LINE))
    assert run(engine(2), path, "--json", "-o", tmp_path / "out") == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["markdown"] == (tmp_path / "out" / "two.md").read_text()
    assert shown["pages"] == json.loads((tmp_path / "out" / "two_result.json").read_text())["pages"]
