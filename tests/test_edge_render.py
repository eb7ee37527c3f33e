from __future__ import annotations

import pytest

from mineru_edge.document import Block, Page
from mineru_edge.escape import comment, markdown_text
from mineru_edge.flow import join_paragraphs
from mineru_edge.render import markdown, markdown_flow


def page(*blocks: Block | tuple[str, str | None], number: int = 1, error: str | None = None) -> Page:
    """Blocks one below the other; a pair is (type, content)."""
    placed = [
        block
        if isinstance(block, Block)
        else Block(block[0], (0.1, 0.05 * row, 0.9, 0.05 * row + 0.04), content=block[1])
        for row, block in enumerate(blocks)
    ]
    return Page(number, 9, 100, 100, tuple(placed), error=error)


def test_headings_paragraphs_and_what_is_left_out() -> None:
    found = markdown(
        [
            page(
                ("header", "Journal"),
                ("doc_title", "On things"),
                ("paragraph_title", "1. First"),
                ("text", "Some words."),
                ("aside_text", "margin"),
                ("footer", "foot"),
                ("page_number", "7"),
                ("page_footnote", "A note."),
            )
        ]
    )
    assert found == "# On things\n\n## 1. First\n\nSome words.\n\nA note.\n"


def test_headings_go_as_deep_as_their_numbers() -> None:
    found = markdown(
        [page(("title", "2 Two"), ("title", "2.1 Deeper"), ("paragraph_title", "2.1.3. Deep"), ("title", "3.5"))]
        + [page(("paragraph_title", "1.1.1.1.1.1.1 Deepest"), number=2)]
    )
    assert found == "# 2 Two\n\n## 2.1 Deeper\n\n#### 2.1.3. Deep\n\n# 3.5\n\n###### 1.1.1.1.1.1.1 Deepest\n"


def test_lists() -> None:
    found = markdown(
        [page(("list_item", "• one"), ("list_item", "2) two"), ("list_item", "- three"), ("list_item", "–5 °C"))]
    )
    assert found == "- one\n2) two\n- three\n- –5 °C\n"


def test_tables_stay_html_and_keep_together() -> None:
    table = "<table><tr><td>a &lt; b</td></tr>\n\n<tr><td>c</td></tr></table>"
    assert markdown([page(("table", table))]) == "<table><tr><td>a &lt; b</td></tr>\n<tr><td>c</td></tr></table>\n"


def test_a_table_that_is_none_is_shown_as_text() -> None:
    assert markdown([page(("table", "<fcel>a"))]) == "&lt;fcel>a\n"


def test_formulas() -> None:
    number = Block("formula_number", (0.92, 0.0, 0.95, 0.04), content="(3)")
    found = markdown([page(("equation", "\\[\na_b < c\n\n\\]"), number, ("equation", "\\[x \\tag{1}\\]"))])
    assert found == "$$\na_b < c \\tag{3}\n$$\n\n$$\nx \\tag{1}\n$$\n"


def test_figures_link_to_their_picture_with_captions_where_they_stand() -> None:
    figure = Block("image", (0.1, 0.2, 0.9, 0.4), image_path="images/my scan_p0001_002.jpg")
    above = Block("image_caption", (0.1, 0.15, 0.9, 0.19), content="Above")
    below = Block("image_caption", (0.1, 0.41, 0.9, 0.45), content="Figure 1: a < b")
    assert markdown([page(above, figure, below)]) == (
        "Above\n\n![image](images/my%20scan_p0001_002.jpg)\n\nFigure 1: a &lt; b\n"
    )


def test_a_figure_without_a_picture_leaves_a_trace() -> None:
    assert markdown([page(Block("chart", (0.1, 0.2, 0.9, 0.4)))]) == "<!-- chart on page 1, box 100 200 900 400 -->\n"


def test_code_keeps_its_lines_and_characters() -> None:
    code = "if a < b:\n    print('```')"
    assert markdown([page(("code", code))]) == f"````\n{code}\n````\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a < b & c", "a &lt; b & c"),
        ("<script>x</script>", "&lt;script>x&lt;/script>"),
        ("&lt; is an entity", "&amp;lt; is an entity"),
        ("# no heading", "\\# no heading"),
        ("- no item", "\\- no item"),
        ("> no quote", "\\> no quote"),
        ("line\n===", "line  \n\\==="),
        ("*bold* 2 * 3", "\\*bold\\* 2 * 3"),
        ("snake_case _word_", "snake_case \\_word\\_"),
        ("a `tick`", "a \\`tick\\`"),
        ("costs $5 or $6", "costs \\$5 or \\$6"),
        ("back\\slash", "back\\\\slash"),
        ("see [12] and [x](y)", "see [12] and \\[x](y)"),
        ("![x](y)", "\\!\\[x](y)"),
        ("cited \\[3, 4\\]", "cited [3, 4]"),
        ("where \\( a_b < c \\) holds", "where $a_b < c$ holds"),
        ("two\n\nlines", "two  \nlines"),
        ("    indented", "indented"),
    ],
)
def test_plain_text_is_shown_as_it_is(text: str, shown: str) -> None:
    assert markdown_text(text) == shown


def test_a_comment_cannot_be_left() -> None:
    assert comment("a --> b") == "<!-- a - -&gt; b -->"


def test_paragraphs_go_on_over_columns_and_pages() -> None:
    goes_on = Block("text", (0.1, 0.1, 0.9, 0.2), content="and ends.", continues=True)
    pages = [page(("text", "It begins"), ("page_number", "1")), page(("header", "Head"), goes_on, number=2)]
    assert markdown(pages) == "It begins and ends.\n"


def test_what_goes_on_from_nothing_stands_for_itself() -> None:
    assert (
        markdown([page(("title", "T"), Block("text", (0, 0, 1, 1), content="rest", continues=True))]) == "# T\n\nrest\n"
    )


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("a", "b", "a b"),
        ("con-", "tinued", "continued"),
        ("A-", "Level", "A- Level"),
        ("文", "字", "文字"),
        ("x -", "y", "x - y"),
    ],
)
def test_joining(first: str, second: str, joined: str) -> None:
    assert join_paragraphs(first, second) == joined


def test_a_page_that_failed_says_so_in_its_place() -> None:
    found = markdown([page(("text", "one")), page(number=2, error="broken -->"), page(("text", "three"), number=3)])
    assert found == "one\n\n<!-- page 2 could not be read: broken - -&gt; -->\n\nthree\n"


def test_streaming_gives_the_same_and_holds_back_one_paragraph() -> None:
    pages = [page(("title", "T"), ("text", "one")), page(("text", "two"), number=2), page(number=3)]
    stream = markdown_flow()
    pieces = [stream.feed(each) for each in pages]
    assert pieces[0] == "# T\n"
    assert "".join(pieces) + stream.end() == markdown(pages) == "# T\n\none\n\ntwo\n"


def test_nothing_is_empty() -> None:
    assert markdown([]) == ""
    assert markdown([page(("text", " ")), page(("title", ""))]) == ""
