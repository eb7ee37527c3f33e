from __future__ import annotations

import os
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, TiffImagePlugin
from small_pdf import LINE, pdf

from mineru_edge.drawer import Drawer
from mineru_edge.intake import Input, Sheet, open_here, open_source
from mineru_edge.models.errors import InputError

SIZE = (60, 40)
DRAWER = Drawer()


def picture(shade: int = 0) -> Image.Image:
    image = Image.new("RGB", SIZE, "white")
    ImageDraw.Draw(image).rectangle((10, 5, 29, 14), fill=(shade, shade, shade))
    return image


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


@pytest.fixture(scope="module", autouse=True)
def drawer() -> Iterator[None]:
    """One drawing process for all of these tests."""
    yield
    DRAWER.close()


def sheets(source: Input, **options: Any) -> list[Sheet]:
    opened = open_source(source, drawer=DRAWER, **options)
    try:
        return list(opened.sheets(range(1, opened.page_count + 1)))
    finally:
        opened.close()


def shades(source: Input) -> list[int]:
    return [sheet.image.getpixel((20, 10))[0] for sheet in sheets(source) if sheet.image]  # type: ignore[index]


def test_path_bytes_stream_and_picture_give_the_same(tmp_path: Path) -> None:
    data = encoded(picture(), "PNG")
    path = tmp_path / "page.png"
    path.write_bytes(data)
    sources: list[Input] = [path, str(path), data, BytesIO(data), picture()]
    pages = [sheets(source) for source in sources]
    assert all(len(found) == 1 for found in pages)
    assert {found[0].image.tobytes() for found in pages if found[0].image} == {picture().tobytes()}
    with path.open("rb") as file:
        assert len(sheets(file)) == 1


def test_a_pdf_is_known_by_its_header_not_its_name(tmp_path: Path) -> None:
    path = tmp_path / "letter.png"
    path.write_bytes(b"junk before\n" * 20 + pdf(LINE))
    (sheet,) = sheets(path)
    assert sheet.image is not None
    assert sheet.image.size == (556, 556)


@pytest.mark.parametrize(
    ("form", "options"),
    [("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("WEBP", {"lossless": True}), ("PNG", {}), ("GIF", {})],
)
def test_frames_are_pages_in_order(form: str, options: dict[str, Any]) -> None:
    wanted = [0, 100, 200]
    first, *others = [picture(shade) for shade in wanted]
    data = encoded(first, form, save_all=True, append_images=others, **options)
    assert shades(data) == wanted


def test_a_smaller_copy_in_a_tiff_is_no_page() -> None:
    stream = BytesIO()
    with TiffImagePlugin.AppendingTiffWriter(stream, new=True) as writer:
        for shade, copy in ((10, 0), (90, 1), (200, 0)):
            picture(shade).save(writer, "TIFF", tiffinfo={254: copy})
            writer.newFrame()
    assert shades(stream.getvalue()) == [10, 200]


def test_the_second_picture_of_a_camera_file_is_no_page() -> None:
    data = encoded(picture(10), "MPO", save_all=True, append_images=[picture(200)], quality=100, subsampling=0)
    assert Image.open(BytesIO(data)).n_frames == 2  # type: ignore[attr-defined]
    assert shades(data) == pytest.approx([10], abs=3)


def test_orientation_in_files() -> None:
    for form in ("JPEG", "TIFF", "PNG", "WEBP"):
        exif = Image.Exif()
        exif[0x0112] = 6
        (sheet,) = sheets(encoded(picture(), form, exif=exif))
        assert sheet.image is not None
        assert sheet.image.size == (40, 60), form


def test_a_large_jpeg_is_reduced_while_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mineru_edge.pictures.RASTER_PX", 100_000)
    image = Image.new("L", (800, 720), 255)
    source = open_here(encoded(image, "JPEG"), "x.jpg", max_image_px=150_000)  # half of each side is what is decoded
    (sheet,) = source.sheets([1])
    assert sheet.image is not None
    assert sheet.image.size == (400, 360)
    with pytest.raises(InputError, match="too large"):
        open_source(encoded(image, "PNG"), max_image_px=150_000)


def test_cmyk_jpeg_is_not_inverted() -> None:
    assert shades(encoded(picture(0).convert("CMYK"), "JPEG", quality=100)) == pytest.approx([0], abs=12)


def bomb(width: int, height: int) -> bytes:
    """A PNG header that claims a size, and nothing behind it."""
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunk = struct.pack(">I", len(head)) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))


@pytest.mark.parametrize("size", [(60000, 60000), (10000, 9000)])  # above twice Pillow's limit, and between
def test_a_bomb_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    limit = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match="<bytes> is too large"):
            open_here(bomb(*size), "<bytes>")
    assert limit == Image.MAX_IMAGE_PIXELS


