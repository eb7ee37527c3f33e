"""How each weight matrix is stored and multiplied, as data: `{matrix name: scheme}`.

A matrix is named after its tensor in the checkpoint without `.weight`; packed ones are `qkv_proj` and `gate_up_proj`.
Why each default was chosen is in `NOTES.md`. To promote a sensitive matrix, override its entry: nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from mineru_edge.models.architecture import TextShape, VisionShape

Scheme = Literal["fp32", "w8a8_token", "nbits8_block128", "nbits8_block32", "nbits4_block32", "int8_row"]
"""How a matrix is stored, and what its product costs:

fp32             f32 weights, f32 product: the reference; exact to rounding
w8a8_token       int8 weights, one scale per output; activations to 8 bits with one scale per row; fastest on many rows
nbits8_block128  int8 weights, one scale per 128 inputs of an output; fastest on one row
nbits8_block32   the same with a scale per 32 inputs: for a matrix that loses too much with 128
nbits4_block32   4-bit weights, a scale per 32 inputs: 0.62 bytes per weight, and a loss that has to be looked at
int8_row         int8 rows with a scale each, read on the host: the embedding table only
"""

BLOCKS: dict[Scheme, int] = {"nbits8_block128": 128, "nbits8_block32": 32, "nbits4_block32": 32}
"""Inputs per scale of the block schemes."""

BITS: dict[Scheme, int] = {"nbits8_block128": 8, "nbits8_block32": 8, "nbits4_block32": 4}
"""Bits per weight of the block schemes."""

Precision = Literal["int8", "fp32"]

Decoder = Literal["int8", "w8a8", "int4"]
"""How the decoder of an int8 bundle is stored:

int8  8 bits in blocks: the closest to the reference, as fast as memory on one row
w8a8  8 bits with one scale per output, activations with one per row: fastest in prefill and with many slots
int4  4 bits in blocks and an 8-bit head: the fewest bytes per token
"""

EMBEDDING = "model.embed_tokens"
HEAD = "lm_head"

_PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}

# What can serve where, from the cheapest to the exact one.
_VISION: tuple[Scheme, ...] = ("w8a8_token", "fp32")  # its session runs without pre-packing, which ruins MatMulNBits
_DECODER: tuple[Scheme, ...] = ("nbits4_block32", "w8a8_token", "nbits8_block128", "nbits8_block32", "fp32")
_EMBEDDING: tuple[Scheme, ...] = ("int8_row", "fp32")


def vision_matrices(shape: VisionShape) -> list[str]:
    """Names of the vision graph's matrices, in graph order."""
    block = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    blocks = [f"visual.blocks.{i}.{name}" for i in range(shape.depth) for name in block]
    return ["visual.patch_embed.proj", *blocks, "visual.merger.mlp.0", "visual.merger.mlp.2"]


def decoder_matrices(shape: TextShape) -> list[str]:
    """Names of the decoder graph's matrices, in graph order; the head is the last."""
    layer = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
    return [*(f"model.layers.{i}.{name}" for i in range(shape.layers) for name in layer), HEAD]


def packed_parts(matrix: str) -> list[str]:
    """The matrices of the checkpoint that are stacked in the one of that name: itself alone, unless it is packed."""
    folder, _, name = matrix.rpartition(".")
    return [f"{folder}.{part}" for part in _PACKED[name]] if name in _PACKED else [matrix]


def allowed(matrix: str) -> tuple[Scheme, ...]:
    """The schemes that can serve the matrix of that name, from the cheapest to the exact one."""
    return _VISION if matrix.startswith("visual.") else _EMBEDDING if matrix == EMBEDDING else _DECODER


def row_multiple(schemes: Mapping[str, Scheme]) -> int:
    """A batch of so many rows or a multiple gives each row what it gets alone, to the last bit (see NOTES.md)."""
    return 2 if "nbits8_block128" in schemes.values() else 1


def choose(
    vision: VisionShape,
    text: TextShape,
    precision: Precision,
    overrides: Mapping[str, Scheme] | None = None,
    *,
    decoder: Decoder = "int8",
) -> dict[str, Scheme]:
    """The scheme of every matrix. `overrides` must name matrices of this model and schemes that can serve there.

    `decoder` is how the decoder is stored when the precision is int8.
    """
    assert precision in get_args(Precision), precision
    assert decoder in get_args(Decoder), decoder
    exact = precision == "fp32"
    # Blocks of 128 would pad a narrow model's rows by a third; in blocks of 32 a row also never depends on their count.
    block: Scheme = "nbits8_block32" if text.width % 128 else "nbits8_block128"
    chosen: dict[str, Scheme] = dict.fromkeys(vision_matrices(vision), "fp32" if exact else "w8a8_token")
    chosen["visual.patch_embed.proj"] = "fp32"  # 588 inputs, 0.1 % of the weights, and everything hangs on it
    *body, head = decoder_matrices(text)
    of_decoder: dict[Decoder, tuple[Scheme, Scheme]] = {
        "int8": (block, block),
        "w8a8": ("w8a8_token", "w8a8_token"),
        "int4": ("nbits4_block32", block),
    }
    schemes: tuple[Scheme, Scheme] = ("fp32", "fp32") if exact else of_decoder[decoder]
    chosen.update({**dict.fromkeys(body, schemes[0]), head: schemes[1]})
    chosen[EMBEDDING] = "fp32" if exact else "int8_row"
    for name, scheme in (overrides or {}).items():
        assert name in chosen, f"no matrix is called {name}"
        assert scheme in allowed(name), f"{name} cannot be {scheme}"
        chosen[name] = scheme
    return chosen
