"""Graphs in the engine's own layout, written once on the device and taken from then on.

An engine packs the weights for the processor it runs on. Packed anew at every start the decoder's are half a gigabyte
of private memory; read from a file they are pages that the system can take back. Vision's are packed anew at every
picture, which costs a sixth of a small one's time. Another engine needs seconds to compile vision, and keeps what came
of that without the weights. The files fit one engine version, one processor and one bundle, which is what the folder's
name and its note say.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from mineru_edge.models.bundle import (
    DECODER_DATA_FILE,
    OV_VISION_DATA_FILE,
    OV_VISION_FILE,
    VISION_DATA_FILE,
    VISION_FILE,
    Bundle,
)
from mineru_edge.models.errors import SpaceError

from .threads import CPUINFO, cpu_field

PREPARED = "prepared"
NOTE = "prepared.json"


def prepared_folder(bundle: Bundle, engine: str, graph: str, *, cpuinfo: Path = CPUINFO) -> Path:
    """Where `engine`, a name with its version, keeps its files of one graph for this processor; it may not exist.

    `graph` is its path in the bundle.
    """
    return bundle.path / PREPARED / f"{engine}-{_processor(cpuinfo)}-{PurePosixPath(graph).stem}"


def find(bundle: Bundle, engine: str, graph: str, *, cpuinfo: Path = CPUINFO) -> Path | None:
    """That folder, if it was finished for the graph that the bundle holds now."""
    folder = prepared_folder(bundle, engine, graph, cpuinfo=cpuinfo)
    try:
        note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in note["files"]}
        return folder if note == {"source": _source(bundle, graph), "files": sizes} else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def prepare(bundle: Bundle, engine: str, graph: str, write: Callable[[Path], None], *, cpuinfo: Path = CPUINFO) -> Path:
    """Let `write` fill a new folder and put it in place when it is whole; what was there for this engine goes.

    SpaceError when the bundle's directory cannot be written, or is full.
    """
    folder = prepared_folder(bundle, engine, graph, cpuinfo=cpuinfo)
    try:
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder.parent) as work:
            draft = Path(work) / "draft"
            draft.mkdir()
            write(draft)
            sizes = {file.name: file.stat().st_size for file in sorted(draft.iterdir())}
            note = {"source": _source(bundle, graph), "files": sizes}
            (draft / NOTE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
            if folder.exists():
                shutil.rmtree(folder)
            draft.rename(folder)
    except OSError as error:
        raise SpaceError(
            f"{folder} cannot be written: {error.strerror or error}",
            hint="prepare a copy of the bundle in a place that can be written, with room for twice its weights",
        ) from error
    return folder


def _source(bundle: Bundle, graph: str) -> dict[str, str]:
    weights = {VISION_FILE: VISION_DATA_FILE, OV_VISION_FILE: OV_VISION_DATA_FILE}.get(graph, DECODER_DATA_FILE)
    return {entry.path: entry.sha256 for entry in bundle.files if entry.path in (graph, weights)}


def _processor(cpuinfo: Path) -> str:
    """The machine type and a digest of what decides the layout: the instruction sets."""
    flags = " ".join(sorted(cpu_field(cpuinfo, "flags", "Features").split())) or platform.processor()
    return f"{platform.machine().lower()}-{hashlib.sha256(flags.encode()).hexdigest()[:12]}"
