"""A benchmark as a table for people, as one JSON object for machines, and as ratios to an earlier one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mineru_edge.models.errors import InputError

from .bench import Case, PageSplit
from .machine import Machine


def header(machine: Machine, *, threads: int, bundle: str, engines: str, plan: str, open_s: float) -> Iterator[str]:
    yield f"bundle    {bundle}"
    yield f"engines   {engines}"
    yield f"opened    in {open_s:.2f} s"
    yield f"plan      {plan}"
    yield f"machine   {machine.cpu}, {machine.architecture}, {machine.cpus} processors, {threads} threads"
    yield f"features  {', '.join(machine.features) or 'none that matter here'}"
    yield f"versions  {', '.join(f'{name} {version}' for name, version in machine.packages)}, Python {machine.python}"
    yield ""
    yield f"{'':<9}{'':<22}{'seconds':>9}{'rate':>18}{'private':>10}{'resident':>10}{'forecast':>10}"


def row(result: Case | PageSplit) -> str:
    if isinstance(result, PageSplit):
        return _split(result)
    per_second = f"{result.rate:,.1f} {result.unit}/s"
    peaks = "".join(
        f"{_mb(value):>10}" for value in (result.peak_private_bytes, result.peak_rss_bytes, result.forecast_bytes)
    )
    return f"{result.kind:<9}{result.name:<22}{result.seconds:>9.3f}{per_second:>18}{peaks}"


def _split(split: PageSplit) -> str:
    parts = ", ".join(
        f"{name} {seconds:.2f} s"
        for name, seconds in (
            ("raster", split.raster_s),
            ("vision", split.vision_s),
            ("prefill", split.prefill_s),
            ("decode and the rest", split.decode_s),
        )
    )
    return f"{'':<9}{parts}; layout's first token after {split.first_token_s:.2f} s; {split.tokens_per_s:.1f} tokens/s"


def _mb(value: int | None) -> str:
    return "?" if value is None else f"{value / 1e6:,.0f} MB"


def to_json(
    results: Sequence[Case | PageSplit],
    machine: Machine,
    *,
    threads: int,
    bundle: str,
    plan: dict[str, Any],
    open_s: float,
    work: dict[str, Any],
) -> str:
    """One line. `work` is what the page case asked for."""
    splits = [asdict(result) for result in results if isinstance(result, PageSplit)]
    return json.dumps(
        {
            "machine": machine.to_dict(),
            "threads": threads,
            "bundle": bundle,
            "plan": plan,
            "open_s": open_s,
            "work": work,
            "cases": [result.to_dict() for result in results if isinstance(result, Case)],
            "page": splits[0] if splits else None,
        },
        ensure_ascii=False,
    )


def earlier(path: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The cases in the last JSON line of a file, by kind and name. InputError when there is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        found = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
        return {(case["kind"], case["name"]): case for case in found["cases"]}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (StopIteration, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} holds no benchmark", hint="give a file with the output of mineru-edge bench"
        ) from error


def ratios(results: Sequence[Case | PageSplit], before: dict[tuple[str, str], dict[str, Any]]) -> Iterator[str]:
    """A line per case that both have: how many times faster it is now, and how many times the private memory."""
    yield f"{'':<9}{'':<22}{'speed':>9}{'private':>10}   against the earlier run; above 1 is faster, or more memory"
    for case in results:
        old = before.get((case.kind, case.name)) if isinstance(case, Case) else None
        if not isinstance(case, Case) or old is None:
            continue
        memory = "?"
        if case.peak_private_bytes and old.get("peak_private_bytes"):
            memory = f"{case.peak_private_bytes / old['peak_private_bytes']:.2f}"
        speed = case.rate / old["rate"]
        yield f"{case.kind:<9}{case.name:<22}{speed:>9.2f}{memory:>10}"
