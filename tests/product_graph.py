"""A graph of one matrix product, run by the engine itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from mineru_edge.export.onnx_nodes import Matrices
from mineru_edge.export.onnx_writer import GraphWriter
from mineru_edge.export.schemes import Scheme
from mineru_edge.models.tensors import TensorSpec

Floats = NDArray[np.float32]


class ProductGraph:
    """x [rows, inputs] -> x times `matrix` [outputs, inputs] plus `bias`, by the node of `scheme`; lies in `folder`."""

    def __init__(self, folder: Path, scheme: Scheme, matrix: Floats, bias: Floats | None = None) -> None:
        outputs, inputs = matrix.shape
        with GraphWriter(folder / "product.onnx") as graph:
            Matrices(graph, {"m": scheme}).product("m", "x", matrix, bias, output="y")
            x, y = (TensorSpec(name, ("rows", size), "float32") for name, size in (("x", inputs), ("y", outputs)))
            graph.save((x,), (y,))
        self._session = onnxruntime.InferenceSession(folder / "product.onnx", providers=["CPUExecutionProvider"])

    def __call__(self, x: Floats) -> Floats:
        (y,) = self._session.run(None, {"x": x})
        return np.asarray(y)
