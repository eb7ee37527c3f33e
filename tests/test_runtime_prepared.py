"""The decoder packed once on the device: the same answers, and taken only where it fits."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mineru_edge import cli
from mineru_edge.models.bundle import DECODER_FILE, Bundle
from mineru_edge.models.errors import SpaceError
from mineru_edge.runtime import prepared
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.graphs import is_prepared, prepare
from mineru_edge.runtime.request import DecodeParams, Request

ENGINE, GRAPH = "engine-1.0", DECODER_FILE


@pytest.fixture
def copy(embedded_bundle: Bundle, tmp_path: Path) -> Bundle:
    shutil.copytree(embedded_bundle.path, tmp_path / "bundle", ignore=shutil.ignore_patterns(prepared.PREPARED))
    return Bundle.load(tmp_path / "bundle")


def tokens(bundle: Bundle) -> tuple[int, ...]:
    picture = Image.fromarray(np.random.default_rng(3).integers(0, 255, (84, 280), np.uint8))
    request = Request(picture, "\nText Recognition:", DecodeParams(40, ignore_eos=True))
    with Engine.open(bundle, slots=1, threads=1) as engine:
        ((_, result),) = engine.results([request])
    return result.token_ids


def test_a_prepared_bundle_answers_the_same(copy: Bundle) -> None:
    assert not is_prepared(copy, "fp32")
    before = tokens(copy)
    folders = prepare(copy, "fp32")
    assert {folder.parent for folder in folders} == {copy.path / prepared.PREPARED}
    assert len(set(folders)) == 2
    assert is_prepared(copy, "fp32")
    assert tokens(copy) == before
    Bundle.load(copy.path).verify()  # the bundle itself is untouched


def test_vision_rows_are_the_same_to_the_last_bit(copy: Bundle) -> None:
    picture = Image.fromarray(np.random.default_rng(4).integers(0, 255, (168, 280, 3), np.uint8))
    rows = []
    for _ in range(2):
        with Engine.open(copy, slots=1, threads=1) as engine:
            rows.append(engine.model.see(picture).rows)
        prepare(copy, "fp32")
    np.testing.assert_array_equal(*rows)


def test_a_damaged_copy_is_not_taken(copy: Bundle) -> None:
    _, folder = prepare(copy, "fp32")
    data = folder / "packed.data"
    data.write_bytes(data.read_bytes()[:-1])
    assert not is_prepared(copy, "fp32")
    assert tokens(copy)


def write(folder: Path) -> None:
    (folder / "decoder.onnx").write_bytes(b"packed")


def test_it_fits_one_engine_one_processor_and_one_decoder(copy: Bundle, tmp_path: Path) -> None:
    cpu, other = tmp_path / "cpu", tmp_path / "other"
    cpu.write_text("processor : 0\nflags : sse avx2\n")
    other.write_text("processor : 0\nflags : sse avx2 avx512f\n")
    folder = prepared.prepare(copy, ENGINE, GRAPH, write, cpuinfo=cpu)
    assert prepared.find(copy, ENGINE, GRAPH, cpuinfo=cpu) == folder
    assert prepared.find(copy, ENGINE, GRAPH, cpuinfo=other) is None
    assert prepared.find(copy, "engine-1.1", GRAPH, cpuinfo=cpu) is None
    files = tuple(
        dataclasses.replace(entry, sha256="0" * 64) if entry.path == DECODER_FILE else entry for entry in copy.files
    )
    assert prepared.find(dataclasses.replace(copy, files=files), ENGINE, GRAPH, cpuinfo=cpu) is None


@pytest.mark.parametrize("note", ["", "{", "[]", '{"files": 3}', '{"files": {"gone": 1}, "decoder": {}}'])
def test_a_note_that_makes_no_sense_is_no_preparation(copy: Bundle, note: str) -> None:
    folder = prepared.prepare(copy, ENGINE, GRAPH, write)
    (folder / prepared.NOTE).write_text(note)
    assert prepared.find(copy, ENGINE, GRAPH) is None


def test_a_failure_leaves_the_earlier_one(copy: Bundle) -> None:
    folder = prepared.prepare(copy, ENGINE, GRAPH, write)

    def fail(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(SpaceError, match="No space left on device"):
        prepared.prepare(copy, ENGINE, GRAPH, fail)
    assert prepared.find(copy, ENGINE, GRAPH) == folder
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_preparing_again_replaces(copy: Bundle) -> None:
    prepared.prepare(copy, ENGINE, GRAPH, write)
    folder = prepared.prepare(copy, ENGINE, GRAPH, lambda path: (path / "decoder.onnx").write_bytes(b"newer") and None)
    assert (folder / "decoder.onnx").read_bytes() == b"newer"
    assert json.loads((folder / prepared.NOTE).read_text())["files"] == {"decoder.onnx": 5}


def test_the_command(copy: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["prepare", str(copy.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(str(copy.path / prepared.PREPARED)) for line in lines)
    shutil.rmtree(copy.path / prepared.PREPARED)
    (copy.path / prepared.PREPARED).write_text("a file where the folder should be")
    assert cli.main(["prepare", str(copy.path)]) == SpaceError.exit_code
    assert "cannot be written" in capsys.readouterr().err
