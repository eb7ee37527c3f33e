"""Samples become padded batches; producer processes draw pages and keep a queue of batches full."""

from __future__ import annotations

import multiprocessing as mp
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from .samples import BEFORE, EOS, Array, Sample, line_sample, page_samples

LINES_UNTIL = 0.14  # of the training; single blocks and a few layouts before it, whole pages after
LAYOUT_FROM = 0.43
FIRST_SEED = 1_000_000  # training pages; everything below is left for evaluation
PATCHES_PER_BATCH, SAMPLES_PER_BATCH = 2900, 64


@dataclass(slots=True)
class Batch:
    task: str
    grey: Array  # u8 [B, N, 196]
    grid: Array  # i64 [B, N, 2]
    patches: Array  # i64 [B] valid patches
    ids: Array  # i64 [B, S]
    positions: Array  # i64 [B, 3, S]
    image_index: Array  # i64 [B, S] merged row of a picture position, -1 elsewhere
    take: Array  # i64 [B, T] position whose output predicts answer token t
    target: Array  # i64 [B, T], -100 beyond the answer
    cells: Array  # i16 [B, T, 4]
    values: Array  # f32 [B, T], NaN where no coordinate is spelt
    cell_of: Array  # i16 [B, S, 2] merged row and column of a picture position, -9 elsewhere
    run_index: Array  # i64 [R, L] row of the flattened [B * N] patches, 0 where padded
    run_length: Array  # i64 [R]
    run_target: Array  # i64 [sum]
    run_target_length: Array  # i64 [R]
    types: Array | None
    boxes: Array | None


def collate(samples: list[Sample]) -> Batch:
    b, n = len(samples), max(len(s.grey) for s in samples)
    length = max(len(s.ids) for s in samples)
    t = max(len(s.cells) for s in samples)
    z = np.zeros
    out = Batch(
        samples[0].task,
        z((b, n, 196), np.uint8),
        z((b, n, 2), np.int64),
        z(b, np.int64),
        np.full((b, length), EOS, np.int64),
        z((b, 3, length), np.int64),
        np.full((b, length), -1, np.int64),
        z((b, t), np.int64),
        np.full((b, t), -100, np.int64),
        np.full((b, t, 4), -1, np.int16),
        np.full((b, t), np.nan, np.float32),
        np.full((b, length, 2), -9, np.int16),
        z((0, 0), np.int64),
        z(0, np.int64),
        z(0, np.int64),
        z(0, np.int64),
        None,
        None,
    )
    runs: list[Array] = []
    targets: list[Array] = []
    for i, s in enumerate(samples):
        count, size, answer = len(s.grey), len(s.ids), len(s.cells)
        out.grey[i, :count], out.grid[i, :count], out.patches[i] = s.grey, s.grid, count
        out.ids[i, :size], out.positions[i, :, :size] = s.ids, s.positions
        start, merged = len(BEFORE), count // 4
        out.image_index[i, start : start + merged] = np.arange(merged)
        out.cell_of[i, start : start + merged] = s.grid[::4] // 2
        out.take[i, :answer] = s.answer_from - 1 + np.arange(answer)
        out.target[i, :answer] = s.ids[s.answer_from :]
        out.cells[i, :answer], out.values[i, :answer] = s.cells, s.values
        runs += [index + i * n for index, _ in s.runs]
        targets += [target for _, target in s.runs]
    if runs:
        out.run_length = np.array([len(r) for r in runs], np.int64)
        out.run_index = z((len(runs), int(out.run_length.max())), np.int64)
        for i, r in enumerate(runs):
            out.run_index[i, : len(r)] = r
        out.run_target = np.concatenate(targets)
        out.run_target_length = np.array([len(r) for r in targets], np.int64)
    if samples[0].types is not None:
        out.types = np.stack([s.types for s in samples])  # type: ignore[misc]
        out.boxes = np.stack([s.boxes for s in samples])  # type: ignore[misc]
    return out


def cut(samples: list[Sample], rng: random.Random) -> list[Batch]:
    """Batches of samples of one task and similar size."""
    out: list[Batch] = []
    for task in sorted({s.task for s in samples}):
        group = sorted((s for s in samples if s.task == task), key=lambda s: (len(s.grey), len(s.ids)))
        while group:
            take = 1
            while take < min(len(group), SAMPLES_PER_BATCH) and len(group[take].grey) * (take + 1) <= PATCHES_PER_BATCH:
                take += 1
            out.append(collate(group[:take]))
            group = group[take:]
    rng.shuffle(out)
    return out


def produce(queue: Any, progress: Any, worker: int, workers: int, generation: int) -> None:
    """Draw for ever. The longest answer grows with ``progress`` (0 to 1): reading starts on short lines, drawn
    without a page."""
    seed = FIRST_SEED + generation * 50_000_000 + worker
    rng = random.Random(seed)
    while True:
        p = progress.value
        pool: list[Sample] = []
        if p < LINES_UNTIL:
            tokens = round(8 + 72 * p / LINES_UNTIL)
            pool = [s for s in (line_sample(rng, tokens) for _ in range(400)) if len(s.cells) <= tokens]
        for page in range(5 if p < LINES_UNTIL else 24):
            # Boxes take longer to learn than letters: later half of the pages are read for layout alone.
            pool += page_samples(seed, layout=True, content=p >= LINES_UNTIL and (p < LAYOUT_FROM or page % 2 == 0))
            seed += workers
        for batch in cut(pool, rng):
            queue.put(batch)


def start_producers(workers: int, generation: int) -> tuple[Any, Any]:
    context = mp.get_context("fork")
    queue, progress = context.Queue(maxsize=40), context.Value("d", 0.0)
    for worker in range(workers):
        context.Process(target=produce, args=(queue, progress, worker, workers, generation), daemon=True).start()
    return queue, progress
