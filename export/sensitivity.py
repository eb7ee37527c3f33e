"""What each matrix loses under each scheme: its product on inputs that the reference gave it, against the exact one.

A node that multiplies in 8 bits rounds both sides to 127 steps of their largest magnitude, and sums exactly: over the
whole row for `w8a8_token`, over blocks of a row for the block schemes. So rounding both sides here, with the exporter's
own quantiser, and multiplying in f32 gives the node's result to f32 rounding; `tests/test_export_sensitivity.py`
compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mineru_edge.models.sensitivity import MatrixLoss

from . import quantize
from .checkpoint import Checkpoint
from .progress import Progress
from .schemes import BITS, BLOCKS, EMBEDDING, HEAD, Scheme, allowed, packed_parts

Floats = NDArray[np.float32]

SAMPLE_ROWS = 256  # per matrix: half a gigabyte at MinerU2.5's size
_SEED = 0
_DIGITS = 4  # that are kept of an error: more would be the order of f32 sums


class Sample:
    """At most `SAMPLE_ROWS` of the rows it is shown, each as likely as any other, the same ones every time.

    Vitter's algorithm R: row n (from 0) takes a random place of n + 1, and is kept when that lies in the sample.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng(_SEED)
        self._rows: Floats | None = None
        self._seen = 0

    @property
    def rows(self) -> Floats:
        """f32 [rows, inputs]."""
        assert self._rows is not None, "the reference never used this matrix"
        return self._rows[: self._seen]

    def add(self, rows: Floats) -> None:
        """Show it f32 [n, inputs]."""
        if self._rows is None:
            self._rows = np.empty((SAMPLE_ROWS, rows.shape[1]), np.float32)
        numbers = self._seen + np.arange(len(rows))
        drawn = (self._random.random(len(rows)) * (numbers + 1)).astype(np.int64)
        places = np.where(numbers < SAMPLE_ROWS, numbers, drawn)
        kept = places < SAMPLE_ROWS
        self._rows[places[kept]] = rows[kept]  # of two rows for one place the later stays
        self._seen += len(rows)


def rounded(values: Floats, scheme: Scheme) -> Floats:
    """f32 [rows, inputs] after its way through the 8-bit codes of `scheme`: activations, and 8-bit weights."""
    if scheme in BLOCKS:
        blocks, steps = quantize.blocks(values, BLOCKS[scheme])
        restored: Floats = (blocks.astype(np.float32) - np.float32(128)) * steps[..., None]
        return restored.reshape(len(values), -1)[:, : values.shape[1]]
    assert scheme != "fp32"
    codes, steps = quantize.rows(values)
    return codes * steps[:, None]


def rounded_weights(matrix: Floats, scheme: Scheme) -> Floats:
    """f32 [outputs, inputs] after its way through the codes of `scheme`."""
    if BITS.get(scheme) != 4:
        return rounded(matrix, scheme)
    codes, steps = quantize.blocks4(matrix, BLOCKS[scheme])
    whole = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:2], -1)
    restored: Floats = (whole.astype(np.float32) - np.float32(8)) * steps[..., None]
    return restored.reshape(len(matrix), -1)[:, : matrix.shape[1]]


def output_errors(x: Floats, matrix: Floats, schemes: Sequence[Scheme]) -> dict[Scheme, float]:
    """How far x [rows, inputs] times `matrix` [outputs, inputs] is off under each scheme, relative to its length.

    A bias is left out: it is added exactly, and a large one would only hide the error.
    """
    codes = {scheme: rounded(x, scheme) for scheme in schemes}
    off, whole = dict.fromkeys(schemes, 0.0), 0.0
    for part in quantize.slabs(matrix):
        exact = x @ matrix[part].T
        whole += _squares(exact)
        for scheme in schemes:
            off[scheme] += _squares(codes[scheme] @ rounded_weights(matrix[part], scheme).T - exact)
    return {scheme: _relative(off[scheme], whole) for scheme in schemes}


def rank(
    checkpoint: Checkpoint,
    samples: Mapping[str, Sample],
    schemes: Mapping[str, Scheme],
    progress: Progress | None = None,
) -> tuple[MatrixLoss, ...]:
    """Every sampled matrix, the one that loses most under its scheme in `schemes` first."""
    losses = []
    for number, (name, sample) in enumerate(samples.items(), 1):
        candidates, rows = allowed(name)[:-1], sample.rows  # the last one is fp32
        if name == EMBEDDING:  # its output is the rows themselves
            errors = {
                scheme: _relative(_squares(rounded(rows, scheme) - rows), _squares(rows)) for scheme in candidates
            }
        else:
            errors = output_errors(rows, _read(checkpoint, name), candidates)
        losses.append(MatrixLoss(name, len(rows), tuple(errors.items()), schemes[name], schemes[name]))
        if progress is not None:
            progress(number, len(samples), name)
    return tuple(sorted(losses, key=lambda loss: -loss.first_error))


def _read(checkpoint: Checkpoint, name: str) -> Floats:
    if name == HEAD and checkpoint.tied_head:
        return checkpoint.read(f"{EMBEDDING}.weight")
    return np.concatenate([checkpoint.read(f"{part}.weight") for part in packed_parts(name)])


def _squares(values: Floats) -> float:
    return float(np.square(values, dtype=np.float64).sum())


def _relative(off: float, whole: float) -> float:
    """Square roots of sums of squares, to `_DIGITS` digits; 0 when there is no output to be off from."""
    return float(f"{(off / whole) ** 0.5:.{_DIGITS}g}") if whole else 0.0
