"""The embedded model, whose trained weights have decisions to keep: its exports against its checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mineru_edge.export.cases import generated
from mineru_edge.export.exporter import export
from mineru_edge.export.verify import verify
from mineru_edge.models.bundle import PARITY_FILE, Bundle

pytest.importorskip("torch")


def test_fp32_gives_the_reference_token_for_token(embedded_checkpoint: Path, tmp_path: Path) -> None:
    export(embedded_checkpoint, tmp_path / "fp32", precision="fp32")
    parity = verify(embedded_checkpoint, tmp_path / "fp32", pages=generated(1), threads=1)
    parity.check()
    assert {r.kind for r in parity.requests} >= {"layout", "text"}
    assert all(r.boxes is None or r.boxes[1] > 0 for r in parity.requests)


def test_the_shipped_bundle_is_within_its_thresholds(
    embedded_checkpoint: Path, embedded_bundle: Bundle, tmp_path: Path
) -> None:
    shutil.copytree(embedded_bundle.path, tmp_path / "int8")
    verify(embedded_checkpoint, tmp_path / "int8", pages=generated(1, first_seed=7), threads=1).check()


def test_the_shipped_bundle_is_an_export_of_the_shipped_checkpoint(
    embedded_checkpoint: Path, embedded_bundle: Bundle, tmp_path: Path
) -> None:
    again = export(embedded_checkpoint, tmp_path / "int8")
    weights = {entry.path: entry.sha256 for entry in again.files if not entry.path.endswith(".onnx")}
    assert weights.items() <= {entry.path: entry.sha256 for entry in embedded_bundle.files}.items()


def test_the_shipped_comparison_covers_every_kind_of_request(embedded_bundle: Bundle) -> None:
    stored = json.loads(embedded_bundle.file(PARITY_FILE).read_text("utf-8"))
    assert stored["passed"]
    assert len(stored["requests"]) >= 40
    assert {request["kind"] for request in stored["requests"]} == {"layout", "text", "table", "formula"}
    assert len(stored["golden"]) >= 3
    assert stored["engines"] == stored["kv8"]["engines"] == {"vision": "onnxruntime", "decoder": "onnxruntime"}
    assert stored["kv8"]["requests"] == len(stored["requests"])
    assert 0.95 < stored["kv8"]["share"] < 1
    assert stored["other_engines"] is None  # the shipped bundle is for one engine
