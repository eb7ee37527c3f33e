"""The few node patterns both graphs share: a matrix product by scheme, rotation, norms.

Everything here works on each row by itself: a row gives the same result alone and in a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from . import quantize
from .onnx_writer import GraphWriter
from .schemes import BLOCKS, Scheme

Floats = NDArray[np.float32]

_TINY = np.float32(1e-30)  # a row of zeros gets this scale instead of dividing by 0


class Weights(Protocol):
    """Where the weights come from: the checkpoint, or a test."""

    def read(self, name: str) -> Floats:
        """The tensor of that published name as f32."""
        ...


class Matrices:
    """Adds matrix products to one graph, each by the scheme that the table says."""

    def __init__(self, graph: GraphWriter, schemes: Mapping[str, Scheme]) -> None:
        self._graph = graph
        self._schemes = schemes

    def product(
        self, name: str, x: str, matrix: Floats, bias: Floats | None = None, *, output: str | None = None
    ) -> str:
        """x [..., inputs] f32 times `matrix` [outputs, inputs] plus `bias` [outputs] -> [..., outputs] f32.

        The result is called `output`, or as the matrix.
        """
        scheme, output = self._schemes[name], output or name
        if scheme in BLOCKS:
            return self._blocks(name, x, matrix, bias, output, BLOCKS[scheme])
        inner = output if bias is None else f"{name}.product"
        if scheme == "fp32":
            weight = self._graph.weight(f"{name}.weight", matrix.T)
            y = self._graph.node("MatMul", [x, weight], inner)
        else:
            assert scheme == "w8a8_token", f"{name} cannot be {scheme}"
            y = self._w8a8_token(name, x, matrix, inner)
        return y if bias is None else self._graph.node("Add", [y, self._graph.weight(f"{name}.bias", bias)], output)

    def _w8a8_token(self, name: str, x: str, matrix: Floats, output: str) -> str:
        # One scale per row, not per tensor: with one for all, an outlier row ruins the others and rows depend on
        # their neighbours. The zero point 128 turns the symmetric codes into the u8 that the integer kernel wants.
        graph = self._graph
        one, middle = graph.constant(1.0, "float32"), graph.constant(128, "uint8")
        size = graph.node("Abs", [x], f"{name}.abs")
        size = graph.node("ReduceMax", [size, graph.constant([-1], "int64")], f"{name}.largest", keepdims=1)
        size = graph.node("Mul", [size, graph.constant(np.float32(1 / 127), "float32")], f"{name}.step")
        scale = graph.node("Max", [size, graph.constant(_TINY, "float32")], f"{name}.scale")
        codes = graph.node("Div", [x, scale], f"{name}.scaled")
        # The engine's own QuantizeLinear: release 1.23 lacks the standard one of this opset.
        codes = graph.node("QuantizeLinear", [codes, one, middle], f"{name}.codes", contrib=True)
        values, scales = quantize.columns(matrix)
        weight, steps = graph.weight(f"{name}.weight", values), graph.weight(f"{name}.steps", scales)
        y = graph.node("MatMulIntegerToFloat", [codes, weight, one, steps, middle], f"{name}.integer", contrib=True)
        return graph.node("Mul", [y, scale], output)

    def _blocks(self, name: str, x: str, matrix: Floats, bias: Floats | None, output: str, block: int) -> str:
        graph = self._graph
        outputs, inputs = matrix.shape
        codes, scales = quantize.blocks(matrix, block)
        given = [x, graph.weight(f"{name}.weight", codes), graph.weight(f"{name}.scales", scales)]
        if bias is not None:
            given += ["", "", graph.weight(f"{name}.bias", bias)]
        # accuracy_level 4 is the integer kernel; without it the weights are unpacked to f32 on every run.
        return graph.node("MatMulNBits", given, output, contrib=True,
                          K=inputs, N=outputs, bits=8, block_size=block, accuracy_level=4)  # fmt: skip


def layer_norm(graph: GraphWriter, name: str, x: str, weights: Weights, epsilon: float) -> str:
    """LayerNormalization over the last axis with the checkpoint's `name`.weight and .bias."""
    scale = graph.weight(f"{name}.weight", weights.read(f"{name}.weight"))
    shift = graph.weight(f"{name}.bias", weights.read(f"{name}.bias"))
    return graph.node("LayerNormalization", [x, scale, shift], name, axis=-1, epsilon=epsilon)
