"""The vision graph: the patches of one still image become one embedding per token.

Shapes in comments: N patches, D width. There is no mask and no bias input at the attention: with either, the engine
writes out all scores, 1.9 GB for a page of 5476 patches.
"""

from __future__ import annotations

from collections.abc import Mapping

from mineru_edge.models.architecture import VisionShape
from mineru_edge.models.tensors import vision_inputs, vision_outputs

from .onnx_nodes import Matrices, Weights, layer_norm
from .onnx_writer import GraphWriter
from .schemes import Scheme
from .vision_facts import NORM_EPS, QUICK_GELU, patch_kernel


def write_vision(graph: GraphWriter, shape: VisionShape, weights: Weights, schemes: Mapping[str, Scheme]) -> None:
    """Add all nodes, and save. The graph's inputs and outputs are those of `models.tensors`."""
    matrices = Matrices(graph, schemes, may_pack=False)  # `mineru-edge prepare` packs, and may change no answer

    def dense(name: str, x: str, output: str | None = None) -> str:
        matrix, bias = weights.read(f"{name}.weight"), weights.read(f"{name}.bias")
        return matrices.product(name, x, matrix, bias, output=output)

    hidden = matrices.product("visual.patch_embed.proj", "patches", patch_kernel(shape, weights))
    cos = graph.node("Unsqueeze", ["cos", graph.constant([0], "int64")], "cos.row")
    sin = graph.node("Unsqueeze", ["sin", graph.constant([0], "int64")], "sin.row")
    for index in range(shape.depth):
        block = f"visual.blocks.{index}"
        x = layer_norm(graph, f"{block}.norm1", hidden, weights, NORM_EPS)
        x = _attention(graph, shape, f"{block}.attn", dense(f"{block}.attn.qkv", x), cos, sin)
        hidden = graph.node("Add", [hidden, dense(f"{block}.attn.proj", x)], f"{block}.attended")
        x = layer_norm(graph, f"{block}.norm2", hidden, weights, NORM_EPS)
        x = dense(f"{block}.mlp.fc1", x)
        x = graph.node("QuickGelu", [x], f"{block}.mlp.act", contrib=True, alpha=QUICK_GELU)
        hidden = graph.node("Add", [hidden, dense(f"{block}.mlp.fc2", x)], f"{block}.out")

    x = layer_norm(graph, "visual.merger.ln_q", hidden, weights, NORM_EPS)
    # Merge-block order makes the patches of a token neighbours, so merging is a reshape.
    wide = graph.constant([-1, shape.width * shape.merge**2], "int64")
    x = graph.node("Reshape", [x, wide], "visual.merger.rows")
    x = dense("visual.merger.mlp.0", x)
    x = graph.node("Gelu", [x], "visual.merger.act", approximate="none")
    dense("visual.merger.mlp.2", x, vision_outputs(shape)[0].name)
    graph.save(vision_inputs(shape), vision_outputs(shape))


def _attention(graph: GraphWriter, shape: VisionShape, name: str, qkv: str, cos: str, sin: str) -> str:
    """qkv [N, 3D] -> [N, D]: every patch attends to every patch."""
    row = graph.constant([0], "int64")
    x = graph.node("Unsqueeze", [qkv, row], f"{name}.qkv.row")
    sizes = graph.constant([shape.width] * 3, "int64")
    q, k, v = graph.nodes("Split", [x, sizes], [f"{name}.q", f"{name}.k", f"{name}.v"], axis=-1)
    q = graph.node("RotaryEmbedding", [q, cos, sin], f"{name}.q.rotated", num_heads=shape.heads)
    k = graph.node("RotaryEmbedding", [k, cos, sin], f"{name}.k.rotated", num_heads=shape.heads)
    x = graph.node("MultiHeadAttention", [q, k, v], f"{name}.mixed", contrib=True, num_heads=shape.heads)
    return graph.node("Squeeze", [x, row], f"{name}.rows")
