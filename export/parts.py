"""The three parts of a bundle that hold weights: each is written from the checkpoint by itself, and can be again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from mineru_edge.models import bundle as layout
from mineru_edge.models.bundle import Format

from . import openvino_decoder, openvino_vision, quantize
from .checkpoint import Checkpoint
from .facts import Facts
from .onnx_decoder import write_decoder
from .onnx_vision import write_vision
from .onnx_writer import GraphWriter
from .schemes import BITS, EMBEDDING, Scheme

Part = Literal["vision", "decoder", "embedding"]
PARTS: tuple[Part, ...] = get_args(Part)


def part_of(matrix: str) -> Part:
    """Where the matrix of that name lies."""
    return "embedding" if matrix == EMBEDDING else "vision" if matrix.startswith("visual.") else "decoder"


def precision_of(schemes: Mapping[str, Scheme]) -> layout.Precision:
    """A part is what its smallest matrix is."""
    kinds: dict[Part, layout.Kind] = dict.fromkeys(PARTS, "fp32")
    for name, scheme in schemes.items():
        if scheme != "fp32" and kinds[part_of(name)] != "int4":
            kinds[part_of(name)] = "int4" if BITS.get(scheme) == 4 else "int8"
    return layout.Precision(**kinds)


def files_of(part: Part, engines: Sequence[Format]) -> tuple[str, ...]:
    """The files that hold `part`, by their paths in the bundle."""
    if part == "embedding":
        return (layout.EMBED_FILE,)
    return tuple(name for engine in engines for name in layout.ENGINE_FILES[engine] if Path(name).stem == part)


def write_part(
    folder: Path,
    part: Part,
    checkpoint: Checkpoint,
    facts: Facts,
    schemes: Mapping[str, Scheme],
    engines: Sequence[Format],
) -> None:
    """Write the files of `part` below `folder`, in place of those that are there. OSError when it cannot."""
    for name in files_of(part, engines):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).unlink(missing_ok=True)  # a process that has the old one mapped keeps it
    if part == "embedding":
        _write_embedding(folder / layout.EMBED_FILE, checkpoint, schemes[EMBEDDING])
        return
    for engine in engines:
        if engine == "onnx":
            _write_onnx(folder, part, checkpoint, facts, schemes)
        else:
            _write_openvino(folder, part, checkpoint, facts, schemes)


def _write_onnx(folder: Path, part: Part, checkpoint: Checkpoint, facts: Facts, schemes: Mapping[str, Scheme]) -> None:
    with GraphWriter(folder / files_of(part, ["onnx"])[0]) as graph:
        if part == "vision":
            write_vision(graph, facts.vision, checkpoint, schemes)
        else:
            write_decoder(graph, facts.text, checkpoint, schemes, tied_head=checkpoint.tied_head)


def _write_openvino(
    folder: Path, part: Part, checkpoint: Checkpoint, facts: Facts, schemes: Mapping[str, Scheme]
) -> None:
    file = folder / files_of(part, ["openvino"])[0]
    if part == "vision":
        openvino_vision.write_vision(file, facts.vision, checkpoint, schemes)
    else:
        openvino_decoder.write_decoder(file, facts.text, checkpoint, schemes, tied_head=checkpoint.tied_head)


def _write_embedding(file: Path, checkpoint: Checkpoint, scheme: Scheme) -> None:
    table = checkpoint.read(f"{EMBEDDING}.weight")
    with file.open("wb") as stream:
        if scheme == "fp32":
            stream.write(table.data)
        else:
            for values in quantize.rows(table):
                stream.write(values.data)
