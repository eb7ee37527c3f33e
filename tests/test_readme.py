"""What README says is so: exit codes, commands and their options, and the files it points to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mineru_edge.cli import cli
from mineru_edge.drawer import LIMIT_S
from mineru_edge.intake import MAX_IMAGE_PX, PDF_HEADER_WITHIN
from mineru_edge.models.errors import INTERRUPT, OK, USAGE, MineruEdgeError
from mineru_edge.pdf import LONG_EDGE_PX
from mineru_edge.pictures import FORMATS
from mineru_edge.pixels import RASTER_PX
from mineru_edge.runtime.plan import DRAWING_MOST_BYTES


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "README.md").read_text("utf-8")


def test_every_exit_code_stands_in_the_table(text: str) -> None:
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert table == {OK, USAGE, INTERRUPT, MineruEdgeError.exit_code} | {
        kind.exit_code for kind in MineruEdgeError.__subclasses__()
    }


def test_its_commands_and_options_exist(text: str) -> None:
    lines = re.findall(r"(?:^|[ `/])mineru-edge ([a-z]\w*)([^\n`#]*)", text)
    assert {name for name, _ in lines} == set(cli.commands)
    for name, rest in lines:
        options = {option for each in cli.commands[name].params for option in (*each.opts, *each.secondary_opts)}
        for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", rest):
            assert option in options | {"--help"}, f"mineru-edge {name} {option}"


def test_the_files_it_points_to_exist(text: str, root: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (root / target).exists(), target
    section = text.split("## Finding your way", 1)[1].split("\n## ", 1)[0]
    folder = ""
    for line in section.splitlines():
        if match := re.match(r" {4}(\w+/) ", line):
            folder = match[1]
        for name in re.findall(r"(?<![\w/])(\w+(?:\.py|\.md|/))", line):
            assert name == folder or any((root / folder).rglob(name.rstrip("/"))), f"{folder}{name}"


def test_the_table_of_formats_has_those_that_are_read_and_their_limits(text: str) -> None:
    section = text.split("## What it reads", 1)[1].split("\n## ", 1)[0]
    formats = {name for row in re.findall(r"^\| ([A-Z][^|]*) \|", section, re.MULTILINE) for name in row.split(", ")}
    assert {name.upper() for name in formats} >= {"PDF", *FORMATS}
    assert {name.upper() for name in formats if name.upper() == name or name == "WebP"} == {"PDF", *FORMATS}
    assert f"long edge {LONG_EDGE_PX} pixels" in section
    assert f"up to {PDF_HEADER_WITHIN} bytes before the header" in section
    assert f"{MAX_IMAGE_PX // 10**6} million pixels (`max_image_px`)" in section
    assert f"above {RASTER_PX / 1e6:g} million pixels are reduced" in section
    assert f"longer than {LIMIT_S:g} seconds" in section
    assert f"({DRAWING_MOST_BYTES // 10**9} GB at most)" in section


def test_no_gap_is_left_open(text: str) -> None:
    assert re.findall(r"^[A-Z_]{6,}$", text, re.MULTILINE) == []
