"""Where patches and tokens are: 2-D rotary angles for the vision graph, three-axis (M-RoPE) ones for the decoder.

Angles are products in f32 as in the reference; only their cosine and sine are taken in f64, to be rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mineru_edge.models.architecture import TextShape, VisionShape

from .arrays import F32, I64

VISION_THETA = 10_000.0  # a constant of the architecture


class Rotary(NamedTuple):
    """Two f32 tables of the same shape."""

    cos: F32
    sin: F32


class Positions(NamedTuple):
    """`axes` is i64 [3, tokens]: time, row, column. Generated token i sits at `tokens + i + delta` on all three."""

    axes: I64
    delta: int


def vision_rotary(grid_rows: int, grid_cols: int, vision: VisionShape) -> Rotary:
    """cos and sin, f32 [patches, head_dim / 2] each, in merge-block order: row angles, then column angles."""
    merge = vision.merge
    blocks = grid_rows // merge, merge, grid_cols // merge, merge
    grid = np.indices((grid_rows, grid_cols)).reshape(2, *blocks).transpose(0, 1, 3, 2, 4).reshape(2, -1)
    steps = _steps(vision.head_dim // 2, VISION_THETA)
    angles = grid.astype(np.float32)[:, :, None] * steps
    return _rotary(np.concatenate([angles[0], angles[1]], axis=-1))


def prompt_positions(before_tokens: int, image_rows: int, image_cols: int, after_tokens: int) -> Positions:
    """Positions of text, one image of image_rows x image_cols tokens (0 x 0 for none), and text again.

    Text advances all axes together; the image stays at one time and spreads over row and column; the text after it goes
    on behind the image's longer side.
    """
    row, col = np.indices((image_rows, image_cols)).reshape(2, -1)
    image = np.stack([np.zeros_like(row), row, col]) + before_tokens
    resume = before_tokens + max(image_rows, image_cols)
    before, after = np.arange(before_tokens), np.arange(after_tokens) + resume
    axes = np.concatenate([np.tile(before, (3, 1)), image, np.tile(after, (3, 1))], axis=1).astype(np.int64)
    return Positions(axes, resume + after_tokens - axes.shape[1])


def text_rotary(axes: I64, text: TextShape) -> Rotary:
    """cos and sin, each f32 [tokens, head_dim / 2], for positions i64 [3, tokens]: each section follows its axis."""
    steps = _steps(text.head_dim, text.rope_theta)
    axis_of_step = np.repeat(np.arange(3), text.mrope_sections)
    return _rotary(axes[axis_of_step].T.astype(np.float32) * steps)


def _steps(width: int, theta: float) -> F32:
    """Angle per position, f32 [width / 2]."""
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    steps: F32 = np.float32(1) / np.power(np.float32(theta), exponents)
    return steps


def _rotary(angles: F32) -> Rotary:
    wide = angles.astype(np.float64)
    return Rotary(np.cos(wide).astype(np.float32), np.sin(wide).astype(np.float32))
