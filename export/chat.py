"""The text around an image and a prompt, out of the checkpoint's chat template.

The page protocol asks one question with one system message, so a template is four strings: they are found by rendering
it once with markers in the question's place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mineru_edge.models import prompts
from mineru_edge.models.architecture import ChatTemplate
from mineru_edge.models.errors import CheckpointError

from .checkpoint import read_json

SYSTEM_PROMPT = "You are a helpful assistant."  # what the protocol's own client sends

STANDARD = ChatTemplate(
    before_image=f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\n{prompts.VISION_START}",
    after_image=prompts.VISION_END,
    end="<|im_end|>\n<|im_start|>assistant\n",
    before_text=f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\n",
)
"""What Qwen2-VL's template gives; taken when a checkpoint has none."""

_QUESTION = "\n?question?"  # begins with a line end, as the protocol's prompts do


def chat_template(path: Path) -> ChatTemplate:
    """The four strings of the checkpoint's template. CheckpointError when it cannot be cut into them."""
    source = _source(path)
    if source is None:
        return STANDARD
    image, text = {"type": "image"}, {"type": "text", "text": _QUESTION}
    with_image, without = _render(path, source, [image, text]), _render(path, source, [text])
    before, pad, rest = with_image.partition(prompts.IMAGE_PAD)
    after, question, end = rest.partition(_QUESTION)
    before_text, question_again, end_again = without.partition(_QUESTION)
    if not (pad and question and question_again) or end != end_again or prompts.IMAGE_PAD in rest:
        raise CheckpointError(
            f"the chat template of {path} does not put one {prompts.IMAGE_PAD} before the prompt",
            hint="use the chat template that was published with the model",
        )
    return ChatTemplate(before_image=before, after_image=after, end=end, before_text=before_text)


def _source(path: Path) -> str | None:
    """The template's text, from the first of the three places writers have used."""
    if (path / "chat_template.jinja").is_file():
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        if (path / name).is_file() and isinstance(found := read_json(path / name).get("chat_template"), str):
            return found
    return None


def _render(path: Path, source: str, content: list[dict[str, str]]) -> str:
    import jinja2
    import jinja2.sandbox

    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": content}]
    environment: Any = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    try:
        return str(environment.from_string(source).render(messages=messages, add_generation_prompt=True))
    except jinja2.TemplateError as error:
        raise CheckpointError(
            f"the chat template of {path} cannot be rendered: {error}", hint="fetch the checkpoint's files again"
        ) from error
