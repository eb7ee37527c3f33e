"""PDF files made to harm, drawn in the drawing process: each costs one page at most, and says why."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from small_pdf import LINE, pdf

from mineru_edge.drawer import Drawer
from mineru_edge.intake import Sheet
from mineru_edge.models.errors import InputError

MEMORY_BYTES = 120_000_000


@pytest.fixture(scope="module")
def drawer() -> Iterator[Drawer]:
    made = Drawer(memory_bytes=MEMORY_BYTES)
    yield made
    made.close()


def first(drawer: Drawer, data: bytes) -> Sheet:
    source = drawer.open(data, "hostile.pdf", text="auto")
    (sheet,) = source.sheets([1])
    return sheet


def stream(data: bytes, entries: str = "") -> str:
    return f"<< /Length {len(data)} {entries} >>\nstream\n{data.decode('latin-1')}\nendstream"


def zeros(count: int, *, times: int = 1) -> bytes:
    """`count` zero bytes, deflated `times` times over."""
    data = bytes(count)
    for _ in range(times):
        data = zlib.compress(data, 9)
    return data


def drawn(entries: str, *objects: str) -> bytes:
    """A page that draws /X, which is object 100."""
    resources = f"/Resources << /Font << /F1 3 0 R >> /XObject << /X 100 0 R >> >> {entries}"
    return pdf("200 0 0 200 0 0 cm /X Do", extra=resources, objects=objects)


FORM = "/Type /XObject /Subtype /Form /BBox [0 0 200 200]"
BOMBS = {
    "contents": pdf("", extra="/Contents 100 0 R", objects=[stream(zeros(300_000_000), "/Filter /FlateDecode")]),
    "deflated twice": drawn("", stream(zeros(300_000_000, times=2), f"{FORM} /Filter [/FlateDecode /FlateDecode]")),
    "forms of forms": drawn(
        "",
        *(
            stream(b"/X Do " * 10, f"{FORM} /Resources << /XObject << /X {number} 0 R >> >>")
            for number in range(101, 110)
        ),
        stream(b"0 0 9 9 re f", FORM),
    ),
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_what_swells_is_stopped(drawer: Drawer, name: str) -> None:
    assert len(BOMBS[name]) < 500_000
    sheet = first(drawer, BOMBS[name])
    assert sheet.image is None
    assert (sheet.error or "").startswith("cannot be drawn: it")  # needs more memory, or longer, than it may take
    assert first(drawer, pdf(LINE)).image is not None


def test_a_pattern_without_end_is_stopped_by_the_clock() -> None:
    tile = "/Type /Pattern /PatternType 1 /PaintType 1 /TilingType 1 /BBox [0 0 1 1] /XStep 0.0001 /YStep 0.0001"
    data = pdf(
        "/Pattern cs /P scn 0 0 200 200 re f",
        extra="/Resources << /Pattern << /P 100 0 R >> >>",
        objects=[stream(b"0 0 1 1 re f", f"{tile} /Resources << >>")],
    )
    drawer = Drawer(limit_s=1)
    assert first(drawer, data).error == "cannot be drawn: it took longer than 1 s"
    drawer.close()


def test_a_picture_larger_than_memory_is_drawn_line_by_line(drawer: Drawer) -> None:
    side = 15_000
    picture = f"/Type /XObject /Subtype /Image /Width {side} /Height {side} /BitsPerComponent 8 /ColorSpace /DeviceGray"
    sheet = first(drawer, drawn("", stream(zeros(side * side), f"{picture} /Filter /FlateDecode")))
    assert sheet.image is not None
    assert np.asarray(sheet.image).max() == 0


@pytest.mark.parametrize(
    "data",
    [
        pdf("[" * 300_000 + LINE),
        pdf("q " * 300_000 + LINE),
        pdf(LINE, extra="/X 100 0 R", objects=["[" * 200_000 + "]" * 200_000]),
        drawn("", stream(b"/X Do", f"{FORM} /Resources << /XObject << /X 100 0 R >> >>")),
        drawn(
            "",
            stream(
                b"x",
                "/Type /XObject /Subtype /Image /Width 60000 /Height 60000 /BitsPerComponent 8 /ColorSpace /DeviceRGB",
            ),
        ),
        pdf("BT /F1 1 Tf 1 1 Td (" + "a" * 120_000 + ") Tj ET"),
    ],
    ids=["arrays", "states", "nested object", "form of itself", "picture without data", "glyphs"],
)
def test_what_is_odd_and_harmless_is_drawn(drawer: Drawer, data: bytes) -> None:
    assert first(drawer, data).image is not None


@pytest.mark.parametrize("unit", ["0", "-5", "1e30", "nan"])
def test_a_user_unit_out_of_range_does_not_move_the_cap(drawer: Drawer, unit: str) -> None:
    sheet = first(drawer, pdf(LINE, extra=f"/UserUnit {unit}"))
    assert sheet.image is not None
    assert max(sheet.image.size) <= 3500


@pytest.mark.parametrize("box", ["200 200 0 0", "0 0 0 0", "a b", "0 0 1e38 1e38"])
def test_a_media_box_without_sense_gives_some_page(drawer: Drawer, box: str) -> None:
    sheet = first(drawer, pdf(LINE, box=box))
    assert sheet.image is not None
    assert 1 <= max(sheet.image.size) <= 3500


def test_a_crop_box_off_the_page_costs_the_page(drawer: Drawer) -> None:
    assert first(drawer, pdf(LINE, extra="/CropBox [900 900 999 999]")).error is not None


def test_a_page_tree_that_loops_costs_its_page(drawer: Drawer) -> None:
    data = pdf(LINE, LINE).replace(b"/Kids [10 0 R 12 0 R]", b"/Kids [10 0 R 2 0 R] ")
    source = drawer.open(data, "loop.pdf")
    found = list(source.sheets(range(1, source.page_count + 1)))
    assert source.page_count == 2
    assert [sheet.image is not None for sheet in found] == [True, False]


def test_junk_before_the_header(drawer: Drawer) -> None:
    assert first(drawer, b"x" * 1000 + pdf(LINE)).image is not None
    with pytest.raises(InputError, match="neither a PDF"):
        drawer.open(b"x" * 2000 + pdf(LINE), "far.pdf")
