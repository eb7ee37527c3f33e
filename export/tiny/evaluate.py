"""The embedded model's report card: a bundle against the truth of pages it never saw, through the runtime devices use.

Four numbers on true boxes (what the model reads), one from its own layout (what a user gets):

* layout F1: a found block counts when its type is right and its box overlaps a true one with IoU of 0.7 or more;
* character error rate of text blocks: Levenshtein distance over true characters (Levenshtein 1966; jiwer's definition);
* table TEDS (Zhong et al. 2020, by docling-metrics-table) and formula edit distance over the longer string
(OmniDocBench's);
* character error rate of whole pages: each true text block against the answer for the found block that overlaps it
most.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from docling_metrics_table.utils.teds import TEDScorer
from loguru import logger
from lxml import html
from mineru_vl_utils.mineru_client import DEFAULT_PROMPTS, DEFAULT_SAMPLING_PARAMS, MinerUClientHelper
from mineru_vl_utils.post_process.otsl2html import convert_otsl_to_html
from mineru_vl_utils.structs import ContentBlock
from PIL import Image
from rapidfuzz.distance import Levenshtein

from mineru_edge.export.parity import iou
from mineru_edge.models.bundle import Bundle
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.engines import AUTO
from mineru_edge.runtime.request import DecodeParams, Request

from .pages import TruthPage, generate_page

IOU = 0.7
MAX_NEW_TOKENS = 1500
TEXT_TYPES = frozenset({"text", "title", "header", "footer", "page_number"})

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Report:
    """Rates are shares of 1. ``unfinished`` counts answers that did not end with ``stop``."""

    pages: int
    layout_f1: float
    text_cer: float
    table_teds: float
    formula_distance: float
    page_text_cer: float
    text_blocks: int
    text_blocks_exact: float
    tables: int
    formulas: int
    unfinished: int

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def evaluate(
    bundle: str | os.PathLike[str],
    seeds: Sequence[int],
    *,
    slots: int = 8,
    threads: int | None = None,
    engine: str = AUTO,
) -> Report:
    """Ask for the layout of each page and for every block in its true box, then for the blocks of the found layout.

    `engine` is chosen as for a `Reader`.
    """
    logger.disable("mineru_vl_utils")
    opened = Bundle.load(bundle)
    helper = MinerUClientHelper(
        backend="mineru-edge",
        prompts=DEFAULT_PROMPTS,
        sampling_params=DEFAULT_SAMPLING_PARAMS,
        layout_image_size=opened.preprocessing.layout_size,
        min_image_edge=28,
        max_image_edge_ratio=50,
        simple_post_process=True,
        handle_equation_block=False,
        abandon_list=False,
        abandon_paratext=False,
        image_analysis=False,
        debug=False,
    )
    tally = _Tally()
    with Engine.open(opened, slots=slots, threads=threads, engine=engine) as reading:
        for seed in seeds:
            _page(reading, helper, generate_page(seed), tally)
    return tally.report(len(seeds))


def _page(engine: Engine, helper: MinerUClientHelper, page: TruthPage, tally: _Tally) -> None:
    layout = Request(helper.prepare_for_layout(page.image), DEFAULT_PROMPTS["[layout]"], _params("[layout]"))
    (answer,) = [result for _, result in engine.results([layout])]
    tally.unfinished += answer.finish_reason.value != "stop"
    found = helper.parse_layout_output(answer.text)
    true = [ContentBlock(b.type, [v / 1000 for v in b.bbox], angle=0) for b in page.blocks]
    tally.layout(found, true)
    read, seen = _read(engine, helper, page.image, true, tally), _read(engine, helper, page.image, found, tally)
    for index, block in enumerate(page.blocks):
        if block.content is None:
            continue
        tally.content(block.type, block.content, read.get(index, ""))
        if block.type in TEXT_TYPES:
            best = max(seen, key=lambda i: iou(found[i].bbox, true[index].bbox), default=None)
            said = "" if best is None or iou(found[best].bbox, true[index].bbox) < 0.3 else seen[best]
            tally.page_edits += Levenshtein.distance(said, block.content)
            tally.page_characters += len(block.content)


def _read(
    engine: Engine, helper: MinerUClientHelper, image: Image.Image, blocks: list[ContentBlock], tally: _Tally
) -> dict[int, str]:
    crops, prompts, _, indices = helper.prepare_for_extract(image, blocks)
    requests = [
        Request(crop, prompt, _params(blocks[i].type)) for crop, prompt, i in zip(crops, prompts, indices, strict=True)
    ]
    texts: dict[int, str] = {}
    for number, result in engine.results(requests):
        tally.unfinished += result.finish_reason.value != "stop"
        texts[indices[number]] = result.text
    return texts


def _params(kind: str) -> DecodeParams:
    sampling = DEFAULT_SAMPLING_PARAMS.get(kind) or DEFAULT_SAMPLING_PARAMS["[default]"]
    return DecodeParams(
        MAX_NEW_TOKENS,
        presence_penalty=sampling.presence_penalty or 0.0,
        frequency_penalty=sampling.frequency_penalty or 0.0,
        no_repeat_ngram=sampling.no_repeat_ngram_size or 0,
    )


class _Tally:
    """Sums over pages."""

    def __init__(self) -> None:
        self.found = self.true = self.matched = 0
        self.text_edits = self.text_characters = self.text_blocks = self.text_exact = 0
        self.page_edits = self.page_characters = self.unfinished = 0
        self.teds: list[float] = []
        self.distances: list[float] = []
        self._scorer = TEDScorer()

    def layout(self, found: list[ContentBlock], true: list[ContentBlock]) -> None:
        free = list(true)
        self.found += len(found)
        self.true += len(true)
        for block in found:
            match = max((t for t in free if t.type == block.type), key=lambda t: iou(t.bbox, block.bbox), default=None)
            if match is not None and iou(match.bbox, block.bbox) >= IOU:
                free.remove(match)
                self.matched += 1

    def content(self, kind: str, true: str, said: str) -> None:
        if kind == "table":
            wanted, got = (html.fromstring(convert_otsl_to_html(t) or "<table></table>") for t in (true, said))
            self.teds.append(max(0.0, self._scorer.teds(wanted, got, structure_only=False)))
        elif kind == "equation":
            self.distances.append(Levenshtein.normalized_distance(said, true))
        else:
            self.text_edits += Levenshtein.distance(said, true)
            self.text_characters += len(true)
            self.text_blocks += 1
            self.text_exact += said == true

    def report(self, pages: int) -> Report:
        def mean(values: list[float]) -> float:
            return sum(values) / len(values) if values else 0.0

        return Report(
            pages=pages,
            layout_f1=2 * self.matched / max(1, self.found + self.true),
            text_cer=self.text_edits / max(1, self.text_characters),
            table_teds=mean(self.teds),
            formula_distance=mean(self.distances),
            page_text_cer=self.page_edits / max(1, self.page_characters),
            text_blocks=self.text_blocks,
            text_blocks_exact=self.text_exact / max(1, self.text_blocks),
            tables=len(self.teds),
            formulas=len(self.distances),
            unfinished=self.unfinished,
        )
