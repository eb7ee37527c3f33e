"""OpenVINO: what is compiled, and how. Settings, the attention that the engine is given, and vision kept as compiled.

Every setting is given, none left to a default: the engine's own differ by processor, down to bf16 and 8-bit keys and
values. Settings that were measured have the reason beside them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import op
from openvino import opset13 as ops

from mineru_edge.models.architecture import TextShape
from mineru_edge.models.bundle import OV_DECODER_FILE, OV_VISION_DATA_FILE, OV_VISION_FILE, Bundle
from mineru_edge.models.tensors import OV_BLOCK_INFO, attention_nodes

from . import prepared
from .engines import GraphName, has_dot_products
from .graphs import cannot_open

ENGINE = f"openvino-{openvino.__version__.partition('-')[0]}"
BLOCK_TOKENS = 32  # rows of a block of the store: what the CPU's paged attention is made for
_CACHED_KERNELS = 32  # each is made for one shape, and pictures come in any
_IR_START = b"<?xml"
_COMPILED_FILE = "compiled.blob"
_WITHOUT_WEIGHTS = {"CACHE_MODE": "OPTIMIZE_SIZE"}


@dataclass(frozen=True, slots=True)
class Source:
    """`compiled` makes the graph out of `file`, any number of times; RuntimeError when the engine does not take it."""

    file: Path
    compiled: Callable[[], Any]


def vision_source(bundle: Bundle, *, threads: int, bf16: bool) -> Source:
    """As it was kept when compiled, if it was. With `bf16` its attention multiplies bf16 numbers."""
    chosen = settings(threads)
    ready = prepared.find(bundle, _vision_engine(bundle, bf16), OV_VISION_FILE)
    if ready is None:
        model = _vision_model(bundle, bf16)
        return Source(bundle.file(OV_VISION_FILE), lambda: compiled_for_cpu(model, chosen))
    file = ready / _COMPILED_FILE
    blob = openvino.Tensor(np.fromfile(file, np.uint8), shared_memory=True)  # the graph goes on reading from it
    chosen |= {**_WITHOUT_WEIGHTS, "WEIGHTS_PATH": str(bundle.file(OV_VISION_DATA_FILE).absolute())}
    return Source(file, lambda: _core().import_model(blob, "CPU", chosen))


def decoder_source(bundle: Bundle, *, threads: int) -> Source:
    """Its attention is over the key-value store, whose blocks are inputs called as `store_names` says."""
    model = read_model(bundle, OV_DECODER_FILE)
    file = bundle.file(OV_DECODER_FILE)
    wrong = _codes_go_wrong(bundle, "decoder")
    with usable(file):
        chosen = settings(threads, block=0 if wrong else block_of(model))
        if wrong:
            multiply_in_f32(model)
        _attend_to_store(model, bundle.text)
    return Source(file, lambda: compiled_for_cpu(model, chosen))


def prepare_vision(bundle: Bundle, *, bf16: bool) -> Path:
    """Keep vision as the engine compiles it, without the weights; it is taken from then on. The folder it lies in.

    SpaceError when it cannot be written, EngineError when the bundle's cannot be opened. There is no such thing for the
    decoder: what the paged attention needs to know of the store is lost on the way to a file.
    """

    def write(folder: Path) -> None:
        with usable(bundle.file(OV_VISION_FILE)):
            compiled = compiled_for_cpu(_vision_model(bundle, bf16), settings(1) | _WITHOUT_WEIGHTS)
            blob = compiled.export_model().getvalue()
        (folder / _COMPILED_FILE).write_bytes(blob)

    return prepared.prepare(bundle, _vision_engine(bundle, bf16), OV_VISION_FILE, write)


def read_model(bundle: Bundle, name: str) -> openvino.Model:
    """A graph of the bundle as its file has it. EngineError when openvino cannot read it."""
    file = bundle.file(name)
    with usable(file):
        with file.open("rb") as stream:
            if stream.read(len(_IR_START)) != _IR_START:
                raise RuntimeError("it is no IR")  # openvino would try its other readers, and one prints the whole file
        return _core().read_model(str(file))


def compiled_for_cpu(model: openvino.Model, chosen: Mapping[str, Any]) -> Any:
    """RuntimeError when the engine does not take `model`."""
    return _core().compile_model(model, "CPU", dict(chosen))


def block_of(model: openvino.Model) -> int:
    """Inputs that share a scale of the weights; 0 where activations are rounded by rows or not at all."""
    return int(model.get_rt_info(OV_BLOCK_INFO).astype(int))


def settings(threads: int, *, block: int = 0) -> dict[str, Any]:
    """Every setting that a graph with such blocks is compiled with."""
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,  # the system and the cgroup say where threads may run
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        # With the blocks of the weights a product is that of the ONNX graph; 32, the default, is slower than 128.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": block,
        "CPU_DENORMALS_OPTIMIZATION": True,
        "CPU_RUNTIME_CACHE_CAPACITY": _CACHED_KERNELS,
    }


def store_names(layer: int) -> tuple[str, str]:
    """The inputs that are a layer's keys and values in the store."""
    return f"key_{layer}", f"value_{layer}"


@contextmanager
def usable(file: Path) -> Iterator[None]:
    """What goes wrong in here with a graph is an EngineError that names its file."""
    try:
        yield
    except KeyError as error:
        raise cannot_open(ENGINE, file, f"it has no node {error}") from error
    except (RuntimeError, OSError) as error:
        raise cannot_open(ENGINE, file, last_line(error)) from error


