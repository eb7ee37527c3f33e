"""Small bundles with made-up weights: right in everything that `models` checks, and nothing an engine could run."""

from __future__ import annotations

from pathlib import Path

from mineru_edge.models.architecture import ChatTemplate, Preprocessing, SpecialIds, TextShape, VisionShape
from mineru_edge.models.bundle import (
    EMBED_FILE,
    ENGINE_FILES,
    TOKENIZER_FILE,
    Bundle,
    Precision,
    embed_bytes,
    measure_files,
)

VISION = VisionShape(depth=2, width=64, heads=4, mlp_width=128, patch=14, merge=2, temporal=2, channels=3, out_width=32)
TEXT = TextShape(
    layers=2,
    width=32,
    heads=4,
    kv_heads=2,
    head_dim=16,
    mlp_width=64,
    vocab=40,
    rope_theta=1e6,
    mrope_sections=(2, 3, 3),
    norm_eps=1e-6,
    max_positions=512,
)
PREPROCESSING = Preprocessing(
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
    rescale=1 / 255,
    min_pixels=784,
    max_pixels=78400,
    layout_size=(336, 336),
)
SPECIAL = SpecialIds(
    image_pad=30, vision_start=31, vision_end=32, eos=(33, 34), layout=(("<|box_start|>", 35), ("<|box_end|>", 36))
)
CHAT = ChatTemplate(before_image="user\n<s>", after_image="</s>", end="\nassistant\n", before_text="user\n")


def write_bundle(folder: Path) -> Bundle:
    """A complete bundle in `folder`, saved."""
    precision = Precision(vision="int8", decoder="int8", embedding="int8")
    contents = {name: f"content of {name}".encode() for name in (TOKENIZER_FILE, *ENGINE_FILES["onnx"])}
    contents[EMBED_FILE] = bytes(embed_bytes(TEXT, precision.embedding))
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    bundle = Bundle(
        path=folder,
        model_name="made-up",
        source="tests/bundles.py",
        vision=VISION,
        text=TEXT,
        preprocessing=PREPROCESSING,
        special=SPECIAL,
        chat=CHAT,
        precision=precision,
        engines=("onnx",),
        files=measure_files(folder),
        tools=(("mineru-edge", "0.1.0"),),
    )
    bundle.save()
    return bundle
