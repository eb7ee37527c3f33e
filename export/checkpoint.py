"""Opens a Hugging Face directory of Qwen2-VL: its files, and its tensors by their published names.

What the files mean (shapes, ids, templates) is read in `facts.py`. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mineru_edge.models.errors import CheckpointError
from mineru_edge.models.records import parse_json

from .tensorfile import StoredTensor, read_header

ARCHITECTURE = "Qwen2VLForConditionalGeneration"
MODEL_TYPE = "qwen2_vl"

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_NEWER = (("model.visual.", "visual."), ("model.language_model.", "model."))  # names transformers writes since 4.52
_COMPUTED = "inv_freq"  # rotary tables that some writers store; they follow from the config


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint directory and where each of its tensors lies. `on_read` hears of every tensor that was read."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    on_read: Callable[[int, str], None] | None = field(default=None)

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Read the config and all headers. CheckpointError when it is no checkpoint or of another architecture."""
        if not path.is_dir():
            found = "is a file" if path.exists() else "does not exist"
            raise CheckpointError(f"{path} {found}", hint="give the directory that holds config.json and the weights")
        config = read_json(path / "config.json")
        kinds = config.get("architectures") or [config.get("model_type")]
        if ARCHITECTURE not in kinds and config.get("model_type") != MODEL_TYPE:
            described = ", ".join(map(str, kinds))
            raise CheckpointError(
                f"{path / 'config.json'} describes {described}", hint=f"only {ARCHITECTURE} can be exported"
            )
        return cls(path, config, _find_tensors(path))

    @property
    def tied_head(self) -> bool:
        """Whether the head is the embedding table. The tensors say so; the config has been seen to be wrong."""
        return "lm_head.weight" not in self.tensors

    def expect(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Check that these tensors are there, with these shapes, and no others. CheckpointError names the first."""
        for name, shape in shapes.items():
            if name not in self.tensors:
                raise CheckpointError(f"{self.path} has no tensor {name}", hint="fetch the whole checkpoint again")
            if self.tensors[name].shape != shape:
                raise CheckpointError(
                    f"{name} in {self.tensors[name].file} has the shape {list(self.tensors[name].shape)}, "
                    f"but config.json makes it {list(shape)}",
                    hint="use the config.json that belongs to these weights",
                )
        if unknown := sorted(self.tensors.keys() - shapes.keys()):
            raise CheckpointError(
                f"{self.path} has {len(unknown)} tensors that config.json does not account for, such as {unknown[0]}",
                hint="use the config.json that belongs to these weights, and merge adapters before exporting",
            )

    def read(self, name: str) -> NDArray[np.float32]:
        """The tensor of that published name as f32; it has passed `expect`."""
        stored = self.tensors[name]
        values = stored.read()
        if self.on_read is not None:
            self.on_read(stored.bytes, name)
        return values


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from the checkpoint. CheckpointError when it is not there or no object."""
    try:
        value = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{file} does not exist", hint="give a complete Hugging Face model directory") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}", hint="fetch the file again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} holds no JSON object", hint="fetch the file again")
    return value


def _find_tensors(path: Path) -> dict[str, StoredTensor]:
    if (path / _INDEX).exists():
        listed = read_json(path / _INDEX).get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(file, str) for file in listed.values()):
            raise CheckpointError(f"{path / _INDEX} holds no weight_map", hint="fetch the file again")
        files = sorted(set(listed.values()))
    else:
        listed, files = None, [_SINGLE]
    found: dict[str, StoredTensor] = {}
    for file in files:
        if Path(file).name != file or not (path / file).is_file():
            raise CheckpointError(f"{path} has no {file}", hint="fetch all of the checkpoint's safetensors files")
        found.update(read_header(path / file))
    if listed is not None and (missing := sorted(listed.keys() - found.keys())):
        raise CheckpointError(f"{path / listed[missing[0]]} does not hold {missing[0]}", hint="fetch that file again")
    return {published_name(name): tensor for name, tensor in found.items() if not name.endswith(_COMPUTED)}


def published_name(name: str) -> str:
    """A name that newer transformers give, as the model's authors published it."""
    for newer, published in _NEWER:
        if name.startswith(newer):
            return published + name.removeprefix(newer)
    return name
