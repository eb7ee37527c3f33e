"""Text taken from the PDF in place of the model's: where glyphs stand, what they say, and when they are not trusted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_engine import LAYOUT_PROMPT, Bench, FakeEngine, layout
from pdf_text import WHOLE, meaning, opened, text
from PIL import Image
from small_pdf import dark_box, pdf

from mineru_edge.document import Box
from mineru_edge.text_layer import TextLayer

SIDEWAYS = "BT /F1 10 Tf 0 1 -1 0 100 60 Tm (sideways) Tj ET"
BARS = f"q 28 0 0 9 20 178 cm BI /W 8 /H 1 /BPC 8 /CS /G ID {(chr(0) + chr(255)) * 4} EI Q\n"
PICTURE = "q 200 0 0 60 0 130 cm BI /W 1 /H 1 /BPC 8 /CS /G ID \xff EI Q\n"  # white, over the upper third


def taken(data: bytes, box: Box = WHOLE, *, kind: str = "text") -> str | None:
    """What a block of this type and box gets from the only page of `data`; None when it is the model's to read."""
    page, image = opened(data)
    return TextLayer(page, image).texts({0: box}, {0: kind}).get(0)


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
@pytest.mark.parametrize("extra", ["", "/CropBox [-10 30 150 190]", "/UserUnit 2"])
def test_glyphs_stand_where_the_picture_shows_them(rotate: int, extra: str) -> None:
    page, image = opened(pdf(text("Word", y=100), box="-50 -20 250 200", extra=f"/Rotate {rotate} {extra}"))
    rows, columns = np.nonzero(np.asarray(image.convert("L")) < 128)
    across, down = image.width / page.width, image.height / page.height
    assert len(page.glyphs) == 4
    assert min(glyph.ink[0] for glyph in page.glyphs) * across == pytest.approx(columns.min(), abs=2)
    assert min(glyph.ink[1] for glyph in page.glyphs) * down == pytest.approx(rows.min(), abs=2)
    assert max(glyph.ink[2] for glyph in page.glyphs) * across == pytest.approx(columns.max() + 1, abs=2)
    assert max(glyph.ink[3] for glyph in page.glyphs) * down == pytest.approx(rows.max() + 1, abs=2)
    assert {glyph.turn for glyph in page.glyphs} == {rotate}
    assert {round(glyph.size, 3) for glyph in page.glyphs} == {10}


def test_what_the_crop_box_leaves_out_is_not_there() -> None:
    data = pdf(text("out", y=20) + text("in", x=110, y=150), extra="/CropBox [100 100 200 200]")
    assert taken(data) == "in"


def test_lines_are_joined_and_words_kept_apart() -> None:
    assert taken(pdf(text("one two", "three"))) == "one two three"


def test_words_are_parted_by_gaps_where_no_blank_is_written() -> None:
    assert taken(pdf("BT /F1 10 Tf 20 100 Td [(one) -250 (t) 40 (wo) -250 (three)] TJ ET")) == "one two three"


def test_letters_set_apart_are_one_word() -> None:
    assert taken(pdf("BT /F1 10 Tf 3 Tc 20 100 Td (WIDE WORDS) Tj ET")) == "WIDE WORDS"


def test_only_what_is_in_the_box_is_taken_and_words_are_whole() -> None:
    data = pdf(text("above", y=180) + text("left right", y=100) + text("below", y=20))
    #  "left" spans 20 to 35.6 points of 200 and "right" 38.3 to 57.8
    assert taken(data, (0.0, 0.4, 0.3, 0.6)) == "left right"
    assert taken(data, (0.12, 0.4, 0.3, 0.6)) == "left right"
    assert taken(data, (0.17, 0.4, 0.3, 0.6)) == "right"
    assert taken(data, (0.5, 0.4, 0.9, 0.6)) is None


def test_a_word_belongs_to_the_smallest_box_that_holds_it() -> None:
    page, image = opened(pdf(text("one", y=180) + text("two", y=100)))
    boxes = {0: WHOLE, 1: (0.0, 0.4, 1.0, 0.6)}
    assert TextLayer(page, image).texts(boxes, {0: "text", 1: "text"}) == {0: "one", 1: "two"}
    assert TextLayer(page, image).texts(boxes, {0: "text"}) == {0: "one"}  # and so not that of a formula inside


