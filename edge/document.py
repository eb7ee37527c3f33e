"""What reading a document gives: frozen values that keep where each piece of text came from and why it ended.

Boxes are fractions (left, top, right, bottom) of the upright page picture, 0 to 1, with the origin at the top left.
Times are seconds of wall clock. `to_dict()` is what `NAME_result.json` holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Box = tuple[float, float, float, float]

STOP, ERROR = "stop", "error"
MODEL, LAYER, OCR, AUTO = "model", "layer", "ocr", "auto"  # who reads text; auto: the PDF where it can
DETECTOR = "detector"  # who finds blocks in place of the model


@dataclass(frozen=True, slots=True)
class Answer:
    """How the model answered one question: about the layout of a page, or about the content of one block.

    `finish_reason` is one of stop, length, repetition, deadline, cancelled, error; `error` says what went wrong for
    the last of them, and that a page's deadline ended this block. `tokens` counts generated tokens, `prompt_tokens`
    those read, `patches` the picture's patches.
    """

    finish_reason: str
    prompt_tokens: int = 0
    tokens: int = 0
    patches: int = 0
    vision_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether something is missing that the model might have said."""
        return self.finish_reason == ERROR or self.error is not None

    def to_dict(self) -> dict[str, Any]:
        return {
            "finish_reason": self.finish_reason,
            "error": self.error,
            "prompt_tokens": self.prompt_tokens,
            "tokens": self.tokens,
            "patches": self.patches,
            "vision_s": round(self.vision_s, 4),
            "prefill_s": round(self.prefill_s, 4),
            "decode_s": round(self.decode_s, 4),
        }


_NOT_ASKED: dict[str, Any] = dict.fromkeys(Answer("").to_dict())


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page. `type` is the protocol's word for it: text, title, table, equation, image, list, ...

    `content` is text, HTML for a table, LaTeX between \\[ and \\] for an equation, None for what is not read (figures,
    containers). `source` says who read it: "model", "layer" when it is the PDF's own text, or "ocr"; `found_by` says
    whose box it is: one of these, or "detector". `answer` is None for what the model was not asked. `angle` is how far
    the block is turned on the page, in degrees, or None when nobody said. `continues` marks text that goes on from the
    text block before it. `picture` is the upright crop as JPEG, kept for figures, tables and formulas when asked for;
    `image_path` is where it was
    written, relative to the output directory.
    """

    type: str
    box: Box
    angle: int | None = None
    content: str | None = None
    answer: Answer | None = None
    continues: bool = False
    picture: bytes | None = field(default=None, repr=False)
    image_path: str | None = None
    source: str = MODEL
    found_by: str = MODEL

    @property
    def finish_reason(self) -> str | None:
        return self.answer.finish_reason if self.answer else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "box": [round(edge, 4) for edge in self.box],
            "angle": self.angle,
            "content": self.content,
            "source": self.source,
            "found_by": self.found_by,
            "continues": self.continues,
            "image_path": self.image_path,
            **(self.answer.to_dict() if self.answer else _NOT_ASKED),
        }


@dataclass(frozen=True, slots=True)
class Page:
    """One page: `number` counts from 1 and `page_count` is how many the file has.

    `width_px` and `height_px` are those of its picture, 0 when none was drawn.
    `error` says why the page could not be read; then it has no blocks, and the other pages are as good as ever.
    `warnings` say what its picture may lack, such as signs of a font that is not in the file.
    `seconds` runs from the request for its picture to its last block, and overlaps with the pages beside it.
    """

    number: int
    page_count: int
    width_px: int = 0
    height_px: int = 0
    blocks: tuple[Block, ...] = ()
    layout: Answer | None = None
    seconds: float = 0.0
    error: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """What is missing from this page, in words: nothing, its own error, or the blocks that could not be read."""
        if self.error:
            return (f"page {self.number}: {self.error}",)
        return tuple(
            f"page {self.number}, block {index} ({block.type}): {block.answer.error or 'failed'}"
            for index, block in enumerate(self.blocks, 1)
            if block.answer and block.answer.failed
        )

    @property
    def cut_short(self) -> tuple[str, ...]:
        """What ended before the model had said all, in words; it may lack its end."""
        answers = [("its list of blocks", self.layout)]
        answers += [(f"block {index} ({block.type})", block.answer) for index, block in enumerate(self.blocks, 1)]
        return tuple(
            f"page {self.number}: {what} was cut short: {answer.finish_reason}"
            for what, answer in answers
            if answer and answer.finish_reason != STOP and not answer.failed
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "width_px": self.width_px,
            "height_px": self.height_px,
            "seconds": round(self.seconds, 4),
            "error": self.error,
            "warnings": list(self.warnings),
            "layout": self.layout.to_dict() if self.layout else None,
            "blocks": [block.to_dict() for block in self.blocks],
        }


@dataclass(frozen=True, slots=True)
class Memory:
    """The most memory this process and its drawing process have held so far, None where the system does not tell
    (Linux does).

    `peak_private_bytes` is RssAnon + VmSwap, which a leak cannot hide from by being swapped out; `peak_rss_bytes` is
    everything resident, the mapped model files included.
    """

    peak_private_bytes: int | None = None
    peak_rss_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"peak_private_bytes": self.peak_private_bytes, "peak_rss_bytes": self.peak_rss_bytes}


@dataclass(frozen=True, slots=True)
class Document:
    """One file, read: the pages asked for, in order. `page_count` is how many the file has.

    `model` is None when none was used.
    """

    source: str
    page_count: int
    pages: tuple[Page, ...]
    model: str | None
    seconds: float
    memory: Memory

    @property
    def failures(self) -> tuple[str, ...]:
        """What is missing, in words; empty when everything came through."""
        return tuple(failure for page in self.pages for failure in page.failures)

    def to_dict(self) -> dict[str, Any]:
        """Everything known, as JSON values."""
        return {
            "source": self.source,
            "page_count": self.page_count,
            "model": self.model,
            "seconds": round(self.seconds, 4),
            **self.memory.to_dict(),
            "pages": [page.to_dict() for page in self.pages],
        }

    @property
    def markdown(self) -> str:
        """The document as Markdown: see `render`."""
        from .render import markdown

        return markdown(self.pages)

    @property
    def html(self) -> str:
        """The document as a HTML file: see `render_html`."""
        from .render_html import html_flow

        return html_flow(self.source).all(self.pages)

    @property
    def text(self) -> str:
        """The document as plain text: see `render_text`."""
        from .render_text import text_flow

        return text_flow().all(self.pages)

    @property
    def content_list(self) -> list[dict[str, Any]]:
        """The document as MinerU's flat list of content: see `content_list`."""
        from .content_list import content_list

        return content_list(self.pages)
