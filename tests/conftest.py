"""Fixtures that several test files use. Pytest puts this folder on the path, so helpers are imported by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from mineru_edge.models import bundle as bundles


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
