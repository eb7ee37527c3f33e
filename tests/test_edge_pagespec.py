from __future__ import annotations

import pytest

from mineru_edge.models.errors import InputError
from mineru_edge.pagespec import select_pages


@pytest.mark.parametrize(
    ("pages", "numbers"),
    [
        (None, (1, 2, 3, 4, 5)),
        ("1-3", (1, 2, 3)),
        ("2", (2,)),
        ("1-2,5", (1, 2, 5)),
        ("4-", (4, 5)),
        (" 5 , 1 - 2 ,2", (1, 2, 5)),
        ([3, 1, 3], (1, 3)),
    ],
)
def test_both_ends_are_meant_and_order_is_the_documents(
    pages: str | list[int] | None, numbers: tuple[int, ...]
) -> None:
    assert select_pages(pages, 5) == numbers


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ("6", "page 6 does not exist: the document has 5 pages"),
        ("3-9", "page 9 does not exist"),
        ("7-", "page 7 does not exist"),
        ("0", "no page 0"),
        ("0-2", "no page 0"),
        ("3-1", "3-1 runs backwards"),
        ("", "'' is not a page"),
        ("1,,2", "'' is not a page"),
        ("one", "'one' is not a page"),
        ("-3", "'-3' is not a page"),
        ("1-2-3", "'1-2-3' is not a page"),
        ("²", "'²' is not a page"),
        ([0], "page 0 does not exist"),
        ([-1], "page -1 does not exist"),
        ([], "no page was asked for"),
    ],
)
def test_a_slip_is_named_with_the_form_to_use(pages: str | list[int], words: str) -> None:
    with pytest.raises(InputError) as caught:
        select_pages(pages, 5)
    assert words in str(caught.value)
    assert "1-3,7" in str(caught.value)


def test_a_huge_range_ends_at_once() -> None:
    with pytest.raises(InputError, match="page 999999999999 does not exist"):
        select_pages("1-999999999999", 1)
