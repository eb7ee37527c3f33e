from __future__ import annotations

from mineru_edge.document import Block, Box
from mineru_edge.structure import Item, structure


def block(kind: str, box: tuple[int, int, int, int], content: str | None = None) -> Block:
    left, top, right, bottom = (edge / 1000 for edge in box)
    return Block(kind, (left, top, right, bottom), content=content)


def shape(items: list[Item]) -> list[object]:
    return [(item.body.type, [part.content for part in item.parts]) if item.parts else item.body.type for item in items]


def test_a_list_takes_the_texts_inside_it_at_its_place() -> None:
    blocks = [
        block("text", (100, 50, 900, 90), "before"),
        block("list", (100, 100, 900, 300)),
        block("text", (110, 100, 900, 190), "one"),
        block("text", (110, 200, 900, 290), "two"),
        block("text", (100, 400, 900, 490), "after"),
    ]
    assert shape(structure(blocks)) == ["text", ("list", ["one", "two"]), "text"]


def test_a_list_named_after_its_items_stands_where_they_begin() -> None:
    blocks = [
        block("text", (110, 100, 900, 190), "one"),
        block("text", (100, 400, 900, 490), "after"),
        block("list", (100, 100, 900, 300)),
    ]
    assert shape(structure(blocks)) == [("list", ["one"]), "text"]


def test_an_empty_list_shows_nothing() -> None:
    assert structure([block("list", (0, 0, 100, 100))]) == []


def test_items_without_a_container_are_a_list_for_each_run() -> None:
    rows = [
        block(kind, (0, 10 * row, 900, 10 * row + 8), str(row))
        for row, kind in enumerate(["list_item", "list_item", "text", "list_item"])
    ]
    assert shape(structure(rows)) == [("list_item", ["0", "1"]), "text", ("list_item", ["3"])]


def test_captions_go_to_the_nearest_figure_of_their_kind() -> None:
    blocks = [
        block("table_caption", (100, 80, 900, 95), "Table 1"),
        block("table", (100, 100, 900, 300)),
        block("table_footnote", (100, 305, 900, 320), "n = 3"),
        block("image", (100, 330, 900, 500)),
        block("image_caption", (100, 510, 900, 525), "Figure 1"),
        block("table_caption", (100, 580, 900, 595), "Table 2"),
        block("table", (100, 600, 900, 800)),
        block("caption", (100, 805, 900, 820), "of something"),
    ]
    items = structure(blocks)
    assert [item.body.type for item in items] == ["table", "image", "table"]
    assert [[note.content for note in item.captions] for item in items] == [
        ["Table 1"],
        ["Figure 1"],
        ["Table 2", "of something"],
    ]
    assert [[note.content for note in item.footnotes] for item in items] == [["n = 3"], [], []]


def test_a_caption_far_from_all_figures_keeps_its_own_place() -> None:
    blocks = [block("image", (0, 0, 200, 100)), block("image_caption", (0, 800, 200, 820), "lost")]
    assert shape(structure(blocks)) == ["image", "image_caption"]


def test_pictures_stand_for_their_group() -> None:
    group: Box = (0.0, 0.0, 0.9, 0.5)
    pictures = [block("image", (0, 0, 400, 500)), block("image", (500, 0, 900, 500))]
    assert shape(structure([Block("image_block", group), *pictures])) == ["image", "image"]
    assert shape(structure([Block("image_block", group)])) == ["image_block"]


def test_a_formula_number_goes_to_the_formula_on_its_line() -> None:
    blocks = [
        block("equation", (100, 100, 800, 200), "a"),
        block("formula_number", (900, 140, 950, 160), "(1)"),
        block("formula_number", (900, 240, 950, 260), "(2)"),
        block("equation", (100, 220, 800, 290), "b"),
    ]
    items = structure(blocks)
    assert [(item.body.content, item.number and item.number.content) for item in items] == [("a", "(1)"), ("b", "(2)")]


def test_every_block_with_content_comes_out_once() -> None:
    kinds = ["text", "list", "list_item", "table", "table_caption", "footnote", "formula_number", "equation", "code",
             "code_caption", "header", "image", "image_caption", "ref_text", "index", "phonetic"]  # fmt: skip
    blocks = [block(kind, (10 * n, 50 * n, 10 * n + 700, 50 * n + 60), kind) for n, kind in enumerate(kinds)]
    shown = [
        each
        for item in structure(blocks)
        for each in (*item.parts, *item.captions, *item.footnotes, *([item.number] if item.number else []))
        + (() if item.parts else (item.body,))
    ]
    assert sorted(each.type for each in shown) == sorted(set(kinds) - {"list"})
