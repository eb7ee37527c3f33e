"""What the runtime asks of an inference engine, and the one place that opens engines.

Two graphs, two questions. The decoder is asked in terms of slots, not of tensors, because engines hold the key-value
store differently: one takes it whole and in place, another takes slices and gives rows back.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from mineru_edge.models.bundle import Bundle, KVKind
from mineru_edge.models.errors import EngineError

from .arrays import F32
from .engines import AUTO, INSTALL, ONNXRUNTIME, Engines, choose_engines
from .kv import KVStore
from .prepared import PREPARED


class VisionGraph(Protocol):
    """`models.tensors`, vision."""

    def run(self, patches: F32, cos: F32, sin: F32) -> F32:
        """patches f32 [N, patch_values], cos and sin f32 [N, head_dim / 2] -> f32 [N / merge^2, out_width].

        EngineError when the engine fails, out of memory included; the next run is not affected.
        """


class DecoderGraph(Protocol):
    """`models.tensors`, decoder, over the key-value store it was opened with.

    A batch whose rows are a multiple of `row_multiple`, 1 or 2, gives each of them what it gets alone, to the last bit.
    """

    row_multiple: int

    def run(self, first_slot: int, embeds: F32, cos: F32, sin: F32, past_tokens: Sequence[int]) -> F32:
        """Advance slots first_slot .. first_slot + B - 1 by S tokens each.

        embeds f32 [B, S, width], cos and sin f32 [B, S, head_dim / 2], `past_tokens` the B counts of valid rows before
        this run. Writes rows past .. past + S - 1 of each slot. Returns logits f32 [B, vocab] of each last position, in
        a buffer that the next run overwrites. EngineError when the engine fails; running the same again is safe.
        """

    def rest(self) -> None:
        """Let go of memory that the next run can have back, such as weights mapped from a file. The store stays."""


@dataclass(frozen=True, slots=True)
class Graphs:
    vision: VisionGraph
    decoder: DecoderGraph


def open_graphs(bundle: Bundle, kv: KVStore, *, threads: int, engines: Engines = ONNXRUNTIME) -> Graphs:
    """Open both graphs, each with its engine, over a store with that engine's blocks. EngineError says what failed.

    Both at once: most of what an engine does at opening keeps one core busy.
    """
    with ThreadPoolExecutor(1, "mineru-edge open") as beside:
        vision = beside.submit(_open_vision, bundle, threads, engines)
        decoder = _open_decoder(bundle, kv, threads, engines)
        return Graphs(vision.result(), decoder)


def _open_vision(bundle: Bundle, threads: int, engines: Engines) -> VisionGraph:
    graph: VisionGraph
    if engines.vision.engine == "openvino":
        graph = _openvino().OvVision(bundle, threads=threads, bf16=engines.vision.bf16)
    else:
        graph = _onnxruntime().OrtVision(bundle, threads=threads)
    return graph


def _open_decoder(bundle: Bundle, kv: KVStore, threads: int, engines: Engines) -> DecoderGraph:
    graph: DecoderGraph
    if engines.decoder.engine == "openvino":
        graph = _openvino().OvDecoder(bundle, kv, threads=threads)
    else:
        graph = _onnxruntime().OrtDecoder(bundle, kv, threads=threads)
    return graph


def block_tokens(engines: Engines) -> int | None:
    """Rows in a block of the store that the decoder's engine wants; None for a whole slot."""
    return int(_openvino().BLOCK_TOKENS) if engines.decoder.engine == "openvino" else None


def is_prepared(bundle: Bundle, kv: KVKind, engines: Engines = ONNXRUNTIME) -> bool:
    """Whether the decoder's weights are mapped in the engine's own layout, not packed on the heap at every start."""
    return engines.decoder.engine == "onnxruntime" and bool(_onnxruntime().is_prepared(bundle, kv))


def copies_vision(bundle: Bundle, engines: Engines = ONNXRUNTIME) -> bool:
    """Whether onnxruntime has to write vision's weights anew onto the heap, as its kernels overflow on the file's. With
    openvino they are on the heap in any case."""
    return engines.vision.engine == "onnxruntime" and bool(_onnxruntime().copies_vision(bundle))


def prepare(bundle: Bundle, kv: KVKind, engine: str = AUTO) -> tuple[Path, ...]:
    """Write both graphs as their engines want them on this processor into the bundle's directory; the folders they lie
    in. `engine` is chosen as for a `Reader`; where it is left to us, for all that may be chosen here.

    SpaceError, EngineError.
    """
    alternatives = choose_engines(bundle, engine, kv=kv)
    folders: list[Path] = []
    for chosen, bf16 in dict.fromkeys((each.vision.engine, each.vision.bf16) for each in alternatives):
        if chosen == "openvino":
            folders.append(_openvino().prepare_vision(bundle, bf16=bf16))
        else:
            folders.append(_onnxruntime().prepare_vision(bundle))
    if any(each.decoder.engine == "onnxruntime" for each in alternatives):
        folders.append(_onnxruntime().prepare_decoder(bundle, kv))
    return tuple(folders)


def _onnxruntime() -> ModuleType:
    try:
        from . import ort
    except ImportError as error:
        raise EngineError(f"onnxruntime cannot be imported: {error}", hint=INSTALL["onnxruntime"]) from error
    return ort


def _openvino() -> ModuleType:
    try:
        from . import ov
    except ImportError as error:
        raise EngineError(f"openvino cannot be imported: {error}", hint=INSTALL["openvino"]) from error
    return ov


def cannot_open(engine: str, path: Path, reason: str) -> EngineError:
    """What an engine raises for a graph file that it does not take."""
    again = "run `mineru-edge prepare` again"
    exported = "check the bundle with `mineru-edge info --check`, or install the version it was exported with"
    hint = again if PREPARED in path.parts else exported
    return EngineError(f"{engine} cannot open {path}: {reason}", hint=hint)


def run_failed(graph: str, rows: int, reason: str | None) -> EngineError:
    """What a graph's `run` raises; without a reason it was memory."""
    if reason is None:
        return EngineError(f"no memory for the {graph} graph on {rows} rows", hint="give a higher memory limit")
    return EngineError(f"the {graph} graph failed on {rows} rows: {reason}")
