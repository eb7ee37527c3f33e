"""The graph contract as data: inputs and outputs by name, axes and dtype. The exporter writes what it says and the
runtime feeds what it says; dtypes have numpy's names.

vision
    One still image per run. Patch rows are in merge-block order: the merge x merge patches that become one token are
    neighbours. `cos` and `sin` are the 2-D rotary table, computed by the host.
decoder
    One graph for prefill chunks (B = 1, S = chunk) and for decoding (B = n, S = 1). The host applies the M-RoPE
    sections to `cos` and `sin`; the graph rotates in the rotate-half form. `seqlens_k` is the number of valid tokens of
    each row after this run, minus 1, and `total_sequence_length` the largest of (`seqlens_k` + 1). Each `present_*` is
    the same buffer as its `past_*`, updated in place: the axis `capacity` is room, not length. `logits` are those of
    each row's last position only. A second graph may keep the store as int8, with a scale per head and dimension in it.
    The graph file says in its metadata, under ROW_MULTIPLE, what the number of rows of a batch has to be a multiple of
    for no row to depend on the others.
flat decoder
    The form for OpenVINO: the tokens of all rows lie one after the other in one axis, and `last` has the place of each
    row's last token, which alone reaches the logits. The store is no part of the file: the runtime connects it at the
    nodes of `attention_nodes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from .architecture import TextShape, VisionShape

ROW_MULTIPLE = "row_multiple"
OV_BLOCK_INFO = "activation_block"
"""The entry in an OpenVINO file's runtime info: how many inputs share a scale when activations are quantised for
matrices stored in blocks; 0 when there are none."""

Axis = int | str
Dtype = Literal["float32", "int32", "int8"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One graph input or output. A string in `axes` names a size that the host chooses; () is a scalar."""

    name: str
    axes: tuple[Axis, ...]
    dtype: Dtype


def vision_inputs(shape: VisionShape) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec("patches", ("patches", shape.patch_values), "float32"),
        TensorSpec("cos", ("patches", shape.rotary_width), "float32"),
        TensorSpec("sin", ("patches", shape.rotary_width), "float32"),
    )


def vision_outputs(shape: VisionShape) -> tuple[TensorSpec, ...]:
    """`embeds` has patches / merge**2 rows."""
    return (TensorSpec("embeds", ("tokens", shape.out_width), "float32"),)


def decoder_inputs(shape: TextShape, *, store: Dtype = "float32") -> tuple[TensorSpec, ...]:
    return (
        TensorSpec("embeds", ("batch", "sequence", shape.width), "float32"),
        TensorSpec("cos", ("batch", "sequence", shape.rotary_width), "float32"),
        TensorSpec("sin", ("batch", "sequence", shape.rotary_width), "float32"),
        TensorSpec("seqlens_k", ("batch",), "int32"),
        TensorSpec("total_sequence_length", (), "int32"),
        *_kv_store("past", shape, store),
    )


def decoder_outputs(shape: TextShape, *, store: Dtype = "float32") -> tuple[TensorSpec, ...]:
    return (TensorSpec("logits", ("batch", 1, shape.vocab), "float32"), *_kv_store("present", shape, store))


def flat_decoder_inputs(shape: TextShape) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec("embeds", ("tokens", shape.width), "float32"),
        TensorSpec("cos", ("tokens", shape.rotary_width), "float32"),
        TensorSpec("sin", ("tokens", shape.rotary_width), "float32"),
        TensorSpec("last", ("batch",), "int32"),
    )


def flat_decoder_outputs(shape: TextShape) -> tuple[TensorSpec, ...]:
    return (TensorSpec("logits", ("batch", shape.vocab), "float32"),)


class AttentionNodes(NamedTuple):
    """Names of a flat decoder's nodes around one layer's attention: [tokens, heads * head_dim] each, query and key
    rotated."""

    query: str
    key: str
    value: str
    mixed: str


def attention_nodes(layer: int) -> AttentionNodes:
    return AttentionNodes(*(f"model.layers.{layer}.self_attn.{part}" for part in ("query", "key", "value", "mixed")))


def _kv_store(side: str, shape: TextShape, store: Dtype) -> tuple[TensorSpec, ...]:
    axes: tuple[Axis, ...] = ("batch", shape.kv_heads, "capacity", shape.head_dim)
    names = (f"{side}_{kind}_{layer}" for layer in range(shape.layers) for kind in ("key", "value"))
    return tuple(TensorSpec(name, axes, store) for name in names)
