"""Black stays black and text stays visible, whatever way the pixels were stored."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageDraw

from mineru_edge.pixels import upright_rgb

SIZE = (60, 40)
MARK = (10, 5, 29, 14)  # left, top, right, bottom, inclusive


def drawn(mode: str = "L", paper: object = 255, ink: object = 0) -> Image.Image:
    image = Image.new(mode, SIZE, paper)  # type: ignore[arg-type]
    ImageDraw.Draw(image).rectangle(MARK, fill=ink)  # type: ignore[arg-type]
    return image


def assert_mark(image: Image.Image, *, ink: int = 0, paper: int = 255, tolerance: int = 3) -> None:
    assert image.mode == "RGB"
    assert image.size == SIZE
    for at, value in (((20, 10), ink), ((50, 30), paper)):
        assert np.abs(np.subtract(image.getpixel(at), value)).max() <= tolerance, (at, image.getpixel(at))


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "CMYK", "YCbCr", "P", "HSV", "LAB"])
def test_every_mode_becomes_the_same_rgb(mode: str) -> None:
    if mode == "LAB":
        image = drawn("LAB", (255, 128, 128), (0, 128, 128))
    else:
        image = drawn("RGB", "white", "black").convert(mode)
    assert_mark(upright_rgb(image))


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<i4", "<f4"])
def test_16_bit_grey_is_scaled_not_clipped(dtype: str) -> None:
    values = np.full((SIZE[1], SIZE[0]), 40000, dtype)
    values[5:15, 10:30] = 20000
    assert_mark(upright_rgb(Image.fromarray(values)), ink=78, paper=156)


def test_12_bits_in_16_use_the_whole_range() -> None:
    values = np.full((SIZE[1], SIZE[0]), 4000, np.uint16)
    values[5:15, 10:30] = 0
    assert_mark(upright_rgb(Image.fromarray(values)))


def test_floats_from_0_to_1_are_scaled() -> None:
    values = np.ones((SIZE[1], SIZE[0]), np.float32)
    values[5:15, 10:30] = 0
    values[0, 0] = np.nan
    assert_mark(upright_rgb(Image.fromarray(values)))


@pytest.mark.parametrize(
    "image",
    [
        drawn("RGBA", (0, 0, 0, 0), (0, 0, 0, 255)),  # the black hidden under the paper must not come out
        drawn("RGBA", (255, 255, 255, 0), (0, 0, 0, 255)),
        drawn("LA", (0, 0), (0, 255)),
        drawn("LA", (0, 0), (0, 255)).convert("La"),
        drawn("RGBA", (0, 0, 0, 0), (0, 0, 0, 255)).convert("RGBa"),
    ],
    ids=["RGBA on black", "RGBA on white", "LA", "La", "RGBa"],
)
def test_black_on_transparent_lies_on_white(image: Image.Image) -> None:
    assert_mark(upright_rgb(image))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_white_on_transparent_lies_on_black(mode: str) -> None:
    image = drawn("RGBA", (255, 255, 255, 0), (255, 255, 255, 255)).convert(mode)
    assert_mark(upright_rgb(image), ink=255, paper=0)


def test_a_white_card_with_clear_corners_stays_on_white() -> None:
    image = drawn("RGBA", (255, 255, 255, 255), (0, 0, 0, 255))
    image.paste((0, 0, 0, 0), (0, 0, 4, 4))
    turned = upright_rgb(image)
    assert_mark(turned)
    assert turned.getpixel((1, 1)) == (255, 255, 255)


def test_a_palette_with_a_transparent_entry() -> None:
    image = drawn("P", 0, 1)
    image.putpalette([0, 0, 0, 0, 0, 0])
    image.info["transparency"] = 0
    assert_mark(upright_rgb(image))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_gives_the_pixels_a_viewer_shows(orientation: int) -> None:
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    upright = drawn("RGB", "white", "black")
    stored = upright.transpose(turns[orientation]) if orientation > 1 else upright
    stored.getexif()[ExifTags.Base.Orientation] = orientation
    assert np.array_equal(np.asarray(upright_rgb(stored)), np.asarray(upright))


def test_a_damaged_exif_block_costs_nothing() -> None:
    image = drawn("RGB", "white", "black")
    image.info["exif"] = b"Exif\x00\x00II*\x00\xff\xff\xff\x7f"
    assert_mark(upright_rgb(image))


def test_the_picture_given_is_left_alone() -> None:
    image = drawn("RGB", "white", "black")
    upright_rgb(image).paste((1, 2, 3), (0, 0, 60, 40))
    assert_mark(image)


@pytest.mark.parametrize("size", [(1, 1), (64, 1), (1, 900), (3, 3)])
def test_tiny_pictures_pass(size: tuple[int, int]) -> None:
    assert upright_rgb(Image.new("1", size)).size == size


def test_a_large_picture_is_reduced_with_its_shape() -> None:
    reduced = upright_rgb(Image.new("L", (400, 100)), raster_px=10_000)
    assert reduced.size == (200, 50)
    assert upright_rgb(Image.new("L", (100_000, 1)), raster_px=10_000).height == 1
