"""Writes a small checkpoint of the true architecture with random weights: numpy and tokenizers, no torch.

    from tiny_checkpoint import write_checkpoint
    write_checkpoint(tmp_path / "checkpoint")

The default has every odd size the exporter must cope with: widths that are no multiple of 128, grouped key-value heads,
three unequal rotary sections. `weights` says what the tensors hold, so that a test can damage or rename them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<|ref_start|>", "<|ref_end|>", "<|md_start|>", "<|md_end|>", "<ched>", "<ecel>",
    "<fcel>", "<lcel>", "<ucel>", "<xcel>", "<nl>", "<|rotate_up|>", "<|rotate_down|>", "<|rotate_left|>",
    "<|rotate_right|>", "<|txt_contd|>", "<|paratext|>",
)  # fmt: skip
"""MinerU2.5's, in its order; here they follow the 256 bytes."""

FIRST_SPECIAL = 256
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Sizes of the written model; the defaults keep a test under a second."""

    vision_depth: int = 2
    vision_width: int = 160
    vision_heads: int = 4
    layers: int = 2
    width: int = 192
    heads: int = 6
    kv_heads: int = 2
    mlp_width: int = 384
    sections: tuple[int, int, int] = (4, 6, 6)
    vocab: int = 320
    layout_size: tuple[int, int] | None = (112, 112)


def write_checkpoint(
    path: Path, shape: TinyShape | None = None, *, seed: int = 0, dtype: str = "F32", shards: int = 1,
    newer_names: bool = False, tied: bool = True, drop: tuple[str, ...] = (), tokens: tuple[str, ...] = SPECIAL_TOKENS,
    config: Mapping[str, Any] | None = None,
) -> Path:  # fmt: skip
    """Write a whole checkpoint directory and return it.

    `drop` leaves tensors out by published name, `tokens` replaces the special tokens, `config` overrides entries of
    config.json, `newer_names` uses `model.visual.*` and `model.language_model.*`, `dtype` is F32, F16 or BF16.
    """
    shape = shape or TinyShape()
    path.mkdir(parents=True)
    weights = {name: array for name, array in random_weights(shape, seed=seed, tied=tied) if name not in drop}
    if newer_names:
        weights = {_newer(name): array for name, array in weights.items()}
    write_weights(path, weights, dtype=dtype, shards=shards)
    write_tokenizer(path, tokens)
    ids = {token: FIRST_SPECIAL + i for i, token in enumerate(SPECIAL_TOKENS)}
    _write(
        path,
        "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "chat_template": TEMPLATE,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
        },
    )
    _write(
        path,
        "generation_config.json",
        {
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "pad_token_id": ids["<|endoftext|>"],
            "do_sample": False,
        },
    )
    extra = {"mineru_edge": {"layout_size": list(shape.layout_size)}} if shape.layout_size else {}
    _write(
        path,
        "preprocessor_config.json",
        {
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "image_processor_type": "Qwen2VLImageProcessor",
            "min_pixels": 3136,
            "max_pixels": 1605632,
            "merge_size": 2,
            "patch_size": 14,
            "temporal_patch_size": 2,
            "resample": 3,
            "rescale_factor": 1 / 255,
            **extra,
        },
    )
    _write(path, "config.json", {
        "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "hidden_act": "silu",
        "eos_token_id": ids["<|im_end|>"], "hidden_size": shape.width, "intermediate_size": shape.mlp_width,
        "max_position_embeddings": 4096, "num_attention_heads": shape.heads, "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": list(shape.sections)}, "use_sliding_window": False,
        "tie_word_embeddings": tied, "vocab_size": shape.vocab, "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"], "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "vision_config": {"depth": shape.vision_depth, "embed_dim": shape.vision_width, "hidden_act": "quick_gelu",
                          "hidden_size": shape.width, "in_channels": 3, "mlp_ratio": 4, "model_type": "qwen2_vl",
                          "num_heads": shape.vision_heads, "patch_size": 14, "spatial_merge_size": 2,
                          "temporal_patch_size": 2},
        **(config or {})})  # fmt: skip
    return path


def random_weights(shape: TinyShape, *, seed: int, tied: bool) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Tensors by published name. Large enough that rounding is seen, with norms away from 1 and biases from 0."""
    random = np.random.default_rng(seed)

    def dense(name: str, outputs: int, inputs: int, *, bias: bool) -> Iterator[tuple[str, NDArray[np.float32]]]:
        yield f"{name}.weight", random.standard_normal((outputs, inputs), np.float32) * np.float32(inputs**-0.5)
        if bias:
            yield f"{name}.bias", random.standard_normal(outputs, np.float32) * np.float32(0.1)

    def norm(name: str, width: int, *, bias: bool) -> Iterator[tuple[str, NDArray[np.float32]]]:
        yield f"{name}.weight", 1 + random.standard_normal(width, np.float32) * np.float32(0.1)
        if bias:
            yield f"{name}.bias", random.standard_normal(width, np.float32) * np.float32(0.1)

    vision, width, head = shape.vision_width, shape.width, shape.width // shape.heads
    kernel = random.standard_normal((vision, 3, 2, 14, 14), np.float32) * np.float32(0.03)
    yield "visual.patch_embed.proj.weight", kernel
    for i in range(shape.vision_depth):
        block = f"visual.blocks.{i}"
        yield from norm(f"{block}.norm1", vision, bias=True)
        yield from dense(f"{block}.attn.qkv", 3 * vision, vision, bias=True)
        yield from dense(f"{block}.attn.proj", vision, vision, bias=True)
        yield from norm(f"{block}.norm2", vision, bias=True)
        yield from dense(f"{block}.mlp.fc1", 4 * vision, vision, bias=True)
        yield from dense(f"{block}.mlp.fc2", vision, 4 * vision, bias=True)
    yield from norm("visual.merger.ln_q", vision, bias=True)
    yield from dense("visual.merger.mlp.0", 4 * vision, 4 * vision, bias=True)
    yield from dense("visual.merger.mlp.2", width, 4 * vision, bias=True)
    yield "model.embed_tokens.weight", random.standard_normal((shape.vocab, width), np.float32) * np.float32(0.5)
    for i in range(shape.layers):
        layer = f"model.layers.{i}"
        yield from norm(f"{layer}.input_layernorm", width, bias=False)
        yield from dense(f"{layer}.self_attn.q_proj", shape.heads * head, width, bias=True)
        yield from dense(f"{layer}.self_attn.k_proj", shape.kv_heads * head, width, bias=True)
        yield from dense(f"{layer}.self_attn.v_proj", shape.kv_heads * head, width, bias=True)
        yield from dense(f"{layer}.self_attn.o_proj", width, shape.heads * head, bias=False)
        yield from norm(f"{layer}.post_attention_layernorm", width, bias=False)
        yield from dense(f"{layer}.mlp.gate_proj", shape.mlp_width, width, bias=False)
        yield from dense(f"{layer}.mlp.up_proj", shape.mlp_width, width, bias=False)
        yield from dense(f"{layer}.mlp.down_proj", width, shape.mlp_width, bias=False)
    yield from norm("model.norm", width, bias=False)
    if not tied:
        yield from dense("lm_head", shape.vocab, width, bias=False)


