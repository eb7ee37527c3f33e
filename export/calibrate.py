"""Runs pages through a fresh bundle to see how large its keys and values become."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mineru_edge.models.bundle import Bundle
from mineru_edge.models.errors import EngineError
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.request import DecodeParams, FinishReason, Request

from .cases import Page, asked_in, generated
from .progress import Progress

PAGES = 2
FIRST_SEED = 100  # other pages than `verify` compares on
NEW_TOKENS = 64


def kv_peaks(
    bundle: Bundle, pages: Sequence[Page] | None = None, *, threads: int | None = None, progress: Progress | None = None
) -> NDArray[np.float32]:
    """The largest absolute keys and values, f32 [layers, key|value, kv_heads, head_dim], over every position of the
    layout and block requests of `pages`, generated ones when None. EngineError when a request fails."""
    given = generated(PAGES, first_seed=FIRST_SEED) if pages is None else pages
    requests = [
        Request(case.image, case.prompt, DecodeParams(NEW_TOKENS))
        for number, page in enumerate(given)
        for case in asked_in(page, number, bundle.preprocessing.layout_size)
    ]
    text = bundle.text
    peaks: NDArray[np.float32] = np.zeros((text.layers, 2, text.kv_heads, text.head_dim), np.float32)
    with Engine.open(bundle, slots=1, threads=threads, engine="onnxruntime") as engine:
        for number, request in enumerate(requests, 1):
            ((_, result),) = engine.results([request])
            if result.finish_reason is FinishReason.error:
                raise EngineError(f"a calibration request failed: {result.error}")
            tokens = result.prompt_tokens + max(0, len(result.token_ids) - 1)  # the last one was not fed
            for layer in range(text.layers):
                for kind, view in enumerate(engine.kv.views(layer, 0, 1)):
                    seen = np.abs(view[0, :, :tokens]).max(axis=1)
                    np.maximum(peaks[layer, kind], seen, out=peaks[layer, kind])
            if progress is not None:
                progress(number, len(requests), "keys and values")
    return peaks
