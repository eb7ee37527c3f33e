"""What a bundle takes on this machine: seconds and peak memory, by kind of work and for a whole page.

Lengths are forced, so that random weights measure as trained ones do. Every case goes through the engine as a document
does; nothing is timed that users do not get.
"""

from __future__ import annotations

import io
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from PIL import Image

from mineru_edge.models.errors import EngineError
from mineru_edge.models.prompts import LAYOUT_PROMPT, TEXT_PROMPT
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.graphs import copies_vision, is_prepared
from mineru_edge.runtime.plan import forecast
from mineru_edge.runtime.request import DecodeParams, FinishReason, Request, Result

from .drawer import Drawer
from .memory import MemoryWatch, reset_peak

REQUEST_PX = ((784, 112), (560, 392), (756, 784), (1036, 1036))  # 448, 1120, 3024 and 5476 patches
DECODE_SLOTS = (1, 2, 4, 8)
DECODE_PAST, DECODE_STEPS = 700, 32
PAGE_PX = (1654, 2339)  # A4 at 200 dpi
LAYOUT_TOKENS, CROP_TOKENS = 250, 60
CROPS_PX = ((784, 112),) * 8 + ((784, 224),) * 5 + ((560, 252),) * 4 + ((392, 112),) * 3  # 11,616 patches
KINDS = ("vision", "prefill", "request", "decode", "page")


def page_work(layout_px: tuple[int, int]) -> dict[str, Any]:
    """What the page case asks for, so that another engine can be asked for the same (tests/peers.py)."""
    return {
        "layout_px": layout_px,
        "layout_tokens": LAYOUT_TOKENS,
        "crops_px": CROPS_PX,
        "crop_tokens": CROP_TOKENS,
    }


@dataclass(frozen=True, slots=True)
class Case:
    """One measured piece of work. `seconds` is the median of `repeats`; `units` (patches or tokens) were done in it.

    Peaks and forecast are bytes of the whole process; peaks are None where the system does not tell.
    """

    kind: str
    name: str
    seconds: float
    units: int
    unit: str
    repeats: int
    peak_private_bytes: int | None
    peak_rss_bytes: int | None
    forecast_bytes: int

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.units / self.seconds

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rate": self.rate}


@dataclass(frozen=True, slots=True)
class PageSplit:
    """Where the seconds of the whole page went; `decode_s` is everything that is not one of the others.

    `tokens_per_s` is MinerU's definition: the tokens of the second step over the time of both.
    """

    raster_s: float
    vision_s: float
    prefill_s: float
    decode_s: float
    first_token_s: float  # of the layout request, from its start
    tokens_per_s: float


def cases(engine: Engine, *, repeats: int, kinds: tuple[str, ...] = KINDS) -> Iterator[Case | PageSplit]:
    """Each case as it is measured; after the page, its split."""
    if {"vision", "prefill", "request"} & set(kinds):
        for size in REQUEST_PX:
            yield from (case for case in _request(engine, size, repeats) if case.kind in kinds)
    if "decode" in kinds:
        for slots in DECODE_SLOTS:
            if slots <= engine.plan.slots:
                yield _decode(engine, slots, repeats)
    if "page" in kinds:
        yield from _page(engine, repeats)


