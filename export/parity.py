"""What a comparison found, the thresholds it must keep, and how both are shown and stored. No models here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mineru_edge.models import prompts
from mineru_edge.models.errors import ParityError

from .agreement import Agreement, NamedEngines, words
from .schemes import Precision

Kind = Literal["layout", "text", "table", "formula"]
KINDS: tuple[Kind, ...] = ("layout", "text", "table", "formula")

PARITY_VERSION = 1


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The worst that passes. Errors are relative, shares of requests; `token_error` is edits per token.

    `divergence_margin` is the surest decision of the reference, in logits, that came out otherwise: rounding turns
    near ties, a mistake turns anything.
    """

    patches_difference: float
    vision_error: float
    logits_error: float
    divergence_margin: float
    token_error: float
    equal_share: float
    boxes_share: float


THRESHOLDS: dict[Precision, Thresholds] = {
    "fp32": Thresholds(
        patches_difference=1e-6, vision_error=1e-4, logits_error=1e-4, divergence_margin=0.0, token_error=0.0,
        equal_share=1.0, boxes_share=1.0,
    ),
    "int8": Thresholds(
        patches_difference=1e-6, vision_error=0.05, logits_error=0.08, divergence_margin=1.0, token_error=0.05,
        equal_share=0.5, boxes_share=0.8,
    ),
}  # fmt: skip
"""The one place that says what is good enough. Why these numbers is in NOTES.md."""

BOX_OVERLAP: dict[Precision, float] = {"fp32": 1.0, "int8": 0.7}
"""The overlap (intersection over union) from which a box of the reference counts as back; 1 is equal to the digit."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token that differs: the reference's choice and the exported model's, None for an ended answer.

    `margin` is how far the reference's best logit lay above its second best; `second` whether the exported model chose
    that second best. A small margin is rounding, a large one is a mistake.
    """

    at: int
    reference: int | None
    exported: int | None
    margin: float
    second: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """One request. `boxes` is None unless it is a layout request: how many of the
    reference's boxes came back, of how many on the side that has more."""

    page: int
    kind: Kind
    patches: int
    prompt_tokens: int
    patches_difference: float
    vision_error: float
    logits_error: float
    positions_equal: bool
    ids_equal: bool
    tokens: int
    edits: int
    divergence: Divergence | None
    boxes: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Golden:
    """A small request the exported model answered as the reference did; a device replays it.

    `image` is a PNG in base64, of any mode, to be taken as RGB; `margin` the smallest distance between best and second
    best logit on the way: where it is large, any difference on a device is a fault.
    """

    kind: Kind
    image: str
    prompt: str
    max_new_tokens: int
    ids: tuple[int, ...]
    margin: float


