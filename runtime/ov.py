"""OpenVINO: compile settings, and its paged attention over our key-value store. Only this file and `ov_selftest.py`
import openvino.

Every setting is given, none left to a default: the engine's own differ by processor, down to bf16 and 8-bit keys and
values. Settings that were measured have the reason beside them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import op
from openvino import opset13 as ops

from mineru_edge.models.architecture import TextShape
from mineru_edge.models.bundle import (
    OV_DECODER_DATA_FILE,
    OV_DECODER_FILE,
    OV_VISION_DATA_FILE,
    OV_VISION_FILE,
    Bundle,
)
from mineru_edge.models.errors import EngineError
from mineru_edge.models.tensors import OV_BLOCK_INFO, attention_nodes

from .arrays import F32, I8, I32
from .graphs import cannot_open, run_failed
from .kv import KVStore
from .mapped import Mapped
from .private_memory import give_large_blocks_back

ENGINE = f"openvino-{openvino.__version__.partition('-')[0]}"
_CACHED_KERNELS = 32  # each is made for one shape, and pictures come in any
BLOCK_TOKENS = 32  # rows of a block of the store: what the CPU's paged attention is made for


class OvVision:
    """`graphs.VisionGraph`. With `bf16`, queries, keys and values are rounded to bf16 and the rest stays f32."""

    def __init__(self, bundle: Bundle, *, threads: int, bf16: bool) -> None:
        model = read_model(bundle, OV_VISION_FILE)
        if bf16:
            _attend_in_bf16(model)
        self._graph = _Graph(model, bundle, OV_VISION_FILE, threads)
        self._token_patches = bundle.vision.merge**2
        weights = Mapped(bundle.file(OV_VISION_DATA_FILE))
        with weights.swept():  # the first run packs them; the file's pages are not read again
            angles = np.zeros((self._token_patches, bundle.vision.rotary_width), np.float32)
            self.run(np.zeros((self._token_patches, bundle.vision.patch_values), np.float32), angles, angles)

    def run(self, patches: F32, cos: F32, sin: F32) -> F32:
        feeds = {"patches": patches, "cos": cos, "sin": sin}
        rows: F32 = self._graph.run(feeds, rows=len(patches) // self._token_patches, work=len(patches)).copy()
        self._graph.release()
        return rows


class OvDecoder:
    """`graphs.DecoderGraph`. The engine's paged attention reads and writes the store itself, which was made with blocks
    of `BLOCK_TOKENS` rows: nothing is copied."""

    row_multiple = 1

    def __init__(self, bundle: Bundle, kv: KVStore, *, threads: int) -> None:
        assert kv.block_tokens == BLOCK_TOKENS, f"blocks of {kv.block_tokens} tokens"
        model = read_model(bundle, OV_DECODER_FILE)
        _attend_to_store(model, bundle.text)
        self._graph = _Graph(model, bundle, OV_DECODER_FILE, threads)
        self._kv = kv
        for layer in range(kv.layers):
            for name, blocks in zip(_store_names(layer), kv.blocks(layer), strict=True):
                self._graph.hold(name, blocks)
        weights = Mapped(bundle.file(OV_DECODER_DATA_FILE))
        with weights.swept():
            angles = np.zeros((1, 1, bundle.text.rotary_width), np.float32)
            self.run(0, np.zeros((1, 1, bundle.text.width), np.float32), angles, angles, [0])

    def run(self, first_slot: int, embeds: F32, cos: F32, sin: F32, past_tokens: Sequence[int]) -> F32:
        batch, tokens, _ = embeds.shape
        assert batch == len(past_tokens), f"{batch} rows, {len(past_tokens)} lengths"
        assert max(past_tokens) + tokens <= self._kv.capacity_tokens, "a slot would overflow"
        ends = tokens * np.arange(batch + 1, dtype=np.int32)
        feeds: dict[str, F32 | I32] = {
            **{
                name: array.reshape(batch * tokens, -1)
                for name, array in (("embeds", embeds), ("cos", cos), ("sin", sin))
            },
            "last": ends[1:] - 1,
            "past_lens": np.asarray(past_tokens, np.int32),
            "subsequence_begins": ends,
            "max_context_len": np.asarray(max(past_tokens) + tokens, np.int32),
            **self._blocks(first_slot, [past + tokens for past in past_tokens]),
        }
        return self._graph.run(feeds, rows=batch, work=batch * tokens)

    def rest(self) -> None:
        """Its weights are packed on the heap; there is nothing that could come back from a file."""

    def _blocks(self, first_slot: int, lengths: Sequence[int]) -> dict[str, I32]:
        """Which blocks of the store hold each row, in order."""
        counts = [-(-length // BLOCK_TOKENS) for length in lengths]
        starts = [(first_slot + row) * self._kv.slot_blocks for row in range(len(counts))]
        indices = [np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)]
        return {
            "block_indices": np.concatenate(indices).astype(np.int32),
            "block_indices_begins": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        }


class _Graph:
    """One compiled graph with its request: arrays in, the one output out."""

    def __init__(self, model: openvino.Model, bundle: Bundle, name: str, threads: int) -> None:
        self._name = Path(name).stem
        self._model, self._settings = model, settings(model, threads)
        self._held: dict[str, F32 | I8] = {}
        self._compiled: Any = None
        self._request: Any = None
        give_large_blocks_back()
        try:
            self._open()
        except RuntimeError as error:
            raise unusable(bundle, name, error) from error

    def hold(self, name: str, array: F32 | I8) -> None:
        """Let input `name` be `array` itself from now on."""
        self._held[name] = array
        self._request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def run(self, feeds: Mapping[str, F32 | I32], *, rows: int, work: int) -> F32:
        """f32 [rows, outputs], in a buffer that the next run overwrites. EngineError when the engine fails."""
        try:
            if self._request is None:
                self._open()
            # Not `infer`: after a failed allocation that returns as if all was well, with the output of the run before.
            self._request.start_async(feeds, share_inputs=True)
            self._request.wait()
            output: F32 = self._request.get_output_tensor().data
        except Exception as error:  # RuntimeError, and whatever the bindings make of others
            # It leaves shapes behind with which the next run fails as well: the graph is compiled again when needed.
            self._request = self._compiled = None
            raise self._failed(work, error) from error
        assert len(output) == rows, f"{len(output)} rows, not {rows}"
        return output

    def release(self) -> None:
        """Give back what the last run took; the engine would keep it for another of the same size."""
        self._compiled.release_memory()

    def _open(self) -> None:
        self._compiled = compiled_for_cpu(self._model, self._settings)
        self._request = self._compiled.create_infer_request()
        for name, array in self._held.items():
            self.hold(name, array)

    def _failed(self, work: int, error: Exception) -> EngineError:
        no_memory = isinstance(error, MemoryError) or "alloc" in str(error)
        return run_failed(self._name, work, None if no_memory else _last_line(error))


def compiled_for_cpu(model: openvino.Model, settings: Mapping[str, Any]) -> Any:
    """RuntimeError when the engine does not take `model`."""
    # Read when the first kernel is made. With its default, 1024, memory grew by 80 MB over 240 sizes of picture.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_CACHED_KERNELS))
    return openvino.Core().compile_model(model, "CPU", settings)


def settings(model: openvino.Model, threads: int) -> dict[str, Any]:
    """Every setting that a graph is compiled with."""
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,  # the system and the cgroup say where threads may run
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        # With the blocks of the weights a product is that of the ONNX graph; 32, the default, is slower than 128.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": int(model.get_rt_info(OV_BLOCK_INFO).astype(int)),
        "CPU_DENORMALS_OPTIMIZATION": True,
        "CPU_RUNTIME_CACHE_CAPACITY": _CACHED_KERNELS,
    }


def _attend_in_bf16(model: openvino.Model) -> None:
    """Round what goes into each attention to bf16, and take its result back to f32."""
    for node in [node for node in model.get_ops() if node.get_type_name() == "ScaledDotProductAttention"]:
        readers = node.output(0).get_target_inputs()
        for place in node.inputs():
            place.replace_source_output(ops.convert(place.get_source_output(), "bf16").output(0))
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
            for name in _store_names(layer)
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


def _store_names(layer: int) -> tuple[str, str]:
    return f"key_{layer}", f"value_{layer}"


def _number(value: float, dtype: Any) -> Any:
    return ops.constant(np.asarray(value, dtype))


def _parameter(name: str, axes: Sequence[int], dtype: Any = np.int32) -> Any:
    parameter = ops.parameter(openvino.PartialShape(list(axes)), dtype, name=name)
    parameter.output(0).set_names({name})
    return parameter


def read_model(bundle: Bundle, name: str) -> openvino.Model:
    """A graph of the bundle as its file has it. EngineError when openvino cannot read it."""
    try:
        return openvino.Core().read_model(str(bundle.file(name)))
    except RuntimeError as error:
        raise unusable(bundle, name, error) from error


def unusable(bundle: Bundle, name: str, error: RuntimeError) -> EngineError:
    """What is raised for a file that openvino does not take."""
    return cannot_open(ENGINE, bundle.path / name, _last_line(error))


def _last_line(error: Exception) -> str:
    """Openvino's messages begin with where in its sources they were raised."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
