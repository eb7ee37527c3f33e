"""OpenVINO's self-test, against what is known of processors and of graphs that have no integer product."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from product_graph import X86
from tiny_checkpoint import write_checkpoint

from mineru_edge.export.exporter import export
from mineru_edge.models.bundle import OV_DECODER_FILE, Bundle
from mineru_edge.models.errors import EngineError
from mineru_edge.runtime import ov_selftest
from mineru_edge.runtime.engines import GraphName
from mineru_edge.runtime.ov_selftest import kernels
from mineru_edge.runtime.threads import CPUINFO, cpu_field

DOTS = {"avx_vnni", "avx512_vnni", "amx_int8"} & set(cpu_field(CPUINFO, "flags").split())
GRAPHS: tuple[GraphName, ...] = get_args(GraphName)
EXPORTS = {
    "fp32": {"precision": "fp32"},
    "int8": {},
    "w8a8": {"decoder": "w8a8"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("self-test")
    checkpoint = write_checkpoint(folder / "checkpoint")
    for name, options in EXPORTS.items():
        export(checkpoint, folder / name, format="openvino", **options)  # type: ignore[arg-type]
    return folder


def found(path: Path) -> tuple[str, ...]:
    bundle = Bundle.load(path)
    return tuple(kernels(bundle, graph) for graph in GRAPHS)


def test_the_verdict_is_what_this_processor_is_known_for(folder: Path) -> None:
    """Without 8-bit dot products x86 adds pairs of products in 16 bits, which overflow; ARM was tried in emulation."""
    rows = "integer" if DOTS or not X86 else "wrong"
    assert found(folder / "int8") == (rows, "integer" if DOTS else "float")
    assert found(folder / "w8a8") == (rows, rows)


def test_a_graph_in_f32_multiplies_floats(folder: Path) -> None:
    assert found(folder / "fp32") == ("float", "float")


def test_a_decoder_whose_activations_stay_f32_multiplies_floats(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "int8", tmp_path / "copy")
    graph = tmp_path / "copy" / OV_DECODER_FILE
    text = graph.read_text()
    assert '<activation_block value="32"' in text
    graph.write_text(text.replace('<activation_block value="32"', '<activation_block value="0" '))
    assert kernels(Bundle.load(tmp_path / "copy"), "decoder") == "float"


def test_sums_that_overflow_are_called_wrong(folder: Path) -> None:
    """As on x86 without 8-bit dot products, which the engine's kernel library can be made to believe."""
    code = (
        "from mineru_edge.models.bundle import Bundle\n"
        "from mineru_edge.runtime.ov_selftest import kernels\n"
        f"print(kernels(Bundle.load({str(folder / 'int8')!r}), 'vision'))"
    )
    for limit, verdict in (("AVX2", "wrong"), ("ALL", found(folder / "int8")[0])):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "ONEDNN_MAX_CPU_ISA": limit},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.stdout.strip() == (verdict if X86 else "integer"), run.stderr


def test_it_runs_once_in_a_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = found(folder / "int8")
    monkeypatch.setattr(ov_selftest, "read_model", None)
    assert found(folder / "int8") == first


def test_a_file_that_openvino_cannot_read_is_named(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "int8", tmp_path / "copy")
    bundle = Bundle.load(tmp_path / "copy")
    (tmp_path / "copy" / OV_DECODER_FILE).write_text("no graph")
    with pytest.raises(EngineError, match=r"decoder\.xml"):
        kernels(bundle, "decoder")
