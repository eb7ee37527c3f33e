"""f32 matrices to 8 bits or 4, in numpy, a slab of rows at a time.

All are symmetric. With 8 bits codes are -127..127, the scale is the largest magnitude / 127, and the error of a weight
is at most half a scale. Matrices are given as the checkpoint has them, [outputs, inputs].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_LIMIT = 127
_TINY = np.float32(np.finfo(np.float32).tiny)  # scale of an all-zero row
_SLAB_VALUES = 1 << 22  # f32 values worked on at once: 16 MB of temporaries


def rows(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """One scale per row: codes int8 [rows, columns] and scales f32 [rows], value = code * scale."""
    codes = np.empty(matrix.shape, np.int8)
    scales = np.empty(len(matrix), np.float32)
    for part in slabs(matrix):
        scale = np.maximum(np.abs(matrix[part]).max(axis=-1) / np.float32(_LIMIT), _TINY)
        codes[part] = np.rint(matrix[part] / scale[:, None])
        scales[part] = scale
    return codes, scales


def columns(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """One scale per output, laid out for an integer product: codes int8 [inputs, outputs] and scales f32 [outputs]."""
    codes, scales = rows(matrix)
    return np.ascontiguousarray(codes.T), scales


def blocks(matrix: Floats, block: int) -> tuple[NDArray[np.uint8], Floats]:
    """One scale per `block` inputs of an output, as `MatMulNBits` reads it.

    Codes uint8 [outputs, ceil(inputs / block), block] around the zero point 128, and scales f32 [outputs, blocks].
    The last block is filled up with zeros when `inputs` is no multiple of `block`.
    """
    outputs, inputs = matrix.shape
    count = -(-inputs // block)
    codes = np.empty((outputs, count, block), np.uint8)
    scales = np.empty((outputs, count), np.float32)
    for part in slabs(matrix):
        slab = _padded(matrix[part], count, block)
        scale = np.maximum(np.abs(slab).max(axis=-1) / np.float32(_LIMIT), _TINY)
        codes[part] = np.rint(slab / scale[..., None]) + 128
        scales[part] = scale
    return codes, scales


def blocks4(matrix: Floats, block: int) -> tuple[NDArray[np.uint8], Floats]:
    """As `blocks` with 4 bits: codes uint8 [outputs, ceil(inputs / block), block / 2] around 8, the earlier one low.

    The largest magnitude of a block is code -8, and the scale has its sign: all 16 codes are used (as Q4_0 of ggml).
    A weight of nearly the same size and the other sign is cut off at 7, so the error is at most one scale.
    """
    outputs, inputs = matrix.shape
    count = -(-inputs // block)
    codes = np.empty((outputs, count, block // 2), np.uint8)
    scales = np.empty((outputs, count), np.float32)
    for part in slabs(matrix):
        slab = _padded(matrix[part], count, block)
        largest = np.take_along_axis(slab, np.abs(slab).argmax(axis=-1)[..., None], axis=-1)[..., 0]
        scale = np.where(np.abs(largest) < _TINY, _TINY, largest / -8)
        whole = np.clip(np.rint(slab / scale[..., None]) + 8, 0, 15).astype(np.uint8)
        codes[part] = whole[..., ::2] | whole[..., 1::2] << 4
        scales[part] = scale
    return codes, scales


def _padded(rows: Floats, count: int, block: int) -> Floats:
    """[rows, count, block], filled up with zeros."""
    slab = np.zeros((len(rows), count * block), np.float32)
    slab[:, : rows.shape[1]] = rows
    return slab.reshape(-1, count, block)


def slabs(matrix: Floats) -> Iterator[slice]:
    """Slices of whole rows that are worked on at once."""
    step = max(1, _SLAB_VALUES // matrix.shape[1])
    for start in range(0, len(matrix), step):
        yield slice(start, start + step)
