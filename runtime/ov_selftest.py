"""What OpenVINO does here with a matrix that is stored in 8 bits or fewer: multiply integers, or floats, or wrongly.

It never says: without an integer kernel it unpacks the matrix to f32, and on some processors its integer kernels give
wrong sums (see `export/NOTES.md`). So one product of the graph is taken out as it is, with its matrix, and run.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as ops

from mineru_edge.models.bundle import OV_DECODER_FILE, OV_VISION_FILE, Bundle

from .arrays import F32
from .engines import GraphName, Kernels
from .ov_models import block_of, compiled_for_cpu, read_model, settings, usable

_FILES: dict[GraphName, str] = {"vision": OV_VISION_FILE, "decoder": OV_DECODER_FILE}
_UNPACKING = ("Convert", "Multiply", "Subtract", "Reshape")  # between a stored matrix and its product
_INTEGERS = ("i8", "u8")
_LARGEST = 127
_LARGE_STEP = 16  # every block of activations has a large one, so its scale is 1
_SMALL = 0.1  # nothing of it is left where the scale is 1
_ROUNDING = 0.02  # an 8-bit scheme other than ours is 0.4 % off, a sum that overflowed 10 % and more


@functools.cache
def kernels(bundle: Bundle, graph: GraphName) -> Kernels:
    """By the smallest such product of `graph`; "float" when there is none. EngineError when openvino cannot run it."""
    model = read_model(bundle, _FILES[graph])
    product = _smallest_product(model)
    if product is None:
        return "float"
    with usable(bundle.file(_FILES[graph])):
        return _kernels_of(product, settings(1, block=block_of(model)))


def _smallest_product(model: openvino.Model) -> Any:
    """The MatMul with the fewest whole numbers as its matrix, one of rounded activations if there is any, or None."""
    found = []
    for node in model.get_ops():
        if node.get_type_name() == "MatMul" and (matrix := _stored(node.input_value(1).get_node())) is not None:
            found.append((not _is_coded(node), math.prod(matrix.get_output_shape(0)), node))
    return min(found, key=lambda triple: triple[:2])[2] if found else None


def _is_coded(product: Any) -> bool:
    """Whether the graph itself rounds the activations; else the engine may."""
    return bool(product.input_value(0).get_node().get_type_name() == "FakeQuantize")


def _stored(node: Any) -> Any:
    """The constant of whole numbers that `node` unpacks, or None."""
    while node.get_type_name() in _UNPACKING:
        node = node.input_value(0).get_node()
    whole = node.get_type_name() == "Constant" and node.get_output_element_type(0).is_integral()
    return node if whole else None


def _kernels_of(product: Any, settings: dict[str, Any]) -> Kernels:
    matrix = _run(openvino.Model([ops.result(product.input_value(1))], []), settings)[1]
    coding, coded = product.input_value(0).get_node(), _is_coded(product)
    x = ops.parameter(openvino.PartialShape([-1, matrix.shape[1]]), np.float32)
    (coding if coded else product).input(0).replace_source_output(x.output(0))
    rows = _rows(matrix.shape[1])
    compiled, found = _run(openvino.Model([ops.result(product)], [x]), settings, rows)
    right = rows @ matrix.T
    if np.linalg.norm(found[:2] - right[:2]) > _ROUNDING * np.linalg.norm(right[:2]):
        return "wrong"
    small_ones_count = np.linalg.norm(found[2] - found[1]) > 0.5 * np.linalg.norm(right[2] - right[1])
    return "float" if small_ones_count or (coded and not _takes_integers(compiled)) else "integer"


def _rows(inputs: int) -> F32:
    """f32 [3, inputs]: whole numbers all over the range of 8 bits; large ones; these with small ones between."""
    rows = np.zeros((3, inputs), np.float32)
    rows[0] = np.random.default_rng(0).integers(-_LARGEST, _LARGEST, inputs, endpoint=True)
    rows[2] = _SMALL
    rows[:, ::_LARGE_STEP] = _LARGEST
    return rows


def _takes_integers(compiled: Any) -> bool:
    """Whether a product of the graph as it is executed has integers on both sides."""
    products = [
        [place.get_element_type().to_string() for place in node.inputs()[:2]]
        for node in compiled.get_runtime_model().get_ops()
        if node.get_rt_info()["layerType"].astype(str) in ("FullyConnected", "MatMul")
    ]
    return any(all(kind in _INTEGERS for kind in kinds) for kinds in products)


def _run(model: openvino.Model, settings: dict[str, Any], *given: F32) -> tuple[Any, F32]:
    compiled = compiled_for_cpu(model, settings)
    request = compiled.create_infer_request()
    request.start_async(dict(enumerate(given)))
    request.wait()
    return compiled, np.array(request.get_output_tensor().data)
