"""The vision graph for OpenVINO: the patches of one still image become one embedding per token.

The same mathematics as `onnx_vision.py`. Shapes in comments: N patches, D width, H heads. No mask at the attention, so
that the engine never has to write out its scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from openvino import opset13 as ops

from mineru_edge.models.architecture import VisionShape
from mineru_edge.models.tensors import vision_inputs, vision_outputs

from .onnx_nodes import Weights
from .openvino_nodes import Graph, Node, constant, rotated
from .schemes import Scheme
from .vision_facts import NORM_EPS, QUICK_GELU, patch_kernel


def write_vision(file: Path, shape: VisionShape, weights: Weights, schemes: Mapping[str, Scheme]) -> None:
    """Write the graph to `file`. Its inputs and outputs are those of `models.tensors`."""
    graph = Graph(vision_inputs(shape), weights, schemes)

    def dense(name: str, x: Node) -> Node:
        return graph.product(name, x, graph.read(f"{name}.weight"), graph.read(f"{name}.bias"))

    hidden = graph.product("visual.patch_embed.proj", graph.input("patches"), patch_kernel(shape, weights))
    cos, sin = (_for_heads(graph.input(name)) for name in ("cos", "sin"))
    for index in range(shape.depth):
        block = f"visual.blocks.{index}"
        x = graph.layer_norm(f"{block}.norm1", hidden, NORM_EPS)
        x = _attention(shape, f"{block}.attn", dense(f"{block}.attn.qkv", x), cos, sin)
        hidden = ops.add(hidden, dense(f"{block}.attn.proj", x), name=f"{block}.attended")
        x = dense(f"{block}.mlp.fc1", graph.layer_norm(f"{block}.norm2", hidden, NORM_EPS))
        x = ops.swish(x, constant(QUICK_GELU, np.float32))
        hidden = ops.add(hidden, dense(f"{block}.mlp.fc2", x), name=f"{block}.out")

    x = graph.layer_norm("visual.merger.ln_q", hidden, NORM_EPS)
    # Merge-block order makes the patches of a token neighbours, so merging is a reshape.
    x = ops.reshape(x, constant([-1, shape.width * shape.merge**2], np.int64), special_zero=False)
    x = ops.gelu(dense("visual.merger.mlp.0", x), "ERF")
    graph.save(file, dense("visual.merger.mlp.2", x), vision_outputs(shape)[0])


def _for_heads(angles: Node) -> Node:
    """[N, head_dim / 2] -> [1, 1, N, head_dim]: every head of every patch turns its two halves by the same angles."""
    return ops.unsqueeze(ops.concat([angles, angles], -1), constant([0, 1], np.int64))


def _attention(shape: VisionShape, name: str, qkv: Node, cos: Node, sin: Node) -> Node:
    """qkv [N, 3D] -> [N, D]: every patch attends to every patch."""
    x = ops.reshape(qkv, constant([-1, 3, shape.heads, shape.head_dim], np.int64), special_zero=False)
    x = ops.transpose(x, constant([1, 2, 0, 3], np.int64))  # [3, H, N, head_dim]
    q, k, v = ops.split(x, constant(0, np.int64), 3).outputs()  # [1, H, N, head_dim]
    q, k = (rotated(each, cos, sin, shape.head_dim) for each in (q, k))
    x = ops.scaled_dot_product_attention(q, k, v, name=f"{name}.mixed")
    x = ops.transpose(x, constant([0, 2, 1, 3], np.int64))
    return ops.reshape(x, constant([-1, shape.width], np.int64), special_zero=False)
