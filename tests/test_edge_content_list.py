from __future__ import annotations

from typing import Any

from mineru_edge.content_list import content_list
from mineru_edge.document import Block, Box, Page


def entries(*blocks: Block, number: int = 1) -> list[dict[str, Any]]:
    return content_list([Page(number, 9, 100, 100, blocks)])


def block(kind: str, content: str | None = None, box: Box = (0.1, 0.2, 0.9, 0.25), **more: Any) -> Block:
    return Block(kind, box, content=content, **more)


def test_text_and_headings() -> None:
    assert entries(block("title", "T"), block("paragraph_title", "S"), block("text", "x"), number=3) == [
        {"type": "text", "text": "T", "text_level": 1, "bbox": [100, 200, 900, 250], "page_idx": 2},
        {"type": "text", "text": "S", "text_level": 2, "bbox": [100, 200, 900, 250], "page_idx": 2},
        {"type": "text", "text": "x", "bbox": [100, 200, 900, 250], "page_idx": 2},
    ]


def test_what_markdown_leaves_out_is_here() -> None:
    kinds = ["header", "footer", "page_number", "aside_text", "page_footnote"]
    assert [entry["type"] for entry in entries(*(block(kind, kind) for kind in kinds))] == kinds


def test_tables() -> None:
    caption = block("table_caption", "Table 1", (0.1, 0.15, 0.9, 0.19))
    note = block("table_footnote", "n = 3", (0.1, 0.26, 0.9, 0.28))
    table = block("table", "<table><tr><td>1</td></tr></table>", image_path="images/t.jpg")
    assert entries(caption, table, note) == [
        {
            "type": "table",
            "img_path": "images/t.jpg",
            "table_caption": ["Table 1"],
            "table_footnote": ["n = 3"],
            "table_body": "<table><tr><td>1</td></tr></table>",
            "bbox": [100, 200, 900, 250],
            "page_idx": 0,
        }
    ]


def test_figures() -> None:
    caption = block("image_caption", "Figure 1", (0.1, 0.26, 0.9, 0.28))
    assert entries(block("image", image_path="images/f.jpg"), caption) == [
        {
            "type": "image",
            "img_path": "images/f.jpg",
            "image_caption": ["Figure 1"],
            "image_footnote": [],
            "bbox": [100, 200, 900, 250],
            "page_idx": 0,
        }
    ]
    assert entries(block("chart"))[0]["chart_caption"] == []


def test_formulas_are_latex() -> None:
    (entry,) = entries(block("equation", "\\[\nx^2\n\\]"))
    assert (entry["type"], entry["text"], entry["text_format"]) == ("equation", "$$\nx^2\n$$", "latex")
    assert entry["img_path"] == ""


def test_lists_hold_their_items() -> None:
    items = [
        block("text", text, (0.1, top, 0.9, top + 0.05)) for text, top in (("one", 0.1), ("two", 0.2), (" ", 0.25))
    ]
    (entry,) = entries(block("list", box=(0.05, 0.05, 0.95, 0.35)), *items)
    assert entry == {
        "type": "list",
        "sub_type": "text",
        "list_items": ["one", "two"],
        "bbox": [50, 50, 950, 350],
        "page_idx": 0,
    }
    loose = [block("list_item", "a", (0.1, 0.1, 0.5, 0.2)), block("list_item", "b", (0.2, 0.2, 0.9, 0.3))]
    assert entries(*loose)[0]["bbox"] == [100, 100, 900, 300]
    references = [block("ref_text", "[1] A", (0.1, 0.1, 0.9, 0.2))]
    assert entries(block("list", box=(0.05, 0.05, 0.95, 0.35)), *references)[0]["sub_type"] == "ref_text"


def test_code() -> None:
    caption = block("code_caption", "Listing 1", (0.1, 0.15, 0.9, 0.19))
    (entry,) = entries(caption, block("code", "x = 1"))
    assert (entry["type"], entry["sub_type"], entry["code_caption"]) == ("code", "code", ["Listing 1"])
    assert entry["code_body"] == "```\nx = 1\n```"
    assert entries(block("algorithm", "1: x"))[0]["code_body"] == "1: x"


def test_boxes_are_whole_thousandths() -> None:
    (entry,) = entries(block("text", "x", (0.0004, 0.29, 0.5786, 1.0)))
    assert entry["bbox"] == [0, 290, 579, 1000]
    assert all(type(edge) is int for edge in entry["bbox"])
