"""A graph of one matrix product, run by an engine itself."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
from numpy.typing import NDArray

from mineru_edge.export.onnx_nodes import Matrices
from mineru_edge.export.onnx_writer import GraphWriter
from mineru_edge.export.openvino_nodes import Graph
from mineru_edge.export.schemes import Scheme
from mineru_edge.models.tensors import TensorSpec
from mineru_edge.runtime.engines import has_dot_products
from mineru_edge.runtime.ort import sums_overflow
from mineru_edge.runtime.ov_models import block_of, compiled_for_cpu, multiply_in_f32, settings

X86 = platform.machine().lower() in ("x86_64", "amd64")
Floats = NDArray[np.float32]


class ProductGraph:
    """x [rows, inputs] -> x times `matrix` [outputs, inputs] plus `bias`, by the node of `scheme`; lies in `folder`."""

    def __init__(self, folder: Path, scheme: Scheme, matrix: Floats, bias: Floats | None = None) -> None:
        outputs, inputs = matrix.shape
        with GraphWriter(folder / "product.onnx") as graph:
            Matrices(graph, {"m": scheme}).product("m", "x", matrix, bias, output="y")
            graph.save((_rows("x", inputs),), (_rows("y", outputs),))
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "1" if sums_overflow() else "0")
        self._session = onnxruntime.InferenceSession(
            folder / "product.onnx", options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, x: Floats) -> Floats:
        (y,) = self._session.run(None, {"x": x})
        return np.asarray(y)


class OpenVinoProduct:
    """The same, in OpenVINO, with the settings that the runtime gives it."""

    def __init__(self, folder: Path, scheme: Scheme, matrix: Floats, bias: Floats | None = None) -> None:
        outputs, inputs = matrix.shape
        graph = Graph((_rows("x", inputs),), {}, {"m": scheme})  # type: ignore[arg-type]  # it reads no weights
        graph.save(folder / "product.xml", graph.product("m", graph.input("x"), matrix, bias), _rows("y", outputs))
        model = openvino.Core().read_model(folder / "product.xml")
        if X86 and not has_dot_products():
            multiply_in_f32(model)
        self._request = compiled_for_cpu(model, settings(1, block=block_of(model))).create_infer_request()

    def __call__(self, x: Floats) -> Floats:
        self._request.start_async({"x": x})
        self._request.wait()
        return np.array(self._request.get_output_tensor().data)


def _rows(name: str, size: int) -> TensorSpec:
    return TensorSpec(name, ("rows", size), "float32")
