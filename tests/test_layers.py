"""Imports flow one way: models <- runtime <- edge, and models <- export.

Reads the sources and imports none of them, so it needs nothing installed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("models", "runtime", "export", "edge")

OURS: dict[str, set[str]] = {
    "models": {"models"},
    "runtime": {"runtime", "models"},
    "export": {"export", "models"},
    "edge": {"edge", "runtime", "models"},
}
LIBRARIES: dict[str, set[str]] = {
    "models": set(),
    "runtime": {"numpy", "PIL", "tokenizers"},
    "edge": {"numpy", "PIL", "click", "pypdfium2", "pypdfium2_raw", "mineru_vl_utils", "loguru"},
}  # `export` runs on a build machine and may import any library
EXCEPTIONS: dict[str, set[str]] = {
    "runtime/ort.py": {"onnxruntime"},  # and no other file
    "edge/detector.py": {"rapid_layout"},  # nor here
    "edge/ocr.py": {"rapidocr", "cv2"},
    "runtime/ov*.py": {"openvino"},
    "export/verify*.py": {"mineru_edge.runtime"},  # compares with what the device will run
    "export/calibrate.py": {"mineru_edge.runtime"},  # looks at the keys and values that it will hold
    "export/tiny/evaluate*.py": {"mineru_edge.runtime"},  # measures how well that reads
}
INSIDE_FUNCTIONS: dict[str, set[str]] = {
    "edge/cli*.py": {"mineru_edge.export"},  # inside the commands `export` and `verify`
}


@dataclass(frozen=True)
class Import:
    """One imported module by its full name, at `line`; `deep` inside a function."""

    module: str
    line: int
    deep: bool


def imports(path: str, source: str) -> Iterator[Import]:
    folder, *below = path.split("/")
    package = ["mineru_edge", *([] if folder == "edge" else [folder]), *below[:-1]]

    def walk(node: ast.AST, deep: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, deep) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from mineru_edge import runtime` and `from . import kv` name modules after the word import
            yield from (Import(f"{base}.{alias.name}", node.lineno, deep) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield Import(node.args[0].value, node.lineno, deep)
        inner = deep or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inner)

    return walk(ast.parse(source), False)


def layer_of(module: str) -> str:
    second = module.split(".")[1] if "." in module else ""
    return second if second in LAYERS[:3] else "edge"


def allowed(path: str, table: dict[str, set[str]]) -> set[str]:
    return {name for pattern, names in table.items() if Path(path).match(pattern) for name in names}


def complaint(path: str, found: Import) -> str | None:
    layer = path.split("/")[0]
    top = found.module.split(".")[0]
    if top == "mineru_edge":
        granted = allowed(path, EXCEPTIONS) | (allowed(path, INSIDE_FUNCTIONS) if found.deep else set())
        target = layer_of(found.module)
        if target in OURS[layer] or f"mineru_edge.{target}" in granted:
            return None
        return f"{layer} may not import {found.module}"
    if top in LAYERS:
        return f"{found.module} is a folder; the package is mineru_edge.{found.module}"
    if top in sys.stdlib_module_names or layer == "export" or top in LIBRARIES[layer] | allowed(path, EXCEPTIONS):
        return None
    return f"{layer} may not import {found.module}"


def complaints(path: str, source: str) -> list[str]:
    found = [(each.line, complaint(path, each)) for each in imports(path, source)]
    return [f"{path}:{line}: {text}" for line, text in found if text is not None]


def test_every_source_file_keeps_to_the_table() -> None:
    paths = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    assert len(paths) > 10
    found = [text for path in paths for text in complaints(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("models/x.py", "import numpy"),
        ("models/x.py", "from mineru_edge.runtime import kv"),
        ("runtime/x.py", "import torch"),
        ("runtime/x.py", "def f():\n    import torch"),
        ("runtime/x.py", "import onnxruntime as ort"),
        ("runtime/x.py", "def f():\n    import openvino"),
        ("runtime/x.py", "from mineru_edge import runtime, reader"),
        ("runtime/x.py", "from mineru_edge.reader import Reader"),
        ("runtime/x.py", "from ..export import exporter"),
        ("runtime/x.py", "import mineru_vl_utils"),
        ("runtime/x.py", "__import__('torch')"),
        ("edge/x.py", "import importlib\nimportlib.import_module('transformers')"),
        ("edge/x.py", "import onnxruntime"),
        ("edge/x.py", "import onnx"),
        ("edge/x.py", "def f():\n    from mineru_edge.export import exporter"),
        ("edge/cli.py", "from mineru_edge.export import exporter"),
        ("edge/cli.py", "from .export import exporter"),
        ("export/x.py", "from mineru_edge.runtime.engine import Engine"),
        ("export/tiny/x.py", "from mineru_edge.reader import Reader"),
        ("export/x.py", "import models"),
        ("edge/x.py", "from runtime.kv import KVStore"),
    ],
)
def test_a_wrong_import_is_seen(path: str, source: str) -> None:
    assert complaints(path, source) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("models/x.py", "import json\nfrom .errors import BundleError"),
        ("runtime/ort.py", "import onnxruntime"),
        ("runtime/ov_selftest.py", "import openvino"),
        ("runtime/x.py", "import numpy as np\nfrom mineru_edge.models.bundle import Bundle\nfrom . import kv"),
        ("export/verify.py", "from mineru_edge.runtime.engine import Engine"),
        ("export/verify_pages.py", "from mineru_edge.runtime.engine import Engine"),
        ("export/x.py", "import torch\nfrom mineru_edge.models.errors import CheckpointError"),
        ("export/tiny/x.py", "from .pages import Page\nfrom ..exporter import export"),
        ("edge/cli.py", "def f():\n    from mineru_edge.export import exporter"),
        ("edge/x.py", "from .document import Page\nfrom .models.bundle import Bundle\nimport click"),
    ],
)
def test_a_right_import_is_let_pass(path: str, source: str) -> None:
    assert complaints(path, source) == []
