"""The two-step page conversation, in the words of the model authors' library (mineru-vl-utils).

Step one asks where the blocks of a page are; step two asks what each block says. The library has the prompts, the
decoding parameters, the crops and the clean-up; this module turns its values into runtime requests and our blocks.
Importing the library takes 0.4 s and 40 MB, so this module is imported when the first page is read.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from loguru import logger
from mineru_vl_utils.mineru_client import DEFAULT_PROMPTS, DEFAULT_SAMPLING_PARAMS, MinerUClientHelper
from mineru_vl_utils.structs import ContentBlock
from PIL import Image

from mineru_edge.runtime.request import DecodeParams, Request, Result

from .document import LAYER, MODEL, OCR, STOP, Answer, Block, Box
from .glyphs import PageGlyphs

if TYPE_CHECKING:
    from .ocr import Ocr

_log = logging.getLogger(__name__)

LAYOUT = "[layout]"
LAYOUT_MAX_TOKENS = 4096  # 150 blocks and more; a page of newsprint has fewer
BLOCK_MAX_TOKENS = 8192
# A letter of the smallest readable print, 7 pixels high, covers about 25 square pixels; most tokens are longer.
PX_PER_TOKEN = 25
BASE_TOKENS = 64
TYPE_TOKENS = {"equation": 4.0, "table": 2.0}  # how much more markup than print these have

# Blocks that are kept as pictures too; what a reader cannot check in text.
PICTURED = frozenset({"image", "chart", "image_block", "table", "equation", "equation_block"})
CONTAINERS = frozenset({"list", "image_block", "equation_block"})
JPEG_QUALITY = 92

_SLOT = "_mineru_edge_slot"  # where a library block remembers its number through the clean-up
_GIVEN = "_mineru_edge_given"  # the same for a block that was found without the model
_COVERED = 0.9  # the library merges equations into their equation_block from this overlap on


@dataclass(slots=True)
class Layout:
    """The blocks of one page while they are being read. `blocks` are the library's; `types` are as the model said.

    `texts` are those of blocks that need not be asked for, by block index, each with who read it; `found_by` says
    whose boxes they are, block by block.
    """

    blocks: list[Any]
    types: tuple[str, ...]
    pictures: dict[Box, bytes]
    requests: dict[int, Request]
    texts: dict[int, tuple[str, str]]
    found_by: tuple[str, ...]


class PageProtocol:
    """Requests out, blocks back, for one bundle's layout size (width, height) in pixels."""

    def __init__(
        self, layout_size: tuple[int, int], *, deadline_s: float | None = None, ocr: Ocr | None = None
    ) -> None:
        """`ocr` reads blocks of text in the model's place, those that the PDF's own text does not give."""
        logger.disable("mineru_vl_utils")  # it reports every answer at DEBUG, on stderr unless told otherwise
        self._deadline_s = deadline_s
        self._ocr = ocr
        self._helper = MinerUClientHelper(
            backend="mineru-edge",
            prompts=DEFAULT_PROMPTS,
            sampling_params=DEFAULT_SAMPLING_PARAMS,
            layout_image_size=layout_size,
            min_image_edge=28,
            max_image_edge_ratio=50,
            simple_post_process=False,
            handle_equation_block=True,
            abandon_list=False,
            abandon_paratext=False,
            image_analysis=False,
            debug=False,
        )

    def layout_request(self, page: Image.Image) -> Request:
        """Step one for an upright RGB page."""
        params = self._params(self._helper.sampling_params[LAYOUT], LAYOUT_MAX_TOKENS)
        return Request(self._helper.prepare_for_layout(page), self._helper.prompts[LAYOUT], params)

    def layout(self, page: Image.Image, text: str, *, pictures: bool, glyphs: PageGlyphs | None = None) -> Layout:
        """The blocks that `text`, the answer to step one, lists, with the requests of step two by block index.

        Blocks of text that `glyphs`, those of a PDF page, can be trusted for are not asked for.
        """
        blocks: list[Any] = self._helper.parse_layout_output(text)
        crops = self._crops(page, blocks)
        wanted = {index: blocks[index].type for index in crops}
        texts: dict[int, tuple[str, str]] = {}
        if glyphs is not None and glyphs.glyphs:
            texts.update(_layer_texts(page, blocks, wanted, glyphs))
        if self._ocr is not None:
            texts.update(_ocr_texts(page, blocks, {i: kind for i, kind in wanted.items() if i not in texts}, self._ocr))
        return self._layout(page, blocks, crops, texts, [MODEL] * len(blocks), pictures)

    def found(self, page: Image.Image, blocks: Sequence[Block], *, pictures: bool) -> Layout:
        """The same for blocks that others have found; the model is asked for those that have no content."""
        given: list[Any] = []
        for block in blocks:
            left, top, right, bottom = block.box
            if left < right and top < bottom:
                given.append(ContentBlock(block.type, [left, top, right, bottom], block.angle))
                given[-1][_GIVEN] = block
        crops = self._crops(page, given)
        sources = [each.pop(_GIVEN) for each in given]
        texts = {
            index: (block.content, block.source) for index, block in enumerate(sources) if block.content is not None
        }
        return self._layout(page, given, crops, texts, [block.found_by for block in sources], pictures)

    def _crops(self, page: Image.Image, blocks: list[Any]) -> dict[int, tuple[Any, str, Any]]:
        """Picture, prompt and sampling for the blocks that can be asked for; the library may drop some of `blocks`."""
        state = random.getstate()
        random.seed(0)  # the library marks pictures inside tables with random letters, which the model then reads
        try:
            crops, prompts, samplings, indices = self._helper.prepare_for_extract(page, blocks)
        finally:
            random.setstate(state)
        return dict(zip(indices, zip(crops, prompts, samplings, strict=True), strict=True))

    def _layout(
        self,
        page: Image.Image,
        blocks: list[Any],
        crops: Mapping[int, tuple[Any, str, Any]],
        texts: dict[int, tuple[str, str]],
        found_by: Sequence[str],
        pictures: bool,
    ) -> Layout:
        for index, block in enumerate(blocks):
            block[_SLOT] = index
        requests = {
            index: Request(
                crop, prompt, self._params(sampling, token_cap(blocks[index].type, blocks[index].bbox, page))
            )
            for index, (crop, prompt, sampling) in crops.items()
            if index not in texts
        }
        kept = {_box(block): _picture(page, block) for block in blocks if pictures and block.type in PICTURED}
        return Layout(blocks, tuple(block.type for block in blocks), kept, requests, texts, tuple(found_by))

    def finish(self, layout: Layout, results: Mapping[int, Result]) -> tuple[Block, ...]:
        """The page's blocks, cleaned up, each with how it was answered. `results` are those of `layout.requests`."""
        for index, result in results.items():
            layout.blocks[index].content = result.text
        answers = {index: answer(result) for index, result in results.items()}
        boxes = [_box(block) for block in layout.blocks]
        kept = self._helper.post_process(layout.blocks)
        finished = []
        for block in kept:
            slot, box = block.get(_SLOT), _box(block)
            kind = block.type
            if slot is None:  # several equations became one
                given = combined(
                    [
                        given
                        for index, given in answers.items()
                        if layout.types[index] == "equation" and _covers(box, boxes[index])
                    ]
                )
            else:
                given = answers.get(slot)
                if layout.types[slot] == "list_item":
                    kind = "list_item"  # the library calls these text, which would hide where a list is
            text, source = layout.texts.get(slot, (block.content, MODEL))
            finished.append(
                Block(
                    type=kind,
                    box=box,
                    angle=block.angle,
                    content=text,
                    source=source,
                    found_by=layout.found_by[slot or 0],
                    answer=given,
                    continues=bool(block.get("merge_prev", False)),
                    picture=layout.pictures.get(box),
                )
            )
        return tuple(finished)

    def _params(self, sampling: Any, max_new_tokens: int) -> DecodeParams:
        return DecodeParams(
            min(max_new_tokens, sampling.max_new_tokens or max_new_tokens),
            presence_penalty=sampling.presence_penalty or 0.0,
            frequency_penalty=sampling.frequency_penalty or 0.0,
            no_repeat_ngram=sampling.no_repeat_ngram_size or 0,
            deadline_s=self._deadline_s,
        )


