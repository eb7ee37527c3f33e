"""What both vision graphs know of the architecture beside its shape."""

from __future__ import annotations

from mineru_edge.models.architecture import VisionShape

from .onnx_nodes import Floats, Weights

NORM_EPS = 1e-6  # these two are not in the config: constants of the architecture
QUICK_GELU = 1.702


def patch_kernel(shape: VisionShape, weights: Weights) -> Floats:
    """The patch embedding f32 [width, patch_values] for a still image.

    That is the same frame `temporal` times, so the kernels of the frames add up: [width, channels, frame, y, x].
    """
    kernel: Floats = weights.read("visual.patch_embed.proj.weight").sum(axis=2)
    return kernel.reshape(shape.width, shape.patch_values)