def test_ligatures_are_spelled_out() -> None:
    assert taken(meaning(text("o@ce \\(A\\)ve", font="F2"), {"@": "FB03", "A": "FB01"})) == "office (fi)ve"
    assert taken(meaning(text("o@ce", font="F2"), {"@": "006600660069"})) == "office"


def test_a_hyphened_word_is_mended_and_a_compound_is_not() -> None:
    assert taken(pdf(text("the doc-", "ument"))) == "the document"
    assert taken(pdf(text("a twenty-", "Third"))) == "a twenty- Third"
    assert taken(pdf(text("no on-line on-", "line"))) == "no on-line on-line"


def test_soft_hyphens_are_dropped_unless_they_are_drawn() -> None:
    assert taken(meaning(text("doc-", "ument", font="F2"), {"-": "00AD"})) == "document"
    assert taken(meaning(text("doc ument", font="F2"), {" ": "00AD"})) == "document"  # the sign of a blank: no ink
    assert taken(meaning(text("on-line", font="F2"), {"-": "00AD"})) == "on-line"


def test_signs_drawn_twice_are_read_once() -> None:
    assert taken(pdf(text("Bold all", x=20) + text("Bold", x=20.4) + text("all", x=43.2))) == "Bold all"
    assert taken(pdf(text("Will fall"))) == "Will fall"


def test_raised_and_lowered_signs_stay_on_their_line() -> None:
    content = "BT /F1 10 Tf 20 100 Td (note) Tj /F1 6 Tf 4 Ts (12) Tj /F1 10 Tf 0 Ts ( and) Tj 0 -12 Td (next) Tj ET"
    assert taken(pdf(content)) == "note12 and next"


def test_a_large_first_letter_begins_its_word() -> None:
    content = text("D", x=20, y=84, size=34) + text("ear reader,", "this is it.", x=44, y=100) + text("End.", y=70)
    assert taken(pdf(content)) == "Dear reader, this is it. End."


def test_symbol_font_bullets_are_bullets() -> None:
    assert taken(meaning(text("A item", font="F2"), {"A": "F0B7"})) == "• item"


def test_right_to_left_words_come_in_their_order() -> None:
    # Written on the page from left to right as it looks: the second word first.
    hebrew = {"a": "05D0", "b": "05D1", "c": "05D2", "d": "05D3"}
    assert taken(meaning(text("dc ba", font="F2"), hebrew)) == "\u05d0\u05d1 \u05d2\u05d3"


@pytest.mark.parametrize("code", ["FFFD", "E001", "0007", "D800"])
def test_a_sign_without_a_meaning_is_for_the_model(code: str) -> None:
    assert taken(meaning(text("AB", font="F2"), {"A": code})) is None
    assert taken(meaning(text("AB", font="F2"), {"A": "0041"})) == "AB"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(f"3 Tr {text('words')}", id="invisible"),
        pytest.param(f"{BARS} 3 Tr {text('words')}", id="invisible over print"),
        pytest.param(f"{text('words')} {BARS}", id="under print"),
        pytest.param(text("words") + f" {SIDEWAYS}", id="sideways"),
        pytest.param(text("words") + PICTURE, id="under a picture"),
        pytest.param(f"1 g {text('words')}", id="white on white"),
        pytest.param(f"0 0 5 5 re W n {text('words')}", id="clipped away"),
        pytest.param(text("words") + " " + dark_box(20, 100, 60, 8) + dark_box(20, 80, 40, 8), id="more than it says"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_is_not_to_be_trusted_is_for_the_model(content: str) -> None:
    assert taken(pdf(content)) is None


def test_rules_underlines_and_grounds_do_not_spoil_trust() -> None:
    underlined = text("words and words") + " " + dark_box(20, 178, 68, 1)
    assert taken(pdf(underlined + " 0 g 10 160 180 2 re f")) == "words and words"
    assert taken(pdf(f"0 0 0.5 rg 0 100 200 100 re f 1 g {text('light on dark')}"), (0, 0, 1, 0.49)) == "light on dark"
    assert taken(pdf(PICTURE + text("over a picture"))) == "over a picture"
    assert taken(pdf(BARS + text("words"))) == "words"  # what may lie under words is not looked into


def test_a_turned_page_of_upright_text_is_upright() -> None:
    content = "BT /F1 10 Tf 0 1 -1 0 100 60 Tm (upright) Tj ET"
    assert taken(pdf(content, extra="/Rotate 90")) == "upright"


def test_formulas_are_for_the_model() -> None:
    assert taken(meaning(text("x", font="F2"), {"x": "0078"}, base="ABCDEF+CMMI10")) is None
    assert taken(meaning(text("x", font="F2"), {"x": "2211"})) is None
    assert taken(meaning(text("x", font="F2"), {"x": "2265"})) == "≥"


def test_writing_from_top_to_bottom_is_for_the_model() -> None:
    signs = {"a": "65E5", "b": "672C", "c": "8A9E", "d": "6587"}
    assert taken(meaning(text("a", "b", "c", "d", font="F2", leading=10), signs)) is None
    assert taken(meaning(text("ab", "cd", font="F2"), signs)) == "日本語文"


def test_an_index_keeps_its_lines() -> None:
    assert taken(pdf(text("One 1", "Two 2")), kind="index") == "One 1\nTwo 2"


# The whole way: a layout by script, and what is asked of the engine then.

TITLE, BODY, TABLE = ("title", (0, 0, 999, 150)), ("text", (0, 300, 999, 700)), ("table", (0, 750, 999, 999))
PAGE = pdf(text("Heading", y=180) + text("Printed text.", y=100) + text("1 2", y=20))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path, monkeypatch)
    yield bench
    bench.close()