def _layer_texts(
    page: Image.Image, blocks: list[Any], asked: Mapping[int, str], glyphs: PageGlyphs
) -> dict[int, tuple[str, str]]:
    from .text_layer import TEXT_TYPES, TextLayer  # numpy and the tables of characters, for PDF pages alone

    wanted = {index: kind for index, kind in asked.items() if kind in TEXT_TYPES and blocks[index].angle in (0, None)}
    if not wanted:
        return {}
    try:
        texts = TextLayer(glyphs, page).texts(_holders(blocks), wanted)
    except Exception:  # files hold whatever they hold; the model reads this page then
        _log.warning("the text layer of a page could not be used", exc_info=True)
        return {}
    return {index: (text, LAYER) for index, text in texts.items()}


def _ocr_texts(page: Image.Image, blocks: list[Any], asked: Mapping[int, str], ocr: Ocr) -> dict[int, tuple[str, str]]:
    from .ocr_texts import ocr_texts
    from .text_layer import TEXT_TYPES

    wanted = {index: kind for index, kind in asked.items() if kind in TEXT_TYPES}
    if not wanted:
        return {}
    texts = ocr_texts(ocr.page(page), page, _holders(blocks), wanted)
    return {index: (text, OCR) for index, text in texts.items() if text}


def _holders(blocks: list[Any]) -> dict[int, Box]:
    """The boxes that words can be in; containers hold no words of their own."""
    return {index: _box(block) for index, block in enumerate(blocks) if block.type not in CONTAINERS}


