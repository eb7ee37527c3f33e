"""OpenVINO: both graphs at work, the decoder's attention over our key-value store. What is compiled, and how, is in
`ov_models.py`; no files but `ov*.py` import openvino.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import openvino

from mineru_edge.models.bundle import OV_DECODER_DATA_FILE, OV_VISION_DATA_FILE, Bundle
from mineru_edge.models.errors import EngineError

from .arrays import F32, I8, I32
from .graphs import run_failed
from .kv import KVStore
from .mapped import Mapped
from .ov_models import (
    BLOCK_TOKENS,
    Source,
    decoder_source,
    last_line,
    prepare_vision,
    store_names,
    usable,
    vision_source,
)
from .private_memory import give_large_blocks_back

__all__ = ["BLOCK_TOKENS", "OvDecoder", "OvVision", "prepare_vision"]


class OvVision:
    """`graphs.VisionGraph`. With `bf16`, queries, keys and values are rounded to bf16 and the rest stays f32."""

    def __init__(self, bundle: Bundle, *, threads: int, bf16: bool) -> None:
        self._graph = _Graph(vision_source(bundle, threads=threads, bf16=bf16), "vision")
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
        self._graph = _Graph(decoder_source(bundle, threads=threads), "decoder")
        self._kv = kv
        for layer in range(kv.layers):
            for name, blocks in zip(store_names(layer), kv.blocks(layer), strict=True):
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

    def __init__(self, source: Source, name: str) -> None:
        self._name = name
        self._source = source
        self._held: dict[str, F32 | I8] = {}
        self._compiled: Any = None
        self._request: Any = None
        give_large_blocks_back()
        with usable(source.file):
            self._open()

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
        self._compiled = self._source.compiled()
        self._request = self._compiled.create_infer_request()
        for name, array in self._held.items():
            self.hold(name, array)

    def _failed(self, work: int, error: Exception) -> EngineError:
        no_memory = isinstance(error, MemoryError) or "alloc" in str(error)
        return run_failed(self._name, work, None if no_memory else last_line(error))
