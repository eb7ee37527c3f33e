"""How far two lists of answers are the same, and how that is shown and stored. No models here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

Tokens = tuple[int, ...]
NamedEngines = tuple[tuple[str, str], ...]
"""Graph and the engine that ran it, such as (("vision", "openvino with bf16 attention"), ("decoder", "openvino"))."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The bundle against itself, asked the same in another way: requests with equal answers, tokens of the first
    answers, edits between them and the second. `engines` gave the second."""

    engines: NamedEngines
    requests: int
    equal: int
    tokens: int
    edits: int

    @classmethod
    def between(cls, first: Sequence[Tokens], second: Sequence[Tokens], engines: NamedEngines) -> Agreement:
        pairs = list(zip(first, second, strict=True))
        return cls(
            engines=engines,
            requests=len(pairs),
            equal=sum(a == b for a, b in pairs),
            tokens=sum(len(a) for a, _ in pairs),
            edits=sum(edits(a, b) for a, b in pairs),
        )

    @property
    def share(self) -> float:
        """Of the tokens, what needed no edit."""
        return 1 - self.edits / max(1, self.tokens)

    def line(self, way: str) -> str:
        """For the table; `way` is what was other than before."""
        return (
            f"{way}, {words(self.engines)}: {self.equal} of {self.requests} requests equal, {self.edits} edits, "
            f"{self.share:.2%} of {self.tokens} tokens agree"
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "engines": dict(self.engines), "share": self.share}


def words(engines: NamedEngines) -> str:
    return ", ".join(f"{graph} {engine}" for graph, engine in engines)


def edits(a: Sequence[int], b: Sequence[int]) -> int:
    """Insertions, deletions and replacements that turn one sequence into the other."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        corner, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (left != right))
    return row[-1]
