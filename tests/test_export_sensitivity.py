"""What a matrix loses: hand-checked numbers, the engine's own node, and what the reference is heard to multiply."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from product_graph import ProductGraph
from tiny_checkpoint import TinyShape, write_checkpoint

from mineru_edge.export.facts import read_facts
from mineru_edge.export.reference import Asked, Reference
from mineru_edge.export.schemes import EMBEDDING, HEAD, Scheme, choose
from mineru_edge.export.sensitivity import SAMPLE_ROWS, Floats, Sample, output_errors, rank, rounded, rounded_weights

RANDOM = np.random.default_rng(23)


def row(inputs: int, values: dict[int, float]) -> Floats:
    """[1, inputs], zero but for `values`."""
    made = np.zeros((1, inputs), np.float32)
    made[0, list(values)] = list(values.values())
    return made


def test_a_row_is_rounded_to_127_steps_of_its_largest_value() -> None:
    values = np.array([[254, 3, -3.1, -0.9], [0, 0, 0, 0]], np.float32)  # a step is 2
    np.testing.assert_array_equal(rounded(values, "w8a8_token"), [[254, 4, -4, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(rounded(values, "int8_row"), rounded(values, "w8a8_token"))


def test_4_bits_are_16_steps_and_keep_the_largest_weight() -> None:
    values = row(32, {0: -4, 1: 4, 2: 0.7, 3: 0.2})  # a step is 0.5, and 4 would be the seventeenth code
    np.testing.assert_array_equal(rounded_weights(values, "nbits4_block32"), row(32, {0: -4, 1: 3.5, 2: 0.5}))
    np.testing.assert_array_equal(rounded_weights(values, "nbits8_block32"), rounded(values, "nbits8_block32"))


def test_a_block_is_rounded_by_itself() -> None:
    values = row(40, {0: 127, 1: 0.4, 32: 127, 33: 0.6, 39: -1.6})
    np.testing.assert_array_equal(rounded(values, "nbits8_block32"), row(40, {0: 127, 32: 127, 33: 1, 39: -2}))
    apart = row(40, {0: 127, 32: 0.4})
    np.testing.assert_allclose(rounded(apart, "nbits8_block32"), apart, rtol=1e-6)
    np.testing.assert_array_equal(rounded(apart, "nbits8_block128"), row(40, {0: 127}))


@pytest.mark.parametrize("outlier_in", ["activations", "weights"])
def test_an_outlier_costs_its_whole_row_or_its_block(outlier_in: str) -> None:
    """0.4 beside 127 is rounded away. 3 * 0.4 is all of one product, and half of the length of (1.2, 1.2)."""
    small, outlier = row(64, {40: 3}), row(64, {0: 127, 40: 0.4})
    x, matrix = (outlier, small) if outlier_in == "activations" else (small, outlier)
    schemes: tuple[Scheme, ...] = ("w8a8_token", "nbits8_block128", "nbits8_block32")
    assert output_errors(x, matrix, schemes) == {"w8a8_token": 1, "nbits8_block128": 1, "nbits8_block32": 0}
    if outlier_in == "weights":
        matrix = np.concatenate([matrix, row(64, {40: 0.4})])
        assert output_errors(x, matrix, ["w8a8_token"]) == {"w8a8_token": 0.7071}


def test_no_output_is_not_off() -> None:
    assert output_errors(row(8, {0: 1}), row(8, {1: 1}), ["w8a8_token"]) == {"w8a8_token": 0}


@pytest.mark.parametrize("scheme", ["w8a8_token", "nbits8_block128", "nbits8_block32", "nbits4_block32"])
@pytest.mark.parametrize(("inputs", "outputs"), [(160, 480), (192, 40), (588, 33)])
def test_the_engine_is_off_by_what_was_computed(tmp_path: Path, scheme: Scheme, inputs: int, outputs: int) -> None:
    matrix, x = RANDOM.standard_normal((outputs, inputs), np.float32), RANDOM.standard_normal((40, inputs), np.float32)
    x[:, 3] *= 50  # an outlier channel, so that the error is one to be seen
    found, computed, exact = (
        ProductGraph(tmp_path, scheme, matrix)(x),
        rounded(x, scheme) @ rounded_weights(matrix, scheme).T,
        x @ matrix.T,
    )
    off = float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
    assert output_errors(x, matrix, [scheme])[scheme] == pytest.approx(off, rel=0.02)
    assert np.linalg.norm(found - computed) < 0.05 * np.linalg.norm(found - exact)


def test_a_sample_is_bounded_and_does_not_depend_on_how_rows_arrive() -> None:
    rows = np.arange(20_000, dtype=np.float32)[:, None] * np.ones((1, 2), np.float32)
    whole, piecemeal = Sample(), Sample()
    whole.add(rows)
    for part in np.split(rows, [1, 2, 200, 300, 5000]):
        piecemeal.add(part)
    np.testing.assert_array_equal(whole.rows, piecemeal.rows)
    assert whole.rows.shape == (SAMPLE_ROWS, 2)
    assert len(np.unique(whole.rows[:, 0])) == SAMPLE_ROWS  # no row twice
    assert abs(whole.rows.mean() - 10_000) < 4 * 20_000 / np.sqrt(12 * SAMPLE_ROWS)  # four standard errors
    few = Sample()
    few.add(rows[:3])
    np.testing.assert_array_equal(few.rows, rows[:3])


NEW_TOKENS = 5


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reference, dict[str, Sample], Asked]:
    """A small random model that was asked once, and samples of all that it multiplied."""
    path = write_checkpoint(tmp_path_factory.mktemp("heard") / "checkpoint", TinyShape(), tied=False)
    reference, samples = Reference(path, threads=1), defaultdict[str, Sample](Sample)
    facts = reference.facts
    names = [name for name, scheme in choose(facts.vision, facts.text, "int8").items() if scheme != "fp32"]
    picture = Image.fromarray(RANDOM.integers(0, 256, (112, 84, 3), dtype=np.uint8))
    with reference.heard(names, lambda name, rows: samples[name].add(rows)):
        asked, answer = reference.ask(picture, "\nText Recognition:", max_new_tokens=NEW_TOKENS)
    assert len(answer.ids) == NEW_TOKENS
    reference.ask(picture, "\nText Recognition:", max_new_tokens=1)  # is heard no more
    assert set(samples) == set(names)
    return reference, samples, asked


def test_the_inputs_are_those_of_the_products(heard: tuple[Reference, dict[str, Sample], Asked]) -> None:
    reference, samples, asked = heard
    weight, last = reference.checkpoint.read, "visual.merger.mlp.2"
    rows = samples[last].rows @ weight(f"{last}.weight").T + weight(f"{last}.bias")
    np.testing.assert_allclose(rows, asked.rows, atol=1e-4)
    np.testing.assert_allclose(samples[HEAD].rows[0] @ weight(f"{HEAD}.weight").T, asked.logits, atol=1e-4)
    looked_up = [token for token in asked.ids if token != reference.facts.special.image_pad]
    np.testing.assert_array_equal(samples[EMBEDDING].rows[: len(looked_up)], weight(f"{EMBEDDING}.weight")[looked_up])


def test_rows_that_the_graph_leaves_out_are_not_heard(heard: tuple[Reference, dict[str, Sample], Asked]) -> None:
    _, samples, asked = heard
    counts = {name: len(sample.rows) for name, sample in samples.items()}
    fed = len(asked.ids) + NEW_TOKENS - 1
    assert counts["visual.blocks.1.mlp.fc2"] == len(asked.patches)
    assert counts["model.layers.0.mlp.down_proj"] == counts["model.layers.1.self_attn.qkv_proj"] == fed
    last = ("self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
    assert {counts[f"model.layers.1.{name}"] for name in last} | {counts[HEAD]} == {NEW_TOKENS}
    assert samples["model.layers.0.mlp.gate_up_proj"].rows.shape[1] == 192


def test_the_ranking_is_by_the_scheme_a_matrix_has(heard: tuple[Reference, dict[str, Sample], Asked]) -> None:
    reference, samples, _ = heard
    facts = read_facts(reference.checkpoint)
    schemes = choose(facts.vision, facts.text, "int8", {"model.layers.0.mlp.down_proj": "w8a8_token"})
    ranking = rank(reference.checkpoint, samples, schemes)
    errors = [loss.first_error for loss in ranking]
    assert errors == sorted(errors, reverse=True)
    assert 0 < errors[-1] < errors[0] < 0.05
    assert {loss.name for loss in ranking} == {name for name, scheme in schemes.items() if scheme != "fp32"}
    down = next(loss for loss in ranking if loss.name == "model.layers.0.mlp.down_proj")
    assert down.first_error == down.error("w8a8_token") > down.error("nbits8_block128") > down.error("nbits8_block32")
    packed = next(loss for loss in ranking if loss.name == "model.layers.0.mlp.gate_up_proj")
    stacked = np.concatenate(
        [reference.checkpoint.read(f"model.layers.0.mlp.{part}_proj.weight") for part in ("gate", "up")]
    )
    again = output_errors(samples[packed.name].rows, stacked, ["nbits8_block32"])
    assert packed.first_error == again["nbits8_block32"]
