"""The key-value store: one allocation for all layers and slots, made from the plan and never grown.

A slot's rows beyond its valid length are leftovers that the graph never reads. Live slots are 0 .. n-1, so that any
batch is one contiguous view; batches can have to be even (see scheduler.py): an odd number of slots comes with an idle
one, which takes no memory before it is used.
"""

from __future__ import annotations

import contextlib
import math
import mmap

import numpy as np

from mineru_edge.models.architecture import TextShape
from mineru_edge.models.bundle import KVKind

from .arrays import F32, I8

ITEM_BYTES: dict[KVKind, int] = {"fp32": 4, "int8": 1}


class KVStore:
    """f32 or int8 [layer, key|value, slot, block, kv_head, position in block, head_dim].

    An engine that wants a slot's rows of a head in one piece has one block per slot, as long as the slot; paged
    attention has blocks of `block_tokens`, the last of which may reach beyond `capacity_tokens`.
    """

    def __init__(
        self,
        text: TextShape,
        *,
        slots: int,
        capacity_tokens: int,
        kind: KVKind = "fp32",
        block_tokens: int | None = None,
    ) -> None:
        """OSError when the system refuses the memory."""
        block_tokens = block_tokens or capacity_tokens
        blocks = -(-capacity_tokens // block_tokens)
        shape = (text.layers, 2, slots + slots % 2, blocks, text.kv_heads, block_tokens, text.head_dim)
        pages = self._pages = _anonymous(math.prod(shape) * ITEM_BYTES[kind])
        # A page is backed when it is first written. numpy.zeros asks for huge pages: the first token then backs it all.
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                pages.madvise(mmap.MADV_NOHUGEPAGE)
        dtype = np.dtype(np.float32 if kind == "fp32" else np.int8)
        self._store: F32 | I8 = np.frombuffer(pages, dtype).reshape(shape)
        self.kind = kind
        self.slots = slots
        self.block_tokens = block_tokens
        self.slot_blocks = blocks
        self.capacity_tokens = capacity_tokens

    @property
    def layers(self) -> int:
        return int(self._store.shape[0])

    @property
    def address(self) -> int:
        address: int = self._store.ctypes.data
        return address

    @property
    def nbytes(self) -> int:
        return self._store.nbytes

    def views(self, layer: int, first_slot: int, count: int) -> tuple[F32 | I8, F32 | I8]:
        """Keys and values of `count` slots, each [count, kv_head, position, head_dim]: contiguous views. The slots must
        have one block."""
        assert self.slot_blocks == 1, "the slots have several blocks"
        keys, values = self._store[layer, :, first_slot : first_slot + count, 0]
        return keys, values

    def blocks(self, layer: int) -> tuple[F32 | I8, F32 | I8]:
        """Keys and values of all slots, each [slot * blocks of a slot, kv_head, block_tokens, head_dim]: views."""
        keys, values = self._store[layer].reshape(2, -1, *self._store.shape[4:])
        return keys, values

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` rows of slot `source` to slot `target`; of several blocks whole ones."""
        blocks, rows = self._reach(tokens)
        self._store[:, :, target, :blocks, :, :rows] = self._store[:, :, source, :blocks, :, :rows]

    def touch(self, tokens: int) -> None:
        """Write the first `tokens` rows of every slot as they are, so that they are backed by memory."""
        blocks, rows = self._reach(tokens)
        self._store[:, :, :, :blocks, :, :rows] += 0

    def release(self) -> None:
        """Give the memory back to the system until it is written again, where that can be done: no slot may be live."""
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if advice is not None:
            self._pages.madvise(advice)

    def clear(self, slot: int, tokens: int) -> None:
        """Zero the first `tokens` rows of a slot, for when they may not be finite; of several blocks whole ones."""
        blocks, rows = self._reach(tokens)
        self._store[:, :, slot, :blocks, :, :rows] = 0

    def _reach(self, tokens: int) -> tuple[int, int]:
        return -(-tokens // self.block_tokens), min(tokens, self.block_tokens)


def _anonymous(size_bytes: int) -> mmap.mmap:
    """Zeroed pages of this process alone. Python's default is shared ones, which no count of private memory sees."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size_bytes)  # Windows
