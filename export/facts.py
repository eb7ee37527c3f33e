"""What a checkpoint's configuration files say, as the dataclasses of `models`.

Two traps: newer transformers rewrite `rope_scaling` and `rope_theta` into `rope_parameters`, and move the text fields
into `text_config`. Both forms are read. Anything the graphs do not do (a sliding window, another activation)
is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mineru_edge.models import prompts
from mineru_edge.models.architecture import ChatTemplate, Preprocessing, SpecialIds, TextShape, VisionShape
from mineru_edge.models.bundle import TOKENIZER_FILE
from mineru_edge.models.errors import BundleError, CheckpointError

from .chat import chat_template
from .checkpoint import Checkpoint, read_json

LAYOUT_SIZE = (1036, 1036)
_BICUBIC = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything about a checkpoint that a bundle records, weights aside."""

    vision: VisionShape
    text: TextShape
    preprocessing: Preprocessing
    special: SpecialIds
    chat: ChatTemplate


def read_facts(checkpoint: Checkpoint) -> Facts:
    """Read and check all configuration files. CheckpointError names the file and the field."""
    try:
        vision, text = _vision(checkpoint.config), _text(checkpoint.config)
        preprocessing, special = _preprocessing(checkpoint, vision), _special(checkpoint, text)
    except KeyError as error:
        raise _wrong(checkpoint, f"the field {error} is missing") from error
    except (ValueError, TypeError, AttributeError, BundleError) as error:
        raise _wrong(checkpoint, str(error)) from error
    if vision.out_width != text.width:
        raise _wrong(checkpoint, f"vision rows of {vision.out_width} values do not fit a decoder of width {text.width}")
    return Facts(vision, text, preprocessing, special, chat_template(checkpoint.path))


def tensor_shapes(facts: Facts, *, tied_head: bool) -> dict[str, tuple[int, ...]]:
    """Every tensor the architecture has, by published name."""
    v, t = facts.vision, facts.text
    wide, q, kv = v.width * v.merge**2, t.heads * t.head_dim, t.kv_heads * t.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "visual.patch_embed.proj.weight": (v.width, v.channels, v.temporal, v.patch, v.patch)
    }

    def dense(name: str, outputs: int, inputs: int, *, bias: bool) -> None:
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)

    def norm(name: str, *, bias: bool, width: int) -> None:
        shapes.update({f"{name}.{part}": (width,) for part in (("weight", "bias") if bias else ("weight",))})

    for i in range(v.depth):
        block = f"visual.blocks.{i}"
        norm(f"{block}.norm1", bias=True, width=v.width)
        norm(f"{block}.norm2", bias=True, width=v.width)
        dense(f"{block}.attn.qkv", 3 * v.width, v.width, bias=True)
        dense(f"{block}.attn.proj", v.width, v.width, bias=True)
        dense(f"{block}.mlp.fc1", v.mlp_width, v.width, bias=True)
        dense(f"{block}.mlp.fc2", v.width, v.mlp_width, bias=True)
    norm("visual.merger.ln_q", bias=True, width=v.width)
    dense("visual.merger.mlp.0", wide, wide, bias=True)
    dense("visual.merger.mlp.2", v.out_width, wide, bias=True)
    dense("model.embed_tokens", t.vocab, t.width, bias=False)
    for i in range(t.layers):
        layer = f"model.layers.{i}"
        norm(f"{layer}.input_layernorm", bias=False, width=t.width)
        norm(f"{layer}.post_attention_layernorm", bias=False, width=t.width)
        for part, outputs in (("q", q), ("k", kv), ("v", kv)):
            dense(f"{layer}.self_attn.{part}_proj", outputs, t.width, bias=True)
        dense(f"{layer}.self_attn.o_proj", t.width, q, bias=False)
        dense(f"{layer}.mlp.gate_proj", t.mlp_width, t.width, bias=False)
        dense(f"{layer}.mlp.up_proj", t.mlp_width, t.width, bias=False)
        dense(f"{layer}.mlp.down_proj", t.width, t.mlp_width, bias=False)
    norm("model.norm", bias=False, width=t.width)
    if not tied_head:
        dense("lm_head", t.vocab, t.width, bias=False)
    return shapes


def _vision(config: Mapping[str, Any]) -> VisionShape:
    v = config["vision_config"]
    if (act := v.get("hidden_act", "quick_gelu")) != "quick_gelu":
        raise ValueError(f"vision_config.hidden_act is {act}, only quick_gelu can be exported")
    width = int(v["embed_dim"])
    return VisionShape(
        depth=int(v["depth"]), width=width, heads=int(v["num_heads"]), mlp_width=int(width * v.get("mlp_ratio", 4)),
        patch=_single(v.get("patch_size", 14)), merge=int(v.get("spatial_merge_size", 2)),
        temporal=_single(v.get("temporal_patch_size", 2)), channels=int(v.get("in_channels", 3)),
        out_width=int(v["hidden_size"]),
    )  # fmt: skip