def test_the_limit_can_be_moved() -> None:
    with pytest.raises(InputError, match="60 x 40"):
        open_source(picture(), max_image_px=2399)
    assert len(sheets(picture(), max_image_px=2400)) == 1


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("empty.pdf", b"", "empty.pdf is empty"),
        ("notes.txt", b"hello\n" * 100, "neither a PDF"),
        ("broken.pdf", b"%PDF-1.7\n", "not a PDF that can be read"),
        ("header.png", b"\x89PNG\r\n\x1a\n", "header.png"),
        ("head.jpg", encoded(picture(), "JPEG")[:300], "head.jpg"),
        ("half.png", encoded(Image.effect_noise((90, 90), 50), "PNG")[:2000], "half.png cannot be decoded"),
        ("half.tif", encoded(picture(), "TIFF")[:200], "half.tif"),
    ],
)
def test_bad_files_are_one_error_with_name_and_cure(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        sheets(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_what_is_no_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        open_source(tmp_path)
    with pytest.raises(InputError, match=r"none\.pdf does not exist"):
        open_source(tmp_path / "none.pdf")
    with pytest.raises(InputError, match="no pixels"):
        open_source(Image.new("RGB", (0, 5)))
    with pytest.raises(InputError, match="text, not bytes"), (Path(__file__)).open(encoding="utf-8") as file:
        open_source(file)  # type: ignore[arg-type]


def test_a_bad_frame_costs_only_its_page() -> None:
    first, *others = [picture(shade) for shade in (0, 100, 200)]
    data = bytearray(encoded(first, "TIFF", save_all=True, append_images=others, compression="tiff_lzw"))
    with Image.open(BytesIO(data)) as image:
        assert isinstance(image, TiffImagePlugin.TiffImageFile)
        image.seek(1)
        start = image.tag_v2[273][0]
    data[start : start + 30] = b"\xff" * 30
    found = sheets(bytes(data))
    assert [sheet.number for sheet in found] == [1, 2, 3]
    assert [sheet.image is None for sheet in found] == [False, True, False]
    assert "cannot be decoded" in (found[1].error or "")


@pytest.mark.parametrize("orientation", [0, 1, 9, 65535])
def test_an_orientation_that_means_nothing_turns_nothing(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    (sheet,) = sheets(encoded(picture(), "JPEG", exif=exif, quality=100, subsampling=0))
    assert sheet.image is not None
    assert sheet.image.size == SIZE
    assert sheet.image.getpixel((20, 10)) == pytest.approx((0, 0, 0), abs=12)


def test_a_jpeg_without_its_end_comes_as_far_as_it_goes_with_a_warning(tmp_path: Path) -> None:
    data = encoded(picture().resize((600, 400)), "JPEG", quality=90)
    path = tmp_path / "cut.jpg"
    path.write_bytes(data[: len(data) // 2])
    for source in (path, data[:-2]):
        (sheet,) = sheets(source)
        assert sheet.image is not None
        assert sheet.image.getpixel((200, 60)) == pytest.approx((0, 0, 0), abs=12)
        assert sheet.warnings == ("the file is cut off: what is missing is grey",)
    (whole,) = sheets(data)
    assert whole.warnings == ()


def tiff_16_bit(values: NDArray[np.uint16], *, photometric: int) -> bytes:
    """Uncompressed, of one strip. `photometric`: 0 white is zero, 1 black is zero, 2 RGB."""
    height, width = values.shape[:2]
    samples = values.size // (height * width)
    bits = struct.pack(f"<{samples}H", *[16] * samples)
    entries = {256: width, 257: height, 258: 0, 259: 1, 262: photometric, 273: 0, 277: samples, 278: height}
    entries[279] = values.nbytes
    end = 8 + 2 + 12 * len(entries) + 4
    entries[258] = end if samples > 2 else 16
    entries[273] = end + len(bits)
    out = b"II*\0" + struct.pack("<IH", 8, len(entries))
    for tag, value in sorted(entries.items()):
        out += struct.pack("<HHII", tag, 3 if tag == 258 else 4, samples if tag == 258 else 1, value)
    return out + struct.pack("<I", 0) + bits + values.astype("<u2").tobytes()


@pytest.mark.parametrize(("photometric", "ink"), [(0, 65535), (1, 0), (2, 0)])
def test_16_bit_tiffs_are_scaled_and_white_is_white(photometric: int, ink: int) -> None:
    shape = (SIZE[1], SIZE[0], 3) if photometric == 2 else (SIZE[1], SIZE[0])
    values = np.full(shape, 65535 - ink, np.uint16)
    values[5:15, 10:30] = ink
    (sheet,) = sheets(tiff_16_bit(values, photometric=photometric))
    assert sheet.image is not None
    assert sheet.image.tobytes() == picture().tobytes()


def test_a_later_frame_that_is_too_large_costs_only_its_page() -> None:
    first, large, last = (Image.new("1", size) for size in (SIZE, (9000, 9000), SIZE))
    data = encoded(first, "TIFF", save_all=True, append_images=[large, last], compression="group4")
    found = sheets(data)
    assert [sheet.image is not None for sheet in found] == [True, False, True]
    assert "9000 x 9000 is 81 million pixels, 80 are allowed" in (found[1].error or "")


@pytest.mark.parametrize(
    "data",
    [
        encoded(picture(), "EPS"),  # Pillow would start Ghostscript for it
        encoded(picture(), "ICO"),
        encoded(picture(), "PPM"),
        b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(100),
        b"PK\x03\x04" + bytes(100),
    ],
    ids=["EPS", "ICO", "PPM", "HEIC", "ZIP"],
)
def test_other_formats_are_refused_with_those_that_are_read(data: bytes) -> None:
    with pytest.raises(InputError, match="give a PDF, PNG, JPEG, TIFF, WebP, GIF or BMP"):
        sheets(data)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
def test_bmp(mode: str) -> None:
    assert shades(encoded(picture().convert(mode), "BMP")) == [0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_read_once_and_a_device_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(encoded(picture(), "PNG")))
    writer.start()
    assert shades(path) == [0]
    writer.join()
    with pytest.raises(InputError, match="is a device"):
        sheets("/dev/null")


def test_a_path_that_no_system_has_is_an_error_of_ours() -> None:
    with pytest.raises(InputError):
        sheets("a\0b.pdf")


def test_a_stream_that_breaks_is_an_error_of_ours() -> None:
    class Broken(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("the cable was pulled")

    with pytest.raises(InputError, match="the cable was pulled"):
        sheets(Broken())
