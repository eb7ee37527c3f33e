"""The two-step conversation with a scripted engine: what is asked, and what becomes of the answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_engine import LAYOUT_PROMPT, ONE_TEXT, FakeEngine, layout, result
from PIL import Image, ImageDraw

from mineru_edge.reader import Reader
from mineru_edge.runtime.request import FinishReason, Request, Result

Open = Callable[..., Reader]


def page_image() -> Image.Image:
    return Image.new("RGB", (400, 500), "white")


def contents(request: Request) -> str:
    """An answer that says what was asked and of which size."""
    assert request.image is not None
    return f"{request.prompt.strip().partition(' ')[0]} {request.image.width}x{request.image.height}"


def test_a_page_is_asked_for_its_blocks_and_each_block_for_its_content(open_reader: Open) -> None:
    answer = layout(
        ("title", (100, 50, 900, 100)),
        ("text", (100, 200, 600, 400)),
        ("table", (100, 500, 900, 700)),
        ("equation", (100, 750, 900, 800)),
        ("image", (100, 850, 900, 950)),
        ("page_number", (480, 960, 520, 990)),
    )
    engine = FakeEngine([answer], contents)
    document = open_reader(engine).read(page_image())
    first, *others = engine.submitted
    assert first.prompt == LAYOUT_PROMPT
    assert first.image is not None
    assert first.image.size == (336, 336)  # the bundle's layout size
    assert [request.prompt.strip() for request in others] == [
        "Text Recognition:",
        "Text Recognition:",
        "Table Recognition:",
        "Formula Recognition:",
        "Text Recognition:",
    ]
    (page,) = document.pages
    assert (page.number, page.page_count, page.width_px, page.height_px, page.error) == (1, 1, 400, 500, None)
    assert [block.type for block in page.blocks] == ["title", "text", "table", "equation", "image", "page_number"]
    assert page.blocks[1].box == (0.1, 0.2, 0.6, 0.4)
    assert page.blocks[1].content == "Text 200x100"
    assert page.blocks[3].content == "\\[\nFormula 359x29\n\\]"  # scaled up: no side is under 28
    assert page.blocks[4].content is None
    assert page.blocks[4].finish_reason is None
    assert page.blocks[1].finish_reason == "stop"
    assert document.failures == ()


def test_decoding_follows_the_protocol(open_reader: Open) -> None:
    engine = FakeEngine([layout(("text", (0, 0, 999, 500)), ("table", (0, 500, 999, 999)))], ["a", "b"])
    open_reader(engine, block_deadline_s=9).read(page_image())
    found = [request.params for request in engine.submitted]
    assert [(each.presence_penalty, each.frequency_penalty, each.no_repeat_ngram) for each in found] == [
        (0.0, 0.0, 100),
        (1.0, 0.05, 100),
        (1.0, 0.005, 100),
    ]
    assert {each.deadline_s for each in found} == {9}
    assert found[0].max_new_tokens == 4096
    assert 4000 < found[1].max_new_tokens < found[2].max_new_tokens <= 8192


def test_a_small_block_may_not_run_for_long(open_reader: Open) -> None:
    engine = FakeEngine([layout(("page_number", (480, 960, 520, 980)))], ["7"])
    open_reader(engine).read(page_image())
    assert engine.submitted[1].params.max_new_tokens < 100


def test_turned_blocks_are_set_upright(open_reader: Open) -> None:
    image = page_image()
    ImageDraw.Draw(image).rectangle((40, 100, 139, 119), fill="black")  # the top of a block of 100 x 300 pixels
    engine = FakeEngine([layout(("text", (100, 200, 350, 800)), rotation="right")], ["turned"])
    (page,) = open_reader(engine).read(image).pages
    assert page.blocks[0].angle == 90
    crop = engine.submitted[1].image
    assert crop is not None
    assert crop.size == (300, 100)
    assert crop.getpixel((5, 50)) == (0, 0, 0)  # turned against the clock: what was on top is on the left


def test_answers_keep_their_facts(open_reader: Open) -> None:
    engine = FakeEngine([ONE_TEXT], [result("half a sen", FinishReason.length)])
    (page,) = open_reader(engine).read(page_image()).pages
    answer = page.blocks[0].answer
    assert answer is not None
    assert (answer.finish_reason, answer.tokens, answer.prompt_tokens, answer.patches) == ("length", 10, 10, 16)
    assert (answer.vision_s, answer.prefill_s, answer.decode_s) == (0.5, 0.25, 0.125)
    assert page.cut_short == ("page 1: block 1 (text) was cut short: length",)
    assert page.layout is not None
    assert page.layout.finish_reason == "stop"


def test_one_bad_block_costs_only_itself(open_reader: Open) -> None:
    answer = layout(*[("text", (100, 100 * row, 900, 100 * row + 50)) for row in (1, 2, 3)])
    engine = FakeEngine([answer], ["one", result("", FinishReason.error, error="no room"), "three"])
    document = open_reader(engine).read(page_image())
    assert [block.content for block in document.pages[0].blocks] == ["one", "", "three"]
    assert document.failures == ("page 1, block 2 (text): no room",)
    assert document.markdown == "one\n\nthree\n"


@pytest.mark.parametrize("answer", ["", "nothing that fits", "<|box_start|>1 2"])
def test_no_blocks_is_an_empty_page(open_reader: Open, answer: str) -> None:
    document = open_reader(FakeEngine([answer])).read(page_image())
    assert document.pages[0].blocks == ()
    assert document.pages[0].error is None
    assert document.markdown == ""
    assert document.content_list == []


def test_blocks_that_no_crop_can_be_cut_of_are_kept_unread(open_reader: Open) -> None:
    engine = FakeEngine([layout(("text", (998, 998, 999, 999)), ("text", (0, 0, 999, 500)))], contents)
    blocks = open_reader(engine).read(Image.new("RGB", (9, 9))).pages[0].blocks
    assert len(blocks) == 2
    assert blocks[1].content


def test_pictures_are_kept_when_asked_for(open_reader: Open) -> None:
    answer = layout(("image", (100, 100, 500, 300)), ("text", (100, 500, 900, 600)), ("table", (100, 700, 900, 900)))
    reader = open_reader(FakeEngine([answer] * 2, lambda _: "<fcel>a<nl>"))
    blocks = reader.read(page_image(), pictures=True).pages[0].blocks
    assert [block.picture is not None for block in blocks] == [True, False, True]
    picture = blocks[0].picture
    assert picture is not None
    assert picture[:2] == b"\xff\xd8"
    assert all(block.picture is None for block in reader.read(page_image()).pages[0].blocks)


def test_list_items_are_still_called_that(open_reader: Open) -> None:
    answer = layout(("list_item", (100, 100, 900, 150)), ("list_item", (100, 200, 900, 250)))
    document = open_reader(FakeEngine([answer], ["• one", "• two"])).read(page_image())
    assert [block.type for block in document.pages[0].blocks] == ["list_item", "list_item"]
    assert document.markdown == "- one\n- two\n"


def test_equations_of_one_block_become_one_with_the_sum_of_their_costs(open_reader: Open) -> None:
    answer = layout(
        ("equation_block", (100, 100, 900, 300)),
        ("equation", (100, 100, 900, 190)),
        ("equation", (100, 200, 900, 290)),
        ("text", (100, 400, 900, 500)),
    )
    script: list[str | Result] = ["x=1", result("y=2", FinishReason.repetition), "text"]
    (page,) = open_reader(FakeEngine([answer], script)).read(page_image()).pages
    equation, text = page.blocks
    assert equation.type == "equation"
    assert "x=1" in (equation.content or "")
    assert "y=2" in (equation.content or "")
    assert equation.answer is not None
    assert (equation.answer.tokens, equation.answer.finish_reason) == (6, "repetition")
    assert text.answer is not None
    assert text.answer.tokens == 4


def test_otsl_becomes_html(open_reader: Open) -> None:
    engine = FakeEngine([layout(("table", (0, 0, 999, 999)))], ["<fcel>a<fcel>b<nl><fcel>c<lcel><nl>"])
    content = open_reader(engine).read(page_image()).pages[0].blocks[0].content
    assert content == '<table><tr><td>a</td><td>b</td></tr><tr><td colspan="2">c</td></tr></table>'


def test_tables_with_pictures_are_asked_the_same_way_each_time(open_reader: Open) -> None:
    answer = layout(("table", (0, 0, 999, 999)), ("image", (100, 100, 400, 400)))
    engine = FakeEngine([answer] * 2, lambda _: "<fcel>a<nl>")
    reader = open_reader(engine)
    for _ in range(2):
        reader.read(page_image())
    first, second = (request.image for request in engine.submitted if request.prompt.startswith("\nTable"))
    assert first is not None
    assert second is not None
    assert first.tobytes() == second.tobytes()
