"""OCR: where lines are, which way they run, what they say, and the glyphs that stand for them."""

from __future__ import annotations

import sys

import pytest
from PIL import Image, ImageDraw, ImageFont
from quick_fakes import FakeOcr

from mineru_edge.glyphs import turned_box, upright
from mineru_edge.layer_page import layer_blocks
from mineru_edge.models.errors import EngineError
from mineru_edge.ocr import Ocr
from mineru_edge.ocr_texts import ocr_texts


@pytest.fixture(scope="module")
def ocr() -> Ocr:
    return Ocr(threads=1)


def page(turn: int = 0) -> Image.Image:
    """Two lines of print, turned clockwise by `turn`."""
    image = Image.new("RGB", (640, 320), "white")
    font = ImageFont.load_default(size=28)
    draw = ImageDraw.Draw(image)
    draw.text((60, 100), "The quick brown fox jumps over", "black", font)
    draw.text((60, 140), "the lazy dog in 2024.", "black", font)
    return image.rotate(-turn, expand=True)


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_print_is_read_whichever_way_it_runs(ocr: Ocr, turn: int) -> None:
    lines = ocr.page(page(turn))
    assert lines.turn == turn
    (block,) = layer_blocks(lines.glyphs(), source="ocr")
    assert block.content == "The quick brown fox jumps over the lazy dog in 2024."
    assert (block.angle, block.source, block.found_by) == (turn, "ocr", "ocr")
    level = turned_box(block.box, -turn % 360)
    assert level == pytest.approx((60 / 640, 100 / 320, 490 / 640, 175 / 320), abs=0.06)


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_blocks_found_by_others_get_the_lines_in_them(ocr: Ocr, turn: int) -> None:
    image = page(turn)
    boxes = {4: (0.0, 0.28, 1.0, 0.43), 5: (0.0, 0.43, 1.0, 0.6), 6: (0.0, 0.7, 1.0, 0.9)}
    turned = {index: turned_box(box, turn) for index, box in boxes.items()}
    texts = ocr_texts(ocr.page(image), image, turned, dict.fromkeys(boxes, "text"))
    assert texts == {4: "The quick brown fox jumps over", 5: "the lazy dog in 2024."}


def test_an_empty_page_has_no_lines(ocr: Ocr) -> None:
    lines = ocr.page(Image.new("RGB", (200, 300), "white"))
    assert (lines.boxes, lines.glyphs().glyphs, lines.turn) == ([], (), 0)


def test_only_wanted_lines_are_read_and_each_once() -> None:
    fake = FakeOcr([("above", (10, 10, 90, 20)), ("below", (10, 70, 90, 80))])
    lines = fake.page(Image.new("RGB", (100, 100)))
    assert len(lines.glyphs(lambda box: box[1] > 0.5).glyphs) == 5
    lines.glyphs()
    assert fake.read_texts == ["below", "above"]


def test_lines_that_only_look_upside_down_are_left_as_they_are() -> None:
    lines = FakeOcr([("level", (10, 10, 90, 20))], doubtful=True).page(Image.new("RGB", (100, 100)))
    assert lines.turn == 0
    assert {glyph.turn for glyph in lines.glyphs().glyphs} == {0}


def test_letters_share_their_line_and_cjk_takes_twice_the_room() -> None:
    lines = FakeOcr([("a日b", (10, 10, 90, 20))]).page(Image.new("RGB", (100, 100)))
    glyphs = lines.glyphs().glyphs
    assert [glyph.cell[0] for glyph in glyphs] == [10, 30, 70]
    assert glyphs[-1].cell[2] == 90


def test_lines_of_about_one_height_get_one_size() -> None:
    boxes = [(10.0, 10.0, 90.0, 20.0), (10.0, 30.0, 90.0, 41.0), (10.0, 50.0, 90.0, 80.0)]
    lines = FakeOcr([("x", box) for box in boxes]).page(Image.new("RGB", (100, 100)))
    sizes = [glyph.size for glyph in lines.glyphs().glyphs]
    assert sizes[0] == sizes[1]
    assert sizes[2] > 2 * sizes[1]


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_glyphs_set_upright_stand_where_the_picture_turned_upright_shows_them(ocr: Ocr, turn: int) -> None:
    level = ocr.page(page()).glyphs()
    back = upright(ocr.page(page(turn)).glyphs(), turn)
    assert (back.width, back.height) == (level.width, level.height)
    assert {glyph.turn for glyph in back.glyphs} == {0}
    first, expected = (min(each.glyphs, key=lambda glyph: (glyph.y, glyph.x)) for each in (back, level))
    assert first.cell == pytest.approx(expected.cell, abs=4)
    assert (first.text, first.y) == (expected.text, pytest.approx(expected.y, abs=4))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(EngineError, match=r"pip install 'mineru-edge\[quick\]'"):
        Ocr(threads=1)
