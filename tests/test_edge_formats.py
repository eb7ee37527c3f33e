"""The formats as streams: the same as the whole at once, and each fit for what reads it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest

from mineru_edge.document import Block, Document, Memory, Page
from mineru_edge.formats import SUFFIXES, json_line, open_stream, parse_formats, written
from mineru_edge.models.errors import MineruEdgeError
from mineru_edge.tables import Cell, table_rows, table_text

TABLE = (
    "<table><tr><th rowspan=\"2\">a &lt; b</th><td colspan='2'>x</td></tr>"
    "<tr><td>1</td><td>\\(a&lt;b\\)</td></tr></table>"
)


def block(kind: str, content: str | None, top: float, **more: Any) -> Block:
    return Block(kind, (0.1, top, 0.9, top + 0.03), content=content, **more)


PAGES = (
    Page(1, 3, 100, 100, (
        block("header", "Journal <1>", 0.01), block("doc_title", "A < B & C", 0.05),
        block("paragraph_title", "2.1 Deep", 0.1), block("list_item", "1. one", 0.15),
        block("list_item", "2. <b>", 0.2), block("table_caption", "Tab <1>", 0.24), block("table", TABLE, 0.28),
        block("equation", "\\[a<b\\]", 0.35),
        block("formula_number", "(1)", 0.35), block("code", "if a<b:\n  x", 0.4),
        block("image", None, 0.5, image_path="images/a b.jpg"), block("image_caption", "Fig.", 0.55),
        block("list_item", "• x", 0.6), block("list_item", "3) y", 0.65),
        block("text", "where \\(x<y\\) is foot-", 0.7),
    )),
    Page(2, 3, error="broken <b>"),
    Page(3, 3, 100, 100, (
        block("text", "note and *on*", 0.1, continues=True), block("page_number", "3", 0.95), block("chart", None, 0.5),
    )),
)  # fmt: skip
FACTS = Document("s.pdf", 3, (), "m", 1.0, Memory())


def shown(name: str, *pages: Page, **options: Any) -> str:
    return "".join(written(open_stream(name, FACTS, **options), pages))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("pages", [PAGES, PAGES[:1], PAGES[1:2], ()])
def test_json_is_as_if_written_at_once(indent: int | None, pages: tuple[Page, ...]) -> None:
    whole = Document("s.pdf", 3, pages, "m", 1.0, Memory())
    for name, value in (("result", whole.to_dict()), ("content_list", whole.content_list)):
        assert shown(name, *pages, indent=indent) == json.dumps(value, ensure_ascii=False, indent=indent) + "\n"
    line = json.dumps({**whole.to_dict(), "markdown": whole.markdown}, ensure_ascii=False) + "\n"
    assert "".join(json_line(FACTS, lambda: pages)) == line


def test_text() -> None:
    assert shown("text", PAGES[0], PAGES[2]) == (
        "A < B & C\n\n2.1 Deep\n\n1. one\n2. <b>\n\nTab <1>\n\na < b\tx\t\n\t1\t$a<b$\n\na<b  (1)\n\n"
        "if a<b:\n  x\n\nFig.\n\n- x\n3) y\n\nwhere $x<y$ is footnote and *on*\n"
    )
    assert shown("text", PAGES[1]) == "[page 2 could not be read: broken <b>]\n"


def test_html_has_our_tags_and_no_others() -> None:
    page = shown("html", *PAGES, title="a <b>")
    body = page.split("<body>\n")[1].split("</body>")[0]
    assert "<title>a &lt;b&gt;</title>" in page
    assert body == (
        "<h1>A &lt; B &amp; C</h1>\n\n<h3>2.1 Deep</h3>\n\n"
        "<ol>\n<li value=1>one</li>\n<li value=2>&lt;b&gt;</li>\n</ol>\n\n"
        "<p class=note>Tab &lt;1&gt;</p>\n<table>\n<tr><th rowspan=2>a &lt; b</th><td colspan=2>x</td></tr>\n"
        "<tr><td>1</td><td>\\(a&lt;b\\)</td></tr>\n</table>\n\n<p>\\[a&lt;b\\] (1)</p>\n\n"
        "<pre><code>if a&lt;b:\n  x</code></pre>\n\n"
        '<p><img src="images/a%20b.jpg" alt="image"></p>\n<p class=note>Fig.</p>\n\n'
        "<ul>\n<li>x</li>\n<li>3) y</li>\n</ul>\n\n<p>where \\(x&lt;y\\) is foot-</p>\n\n"
        "<!-- page 2 could not be read: broken <b&gt; -->\n\n<p>note and *on*</p>\n\n"
        "<!-- chart on page 3, box 100 500 900 530 -->\n"
    )
    assert shown("html").endswith("<body>\n</body>\n</html>\n")


def test_what_a_model_was_made_to_write_is_no_html() -> None:
    bad = "<table><tr><td onclick=x()>a<script>alert(1)</script><img src=x onerror=y></td></tr></table>"
    texts = [block(kind, "<script>alert(1)</script>", 0.1) for kind in ("text", "title", "code", "algorithm", "table")]
    page = Page(1, 1, 9, 9, (*texts, block("table", bad, 0.5), block("equation", "</p><script>", 0.7)))

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in ("script", "img"), attrs
            assert not {name for name, _ in attrs} - {"class", "charset", "name", "content"}, attrs

    Tags().feed(shown("html", page, title="</title><script>"))


def test_a_document_has_the_formats_as_properties() -> None:
    document = Document("s.pdf", 3, PAGES, "m", 1.0, Memory())
    assert document.markdown == shown("md", *PAGES)
    assert document.text == shown("text", *PAGES)
    assert document.html == shown("html", *PAGES, title="s.pdf")


@pytest.mark.parametrize("name", ["md", "html", "text"])
def test_headers_and_footers_are_shown_when_asked_for_and_break_no_paragraph(name: str) -> None:
    goes_on = Page(1, 2, 9, 9, (block("text", "It be-", 0.1), block("page_number", "7", 0.9)))
    ends = Page(2, 2, 9, 9, (block("header", "Head", 0.0), block("text", "gins.", 0.1, continues=True)))
    assert "7" not in shown(name, goes_on, ends).split("<body>")[-1]
    with_margins = shown(name, goes_on, ends, margins=True)
    places = [with_margins.index(words) for words in ("It begins.", "7", "Head")]
    assert places == sorted(places)


def test_tables_over_pages_stay_whole() -> None:
    pages = [Page(number, 2, 9, 9, (block("table", TABLE, top),)) for number, top in ((1, 0.9), (2, 0.0))]
    assert shown("md", *pages) == f"{TABLE}\n\n{TABLE}\n"
    assert [entry["table_body"] for entry in json.loads(shown("content_list", *pages))] == [TABLE, TABLE]


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (TABLE, "a < b\tx\t\n\t1\t$a<b$"),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "a\tb\nc"),
        ("<table><tr><td rowspan=3>a</td><td>b</td></tr><tr></tr><tr><td>c</td></tr></table>", "a\tb\n\n\tc"),
        ("<table><tr><td>two<br>lines</td><td colspan=zero rowspan=-1>x</td></tr></table>", "two lines\tx"),
        ("<td>no row</td>", "no row"),
        ("<table></table>", ""),
    ],
)
def test_tables_as_text(html: str, text: str) -> None:
    assert table_text(table_rows(html)) == text


def test_a_span_is_bounded() -> None:
    assert table_rows("<tr><td colspan=99999999>x</td></tr>") == [[Cell("x", columns=1000)]]


def test_formats_are_names_of_ours() -> None:
    assert parse_formats("md, html,md") == ("md", "html")
    assert parse_formats(",".join(SUFFIXES)) == tuple(SUFFIXES)
    with pytest.raises(MineruEdgeError, match="'docx' is not a format"):
        parse_formats("md,docx")
