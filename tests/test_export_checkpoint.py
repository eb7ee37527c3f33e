"""Reading a checkpoint: every layout writers use gives the same tensors and facts, and what is wrong is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_checkpoint import SPECIAL_TOKENS, TEMPLATE, TinyShape, random_weights, write_checkpoint, write_weights

from mineru_edge.export.chat import STANDARD
from mineru_edge.export.checkpoint import Checkpoint
from mineru_edge.export.facts import Facts, read_facts, tensor_shapes
from mineru_edge.models.errors import CheckpointError

SHAPE = TinyShape()


def facts_of(path: Path) -> Facts:
    return read_facts(Checkpoint.open(path))


def change(path: Path, name: str, **entries: Any) -> None:
    """Set entries of a JSON file; None removes one."""
    value = json.loads((path / name).read_text("utf-8")) | entries
    (path / name).write_text(json.dumps({k: v for k, v in value.items() if v is not None}), "utf-8")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


def test_tensors_come_back_as_written(checkpoint: Path) -> None:
    opened = Checkpoint.open(checkpoint)
    for name, array in random_weights(SHAPE, seed=0, tied=True):
        np.testing.assert_array_equal(opened.read(name), array)
    assert opened.tied_head


@pytest.mark.parametrize(
    "options", [{"shards": 3}, {"newer_names": True}, {"shards": 2, "newer_names": True}], ids=lambda o: "-".join(o)
)
def test_other_layouts_give_the_same_tensors(tmp_path: Path, options: dict[str, Any]) -> None:
    opened = Checkpoint.open(write_checkpoint(tmp_path / "c", **options))
    opened.expect(tensor_shapes(read_facts(opened), tied_head=True))
    for name, array in random_weights(SHAPE, seed=0, tied=True):
        np.testing.assert_array_equal(opened.read(name), array)


@pytest.mark.parametrize(("dtype", "steps"), [("F16", 2.0**-11), ("BF16", 2.0**-7)])
def test_half_precision_is_widened_exactly(tmp_path: Path, dtype: str, steps: float) -> None:
    opened = Checkpoint.open(write_checkpoint(tmp_path / "c", dtype=dtype))
    for name, array in random_weights(SHAPE, seed=0, tied=True):
        found = opened.read(name)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, array, rtol=steps, atol=1e-7)
        if dtype == "BF16":  # nothing below the upper half
            assert not np.any(found.view(np.uint32) & 0xFFFF)


def test_facts_of_the_written_shape(checkpoint: Path) -> None:
    facts = facts_of(checkpoint)
    assert (facts.vision.width, facts.vision.mlp_width, facts.vision.head_dim) == (160, 640, 40)
    assert (facts.text.heads, facts.text.kv_heads, facts.text.head_dim) == (6, 2, 32)
    assert facts.text.mrope_sections == (4, 6, 6)
    assert facts.special.eos == (258, 256)
    assert dict(facts.special.layout)["<|rotate_left|>"] == 256 + SPECIAL_TOKENS.index("<|rotate_left|>")
    assert facts.preprocessing.layout_size == (112, 112)


def test_layout_pictures_are_1036_pixels_unless_said(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c", TinyShape(layout_size=None))
    assert facts_of(path).preprocessing.layout_size == (1036, 1036)


def test_newer_config_forms_say_the_same(checkpoint: Path) -> None:
    old = facts_of(checkpoint)
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    vision, ids = config.pop("vision_config"), {k: v for k, v in config.items() if k.endswith("_token_id")}
    rope = {"rope_type": "default", "rope_theta": config.pop("rope_theta"), **config.pop("rope_scaling")}
    del rope["type"]
    newer = {"model_type": "qwen2_vl", "architectures": config["architectures"], "vision_config": vision, **ids}
    newer["text_config"] = config | {"rope_parameters": rope}
    (checkpoint / "config.json").write_text(json.dumps(newer), "utf-8")
    size = {"shortest_edge": 3136, "longest_edge": 1605632}
    change(checkpoint, "preprocessor_config.json", min_pixels=None, max_pixels=None, size=size)
    assert facts_of(checkpoint) == old


def test_the_end_of_an_answer_falls_back_to_the_config(checkpoint: Path) -> None:
    (checkpoint / "generation_config.json").unlink()
    assert facts_of(checkpoint).special.eos == (258,)
    change(checkpoint, "config.json", eos_token_id=None)
    assert facts_of(checkpoint).special.eos == (258,)


def test_the_template_is_found_in_all_three_places(checkpoint: Path) -> None:
    assert facts_of(checkpoint).chat == STANDARD
    other = TEMPLATE.replace("assistant\n{% endif", "helper\n{% endif")
    change(checkpoint, "tokenizer_config.json", chat_template=None)
    assert facts_of(checkpoint).chat == STANDARD
    (checkpoint / "chat_template.json").write_text(json.dumps({"chat_template": other}), "utf-8")
    assert facts_of(checkpoint).chat.end == "<|im_end|>\n<|im_start|>helper\n"
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    assert facts_of(checkpoint).chat == STANDARD


def test_an_untied_head_is_told_by_its_tensor(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c", tied=False, config={"tie_word_embeddings": True})
    assert not Checkpoint.open(path).tied_head


def read_all(path: Path) -> None:
    opened = Checkpoint.open(path)
    opened.expect(tensor_shapes(read_facts(opened), tied_head=opened.tied_head))


def refuse(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_all(path)
    assert caught.value.hint  # every refusal says what to do
    return str(caught.value)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refuse(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    assert "is a file" in refuse(tmp_path / "file")
    assert "config.json" in refuse(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "cannot be read" in refuse(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    assert "LlamaForCausalLM" in refuse(tmp_path)


def test_missing_weights_are_named(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    assert "model.safetensors" in refuse(checkpoint)
    sharded = write_checkpoint(tmp_path / "sharded", shards=3)
    (sharded / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors" in refuse(sharded)
    dropped = write_checkpoint(tmp_path / "dropped", drop=("model.layers.1.mlp.up_proj.weight",))
    assert "model.layers.1.mlp.up_proj.weight" in refuse(dropped)


def test_an_index_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c", shards=2)
    index = json.loads((path / "model.safetensors.index.json").read_text("utf-8"))
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00002.safetensors"
    (path / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    assert "model.extra.weight" in refuse(path)


def test_an_index_cannot_lead_out_of_the_directory(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c")
    (path / "model.safetensors").rename(tmp_path / "model.safetensors")
    index = {"weight_map": {"model.norm.weight": "../model.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    assert "../model.safetensors" in refuse(path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-100], "ends at byte"),
        (lambda data: data[:4], "not a safetensors file"),
        (lambda data: b"\xff" * 8 + data[8:], "not a safetensors file"),
        (lambda data: data[:8] + b"[" + data[9:], "cannot be read"),
        (lambda data: data.replace(b'"F32"', b'"F64"', 1), "BF16, F16 or F32"),
        (lambda data: data.replace(b"[160, 3, 2, 14, 14]", b"[161, 3, 2, 14, 14]", 1), "wrong number of bytes"),
    ],
)
def test_damaged_files_are_refused(checkpoint: Path, damage: Any, said: str) -> None:
    file = checkpoint / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    assert said in refuse(checkpoint)


def test_tensors_the_config_does_not_know_are_refused(checkpoint: Path) -> None:
    change(checkpoint, "config.json", num_hidden_layers=1)
    assert "does not account for" in refuse(checkpoint)


def test_stored_rotary_tables_are_ignored(checkpoint: Path) -> None:
    weights = dict(random_weights(SHAPE, seed=0, tied=True))
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(16, np.float32)
    write_weights(checkpoint, weights)
    opened = Checkpoint.open(checkpoint)
    opened.expect(tensor_shapes(read_facts(opened), tied_head=True))


def test_a_wrong_shape_is_named(checkpoint: Path) -> None:
    change(checkpoint, "config.json", intermediate_size=512)
    said = refuse(checkpoint)
    assert "[384, 192]" in said
    assert "[512, 192]" in said


def test_a_tokenizer_without_layout_tokens_is_refused(tmp_path: Path) -> None:
    plain = tuple(token for token in SPECIAL_TOKENS if not token.startswith("<|rotate_"))
    assert "<|rotate_up|>" in refuse(write_checkpoint(tmp_path / "c", tokens=plain))


@pytest.mark.parametrize(
    ("file", "entries", "said"),
    [
        ("config.json", {"vision_config": None}, "vision_config"),
        ("config.json", {"hidden_act": "gelu"}, "hidden_act"),
        ("config.json", {"use_sliding_window": True}, "use_sliding_window"),
        ("config.json", {"rope_scaling": {"type": "yarn", "mrope_section": [4, 6, 6]}}, "yarn"),
        ("config.json", {"rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 7]}}, "mrope_sections"),
        ("config.json", {"rope_scaling": None}, "mrope_section"),
        ("config.json", {"hidden_size": "many"}, "many"),
        ("config.json", {"vocab_size": 100}, "the vocabulary has 100 rows"),
        ("config.json", {"image_token_id": 7}, "image_token_id"),
        ("preprocessor_config.json", {"patch_size": 16}, "patch_size"),
        ("preprocessor_config.json", {"resample": 2}, "resample"),
        ("preprocessor_config.json", {"image_mean": None}, "image_mean"),
        ("preprocessor_config.json", {"mineru_edge": {"layout_size": [0, 0]}}, "layout_size"),
        ("tokenizer_config.json", {"chat_template": "{{ broken"}, "chat template"),
        ("tokenizer_config.json", {"chat_template": "no picture"}, "chat template"),
    ],
)
def test_configurations_that_cannot_be_exported(
    checkpoint: Path, file: str, entries: dict[str, Any], said: str
) -> None:
    change(checkpoint, file, **entries)
    assert said in refuse(checkpoint)
