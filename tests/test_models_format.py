"""FORMAT.md tells the truth: its example loads, and every field stands in it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from mineru_edge.models.architecture import ChatTemplate, Preprocessing, SpecialIds, TextShape, VisionShape
from mineru_edge.models.bundle import FORMAT_VERSION, Bundle, FileEntry, Precision


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "models" / "FORMAT.md").read_text("utf-8")


def test_the_example_loads(text: str, tmp_path: Path) -> None:
    found = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert found is not None
    for entry in json.loads(found[1])["files"]:
        path = tmp_path / entry["path"]
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.truncate(path, entry["bytes"])
    (tmp_path / "bundle.json").write_text(found[1], "utf-8")
    assert Bundle.load(tmp_path).engines == ("onnx",)


def test_it_describes_this_version(text: str) -> None:
    assert text.startswith(f"# The bundle, format {FORMAT_VERSION}\n")


@pytest.mark.parametrize(
    "kind", [Bundle, VisionShape, TextShape, Preprocessing, SpecialIds, ChatTemplate, Precision, FileEntry]
)
def test_every_field_is_described(text: str, kind: type[Bundle]) -> None:
    table = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    described = set(re.findall(r"`(\w+)`", table))
    assert {field.name for field in dataclasses.fields(kind)} - {"path"} <= described
