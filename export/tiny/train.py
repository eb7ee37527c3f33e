"""Train the embedded model: ``python -m mineru_edge.export.tiny train WORK --minutes 100``.

The schedule runs on wall-clock minutes (constant rate, straight down to nothing from 45 %), so one command fits any
machine. It continues from ``WORK/train.pt`` when that exists, or begins with a written checkpoint (``--start``).
Results depend on the machine's speed and are therefore not bit-reproducible; the pages are.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

from . import checkpoint
from .batches import LINES_UNTIL, Batch, start_producers
from .losses import Helpers, losses, total
from .model import Config, TextLayer, TinyQwen2VL, VisionBlock

RATE, WARM_STEPS, TAIL_FROM = 1.0e-3, 300, 0.45


def rate(step: int, progress: float) -> float:
    return RATE * min(1.0, (step + 1) / WARM_STEPS, max((1 - progress) / (1 - TAIL_FROM), 0.01))


def train(work: Path, minutes: float, *, ranks: int = 2, replay: int = 2, start: Path | None = None) -> None:
    """Write ``work/train.pt`` every three minutes and at the end; ``replay`` is how often a batch is used.

    ``ranks`` single-threaded processes update one set of shared weights without locks (Hogwild, Recht et al. 2011),
    each with Adam moments of its own: batches differ tenfold in cost, and nobody waits for the other.
    """
    work.mkdir(parents=True, exist_ok=True)
    saved = work / "train.pt"
    state = torch.load(saved, weights_only=True) if saved.exists() else None
    torch.manual_seed(0)
    both = torch.nn.ModuleList([TinyQwen2VL(Config()), Helpers(Config())])
    if state:
        both.load_state_dict(state["both"], strict=False)  # helpers may have come since
    elif start:  # it reads already: on with whole pages
        both[0].load_state_dict(checkpoint.read(start))
    both.share_memory()
    generation = state["generation"] + 1 if state else 0
    queue, progress = start_producers(1, generation)
    elapsed = state["elapsed"] if state else LINES_UNTIL * minutes * 60 if start else 0.0
    run = Run(work, minutes * 60, both, elapsed, generation, queue, progress, replay)
    context = mp.get_context("fork")
    for rank in range(1, ranks):
        context.Process(target=run.rank, args=(rank, state), daemon=True).start()
    run.rank(0, state)


@dataclass(slots=True)
class Run:
    work: Path
    seconds: float
    both: torch.nn.ModuleList
    elapsed: float
    generation: int
    queue: Any
    progress: Any  # shared; rank 0's clock rules the schedule
    replay: int

    def save(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        temporary = self.work / "train.tmp"
        torch.save(
            {
                "both": self.both.state_dict(),
                "optimizer": optimizer.state_dict(),
                "elapsed": self.elapsed,
                "step": step,
                "generation": self.generation,
            },
            temporary,
        )
        os.replace(temporary, self.work / "train.pt")

    def rank(self, rank: int, state: dict[str, Any] | None) -> None:
        torch.set_num_threads(1)
        # A third faster, after a minute's compiling.
        VisionBlock.forward = torch.compile(VisionBlock.forward, dynamic=True)  # type: ignore[method-assign]
        TextLayer.forward = torch.compile(TextLayer.forward, dynamic=True)  # type: ignore[method-assign]
        model, helpers = self.both
        decay = [p for p in self.both.parameters() if p.dim() > 1]
        plain = [p for p in self.both.parameters() if p.dim() <= 1]
        optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}],
            lr=RATE,
            betas=(0.9, 0.98),
            eps=1e-6,
            fused=True,
        )
        step = 0
        if state:
            step = state["step"]
            if sum(len(g["params"]) for g in state["optimizer"]["param_groups"]) == len(decay) + len(plain):
                optimizer.load_state_dict(state["optimizer"])
        sums: dict[str, list[float]] = defaultdict(list)
        old: list[Batch] = []
        samples, clock = 0, time.monotonic()
        last_log = last_save = clock
        rng = random.Random(self.generation * 100 + rank)
        while self.elapsed < self.seconds:
            now = time.monotonic()
            self.elapsed += min(now - clock, 30.0)  # a pause is not training
            clock = now
            if rank == 0:
                self.progress.value = self.elapsed / self.seconds
            batch = self.next_batch(old, rng)
            for group in optimizer.param_groups:
                group["lr"] = rate(step, self.progress.value)
            parts = losses(model, helpers, batch)
            optimizer.zero_grad(set_to_none=True)
            total(parts).backward()
            norm = torch.nn.utils.clip_grad_norm_(self.both.parameters(), 1.0)
            if bool(torch.isfinite(norm)):
                optimizer.step()
            step += 1
            samples += len(batch.ids)
            for name, value in parts.items():
                sums[f"{batch.task}.{name}"].append(float(value.detach()))
            if rank == 0 and now - last_log > 60:
                text = " ".join(f"{k}={sum(v) / len(v):.3f}" for k, v in sorted(sums.items()))
                print(
                    f"{self.elapsed / 60:.1f} min step {step} {samples / (now - last_log):.0f}/s "
                    f"queue {self.queue.qsize()} {text}",
                    file=sys.stderr,
                    flush=True,
                )
                sums.clear()
                samples, last_log = 0, now
            if rank == 0 and now - last_save > 180:
                self.save(optimizer, step)
                last_save = now
        if rank == 0:
            self.save(optimizer, step)

    def next_batch(self, old: list[Batch], rng: random.Random) -> Batch:
        """A fresh batch, or one of the last few hundred again."""
        if self.replay > 1 and len(old) > 60 and rng.random() < 1 - 1 / self.replay:
            return old.pop(rng.randrange(len(old)))
        batch: Batch = self.queue.get()
        if self.replay > 1:
            old.append(batch)
            if len(old) > 250:
                old.pop(rng.randrange(len(old)))
        return batch
