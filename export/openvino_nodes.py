"""The node patterns that both OpenVINO graphs share: matrix products, norms.

An int8 matrix is what NNCF's INT8_SYM makes of it, an i8 constant, a Convert and a Multiply, which the CPU plugin
takes as an integer product. Written here it needs no second copy of the model in f32, no package that brings a hundred
others, and has the very codes of the ONNX graphs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray
from openvino import opset13 as ops

from mineru_edge.models.tensors import OV_BLOCK_INFO, TensorSpec

from . import quantize
from .onnx_nodes import LEAST_SCALE, Weights
from .schemes import BITS, BLOCKS, Scheme

Node = Any  # openvino.Node; the package has no types that mypy can follow
Floats = NDArray[np.float32]


class Graph:
    """One graph being described: its inputs, and its weights as they come from the checkpoint."""

    def __init__(self, inputs: tuple[TensorSpec, ...], weights: Weights, schemes: Mapping[str, Scheme]) -> None:
        self._inputs = {spec.name: _parameter(spec) for spec in inputs}
        self._weights = weights
        self._schemes = schemes
        self._blocks: set[int] = set()

    def input(self, name: str) -> Node:
        return self._inputs[name]

    def read(self, name: str) -> Floats:
        return self._weights.read(name)

    def product(self, name: str, x: Node, matrix: Floats, bias: Floats | None = None) -> Node:
        """x [rows, inputs] times `matrix` [outputs, inputs] plus `bias` [outputs] -> [rows, outputs]."""
        scheme, inner = self._schemes[name], name if bias is None else f"{name}.product"
        if scheme == "w8a8_token":
            y = _by_rows(x, matrix, inner)
        elif scheme == "fp32":
            y = _matmul(x, constant(matrix), inner)
        else:
            block = math.gcd(matrix.shape[1], BLOCKS[scheme])  # the plugin knows no last block that is shorter
            self._blocks.add(block)
            y = _matmul(x, _in_blocks(matrix, block, BITS[scheme]), inner)
        return y if bias is None else ops.add(y, constant(bias), name=name)

    def layer_norm(self, name: str, x: Node, epsilon: float) -> Node:
        """LayerNormalization over the last axis with the checkpoint's `name`.weight and .bias."""
        x = ops.mvn(x, constant([-1], np.int64), True, epsilon, "INSIDE_SQRT")
        x = ops.multiply(x, constant(self.read(f"{name}.weight")))
        return ops.add(x, constant(self.read(f"{name}.bias")), name=name)

    def rms_norm(self, name: str, x: Node, epsilon: float) -> Node:
        """x over the root of its mean square, times the checkpoint's `name`.weight: the form the plugin fuses."""
        square = ops.power(x, constant(2, np.float32))
        mean = ops.reduce_mean(square, constant([-1], np.int64), keep_dims=True)
        root = ops.sqrt(ops.add(mean, constant(epsilon, np.float32)))
        x = ops.multiply(x, ops.divide(constant(1, np.float32), root))
        return ops.multiply(x, constant(self.read(f"{name}.weight")), name=name)

    def save(self, file: Path, output: Node, spec: TensorSpec) -> None:
        """Write `file`, an .xml, and its .bin beside it. OSError when they cannot be written."""
        result = ops.result(output, name=spec.name)
        output.output(0).set_names({spec.name})
        model = openvino.Model([result], list(self._inputs.values()), file.stem)
        model.set_rt_info(min(self._blocks, default=0), OV_BLOCK_INFO)
        for place, node in enumerate(model.get_ordered_ops()):
            if node.get_friendly_name() == node.get_name():  # named by a count of all nodes that this process has made
                node.set_friendly_name(f"{node.get_type_name()}_{place}")
        try:
            openvino.serialize(model, str(file))
        except RuntimeError as error:  # it does not say which: no space, or no permission
            raise OSError(None, str(error).strip().splitlines()[-1], str(file)) from error


def constant(values: Any, dtype: Any = None) -> Node:
    return ops.constant(np.asarray(values, dtype, order="C"))


def _matmul(x: Node, weight: Node, name: str) -> Node:
    return ops.matmul(x, weight, transpose_a=False, transpose_b=True, name=name)


def _by_rows(x: Node, matrix: Floats, name: str) -> Node:
    """Activations to 8 bits with one scale per row. The plugin makes one integer product of the FakeQuantize to whole
    numbers and the int8 weights; its own dynamic quantisation has the same accuracy at half the speed."""
    smallest, largest = (
        reduce(x, constant([-1], np.int64), keep_dims=True) for reduce in (ops.reduce_min, ops.reduce_max)
    )
    size = ops.maximum(largest, ops.multiply(smallest, constant(-1, np.float32)))
    scale = ops.maximum(ops.multiply(size, constant(1 / 127, np.float32)), constant(LEAST_SCALE))
    low, high = constant(-128, np.float32), constant(127, np.float32)
    x = ops.fake_quantize(ops.divide(x, scale), low, high, low, high, 256)
    codes, steps = quantize.rows(matrix)
    # On ARM the plugin multiplies all outputs by the first of the scales that it takes into its integer product. So the
    # matrix has the scale 1, and the row's, which it cannot take, stands before those of the outputs.
    weight = ops.multiply(ops.convert(constant(codes), "f32"), constant(1, np.float32))
    y = ops.multiply(_matmul(x, weight, f"{name}.integer"), scale)
    return ops.multiply(y, constant(steps), name=name)


def _in_blocks(matrix: Floats, block: int, bits: int) -> Node:
    """Weights with a scale per `block` inputs of an output; the plugin quantises activations in blocks as well."""
    codes, scales = (quantize.blocks if bits == 8 else quantize.blocks4)(matrix, block)
    if bits == 8:
        stored = constant((codes.astype(np.int16) - 128).astype(np.int8))
    else:
        tensor = openvino.Tensor(openvino.Type.i4, [*scales.shape, block])  # its own memory: an array's would be shared
        tensor.data.view(np.uint8)[:] = codes.ravel() ^ 0x88  # around 8, to two's complement
        stored = ops.constant(tensor)
    weight = ops.multiply(ops.convert(stored, "f32"), constant(scales[:, :, None]))
    return ops.reshape(weight, constant(matrix.shape, np.int64), special_zero=False)


def _parameter(spec: TensorSpec) -> Node:
    axes = [axis if isinstance(axis, int) else -1 for axis in spec.axes]
    parameter = ops.parameter(openvino.PartialShape(axes), np.dtype(spec.dtype), name=spec.name)
    parameter.output(0).set_names({spec.name})
    return parameter
