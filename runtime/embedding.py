"""The token embedding table: mapped from the file, one row read per token, never loaded whole."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mineru_edge.models.architecture import TextShape
from mineru_edge.models.bundle import EMBED_FILE, Bundle, Kind

from .arrays import F32


class Embedding:
    """Rows f32 [width] of a table [vocab, width], stored as int8 with a scale per row, or as f32."""

    def __init__(self, path: Path, text: TextShape, kind: Kind) -> None:
        with path.open("rb") as file:
            self._file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._advise("MADV_RANDOM")  # else the system maps sixteen pages around every row
        cells = text.vocab * text.width
        self._scales: F32 | None = None
        if kind == "int8":
            self._rows: npt.NDArray[np.int8] | F32 = np.frombuffer(self._file, np.int8, cells)
            self._scales = np.frombuffer(self._file, np.float32, text.vocab, offset=cells)
        else:
            self._rows = np.frombuffer(self._file, np.float32, cells)
        self._rows = self._rows.reshape(text.vocab, text.width)

    @classmethod
    def of(cls, bundle: Bundle) -> Embedding:
        return cls(bundle.file(EMBED_FILE), bundle.text, bundle.precision.embedding)

    def rows(self, token_ids: Sequence[int]) -> F32:
        """f32 [len(token_ids), width], a copy."""
        index = np.asarray(token_ids, np.int64)
        rows: F32 = self._rows[index].astype(np.float32)
        if self._scales is not None:
            rows *= self._scales[index][:, None]
        return rows

    def rest(self) -> None:
        """Let go of the pages that were read; they come back when a row is asked for."""
        self._advise("MADV_DONTNEED")

    def _advise(self, name: str) -> None:
        advice = getattr(mmap, name, None)
        if advice is not None:
            self._file.madvise(advice)
