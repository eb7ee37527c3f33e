"""Reads document pages into Markdown and JSON on small machines: CPU only, offline, within a memory limit.

    from mineru_edge import Reader

    with Reader() as reader:
        print(reader.read("scan.pdf").markdown)

The names below are fetched when they are first used, so that `import mineru_edge.models` starts no engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .document import Block, Document, Page
    from .models.bundle import Bundle
    from .models.errors import (
        BudgetError,
        BundleError,
        CheckpointError,
        EngineError,
        InputError,
        MineruEdgeError,
        ParityError,
        PartialError,
        SpaceError,
    )
    from .reader import Reader

__all__ = [
    "Block",
    "BudgetError",
    "Bundle",
    "BundleError",
    "CheckpointError",
    "Document",
    "EngineError",
    "InputError",
    "MineruEdgeError",
    "Page",
    "ParityError",
    "PartialError",
    "Reader",
    "SpaceError",
]

_ERRORS = {name: "models.errors" for name in __all__ if name.endswith("Error")}
_HOMES = {
    "Block": "document",
    "Bundle": "models.bundle",
    "Document": "document",
    "Page": "document",
    "Reader": "reader",
    **_ERRORS,
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
