from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_pdf import LINE, dark_box, encrypted, pdf

from mineru_edge.intake import open_source
from mineru_edge.models.errors import InputError
from mineru_edge.pdf import LONG_EDGE_PX, PdfSource

CORNER = dark_box(0, 100, 50, 100)  # upper left quarter strip of a 200 x 200 page


def draw(data: bytes, number: int = 1, *, dpi: float = 72, password: str | None = None) -> Image.Image:
    source = PdfSource(data, "test.pdf", dpi=dpi, password=password)
    try:
        (sheet,) = source.sheets([number])
        assert sheet.image is not None, sheet.error
        return sheet.image
    finally:
        source.close()


def dark_extent(image: Image.Image) -> tuple[int, int, int, int]:
    """left, top, right, bottom of what is dark, exclusive at the right and bottom."""
    rows, columns = np.nonzero(np.asarray(image.convert("L")) < 128)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def test_200_dpi() -> None:
    image = draw(pdf(LINE, box="0 0 144 72"), dpi=200)
    assert image.mode == "RGB"
    assert image.size == (400, 200)


@pytest.mark.parametrize(
    ("rotate", "size", "dark"),
    [
        (0, (200, 300), (0, 0, 50, 100)),
        (90, (300, 200), (200, 0, 300, 50)),
        (180, (200, 300), (150, 200, 200, 300)),
        (270, (300, 200), (0, 150, 100, 200)),
    ],
)
def test_rotate_is_honoured(rotate: int, size: tuple[int, int], dark: tuple[int, int, int, int]) -> None:
    image = draw(pdf(dark_box(0, 200, 50, 100), box="0 0 200 300", extra=f"/Rotate {rotate}"))
    assert image.size == size
    assert dark_extent(image) == dark


def test_each_page_has_its_own_rotation() -> None:
    data = pdf(LINE, LINE, box="0 0 200 300", extra=["", "/Rotate 90"])
    assert draw(data, 1).size == (200, 300)
    assert draw(data, 2).size == (300, 200)


def test_the_crop_box_is_the_page() -> None:
    image = draw(pdf(dark_box(50, 250, 50, 100), box="-50 -50 350 450", extra="/CropBox [50 250 150 400]"))
    assert image.size == (100, 150)
    assert dark_extent(image) == (0, 50, 50, 150)


def test_a_user_unit_enlarges_the_page() -> None:
    assert draw(pdf(LINE, extra="/UserUnit 2.5")).size == (500, 500)
    mixed = pdf(LINE, LINE, extra=["/UserUnit 2", ""])
    assert [draw(mixed, 1).size, draw(mixed, 2).size] == [(400, 400), (200, 200)]


@pytest.mark.parametrize("box", ["0 0 2384 3370", "0 0 595 2147483648", "0 0 2147483648 595", "0 0 20000 1"])
def test_the_long_edge_is_capped_before_anything_is_allocated(box: str) -> None:
    image = draw(pdf(LINE, box=box), dpi=200)
    assert max(image.size) == LONG_EDGE_PX
    assert min(image.size) >= 1


def test_form_values_are_drawn() -> None:
    appearance = (
        "<< /Type /XObject /Subtype /Form /BBox [0 0 80 40] /Length 23 >>\nstream\n0 g 0 0 80 40 re f     \nendstream"
    )
    field = (
        "<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V (x) /Rect [20 20 100 60] /F 4 /AP << /N 101 0 R >> >>"
    )
    data = pdf("", extra="/Annots [100 0 R]", catalog="/AcroForm << /Fields [100 0 R] >>", objects=[field, appearance])
    left, top, right, bottom = dark_extent(draw(data))
    assert (left, top, right, bottom) == pytest.approx((20, 140, 100, 180), abs=1)


def test_pages_are_drawn_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    source = PdfSource(pdf(LINE, LINE, LINE), "test.pdf", dpi=72)
    drawn: list[int] = []
    monkeypatch.setattr(source, "_draw", lambda index: drawn.append(index) or Image.new("RGB", (9, 9)))
    wanted = source.sheets([1, 3])
    next(wanted)
    assert drawn == [0]
    assert [sheet.number for sheet in wanted] == [3]
    assert drawn == [0, 2]
    source.close()


def test_a_page_that_fails_costs_only_itself() -> None:
    data = pdf(LINE, LINE, LINE).replace(b"12 0 obj\n<< /Type /Page ", b"12 0 obj\n<< /Type /Nope ")
    data = data.replace(b"12 0 obj", b"98 0 obj")
    source = PdfSource(data, "test.pdf", dpi=72)
    found = list(source.sheets([1, 2, 3]))
    source.close()
    assert [sheet.image is not None for sheet in found] == [True, False, True]
    assert found[1].number == 2
    assert "cannot be drawn" in (found[1].error or "")


def test_no_pages_and_no_pdf_are_different_errors() -> None:
    with pytest.raises(InputError, match=r"test\.pdf"):
        PdfSource(pdf(), "test.pdf")
    with pytest.raises(InputError, match=r"test\.pdf is not a PDF that can be read"):
        PdfSource(b"%PDF-1.7\ngarbage", "test.pdf")


def test_a_damaged_cross_reference_is_repaired() -> None:
    data = pdf(LINE)
    assert draw(data[: data.index(b"xref")] + b"xref\n0 0\ntrailer << /Root 1 0 R >>").size == (200, 200)


