"""What each engine holds in memory: weights at rest and at work, and the heap of one run.

Measured at MinerU2.5's size with onnxruntime 1.32 and openvino 2026.4 on x86-64 Linux.
"""

from __future__ import annotations

from typing import NamedTuple

from mineru_edge.models.architecture import TextShape, VisionShape
from mineru_edge.models.bundle import (
    DECODER_DATA_FILE,
    OV_DECODER_DATA_FILE,
    OV_VISION_DATA_FILE,
    VISION_DATA_FILE,
    Bundle,
)

from .engines import EngineName, Engines

ORT_PACKED_PER_BYTE = 1.07  # decoder weights in the engine's own layout
ORT_SWEPT_SHARE = 0.25  # of vision's mapped weights that are resident at once, see mapped.py
OV_PACKED_PER_BYTE = 1.1  # of either graph
OV_LIBRARY_BYTES = 120_000_000  # beside onnxruntime's, which is imported or not
OV_OPEN_BYTES = 60_000_000  # a compiled graph without its weights


class Weights(NamedTuple):
    """Resident bytes: all the time, and besides while vision runs or while the decoder does."""

    kept: int
    seeing: int
    decoding: int


def weights_of(
    bundle: Bundle, engines: Engines, *, packed_is_mapped: bool, droppable: bool, vision_is_copied: bool = False
) -> Weights:
    """`packed_is_mapped` says that the decoder's weights were prepared, `droppable` that the system takes mapped pages
    back, `vision_is_copied` that onnxruntime writes vision's anew onto the heap."""
    sizes = {entry.path: entry.bytes for entry in bundle.files}
    kept = seeing = decoding = 0
    if engines.vision.engine == "openvino":
        kept += int(sizes[OV_VISION_DATA_FILE] * OV_PACKED_PER_BYTE) + OV_OPEN_BYTES
    elif droppable and not vision_is_copied:
        seeing = int(sizes[VISION_DATA_FILE] * ORT_SWEPT_SHARE)
    else:
        kept += sizes[VISION_DATA_FILE]
    if engines.decoder.engine == "openvino":
        kept += int(sizes[OV_DECODER_DATA_FILE] * OV_PACKED_PER_BYTE) + OV_OPEN_BYTES
    elif packed_is_mapped and droppable:
        decoding = int(sizes[DECODER_DATA_FILE] * ORT_PACKED_PER_BYTE)
    else:
        kept += int(sizes[DECODER_DATA_FILE] * ORT_PACKED_PER_BYTE)
    return Weights(kept, seeing, decoding)


def library_bytes(engines: Engines) -> int:
    """What is in memory because OpenVINO is."""
    choices = engines.vision, engines.decoder
    return OV_LIBRARY_BYTES if any(choice.tested or choice.engine == "openvino" for choice in choices) else 0


def vision_bytes(vision: VisionShape, patches: int, engine: EngineName = "onnxruntime") -> int:
    """Heap of one vision run. In onnxruntime an MLP stands at its worst node before and after a step, next to about
    five rows of model width that the arena holds: counted 382 MB for 5476 patches of MinerU2.5, measured 369 MB in
    INT8. OpenVINO reuses less over shapes it does not know: twice that."""
    host = vision.patch_values + 4 * (vision.patch_values + 2 * vision.rotary_width)  # bytes and f32 values
    rows = (4, 8) if engine == "openvino" else (2, 5)
    return patches * (host + 4 * (rows[0] * vision.mlp_width + rows[1] * vision.width))


def prefill_bytes(text: TextShape, tokens: int) -> int:
    """Heap of one prefill chunk, at the gate of an MLP; counted 59 MB for 512 tokens of MinerU2.5, measured 61 MB."""
    return tokens * 4 * (5 * text.width + 5 * text.mlp_width)
