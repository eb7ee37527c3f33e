"""How near a result is to the truth that a manifest names: words, reference texts, tables."""

from __future__ import annotations

import csv
import html
import json
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docling_metrics_table.utils.teds import TEDScorer
from lxml import html as lxml_html
from rapidfuzz.distance import Levenshtein

_MARKUP = re.compile(r"<!--.*?-->|<[^<>]+>|!\[.*?\]\(.*?\)", re.DOTALL)


def words_in(texts: Sequence[str]) -> str:
    """Letters and digits alone, in one case: what OCR, Markdown and line breaks leave of a text."""
    whole = unicodedata.normalize("NFKC", html.unescape(_MARKUP.sub(" ", " ".join(texts)))).casefold()
    return "".join(each for each in whole if each.isalnum())


def similarity(folder: Path, entry: dict[str, Any], contents: Sequence[str]) -> float | None:
    """To the reference text of the file; None where there is none."""
    texts = [truth["file"] for truth in entry["ground_truth"] if Path(truth["file"]).suffix in (".md", ".txt")]
    reference = (folder / texts[0]).read_text("utf-8") if texts else entry["expected"].get("text")
    if reference is None:
        return None
    return 1 - Levenshtein.normalized_distance(words_in([reference]), words_in(contents))


def table_scores(folder: Path, entry: dict[str, Any], pages: Sequence[dict[str, Any]]) -> list[float]:
    """TEDS of each true table against the most similar one on the pages; 0 for one that is not there."""
    scorer = TEDScorer()
    given = [table for page in pages for block in page["blocks"] if (table := _given(block))]
    return [
        max((scorer.teds(_tree(truth), _tree(table), structure_only=False) for table in given), default=0.0)
        for truth in _true_tables(folder, entry)
    ]


def _given(block: dict[str, Any]) -> str | None:
    content = block["content"] or ""
    if content.startswith("<table"):
        return str(content)
    if "\t" not in content:
        return None
    return _html([[(cell, 1, 1) for cell in row.split("\t")] for row in content.split("\n")])


def _true_tables(folder: Path, entry: dict[str, Any]) -> list[str]:
    tables = []
    for truth in entry["ground_truth"]:
        path = folder / truth["file"]
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                tables.append(_html([[(cell, 1, 1) for cell in row] for row in csv.reader(file)]))
        elif path.suffix == ".json":
            tables += [_spanned(table) for table in json.loads(path.read_text("utf-8")).get("tables", ())]
    if "cells" in entry["expected"]:
        tables.append(_html([[(cell, 1, 1) for cell in row] for row in entry["expected"]["cells"]]))
    return tables


def _spanned(table: dict[str, Any]) -> str:
    """Cells by row and column, each with where it ends; empty ones are not listed."""
    taken: set[tuple[int, int]] = set()
    starts = {(cell["row"], cell["col"]): cell for cell in table["cells"]}
    rows: list[list[tuple[str, int, int]]] = []
    for row in range(table["rows"]):
        rows.append([])
        for column in range(table["cols"]):
            if (row, column) in taken:
                continue
            cell = starts.get((row, column), {"text": "", "row_end": row, "col_end": column})
            height, width = cell["row_end"] - row + 1, cell["col_end"] - column + 1
            taken |= {(row + down, column + across) for down in range(height) for across in range(width)}
            rows[-1].append((cell["text"], height, width))
    return _html(rows)


def _html(rows: Sequence[Sequence[tuple[str, int, int]]]) -> str:
    lines = []
    for row in rows:
        cells = []
        for text, height, width in row:
            spans = (f' rowspan="{height}"' if height > 1 else "") + (f' colspan="{width}"' if width > 1 else "")
            cells.append(f"<td{spans}>{html.escape(' '.join(text.split()))}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _tree(table: str) -> Any:
    return lxml_html.fragment_fromstring(table)
