"""Which pages: "1-3,7" counts from 1, both ends are meant, "5-" runs to the last page."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mineru_edge.models.errors import InputError

from .units import many

_PART = re.compile(r"\s*(\d+)\s*(?:(-)\s*(\d*)\s*)?")
HINT = "write pages as 1-3,7 (counted from 1, both ends included; 5- runs to the last page)"


def parse_pages(text: str) -> tuple[tuple[int, int | None], ...]:
    """`text` as pairs (first, last), last None for an open end. InputError when it says something else."""
    return tuple(_part(part) for part in text.split(","))


def select_pages(pages: str | Sequence[int] | None, page_count: int) -> tuple[int, ...]:
    """The page numbers meant, ascending and each once. InputError names a page that the document does not have."""
    if pages is None:
        return tuple(range(1, page_count + 1))
    ranges = parse_pages(pages) if isinstance(pages, str) else tuple((number, number) for number in pages)
    if not ranges:
        raise InputError("no page was asked for", hint=HINT)
    chosen: set[int] = set()
    for first, last in ranges:
        highest = max(first, last or 0)
        if min(first, highest) < 1 or highest > page_count:
            wrong = first if first < 1 else highest
            raise InputError(f"page {wrong} does not exist: the document has {many(page_count, 'page')}", hint=HINT)
        chosen.update(range(first, (page_count if last is None else last) + 1))
    return tuple(sorted(chosen))


def _part(part: str) -> tuple[int, int | None]:
    found = _PART.fullmatch(part)
    if not found or len(part) > 40:
        raise InputError(f"{part.strip()!r} is not a page or a range of pages", hint=HINT)
    first = int(found[1])
    last = first if not found[2] else int(found[3]) if found[3] else None
    if first < 1:
        raise InputError("there is no page 0", hint=HINT)
    if last is not None and last < first:
        raise InputError(f"the range {first}-{last} runs backwards", hint=HINT)
    return first, last
