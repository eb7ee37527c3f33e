"""What a model is, in numbers: frozen shapes read from `bundle.json`, and the sizes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .records import Record


@dataclass(frozen=True, slots=True)
class VisionShape(Record):
    """The picture encoder. Widths count values, `patch` counts pixels, `merge` patches per side of one token."""

    depth: int
    width: int
    heads: int
    mlp_width: int
    patch: int
    merge: int
    temporal: int  # frames one kernel spans; the export sums them, since a still image is the same frame twice
    channels: int
    out_width: int

    def __post_init__(self) -> None:
        _positive(self, "depth", "width", "heads", "mlp_width", "patch", "merge", "temporal", "channels", "out_width")
        if self.width % self.heads or self.head_dim % 4:
            raise ValueError(f"width {self.width} does not give {self.heads} heads of a multiple of 4")

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def patch_values(self) -> int:
        """Values of one patch of one frame, in the order channel, y, x."""
        return self.channels * self.patch * self.patch

    @property
    def rotary_width(self) -> int:
        """Angles per patch: half of the head, the first half of them for the row, the second for the column."""
        return self.head_dim // 2

    @property
    def factor(self) -> int:
        """Pixels per side of what becomes one token: image sides are multiples of this."""
        return self.patch * self.merge


@dataclass(frozen=True, slots=True)
class TextShape(Record):
    """The decoder. `mrope_sections` counts angles for the time, row and column axes."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int
    vocab: int
    rope_theta: float
    mrope_sections: tuple[int, int, int]
    norm_eps: float
    max_positions: int

    def __post_init__(self) -> None:
        _positive(
            self,
            "layers",
            "width",
            "heads",
            "kv_heads",
            "head_dim",
            "mlp_width",
            "vocab",
            "rope_theta",
            "norm_eps",
            "max_positions",
        )
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} key-value heads")
        if sum(self.mrope_sections) != self.rotary_width or min(self.mrope_sections) < 0:
            raise ValueError(f"mrope_sections {self.mrope_sections} do not add up to half of head_dim {self.head_dim}")

    @property
    def rotary_width(self) -> int:
        """Angles per token: half of the head."""
        return self.head_dim // 2

    def kv_bytes_per_token(self, item_bytes: int) -> int:
        """Bytes that one token holds in the key-value store, all layers together."""
        return 2 * self.layers * self.kv_heads * self.head_dim * item_bytes


@dataclass(frozen=True, slots=True)
class Preprocessing(Record):
    """From upright RGB bytes to patch values: `(byte * rescale - mean) / std` after a resize.

    `min_pixels` and `max_pixels` bound the resized area; `layout_size` is the (width, height) in pixels of the
    picture that the layout prompt is asked about.
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    rescale: float
    min_pixels: int
    max_pixels: int
    layout_size: tuple[int, int]
    resample: Literal["bicubic"] = "bicubic"

    def __post_init__(self) -> None:
        _positive(self, "rescale", "min_pixels", "max_pixels")
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels {self.min_pixels} is above max_pixels {self.max_pixels}")
        if min(self.std) <= 0 or min(self.layout_size) <= 0:
            raise ValueError("std and layout_size must be above 0")


@dataclass(frozen=True, slots=True)
class SpecialIds(Record):
    """Token ids with a meaning to the host, as the checkpoint's own tokenizer numbers them.

    `layout` pairs each token of `prompts.LAYOUT_TOKENS` with its id; `eos` are the ids that end an answer.
    """

    image_pad: int
    vision_start: int
    vision_end: int
    eos: tuple[int, ...]
    layout: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        if not self.eos:
            raise ValueError("eos must hold at least one id")
        ids = [self.image_pad, self.vision_start, self.vision_end, *self.eos, *(number for _, number in self.layout)]
        if min(ids) < 0:
            raise ValueError(f"token ids cannot be negative, found {min(ids)}")


@dataclass(frozen=True, slots=True)
class ChatTemplate(Record):
    """The text around an image and a prompt.

    With an image: `before_image` + n image pads + `after_image` + prompt + `end`; without: `before_text` + prompt +
    `end`.
    """

    before_image: str
    after_image: str
    end: str
    before_text: str


def _positive(record: Record, *names: str) -> None:
    for name in names:
        if getattr(record, name) <= 0:
            raise ValueError(f"{name} must be above 0, found {getattr(record, name)}")
