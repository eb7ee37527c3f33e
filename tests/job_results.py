"""What a run of `parse -o` left behind, fit to be compared with another run's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_OF_THE_RUN = {"seconds", "vision_s", "prefill_s", "decode_s", "peak_private_bytes", "peak_rss_bytes"}


def results(folder: Path) -> dict[str, Any]:
    """Every file below `folder` byte by byte, but journals; of NAME_result.json all but times and memory."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(".mineru-edge/"):
            data = path.read_bytes()
            found[name] = _timeless(json.loads(data)) if name.endswith("_result.json") else data
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(each) for name, each in value.items() if name not in _OF_THE_RUN}
    return [_timeless(each) for each in value] if isinstance(value, list) else value