def token_cap(kind: str, box: Box, page: Image.Image) -> int:
    """How many tokens a block of this type and area may take: more than any honest block of its size needs."""
    left, top, right, bottom = box
    area_px = (right - left) * page.width * (bottom - top) * page.height
    return min(BLOCK_MAX_TOKENS, int(BASE_TOKENS + TYPE_TOKENS.get(kind, 1.0) * area_px / PX_PER_TOKEN))


def answer(result: Result) -> Answer:
    """The facts of `result` without its text."""
    return Answer(
        finish_reason=result.finish_reason.value,
        prompt_tokens=result.prompt_tokens,
        tokens=len(result.token_ids),
        patches=result.patches,
        vision_s=result.vision_s,
        prefill_s=result.prefill_s,
        decode_s=result.decode_s,
        error=result.error,
    )


def combined(answers: list[Answer]) -> Answer | None:
    """Several answers that became one block: sums, and the reason of the first that did not simply stop."""
    if not answers:
        return None
    worst = next((given for given in answers if given.finish_reason != STOP), answers[0])
    return Answer(
        finish_reason=worst.finish_reason,
        prompt_tokens=sum(given.prompt_tokens for given in answers),
        tokens=sum(given.tokens for given in answers),
        patches=sum(given.patches for given in answers),
        vision_s=sum(given.vision_s for given in answers),
        prefill_s=sum(given.prefill_s for given in answers),
        decode_s=sum(given.decode_s for given in answers),
        error=next((given.error for given in answers if given.failed), None),
    )


def _box(block: Any) -> Box:
    left, top, right, bottom = block.bbox
    return left, top, right, bottom


def _covers(outer: Box, inner: Box) -> bool:
    width = min(outer[2], inner[2]) - max(outer[0], inner[0])
    height = min(outer[3], inner[3]) - max(outer[1], inner[1])
    area = (inner[2] - inner[0]) * (inner[3] - inner[1])
    return width > 0 and height > 0 and width * height > _COVERED * area


def _picture(page: Image.Image, block: Any) -> bytes:
    """The block's crop, turned upright, as JPEG."""
    left, top, right, bottom = block.bbox
    x0, y0 = int(left * page.width), int(top * page.height)
    x1, y1 = max(x0 + 1, round(right * page.width)), max(y0 + 1, round(bottom * page.height))
    crop = page.crop((x0, y0, x1, y1))
    if block.angle in (90, 180, 270):
        crop = crop.rotate(block.angle, expand=True)
    stream = BytesIO()
    crop.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return stream.getvalue()
