"""The trained weights as a Hugging Face checkpoint in the published Qwen2-VL layout: ``from_pretrained`` loads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from .model import Config
from .samples import LAYOUT_PX, MAX_PIXELS, MIN_PIXELS
from .tokenizer import SPECIALS, build, token_id

TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write(train_state: Path, out: Path) -> None:
    """``train.pt`` -> checkpoint directory; the helpers' heads stay behind."""
    state = torch.load(train_state, weights_only=True)["both"]
    tensors = {k.removeprefix("0."): v.to(torch.bfloat16).contiguous() for k, v in state.items() if k.startswith("0.")}
    patch = (
        tensors["visual.patch_embed.proj.weight"].reshape(-1, 3, 1, 14, 14) / 2
    )  # halving is exact; the frames sum up again
    tensors["visual.patch_embed.proj.weight"] = patch.expand(-1, -1, 2, -1, -1).contiguous()
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    tokenizer = build()
    tokenizer.save(str(out / "tokenizer.json"))
    for name, facts in config_files(Config(), tokenizer).items():
        (out / name).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def read(checkpoint: Path) -> dict[str, torch.Tensor]:
    """A written checkpoint as the training model's state dict, f32."""
    tensors = {k: v.float() for k, v in load_file(str(checkpoint / "model.safetensors")).items()}
    patch = tensors["visual.patch_embed.proj.weight"]
    tensors["visual.patch_embed.proj.weight"] = patch.sum(2).flatten(1)
    return tensors


def config_files(c: Config, tokenizer: Tokenizer) -> dict[str, dict[str, Any]]:
    def token(name: str) -> int:
        return token_id(tokenizer, name)

    end, text_end = token("<|im_end|>"), token("<|endoftext|>")
    return {
        "config.json": {
            "architectures": ["Qwen2VLForConditionalGeneration"],
            "_name_or_path": "mineru-edge-tiny",
            "model_type": "qwen2_vl",
            "torch_dtype": "bfloat16",
            "attention_dropout": 0.0,
            "bos_token_id": text_end,
            "eos_token_id": end,
            "hidden_act": "silu",
            "hidden_size": c.width,
            "initializer_range": 0.02,
            "intermediate_size": c.mlp_width,
            "max_position_embeddings": 4096,
            "max_window_layers": c.layers,
            "num_attention_heads": c.heads,
            "num_hidden_layers": c.layers,
            "num_key_value_heads": c.kv_heads,
            "rms_norm_eps": 1e-6,
            "rope_scaling": {"type": "mrope", "mrope_section": list(c.mrope_sections)},
            "rope_theta": c.rope_theta,
            "sliding_window": None,
            "use_sliding_window": False,
            "use_cache": True,
            "tie_word_embeddings": True,
            "vocab_size": c.vocab,
            "image_token_id": token("<|image_pad|>"),
            "video_token_id": token("<|video_pad|>"),
            "vision_start_token_id": token("<|vision_start|>"),
            "vision_end_token_id": token("<|vision_end|>"),
            "vision_token_id": token("<|vision_pad|>"),
            "vision_config": {
                "depth": c.vision_depth,
                "embed_dim": c.vision_width,
                "hidden_act": "quick_gelu",
                "hidden_size": c.width,
                "in_channels": 3,
                "in_chans": 3,
                "mlp_ratio": 4,
                "model_type": "qwen2_vl",
                "num_heads": c.vision_heads,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "spatial_patch_size": 14,
                "temporal_patch_size": 2,
            },
        },
        "preprocessor_config.json": {
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2VLProcessor",
            "min_pixels": MIN_PIXELS,
            "max_pixels": MAX_PIXELS,
            "merge_size": 2,
            "patch_size": 14,
            "temporal_patch_size": 2,
            "resample": 3,
            "rescale_factor": 1 / 255,
            "mineru_edge": {"layout_size": list(LAYOUT_PX)},
        },
        "generation_config.json": {
            "bos_token_id": text_end,
            "eos_token_id": [end, text_end],
            "pad_token_id": text_end,
            "do_sample": False,
        },
        "tokenizer_config.json": {
            "add_prefix_space": False,
            "bos_token": None,
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 4096,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": None,
            "additional_special_tokens": list(SPECIALS),
        },
        "chat_template.json": {"chat_template": TEMPLATE},
    }