def noise(width: int, height: int, *, seed: int = 0) -> Image.Image:
    """Some grey cloud; the graphs take as long for it as for print."""
    small = np.random.default_rng(seed).integers(0, 255, (max(1, height // 8), max(1, width // 8)), np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).convert("RGB")


def _request(engine: Engine, size: tuple[int, int], repeats: int) -> tuple[Case, ...]:
    """Vision and prefill of one picture, and both: a request up to its first token."""
    request = Request(noise(*size), LAYOUT_PROMPT, DecodeParams(1, ignore_eos=True))
    results, private, rss = _measured(lambda: _result(engine, request), repeats)
    patches, tokens = results[0].patches, results[0].prompt_tokens
    planned = _planned(engine, slots=1, tokens=tokens, patches=patches)
    memory = repeats, private, rss, planned
    vision, prefill = (statistics.median(r.vision_s for r in results), statistics.median(r.prefill_s for r in results))
    both = statistics.median(r.vision_s + r.prefill_s for r in results)
    name = f"{size[0]} x {size[1]}"
    return (
        Case("vision", name, vision, patches, "patches", *memory),
        Case("prefill", name, prefill, tokens, "tokens", *memory),
        Case("request", name, both, tokens, "tokens", *memory),
    )


def _decode(engine: Engine, slots: int, repeats: int) -> Case:
    """Steps with `slots` live sequences that have about DECODE_PAST tokens behind them."""
    past, text = 0, _text_of(engine, DECODE_PAST)

    def once() -> float:
        nonlocal past
        for _ in range(slots):
            engine.submit(Request(None, text, DecodeParams(2 * DECODE_STEPS, ignore_eos=True)))
        engine.step()  # prefill of all, and the first step
        started = time.perf_counter()
        for _ in range(DECODE_STEPS):
            engine.step()
        seconds = time.perf_counter() - started
        engine.cancel()
        while not engine.idle:
            past = max([past, *(s.result.prompt_tokens for s in engine.step() if s.result)])
        return seconds

    seconds, private, rss = _measured(once, repeats)
    planned = _planned(engine, slots=slots, tokens=past + DECODE_STEPS, patches=0)
    return Case(
        "decode",
        f"{slots} {'slot' if slots == 1 else 'slots'}, past {past}",
        statistics.median(seconds),
        slots * DECODE_STEPS,
        "tokens",
        repeats,
        private,
        rss,
        planned,
    )


def _page(engine: Engine, repeats: int) -> tuple[Case, PageSplit]:
    scan, drawer = _scanned_page(), Drawer()
    try:
        runs, private, rss = _measured(lambda: _page_once(engine, scan, drawer), repeats, lambda: drawer.process_ids)
    finally:
        drawer.close()
    seconds, split, layout, crops = sorted(runs, key=lambda run: run[0])[len(runs) // 2]
    planned = max(
        _planned_for(engine, [layout], slots=1, raster_pixels=math.prod(PAGE_PX)),  # nothing else is live then
        _planned_for(engine, crops, slots=engine.plan.slots, raster_pixels=math.prod(PAGE_PX)),
    )
    generated = CROP_TOKENS * len(CROPS_PX)
    return Case("page", "a page", seconds, generated, "tokens", repeats, private, rss, planned), split


def _page_once(engine: Engine, scan: bytes, drawer: Drawer) -> tuple[float, PageSplit, Result, list[Result]]:
    """Seconds, their split, and what the layout and the crops gave."""
    started = time.perf_counter()
    opened = drawer.open(scan, "a scanned page")
    try:
        (sheet,) = opened.sheets([1])
    finally:
        opened.close()
    assert sheet.image is not None, sheet.error
    picture = sheet.image.resize(engine.model.bundle.preprocessing.layout_size, Image.Resampling.BICUBIC)
    raster_s = time.perf_counter() - started
    layout = _result(
        engine, Request(picture, LAYOUT_PROMPT, DecodeParams(LAYOUT_TOKENS, no_repeat_ngram=100, ignore_eos=True))
    )
    params = DecodeParams(
        CROP_TOKENS, presence_penalty=1.0, frequency_penalty=0.05, no_repeat_ngram=100, ignore_eos=True
    )
    crops = (
        Request(sheet.image.crop((40, 80 * n, 40 + width, 80 * n + height)), TEXT_PROMPT, params)
        for n, (width, height) in enumerate(CROPS_PX)
    )
    read = [_ended(result) for _, result in engine.results(crops)]
    seconds = time.perf_counter() - started
    results = [layout, *read]
    vision_s, prefill_s = sum(r.vision_s for r in results), sum(r.prefill_s for r in results)
    split = PageSplit(
        raster_s=raster_s,
        vision_s=vision_s,
        prefill_s=prefill_s,
        decode_s=seconds - raster_s - vision_s - prefill_s,
        first_token_s=layout.vision_s + layout.prefill_s,
        tokens_per_s=CROP_TOKENS * len(CROPS_PX) / seconds,
    )
    return seconds, split, layout, read


def _scanned_page() -> bytes:
    """A PDF of one page that is one picture."""
    out = io.BytesIO()
    noise(*PAGE_PX).save(out, "PDF", resolution=200)
    return out.getvalue()


def _text_of(engine: Engine, tokens: int) -> str:
    """A prompt that is about `tokens` long with what stands around it."""
    word, count = " page", 1
    while sum(len(part) for part in engine.model.tokens.prompt(word * count, image_tokens=0)) < tokens:
        count += max(1, count // 8)
    return word * count


def _result(engine: Engine, request: Request) -> Result:
    ((_, result),) = engine.results([request])
    return _ended(result)


def _ended(result: Result) -> Result:
    """EngineError for a request that did not reach its length: it has no time to report."""
    if result.finish_reason is not FinishReason.length:
        raise EngineError(f"a request of the benchmark ended with {result.finish_reason.value}: {result.error}")
    return result


def _measured(
    work: Callable[[], Any], repeats: int, others: Callable[[], Iterable[int]] = tuple
) -> tuple[list[Any], int | None, int | None]:
    """What `work` gave each time, and the peaks over all of them: private and resident bytes, of `others` too."""
    reset_peak()
    watch = MemoryWatch(others=others)
    with watch:
        results = [work() for _ in range(repeats)]
    peak = watch.peak()
    return results, peak.peak_private_bytes, peak.peak_rss_bytes


def _planned_for(engine: Engine, results: Sequence[Result], *, slots: int, raster_pixels: int) -> int:
    """The forecast for as many of these at once as there are slots, on a page that a process of its own has drawn."""
    longest = max(result.prompt_tokens + len(result.token_ids) for result in results)
    largest = max(result.patches for result in results)
    return _planned(engine, slots=slots, tokens=longest, patches=largest, raster_pixels=raster_pixels, drawn_apart=True)


def _planned(
    engine: Engine, *, slots: int, tokens: int, patches: int, raster_pixels: int = 0, drawn_apart: bool = False
) -> int:
    bundle = engine.model.bundle
    parts = forecast(
        bundle,
        slots=slots,
        tokens=tokens,
        patches=patches,
        raster_pixels=raster_pixels,
        packed_is_mapped=is_prepared(bundle, engine.kv.kind, engine.engines),
        vision_is_copied=copies_vision(bundle, engine.engines),
        kv=engine.kv.kind,
        engines=engine.engines,
        drawn_apart=drawn_apart,
    )
    return sum(part.bytes for part in parts)