def write_weights(
    path: Path, weights: Mapping[str, NDArray[np.float32]], *, dtype: str = "F32", shards: int = 1
) -> None:
    """One model.safetensors, or `shards` of them with an index."""
    names = list(weights)
    if shards == 1:
        _write_safetensors(path / "model.safetensors", weights, dtype)
        return
    where: dict[str, str] = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: weights[name] for name in names[i::shards]}
        _write_safetensors(path / file, part, dtype)
        where.update(dict.fromkeys(part, file))
    _write(path, "model.safetensors.index.json", {"metadata": {}, "weight_map": where})


def write_tokenizer(path: Path, tokens: tuple[str, ...] = SPECIAL_TOKENS) -> None:
    """tokenizer.json of a byte-level tokenizer without merges: the 256 bytes, then `tokens`, all of them special."""
    vocab = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens])
    tokenizer.save(str(path / "tokenizer.json"))


def _write_safetensors(file: Path, weights: Mapping[str, NDArray[np.float32]], dtype: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blobs: list[bytes] = []
    offset = 0
    for name, array in weights.items():
        blob = _encode(array, dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    file.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(blobs))


def _encode(array: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "BF16":  # cut off the lower half: the written value is what counts, not the closest one
        return (array.view(np.uint32) >> 16).astype("<u2").tobytes()
    return array.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def _newer(name: str) -> str:
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.", 1)


def _write(path: Path, name: str, value: Mapping[str, Any]) -> None:
    (path / name).write_text(json.dumps(value, indent=1), encoding="utf-8")
