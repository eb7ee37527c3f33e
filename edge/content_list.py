"""Pages as the flat list of content that MinerU writes as `content_list.json` (its 2.5 and later form).

One entry per item in reading order, headers, footers and page numbers included. `bbox` is in thousandths of the
page, `page_idx` counts from 0, `img_path` is relative to the list's directory and empty when no picture was written.
Texts are as MinerU has them: lines of Markdown with $...$ formulas, its signs escaped, but not those of HTML.
Field names: MinerU docs/en/reference/output_files.md, section content_list.json; `code_body` stands in a fence, as
MinerU 2 and 3 write it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .document import Block, Box, Page
from .escape import markdown_inline
from .render import display_formula, fenced, table_html
from .structure import CODES, FIGURES, PARATEXT, Item, structure, title_level

# Types that keep their name; all other text is "text".
_NAMED = PARATEXT | {"page_footnote"}


def content_list(pages: Iterable[Page]) -> list[dict[str, Any]]:
    """The entries of all `pages`."""
    return [entry for page in pages for entry in page_entries(page)]


def page_entries(page: Page) -> list[dict[str, Any]]:
    """The entries of one page."""
    return [
        {**_entry(item), "bbox": thousandths(_extent(item)), "page_idx": page.number - 1}
        for item in structure(page.blocks)
    ]


def thousandths(box: Box) -> list[int]:
    """The box in thousandths of the page, as whole numbers."""
    return [round(edge * 1000) for edge in box]


def _entry(item: Item) -> dict[str, Any]:
    body = item.body
    content = body.content or ""
    if item.parts:
        references = sum(part.type == "ref_text" for part in item.parts) * 2 > len(item.parts)
        return {
            "type": "list",
            "sub_type": "ref_text" if references else "text",
            "list_items": _texts(item.parts),
        }
    if level := title_level(body):
        return {"type": "text", "text": markdown_inline(content), "text_level": level}
    if body.type == "table":
        return {
            "type": "table",
            "img_path": body.image_path or "",
            "table_caption": _texts(item.captions),
            "table_footnote": _texts(item.footnotes),
            "table_body": table_html(content.strip()) or content,
        }
    if body.type in FIGURES:
        kind = "chart" if body.type == "chart" else "image"
        entry: dict[str, Any] = {"type": kind, "img_path": body.image_path or ""}
        if content or kind == "chart":
            entry["content"] = content
        return {**entry, f"{kind}_caption": _texts(item.captions), f"{kind}_footnote": _texts(item.footnotes)}
    if body.type == "equation":
        return {
            "type": "equation",
            "img_path": body.image_path or "",
            "text": display_formula(content, item.number) if content.strip() else "",
            "text_format": "latex",
        }
    if body.type in CODES:
        return {
            "type": "code",
            "sub_type": body.type,
            "code_caption": _texts(item.captions),
            "code_body": fenced(content) if body.type == "code" else markdown_inline(content),
            "code_footnote": _texts(item.footnotes),
        }
    return {"type": body.type if body.type in _NAMED else "text", "text": markdown_inline(content)}


def _texts(notes: tuple[Block, ...]) -> list[str]:
    return [markdown_inline(text) for note in notes if (text := (note.content or "").strip())]


def _extent(item: Item) -> Box:
    """The body's box, or that of all items when a list has no container."""
    if not item.parts or item.body.type == "list":
        return item.body.box
    boxes = [part.box for part in item.parts]
    return min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)