def test_a_blank_page_is_a_white_page() -> None:
    data = pdf("").replace(b"/Contents 11 0 R", b"")
    assert np.asarray(draw(data)).min() == 255


def test_a_password_is_asked_for_and_opens() -> None:
    data = encrypted(CORNER, user="secret", owner="boss")
    with pytest.raises(InputError, match=r"test\.pdf is encrypted; give its password") as missing:
        PdfSource(data, "test.pdf")
    assert "--password" in str(missing.value)
    with pytest.raises(InputError, match="the password does not open it"):
        PdfSource(data, "test.pdf", password="wrong")
    for password in ("secret", "boss"):
        assert dark_extent(draw(data, password=password)) == (0, 0, 50, 100)


def test_a_file_with_only_an_owner_password_opens() -> None:
    assert dark_extent(draw(encrypted(CORNER, user="", owner="boss"))) == (0, 0, 50, 100)


def test_a_password_for_other_files_is_no_obstacle() -> None:
    assert dark_extent(draw(encrypted(CORNER, user="", owner="boss"), password="another")) == (0, 0, 50, 100)


def test_threads_share_one_pdfium() -> None:
    data = pdf(*[CORNER] * 4)
    wrong: list[object] = []

    def work() -> None:
        try:
            for number in (1, 2, 3, 4):
                if dark_extent(draw(data, number)) != (0, 0, 50, 100):
                    wrong.append(number)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_paths_are_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "größe.pdf"
    path.write_bytes(pdf(LINE))
    source = open_source(path)
    assert source.page_count == 1
    assert len(list(source.sheets([1]))) == 1
    source.close()


STAMP = "<< /Type /XObject /Subtype /Form /BBox [0 0 80 40] /Length 18 >>\nstream\n0 g 0 0 80 40 re f\nendstream"


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [("/Subtype /Stamp /F 4", True), ("/Subtype /Square /F 4", True), ("/Subtype /Stamp /F 2", False)],  # 2: hidden
)
def test_stamps_and_drawings_on_the_page_are_drawn(annotation: str, shown: bool) -> None:
    stamp = f"<< /Type /Annot {annotation} /Rect [20 20 100 60] /AP << /N 101 0 R >> >>"
    image = draw(pdf("", extra="/Annots [100 0 R]", objects=[stamp, STAMP]))
    if shown:
        assert dark_extent(image) == pytest.approx((20, 140, 100, 180), abs=1)
    else:
        assert np.asarray(image).min() == 255


def test_a_signature_is_drawn() -> None:
    field = "<< /Type /Annot /Subtype /Widget /FT /Sig /T (s) /Rect [20 20 100 60] /F 4 /AP << /N 101 0 R >> >>"
    catalog = "/AcroForm << /Fields [100 0 R] /SigFlags 3 >>"
    image = draw(pdf("", extra="/Annots [100 0 R]", catalog=catalog, objects=[field, STAMP]))
    assert dark_extent(image) == pytest.approx((20, 140, 100, 180), abs=1)


@pytest.mark.parametrize("form", ["/AcroForm 5", "/AcroForm << /Fields 7 >>", "/AcroForm << /Fields [2 0 R] /XFA 9 >>"])
def test_a_broken_form_costs_nothing(form: str) -> None:
    assert dark_extent(draw(pdf(CORNER, catalog=form))) == (0, 0, 50, 100)


def test_a_password_may_hold_any_letters() -> None:
    data = encrypted(CORNER, user="pässwörd", owner="boss")
    assert dark_extent(draw(data, password="pässwörd")) == (0, 0, 50, 100)


def font_page(name: str, extra: str = "") -> tuple[str, str]:
    """A page content in font F2, and the resources to go with it."""
    return "BT /F2 24 Tf 20 150 Td (Hello) Tj ET", f"/Resources << /Font << /F2 << /Type /Font {name} >> >> >> {extra}"


def test_a_font_that_is_not_in_the_file_is_warned_of_on_each_page() -> None:
    content, resources = font_page("/Subtype /TrueType /BaseFont /MadeUpGothic")
    source = PdfSource(pdf(content, content, extra=resources), "x.pdf")
    first, second = source.sheets([1, 2])
    source.close()
    assert first.warnings == ("the font MadeUpGothic is not in the file: its signs may look different or be missing",)
    assert second.warnings == first.warnings


def test_a_font_inside_a_form_is_seen() -> None:
    content, resources = font_page("/Subtype /TrueType /BaseFont /MadeUpGothic")
    form = f"<< /Type /XObject /Subtype /Form /BBox [0 0 200 200] {resources} /Length {len(content)} >>"
    data = pdf(
        "/X Do", extra="/Resources << /XObject << /X 100 0 R >> >>", objects=[f"{form}\nstream\n{content}\nendstream"]
    )
    source = PdfSource(data, "x.pdf")
    (sheet,) = source.sheets([1])
    source.close()
    assert len(sheet.warnings) == 1


@pytest.mark.parametrize("base", ["Helvetica", "Arial-BoldMT", "TimesNewRomanPSMT", "CourierNew", "Symbol"])
def test_fonts_that_every_reader_has_are_not_warned_of(base: str) -> None:
    content, resources = font_page(f"/Subtype /TrueType /BaseFont /{base}")
    source = PdfSource(pdf(content, extra=resources), "x.pdf")
    (sheet,) = source.sheets([1])
    source.close()
    assert sheet.warnings == ()
