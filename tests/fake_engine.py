"""An engine that answers from a script: the interface of `mineru_edge.runtime.engine.Engine` without a model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bundles import write_bundle

from mineru_edge import reader as reader_module
from mineru_edge.cli import main
from mineru_edge.reader import Reader
from mineru_edge.runtime.engines import ONNXRUNTIME
from mineru_edge.runtime.request import FinishReason, Request, Result, Step

LAYOUT_PROMPT = "\nLayout Detection:"
EMPTY_PAGE = ""


def layout(*blocks: tuple[str, tuple[int, int, int, int]], rotation: str = "up") -> str:
    """A layout answer: (type, box in thousandths) per block."""
    return "\n".join(
        f"<|box_start|>{left:03d} {top:03d} {right:03d} {bottom:03d}<|box_end|>"
        f"<|ref_start|>{kind}<|ref_end|><|rotate_{rotation}|>"
        for kind, (left, top, right, bottom) in blocks
    )


ONE_TEXT = layout(("text", (100, 100, 900, 200)))


def result(text: str, reason: FinishReason = FinishReason.stop, *, error: str | None = None) -> Result:
    """A finished request with plausible numbers."""
    return Result(text, tuple(range(len(text))), reason, error, 10, 16, 0.5, 0.25, 0.125)


class FakeEngine:
    """`layouts` are given to the layout requests one after the other, `answers` to all others, or a function is asked.

    Each step finishes up to `slots` requests, oldest first. `submitted` keeps every request, `waiting_at_step` how many
    were there at each step.
    """

    def __init__(
        self,
        layouts: Iterable[str | Result] = (),
        answers: Iterable[str | Result] | Callable[[Request], str | Result] = (),
        *,
        slots: int = 2,
    ) -> None:
        self._layouts = iter(layouts)
        self._answers = answers if callable(answers) else iter(answers)
        self._waiting: deque[tuple[int, Request]] = deque()
        self.slots = slots
        self.submitted: list[Request] = []
        self.waiting_at_step: list[int] = []
        self.cancelled: list[int | None] = []
        self.closed = 0
        part = SimpleNamespace(name="activations", bytes=5_000_000)
        self.engines = ONNXRUNTIME
        self.plan: Any = SimpleNamespace(
            parts=(part,),
            total_bytes=5_000_000,
            slots=slots,
            capacity_tokens=512,
            patch_cap=64,
            drawing_bytes=200_000_000,
            drawer_stays=True,
        )

    def submit(self, request: Request) -> int:
        self.submitted.append(request)
        self._waiting.append((len(self.submitted), request))
        return len(self.submitted)

    def step(self) -> list[Step]:
        assert self._waiting, "a step with nothing asked would never end"
        self.waiting_at_step.append(len(self._waiting))
        return [self._finish() for _ in range(min(self.slots, len(self._waiting)))]

    def cancel(self, ticket: int | None = None) -> None:
        self.cancelled.append(ticket)

    @property
    def idle(self) -> bool:
        return not self._waiting

    def close(self) -> None:
        self.closed += 1

    def _finish(self) -> Step:
        ticket, request = self._waiting.popleft()
        if request.prompt == LAYOUT_PROMPT:
            given: str | Result = next(self._layouts)
        elif callable(self._answers):
            given = self._answers(request)
        else:
            given = next(self._answers)
        finished = result(given) if isinstance(given, str) else given
        return Step(ticket, None, "", finished)


class Bench:
    """Readers and `parse` runs over scripted engines; everything opened is closed by `close`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bundle = write_bundle(folder / "bundle").path
        self._monkeypatch = monkeypatch
        self._opened: list[Reader] = []

    def reader(self, engine: FakeEngine, **options: Any) -> Reader:
        self._serve(engine)
        self._opened.append(Reader(self.bundle, **options))
        return self._opened[-1]

    def parse(self, engine: FakeEngine, *arguments: object) -> int:
        """`mineru-edge parse` with these arguments; its exit code."""
        self._serve(engine)
        return main(["parse", "--bundle", str(self.bundle), *map(str, arguments)])

    def close(self) -> None:
        for each in self._opened:
            each.close()

    def _serve(self, engine: FakeEngine) -> None:
        self._monkeypatch.setattr(reader_module, "_open_engine", lambda *_, **options: engine)