def prompts(engine: FakeEngine) -> list[str]:
    return [request.prompt.strip() for request in engine.submitted if request.prompt != LAYOUT_PROMPT]


def test_auto_asks_only_for_what_the_file_does_not_say(bench: Bench) -> None:
    engine = FakeEngine([layout(TITLE, BODY, TABLE)], lambda _: "asked")
    (page,) = bench.reader(engine).read(PAGE).pages
    assert prompts(engine) == ["Table Recognition:"]
    assert [(block.type, block.source) for block in page.blocks] == [
        ("title", "layer"),
        ("text", "layer"),
        ("table", "model"),
    ]
    assert [block.content for block in page.blocks[:2]] == ["Heading", "Printed text."]
    assert page.blocks[0].to_dict()["source"] == "layer"
    assert page.blocks[0].finish_reason is None
    assert page.failures == page.cut_short == ()


def test_model_asks_for_everything(bench: Bench) -> None:
    engine = FakeEngine([layout(TITLE, BODY, TABLE)], lambda _: "asked")
    (page,) = bench.reader(engine, text="model").read(PAGE).pages
    assert prompts(engine) == ["Text Recognition:", "Text Recognition:", "Table Recognition:"]
    assert {block.source for block in page.blocks} == {"model"}


def test_a_block_that_the_layout_turns_is_asked_for(bench: Bench) -> None:
    engine = FakeEngine([layout(BODY, rotation="right")], lambda _: "asked")
    (page,) = bench.reader(engine).read(PAGE).pages
    assert [(block.content, block.source) for block in page.blocks] == [("asked", "model")]


def test_what_the_file_says_is_not_cleaned_up_as_an_answer(bench: Bench) -> None:
    # The library's clean-up mends LaTeX that the model wrote; this is plain text.
    odd = "\\\\[x\\\\] [Non-Text] \\\\underline{a_b}"
    (page,) = bench.reader(FakeEngine([layout(BODY)])).read(pdf(text(odd, y=100))).pages
    assert page.blocks[0].content == "\\[x\\] [Non-Text] \\underline{a_b}"


def test_pictures_are_read_by_the_model(bench: Bench) -> None:
    engine = FakeEngine([layout(BODY)], ["asked"])
    (page,) = bench.reader(engine).read(Image.new("RGB", (400, 400), "white")).pages
    assert [(block.content, block.source) for block in page.blocks] == [("asked", "model")]


def test_a_text_layer_that_breaks_leaves_the_page_to_the_model(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def accident(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(TextLayer, "texts", accident)
    (page,) = bench.reader(FakeEngine([layout(BODY)], ["asked"])).read(PAGE).pages
    assert [(block.content, block.source) for block in page.blocks] == [("asked", "model")]


def test_a_page_on_which_the_model_finds_nothing_is_the_file_s_own_text(bench: Bench) -> None:
    (page,) = bench.reader(FakeEngine([layout()])).read(pdf(text("One line of print."))).pages
    assert [(block.content, block.source) for block in page.blocks] == [("One line of print.", "layer")]
    (page,) = bench.reader(FakeEngine([layout()]), text="model").read(pdf(text("One line of print."))).pages
    assert page.blocks == ()
    (page,) = bench.reader(FakeEngine([layout()])).read(pdf("3 Tr " + text("Nobody sees it."))).pages
    assert page.blocks == ()
