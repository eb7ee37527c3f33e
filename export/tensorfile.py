"""Reads tensors out of .safetensors files, one at a time, as f32.

Own reader, because the library's numpy door has no bfloat16 and its torch door needs torch. Tensors are read, not
mapped: pages of a mapped 2.3 GB file would count as the export's memory.
The format: u64 header length, JSON header {name: dtype, shape, data_offsets}, then the data.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mineru_edge.models.errors import CheckpointError

_READ_AS: dict[str, Any] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_HEADER_LIMIT_BYTES = 100_000_000
_COPY = "the copy is incomplete, fetch the file again"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies: `offset` counts from the start of the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int

    def read(self) -> NDArray[np.float32]:
        """The values as f32 in the tensor's shape. CheckpointError when the file is not what its header said."""
        count = math.prod(self.shape)
        try:
            raw = np.fromfile(self.file, dtype=_READ_AS[self.dtype], count=count, offset=self.offset)
        except OSError as error:
            raise _unreadable(self.file, error) from error
        if raw.size != count:
            raise CheckpointError(f"{self.file} ends before byte {self.offset + self.bytes}", hint=_COPY)
        if self.dtype == "BF16":  # the upper half of an f32
            wide = raw.astype(np.uint32)
            wide <<= np.uint32(16)
            raw = wide.view(np.float32)
        return np.asarray(raw, dtype=np.float32).reshape(self.shape)


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Every tensor of one file, by name. CheckpointError when the file is damaged or holds a dtype we cannot read."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            head = stream.read(length) if 2 <= length <= min(size - 8, _HEADER_LIMIT_BYTES) else None
    except OSError as error:
        raise _unreadable(file, error) from error
    if head is None:
        raise CheckpointError(f"{file} is not a safetensors file: header of {length} in {size} bytes", hint=_COPY)
    try:
        entries = json.loads(head)
        entries.pop("__metadata__", None)
        tensors = {name: _stored(file, 8 + length, **entry) for name, entry in entries.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the header of {file} cannot be read: {error}", hint=_COPY) from error
    for name, tensor in tensors.items():
        if tensor.dtype not in _READ_AS:
            raise CheckpointError(
                f"{name} in {file} is {tensor.dtype}", hint="give a checkpoint with BF16, F16 or F32 weights"
            )
        if tensor.bytes != math.prod(tensor.shape) * _READ_AS[tensor.dtype].itemsize:
            raise CheckpointError(f"the header of {file} gives {name} a wrong number of bytes", hint=_COPY)
        if tensor.offset + tensor.bytes > size:
            raise CheckpointError(
                f"{file} has {size} bytes, but {name} ends at byte {tensor.offset + tensor.bytes}", hint=_COPY
            )
    return tensors


def _unreadable(file: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{file} cannot be read: {error.strerror or error}", hint="check the file and its permissions"
    )


def _stored(file: Path, base: int, *, dtype: str, shape: list[int], data_offsets: list[int]) -> StoredTensor:
    start, end = data_offsets
    return StoredTensor(file=file, dtype=dtype, shape=tuple(shape), offset=base + start, bytes=end - start)
