"""Pages made from the PDF's own text alone: order, paragraphs, types, and what is said where there is no such text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_engine import Bench, FakeEngine
from pdf_text import contents, layer, meaning, text
from PIL import Image
from small_pdf import LINE, dark_box, pdf

from mineru_edge import Reader
from mineru_edge.cli import main
from mineru_edge.models.errors import InputError

LEFT = ["the left column has some", "text that fills its lines", "quite as a column does."]
RIGHT = ["and the right column goes", "on with what is said as", "one does on such pages."]
WIN = (
    "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >> >> >>"
)
SCAN = "q 200 0 0 200 0 0 cm BI /W 1 /H 1 /BPC 8 /CS /G ID \x80 EI Q\n"


def test_columns_are_read_one_after_the_other() -> None:
    rows = [text(line, x=x, y=180 - 12 * row) for row in range(3) for x, line in ((20, LEFT[row]), (160, RIGHT[row]))]
    page = layer(pdf("".join(rows), box="0 0 300 200"))
    assert contents(page) == [" ".join(LEFT), " ".join(RIGHT)]


def test_what_spans_the_columns_stays_above_and_below_them() -> None:
    wide = "a line over the whole width of this page, longer than a column is"
    content = text(wide, y=190) + text(*LEFT, y=160) + text(*RIGHT, x=160, y=160) + text(wide, y=100)
    assert contents(layer(pdf(content, box="0 0 300 210"))) == [wide, " ".join(LEFT), " ".join(RIGHT), wide]


def test_rows_of_a_table_are_read_across() -> None:
    rows = "".join(
        text(cell, x=x, y=180 - 14 * row)
        for row, cells in enumerate([("Drink", "Water", "Price"), ("Tea", "200 ml", "150"), ("Milk", "0 ml", "90")])
        for x, cell in zip((20, 80, 140), cells, strict=True)
    )
    assert contents(layer(pdf(rows))) == ["Drink\tWater\tPrice\nTea\t200 ml\t150\nMilk\t0 ml\t90"]


def test_paragraphs_are_parted_by_gaps_indents_and_short_lines() -> None:
    line = "words that fill this line of"
    assert contents(layer(pdf(text(line, "text") + text(line, "more", y=144)))) == [f"{line} text", f"{line} more"]
    indented = text(line, line) + text("and an indented one", x=32, y=156) + text("with its line", y=144)
    assert contents(layer(pdf(indented))) == [f"{line} {line}", "and an indented one with its line"]
    assert contents(layer(pdf(text(line, "It ends.", "New words that fill the line")))) == [
        f"{line} It ends.",
        "New words that fill the line",
    ]


def test_lines_broken_on_purpose_are_kept() -> None:
    assert contents(layer(pdf(text("To Miss Smith", "Old Road 1", "and to all others of that town")))) == [
        "To Miss Smith\nOld Road 1\nand to all others of that town"
    ]


def test_headings_items_and_page_numbers_have_their_types() -> None:
    content = (
        text("A Title", y=260, size=20)
        + text("A Heading", y=230, size=13)
        + text("Some text of the usual size that stands here", "and goes on in one more line of it.", y=210)
        + text("\\225 first item", "\\225 second item", y=170)
        + text("1. and a third", y=140)
        + text("7", x=150, y=10)
    )
    page = layer(pdf(content, box="0 0 300 300", extra=WIN))
    assert [(block.type, block.content) for block in page.blocks] == [
        ("title", "A Title"),
        ("paragraph_title", "A Heading"),
        ("text", "Some text of the usual size that stands here and goes on in one more line of it."),
        ("list_item", "• first item"),
        ("list_item", "• second item"),
        ("list_item", "1. and a third"),
        ("page_number", "7"),
    ]
    assert {block.source for block in page.blocks} == {"layer"}


def test_boxes_are_fractions_of_the_page_as_shown() -> None:
    (block,) = layer(pdf("BT /F1 10 Tf 50 100 Td (Word) Tj ET", extra="/Rotate 90 /CropBox [0 50 200 150]")).blocks
    # 100 x 200 points as shown; the baseline runs down at x = 50, from y = 50
    assert block.angle == 90
    assert block.box[1] == pytest.approx(50 / 200, abs=0.01)
    assert block.box[3] == pytest.approx((50 + 23.9) / 200, abs=0.01)
    assert block.box[0] < 0.5 < block.box[2]
    assert block.box[2] - block.box[0] == pytest.approx(0.115, abs=0.02)


def test_each_direction_is_read_by_itself() -> None:
    up = "BT /F1 10 Tf 0 1 -1 0 150 20 Tm (up the) Tj 0 -12 Td (page) Tj ET\n"
    slanted = "BT /F1 10 Tf 0.866 0.5 -0.5 0.866 20 20 Tm (slanted words) Tj ET\n"
    page = layer(pdf(text("along a line of it") + up + slanted))
    assert {(block.content, block.angle) for block in page.blocks} == {
        ("along a line of it", 0),
        ("slanted words", None),
        ("up the page", 270),
    }


def test_vertical_writing_is_read_from_the_right() -> None:
    signs = {"a": "65E5", "b": "672C", "c": "8A9E", "d": "6587"}
    content = text("a", "b", font="F2", leading=10) + text("c", "d", x=50, font="F2", leading=10)
    assert contents(layer(meaning(content, signs))) == ["語文", "日本"]


def test_invisible_text_counts_where_there_is_no_other() -> None:
    hidden = f"3 Tr {text('under the scan')} 0 Tr "
    assert contents(layer(pdf(SCAN + hidden))) == ["under the scan"]
    assert contents(layer(pdf(hidden + text("seen", y=100)))) == ["seen"]


@pytest.mark.parametrize("content", [SCAN, dark_box(0, 0, 9, 9)])
def test_a_page_without_text_says_so(content: str) -> None:
    page = layer(pdf(content))
    assert page.blocks == ()
    assert page.error == "it has no text layer; let the model read it (--text auto)"


def test_a_blank_page_is_no_failure() -> None:
    page = layer(pdf(""))
    assert page.blocks == ()
    assert page.failures == ()


def test_signs_without_a_meaning() -> None:
    few = layer(meaning(text("AbcdB", font="F2"), {"A": "E001"}))
    assert contents(few) == ["\ufffdbcdB"]
    many = layer(meaning(text("AbcA", font="F2"), {"A": "E001"}))
    assert many.blocks == ()
    assert (many.error or "").startswith("the file does not say what 2 of its 4 signs mean; ")


def test_a_page_that_cannot_be_loaded_costs_only_itself() -> None:
    data = pdf(LINE, LINE).replace(b"12 0 obj", b"98 0 obj")
    assert contents(layer(data, number=1)) == ["Hello"]
    assert (layer(data, number=2).error or "").startswith("cannot be read: ")


def test_an_accident_costs_only_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from mineru_edge import layer_page as module

    def accident(_: object) -> None:
        raise ZeroDivisionError("none")

    monkeypatch.setattr(module, "layer_blocks", accident)
    assert layer(pdf(LINE)).error == "its text could not be put in order: ZeroDivisionError('none')"


@pytest.mark.parametrize(
    "content",
    [
        "BT /F1 0 Tf 20 100 Td (none) Tj ET",
        "BT /F1 10 Tf 0 0 0 0 20 100 Tm (flat) Tj ET",
        "BT /F1 0.1 Tf 20 100 Td (hidden orders for machines) Tj ET",
        "BT /F1 10 Tf 1e38 0 0 1e38 20 100 Tm (huge) Tj ET",
    ],
)
def test_text_without_a_size_to_be_read_in_is_left_out(content: str) -> None:
    assert contents(layer(pdf(text("words") + content))) == ["words"]


def test_too_many_signs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mineru_edge.pdf_glyphs.MOST_GLYPHS", 4)
    assert layer(pdf(LINE)).error == "cannot be read: it has 5 signs, 4 are allowed"


def test_no_model_is_opened(tmp_path: Path) -> None:
    with Reader(tmp_path / "no bundle", text="layer") as reader:
        document = reader.read(pdf(LINE, LINE), pages="2")
    assert document.markdown == "Hello\n"
    assert document.to_dict()["model"] is None
    assert [page.number for page in document.pages] == [2]


def test_a_picture_has_no_layer() -> None:
    for source in (Image.new("RGB", (9, 9)), picture_bytes()):
        with pytest.raises(
            InputError, match=r"is a picture and has no text layer; let the model read it \(--text auto"
        ):
            Reader(text="layer").read(source)


def picture_bytes() -> bytes:
    from io import BytesIO

    stream = BytesIO()
    Image.new("RGB", (9, 9)).save(stream, "PNG")
    return stream.getvalue()


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.pdf"
    path.write_bytes(pdf(LINE, SCAN))
    bench, engine = Bench(tmp_path, monkeypatch), FakeEngine()
    assert bench.parse(engine, path, "--text", "layer", "-v", "-o", tmp_path / "out") == 10
    assert engine.submitted == []
    warning, *summary = capfd.readouterr().err.splitlines()
    assert warning == f"warning: {path}: page 2: it has no text layer; let the model read it (--text auto)"
    assert summary[1:] == [
        "blocks: 1 from layer",
        "failed in whole or in part: 1 page",
        "  1 page: it has no text layer; let the model read it (--text auto)",
    ]
    result = json.loads((tmp_path / "out" / "two_result.json").read_text("utf-8"))
    assert result["pages"][0]["blocks"][0]["source"] == "layer"
    assert main(["parse", str(path), "--text", "tesseract"]) == 2
