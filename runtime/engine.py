"""The runtime as one object: requests in, steps and results out, within a plan."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from mineru_edge.models.bundle import Bundle, KVKind
from mineru_edge.models.errors import BudgetError, EngineError

from .ceiling import Ceiling, ceiling_of
from .engines import AUTO, ONNXRUNTIME, Engines, choose_engines
from .graphs import Graphs, block_tokens, copies_vision, is_prepared, open_graphs
from .kv import KVStore
from .model import Model
from .plan import NOTHING, Beside, Plan, make_plan
from .request import Request, Result, Step
from .scheduler import Scheduler
from .threads import thread_count

logger = logging.getLogger(__name__)

ENOUGH_SLOTS = 4  # for engines that leave room for fewer than others would


def plan_for(bundle: Bundle, **options: Any) -> Plan:
    """The plan that `Engine.open` would take with these options, and its errors."""
    return choose_plan(bundle, **options)[1]


def choose_plan(bundle: Bundle, *, kv: KVKind = "fp32", engine: str = AUTO, **options: Any) -> tuple[Engines, Plan]:
    """The engines that are the best here, unless others make so much more of the memory limit that they are better."""
    bundle.check_kv(kv)
    *faster, leanest = choose_engines(bundle, engine, kv=kv)

    def planned(engines: Engines) -> Plan:
        mapped, copied = is_prepared(bundle, kv, engines), copies_vision(bundle, engines)
        return make_plan(bundle, engines=engines, packed_is_mapped=mapped, vision_is_copied=copied, kv=kv, **options)

    lean = planned(leanest)
    for engines in faster:
        with contextlib.suppress(BudgetError):
            plan = planned(engines)
            # A smaller picture is another answer, and a single slot decodes slower than several with any engine.
            if plan.patch_cap >= lean.patch_cap and plan.slots >= min(lean.slots, ENOUGH_SLOTS):
                return engines, plan
    return leanest, lean


class Engine:
    """One bundle, opened. One thread drives it; `cancel` may be called from any."""

    def __init__(self, bundle: Bundle, plan: Plan, graphs: Graphs, kv: KVStore, engines: Engines = ONNXRUNTIME) -> None:
        """With graphs opened elsewhere; `open` is the usual way."""
        self.plan = plan
        self.engines = engines
        self.model = Model(bundle, plan, graphs)
        self.kv = kv
        self._scheduler = Scheduler(self.model, kv)
        self._ceiling: Ceiling | None = None

    @classmethod
    def open(
        cls,
        bundle: Bundle,
        *,
        memory_limit_bytes: int | None = None,
        slots: int | None = None,
        threads: int | None = None,
        capacity_tokens: int | None = None,
        patch_cap: int | None = None,
        kv: KVKind = "fp32",
        engine: str = AUTO,
        drawn_apart: bool = False,
        beside: Beside = NOTHING,
    ) -> Engine:
        """Plan, allocate, open the graphs. BudgetError, BundleError or EngineError when one of these cannot be.

        None leaves the choice to the memory limit and the machine; no limit means most of what is available now. A
        limit that is given holds for the whole process until `close`, as far as the system can hold it, and for the
        process that draws the pages when they are `drawn_apart`. `beside` is what else this process does. `engine` is
        what `engines.parse_wishes` reads; where it leaves the choice to us and the better engines do not fit, those
        that need less memory are taken.
        """
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, found {threads}")
        engines, plan = choose_plan(
            bundle,
            engine=engine,
            limit_bytes=memory_limit_bytes,
            slots=slots,
            capacity_tokens=capacity_tokens,
            patch_cap=patch_cap,
            kv=kv,
            drawn_apart=drawn_apart,
            beside=beside,
        )
        try:
            store = KVStore(
                bundle.text,
                slots=plan.slots,
                capacity_tokens=plan.capacity_tokens,
                kind=kv,
                block_tokens=block_tokens(engines),
            )
        except OSError as error:
            raise EngineError(f"no memory for the key-value store: {error}", hint="lower the memory limit") from error
        count = thread_count() if threads is None else threads
        logger.info("%d slots of %d tokens, %d threads", plan.slots, plan.capacity_tokens, count)
        logger.info("%s", engines.words)
        opened = cls(bundle, plan, open_graphs(bundle, store, threads=count, engines=engines), store, engines)
        if memory_limit_bytes is not None:
            opened.model.rest()
            opened._ceiling = ceiling_of(plan, memory_limit_bytes)
        return opened

    def submit(self, request: Request) -> int:
        """Queue a request; its ticket marks its steps."""
        return self._scheduler.submit(request)

    def step(self) -> list[Step]:
        """Prefill free slots, then one batched decode. Never raises for a request: its result says `error`."""
        return self._scheduler.step()

    def cancel(self, ticket: int | None = None) -> None:
        """End one request, or all, as soon as possible; its result says `cancelled` and keeps what was read."""
        self._scheduler.cancel(ticket)

    @property
    def idle(self) -> bool:
        return self._scheduler.idle

    def steps(self, requests: Iterable[Request]) -> Iterator[Step]:
        """Run requests and yield every step as it happens. Requests are drawn one at a time, when a slot falls free.

        Closing the iterator early cancels what it has begun. Steps of other requests are dropped meanwhile: drive the
        engine in one way at a time.
        """
        for _, step in self._indexed(requests):
            yield step

    def results(self, requests: Iterable[Request]) -> Iterator[tuple[int, Result]]:
        """Each result as it is finished, with its request's place in `requests`."""
        for index, step in self._indexed(requests):
            if step.result is not None:
                yield index, step.result

    def _indexed(self, requests: Iterable[Request]) -> Iterator[tuple[int, Step]]:
        index_of: dict[int, int] = {}
        source = enumerate(requests)
        drained = False
        try:
            while True:
                while not drained and len(index_of) < self.plan.slots:
                    place, request = next(source, (0, None))
                    drained = request is None
                    if request is not None:
                        index_of[self.submit(request)] = place
                if not index_of:
                    return
                for step in self.step():
                    index = index_of.get(step.ticket)
                    if index is None:  # a request of somebody else, or of an iterator closed before its end
                        continue
                    if step.result is not None:
                        del index_of[step.ticket]
                    yield index, step
        finally:
            for ticket in index_of:
                self.cancel(ticket)

    def close(self) -> None:
        """Let go of graphs and store. Further use is a mistake; closing again is not."""
        if self._ceiling is not None:
            self._ceiling.lift()
        for name in ("model", "kv", "_scheduler"):
            self.__dict__.pop(name, None)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
