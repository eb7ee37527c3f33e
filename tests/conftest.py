"""Fixtures that several test files use. Pytest puts this folder on the path, so helpers are imported by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_engine import Bench
from PIL import Image

from mineru_edge.models import bundle as bundles
from mineru_edge.reader import Reader


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=2, help="moments at which a job is killed")
    parser.addoption("--long-pages", type=int, help="pages of a long document")


ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def embedded_bundle() -> bundles.Bundle:
    """The INT8 bundle of the embedded reference model. Read only: tests that change files copy it."""
    return bundles.Bundle.load(bundles.embedded())


@pytest.fixture(scope="session")
def embedded_checkpoint() -> Path:
    """The checkpoint of the embedded reference model, in Hugging Face layout."""
    return bundles.embedded_checkpoint()


@pytest.fixture(scope="session")
def sample_pdf() -> Path:
    """A page that the embedded model reads."""
    return ROOT / "tests" / "data" / "sample.pdf"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Scripted engines, to which `run` and `open_reader` give way."""
    bench = Bench(tmp_path, monkeypatch)
    yield bench
    bench.close()


@pytest.fixture
def run(bench: Bench) -> Callable[..., int]:
    """`mineru-edge parse` over a scripted engine, which comes first; its exit code."""
    return bench.parse


@pytest.fixture
def open_reader(bench: Bench) -> Callable[..., Reader]:
    """A Reader over a scripted engine, which comes first."""
    return bench.reader


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """A white page as a picture."""
    path = tmp_path / "scan.png"
    Image.new("RGB", (400, 500), "white").save(path)
    return path