@dataclass(frozen=True, slots=True)
class Parity:
    """All requests of one comparison; what `parity.json` holds.

    The reference is compared with the answers of `engines`. `other_engines` has each graph run by the other engine;
    `kv8` an int8 key-value store in place of an f32 one, by the same engines. Both are figures without a threshold,
    and None when the bundle or the machine has no such way.
    """

    precision: Precision
    requests: tuple[Compared, ...]
    golden: tuple[Golden, ...]
    tools: tuple[tuple[str, str], ...]
    engines: NamedEngines
    other_engines: Agreement | None = None
    kv8: Agreement | None = None

    @property
    def thresholds(self) -> Thresholds:
        return THRESHOLDS[self.precision]

    def measured(self) -> dict[str, float]:
        """The numbers the thresholds are about, under their names."""
        requests = self.requests
        boxes = [r.boxes for r in requests if r.boxes is not None]
        tokens = sum(r.tokens for r in requests)
        return {
            "patches_difference": _worst(r.patches_difference for r in requests),
            "vision_error": _worst(r.vision_error for r in requests),
            "logits_error": _worst(r.logits_error for r in requests),
            "divergence_margin": _worst([0.0, *(r.divergence.margin for r in requests if r.divergence)]),
            "token_error": sum(r.edits for r in requests) / max(1, tokens),
            "equal_share": _share(r.divergence is None for r in requests),
            "boxes_share": sum(b[0] for b in boxes) / sum(b[1] for b in boxes) if any(b[1] for b in boxes) else 1.0,
        }

    def missed_thresholds(self) -> list[str]:
        """Names of the thresholds that were missed."""
        found, limits = self.measured(), asdict(self.thresholds)
        return [n for n, limit in limits.items() if (found[n] < limit if n.endswith("share") else found[n] > limit)]

    def missed(self) -> list[str]:
        """One sentence for each threshold that was missed; empty when all is well."""
        found, limits = self.measured(), asdict(self.thresholds)
        lines = [
            f"{n} is {found[n]:.3g}, {'at least' if n.endswith('share') else 'at most'} {limits[n]:g} is allowed"
            for n in self.missed_thresholds()
        ]
        if moved := sum(not r.positions_equal for r in self.requests):
            lines.append(f"{moved} requests have other positions")
        if other := sum(not r.ids_equal for r in self.requests):
            lines.append(f"{other} prompts have other ids")
        return lines

    def check(self) -> None:
        """ParityError with every missed threshold."""
        if missed := self.missed():
            raise ParityError(
                "; ".join(missed), hint="see where in the table; an fp32 export tells rounding from error"
            )

    def table(self) -> str:
        """One line per kind of request, one per divergence, and the verdict: for a terminal."""
        lines = [_HEAD, *(self._line(kind, [r for r in self.requests if r.kind == kind]) for kind in KINDS)]
        lines.append(self._line("all", list(self.requests)))
        for r in self.requests:
            if (d := r.divergence) is not None:
                choice = "the second best" if d.second else "neither of the two best"
                lines.append(
                    f"page {r.page} {r.kind}: token {d.at} of {r.tokens} is {d.exported}, not {d.reference}: {choice}, "
                    f"margin {d.margin:.3g}"
                )
        lines.append(f"answered by {words(self.engines)}")
        if self.other_engines is not None:
            lines.append(self.other_engines.line("the other engines"))
        if self.kv8 is not None:
            lines.append(self.kv8.line("int8 keys and values against f32 ones"))
        missed = self.missed()
        return "\n".join([*filter(None, lines), *(missed or [f"within the thresholds for {self.precision}"])])

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists, as `parity.json` has them."""
        return {
            "parity_version": PARITY_VERSION, "precision": self.precision, "passed": not self.missed(),
            "thresholds": asdict(self.thresholds), "measured": self.measured(), "tools": dict(self.tools),
            "engines": dict(self.engines),
            "requests": [asdict(r) for r in self.requests], "golden": [asdict(g) for g in self.golden],
            "other_engines": self.other_engines.to_json() if self.other_engines else None,
            "kv8": self.kv8.to_json() if self.kv8 else None,
        }  # fmt: skip

    @staticmethod
    def _line(kind: str, requests: list[Compared]) -> str:
        if not requests:
            return ""
        equal = sum(r.divergence is None for r in requests)
        boxes = [r.boxes for r in requests if r.boxes is not None]
        shown = f"{sum(b[0] for b in boxes)}/{sum(b[1] for b in boxes)}" if boxes else ""
        return (
            f"{kind:<10}{len(requests):>7}{sum(r.patches for r in requests):>9}"
            f"{max(r.vision_error for r in requests):>10.1e}{max(r.logits_error for r in requests):>10.1e}"
            f"{sum(r.tokens for r in requests):>8}{sum(r.edits for r in requests):>7}"
            f"{f'{equal}/{len(requests)}':>9}{shown:>11}"
        )


_COLUMNS = {"number": 7, "patches": 9, "vision": 10, "logits": 10, "tokens": 8, "edits": 7, "equal": 9, "boxes": 11}
_HEAD = "requests".ljust(10) + "".join(name.rjust(width) for name, width in _COLUMNS.items())

_LINE = re.compile(
    rf"{re.escape(prompts.BOX_START)}(\d+) (\d+) (\d+) (\d+){re.escape(prompts.BOX_END)}"
    rf"{re.escape(prompts.REF_START)}(\w+){re.escape(prompts.REF_END)}"
)

Box = tuple[str, int, int, int, int]


def layout_boxes(text: str) -> list[Box]:
    """Type and box in thousandths (left, top, right, bottom) of each block in a layout answer."""
    return [(kind, int(x0), int(y0), int(x1), int(y1)) for x0, y0, x1, y1, kind in _LINE.findall(text)]


def boxes_back(expected: Sequence[Box], found: Sequence[Box], overlap: float) -> tuple[int, int]:
    """How many of `expected` are in `found`, type and at least this overlap, of how many on the larger side."""
    free, back = list(found), 0
    for box in expected:
        best = max(free, key=lambda other: _overlap(box, other), default=None)
        if best is not None and _overlap(box, best) >= overlap:
            free.remove(best)
            back += 1
    return back, max(len(expected), len(found))


def _overlap(a: Box, b: Box) -> float:
    """`iou`, but 0 between types and 1 between equal boxes without area."""
    return (iou(a[1:], b[1:]) or float(a == b)) if a[0] == b[0] else 0.0


def iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes (left, top, right, bottom)."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def _worst(values: Iterable[float]) -> float:
    """The largest; what is no number is worse than any."""
    return max(math.inf if math.isnan(value) else value for value in values)


def _share(values: Iterable[bool]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 1.0
