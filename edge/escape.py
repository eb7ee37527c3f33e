"""Plain text in Markdown, shown as it is: what Markdown or HTML would take for a command is escaped.

Inline formulas, between \\( and \\) in the model's answers, become $...$ and stay unescaped.
"""

from __future__ import annotations

import re

_FORMULA = re.compile(r"\\\((.+?)\\\)", re.DOTALL)
_CITATION = re.compile(r"\\\[([–\d\-,\s]+)\\\]")  # the library leaves these as \[12\], as Markdown for [12]
_ENTITY = re.compile(r"&(?=#?\w+;)")
_EMPHASIS = re.compile(r"(?<!\s)\*|\*(?!\s)|(?<!\w)_|_(?!\w)")  # a_b and 2 * 3 mean nothing
_LINE_START = re.compile(r"^(\s*)(#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|[-=](?=[-=\s]*$)|~~~|:(?=\s))", re.MULTILINE)
_LINK = re.compile(r"\[(?=[^\]\n]*\](?:\(|\[|:))|!(?=\[)")
_INDENT = re.compile(r"^[ \t]+|[ \t]+$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n\s*\n+")


def markdown_text(text: str) -> str:
    """`text` for a paragraph: one line or several, each kept as a line of its own."""
    pieces = []
    end = 0
    for formula in _FORMULA.finditer(text):
        pieces += [_plain(text[end : formula.start()]), inline_formula(formula[1])]
        end = formula.end()
    pieces.append(_plain(text[end:]))
    lines = _INDENT.sub("", "".join(pieces).strip())
    lines = _LINE_START.sub(lambda start: f"{start[1]}\\{start[2]}", _BLANK_LINES.sub("\n", lines))
    return lines.replace("\n", "  \n")


def markdown_line(text: str) -> str:
    """`text` on a single line: headings, list items, captions."""
    return " ".join(markdown_text(text).split())


def inline_formula(latex: str) -> str:
    """LaTeX inside a line. Blanks next to the dollars would switch the formula off in most renderers."""
    return f"${' '.join(latex.split())}$"


def comment(text: str) -> str:
    """`text` as an HTML comment, which two hyphens would end."""
    return f"<!-- {text.replace('--', '- -').replace('>', '&gt;')} -->"


def _plain(text: str) -> str:
    text = _CITATION.sub(r"[\1]", text)
    text = text.replace("\\", "\\\\").replace("`", "\\`").replace("~~", "\\~~").replace("$", "\\$")
    text = _EMPHASIS.sub(lambda mark: f"\\{mark[0]}", text)
    text = _LINK.sub(lambda mark: f"\\{mark[0]}", text)
    return _ENTITY.sub("&amp;", text).replace("<", "&lt;")
