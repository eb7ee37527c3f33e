"""Every test that USER_NEEDS.md names exists, and every row names one or says why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (TESTS / "USER_NEEDS.md").read_text("utf-8").splitlines()
    if re.match(r"\| [A-K]\d+ ", line)
]
REASON = re.compile(r"(does not apply|not held): \w+ \w+")


def functions(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_there_are_as_many_rows_as_reports() -> None:
    areas = [row[0][0] for row in ROWS]
    assert {area: areas.count(area) for area in "ABCDEFGHIJK"} == {
        "A": 11, "B": 6, "C": 11, "D": 10, "E": 8, "F": 12, "G": 8, "H": 10, "I": 6, "J": 7, "K": 4,
    }  # fmt: skip
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_tests_that_exist_or_says_why_not(row: list[str]) -> None:
    _, _, right, held = row
    assert right
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", held)
    assert named or REASON.match(held), held
    for file, name in named:
        assert name in functions(file), f"{file}::{name}"
