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
from .schemes import BITS, BLOCKS, Scheme

Floats = NDArray[np.float32]

LEAST_SCALE = np.float32(1e-30)  # a row of zeros gets this scale instead of dividing by 0
_MIDDLE = 128  # the code of 0


class Weights(Protocol):
    """Where the weights come from: the checkpoint, or a test."""

    def read(self, name: str) -> Floats:
        """The tensor of that published name as f32."""
        ...


class Matrices:
    """Adds matrix products to one graph, each by the scheme that the table says."""

    def __init__(self, graph: GraphWriter, schemes: Mapping[str, Scheme], *, may_pack: bool = True) -> None:
        """With `may_pack` false f32 products come out the same to the last bit whether the engine packs weights or not.

        8-bit ones always do; a packed f32 one sums in another order. Then x has to be [rows, inputs].
        """
        self._may_pack = may_pack
        self._graph = graph
        self._schemes = schemes

    def product(
        self, name: str, x: str, matrix: Floats, bias: Floats | None = None, *, output: str | None = None
    ) -> str:
        """x [..., inputs] f32 times `matrix` [outputs, inputs] plus `bias` [outputs] -> [..., outputs] f32.

        The result is called `output`, or as the matrix.
        """
        return self.products(name, x, {output or name: (matrix, bias)})[0]

    def products(self, name: str, x: str, parts: Mapping[str, tuple[Floats, Floats | None]]) -> list[str]:
        """Several matrices over the same x, stored by the scheme of `name`: {name of the result: (matrix, bias)}.

        x is brought to 8 bits once. They are not packed into one matrix: taking its result apart costs a copy of it.
        """
        scheme = self._schemes[name]
        if scheme == "w8a8_token":
            codes, scale = self._coded(name, x)
            return [self._w8a8_token(codes, scale, matrix, bias, output) for output, (matrix, bias) in parts.items()]
        if scheme == "fp32":
            return [self._fp32(x, matrix, bias, output) for output, (matrix, bias) in parts.items()]
        return [self._blocks(scheme, x, matrix, bias, output) for output, (matrix, bias) in parts.items()]

    def _fp32(self, x: str, matrix: Floats, bias: Floats | None, output: str) -> str:
        weight = self._graph.weight(f"{output}.weight", matrix.T)
        inner = _inner(output, bias)
        if self._may_pack:
            y = self._graph.node("MatMul", [x, weight], inner)
        else:
            y = self._graph.node("Einsum", [x, weight], inner, equation="ri,io->ro")
        return self._biased(y, bias, output)

    def _coded(self, name: str, x: str) -> tuple[str, str]:
        """8-bit codes of each row of x around 128, and what its products are to be multiplied with."""
        # One scale per row, not per tensor: with one for all, an outlier row ruins the others and rows depend on
        # their neighbours. The zero point 128 turns the symmetric codes into the u8 that the integer kernel wants.
        graph = self._graph
        size = graph.node("Abs", [x], f"{name}.abs")
        size = graph.node("ReduceMax", [size, graph.constant([-1], "int64")], f"{name}.largest", keepdims=1)
        size = graph.node("Mul", [size, graph.constant(np.float32(1 / 127), "float32")], f"{name}.step")
        scale = graph.node("Max", [size, graph.constant(LEAST_SCALE, "float32")], f"{name}.scale")
        scaled = graph.node("Div", [x, scale], f"{name}.scaled")
        # The engine's own QuantizeLinear: release 1.23 lacks the standard one of this opset.
        given = [scaled, graph.constant(1.0, "float32"), graph.constant(_MIDDLE, "uint8")]
        return graph.node("QuantizeLinear", given, f"{name}.codes", contrib=True), scale

    def _w8a8_token(self, codes: str, scale: str, matrix: Floats, bias: Floats | None, output: str) -> str:
        graph = self._graph
        values, scales = quantize.columns(matrix)
        given = [
            codes,
            graph.weight(f"{output}.weight", values),
            graph.constant(1.0, "float32"),
            graph.weight(f"{output}.steps", scales),
            graph.constant(_MIDDLE, "uint8"),
        ]
        y = graph.node("MatMulIntegerToFloat", given, f"{output}.integer", contrib=True)
        return self._biased(graph.node("Mul", [y, scale], _inner(output, bias)), bias, output)

    def _biased(self, y: str, bias: Floats | None, output: str) -> str:
        return y if bias is None else self._graph.node("Add", [y, self._graph.weight(f"{output}.bias", bias)], output)

    def _blocks(self, scheme: Scheme, x: str, matrix: Floats, bias: Floats | None, output: str) -> str:
        graph, block, bits = self._graph, BLOCKS[scheme], BITS[scheme]
        outputs, inputs = matrix.shape
        codes, scales = (quantize.blocks if bits == 8 else quantize.blocks4)(matrix, block)
        given = [x, graph.weight(f"{output}.weight", codes), graph.weight(f"{output}.scales", scales)]
        if bias is not None:
            given += ["", "", graph.weight(f"{output}.bias", bias)]
        # accuracy_level 4 is the integer kernel; without it the weights are unpacked to f32 on every run.
        return graph.node("MatMulNBits", given, output, contrib=True,
                          K=inputs, N=outputs, bits=bits, block_size=block, accuracy_level=4)  # fmt: skip


def _inner(output: str, bias: Floats | None) -> str:
    """The name of a product to which a bias may still be added."""
    return output if bias is None else f"{output}.product"


def layer_norm(graph: GraphWriter, name: str, x: str, weights: Weights, epsilon: float) -> str:
    """LayerNormalization over the last axis with the checkpoint's `name`.weight and .bias."""
    scale, shift = _norm(graph, name, weights)
    return graph.node("LayerNormalization", [x, scale, shift], name, axis=-1, epsilon=epsilon)


def skip_norm(
    graph: GraphWriter, name: str, x: str, skip: str, bias: Floats, weights: Weights, epsilon: float
) -> tuple[str, str]:
    """As `layer_norm`, of x + bias + skip; also gives that sum. One pass over the rows where three nodes take three."""
    given = [x, skip, *_norm(graph, name, weights), graph.weight(f"{name}.skip.bias", bias)]
    outputs = [name, "", "", f"{name}.sum"]
    graph.nodes("SkipLayerNormalization", given, outputs, contrib=True, epsilon=epsilon)
    return name, f"{name}.sum"


def _norm(graph: GraphWriter, name: str, weights: Weights) -> tuple[str, str]:
    """The scale and the shift of a norm."""
    scale, shift = (graph.weight(f"{name}.{part}", weights.read(f"{name}.{part}")) for part in ("weight", "bias"))
    return scale, shift
