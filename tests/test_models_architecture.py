"""Sizes that follow from a shape, and shapes that cannot be."""

from __future__ import annotations

import dataclasses

import pytest
from bundles import CHAT, PREPROCESSING, SPECIAL, TEXT, VISION

from mineru_edge.models.architecture import TextShape, VisionShape

MINERU_VISION = VisionShape(
    depth=32, width=1280, heads=16, mlp_width=5120, patch=14, merge=2, temporal=2, channels=3, out_width=896
)
MINERU_TEXT = TextShape(
    layers=24,
    width=896,
    heads=14,
    kv_heads=2,
    head_dim=64,
    mlp_width=4864,
    vocab=151936,
    rope_theta=1e6,
    mrope_sections=(8, 12, 12),
    norm_eps=1e-6,
    max_positions=16384,
)


def test_sizes_of_the_published_model() -> None:
    assert MINERU_VISION.head_dim == 80
    assert MINERU_VISION.rotary_width == 40
    assert MINERU_VISION.patch_values == 588
    assert MINERU_VISION.factor == 28
    assert MINERU_TEXT.rotary_width == 32
    assert MINERU_TEXT.kv_bytes_per_token(4) == 24_576


@pytest.mark.parametrize(
    "record", [VISION, TEXT, PREPROCESSING, SPECIAL, CHAT], ids=lambda record: type(record).__name__
)
def test_json_and_back(record: VisionShape) -> None:
    assert type(record).from_json(record.to_json()) == record


def test_layout_ids_are_an_object_in_json() -> None:
    assert SPECIAL.to_json()["layout"] == {"<|box_start|>": 35, "<|box_end|>": 36}


def test_records_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        VISION.depth = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("record", "change", "message"),
    [
        (VISION, {"heads": 5}, "width 64 does not give 5 heads"),
        (VISION, {"depth": 0}, "depth must be above 0, found 0"),
        (TEXT, {"mrope_sections": (2, 3, 4)}, "do not add up to half of head_dim 16"),
        (TEXT, {"mrope_sections": (-1, 4, 5)}, "do not add up"),
        (TEXT, {"norm_eps": 0.0}, "norm_eps must be above 0"),
        (PREPROCESSING, {"min_pixels": 100_000}, "min_pixels 100000 is above max_pixels 78400"),
        (PREPROCESSING, {"std": (0.0, 1.0, 1.0)}, "std and layout_size"),
        (SPECIAL, {"eos": ()}, "eos must hold at least one id"),
        (SPECIAL, {"image_pad": -1}, "token ids cannot be negative, found -1"),
    ],
)
def test_impossible_values_are_refused(record: VisionShape, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(record, **change)  # type: ignore[arg-type]
