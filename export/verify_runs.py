"""The bundle's answers to one list of requests, run by these engines or those, over this key-value store or that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mineru_edge.models.bundle import Bundle, KVKind
from mineru_edge.models.errors import BudgetError, EngineError
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.engines import Engines
from mineru_edge.runtime.request import DecodeParams, FinishReason, Request, Result

from .agreement import Agreement, NamedEngines
from .cases import Case

logger = logging.getLogger(__name__)

_FINISHED = (FinishReason.stop, FinishReason.length, FinishReason.repetition)


@dataclass(frozen=True, slots=True)
class Run:
    """Each request's result, in their order, and the engines that gave them."""

    engines: Engines
    results: tuple[Result, ...]

    @property
    def names(self) -> NamedEngines:
        return ("vision", self.engines.vision.name), ("decoder", self.engines.decoder.name)

    def agreement(self, second: Run) -> Agreement:
        """How far the answers of `second` are these."""
        first, again = ([result.token_ids for result in run.results] for run in (self, second))
        return Agreement.between(first, again, second.names)


@dataclass(frozen=True, slots=True)
class Requests:
    """What is asked, and what is the same however the bundle is opened for it. `tell` hears of each answer."""

    bundle: Bundle
    cases: Sequence[Case]
    max_new_tokens: int
    slots: int
    capacity_tokens: int
    threads: int | None
    tell: Callable[[str], None]

    def open(self, engine: str, kv: KVKind = "fp32") -> Engine:
        return Engine.open(
            self.bundle,
            slots=self.slots,
            capacity_tokens=self.capacity_tokens,
            threads=self.threads,
            engine=engine,
            kv=kv,
        )

    def answered(self, engine: Engine) -> Run:
        """EngineError when a request fails."""
        params = DecodeParams(self.max_new_tokens)
        results: dict[int, Result] = {}
        for index, result in engine.results(Request(case.image, case.prompt, params) for case in self.cases):
            case = self.cases[index]
            if result.finish_reason not in _FINISHED:
                raise EngineError(f"the {case.kind} request of page {case.page} failed: {result.error}")
            results[index] = result
            self.tell(f"bundle, {case.kind} of page {case.page}")
        return Run(engine.engines, tuple(results[index] for index in range(len(self.cases))))

    def answered_by(self, engine: str, kv: KVKind = "fp32") -> Run | None:
        """None, and a warning, when this way of running does not fit the memory: the first one did."""
        try:
            opened = self.open(engine, kv)
        except BudgetError as error:
            logger.warning("not compared with %s: %s", engine, error)
            return None
        with opened:
            return self.answered(opened)