def _text(config: Mapping[str, Any]) -> TextShape:
    t = config.get("text_config") or config
    rope = t.get("rope_parameters") or t.get("rope_scaling") or {}
    if (act := t.get("hidden_act", "silu")) != "silu":
        raise ValueError(f"hidden_act is {act}, only silu can be exported")
    if t.get("use_sliding_window"):
        raise ValueError("use_sliding_window is set, only full attention can be exported")
    if (kind := rope.get("rope_type", rope.get("type", "mrope"))) not in ("mrope", "default"):
        raise ValueError(f"the rotary type is {kind}, only mrope can be exported")
    time, row, column = rope["mrope_section"]
    width, heads = int(t["hidden_size"]), int(t["num_attention_heads"])
    return TextShape(
        layers=int(t["num_hidden_layers"]), width=width, heads=heads,
        kv_heads=int(t.get("num_key_value_heads") or heads), head_dim=int(t.get("head_dim") or width // heads),
        mlp_width=int(t["intermediate_size"]), vocab=int(t["vocab_size"]),
        rope_theta=float(rope.get("rope_theta") or t["rope_theta"]),
        mrope_sections=(int(time), int(row), int(column)), norm_eps=float(t.get("rms_norm_eps", 1e-6)),
        max_positions=int(t["max_position_embeddings"]),
    )  # fmt: skip


def _preprocessing(checkpoint: Checkpoint, vision: VisionShape) -> Preprocessing:
    p = read_json(checkpoint.path / "preprocessor_config.json")
    if p.get("resample", _BICUBIC) != _BICUBIC:
        raise ValueError(f"preprocessor_config.json: resample is {p['resample']}, only bicubic (3) can be exported")
    sizes = {"patch_size": vision.patch, "merge_size": vision.merge, "temporal_patch_size": vision.temporal}
    for name, expected in sizes.items():
        if p.get(name, expected) != expected:
            raise ValueError(f"preprocessor_config.json: {name} is {p[name]}, but config.json makes it {expected}")
    size = p.get("size") or {}
    (mean_r, mean_g, mean_b), (std_r, std_g, std_b) = p["image_mean"], p["image_std"]
    width, height = p.get("mineru_edge", {}).get("layout_size", LAYOUT_SIZE)
    return Preprocessing(
        mean=(float(mean_r), float(mean_g), float(mean_b)), std=(float(std_r), float(std_g), float(std_b)),
        rescale=float(p.get("rescale_factor", 1 / 255)),
        min_pixels=int(p.get("min_pixels") or size["shortest_edge"]),
        max_pixels=int(p.get("max_pixels") or size["longest_edge"]),
        layout_size=(int(width), int(height)),
    )  # fmt: skip


def _special(checkpoint: Checkpoint, text: TextShape) -> SpecialIds:
    tokenizer = read_json(checkpoint.path / TOKENIZER_FILE)
    ids = {str(token["content"]): int(token["id"]) for token in tokenizer["added_tokens"]}
    needed = (prompts.IMAGE_PAD, prompts.VISION_START, prompts.VISION_END, *prompts.LAYOUT_TOKENS)
    if missing := [token for token in needed if token not in ids]:
        raise CheckpointError(
            f"{checkpoint.path / TOKENIZER_FILE} lacks {len(missing)} tokens of the page protocol, first {missing[0]}",
            hint="give a checkpoint trained for MinerU's layout protocol; a plain Qwen2-VL has no layout tokens",
        )
    eos = _eos(checkpoint, ids)
    if (largest := max(*eos, *(ids[token] for token in needed))) >= text.vocab:
        raise ValueError(f"{TOKENIZER_FILE} uses the id {largest}, but the vocabulary has {text.vocab} rows")
    pad = ids[prompts.IMAGE_PAD]
    if (given := checkpoint.config.get("image_token_id", pad)) != pad:
        raise ValueError(f"image_token_id is {given}, but {TOKENIZER_FILE} has {prompts.IMAGE_PAD} at {pad}")
    return SpecialIds(
        image_pad=pad, vision_start=ids[prompts.VISION_START], vision_end=ids[prompts.VISION_END],
        eos=eos, layout=tuple((token, ids[token]) for token in prompts.LAYOUT_TOKENS),
    )  # fmt: skip


def _eos(checkpoint: Checkpoint, ids: Mapping[str, int]) -> tuple[int, ...]:
    """Ids that end an answer: of generation_config.json, else of config.json, else the end of a chat turn."""
    file = checkpoint.path / "generation_config.json"
    given = read_json(file).get("eos_token_id") if file.exists() else None
    given = given if given is not None else checkpoint.config.get("eos_token_id", ids.get("<|im_end|>"))
    eos = tuple(given) if isinstance(given, list) else (given,)
    if not eos or not all(isinstance(number, int) for number in eos):
        raise ValueError("neither generation_config.json nor config.json names an eos_token_id")
    return eos


def _single(value: Any) -> int:
    """A size that some writers give per axis."""
    sizes = set(value) if isinstance(value, (list, tuple)) else {value}
    if len(sizes) != 1:
        raise ValueError(f"patches of {value} are not square")
    return int(sizes.pop())


def _wrong(checkpoint: Checkpoint, what: str) -> CheckpointError:
    return CheckpointError(
        f"the configuration of {checkpoint.path} cannot be used: {what}", hint="fetch the configuration files again"
    )