def last_line(error: Exception) -> str:
    """Openvino's messages begin with where in its sources they were raised."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _core() -> openvino.Core:
    # Read when the first kernel is made. With its default, 1024, memory grew by 80 MB over 240 sizes of picture.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_CACHED_KERNELS))
    return openvino.Core()


def _vision_engine(bundle: Bundle, bf16: bool) -> str:
    unrounded = "-unrounded" if _codes_go_wrong(bundle, "vision") else ""
    return f"{ENGINE}-{'centred-bf16' if bf16 else 'f32'}{unrounded}"


def _vision_model(bundle: Bundle, bf16: bool) -> openvino.Model:
    model = read_model(bundle, OV_VISION_FILE)
    if bf16:
        _attend_in_bf16(model)
    if _codes_go_wrong(bundle, "vision"):
        multiply_in_f32(model)
    return model


def _codes_go_wrong(bundle: Bundle, graph: GraphName) -> bool:
    """Whether products of `graph` whose activations are rounded to 8 bits come out wrong on this processor."""
    if has_dot_products():
        return False
    from .ov_selftest import kernels  # which compiles with what is here

    return kernels(bundle, graph) == "wrong"


def multiply_in_f32(model: openvino.Model) -> None:
    """Let no activation be rounded. The engine then unpacks the 8-bit weights as it multiplies, in the same memory."""
    for node in [node for node in model.get_ops() if node.get_type_name() == "FakeQuantize"]:
        node.output(0).replace(node.input_value(0))
    model.validate_nodes_and_infer_types()


def _attend_in_bf16(model: openvino.Model) -> None:
    """Round what goes into each attention to bf16, and take its result back to f32.

    Keys go in without their mean over the patches, which moves all scores of a query alike and so none of its weights:
    what is left of them is smaller, and so are its roundings (SageAttention, Zhang et al. 2024).
    """
    for node in [node for node in model.get_ops() if node.get_type_name() == "ScaledDotProductAttention"]:
        readers = node.output(0).get_target_inputs()
        query, key, value = (place.get_source_output() for place in node.inputs())
        centre = ops.reduce_mean(key, ops.constant(np.asarray([-2])), keep_dims=True)
        given = query, ops.subtract(key, centre).output(0), value
        for place, each in zip(node.inputs(), given, strict=True):
            place.replace_source_output(ops.convert(each, "bf16").output(0))
        node.validate_and_infer_types()
        wide = ops.convert(node.output(0), "f32").output(0)
        for reader in readers:
            reader.replace_source_output(wide)
    model.validate_nodes_and_infer_types()


def _attend_to_store(model: openvino.Model, text: TextShape) -> None:
    """Put the engine's paged attention over the store where the file has attention among the tokens of one run."""
    nodes = {node.get_friendly_name(): node for node in model.get_ops()}
    lengths = {
        name: _parameter(name, [-1])
        for name in ("past_lens", "subsequence_begins", "block_indices", "block_indices_begins")
    }
    longest = _parameter("max_context_len", [])
    added = [*lengths.values(), longest]
    for layer in range(text.layers):
        names = attention_nodes(layer)
        store = [
            _parameter(name, [-1, text.kv_heads, BLOCK_TOKENS, text.head_dim], np.float32)
            for name in store_names(layer)
        ]
        given = [*(nodes[name] for name in (names.query, names.key, names.value)), *store, *lengths.values()]
        paged = _paged_attention(given, longest, text.head_dim**-0.5)
        heads = {"num_k_heads": text.kv_heads, "num_v_heads": text.kv_heads}
        for fact, value in {**heads, "k_head_size": text.head_dim, "v_head_size": text.head_dim}.items():
            paged.rt_info[fact] = value
        for reader in nodes[names.mixed].output(0).get_target_inputs():
            reader.replace_source_output(paged.output(0))
        added += store
    model.add_parameters(added)
    model.validate_nodes_and_infer_types()


def _paged_attention(given: Sequence[Any], longest: Any, scale: float) -> Any:
    """The engine's operation with everything left out that we do not use. Its inputs differ between releases."""
    none, no_bytes, zero = (
        ops.constant(np.zeros(0, np.int32)),
        ops.constant(np.zeros(0, np.uint8)),
        _number(0, np.int32),
    )
    no_floats, no_table = ops.constant(np.zeros(0, np.float32)), ops.constant(np.zeros((0, 0), np.int32))
    inputs = [
        *given, _number(scale, np.float32),
        zero, no_floats, longest,  # sliding window, ALiBi slopes, longest sequence
        none,  # score aggregation
        none, no_table, ops.constant(np.zeros((0, 0), np.float32)),  # rotation of blocks
        no_floats, zero, zero,  # sparse attention
        no_floats,  # sinks
        zero, none, none, none,  # eviction
        none,  # token types
        no_bytes, none,  # tree masks
    ]  # fmt: skip
    return op._PagedAttentionExtension([node.output(0) for node in inputs])


def _number(value: float, dtype: Any) -> Any:
    return ops.constant(np.asarray(value, dtype))


def _parameter(name: str, axes: Sequence[int], dtype: Any = np.int32) -> Any:
    parameter = ops.parameter(openvino.PartialShape(list(axes)), dtype, name=name)
    parameter.output(0).set_names({name})
    return parameter
