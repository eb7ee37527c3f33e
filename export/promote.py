"""Keeps the matrices that lose too much in 8 bits in more bits, until the bundle holds the thresholds of `verify`.

The reference answers every request once, and while it does, the inputs of all matrices are sampled. What each loses
(`sensitivity.py`) gives a ranking, the thresholds say when it is enough: while one is missed, the matrices that now
lose most get the next better scheme, and the part of the bundle they lie in is written again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mineru_edge.models.bundle import SENSITIVITY_FILE, Bundle
from mineru_edge.models.errors import ParityError
from mineru_edge.models.sensitivity import SENSITIVITY_VERSION, Comparison, MatrixLoss, Sensitivity

from .cases import Case, Page, cases
from .checkpoint import Checkpoint
from .facts import Facts
from .parity import Parity
from .parts import PARTS, files_of, part_of, precision_of, write_part
from .progress import Progress
from .reference import Reference
from .schemes import Scheme, allowed
from .sensitivity import Sample, rank
from .verify import NEW_TOKENS, compare

GROWTH = 2  # each time so many times more matrices are promoted: a comparison takes minutes at full size


def promote(
    bundle: Bundle,
    checkpoint: Checkpoint,
    facts: Facts,
    schemes: Mapping[str, Scheme],
    pages: Sequence[Page],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Bundle:
    """Rewrite parts of `bundle`, which was written with `schemes`, until it agrees with the reference on `pages`.

    Adds `sensitivity.json` and `parity.json`, and returns the bundle as it then is. ParityError when a threshold is
    missed that no promotion can help, or with nothing left to promote. Needs the memory of the reference in f32.
    """
    reference = Reference(checkpoint.path, threads=threads)
    listed, losses = _measured(reference, checkpoint, schemes, pages, progress)
    now, count, comparisons = dict(schemes), 1, list[Comparison]()
    while True:
        parity = compare(
            reference,
            bundle,
            listed,
            max_new_tokens=NEW_TOKENS,
            threads=threads,
            against_itself=False,
            progress=progress,
        )
        bundle = Bundle.load(bundle.path)  # it now lists parity.json
        better = _better(losses, now, parity, count)
        comparisons.append(Comparison(tuple(parity.missed()), tuple(better.items())))
        if not better:
            break
        now.update(better)
        bundle = _rewrite(bundle, checkpoint, facts, now, better)
        count *= GROWTH
    if missed := parity.missed():
        raise ParityError(
            "; ".join(missed), hint="no promotion is left that could help; an fp32 export tells rounding from error"
        )
    matrices = tuple(replace(loss, scheme=now[loss.name]) for loss in losses)
    found = Sensitivity(SENSITIVITY_VERSION, len(pages), len(listed), matrices, tuple(comparisons))
    text = json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n"
    (bundle.path / SENSITIVITY_FILE).write_text(text, encoding="utf-8")
    bundle = bundle.with_file(SENSITIVITY_FILE)
    bundle.save()
    return bundle


def _measured(
    reference: Reference,
    checkpoint: Checkpoint,
    schemes: Mapping[str, Scheme],
    pages: Sequence[Page],
    progress: Progress | None,
) -> tuple[list[Case], tuple[MatrixLoss, ...]]:
    """The requests of `pages`, each with the reference's answer, and the ranking by what it multiplied meanwhile."""
    samples = {name: Sample() for name, scheme in schemes.items() if scheme != "fp32"}
    answered: list[Case] = []
    with reference.heard(samples, lambda name, rows: samples[name].add(rows)):
        for case in cases(reference, pages, max_new_tokens=NEW_TOKENS):
            asked = case.asked or reference.ask(case.image, case.prompt, max_new_tokens=NEW_TOKENS)
            answered.append(replace(case, asked=asked))
            if progress is not None:
                progress(case.page, len(pages), f"reference, {case.kind} of page {case.page}")
    return answered, rank(checkpoint, samples, schemes, progress)


def _better(losses: Sequence[MatrixLoss], now: Mapping[str, Scheme], parity: Parity, count: int) -> dict[str, Scheme]:
    """The `count` matrices that lose most as they are `now`, with their next better schemes.

    Empty when all is well, and when what is wrong does not come from how matrices are stored.
    """
    missed = parity.missed_thresholds()
    if "patches_difference" in missed or not all(r.positions_equal and r.ids_equal for r in parity.requests):
        return {}
    # As long as the vision rows are too far off, nothing after them can be judged.
    open_to_it = [
        loss
        for loss in losses
        if missed and now[loss.name] != "fp32" and ("vision_error" not in missed or part_of(loss.name) == "vision")
    ]
    worst = sorted(open_to_it, key=lambda loss: -loss.error(now[loss.name]))[:count]
    return {loss.name: _next(loss, now[loss.name]) for loss in worst}


def _next(loss: MatrixLoss, scheme: Scheme) -> Scheme:
    """The cheapest scheme above `scheme` under which the matrix loses less."""
    above = allowed(loss.name)[allowed(loss.name).index(scheme) + 1 :]
    return next(better for better in above if loss.error(better) < loss.error(scheme))


def _rewrite(
    bundle: Bundle, checkpoint: Checkpoint, facts: Facts, schemes: Mapping[str, Scheme], changed: Mapping[str, Scheme]
) -> Bundle:
    """The bundle with the parts that hold `changed` written again: a part takes seconds, a comparison minutes."""
    for part in PARTS:
        if part in map(part_of, changed):
            write_part(bundle.path, part, checkpoint, facts, schemes, bundle.engines)
            for file in files_of(part, bundle.engines):
                bundle = bundle.with_file(file)
    bundle = replace(bundle, precision=precision_of(schemes))
    bundle.save()
    return bundle
