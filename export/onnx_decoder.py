"""The decoder graph: one for prefill chunks, for decoding and for batches of rows of different length.

The key-value store is an input and, in place, an output. Only the last position of each row reaches the vocabulary:
the logits of all positions of a page's prefill would be 832 MB.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mineru_edge.models.architecture import TextShape
from mineru_edge.models.tensors import ROW_MULTIPLE, decoder_inputs, decoder_outputs

from .onnx_nodes import Matrices, Weights
from .onnx_writer import GraphWriter
from .schemes import EMBEDDING, HEAD, Scheme, decoder_matrices, packed_parts, row_multiple


def write_decoder(
    graph: GraphWriter, shape: TextShape, weights: Weights, schemes: Mapping[str, Scheme], *, tied_head: bool
) -> None:
    """Add all nodes, and save. With `tied_head` the head is the embedding table."""
    matrices = Matrices(graph, schemes)

    def dense(name: str, x: str, *, bias: bool = False) -> list[str]:
        """The products of x with the parts of `name`, which share its scheme."""
        parts = packed_parts(name)
        return matrices.products(
            name, x, {p: (weights.read(f"{p}.weight"), weights.read(f"{p}.bias") if bias else None) for p in parts}
        )

    def normed(name: str, x: str, skip: str | None) -> tuple[str, str]:
        """RMS norm of x + skip; also gives the sum, which is the residual stream."""
        scale = graph.weight(f"{name}.weight", weights.read(f"{name}.weight"))
        if skip is None:
            graph.node("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=shape.norm_eps, stash_type=1)
            return name, x
        outputs = [name, "", "", f"{name}.sum"]
        graph.nodes("SkipSimplifiedLayerNormalization", [x, skip, scale], outputs, contrib=True, epsilon=shape.norm_eps)
        return name, f"{name}.sum"

    hidden, skip = "embeds", None
    for index in range(shape.layers):
        layer = f"model.layers.{index}"
        attention = f"{layer}.self_attn"
        x, hidden = normed(f"{layer}.input_layernorm", hidden, skip)
        q, k, v = dense(f"{attention}.qkv_proj", x, bias=True)
        x = _attention(graph, shape, attention, index, q, k, v)
        if index == shape.layers - 1:  # of the other positions only keys and values are needed, and those are stored
            x, hidden = _last(graph, x, f"{attention}.last"), _last(graph, hidden, f"{attention}.last.skip")
        (skip,) = dense(f"{attention}.o_proj", x)
        x, hidden = normed(f"{layer}.post_attention_layernorm", hidden, skip)
        gate, up = dense(f"{layer}.mlp.gate_up_proj", x)
        gate = graph.node("QuickGelu", [gate], f"{layer}.mlp.act", contrib=True, alpha=1.0)  # with alpha 1: SiLU
        x = graph.node("Mul", [gate, up], f"{layer}.mlp.gated")
        (skip,) = dense(f"{layer}.mlp.down_proj", x)

    x, _ = normed("model.norm", hidden, skip)
    head = EMBEDDING if tied_head else HEAD
    matrices.product(HEAD, x, weights.read(f"{head}.weight"), output=decoder_outputs(shape)[0].name)
    graph.facts[ROW_MULTIPLE] = str(row_multiple({name: schemes[name] for name in decoder_matrices(shape)}))
    graph.save(decoder_inputs(shape), decoder_outputs(shape))


def _attention(graph: GraphWriter, shape: TextShape, name: str, index: int, q: str, k: str, v: str) -> str:
    """q [B, S, heads * head_dim], k and v with kv_heads -> as q; writes the new rows of the store."""
    q = graph.node("RotaryEmbedding", [q, "cos", "sin"], f"{name}.q.rotated", num_heads=shape.heads)
    k = graph.node("RotaryEmbedding", [k, "cos", "sin"], f"{name}.k.rotated", num_heads=shape.kv_heads)
    store = [f"past_key_{index}", f"past_value_{index}"]
    lengths = ["seqlens_k", "total_sequence_length"]
    outputs = [f"{name}.mixed", f"present_key_{index}", f"present_value_{index}"]
    facts = {"num_heads": shape.heads, "kv_num_heads": shape.kv_heads, "do_rotary": 0}
    return graph.nodes("GroupQueryAttention", [q, k, v, *store, *lengths], outputs, contrib=True, **facts)[0]


def _last(graph: GraphWriter, x: str, name: str) -> str:
    """[B, S, width] -> [B, 1, width]."""
    start, end, axis = (graph.constant([n], "int64") for n in (-1, np.iinfo(np.int64).max, 1))
    return graph.node("Slice", [x, start, end, axis], name)
