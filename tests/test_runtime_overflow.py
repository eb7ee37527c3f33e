"""Processors whose 8-bit products overflow: that it is found out, and that the answers do not depend on it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from product_graph import X86
from tiny_checkpoint import write_checkpoint

from mineru_edge.export.exporter import export
from mineru_edge.models.bundle import VISION_DATA_FILE, Bundle
from mineru_edge.runtime import graphs, ort
from mineru_edge.runtime.arrays import F32
from mineru_edge.runtime.engine import plan_for
from mineru_edge.runtime.kv import KVStore
from mineru_edge.runtime.plan import WEIGHTS
from mineru_edge.runtime.threads import CPUINFO, cpu_field

FLAGS = set(cpu_field(CPUINFO, "flags").split())
DOTS = {"avx_vnni", "avx512_vnni", "amx_int8"} & FLAGS
AVX2 = X86 and ("avx2" in FLAGS or not FLAGS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("overflow")
    checkpoint = write_checkpoint(folder / "checkpoint")
    export(checkpoint, folder / "w8a8", decoder="w8a8", format="onnx")
    export(checkpoint, folder / "fp32", precision="fp32", format="onnx")
    return folder


@pytest.fixture
def bundle(folder: Path, tmp_path: Path) -> Bundle:
    shutil.copytree(folder / "w8a8", tmp_path / "w8a8")
    return Bundle.load(tmp_path / "w8a8")


def here(overflow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "sums_overflow", lambda: overflow)


def seen(bundle: Bundle) -> F32:
    draw = np.random.default_rng(5)
    patches = draw.standard_normal((64, bundle.vision.patch_values), np.float32)
    angles = draw.uniform(-1, 1, (64, bundle.vision.rotary_width)).astype(np.float32)
    return ort.OrtVision(bundle, threads=1).run(patches, angles, angles)


def decoded(bundle: Bundle) -> F32:
    draw = np.random.default_rng(6)
    embeds = draw.standard_normal((2, 24, bundle.text.width), np.float32)
    angles = draw.uniform(-1, 1, (2, 24, bundle.text.rotary_width)).astype(np.float32)
    decoder = ort.OrtDecoder(bundle, KVStore(bundle.text, slots=2, capacity_tokens=64), threads=1)
    return decoder.run(0, embeds, angles, angles, [0, 0]).copy()


class Saturating:
    """A session that adds two products in 16 bits, as vpmaddubsw does."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def run(self, _: None, given: dict[str, NDArray[Any]]) -> tuple[NDArray[np.int32]]:
        rows, inputs = given["a"].shape
        products = given["a"].astype(np.int32)[:, :, None] * given["b"].astype(np.int32)
        pairs = products.reshape(rows, inputs // 2, 2, -1).sum(axis=2)
        return (np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=1),)


def test_the_self_test_s_product_is_the_one_it_says() -> None:
    model = onnx.load_from_string(ort.PRODUCT)
    onnx.checker.check_model(model, full_check=True)
    (node,) = model.graph.node
    assert (node.op_type, list(node.input), list(node.output)) == ("MatMulInteger", ["a", "b"], ["y"])
    kinds = [value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)]
    assert kinds == [TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32]


def test_it_finds_sums_that_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort.onnxruntime, "InferenceSession", Saturating)
    assert ort.sums_overflow.__wrapped__()


def test_its_verdict_is_what_this_processor_is_known_for() -> None:
    """Below AVX2 the kernels widen to 16 bits first (on Linux), with 8-bit dot products they add in 32; so on ARM."""
    known = {AVX2 and not DOTS} if FLAGS or not X86 else {True, False}
    assert ort.sums_overflow() in known


def test_answers_are_the_same_to_the_last_bit_whichever_kernels_are_taken(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both add whole numbers, and exactly where no sum overflows."""
    right = not ort.sums_overflow()
    here(True, monkeypatch)
    widened = seen(bundle), decoded(bundle)
    here(False, monkeypatch)
    assert np.array_equal(widened[0], seen(bundle)) == right
    assert np.array_equal(widened[1], decoded(bundle)) == right


def test_rows_are_as_near_to_fp32_as_8_bits_are_on_this_processor(folder: Path, bundle: Bundle) -> None:
    """2 % for these weights; sums that overflow make 6 % of it."""
    exact = Bundle.load(folder / "fp32")
    for run in (seen, decoded):
        right = run(exact)
        assert np.linalg.norm(run(bundle) - right) < 0.04 * np.linalg.norm(right)


@pytest.mark.parametrize("overflow", [True, False])
def test_prepared_weights_are_those_that_the_kernels_take(
    bundle: Bundle, overflow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    here(overflow, monkeypatch)
    before = seen(bundle)
    folders = ort.prepare_vision(bundle), ort.prepare_decoder(bundle, "fp32")
    for folder in folders:
        packed = onnx.load(folder / "packed.onnx", load_external_data=False).graph
        kinds = {tensor.name: tensor.data_type for tensor in packed.initializer}
        products = [node for node in packed.node if node.op_type == "MatMulIntegerToFloat"]
        assert {kinds[node.input[1]] for node in products} == {
            TensorProto.UINT8 if overflow and AVX2 else TensorProto.INT8
        }
    np.testing.assert_array_equal(seen(bundle), before)


def test_weights_prepared_for_other_kernels_are_not_taken(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for overflow in (True, False):
        here(overflow, monkeypatch)
        names.append({ort.prepare_vision(bundle), ort.prepare_decoder(bundle, "fp32")})
    assert not names[0] & names[1]


def test_the_plan_counts_weights_that_are_copied(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are mapped again, from a prepared file."""

    def weights() -> int:
        return plan_for(bundle, limit_bytes=4_000_000_000, engine="onnxruntime").bytes_of(WEIGHTS)

    (size,) = [entry.bytes for entry in bundle.files if entry.path == VISION_DATA_FILE]
    here(False, monkeypatch)
    mapped = weights()
    here(True, monkeypatch)
    assert weights() == mapped + size
    exact = dataclasses.replace(bundle, precision=dataclasses.replace(bundle.precision, vision="fp32"))
    assert not graphs.copies_vision(exact)  # it has no 8-bit weights
    ort.prepare_vision(bundle)
    assert weights() == mapped
