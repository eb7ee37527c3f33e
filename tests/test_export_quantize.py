"""8-bit weights: the error is at most half a step, whatever the shape."""

from __future__ import annotations

import numpy as np
import pytest

from mineru_edge.export import quantize
from mineru_edge.export.schemes import choose, decoder_matrices, vision_matrices
from mineru_edge.models.architecture import TextShape, VisionShape

RANDOM = np.random.default_rng(5)
HALF_A_STEP = 0.5 + 1e-4  # in steps of the row's or block's scale


def matrix(outputs: int, inputs: int) -> quantize.Floats:
    values = RANDOM.standard_normal((outputs, inputs)).astype(np.float32)
    values[1] = 0  # a row of zeros has no natural scale
    values[2, 0] = 100  # an outlier takes the whole range of its row
    return values


@pytest.mark.parametrize("slab_values", [1, 100, 1 << 20])
def test_rows(monkeypatch: pytest.MonkeyPatch, slab_values: int) -> None:
    monkeypatch.setattr(quantize, "_SLAB_VALUES", slab_values)
    values = matrix(7, 33)
    codes, scales = quantize.rows(values)
    assert (codes.dtype, codes.shape, scales.shape) == (np.int8, (7, 33), (7,))
    assert codes.min() >= -127
    assert np.all(np.abs(codes * scales[:, None] - values) <= scales[:, None] * HALF_A_STEP)
    assert not codes[1].any()
    assert scales[1] > 0


def test_columns_are_rows_laid_out_for_a_product() -> None:
    values = matrix(5, 9)
    codes, scales = quantize.rows(values)
    turned, same = quantize.columns(values)
    np.testing.assert_array_equal(turned, codes.T)
    np.testing.assert_array_equal(same, scales)
    assert turned.flags.c_contiguous


@pytest.mark.parametrize(("inputs", "block", "count"), [(64, 32, 2), (192, 128, 2), (128, 128, 1), (30, 32, 1)])
def test_blocks_are_filled_up_with_zeros(inputs: int, block: int, count: int) -> None:
    values = matrix(6, inputs)
    codes, scales = quantize.blocks(values, block)
    assert (codes.dtype, codes.shape, scales.shape) == (np.uint8, (6, count, block), (6, count))
    restored = ((codes.astype(np.float32) - 128) * scales[..., None]).reshape(6, -1)
    assert not restored[:, inputs:].any()
    steps = np.repeat(scales, block, axis=1)[:, :inputs]
    assert np.all(np.abs(restored[:, :inputs] - values) <= steps * HALF_A_STEP)


@pytest.mark.parametrize(("inputs", "count"), [(64, 2), (30, 1)])
def test_blocks_of_4_bits_hold_two_codes_in_a_byte(inputs: int, count: int) -> None:
    values = matrix(6, inputs)
    codes, scales = quantize.blocks4(values, 32)
    assert (codes.dtype, codes.shape, scales.shape) == (np.uint8, (6, count, 16), (6, count))
    whole = np.stack([codes & 15, codes >> 4], axis=-1).reshape(6, count, 32)
    restored = ((whole.astype(np.float32) - 8) * scales[..., None]).reshape(6, -1)
    assert not restored[:, inputs:].any()
    assert not restored[1].any()
    steps = np.abs(np.repeat(scales, 32, axis=1)[:, :inputs])
    assert np.all(np.abs(restored[:, :inputs] - values) <= steps * (1 + 1e-4))
    largest = np.abs(values).argmax(axis=1)
    np.testing.assert_allclose(restored[range(6), largest], values[range(6), largest], rtol=1e-6)


def test_what_4_bits_make_of_a_block() -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, :4] = -4, 4, 1, 0.2
    codes, scales = quantize.blocks4(values, 32)
    assert scales.tolist() == [[0.5]]
    assert codes[0, 0, :2].tolist() == [0x0 | 0xF << 4, 0xA | 0x8 << 4]  # -8, 7 (cut off), 2, 0


VISION = VisionShape(
    depth=2, width=64, heads=4, mlp_width=128, patch=14, merge=2, temporal=2, channels=3, out_width=128
)


def text(width: int) -> TextShape:
    return TextShape(
        layers=2, width=width, heads=4, kv_heads=2, head_dim=16, mlp_width=64, vocab=40, rope_theta=1e6,
        mrope_sections=(2, 3, 3), norm_eps=1e-6, max_positions=512,
    )  # fmt: skip


def test_every_matrix_has_a_scheme() -> None:
    chosen = choose(VISION, text(128), "int8")
    assert set(chosen) == {*vision_matrices(VISION), *decoder_matrices(text(128)), "model.embed_tokens"}
    assert chosen["visual.patch_embed.proj"] == "fp32"
    assert chosen["visual.blocks.1.mlp.fc2"] == "w8a8_token"
    assert chosen["lm_head"] == chosen["model.layers.0.mlp.down_proj"] == "nbits8_block128"
    assert choose(VISION, text(192), "int8")["lm_head"] == "nbits8_block32"
    assert set(choose(VISION, text(128), "fp32").values()) == {"fp32"}


def test_how_the_decoder_is_stored() -> None:
    for decoder, body, head in (("w8a8", "w8a8_token", "w8a8_token"), ("int4", "nbits4_block32", "nbits8_block128")):
        chosen = choose(VISION, text(128), "int8", decoder=decoder)
        names = decoder_matrices(text(128))
        assert [chosen[name] for name in names] == [body] * (len(names) - 1) + [head]
        assert chosen["visual.blocks.1.mlp.fc2"] == "w8a8_token"
    assert set(choose(VISION, text(128), "fp32", decoder="int8").values()) == {"fp32"}


def test_a_matrix_can_be_promoted() -> None:
    plain = choose(VISION, text(128), "int8")
    chosen = choose(VISION, text(128), "int8", {"visual.blocks.0.mlp.fc2": "fp32", "lm_head": "nbits8_block32"})
    assert {name for name in chosen if chosen[name] != plain[name]} == {"visual.blocks.0.mlp.fc2", "lm_head"}


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("visual.blocks.9.mlp.fc2", "fp32"), ("visual.blocks.0.mlp.fc2", "nbits8_block128"), ("lm_head", "int8_row")],
)
def test_a_wrong_override_is_our_mistake(name: str, scheme: str) -> None:
    with pytest.raises(AssertionError):
        choose(VISION, text(128), "int8", {name: scheme})  # type: ignore[dict-item]
