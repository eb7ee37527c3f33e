"""The numpy image processor against transformers' own, and the cases where the reference gives up."""

from __future__ import annotations

import numpy as np
import pytest
from bundles import VISION
from PIL import Image, ImageDraw

from mineru_edge.models.architecture import Preprocessing
from mineru_edge.runtime.patches import MAX_ASPECT, fitted_size, patchify, smart_resize

CLIP = Preprocessing(
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    rescale=1 / 255,
    min_pixels=56 * 56,
    max_pixels=1605632,
    layout_size=(1036, 1036),
)
SIZES = [
    (1, 1), (3, 3), (1, 64), (28, 28), (42, 42), (70, 98), (98, 70), (14, 14), (13, 2600), (2600, 13), (31, 639),
    (42, 70), (126, 154), (112, 784), (280, 28), (28, 280), (300, 41), (1036, 1036), (1300, 1400), (2000, 1500),
    (5, 999),
]  # fmt: skip


def drawing(width: int, height: int) -> Image.Image:
    """A picture with edges, slopes and noise."""
    noise = np.random.default_rng(width * 7919 + height).integers(0, 256, (height, width, 3), np.uint8)
    image = Image.fromarray(noise)
    draw = ImageDraw.Draw(image)
    draw.rectangle((width // 4, height // 4, width // 2, height // 2), fill=(0, 0, 0))
    draw.line((0, 0, width, height), fill=(255, 255, 255), width=3)
    return image


def reference(image: Image.Image, *, min_pixels: int, max_pixels: int) -> tuple[np.ndarray, tuple[int, int]]:
    """transformers' values with the two equal frames told apart and one of them dropped."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(size={"shortest_edge": min_pixels, "longest_edge": max_pixels})
    found = processor(images=image, return_tensors="np")
    values = found["pixel_values"].reshape(-1, 3, 2, 14 * 14)
    assert (values[:, :, 0] == values[:, :, 1]).all()
    _, rows, cols = found["image_grid_thw"][0]
    return values[:, :, 0].reshape(-1, 588), (int(rows), int(cols))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_are_the_reference_bit_for_bit(size: tuple[int, int]) -> None:
    image = drawing(*size)
    expected, grid = reference(image, min_pixels=CLIP.min_pixels, max_pixels=CLIP.max_pixels)
    found = patchify(image, CLIP, VISION)
    assert (found.grid_rows, found.grid_cols) == grid
    assert found.values.dtype == np.float32
    np.testing.assert_array_equal(found.values, expected)


def test_sizes_are_the_reference_for_ties_and_caps() -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize as expected

    ties = [(28 * a + 14, 28 * b + 14) for a in range(9) for b in range(9)]
    random = np.random.default_rng(1)
    any_size = [tuple(map(int, random.integers(1, 3000, 2))) for _ in range(2000)]
    caps = [(3136, 1605632), (784, 784 * 20), (784, 784), (100_000, 200_000)]
    for height, width in ties + any_size:
        if max(height, width) > MAX_ASPECT * min(height, width):
            continue
        for low, high in caps:
            found = smart_resize(height, width, factor=28, min_pixels=low, max_pixels=high)
            assert found == expected(height, width, 28, low, high)
            assert min(found) >= 28


@pytest.mark.parametrize(("size", "grid"), [((3000, 2), (2, 90)), ((1, 900), (82, 2)), ((70000, 3), (2, 3952))])
def test_a_strip_beyond_the_reference_is_padded_white(size: tuple[int, int], grid: tuple[int, int]) -> None:
    found = patchify(Image.new("RGB", size, "black"), CLIP, VISION)
    assert found.values.shape == (found.count, 588)
    assert min(found.grid_rows, found.grid_cols) >= 2
    assert max(found.grid_rows, found.grid_cols) <= MAX_ASPECT * 2 * min(found.grid_rows, found.grid_cols)
    assert (found.grid_rows < found.grid_cols) == (grid[0] < grid[1])
    white = (1 - np.float32(CLIP.mean[0])) / np.float32(CLIP.std[0])
    assert np.isclose(found.values[:, :196].max(), white, atol=0.1)


@pytest.mark.parametrize("size", [(31, 639), (639, 31), (2000, 1500), (5000, 26), (50, 50)], ids=str)
@pytest.mark.parametrize("cap", [4, 20, 80, 1000])
def test_the_patch_cap_always_holds(size: tuple[int, int], cap: int) -> None:
    found = patchify(drawing(*size), CLIP, VISION, patch_cap=cap)
    assert 4 <= found.count <= cap
    assert found.grid_rows % 2 == found.grid_cols % 2 == 0


def test_the_patch_cap_scales_as_max_pixels_does() -> None:
    image = drawing(1000, 700)
    expected, grid = reference(image, min_pixels=3136, max_pixels=400 * 196)
    found = patchify(image, CLIP, VISION, patch_cap=400)
    assert (found.grid_rows, found.grid_cols) == grid
    np.testing.assert_array_equal(found.values, expected)


def test_a_cap_that_is_not_reached_changes_nothing() -> None:
    assert fitted_size(700, 1000, CLIP, VISION, patch_cap=8192) == fitted_size(700, 1000, CLIP, VISION)


def test_resample_is_bicubic_unless_said() -> None:
    assert CLIP.resample == "bicubic"


def test_grey_and_palette_pictures_are_read_as_rgb() -> None:
    grey = Image.new("L", (60, 60), 128)
    np.testing.assert_array_equal(
        patchify(grey, CLIP, VISION).values, patchify(grey.convert("RGB"), CLIP, VISION).values
    )
