"""The key-value store and the embedding table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bundles import TEXT

from mineru_edge.runtime.embedding import Embedding
from mineru_edge.runtime.kv import KVStore


def test_views_are_the_store_itself() -> None:
    store = KVStore(TEXT, slots=3, capacity_tokens=10)
    keys, values = store.views(1, 1, 2)
    assert keys.shape == values.shape == (2, TEXT.kv_heads, 10, TEXT.head_dim)
    assert keys.flags.c_contiguous
    assert not keys.flags.owndata
    keys[1] = 7
    assert (store.views(1, 2, 1)[0] == 7).all()
    assert not store.views(1, 1, 1)[0].any()
    assert not store.views(0, 2, 1)[0].any()
    assert not store.views(1, 2, 1)[1].any()


def test_blocks_are_the_store_itself_and_rows_lie_in_order() -> None:
    """Slots of 10 rows in blocks of 4: three blocks each, the last of them half used."""
    store = KVStore(TEXT, slots=3, capacity_tokens=10, block_tokens=4)
    keys, values = store.blocks(1)
    assert (store.slot_blocks, store.capacity_tokens) == (3, 10)
    assert keys.shape == values.shape == (4 * 3, TEXT.kv_heads, 4, TEXT.head_dim)
    assert keys.flags.c_contiguous
    keys[3:6] = np.arange(12).reshape(3, 1, 4, 1)  # slot 1
    store.move(1, 2, 6)
    assert keys[6:8, 0, :, 0].ravel().tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert not keys[8].any()
    assert not values.any()
    store.clear(1, 3)
    assert keys[3, 0, :, 0].tolist() == [0, 0, 0, 3]
    assert keys[4, 0, :, 0].tolist() == [4, 5, 6, 7]
    store.touch(10)
    assert keys[4, 0, :, 0].tolist() == [4, 5, 6, 7]


def test_its_size_is_what_the_plan_counts() -> None:
    assert KVStore(TEXT, slots=4, capacity_tokens=10).nbytes == 4 * 10 * TEXT.kv_bytes_per_token(4)


def test_an_odd_number_of_slots_has_an_idle_one_more() -> None:
    store = KVStore(TEXT, slots=3, capacity_tokens=10)
    assert store.slots == 3
    assert store.views(0, 0, 4)[0].shape[0] == 4


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc is Linux's")
def test_released_memory_is_the_system_s_again() -> None:
    store = KVStore(TEXT, slots=2, capacity_tokens=131072)
    before = anonymous_bytes()
    for layer in range(TEXT.layers):
        for view in store.views(layer, 0, 2):
            view[...] = 1
    assert anonymous_bytes() - before > 0.9 * store.nbytes
    store.release()
    assert anonymous_bytes() - before < 0.1 * store.nbytes
    keys, _ = store.views(0, 0, 1)
    keys[...] = 2
    assert (store.views(0, 0, 1)[0] == 2).all()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc is Linux's")
def test_only_what_is_written_takes_memory() -> None:
    before = anonymous_bytes()
    store = KVStore(TEXT, slots=2, capacity_tokens=131072)
    assert store.nbytes > 130_000_000
    for layer in range(TEXT.layers):
        for view in store.views(layer, 0, 2):
            view[:, :, 0] = 1
    assert anonymous_bytes() - before < 20_000_000


def test_moving_a_slot_takes_its_valid_rows_alone() -> None:
    store = KVStore(TEXT, slots=2, capacity_tokens=10)
    for layer in range(TEXT.layers):
        for view in store.views(layer, 1, 1):
            view[...] = 1 + layer
    address = store.address
    store.move(1, 0, 4)
    for layer in range(TEXT.layers):
        for view in store.views(layer, 0, 1):
            assert (view[0, :, :4] == 1 + layer).all()
            assert not view[0, :, 4:].any()
    assert store.address == address


def test_clearing() -> None:
    store = KVStore(TEXT, slots=2, capacity_tokens=10)
    store.views(0, 1, 1)[0][...] = np.nan
    store.clear(1, 10)
    assert not store.views(0, 1, 1)[0].any()


def test_embedding_rows_int8_are_scaled_by_row(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    codes = random.integers(-127, 128, (TEXT.vocab, TEXT.width)).astype(np.int8)
    scales = random.random(TEXT.vocab).astype(np.float32)
    (tmp_path / "embed.bin").write_bytes(codes.tobytes() + scales.tobytes())
    found = Embedding(tmp_path / "embed.bin", TEXT, "int8").rows([3, 3, 39, 0])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, codes[[3, 3, 39, 0]].astype(np.float32) * scales[[3, 3, 39, 0], None])


def test_embedding_rows_fp32_are_copies(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((TEXT.vocab, TEXT.width)).astype(np.float32)
    (tmp_path / "embed.bin").write_bytes(rows.tobytes())
    table = Embedding(tmp_path / "embed.bin", TEXT, "fp32")
    found = table.rows([5, 2])
    np.testing.assert_array_equal(found, rows[[5, 2]])
    found[...] = 0
    np.testing.assert_array_equal(table.rows([5]), rows[[5]])
    assert table.rows([]).shape == (0, TEXT.width)
