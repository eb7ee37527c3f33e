"""Byte counts and other amounts as people write them."""

from __future__ import annotations

import re

from mineru_edge.models.errors import MineruEdgeError

_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG]I?)?B?\s*", re.IGNORECASE)


def parse_bytes(text: str | int) -> int:
    """2G is 2,000,000,000 and 2Gi is 2,147,483,648; an int is bytes already. MineruEdgeError on anything else."""
    if isinstance(text, int):
        count = text
    else:
        found = _SIZE.fullmatch(text)
        if not found:
            raise MineruEdgeError(f"{text!r} is not an amount of memory", hint="write it as 2G, 1500M or 2Gi")
        count = int(float(found[1]) * _FACTORS[(found[2] or "").upper()])
    if count <= 0:
        raise MineruEdgeError("an amount of memory must be above 0", hint="write it as 2G, 1500M or 2Gi")
    return count


def many(count: int, word: str) -> str:
    """ "1 page", "1,000 pages"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
