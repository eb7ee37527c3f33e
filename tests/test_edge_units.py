from __future__ import annotations

import pytest

from mineru_edge.models.errors import MineruEdgeError
from mineru_edge.units import parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2G", 2_000_000_000),
        ("2Gi", 2 * 2**30),
        ("1500M", 1_500_000_000),
        ("1.5 gb", 1_500_000_000),
        ("512MiB", 512 * 2**20),
        ("1000", 1000),
        (7, 7),
    ],
)
def test_amounts(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "G", "two", "-1G", "1T", "0", 0, -5])
def test_nonsense_says_how_to_write_it(text: str | int) -> None:
    with pytest.raises(MineruEdgeError, match="2G"):
        parse_bytes(text)
