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
    chart = entries(block("chart"))[0]
    assert (chart["chart_caption"], chart["content"], chart["img_path"]) == ([], "", "")


def test_texts_are_inline_markdown() -> None:
    (entry,) = entries(block("text", "if \\( a_b<c \\) costs $5 * _not_ <b> a_b \\[3, 4\\]"))
    assert entry["text"] == "if $a_b<c$ costs \\$5 * \\_not\\_ <b> a_b [3, 4]"
    items = entries(block("list_item", "\\(x\\)"), block("list_item", "*y*"))[0]["list_items"]
    assert items == ["$x$", "\\*y\\*"]


def test_types_are_those_that_are_documented() -> None:
    """One block of every type that the protocol knows."""
    from mineru_vl_utils.structs import BLOCK_TYPES

    documented = {"text", "image", "table", "chart", "equation", "code", "list"}
    documented |= {"header", "footer", "page_number", "aside_text", "page_footnote"}
    for kind in sorted(BLOCK_TYPES):
        for entry in entries(block(kind, "x")):
            assert entry["type"] in documented, kind


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


def test_references_are_a_list_with_and_without_a_container() -> None:
    loose = [block("ref_text", f"[{n}] A", (0.1, n / 10, 0.9, n / 10 + 0.05)) for n in (1, 2)]
    (entry,) = entries(*loose)
    assert (entry["type"], entry["sub_type"], entry["list_items"]) == ("list", "ref_text", ["[1] A", "[2] A"])
    assert entry["bbox"] == [100, 100, 900, 250]
    mixed = [block("list_item", "a", (0.1, 0.1, 0.5, 0.2)), block("ref_text", "[1] A", (0.1, 0.3, 0.9, 0.4))]
    assert [entry["sub_type"] for entry in entries(*mixed)] == ["text", "ref_text"]


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


# What programs that read MinerU's list take from it, entry by entry, in our own words.


def ragflow_section(entry: dict[str, Any]) -> str:
    """infiniflow/ragflow deepdoc/parser/mineru_parser.py: a key it asks for without a default must be there."""
    kind = entry["type"]
    if kind in ("text", "equation"):
        return str(entry["text"])
    if kind == "table":
        notes = [*entry.get("table_caption", []), *entry.get("table_footnote", [])]
        return "".join([entry.get("table_body", ""), *notes])
    if kind == "image":
        return "".join(entry.get("image_caption", []) + entry.get("image_footnote", []))
    if kind == "code":
        return "".join([entry["code_body"], *entry.get("code_caption", [])])
    if kind == "list":
        return "\n".join(entry.get("list_items", []))
    return ""


def mineru_seen(listed: list[dict[str, Any]]) -> set[str]:
    """opendatalab/MinerU tests/unittest/test_e2e.py: the kinds of entry that hold what it looks for."""
    seen = set()
    for entry in listed:
        kind = entry["type"]
        if kind in ("image", "table"):
            assert entry[f"{kind}_caption"][0]
        if kind == "table":
            assert entry["table_body"].startswith("<table")
        if kind in ("text", "equation"):
            assert entry["text"]
        if kind == "equation":
            assert "$$" in entry["text"]
        seen.add(kind)
    return seen


def test_what_reads_minerus_list_reads_ours() -> None:
    listed = entries(
        block("title", "T", (0.1, 0.02, 0.9, 0.05)),
        block("image_caption", "Figure 1", (0.1, 0.16, 0.9, 0.18)),
        block("image", image_path="images/f.jpg", box=(0.1, 0.06, 0.9, 0.15)),
        block("table_caption", "Table 1", (0.1, 0.2, 0.9, 0.22)),
        block("table", "<table><tr><td>1</td></tr></table>", (0.1, 0.23, 0.9, 0.3)),
        block("equation", "\\[x\\]", (0.1, 0.32, 0.9, 0.35)),
        block("equation", None, (0.1, 0.36, 0.9, 0.38)),
        block("code", "x = 1", (0.1, 0.4, 0.9, 0.45)),
        block("list_item", "a", (0.1, 0.5, 0.9, 0.55)),
        block("table", None, (0.1, 0.6, 0.9, 0.7)),
    )
    sections = [ragflow_section(entry) for entry in listed]
    assert sections[:4] == ["T", "Figure 1", "<table><tr><td>1</td></tr></table>Table 1", "$$\nx\n$$"]
    assert sections[4:] == ["", "```\nx = 1\n```", "a", ""]
    full = [entry for entry, section in zip(listed, sections, strict=True) if section]
    assert mineru_seen(full) == {"text", "image", "table", "equation", "code", "list"}
    assert all(isinstance(entry["page_idx"], int) and len(entry["bbox"]) == 4 for entry in listed)
