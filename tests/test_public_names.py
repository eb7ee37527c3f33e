"""What `mineru_edge` hands on, and what importing it costs: nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mineru_edge


@pytest.mark.parametrize("name", mineru_edge.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(mineru_edge, name)
    assert value.__name__ == name
    assert value.__doc__
    assert name in dir(mineru_edge)


def test_type_checkers_see_the_same_names(root: Path) -> None:
    tree = ast.parse((root / "edge" / "__init__.py").read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = [alias.name for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(seen) == sorted(mineru_edge.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'mineru_edge' has no attribute 'Raeder'"):
        _ = mineru_edge.Raeder


@pytest.mark.parametrize("module", ["mineru_edge", "mineru_edge.models.bundle", "mineru_edge.models.tensors"])
def test_the_lowest_layer_starts_nothing(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "PIL", "tokenizers", "onnxruntime", "pypdfium2", "mineru_vl_utils", "click", "torch"}
    assert heavy & set(run.stdout.split()) == set()
