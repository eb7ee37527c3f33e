"""Graphs prepared once on the device: the same answers, and taken only where they fit."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_checkpoint import write_checkpoint

from mineru_edge import cli
from mineru_edge.export.exporter import export
from mineru_edge.models.bundle import DECODER_FILE, Bundle
from mineru_edge.models.errors import EngineError, SpaceError
from mineru_edge.runtime import graphs, prepared
from mineru_edge.runtime.arrays import F32
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.engines import choose_engines
from mineru_edge.runtime.graphs import is_prepared, prepare
from mineru_edge.runtime.request import DecodeParams, Request

ENGINE, GRAPH = "engine-1.0", DECODER_FILE


ONNX, OPENVINO = "onnxruntime", "openvino"
ENGINES = [ONNX, OPENVINO, "openvino-f32", "vision=openvino,decoder=onnxruntime"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("random")
    return export(write_checkpoint(folder / "checkpoint", tied=False), folder / "bundle", format="both")


@pytest.fixture
def copy(exported: Bundle, tmp_path: Path) -> Bundle:
    shutil.copytree(exported.path, tmp_path / "bundle")
    return Bundle.load(tmp_path / "bundle")


def answer(bundle: Bundle, engine: str = ONNX) -> tuple[F32, tuple[int, ...]]:
    """A picture's rows, and the tokens that follow."""
    picture = Image.fromarray(np.random.default_rng(3).integers(0, 255, (84, 280, 3), np.uint8))
    request = Request(picture, "\nText Recognition:", DecodeParams(40, ignore_eos=True))
    with Engine.open(bundle, slots=1, threads=1, engine=engine) as opened:
        rows = opened.model.see(picture).rows
        ((_, result),) = opened.results([request])
    return rows, result.token_ids


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prepared_bundle_answers_the_same_to_the_last_bit(copy: Bundle, engine: str) -> None:
    rows, tokens = answer(copy, engine)
    folders = prepare(copy, "fp32", engine)
    assert {folder.parent for folder in folders} == {copy.path / prepared.PREPARED}
    assert len(set(folders)) == (1 if engine.startswith(OPENVINO) else 2)
    rows_after, tokens_after = answer(copy, engine)
    np.testing.assert_array_equal(rows_after, rows)
    assert tokens_after == tokens
    assert len(set(tokens)) > 8
    Bundle.load(copy.path).verify()  # the bundle itself is untouched


@pytest.mark.parametrize(("engine", "file"), [(ONNX, "packed.onnx"), (OPENVINO, "compiled.blob")])
def test_what_was_prepared_is_what_is_opened(copy: Bundle, engine: str, file: str) -> None:
    folder = prepare(copy, "fp32", engine)[0]
    size = (folder / file).stat().st_size
    (folder / file).write_bytes(bytes(size))
    with pytest.raises(EngineError, match=re.escape(str(folder / file))) as caught:
        answer(copy, engine)
    assert "mineru-edge prepare" in str(caught.value.hint)


@pytest.mark.parametrize(("engine", "file"), [(ONNX, "packed.data"), (OPENVINO, "compiled.blob")])
def test_a_truncated_copy_is_not_taken(copy: Bundle, engine: str, file: str) -> None:
    folder = prepare(copy, "fp32", engine)[-1]
    (folder / file).write_bytes((folder / file).read_bytes()[:-1])
    assert not is_prepared(copy, "fp32")
    assert answer(copy, engine)[1]


def test_only_onnxruntime_s_decoder_is_off_the_heap_then(copy: Bundle) -> None:
    assert not is_prepared(copy, "fp32")
    prepare(copy, "fp32", ONNX)
    assert is_prepared(copy, "fp32")
    assert not is_prepared(copy, "fp32", choose_engines(copy, OPENVINO)[0])


def test_auto_prepares_for_every_engine_that_may_be_chosen(copy: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor on which OpenVINO is the better one, and ONNX Runtime the one that fits into less memory."""
    chosen = functools.partial(choose_engines, architecture="x86_64", features={"avx512_vnni", "avx512_bf16"})
    monkeypatch.setattr(graphs, "choose_engines", chosen)
    names = {folder.name.partition("-")[0] + folder.name.rpartition("-")[2] for folder in prepare(copy, "fp32")}
    assert names == {"openvinovision", "onnxruntimevision", "onnxruntimedecoder"}


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


@pytest.mark.parametrize(("engine", "count"), [(ONNX, 2), (OPENVINO, 1)])
def test_the_command(copy: Bundle, capsys: pytest.CaptureFixture[str], engine: str, count: int) -> None:
    assert cli.main(["prepare", "--engine", engine, str(copy.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == count
    assert all(line.startswith(str(copy.path / prepared.PREPARED)) for line in lines)
    shutil.rmtree(copy.path / prepared.PREPARED)
    (copy.path / prepared.PREPARED).write_text("a file where the folder should be")
    assert cli.main(["prepare", "--engine", engine, str(copy.path)]) == SpaceError.exit_code
    assert "cannot be written" in capsys.readouterr().err
