"""Many requests of many shapes through one engine: does its memory grow?"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np

from mineru_edge.models.prompts import TEXT_PROMPT
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.request import DecodeParams, Request

from .bench import noise
from .memory import private_bytes

WARM_UP = 40  # requests: each path's buffers are made once, and OpenVINO keeps kernels of the last 32 shapes
BESIDE_TOKENS = 200  # template, prompt and answer beside a picture's tokens
MOST_GROWTH_BYTES = 20_000  # per request


def soak(engine: Engine, count: int, *, shapes: int, longest_px: int, seed: int = 0) -> Iterator[int | None]:
    """Private bytes after each of `WARM_UP + count` requests, of `shapes` picture sizes up to `longest_px` a side and
    of 1 to 40 tokens; None where the system does not tell.

    The store's rows that they can reach are written at the first one's end: memory that is promised once, and backed
    when it is used.
    """
    rng = random.Random(seed)
    side_tokens = math.ceil(longest_px / engine.model.bundle.vision.factor)
    reach = min(engine.kv.capacity_tokens, side_tokens**2 + BESIDE_TOKENS)
    sizes = [(rng.randint(28, longest_px), rng.randint(28, longest_px)) for _ in range(shapes)]
    requests = (
        Request(noise(*sizes[n % shapes], seed=n), TEXT_PROMPT, DecodeParams(1 + n * 7 % 40, ignore_eos=True))
        for n in range(WARM_UP + count)
    )
    for number, _ in enumerate(engine.results(requests)):
        if number == 0:
            engine.kv.touch(reach)
        yield private_bytes()


def growth_bytes(samples: list[int]) -> float:
    """Bytes per request after warm-up: the slope of the least-squares line. Needs two samples more than that has."""
    kept = samples[WARM_UP:]
    return float(np.polyfit(range(len(kept)), kept, 1)[0])
