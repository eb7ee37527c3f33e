"""Compares a bundle with the reference model in transformers, through the very runtime that devices use.

optimum loads the reference but cannot export it: its ONNX exporter has no qwen2_vl.
Every request goes through both sides: patches, vision rows, positions, first logits and, with penalties off, all greedy
tokens. The exported side decodes several requests at once, as on a device.
"""

from __future__ import annotations

import base64
import importlib.metadata
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mineru_edge.models.bundle import PARITY_FILE, Bundle
from mineru_edge.models.errors import CheckpointError, SpaceError
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.engines import AUTO, other_engines
from mineru_edge.runtime.request import FinishReason, Result

from .agreement import Agreement, edits
from .cases import PAGES, Case, Page, cases, generated, open_page
from .parity import (
    BOX_OVERLAP,
    KINDS,
    Compared,
    Divergence,
    Golden,
    Parity,
    boxes_back,
    layout_boxes,
)
from .progress import Progress
from .reference import Answer, Asked, Reference
from .schemes import Precision
from .verify_runs import Requests, Run

NEW_TOKENS = 1024
PROMPT_TOKENS = 128  # more than the template and a prompt take beside the picture
GOLDEN_PER_KIND = 2
GOLDEN_IMAGE_BYTES = 100_000
GOLDEN_TOKENS = 400

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request with the reference's answer, compared up to the first logits."""

    case: Case
    answer: Answer
    compared: Compared


def verify(
    checkpoint: str | os.PathLike[str],
    bundle: str | os.PathLike[str],
    *,
    pages: Sequence[Page | Image.Image | str | os.PathLike[str]] | None = None,
    max_new_tokens: int = NEW_TOKENS,
    max_requests: int | None = None,
    slots: int = 4,
    threads: int | None = None,
    engine: str = AUTO,
    progress: Progress | None = None,
) -> Parity:
    """Compare, write `parity.json` into the bundle, and return it; `Parity.check` raises if a threshold was missed.

    Pages are generated when none are given; paths are those of pictures, InputError when one is not. BundleError or
    CheckpointError when the two cannot be read or do not belong together, EngineError when a request fails, SpaceError
    when `parity.json` cannot be written. `engine` is chosen as for a `Reader`.
    """
    opened, reference = Bundle.load(bundle), Reference(Path(checkpoint), threads=threads)
    _check_same_model(reference, opened)
    given = generated(PAGES) if pages is None else [open_page(page) for page in pages]
    listed = list(islice(cases(reference, given, max_new_tokens=max_new_tokens), max_requests))
    return compare(
        reference,
        opened,
        listed,
        max_new_tokens=max_new_tokens,
        slots=slots,
        threads=threads,
        engine=engine,
        progress=progress,
    )


def compare(
    reference: Reference,
    opened: Bundle,
    listed: Sequence[Case],
    *,
    max_new_tokens: int,
    slots: int = 4,
    threads: int | None = None,
    engine: str = AUTO,
    against_itself: bool = True,
    progress: Progress | None = None,
) -> Parity:
    """What `verify` does once it has its requests: those that the reference was asked before are not asked again.

    `against_itself` compares the bundle with itself too: by the other engine, over an int8 store.
    """
    assert listed, "no pages"
    factor, most_pixels = opened.vision.factor, opened.preprocessing.max_pixels
    asked: list[_Asked] = []
    done, runs = count(1), 2  # the reference's is one

    def tell(what: str) -> None:
        if progress is not None:
            progress(next(done), runs * len(listed), what)

    requests = Requests(
        opened,
        listed,
        max_new_tokens=max_new_tokens,
        slots=slots,
        capacity_tokens=most_pixels // factor**2 + PROMPT_TOKENS + max_new_tokens,
        threads=threads,
        tell=tell,
    )
    with requests.open(engine) as exported:
        other = other_engines(opened, exported.engines) if against_itself else None
        kv8 = against_itself and "int8" in opened.kv_kinds
        runs += (other is not None) + kv8
        for case in listed:
            asked.append(_ask(reference, exported, case, max_new_tokens))
            tell(f"reference, {case.kind} of page {case.page}")
        first = requests.answered(exported)
    second = requests.answered_by(other) if other else None
    precision = _precision(opened)
    compared = tuple(
        _compare_tokens(reference, each, result, precision) for each, result in zip(asked, first.results, strict=True)
    )
    parity = Parity(
        precision,
        compared,
        _golden(asked, compared),
        _tools(first, second),
        first.names,
        other_engines=first.agreement(second) if second else None,
        kv8=_kv8(requests, first, second) if kv8 else None,
    )
    _write(opened, parity)
    return parity


def _check_same_model(reference: Reference, bundle: Bundle) -> None:
    text = bundle.text
    shape = {"num_layers": text.layers, "num_attention_heads": text.heads,
             "hidden_size": text.width, "vocab_size": text.vocab}  # fmt: skip
    facts = reference.facts
    if reference.shape() != shape or (facts.vision, facts.text, facts.special) != (bundle.vision, text, bundle.special):
        raise CheckpointError(
            f"{bundle.path} was exported from another model than {reference.checkpoint.path}",
            hint=f"give the checkpoint it came from, {bundle.source}",
        )


