"""Penalties, bans and the loop detector."""

from __future__ import annotations

import numpy as np
import pytest

from mineru_edge.runtime.request import DecodeParams
from mineru_edge.runtime.rules import LOOP_CYCLES, LOOP_TOKENS, History, choose, loop_period

VOCAB = 320
PLAIN = DecodeParams(10)


def history_of(token_ids: list[int]) -> History:
    history = History()
    for token_id in token_ids:
        history.append(token_id)
    return history


def row(**values: float) -> np.ndarray:
    """Zero logits but for `t5=1.0`."""
    logits = np.zeros(VOCAB, np.float32)
    for name, value in values.items():
        logits[int(name[1:])] = value
    return logits


def test_greedy_takes_the_lowest_of_equals() -> None:
    assert choose(row(t9=2.0, t5=2.0), history_of([]), PLAIN) == 5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_chooses_nothing(value: float) -> None:
    assert choose(row(t5=1.0, t300=value), history_of([]), PLAIN) is None


def test_presence_counts_once_and_frequency_every_time() -> None:
    logits = row(t5=3.0, t6=1.5)
    params = DecodeParams(10, presence_penalty=1.0, frequency_penalty=0.25)
    assert choose(logits, history_of([5, 5, 5, 7]), params) == 6
    assert logits[5] == np.float32(3.0 - 1.0 - 3 * 0.25)
    assert logits[7] == np.float32(-1.25)
    assert np.count_nonzero(logits) == 3


def test_penalties_are_those_of_the_formula_on_random_rows() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        logits = random.standard_normal(VOCAB).astype(np.float32)
        said = random.integers(0, VOCAB, 200).tolist()
        counts = np.bincount(said, minlength=VOCAB).astype(np.float32)
        expected = logits - np.float32(0.05) * counts - np.float32(1.0) * (counts > 0)
        params = DecodeParams(10, presence_penalty=1.0, frequency_penalty=0.05)
        found = choose(logits, history_of(said), params)
        np.testing.assert_array_equal(logits, expected)
        assert found == expected.argmax()


def test_without_penalties_the_row_stays() -> None:
    logits = row(t5=3.0)
    choose(logits, history_of([5, 5]), PLAIN)
    np.testing.assert_array_equal(logits, row(t5=3.0))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_the_ban_is_that_of_transformers(size: int) -> None:
    import torch
    from transformers import NoRepeatNGramLogitsProcessor

    processor = NoRepeatNGramLogitsProcessor(size)
    random = np.random.default_rng(size)
    for length in (1, 2, 3, 40, 260):
        for _ in range(10):
            said = random.integers(0, 3, length).tolist() if size < 100 else ([1, 2, 3] * 100)[:length]
            scores = processor(torch.tensor([said]), torch.zeros(1, VOCAB))[0]
            expected = {int(index) for index in torch.nonzero(scores == -torch.inf)}
            assert set(history_of(said).banned(size)) == expected


def test_a_ban_finds_ids_whose_bytes_overlap() -> None:
    """0x01000100 and its neighbours hold each other's bytes at odd places; only whole ids may match."""
    said = [0x010001, 0x000100, 0x010001]
    assert history_of(said).banned(2) == [0x000100]
    assert history_of([256, 1, 65536, 16777216 // 65536]).banned(2) == [1]


def test_the_ban_changes_the_choice() -> None:
    said = [1, 2, 3, 1, 2]
    assert choose(row(t3=9.0, t4=8.0), history_of(said), DecodeParams(10, no_repeat_ngram=3)) == 4
    assert choose(row(t3=9.0, t4=8.0), history_of(said), DecodeParams(10, no_repeat_ngram=4)) == 3


def cycle(period: int, tokens: int, start: int = 1000) -> list[int]:
    return [start + index % period for index in range(tokens)]


def loop(token_ids: list[int]) -> int:
    return loop_period(np.array(token_ids, np.int32))


@pytest.mark.parametrize("period", [1, 2, 7, 30, 64])
def test_a_model_that_cycles_is_stopped(period: int) -> None:
    enough = max(LOOP_TOKENS, LOOP_CYCLES * period) + period
    honest = list(range(200))
    assert loop(honest + cycle(period, enough)) == period
    assert loop(honest + cycle(period, enough // 2)) == 0


def test_a_cycle_is_seen_through_the_slips_that_a_ban_on_100_grams_forces() -> None:
    said = cycle(5, 1000)
    for index in range(99, 1000, 101):
        said[index] = 2000 + index
    assert loop(said) == 5


@pytest.mark.parametrize("cells", [1, 2, 4, 8])
def test_a_price_list_of_identical_rows_is_no_loop(cells: int) -> None:
    """60 rows, as many as a page prints."""
    line = [token for cell in range(cells) for token in (300, 500 + cell, 600, 600)] + [301]
    assert loop(line * 60) == 0


@pytest.mark.parametrize(("rows", "cols"), [(30, 20), (60, 12), (40, 40)])
def test_an_empty_grid_is_no_loop(rows: int, cols: int) -> None:
    assert loop(([302] * cols + [301]) * rows) == 0


@pytest.mark.parametrize(("rows", "cols"), [(30, 20), (60, 12), (40, 40)])
def test_a_grid_of_zeros_is_no_loop(rows: int, cols: int) -> None:
    assert loop(([300, 48] * cols + [301]) * rows) == 0


def test_a_long_honest_text_is_no_loop() -> None:
    assert loop(np.random.default_rng(0).integers(0, 5000, 4000).tolist()) == 0


def test_a_loop_that_has_ended_is_no_loop() -> None:
    assert loop(cycle(3, 1000) + list(range(300))) == 0


@pytest.mark.parametrize("options", [{"no_repeat_ngram": -1}, {"deadline_s": 0.0}])
def test_impossible_parameters_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        DecodeParams(10, **options)  # type: ignore[arg-type]


def test_no_tokens_at_all_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="max_new_tokens"):
        DecodeParams(0)
