"""The decoder graph for OpenVINO: the tokens of one or several sequences, one after the other, become logits.

The same mathematics as `onnx_decoder.py`. Tokens of all sequences lie in one axis, so one graph serves prefill chunks,
decoding and batches of unequal length. Shapes in comments: T tokens, H heads, K key-value heads, D head_dim.

The file holds standard operations alone: its attention lets the tokens of one run see each other, causally, as if
there was one sequence and nothing before it. `runtime/ov.py` puts the engine's paged attention over the key-value
store in its place; that operation belongs to one release of the engine and cannot be written to a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from openvino import opset13 as ops

from mineru_edge.models.architecture import TextShape
from mineru_edge.models.tensors import attention_nodes, flat_decoder_inputs, flat_decoder_outputs

from .onnx_nodes import Weights
from .openvino_nodes import Graph, Node, constant
from .schemes import EMBEDDING, HEAD, Scheme, packed_parts


def write_decoder(
    file: Path, shape: TextShape, weights: Weights, schemes: Mapping[str, Scheme], *, tied_head: bool
) -> None:
    """Write the graph to `file`. With `tied_head` the head is the embedding table."""
    graph = Graph(flat_decoder_inputs(shape), weights, schemes)

    def stacked(name: str, x: Node, *, bias: bool = False) -> Node:
        parts = packed_parts(name)
        matrix = np.concatenate([weights.read(f"{part}.weight") for part in parts])
        shift = np.concatenate([weights.read(f"{part}.bias") for part in parts]) if bias else None
        return graph.product(name, x, matrix, shift)

    cos, sin = (_for_heads(graph.input(name)) for name in ("cos", "sin"))
    hidden = graph.input("embeds")
    for index in range(shape.layers):
        layer = f"model.layers.{index}"
        attention = f"{layer}.self_attn"
        x = graph.rms_norm(f"{layer}.input_layernorm", hidden, shape.norm_eps)
        qkv = stacked(f"{attention}.qkv_proj", x, bias=True)
        x = _attention(shape, index, qkv, cos, sin)
        if index == shape.layers - 1:  # of the other tokens only keys and values are needed, and those are stored
            x, hidden = (ops.gather(each, graph.input("last"), constant(0, np.int64)) for each in (x, hidden))
        hidden = ops.add(hidden, stacked(f"{attention}.o_proj", x))
        x = graph.rms_norm(f"{layer}.post_attention_layernorm", hidden, shape.norm_eps)
        x = stacked(f"{layer}.mlp.gate_up_proj", x)
        gate, up = ops.split(x, constant(-1, np.int64), 2).outputs()
        x = ops.multiply(ops.swish(gate), up, name=f"{layer}.mlp.gated")
        hidden = ops.add(hidden, stacked(f"{layer}.mlp.down_proj", x))

    x = graph.rms_norm("model.norm", hidden, shape.norm_eps)
    head = EMBEDDING if tied_head else HEAD
    logits = graph.product(HEAD, x, weights.read(f"{head}.weight"))
    graph.save(file, logits, flat_decoder_outputs(shape)[0])


def _for_heads(angles: Node) -> Node:
    """[T, D / 2] -> [T, 1, 1, D]: every head turns its two halves by the same angles."""
    return ops.unsqueeze(ops.concat([angles, angles], -1), constant([1, 2], np.int64))


def _attention(shape: TextShape, index: int, qkv: Node, cos: Node, sin: Node) -> Node:
    """qkv [T, (H + 2K) D] -> [T, H D]. The four nodes that the runtime looks for get their names here."""
    names = attention_nodes(index)
    sizes = [count * shape.head_dim for count in (shape.heads, shape.kv_heads, shape.kv_heads)]
    q, k, v = ops.variadic_split(qkv, constant(-1, np.int64), constant(sizes, np.int64)).outputs()

    def turned(x: Node, count: int, name: str) -> Node:
        x = ops.reshape(x, constant([-1, count, 1, shape.head_dim], np.int64), special_zero=False)
        return _flat(_rotated(x, cos, sin, shape.head_dim), count * shape.head_dim, name)

    q, k = turned(q, shape.heads, names.query), turned(k, shape.kv_heads, names.key)
    v = _flat(v, shape.kv_heads * shape.head_dim, names.value)
    group = shape.heads // shape.kv_heads
    x = ops.scaled_dot_product_attention(
        _heads_first(q, shape.heads, shape.head_dim),
        _shared(_heads_first(k, shape.kv_heads, shape.head_dim), group),
        _shared(_heads_first(v, shape.kv_heads, shape.head_dim), group),
        causal=True,
    )
    x = ops.transpose(x, constant([0, 2, 1, 3], np.int64))
    return _flat(x, shape.heads * shape.head_dim, names.mixed)


def _rotated(x: Node, cos: Node, sin: Node, head_dim: int) -> Node:
    """Rotate-half: x [T, heads, 1, D] with cos and sin that broadcast to it, each angle twice.

    With four axes and its halves from a VariadicSplit the plugin runs it as one operation.
    """
    halves = constant([head_dim // 2, head_dim // 2], np.int64)
    left, right = ops.variadic_split(x, constant(3, np.int64), halves).outputs()
    turned = ops.concat([ops.multiply(right, constant(-1, np.float32)), left], -1)
    return ops.add(ops.multiply(x, cos), ops.multiply(turned, sin))


def _flat(x: Node, width: int, name: str) -> Node:
    return ops.reshape(x, constant([-1, width], np.int64), special_zero=False, name=name)


def _heads_first(x: Node, count: int, head_dim: int) -> Node:
    """[T, count * D] -> [1, count, T, D]."""
    x = ops.reshape(x, constant([1, -1, count, head_dim], np.int64), special_zero=False)
    return ops.transpose(x, constant([0, 2, 1, 3], np.int64))


def _shared(x: Node, group: int) -> Node:
    """[1, K, T, D] -> [1, K * group, T, D]: each key-value head serves `group` query heads."""
    heads = np.arange(int(x.get_output_partial_shape(0)[1].get_length()) * group) // group
    return ops.gather(x, constant(heads, np.int64), constant(1, np.int64))
