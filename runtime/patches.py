"""From a picture to the vision graph's patch rows, value for value what transformers' Qwen2-VL image processor gives.

The processor repeats a still image as two frames; the graph has their kernels summed, so one frame goes in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from mineru_edge.models.architecture import Preprocessing, VisionShape

from .arrays import F32, U8

MAX_ASPECT = 200  # the reference rule raises above it; a longer strip is padded with white instead


@dataclass(frozen=True, slots=True)
class Patches:
    """`values` is f32 [grid_rows * grid_cols, channels * patch * patch], rows in merge-block order."""

    values: F32
    grid_rows: int
    grid_cols: int

    @property
    def count(self) -> int:
        return self.grid_rows * self.grid_cols


def smart_resize(height: int, width: int, *, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The size, in multiples of `factor`, that a picture of this size is resized to: the reference rule to the letter.

    Halves round to even, as Python does. A side that would fall below `factor` stays there, which may leave a narrow
    strip above `max_pixels`; `fitted_size` holds that line. Needs an aspect of at most MAX_ASPECT.
    """
    assert max(height, width) <= MAX_ASPECT * min(height, width), f"{height} x {width} must be padded first"
    rows, cols = round(height / factor), round(width / factor)
    if rows * cols * factor * factor > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        rows = max(1, math.floor(height / shrink / factor))
        cols = max(1, math.floor(width / shrink / factor))
    elif rows * cols * factor * factor < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * grow / factor)
        cols = math.ceil(width * grow / factor)
    return rows * factor, cols * factor


def fitted_size(
    height: int, width: int, preprocessing: Preprocessing, vision: VisionShape, *, patch_cap: int | None = None
) -> tuple[int, int]:
    """`smart_resize` under a cap on patches that holds without exception; (height, width) in pixels.

    A lower cap scales a picture down exactly as a lower `max_pixels` would. A strip that is one block high and still
    too long gives up length.
    """
    factor = vision.factor
    max_pixels = preprocessing.max_pixels
    if patch_cap is not None:
        max_pixels = min(max_pixels, patch_cap * vision.patch**2)
    assert max_pixels >= factor**2, f"{max_pixels} pixels hold no block of {factor} x {factor}"
    min_pixels = min(preprocessing.min_pixels, max_pixels)
    rows, cols = smart_resize(height, width, factor=factor, min_pixels=min_pixels, max_pixels=max_pixels)
    if patch_cap is not None and rows * cols > max_pixels:
        longest = max_pixels // min(rows, cols) // factor * factor
        rows, cols = min(rows, longest), min(cols, longest)
    return rows, cols


def patchify(
    image: Image.Image, preprocessing: Preprocessing, vision: VisionShape, *, patch_cap: int | None = None
) -> Patches:
    """Pad an extreme strip, resize, normalise, cut. OSError or another PIL error when the picture cannot be decoded."""
    image = _padded(image.convert("RGB"))
    height, width = fitted_size(image.height, image.width, preprocessing, vision, patch_cap=patch_cap)
    pixels: U8 = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))
    rows, cols = height // vision.patch, width // vision.patch
    blocks = pixels.reshape(
        rows // vision.merge, vision.merge, vision.patch, cols // vision.merge, vision.merge, vision.patch, 3
    )
    # block row, block column, row and column in the block, channel, y, x
    ordered = blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * cols, vision.channels, -1)
    values: F32 = np.empty(ordered.shape, np.float32)
    for channel, table in enumerate(_tables(preprocessing)):
        np.take(table, ordered[:, channel], out=values[:, channel])
    return Patches(values.reshape(rows * cols, vision.patch_values), rows, cols)


def _tables(preprocessing: Preprocessing) -> list[F32]:
    """One normalised value per byte and channel, rounded where the reference rounds: after scaling, then in f32."""
    scaled = (np.arange(256, dtype=np.float64) * preprocessing.rescale).astype(np.float32)
    return [
        (scaled - np.float32(mean)) / np.float32(std)
        for mean, std in zip(preprocessing.mean, preprocessing.std, strict=True)
    ]


def _padded(image: Image.Image) -> Image.Image:
    """The picture centred on white, its short side long enough for MAX_ASPECT."""
    short = math.ceil(max(image.size) / MAX_ASPECT)
    width, height = max(image.width, short), max(image.height, short)
    if (width, height) == image.size:
        return image
    canvas = Image.new("RGB", (width, height), "white")
    canvas.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
    return canvas
