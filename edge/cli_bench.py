"""The `bench` command: a table and one JSON line on stdout."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence

import click

from mineru_edge.models.bundle import KVKind
from mineru_edge.models.errors import OK, MineruEdgeError
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.threads import thread_count

from .bench import Case, PageSplit, cases, page_work
from .bench_report import earlier, header, ratios, row, to_json
from .cli_info import open_bundle
from .cli_parse import plan_words
from .machine import this_machine
from .soak import MOST_GROWTH_BYTES, WARM_UP, growth_bytes, soak

SOAK_SHAPES, SOAK_PX = 100, 800


def run(
    path: str | None,
    *,
    kinds: Sequence[str],
    repeats: int,
    versus: str | None,
    soak_requests: int | None,
    memory_limit: int | None,
    threads: int | None,
    slots: int | None,
    kv: KVKind,
    engine: str,
) -> int:
    """Measure the bundle at `path`, None for the embedded one; the exit code."""
    before = None if versus is None else earlier(versus)
    bundle = open_bundle(path)
    count = thread_count() if threads is None else threads
    machine = this_machine()
    started = time.perf_counter()
    with Engine.open(
        bundle, memory_limit_bytes=memory_limit, threads=count, slots=slots, kv=kv, engine=engine
    ) as opened:
        open_s = time.perf_counter() - started
        plan = opened.plan
        if soak_requests is not None:
            return _soak(opened, soak_requests)
        facts = {
            "slots": plan.slots,
            "capacity_tokens": plan.capacity_tokens,
            "patch_cap": plan.patch_cap,
            "total_bytes": plan.total_bytes,
            "limit_bytes": plan.limit_bytes,
            "kv": kv,
            "engines": dataclasses.asdict(opened.engines),
        }
        names, words = (str(bundle.path), opened.engines.words), plan_words(plan)
        for line in header(machine, threads=count, bundle=names[0], engines=names[1], plan=words, open_s=open_s):
            click.echo(line)
        results: list[Case | PageSplit] = []
        for result in cases(opened, repeats=repeats, kinds=tuple(kinds)):
            results.append(result)
            click.echo(row(result))
            sys.stdout.flush()
    if before is not None:
        click.echo()
        for line in ratios(results, before):
            click.echo(line)
    work = page_work(bundle.preprocessing.layout_size)
    click.echo(to_json(results, machine, threads=count, bundle=bundle.model_name, plan=facts, open_s=open_s, work=work))
    return OK


def _soak(engine: Engine, requests: int) -> int:
    """Exit code 1 when memory grows."""
    samples = []
    for number, sample in enumerate(soak(engine, requests, shapes=SOAK_SHAPES, longest_px=SOAK_PX), 1):
        if sample is None:
            raise MineruEdgeError("this system does not tell how much private memory a process has")
        samples.append(sample)
        if sys.stderr.isatty():
            click.echo(f"{number}/{WARM_UP + requests}: {sample / 1e6:,.1f} MB private", err=True)
    growth = growth_bytes(samples)
    after = f"{requests} requests after {WARM_UP} to warm up"
    click.echo(f"{after}: {samples[-1] / 1e6:,.1f} MB private, {growth / 1e6:+.4f} MB per request")
    if growth > MOST_GROWTH_BYTES:
        raise MineruEdgeError(f"memory grows by {growth / 1e6:.3f} MB per request")
    return OK
