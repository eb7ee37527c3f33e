"""Vision with bf16 attention: near the f32 one, however large a part all keys have in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_checkpoint import TinyShape, random_weights, write_checkpoint, write_weights

from mineru_edge.export.exporter import export
from mineru_edge.runtime.ov import OvVision

PATCHES = 64


@pytest.mark.parametrize("common", [0.0, 30.0])
def test_what_all_keys_have_in_common_is_not_rounded(tmp_path: Path, common: float) -> None:
    """It adds the same to all scores of a query. Rounded with the rest it would cover what tells the keys apart."""
    checkpoint, shape = write_checkpoint(tmp_path / "checkpoint"), TinyShape()
    weights = dict(random_weights(shape, seed=0, tied=True))
    keys = slice(shape.vision_width, 2 * shape.vision_width)
    for block in range(shape.vision_depth):
        weights[f"visual.blocks.{block}.attn.qkv.bias"][keys] += common
    write_weights(checkpoint, weights)
    bundle = export(checkpoint, tmp_path / "bundle", precision="fp32", format="openvino")

    random = np.random.default_rng(0)
    patches = random.standard_normal((PATCHES, bundle.vision.patch_values), np.float32)
    angles = random.uniform(0, 0.1, (PATCHES, bundle.vision.rotary_width)).astype(np.float32)
    exact, rounded = (
        OvVision(bundle, threads=1, bf16=bf16).run(patches, np.cos(angles), np.sin(angles)) for bf16 in (False, True)
    )
    assert np.linalg.norm(rounded - exact) < 0.005 * np.linalg.norm(exact)
