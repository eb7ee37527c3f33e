"""The embedded model on pages it never saw: what it reads, and that neither slots nor order change its answers."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from mineru_edge import Reader
from mineru_edge.export.cases import PROMPTS, generated
from mineru_edge.export.tiny.evaluate import evaluate
from mineru_edge.models.bundle import Bundle
from mineru_edge.models.errors import EngineError
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.request import DecodeParams, FinishReason, Request, Result

_KINDS = {"table": "table", "equation": "formula"}


@pytest.fixture(scope="module")
def asked(embedded_bundle: Bundle) -> list[Request]:
    """The layout and every readable block of one page, as the protocol asks."""
    (page,) = generated(1, first_seed=500)
    width, height = page.image.size
    layout = page.image.resize(embedded_bundle.preprocessing.layout_size)
    requests = [Request(layout, PROMPTS["layout"], DecodeParams(600, no_repeat_ngram=100))]
    assert page.blocks
    for kind, (x0, y0, x1, y1) in page.blocks:
        if kind != "list":
            crop = page.image.crop((x0 * width // 1000, y0 * height // 1000, x1 * width // 1000, y1 * height // 1000))
            params = DecodeParams(300, presence_penalty=1.0, frequency_penalty=0.05, no_repeat_ngram=100)
            requests.append(Request(crop, PROMPTS[_KINDS.get(kind, "text")], params))
    assert len(requests) >= 8
    return requests


def answers(bundle: Bundle, requests: Sequence[Request], *, slots: int) -> list[Result]:
    with Engine.open(bundle, slots=slots, threads=1) as engine:
        done = dict(engine.results(requests))
    return [done[index] for index in range(len(requests))]


def test_slots_and_order_do_not_change_an_answer(embedded_bundle: Bundle, asked: list[Request]) -> None:
    alone = answers(embedded_bundle, asked, slots=1)
    assert {result.finish_reason for result in alone} == {FinishReason.stop}
    assert sum(len(result.token_ids) for result in alone) > 200
    for slots, seed in ((4, 0), (4, 1), (3, 2)):
        order = random.Random(seed).sample(range(len(asked)), len(asked))
        together = answers(embedded_bundle, [asked[i] for i in order], slots=slots)
        for place, index in enumerate(order):
            assert together[place].token_ids == alone[index].token_ids, f"request {index} with {slots} slots"


def test_a_slot_that_is_full_ends_its_block_with_length(embedded_bundle: Bundle, asked: list[Request]) -> None:
    longest = max(range(len(asked)), key=lambda i: asked[i].image.width if asked[i].image else 0)
    with Engine.open(embedded_bundle, slots=2, threads=1) as engine:
        ((_, whole),) = engine.results([asked[longest]])
    capacity = whole.prompt_tokens + len(whole.token_ids) // 2
    with Engine.open(embedded_bundle, slots=2, threads=1, capacity_tokens=capacity) as engine:
        address, size = engine.kv.address, engine.kv.nbytes
        ((_, cut),) = engine.results([asked[longest]])
        assert (engine.kv.address, engine.kv.nbytes) == (address, size)
    assert cut.finish_reason is FinishReason.length
    assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
    assert whole.prompt_tokens + len(cut.token_ids) - 1 == capacity


def test_the_sample_page_is_read(sample_pdf: object) -> None:
    with Reader(threads=1) as reader:
        document = reader.read(str(sample_pdf))
    (page,) = document.pages
    assert not document.failures
    assert {"title", "text", "table", "equation"} <= {block.type for block in page.blocks}
    assert document.markdown.startswith("# Coffee Machine Manual")


def test_an_int8_store_reads_the_sample_page_too(sample_pdf: object) -> None:
    with Reader(threads=1, kv="int8") as reader:
        found = reader.read(str(sample_pdf)).markdown
    assert found.startswith("# Coffee Machine Manual")
    assert "press the green button" in found


def test_its_report_card_is_of_the_engine_that_was_asked(embedded_bundle: Bundle) -> None:
    found = evaluate(embedded_bundle.path, [1000], threads=1, engine="onnxruntime")
    assert (found.pages, found.text_blocks, found.tables, found.unfinished) == (1, 7, 1, 0)
    assert found.layout_f1 > 0.8
    assert 0 < found.text_cer < 0.4
    assert found.table_teds > 0.8
    with pytest.raises(EngineError, match="none for openvino"):
        evaluate(embedded_bundle.path, [1000], engine="openvino")
