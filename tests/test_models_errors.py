"""The error tree: one exit code each, numbers and a cure in the text."""

from __future__ import annotations

import re

import pytest

from mineru_edge.models import errors
from mineru_edge.models.errors import BudgetError, BundleError, MineruEdgeError


def test_exit_codes_are_distinct_and_stand_in_the_docstring() -> None:
    codes = {kind.__name__: kind.exit_code for kind in MineruEdgeError.__subclasses__()}
    codes["MineruEdgeError"] = MineruEdgeError.exit_code
    assert len(set(codes.values())) == len(codes)
    assert not set(codes.values()) & {errors.OK, errors.USAGE, errors.INTERRUPT}
    drawn = dict(re.findall(r"(\w+Error)\s+(\d+)  ", errors.__doc__ or ""))
    assert drawn == {name: str(code) for name, code in codes.items()}


def test_the_text_holds_the_message_and_the_hint() -> None:
    error = BundleError("vision.data: expected 5 bytes, found 4 bytes", hint="copy it again")
    assert str(error) == "vision.data: expected 5 bytes, found 4 bytes; copy it again"
    assert str(BundleError("plain")) == "plain"


def test_a_budget_error_gives_both_numbers() -> None:
    with pytest.raises(
        BudgetError, match=r"needs 1,234\.5 MB, but the memory limit is 900\.0 MB; use fewer slots"
    ) as raised:
        raise BudgetError(need_bytes=1_234_500_000, limit_bytes=900_000_000, hint="use fewer slots")
    assert (raised.value.need_bytes, raised.value.limit_bytes) == (1_234_500_000, 900_000_000)
