"""The blocks of a page without the model: whose text is taken, what is left to the model, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from pdf_text import meaning, opened, text
from PIL import Image, ImageDraw
from quick_fakes import FakeDetector, FakeOcr
from small_pdf import dark_box, pdf

from mineru_edge.block_order import block_order
from mineru_edge.detector import Found
from mineru_edge.document import DETECTOR, LAYER, OCR, Block
from mineru_edge.quick_layout import QuickLayout

UPPER, LOWER = (0.05, 0.05, 0.95, 0.3), (0.05, 0.5, 0.95, 0.8)
BOTH = frozenset({LAYER, OCR})


def blocks(
    data: bytes | Image.Image,
    found: Sequence[Found] = (),
    ocr: FakeOcr | None = None,
    *,
    trusted: Collection[str] = BOTH,
) -> list[Block]:
    glyphs, image = (None, data) if isinstance(data, Image.Image) else opened(data)
    detector: Any = FakeDetector(found)
    reader: Any = ocr or FakeOcr()
    return QuickLayout(detector, reader, trusted=trusted).blocks(image, glyphs)


def told(found: Sequence[Block]) -> list[tuple[str, str | None, str, str]]:
    return [(block.type, block.content, block.source, block.found_by) for block in found]


def test_text_comes_from_the_pdf_and_ocr_is_not_even_asked() -> None:
    ocr = FakeOcr([("wrong", (40, 20, 200, 50))])
    found = blocks(pdf(text("Right words")), [Found("text", UPPER, 0.9)], ocr)
    assert told(found) == [("text", "Right words", LAYER, DETECTOR)]
    assert ocr.looks == 0


def test_what_the_detector_misses_is_there_all_the_same() -> None:
    found = blocks(pdf(text("Found.", y=170) + text("Missed words.", y=60)), [Found("text", UPPER, 0.9)])
    assert told(found) == [
        ("text", "Found.", LAYER, DETECTOR),
        ("text", "Missed words.", LAYER, LAYER),
    ]


def test_a_scan_is_read_by_ocr_in_the_boxes_and_outside_of_them() -> None:
    scan = Image.new("RGB", (400, 400), "white")
    ocr = FakeOcr([("in a box", (40, 40, 300, 60)), ("in none", (40, 300, 300, 320))])
    found = blocks(scan, [Found("title", UPPER, 0.9)], ocr)
    assert told(found) == [("paragraph_title", "in a box", OCR, DETECTOR), ("text", "in none", OCR, OCR)]


def test_invisible_text_is_not_believed_and_print_without_text_is_seen() -> None:
    ocr = FakeOcr([("what is shown", (40, 250, 360, 270))])
    hidden = "BT 3 Tr /F1 10 Tf 20 70 Td (what is hidden) Tj ET"
    found = blocks(pdf(hidden + dark_box(20, 66, 160, 6)), [Found("text", LOWER, 0.9)], ocr)
    assert told(found) == [("text", "what is shown", OCR, DETECTOR)]


def test_ink_in_no_block_is_looked_at_though_the_pdf_has_text() -> None:
    ocr = FakeOcr([("scanned", (40, 320, 360, 340)), ("Typed", (40, 20, 100, 42))])
    found = blocks(pdf(text("Typed") + dark_box(20, 30, 160, 10)), [Found("text", UPPER, 0.9)], ocr)
    assert told(found) == [("text", "Typed", LAYER, DETECTOR), ("text", "scanned", OCR, OCR)]


def test_tables_and_formulas_are_the_models() -> None:
    found = blocks(
        pdf(text("Cell", y=170) + text("sum", y=60)),
        [Found("table", UPPER, 0.9), Found("equation", (0.05, 0.5, 0.95, 0.8), 0.9)],
    )
    # "sum" is a word without any sign of a formula: the detector was wrong about it.
    assert [(block.type, block.content) for block in found] == [("table", None), ("text", "sum")]


def test_text_that_holds_a_formula_is_the_models_and_a_bare_one_is_a_formula() -> None:
    signs = {"@": "2211"}  # the sum sign
    content = text("words with @ inside", y=170, font="F2") + text("@ a", y=60, font="F2")
    found = blocks(meaning(content, signs), [Found("text", UPPER, 0.9)])
    assert [(block.type, block.content) for block in found] == [("text", None), ("equation", None)]


@pytest.mark.parametrize(("trusted", "content"), [({LAYER}, "typed"), (set(), None), ({OCR}, None)])
def test_only_trusted_text_is_kept(trusted: set[str], content: str | None) -> None:
    found = blocks(pdf(text("typed")), [Found("text", UPPER, 0.9)], trusted=trusted)
    assert [block.content for block in found] == [content]


@pytest.mark.parametrize(("rotate", "turn"), [(90, 90), (180, 180), (270, 270)])
def test_a_sideways_page_is_looked_at_upright_and_its_boxes_are_the_pages_own(rotate: int, turn: int) -> None:
    glyphs, image = opened(
        pdf(text("Words that run on", y=170), box="0 0 200 100 ".strip() or "", extra=f"/Rotate {rotate}")
    )
    detector: Any = FakeDetector([Found("text", (0.0, 0.0, 1.0, 1.0), 0.9)])
    ocr: Any = FakeOcr()
    assert glyphs.glyphs == () or {glyph.turn for glyph in glyphs.glyphs} == {turn}
    glyphs, image = opened(pdf(text("Words that run on", y=60), box="0 0 200 100", extra=f"/Rotate {rotate}"))
    (block,) = QuickLayout(detector, ocr, trusted=BOTH).blocks(image, glyphs)
    assert detector.sizes == [(400, 200)]
    assert (block.content, block.angle) == ("Words that run on", turn)
    left, top, right, bottom = block.box
    assert (right - left > bottom - top) == (turn == 180)


def test_a_figure_that_is_a_page_of_print_is_none() -> None:
    scan = Image.new("RGB", (400, 400), "white")
    lines = [(f"line {row}", (20.0, 40.0 * row, 380.0, 40.0 * row + 28)) for row in range(1, 9)]
    (block,) = blocks(scan, [Found("image", (0.0, 0.0, 1.0, 1.0), 0.9)], FakeOcr(lines))
    assert block.type == "text"
    assert str(block.content).split() == [word for text, _ in lines for word in text.split()]


def test_labels_of_a_figure_belong_to_it() -> None:
    scan = Image.new("RGB", (400, 400), "white")
    found = blocks(scan, [Found("image", (0.0, 0.0, 1.0, 1.0), 0.9)], FakeOcr([("label", (20, 20, 80, 30))]))
    assert [(block.type, block.content) for block in found] == [("image", None)]


def test_headers_stand_at_the_edge_of_the_page_and_numbers_are_numbers() -> None:
    content = text("Running head", y=190) + text("A heading", y=150) + text("7", y=5)
    edge, inner, foot = (0.05, 0.0, 0.95, 0.075), (0.05, 0.2, 0.95, 0.3), (0.05, 0.93, 0.95, 1.0)
    found = blocks(pdf(content), [Found("header", edge, 0.9), Found("header", inner, 0.9), Found("footer", foot, 0.9)])
    assert [block.type for block in found] == ["header", "text", "page_number"]


def test_writing_from_top_to_bottom_is_kept_as_the_pdf_has_it() -> None:
    signs = {"a": "65E5", "b": "672C", "c": "8A9E"}
    content = "".join(text(sign, x=100, y=170 - 12 * row, font="F2") for row, sign in enumerate("abc"))
    assert told(blocks(meaning(content, signs))) == [("text", "日本語", LAYER, LAYER)]


def test_a_blank_page_is_not_looked_at() -> None:
    ocr = FakeOcr([("ghost", (10, 10, 100, 20))])
    assert blocks(pdf(""), [], ocr) == []
    assert ocr.looks == 0


def test_columns_are_read_one_after_the_other_under_what_spans_them() -> None:
    title, left, right = (0.1, 0.05, 0.9, 0.1), (0.1, 0.15, 0.48, 0.9), (0.52, 0.15, 0.9, 0.5)
    figure, foot = (0.52, 0.55, 0.9, 0.9), (0.1, 0.95, 0.9, 0.97)
    boxes = [foot, figure, right, title, left]
    assert block_order(boxes, 1000, 1400) == [3, 4, 2, 1, 0]


def test_blocks_side_by_side_are_read_from_the_left_though_one_begins_a_little_higher() -> None:
    assert block_order([(0.6, 0.1, 0.9, 0.12), (0.1, 0.102, 0.4, 0.122)], 1000, 1400) == [1, 0]


def test_ink_of_a_picture_counts_its_ground() -> None:
    scan = Image.new("RGB", (400, 400), "black")
    ImageDraw.Draw(scan).rectangle((40, 320, 360, 340), fill="white")
    assert told(blocks(scan, [], FakeOcr([("white", (40, 320, 360, 340))]))) == [("text", "white", OCR, OCR)]
