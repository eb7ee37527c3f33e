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
from .openvino_nodes import Graph, Node, constant
from .schemes import Scheme
from .vision_facts import NORM_EPS, QUICK_GELU, patch_kernel


def write_vision(file: Path, shape: VisionShape, weights: Weights, schemes: Mapping[str, Scheme]) -> None:
    """Write the graph to `file`. Its inputs and outputs are those of `models.tensors`."""
    graph = Graph(vision_inputs(shape), weights, schemes)

    def dense(name: str, x: Node) -> Node:
        return graph.product(name, x, graph.read(f"{name}.weight"), graph.read(f"{name}.bias"))

    hidden = graph.product("visual.patch_embed.proj", graph.input("patches"), patch_kernel(shape, weights))
    cos, sin = graph.input("cos"), graph.input("sin")
    # Every head of a patch turns its two halves by the same angles, [N, head_dim]; the sign of rotate-half is in sin.
    cos, sin = ops.concat([cos, cos], -1), ops.concat([ops.multiply(sin, constant(-1, np.float32)), sin], -1)
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


def _attention(shape: VisionShape, name: str, qkv: Node, cos: Node, sin: Node) -> Node:
    """qkv [N, 3D] -> [N, D]: every patch attends to every patch."""
    x = ops.reshape(qkv, constant([-1, 3, shape.heads, shape.head_dim], np.int64), special_zero=False)
    x = ops.transpose(x, constant([1, 2, 0, 3], np.int64))  # [3, H, N, head_dim]
    q, k, v = ops.split(x, constant(0, np.int64), 3).outputs()  # [1, H, N, head_dim]
    x = ops.scaled_dot_product_attention(_rotated(q, cos, sin), _rotated(k, cos, sin), v, name=f"{name}.mixed")
    x = ops.transpose(x, constant([0, 2, 1, 3], np.int64))
    return ops.reshape(x, constant([-1, shape.width], np.int64), special_zero=False)


def _rotated(x: Node, cos: Node, sin: Node) -> Node:
    """x [1, H, N, head_dim], the sign of the first half in `sin`. Not the form that the plugin runs as one operation:
    that takes 3 % less time, and 290 MB more memory at 5476 patches (see NOTES.md)."""
    left, right = ops.split(x, constant(-1, np.int64), 2).outputs()
    return ops.add(ops.multiply(x, cos), ops.multiply(ops.concat([right, left], -1), sin))
