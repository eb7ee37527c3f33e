"""Characters of a PDF as a person would type them: ligatures, blanks, hyphens at line ends, symbol fonts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

LOST = "\ufffd"  # stands for a sign whose meaning the PDF does not tell
_SOFT_HYPHEN = "\u00ad"
_SYMBOLS = {  # places of the Symbol and Wingdings fonts, which word processors use for bullets
    "\uf0b7": "•", "\uf06c": "•", "\uf0a7": "▪", "\uf06e": "■", "\uf0a8": "□", "\uf071": "❑", "\uf076": "❖",
    "\uf0d8": "➢", "\uf0e0": "→", "\uf0e8": "➔", "\uf0fc": "✓", "\uf0fb": "✗", "\uf0fe": "☑", "\uf02d": "-",
}  # fmt: skip
_FORMS = re.compile("[\ufb00-\ufb06\ufb13-\ufb17\ufb1d-\ufdfb\ufe70-\ufefc]")  # ligatures, and letters by position
_DASHES = re.compile("[\u2010\u2011]")
_CUT = re.compile(r"([^\W\d_]+)-$")  # letters and a hyphen at the end of a line
_START = re.compile(r"[^\W\d_]+")
_AND = frozenset("and or to und oder bis et ou y e ni o of en e i".split())
_OWN_HYPHEN = frozenset("self well ex non all half cross co".split())  # these mostly keep theirs
_CJK = re.compile("[\u2e80-\u2fff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff9f]")


def known(text: str) -> bool:
    """Whether every character of `text` means something to a reader."""
    return all(
        each.isspace() or each in _SYMBOLS or unicodedata.category(each) not in ("Cc", "Co", "Cn", "Cs")
        for each in text.replace(LOST, "\0")
    )


def clean(text: str) -> str:
    """`text`, which is known, with ligatures spelled out, blanks as plain blanks, marks that nobody types dropped."""
    text = _FORMS.sub(lambda form: unicodedata.normalize("NFKC", form[0]), text)
    out = []
    for each in _DASHES.sub("-", text):
        category = unicodedata.category(each)
        if each in _SYMBOLS:
            out.append(_SYMBOLS[each])
        elif each.isspace():
            out.append(" ")
        elif each in "\u200c\u200d" or category != "Cf":
            out.append(each)
    return unicodedata.normalize("NFC", "".join(out))


def is_soft_hyphen(text: str) -> bool:
    return text == _SOFT_HYPHEN


def tight(before: str, after: str) -> bool:
    """Whether no blank stands between the two texts when a line is broken there: CJK."""
    return bool(_CJK.match(before[-1:]) and _CJK.match(after[:1]))


def paragraph(lines: Sequence[str], words: Collection[str] = ()) -> str:
    """`lines` run on as one text. A word cut by a hyphen is mended; `words`, those of the page, settle doubts."""
    text = ""
    for line in lines:
        if not line:
            continue
        if not text:
            text = line
        elif (cut := _CUT.search(text)) and line[0].islower():
            text = _mended(text, cut, line, words)
        else:
            text += line if tight(text, line) else f" {line}"
    return text


def vocabulary(lines: Sequence[str]) -> frozenset[str]:
    """The hyphened words inside of `lines`, in lower case: those were not cut by a line's end."""
    found = (word for line in lines for word in re.findall(r"\b[^\W\d_]+(?:-[^\W\d_]+)+\b", line.casefold()))
    return frozenset(found)


def _mended(text: str, cut: re.Match[str], line: str, words: Collection[str]) -> str:
    start = _START.match(line)
    assert start is not None
    first, second = cut[1].casefold(), start[0].casefold()
    if second in _AND:  # "pre- and postfix"
        return f"{text} {line}"
    compound = text[: cut.start()].endswith("-") or first in _OWN_HYPHEN
    if compound or f"{first}-{second}" in words:
        return text + line
    return text[:-1] + line
