"""The model in transformers, on CPU in f32: what an exported bundle is compared with.

optimum's TasksManager loads it. transformers' own processor class would do the preparation, but it needs torchvision
for its videos; so the image processor class is used directly, and the ids come from the checkpoint's tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tokenizers import Tokenizer

from mineru_edge.models import prompts
from mineru_edge.models.bundle import TOKENIZER_FILE

from .chat import chat_template
from .checkpoint import Checkpoint, published_name
from .facts import Facts, read_facts
from .schemes import EMBEDDING, packed_parts

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Asked:
    """One image and prompt as the reference sees them, and what it makes of them up to the first token.

    `patches` f32 [N, channels * patch^2] of the first frame; `rows` f32 [N / merge^2, width]; `axes` i64 [3, tokens];
    `logits` f32 [vocab] for the first token.
    """

    ids: list[int]
    patches: Floats
    grid: tuple[int, int]
    rows: Floats
    axes: NDArray[np.int64]
    delta: int
    logits: Floats


@dataclass(frozen=True, slots=True)
class Answer:
    """Greedy tokens without the one that ended them, and per step how far the best logit lay above the second best.

    `margins` has one entry more than `ids` when the model ended the answer itself (`stopped`).
    """

    ids: tuple[int, ...]
    margins: tuple[float, ...]
    seconds: tuple[int, ...]
    stopped: bool


class Reference:
    """The torch model of a checkpoint directory, on `threads` threads; as torch chooses when that is None."""

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        import torch
        from optimum.exporters.tasks import TasksManager
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        if threads is not None:
            torch.set_num_threads(threads)
        self.checkpoint = Checkpoint.open(path)
        self.facts: Facts = read_facts(self.checkpoint)
        self._tokenizer: Any = Tokenizer.from_file(str(path / TOKENIZER_FILE))
        self._chat = chat_template(path)
        with _quiet():
            # The head is tied when the tensors say so, whatever the config claims: as in the export.
            self._model: Any = TasksManager.get_model_from_task(
                "image-text-to-text", path, framework="pt", library_name="transformers",
                dtype="float32", local_files_only=True, tie_word_embeddings=self.checkpoint.tied_head,
            ).eval()  # fmt: skip
            self._processor: Any = Qwen2VLImageProcessorPil.from_pretrained(path, local_files_only=True)

    def shape(self) -> dict[str, int]:
        """The decoder's sizes under optimum's normalised names."""
        from optimum.utils import NormalizedTextConfig

        config: Any = NormalizedTextConfig(self._model.config.get_text_config())
        names = ("num_layers", "num_attention_heads", "hidden_size", "vocab_size")
        return {name: int(getattr(config, name)) for name in names}

    def ask(self, image: Image.Image, prompt: str, *, max_new_tokens: int) -> tuple[Asked, Answer]:
        """Plain greedy decoding, no penalties, until the model ends or the cap is reached; the picture is seen once."""
        import torch
        from transformers import LogitsProcessorList

        first: list[Floats] = []
        rows: list[Floats] = []
        margins: list[float] = []
        seconds: list[int] = []

        def choose(_: Any, scores: Any) -> Any:
            top = scores[0].topk(2)
            margins.append(float(top.values[0] - top.values[1]))
            seconds.append(int(top.indices[1]))
            if not first:
                first.append(scores[0].float().numpy().copy())
            return scores

        inputs, eos, model = self._inputs(image, prompt), self.facts.special.eos, self._model
        seen = model.model.visual.register_forward_hook(lambda *call: rows.append(call[-1].pooler_output.numpy()))
        try:
            with torch.inference_mode(), _quiet():
                output = model.generate(
                    **inputs, do_sample=False, max_new_tokens=max_new_tokens, eos_token_id=list(eos),
                    pad_token_id=eos[0], logits_processor=LogitsProcessorList([choose]), temperature=None, top_p=None,
                    top_k=None, repetition_penalty=1.0, no_repeat_ngram_size=0,
                )  # fmt: skip
                axes, delta = model.model.get_rope_index(
                    inputs["input_ids"], inputs["mm_token_type_ids"], image_grid_thw=inputs["image_grid_thw"]
                )
        finally:
            seen.remove()
        vision, prompt_ids = self.facts.vision, inputs["input_ids"][0].tolist()
        frames = inputs["pixel_values"].numpy().reshape(-1, vision.channels, vision.temporal, vision.patch**2)
        _, grid_rows, grid_cols = inputs["image_grid_thw"][0].tolist()
        asked = Asked(
            ids=prompt_ids, patches=np.ascontiguousarray(frames[:, :, 0]).reshape(len(frames), -1),
            grid=(grid_rows, grid_cols), rows=rows[0], axes=axes[:, 0].numpy(), delta=int(delta), logits=first[0],
        )  # fmt: skip
        ids = output[0, len(prompt_ids) :].tolist()
        stopped = bool(ids) and ids[-1] in eos
        return asked, Answer(tuple(ids[:-1] if stopped else ids), tuple(margins), tuple(seconds), stopped)

    @contextmanager
    def heard(self, matrices: Collection[str], hear: Callable[[str, Floats], None]) -> Iterator[None]:
        """While open, `hear(matrix, rows)` is called with f32 [rows, inputs] of every product with one of `matrices`.

        Of the embedding table it hears the rows that are looked up for text. Of the last layer's products after
        attention it hears the last position alone, as the decoder graph goes on with no other.
        """
        modules = {published_name(name): module for name, module in self._model.named_modules()}
        last = f"model.layers.{self.facts.text.layers - 1}."
        hooks = [
            modules[packed_parts(name)[0]].register_forward_hook(
                partial(self._tell, hear, name, name.startswith(last) and not name.endswith("qkv_proj"))
            )
            for name in matrices
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _tell(
        self, hear: Callable[[str, Floats], None], name: str, last_only: bool, _: Any, given: Any, output: Any
    ) -> None:
        """What torch calls after the product; `given` are the module's arguments."""
        x = output[given[0] != self.facts.special.image_pad] if name == EMBEDDING else given[0]
        x = x[:, -1] if last_only else x
        hear(name, x.reshape(-1, x.shape[-1]).numpy())

    def text(self, ids: tuple[int, ...]) -> str:
        """Tokens as text, special ones kept: all of the protocol's are."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def _inputs(self, image: Image.Image, prompt: str) -> dict[str, Any]:
        import torch

        pixels = self._processor(images=[image], return_tensors="pt")
        tokens = int(pixels["image_grid_thw"].prod()) // self.facts.vision.merge**2
        chat = self._chat
        text = f"{chat.before_image}{prompts.IMAGE_PAD * tokens}{chat.after_image}{prompt}{chat.end}"
        ids = torch.tensor([self._tokenizer.encode(text, add_special_tokens=False).ids])
        kinds = (ids == self.facts.special.image_pad).int()
        return {**pixels, "input_ids": ids, "mm_token_type_ids": kinds, "attention_mask": torch.ones_like(ids)}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' advice and bars: the terminal belongs to our own progress."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
