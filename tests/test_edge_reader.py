"""Reading whole documents with a scripted engine: order, isolation, giving up, and what the result says."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_engine import LAYOUT_PROMPT, ONE_TEXT, FakeEngine, layout, result
from PIL import Image
from small_pdf import LINE, dark_box, pdf

from mineru_edge.models.errors import BundleError, InputError, MineruEdgeError
from mineru_edge.reader import Reader
from mineru_edge.runtime.request import FinishReason

Open = Callable[..., Reader]


def page_image() -> Image.Image:
    return Image.new("RGB", (400, 500), "white")


def test_a_failed_layout_costs_only_its_page(open_reader: Open) -> None:
    engine = FakeEngine([ONE_TEXT, result("", FinishReason.error, error="vision failed"), ONE_TEXT], ["one", "three"])
    document = open_reader(engine).read(pdf(LINE, LINE, LINE))
    assert [page.error for page in document.pages] == [None, "its blocks could not be found: vision failed", None]
    assert document.markdown.startswith("one\n")
    assert "page 2 could not be read" in document.markdown
    assert document.markdown.endswith("three\n")


def test_an_accident_in_the_library_costs_only_its_page(open_reader: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    from mineru_edge.protocol import PageProtocol

    cut = PageProtocol.layout

    def accident(self: PageProtocol, page: Image.Image, text: str, **options: Any) -> Any:
        if text == "bad":
            raise KeyError("no such thing")
        return cut(self, page, text, **options)

    monkeypatch.setattr(PageProtocol, "layout", accident)
    document = open_reader(FakeEngine(["bad", ONE_TEXT], ["fine"])).read(pdf(LINE, LINE))
    assert "no such thing" in (document.pages[0].error or "")
    assert document.pages[1].blocks[0].content == "fine"


def test_a_page_that_cannot_be_drawn_costs_only_itself(open_reader: Open) -> None:
    data = pdf(LINE, LINE, LINE).replace(b"12 0 obj", b"98 0 obj")
    document = open_reader(FakeEngine([ONE_TEXT] * 2, ["one", "three"])).read(data)
    assert [page.number for page in document.pages] == [1, 2, 3]
    assert [bool(page.error) for page in document.pages] == [False, True, False]


def test_the_next_page_is_asked_for_while_this_one_is_read(open_reader: Open) -> None:
    rows = layout(*[("text", (100, 100 * row, 900, 100 * row + 50)) for row in range(1, 7)])
    engine = FakeEngine([rows] * 4, lambda _: "text", slots=3)
    pages = open_reader(engine, text="model").read(pdf(*[LINE] * 4)).pages
    assert [page.number for page in pages] == [1, 2, 3, 4]
    prompts = [request.prompt == LAYOUT_PROMPT for request in engine.submitted]
    assert [index for index, is_layout in enumerate(prompts) if is_layout] == [0, 7, 14, 21]
    full = [count >= engine.slots for count in engine.waiting_at_step]
    assert full[1:-1].count(False) <= 3  # at the seams between pages, never inside one


def test_at_most_one_page_is_drawn_ahead(open_reader: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    from mineru_edge.drawer import DrawnSource

    drawn: list[int] = []
    draw = DrawnSource._sheet
    monkeypatch.setattr(DrawnSource, "_sheet", lambda self, number: drawn.append(number) or draw(self, number))
    pages = open_reader(FakeEngine([ONE_TEXT] * 6, lambda _: "text")).pages(pdf(*[LINE] * 6))
    for number, page in enumerate(pages, 1):
        assert page.number == number
        assert max(drawn) <= number + 1


def test_pages_can_be_chosen(open_reader: Open) -> None:
    document = open_reader(FakeEngine([ONE_TEXT] * 2, lambda _: "x")).read(pdf(*[LINE] * 5), pages="2,4")
    assert [page.number for page in document.pages] == [2, 4]
    assert document.page_count == 5


def test_a_page_out_of_range_is_an_error_before_anything_is_asked(open_reader: Open) -> None:
    engine = FakeEngine()
    with pytest.raises(InputError, match="page 6 does not exist: the document has 5 pages"):
        open_reader(engine).read(pdf(*[LINE] * 5), pages="4-6")
    assert engine.submitted == []


def test_a_reader_reads_one_document_after_the_other(open_reader: Open) -> None:
    reader = open_reader(FakeEngine([ONE_TEXT] * 3, ["one", "two", "three"]))
    assert [reader.read(page_image()).markdown for _ in range(3)] == ["one\n", "two\n", "three\n"]


def test_an_error_leaves_the_reader_usable(open_reader: Open, tmp_path: Path) -> None:
    reader = open_reader(FakeEngine([ONE_TEXT], ["fine"]))
    with pytest.raises(InputError):
        reader.read(tmp_path / "none.pdf")
    assert reader.read(page_image()).markdown == "fine\n"


def test_giving_up_an_iterator_cancels_what_was_asked(open_reader: Open) -> None:
    engine = FakeEngine([ONE_TEXT] * 4, lambda _: "text", slots=1)
    reader = open_reader(engine)
    pages = reader.pages(pdf(*[LINE] * 4))
    next(pages)
    asked = len(engine.submitted)
    pages.close()
    assert engine.cancelled == [asked]
    assert reader.read(page_image()).pages[0].blocks[0].content == "text"  # and a late answer of the old one is dropped


def test_two_documents_at_once_are_refused(open_reader: Open) -> None:
    reader = open_reader(FakeEngine([ONE_TEXT] * 3, lambda _: "text"))
    pages = reader.pages(pdf(LINE, LINE))
    next(pages)
    with pytest.raises(MineruEdgeError, match="still being read"):
        reader.read(page_image())
    assert next(pages).number == 2


def test_a_closed_reader_says_so(open_reader: Open) -> None:
    engine = FakeEngine()
    with open_reader(engine) as reader:
        pass
    reader.close()
    assert engine.closed == 1
    for use in (lambda: reader.read(page_image()), lambda: reader.pages(page_image()), reader.__enter__):
        with pytest.raises(MineruEdgeError, match="closed"):
            use()


@pytest.mark.parametrize(
    "options",
    [
        {"dpi": 0},
        {"dpi": 5000},
        {"slots": 0},
        {"threads": 0},
        {"memory_limit": "lots"},
        {"block_deadline_s": 0},
        {"page_deadline_s": -1},
        {"text": "tesseract"},
    ],
)
def test_options_out_of_range_are_errors_of_ours(open_reader: Open, options: dict[str, Any]) -> None:
    with pytest.raises(MineruEdgeError, match=r"must|memory"):
        open_reader(FakeEngine(), **options)
    with pytest.raises(TypeError):
        open_reader(FakeEngine(), dpy=200)


def test_a_missing_bundle_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="nowhere"):
        Reader(tmp_path / "nowhere")


def test_the_result_says_everything(open_reader: Open) -> None:
    started = time.monotonic()
    document = open_reader(FakeEngine([ONE_TEXT], ["word"])).read(pdf(dark_box(0, 0, 9, 9)))
    found = document.to_dict()
    assert found["source"] == "<bytes>"
    assert found["model"] == "made-up"
    assert 0 < found["seconds"] <= time.monotonic() - started
    assert found["peak_rss_bytes"] is None or found["peak_rss_bytes"] > 1_000_000
    (page,) = found["pages"]
    assert page["layout"]["finish_reason"] == "stop"
    assert page["blocks"] == [
        {
            "type": "text",
            "box": [0.1, 0.1, 0.9, 0.2],
            "angle": 0,
            "content": "word",
            "source": "model",
            "found_by": "model",
            "continues": False,
            "image_path": None,
            "finish_reason": "stop",
            "error": None,
            "prompt_tokens": 10,
            "tokens": 4,
            "patches": 16,
            "vision_s": 0.5,
            "prefill_s": 0.25,
            "decode_s": 0.125,
        }
    ]