def _ask(reference: Reference, engine: Engine, case: Case, max_new_tokens: int) -> _Asked:
    """Both sides up to the first logits, and the reference's whole answer."""
    asked, answer = case.asked or reference.ask(case.image, case.prompt, max_new_tokens=max_new_tokens)
    seen = engine.model.see(case.image)
    prompt = engine.model.prompt(case.prompt, seen)
    *_, logits = engine.model.prefill(prompt, 0)
    before, pads, after = engine.model.tokens.prompt(case.prompt, image_tokens=len(seen.rows))
    same_grid = (seen.patches.grid_rows, seen.patches.grid_cols) == asked.grid
    return _Asked(case, answer, Compared(
        page=case.page, kind=case.kind, patches=seen.patches.count, prompt_tokens=prompt.tokens,
        patches_difference=float(np.abs(seen.patches.values - asked.patches).max()) if same_grid else float("inf"),
        vision_error=_relative(seen.rows, asked.rows), logits_error=_relative(logits, asked.logits),
        positions_equal=_same_positions(prompt.axes, prompt.delta, asked),
        ids_equal=[*before, *pads, *after] == asked.ids,
        tokens=len(answer.ids), edits=0, divergence=None, boxes=None,
    ))  # fmt: skip


def _kv8(requests: Requests, *runs: Run | None) -> Agreement | None:
    """An int8 store against an f32 one. One engine has both, so one of `runs` has its f32 answers, or it cannot run."""
    over_f32 = next((run for run in runs if run and run.engines.decoder.engine == "onnxruntime"), None)
    over_int8 = requests.answered_by(over_f32.engines.wish, kv="int8") if over_f32 else None
    return over_f32.agreement(over_int8) if over_f32 and over_int8 else None


def _compare_tokens(reference: Reference, asked: _Asked, result: Result, precision: Precision) -> Compared:
    wanted, got = asked.answer.ids, result.token_ids
    if result.finish_reason is FinishReason.repetition:
        wanted = wanted[: len(got)]  # the reference has no loop detector; up to there it must agree
    boxes = None
    if asked.case.kind == "layout":
        expected, found = layout_boxes(reference.text(wanted)), layout_boxes(reference.text(got))
        boxes = boxes_back(expected, found, BOX_OVERLAP[precision])
    return replace(
        asked.compared,
        edits=edits(wanted, got),
        boxes=boxes,
        divergence=_first_divergence(asked.answer, wanted, result),
    )


def _first_divergence(answer: Answer, wanted: Sequence[int], result: Result) -> Divergence | None:
    """`wanted` is the part of the answer that counts. None in a Divergence is the end of an answer."""
    ended = answer.stopped and len(wanted) == len(answer.ids)
    left: list[int | None] = [*wanted, *([None] if ended else [])]
    right: list[int | None] = [*result.token_ids, *([None] if result.finish_reason is FinishReason.stop else [])]
    for at in range(max(len(left), len(right))):
        a, b = (side[at] if at < len(side) else None for side in (left, right))
        if a != b:
            margin = answer.margins[at] if at < len(answer.margins) else float("inf")
            second = at < len(answer.seconds) and b == answer.seconds[at]
            return Divergence(at, a, b, margin, second)
    return None


def _same_positions(axes: NDArray[np.int64], delta: int, asked: Asked) -> bool:
    return delta == asked.delta and np.array_equal(axes, asked.axes)


def _relative(found: Floats, expected: Floats) -> float:
    """Length of the difference over that of what was expected; infinite for other shapes or what is not finite."""
    if found.shape != expected.shape:
        return float("inf")
    wide = expected.astype(np.float64)
    error = float(np.linalg.norm(found - wide) / np.linalg.norm(wide))
    return error if np.isfinite(error) else float("inf")


def _golden(asked: Sequence[_Asked], compared: Sequence[Compared]) -> tuple[Golden, ...]:
    """Per kind the equal, ended, small requests with the surest decisions."""
    chosen: list[Golden] = []
    for kind in KINDS:
        found: list[Golden] = []
        for each, result in zip(asked, compared, strict=True):
            answer = each.answer
            if each.case.kind != kind or result.divergence or not answer.stopped or len(answer.ids) > GOLDEN_TOKENS:
                continue
            png = _png(each.case.image)
            if len(png) <= GOLDEN_IMAGE_BYTES:
                image = base64.b64encode(png).decode()
                cap, margin = len(answer.ids) + 8, min(answer.margins)
                found.append(Golden(kind, image, each.case.prompt, cap, answer.ids, margin))
        chosen += sorted(found, key=lambda golden: -golden.margin)[:GOLDEN_PER_KIND]
    return tuple(chosen)


def _png(image: Image.Image) -> bytes:
    """The picture as a PNG, in one channel when it has no colour: the same once it is RGB again."""
    grey = image.convert("L")
    stream = io.BytesIO()
    (grey if grey.convert("RGB").tobytes() == image.tobytes() else image).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _precision(bundle: Bundle) -> Precision:
    """What the thresholds are chosen by: fp32 only when every component is."""
    parts = (bundle.precision.vision, bundle.precision.decoder, bundle.precision.embedding)
    return "fp32" if all(part == "fp32" for part in parts) else "int8"


def _tools(*runs: Run | None) -> tuple[tuple[str, str], ...]:
    engines = sorted({choice.engine for run in runs if run for choice in (run.engines.vision, run.engines.decoder)})
    names = ("mineru-edge", *engines, "optimum", "torch", "transformers")
    return tuple((name, importlib.metadata.version(name)) for name in names)


def _write(bundle: Bundle, parity: Parity) -> None:
    target = bundle.path / PARITY_FILE
    draft = target.with_suffix(".part")
    try:
        draft.write_text(json.dumps(parity.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise SpaceError(f"{target} cannot be written: {error.strerror or error}") from error
    bundle.with_file(PARITY_FILE).save()
