"""Characters and line ends, as a person would type them."""

from __future__ import annotations

import pytest

from mineru_edge.typed import clean, known, paragraph, tight


@pytest.mark.parametrize(
    ("drawn", "meant"),
    [
        ("\ufb01 \ufb02 \ufb03 \ufb00", "fi fl ffi ff"),
        ("\u00a0\u2003\t", "   "),
        ("a\u00adb\u200b\ufeff", "ab"),
        ("non\u2011breaking", "non-breaking"),
        ("\uf0b7", "•"),
        ("e\u0301", "é"),
        ("\ufe8d", "\u0627"),  # the isolated form of alef
        ("m² ½ ™ Ⅳ", "m² ½ ™ Ⅳ"),  # these are as the author chose them
        ("\u0645\u06cc\u200c\u0631\u0648\u0645", "\u0645\u06cc\u200c\u0631\u0648\u0645"),  # a joiner that Persian needs
    ],
)
def test_clean(drawn: str, meant: str) -> None:
    assert clean(drawn) == meant


@pytest.mark.parametrize("sign", ["\ufffd", "\ue000", "\x00", "\x19", "\U0010ffff", chr(0xD800), "a\ufffd"])
def test_what_has_no_meaning(sign: str) -> None:
    assert not known(sign)
    assert known("a é 中 \u00ad • \uf0b7")


@pytest.mark.parametrize(
    ("lines", "words", "text"),
    [
        (["a docu-", "ment"], (), "a document"),
        (["one", "", "two"], (), "one two"),
        (["Karl-", "Marx"], (), "Karl- Marx"),  # no lower case: perhaps a list, perhaps a name; nothing is lost
        (["24-", "bit"], (), "24- bit"),
        (["state-of-the-", "art"], (), "state-of-the-art"),
        (["self-", "made"], (), "self-made"),
        (["pre-", "and postfix"], (), "pre- and postfix"),
        (["on-", "line"], {"on-line"}, "on-line"),
        (["trans-", "formation."], (), "transformation."),
        (["said -", "and left"], (), "said - and left"),
        (["中文", "文字"], (), "中文文字"),
        (["中文", "word"], (), "中文 word"),
        ([], (), ""),
    ],
)
def test_lines_run_on(lines: list[str], words: set[str], text: str) -> None:
    assert paragraph(lines, words) == text


def test_tight() -> None:
    assert tight("中", "文")
    assert not tight("中", "a")
    assert not tight("", "")
