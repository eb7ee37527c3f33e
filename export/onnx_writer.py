"""Writes one ONNX graph node by node, its weights streamed into one file beside it.

What is here: names, initialisers, the external data file. What the nodes mean is in `onnx_nodes.py` and the graph
files. A weight leaves the process as soon as it is added, so that a graph of any size needs the memory of its largest
tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from mineru_edge.models.tensors import TensorSpec

OPSET = 23  # the first with RotaryEmbedding
CONTRIB = "com.microsoft"
ALIGN_BYTES = 4096  # a weight starts on a page, so that the engine can map it
INLINE_BYTES = 4096  # smaller ones lie in the .onnx file; a page each would be mostly padding

_ELEMENT = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8,
            "int32": TensorProto.INT32, "int64": TensorProto.INT64}  # fmt: skip


class GraphWriter:
    """A graph being written to `path` and its weights to the `.data` file beside it.

    A context manager: the data file is closed on the way out, whether `save` was reached or not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, str] = {}  # go into the graph file, for the engine to read
        self._data_path = path.with_suffix(".data")
        self._data: BinaryIO = self._data_path.open("wb")
        self._nodes: list[Any] = []
        self._initialisers: list[Any] = []
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], str] = {}
        self._names: set[str] = set()

    def __enter__(self) -> GraphWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()

    def node(self, operator: str, inputs: Sequence[str], name: str, *, contrib: bool = False, **attributes: Any) -> str:
        """Add a node with one output, which bears the node's name; returns that name."""
        return self.nodes(operator, inputs, [name], contrib=contrib, **attributes)[0]

    def nodes(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], *, contrib: bool = False, **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs; an empty name leaves an optional input or output out."""
        for name in filter(None, outputs):
            assert name not in self._names, f"two values are called {name}"
            self._names.add(name)
        name, domain = next(filter(None, outputs)), CONTRIB if contrib else ""
        self._nodes.append(helper.make_node(operator, inputs, outputs, name=name, domain=domain, **attributes))
        return list(outputs)

    def constant(self, values: Any, dtype: str) -> str:
        """A small constant; equal ones share one initialiser."""
        array = np.asarray(values, dtype=dtype)
        key = (dtype, array.tobytes(), array.shape)
        if key not in self._constants:
            self._constants[key] = self.weight(f"constant_{len(self._constants)}", array)
        return self._constants[key]

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """Add an initialiser; from `INLINE_BYTES` up its bytes go straight to the data file."""
        assert name not in self._names, f"two values are called {name}"
        self._names.add(name)
        array = np.ascontiguousarray(array)
        tensor = TensorProto(name=name, data_type=_ELEMENT[array.dtype.name], dims=array.shape)
        if array.nbytes < INLINE_BYTES:
            tensor.raw_data = array.tobytes()
        else:
            self._data.seek(-self._data.tell() % ALIGN_BYTES, 1)
            facts = {"location": self._data_path.name, "offset": self._data.tell(), "length": array.nbytes}
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in facts.items():
                tensor.external_data.add(key=key, value=str(value))
            self._data.write(array.data)
        self._initialisers.append(tensor)
        return name

    def save(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Write the graph file; the data file is complete by then."""
        self._data.close()
        graph = helper.make_graph(
            self._nodes, self.path.stem, [_value(s) for s in inputs], [_value(s) for s in outputs], self._initialisers
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, producer_name="mineru-edge", opset_imports=opsets, ir_version=10)
        helper.set_model_props(model, self.facts)
        onnx.save(model, str(self.path))


def _value(spec: TensorSpec) -> Any:
    return helper.make_tensor_value_info(spec.name, _ELEMENT[spec.dtype], list(spec.axes))
