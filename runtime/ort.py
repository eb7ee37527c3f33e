"""ONNX Runtime: session settings, and buffers bound in place. The only file that imports onnxruntime.

Every setting here was measured; the reason stands beside it.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from mineru_edge.models.bundle import (
    DECODER_DATA_FILE,
    DECODER_FILE,
    DECODER_KV8_FILE,
    VISION_DATA_FILE,
    VISION_FILE,
    Bundle,
    KVKind,
)
from mineru_edge.models.errors import EngineError
from mineru_edge.models.tensors import ROW_MULTIPLE

from . import prepared
from .arrays import F32, I8
from .graphs import cannot_open, run_failed
from .kv import KVStore
from .mapped import Mapped
from .private_memory import give_large_blocks_back

_ERRORS_ONLY = 3
_NO_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory")
_PACKED_FILE, _PACKED_DATA_FILE = "packed.onnx", "packed.data"
DECODER_GRAPHS: dict[KVKind, str] = {"fp32": DECODER_FILE, "int8": DECODER_KV8_FILE}
ENGINE = f"onnxruntime-{onnxruntime.__version__}"
# A file, as the runtime has nothing to write one with: y i32 = MatMulInteger(a u8 [rows, k], b i8 [k, columns]).
PRODUCT = base64.b64decode(
    "CAg6UAoYCgFhCgFiEgF5Ig1NYXRNdWxJbnRlZ2VyEgFnWg8KAWESCgoICAISBAoA"
    "CgBaDwoBYhIKCggIAxIECgAKAGIPCgF5EgoKCAgGEgQKAAoAQgQKABAN"
)


class OrtVision:
    """`graphs.VisionGraph`."""

    def __init__(self, bundle: Bundle, *, threads: int) -> None:
        give_large_blocks_back()
        options = _options(threads)
        ready = prepared.find(bundle, _engine(), VISION_FILE)
        if ready is None:
            # The int8 weights then stay mapped from the file, evictable; packed they would be on the heap once more.
            options.add_session_config_entry("session.disable_prepacking", "1")
        # Planned reuse holds a buffer for its next user, blocks later: 624 MB for a page. An arena emptied after every
        # run takes 353 MB in the same time; no arena 253 MB and, with its pages faulted in anew, a third longer.
        options.enable_mem_reuse = False
        options.enable_cpu_mem_arena = True
        self._session = _open(bundle.file(VISION_FILE) if ready is None else ready / _PACKED_FILE, options)
        self._run_options = onnxruntime.RunOptions()
        self._run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._weights = Mapped(bundle.file(VISION_DATA_FILE) if ready is None else ready / _PACKED_DATA_FILE)
        self._weights.drop()  # opening reads all of a packed file

    def run(self, patches: F32, cos: F32, sin: F32) -> F32:
        try:
            feeds = {"patches": patches, "cos": cos, "sin": sin}
            with self._weights.swept():
                (embeds,) = self._session.run(["embeds"], feeds, self._run_options)
        except Exception as error:  # onnxruntime's exceptions share no base but Exception
            raise _failed("vision", len(patches), error) from error
        rows: F32 = embeds
        return rows


class OrtDecoder:
    """`graphs.DecoderGraph`. Past and present of a layer are one buffer, a view of the store: nothing is copied."""

    def __init__(self, bundle: Bundle, kv: KVStore, *, threads: int) -> None:
        give_large_blocks_back()
        # Pre-packing stays on: without it MatMulNBits falls back to dequantising.
        graph = DECODER_GRAPHS[kv.kind]
        ready = prepared.find(bundle, _engine(), graph)
        file = bundle.file(graph) if ready is None else ready / _PACKED_FILE
        self._session = _open(file, _options(threads))
        self._weights = Mapped(bundle.file(DECODER_DATA_FILE) if ready is None else ready / _PACKED_DATA_FILE)
        self._weights.drop()
        self.row_multiple = int(self._session.get_modelmeta().custom_metadata_map.get(ROW_MULTIPLE, 2))
        self._text = bundle.text
        self._kv = kv
        self._logits: F32 = np.empty((kv.slots + kv.slots % 2, 1, bundle.text.vocab), np.float32)
        self._steps: dict[tuple[int, int], _Bound] = {}

    def run(self, first_slot: int, embeds: F32, cos: F32, sin: F32, past_tokens: Sequence[int]) -> F32:
        batch, tokens, _ = embeds.shape
        assert batch == len(past_tokens), f"{batch} rows, {len(past_tokens)} lengths"
        assert max(past_tokens) + tokens <= self._kv.capacity_tokens, "a slot would overflow"
        bound = self._steps.get((first_slot, batch)) if tokens == 1 else None
        if bound is None:
            bound = self._bind(first_slot, batch, tokens)
        try:
            return bound.run(embeds, cos, sin, past_tokens)
        except Exception as error:  # see OrtVision.run
            raise _failed("decoder", batch * tokens, error) from error

    def rest(self) -> None:
        self._weights.drop()

    def _bind(self, first_slot: int, batch: int, tokens: int) -> _Bound:
        """Buffers for one shape of run. Those of single steps are kept: a step then only fills numbers in."""
        bound = _Bound(self._session, self._text.width, self._text.rotary_width, batch, tokens)
        for layer in range(self._kv.layers):
            for kind, view in zip(("key", "value"), self._kv.views(layer, first_slot, batch), strict=True):
                bound.bind(f"past_{kind}_{layer}", f"present_{kind}_{layer}", view)
        bound.bind_logits(self._logits[:batch])
        if tokens == 1:
            self._steps[first_slot, batch] = bound
        return bound


class _Bound:
    """One IOBinding with the arrays behind it."""

    def __init__(
        self, session: onnxruntime.InferenceSession, width: int, rotary_width: int, batch: int, tokens: int
    ) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._outputs: list[F32 | I8] = []
        self._checked = False
        self._embeds: F32 = np.empty((batch, tokens, width), np.float32)
        self._cos: F32 = np.empty((batch, tokens, rotary_width), np.float32)
        self._sin: F32 = np.empty((batch, tokens, rotary_width), np.float32)
        self._last = np.empty(batch, np.int32)
        self._total = np.empty((), np.int32)
        inputs = {
            "embeds": self._embeds,
            "cos": self._cos,
            "sin": self._sin,
            "seqlens_k": self._last,
            "total_sequence_length": self._total,
        }
        for name, array in inputs.items():
            self._binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))

    def bind(self, source: str | None, target: str, array: F32 | I8) -> None:
        """Let output `target`, and input `source` if given, be `array` itself."""
        assert array.flags.c_contiguous, f"{target} is not contiguous"
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        if source is not None:
            self._binding.bind_ortvalue_input(source, value)
        self._binding.bind_ortvalue_output(target, value)
        self._outputs.append(array)

    def bind_logits(self, array: F32) -> None:
        self._logits = array
        self.bind(None, "logits", array)

    def run(self, embeds: F32, cos: F32, sin: F32, past_tokens: Sequence[int]) -> F32:
        self._embeds[...], self._cos[...], self._sin[...] = embeds, cos, sin
        self._last[...] = past_tokens
        self._last += embeds.shape[1] - 1
        self._total[...] = self._last.max() + 1
        self._session.run_with_iobinding(self._binding)
        if not self._checked:
            self._check_in_place()
        return self._logits[:, 0]

    def _check_in_place(self) -> None:
        """The engine could have answered elsewhere, and the store would silently stay empty."""
        for array, value in zip(self._outputs, self._binding.get_outputs(), strict=True):
            if value.data_ptr() != array.ctypes.data:
                raise EngineError("the engine does not write into the buffers it was given", hint="report this")
        self._checked = True


def prepare_vision(bundle: Bundle) -> Path:
    """Write the graph with its weights packed for this processor; it is taken from then on. The folder it lies in.

    SpaceError when it cannot be written, EngineError when the bundle's cannot be opened.
    """
    return _prepare(bundle, VISION_FILE)


def prepare_decoder(bundle: Bundle, kv: KVKind) -> Path:
    """As `prepare_vision`, for the decoder over that store."""
    return _prepare(bundle, DECODER_GRAPHS[kv])


def _prepare(bundle: Bundle, graph: str) -> Path:
    def write(folder: Path) -> None:
        options = _options(1)
        options.optimized_model_filepath = str(folder / _PACKED_FILE)
        for key, value in (
            ("session.save_external_prepacked_constant_initializers", "1"),
            ("session.optimized_model_external_initializers_file_name", _PACKED_DATA_FILE),
            ("session.optimized_model_external_initializers_min_size_in_bytes", "1024"),
        ):
            options.add_session_config_entry(key, value)
        _open(bundle.file(graph), options)

    return prepared.prepare(bundle, _engine(), graph, write)


def is_prepared(bundle: Bundle, kv: KVKind) -> bool:
    return prepared.find(bundle, _engine(), DECODER_GRAPHS[kv]) is not None


def copies_vision(bundle: Bundle) -> bool:
    """Whether `OrtVision` holds its weights as u8 on the heap instead of mapped, see `_options`."""
    rounded = bundle.precision.vision == "int8"
    return rounded and sums_overflow() and prepared.find(bundle, _engine(), VISION_FILE) is None


@functools.cache
def sums_overflow() -> bool:
    """Whether the engine's products of u8 and i8 go wrong on this processor, by a product of the largest codes.

    Where x86 has no 8-bit dot products two products are added in 16 bits, and the sum is cut off at 32,767.
    """
    largest = {"a": np.full((2, 2), 255, np.uint8), "b": np.full((2, 1), 127, np.int8)}
    session = onnxruntime.InferenceSession(PRODUCT, _plain_options(1), providers=["CPUExecutionProvider"])
    (sums,) = session.run(None, largest)
    return bool((sums != 2 * 255 * 127).any())


def _engine() -> str:
    """What prepared weights are named after."""
    return f"{ENGINE}-u8" if sums_overflow() else ENGINE


def _options(threads: int) -> onnxruntime.SessionOptions:
    options = _plain_options(threads)
    if sums_overflow():
        # The engine makes the weights u8 around 128, for which its kernels add in 32 bits: right sums, 1.3 to 1.5 times
        # the time. With 8-bit dot products it would do the same, and give their speed away.
        options.add_session_config_entry("session.x64quantprecision", "1")
    # Requests differ in size: arena and pattern planner would keep the worst case of each for ever.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # an idle appliance stays idle
    return options


def _plain_options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return options


def _open(path: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # see OrtVision.run
        raise cannot_open(f"onnxruntime {onnxruntime.__version__}", path, str(error)) from error


def _failed(graph: str, rows: int, error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    no_memory = isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY)
    return run_failed(graph, rows, None if no_memory else str(error))
