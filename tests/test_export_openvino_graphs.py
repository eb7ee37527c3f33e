"""The OpenVINO graphs beside the ONNX ones: the contract, attention, the very same codes. What they compute is asked of
both in `test_export_graphs.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from tiny_checkpoint import write_checkpoint

from mineru_edge.export.exporter import export
from mineru_edge.export.schemes import decoder_matrices, packed_parts, vision_matrices
from mineru_edge.models import tensors
from mineru_edge.models.bundle import (
    DECODER_FILE,
    OV_DECODER_DATA_FILE,
    OV_DECODER_FILE,
    OV_VISION_DATA_FILE,
    OV_VISION_FILE,
    VISION_FILE,
    Bundle,
)
from mineru_edge.models.tensors import TensorSpec

KINDS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32"},
    "int8": {},
    "w8a8": {"decoder": "w8a8"},
    "int4": {"decoder": "int4"},
}
ONNX_NAMES = {"visual.merger.mlp.2": "embeds", "lm_head": "logits"}  # the last product is called as the output
FILES = ((VISION_FILE, OV_VISION_FILE), (DECODER_FILE, OV_DECODER_FILE))


@pytest.fixture(scope="module", params=KINDS)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp(request.param)
    return export(
        write_checkpoint(folder / "checkpoint"), folder / request.param, format="both", **KINDS[request.param]
    )


def graph(bundle: Bundle, file: str) -> openvino.Model:
    return openvino.Core().read_model(str(bundle.file(file)))


def operations(bundle: Bundle, file: str, *kinds: str) -> list[Any]:
    return [node for node in graph(bundle, file).get_ordered_ops() if node.get_type_name() in kinds]


def test_inputs_and_outputs_are_those_of_the_contract(bundle: Bundle) -> None:
    text, vision = bundle.text, bundle.vision
    for file, inputs, outputs in (
        (OV_VISION_FILE, tensors.vision_inputs(vision), tensors.vision_outputs(vision)),
        (OV_DECODER_FILE, tensors.flat_decoder_inputs(text), tensors.flat_decoder_outputs(text)),
    ):
        model = graph(bundle, file)
        for places, specs in ((model.inputs, inputs), (model.outputs, outputs)):
            found = {
                place.get_any_name(): (
                    [None if axis.is_dynamic else axis.get_length() for axis in place.get_partial_shape()],
                    place.get_element_type().to_dtype().name,
                )
                for place in places
            }
            assert found == {spec.name: (free(spec), spec.dtype) for spec in specs}


def free(spec: TensorSpec) -> list[int | None]:
    return [axis if isinstance(axis, int) else None for axis in spec.axes]


def test_attention_has_no_mask_and_never_writes_its_scores(bundle: Bundle) -> None:
    for file, layers, causal in (
        (OV_VISION_FILE, bundle.vision.depth, False),
        (OV_DECODER_FILE, bundle.text.layers, True),
    ):
        found = operations(bundle, file, "ScaledDotProductAttention")
        assert [(node.get_input_size(), node.get_attributes()["causal"]) for node in found] == [(3, causal)] * layers
        assert not operations(bundle, file, "Softmax")


def test_the_nodes_that_the_runtime_looks_for_are_there(bundle: Bundle) -> None:
    names = {node.get_friendly_name() for node in graph(bundle, OV_DECODER_FILE).get_ops()}
    for layer in range(bundle.text.layers):
        assert names >= set(tensors.attention_nodes(layer))


def test_integer_products_where_the_scheme_says_so(bundle: Bundle) -> None:
    kind = bundle.path.name
    vision, decoder = 4 * bundle.vision.depth + 2, 4 * bundle.text.layers + 1
    coded = [len(operations(bundle, file, "FakeQuantize")) for _, file in FILES]
    assert coded == [0 if kind == "fp32" else vision, decoder if kind == "w8a8" else 0]
    block = graph(bundle, OV_DECODER_FILE).get_rt_info(tensors.OV_BLOCK_INFO).astype(int)
    assert block == (32 if kind in ("int8", "int4") else 0)


def test_codes_are_those_of_the_onnx_graphs(bundle: Bundle) -> None:
    """An output's inputs in one row, whatever the engine's order, and packed matrices one after the other."""
    if bundle.path.name == "fp32":
        assert not any(stored(bundle, ov) for _, ov in FILES)
        return
    for (onnx_file, file), names in zip(
        FILES, (vision_matrices(bundle.vision)[1:], decoder_matrices(bundle.text)), strict=True
    ):
        found, expected = stored(bundle, file), onnx_codes(bundle, onnx_file)
        assert len(found) == len(names)
        for name in names:
            rows = np.concatenate([expected[ONNX_NAMES.get(part, part)] for part in packed_parts(name)])
            np.testing.assert_array_equal(found[name], rows, err_msg=name)


def stored(bundle: Bundle, file: str) -> dict[str, NDArray[np.int8]]:
    """The constant of whole numbers of each matrix product that has one, [outputs, inputs]."""
    found = {}
    for product in operations(bundle, file, "MatMul"):
        node = product.input_value(1).get_node()
        while node.get_type_name() != "Constant":
            node = node.input_value(0).get_node()
        kind, shape = node.get_output_element_type(0).to_string(), node.get_output_shape(0)
        name = product.get_friendly_name().removesuffix(".integer").removesuffix(".product")
        if kind == "i8":
            found[name] = node.data.reshape(shape[0], -1)
        elif kind == "i4":
            found[name] = halves(node.data.view(np.uint8) ^ 0x88).reshape(shape[0], -1)
    return found


def onnx_codes(bundle: Bundle, file: str) -> dict[str, NDArray[np.int8]]:
    found = {}
    for tensor in onnx.load(bundle.file(file)).graph.initializer:
        codes = numpy_helper.to_array(tensor)
        name = tensor.name.removesuffix(".weight")
        if codes.dtype == np.int8:  # [inputs, outputs]
            found[name] = codes.T
        elif codes.dtype == np.uint8 and codes.ndim == 3:  # [outputs, blocks, block] around 128, or half of it
            eight = bundle.path.name != "int4" or name == "logits"
            whole = (codes.astype(np.int16) - 128).astype(np.int8) if eight else halves(codes)
            found[name] = whole.reshape(len(codes), -1)
    return found


def halves(codes: NDArray[np.uint8]) -> NDArray[np.int8]:
    """4-bit codes around 8, the earlier one low."""
    return np.stack([codes & 15, codes >> 4], -1).astype(np.int8) - np.int8(8)


def test_the_files_are_as_small_as_those_for_onnx(bundle: Bundle) -> None:
    sizes = {entry.path: entry.bytes for entry in bundle.files}
    for (onnx_file, _), data in zip(FILES, (OV_VISION_DATA_FILE, OV_DECODER_DATA_FILE), strict=True):
        theirs = sizes[onnx_file] + sizes[str(Path(onnx_file).with_suffix(".data"))]
        assert sizes[data] < theirs
