"""The layout detector: what becomes of its guesses, and what the real one sees on a page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mineru_edge.detector import TYPES, Detector, Found, each_once
from mineru_edge.document import AUTO
from mineru_edge.models.errors import EngineError
from mineru_edge.pdf import PdfSource

BOX = (0.1, 0.1, 0.9, 0.5)


def test_of_two_guesses_about_one_place_the_surer_stays() -> None:
    table, figure = Found("table", BOX, 0.9), Found("image", (0.1, 0.1, 0.9, 0.52), 0.8)
    assert each_once([table, figure]) == [table]


@pytest.mark.parametrize("whole", ["table", "image"])
def test_what_is_inside_of_a_table_or_figure_is_a_part_of_it_but_its_caption(whole: str) -> None:
    found = [Found(whole, BOX, 0.9), Found("text", (0.2, 0.2, 0.4, 0.3), 0.8)]
    caption = Found("table_caption", (0.2, 0.1, 0.8, 0.15), 0.7)
    assert each_once([*found, caption]) == [found[0], caption]


def test_text_within_text_is_told_once_and_a_title_within_text_is_kept() -> None:
    text, title = Found("text", BOX, 0.9), Found("title", (0.1, 0.1, 0.5, 0.15), 0.8)
    assert each_once([text, title, Found("ref_text", (0.1, 0.3, 0.5, 0.4), 0.6)]) == [text, title]


def test_a_page_has_its_headings_and_its_text(sample_pdf: Path) -> None:
    source = PdfSource(sample_pdf, "sample.pdf", text=AUTO)
    try:
        (sheet,) = source.sheets([1])
    finally:
        source.close()
    assert sheet.image is not None
    found = Detector(threads=1).blocks(sheet.image)
    assert {each.type for each in found} <= set(TYPES.values())
    assert {"title", "text"} <= {each.type for each in found}
    assert all(0 <= each.box[0] < each.box[2] <= 1 and 0 <= each.box[1] < each.box[3] <= 1 for each in found)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapid_layout", None)
    with pytest.raises(EngineError, match=r"pip install 'mineru-edge\[quick\]'"):
        Detector(threads=1)
