"""M-RoPE and 2-D rotary angles against transformers, and by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from bundles import TEXT, VISION

from mineru_edge.runtime.positions import prompt_positions, text_rotary, vision_rotary

GRIDS = [(2, 2), (2, 20), (20, 2), (8, 56), (74, 74), (54, 56)]


@pytest.fixture(scope="module")
def reference():
    """transformers' model of a small shape; only its position code is used."""
    import torch
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    config = Qwen2VLConfig(
        text_config={
            "hidden_size": TEXT.width,
            "intermediate_size": TEXT.mlp_width,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "vocab_size": 320,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
        },
        vision_config={"depth": 1, "embed_dim": 64, "num_heads": 4, "hidden_size": TEXT.width},
    )
    with torch.device("cpu"):
        return Qwen2VLForConditionalGeneration(config).eval()


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_positions_are_those_of_get_rope_index(reference, grid: tuple[int, int]) -> None:
    import torch

    rows, cols = grid[0] // 2, grid[1] // 2
    kinds = torch.tensor([[0] * 15 + [1] * (rows * cols) + [0] * 9])
    expected, delta = reference.model.get_rope_index(
        torch.zeros_like(kinds), mm_token_type_ids=kinds, image_grid_thw=torch.tensor([[1, *grid]])
    )
    found = prompt_positions(15, rows, cols, 9)
    np.testing.assert_array_equal(found.axes, expected[:, 0].numpy())
    assert found.delta == int(delta[0, 0])


def test_positions_by_hand() -> None:
    axes, delta = prompt_positions(2, 2, 3, 2)
    assert axes.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]
    assert delta == 7 - 10  # the first generated token is number 10, and sits at 7


def test_text_alone_counts_up() -> None:
    axes, delta = prompt_positions(4, 0, 0, 0)
    assert axes.tolist() == [[0, 1, 2, 3]] * 3
    assert delta == 0


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_vision_angles_are_the_reference(reference, grid: tuple[int, int]) -> None:
    import torch
    from transformers.vision_utils import get_vision_position_ids

    visual = reference.model.visual
    position_ids = get_vision_position_ids(torch.tensor([[1, *grid]]), 2)
    cos, sin = visual.rotary_pos_emb(torch.zeros(1), position_ids)
    found = vision_rotary(*grid, VISION)
    half = VISION.head_dim // 2
    assert found.cos.shape == (grid[0] * grid[1], half)
    np.testing.assert_allclose(found.cos, cos[:, :half].numpy(), atol=2e-7)
    np.testing.assert_allclose(found.sin, sin[:, :half].numpy(), atol=2e-7)


def test_text_angles_are_the_reference(reference) -> None:
    import torch

    axes = prompt_positions(15, 20, 30, 9).axes
    cos, sin = reference.model.language_model.rotary_emb(torch.zeros(1), torch.from_numpy(axes)[:, None])
    found = text_rotary(axes, TEXT)
    half = TEXT.head_dim // 2
    assert found.cos.shape == (axes.shape[1], half)
    np.testing.assert_allclose(found.cos, cos[0, :, :half].numpy(), atol=2e-7)
    np.testing.assert_allclose(found.sin, sin[0, :, :half].numpy(), atol=2e-7)


def test_each_section_follows_its_axis() -> None:
    axes = np.array([[0], [100], [7]], np.int64)
    together = {value: text_rotary(np.full((3, 1), value, np.int64), TEXT).sin for value in (0, 100, 7)}
    found = text_rotary(axes, dataclasses.replace(TEXT, mrope_sections=(2, 3, 3))).sin
    np.testing.assert_array_equal(found[:, :2], together[0][:, :2])
    np.testing.assert_array_equal(found[:, 2:5], together[100][:, 2:5])
    np.testing.assert_array_equal(found[:, 5:], together[7][:, 5:])
