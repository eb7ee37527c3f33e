"""Plain text in Markdown and HTML, shown as it is: what these would take for a command is escaped.

Inline formulas stand between \\( and \\) in the model's answers. In Markdown they become $...$ and stay unescaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

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
    lines = _INDENT.sub("", _each(text, _plain, inline_formula).strip())
    lines = _LINE_START.sub(lambda start: f"{start[1]}\\{start[2]}", _BLANK_LINES.sub("\n", lines))
    return lines.replace("\n", "  \n")


def markdown_line(text: str) -> str:
    """`text` on a single line: headings, list items, captions."""
    return " ".join(markdown_text(text).split())


def markdown_inline(text: str) -> str:
    """`text` with its formulas as $...$ and the signs of Markdown escaped, and nothing done for HTML: `<` stays."""
    return _each(text, _signs, inline_formula)


def html_text(text: str) -> str:
    """`text` for a paragraph of HTML. Formulas keep their \\( and \\), which is what scripts for formulas look for."""
    lines = _INDENT.sub("", _each(text, _escaped, _html_formula).strip())
    return _BLANK_LINES.sub("\n", lines).replace("\n", "<br>\n")


def bare_text(text: str) -> str:
    """`text` with nothing escaped; formulas as $...$."""
    return _BLANK_LINES.sub("\n", _INDENT.sub("", _each(text, _cited, inline_formula).strip()))


def inline_formula(latex: str) -> str:
    """LaTeX inside a line. Blanks next to the dollars would switch the formula off in most renderers."""
    return f"${' '.join(latex.split())}$"


def comment(text: str) -> str:
    """`text` as an HTML comment, which two hyphens would end."""
    return f"<!-- {text.replace('--', '- -').replace('>', '&gt;')} -->"


def _each(text: str, plain: Callable[[str], str], formula: Callable[[str], str]) -> str:
    """`text` with `formula` made of its inline formulas and `plain` of what is between them."""
    pieces = []
    end = 0
    for found in _FORMULA.finditer(text):
        pieces += [plain(text[end : found.start()]), formula(found[1])]
        end = found.end()
    return "".join([*pieces, plain(text[end:])])


def _plain(text: str) -> str:
    return _ENTITY.sub("&amp;", _signs(text)).replace("<", "&lt;")


def _signs(text: str) -> str:
    text = _cited(text).replace("\\", "\\\\").replace("`", "\\`").replace("~~", "\\~~").replace("$", "\\$")
    text = _EMPHASIS.sub(lambda mark: f"\\{mark[0]}", text)
    return _LINK.sub(lambda mark: f"\\{mark[0]}", text)


def _escaped(text: str) -> str:
    return html.escape(_cited(text), quote=False)


def _html_formula(latex: str) -> str:
    return html.escape(f"\\({' '.join(latex.split())}\\)", quote=False)


def _cited(text: str) -> str:
    return _CITATION.sub(r"[\1]", text)
