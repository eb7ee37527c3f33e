"""The memory limit held by the system where it can (RLIMIT_DATA, Linux): what passes it fails alone, the process lives.

Planning keeps requests below the limit; this is for what no plan foresees. The limit counts address space, private
mappings of files included, so it is set as so much more than the process has now.
"""

from __future__ import annotations

from mineru_edge.models.errors import BudgetError, megabytes

from .memory import own_memory
from .plan import BESIDE, DRAWER, EMBEDDING, LIBRARIES, LOGITS, PAGES, STORE, TOKENIZER, WEIGHTS, WORK, Plan
from .private_memory import STATUS, limit_data, restore_data

STACKS_BYTES = 32_000_000  # address space of threads to come; little of it is ever used


def ceiling_of(plan: Plan, limit_bytes: int) -> Ceiling:
    """For a process that has opened what `plan` is for and done no work yet. BudgetError when it holds more already
    than the plan has for it, so that the work would not fit."""
    own = own_memory(STATUS)
    base = plan.bytes_of(LIBRARIES, TOKENIZER, WEIGHTS, BESIDE)
    to_come = max(0, base - own.resident_bytes) if own else 0
    return Ceiling(
        limit_bytes,
        promised_bytes=plan.bytes_of(STORE, LOGITS, EMBEDDING, DRAWER) + to_come,
        needed_bytes=plan.bytes_of(WORK, PAGES),
    )


class Ceiling:
    """In force until `lift`."""

    def __init__(self, limit_bytes: int, *, promised_bytes: int, needed_bytes: int) -> None:
        """`promised_bytes` is what this process will use beside what it holds now and beside what its requests take;
        BudgetError when the rest is less than `needed_bytes`."""
        self._before: tuple[int, int] | None = None
        own = own_memory(STATUS)
        if own is None:
            return
        room = limit_bytes - own.resident_bytes - promised_bytes
        if room < needed_bytes:
            raise BudgetError(
                need_bytes=limit_bytes - room + needed_bytes,
                limit_bytes=limit_bytes,
                hint=f"this process holds {megabytes(own.resident_bytes)} already; raise the limit or free some of it",
            )
        self._before = limit_data(room + STACKS_BYTES)

    def lift(self) -> None:
        """Give back the limit that was there before; lifting twice is fine."""
        if self._before is not None:
            restore_data(self._before)
            self._before = None
