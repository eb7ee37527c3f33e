"""The synthetic pages: one per seed, with a truth that matches the pixels, and samples that match the runtime."""

from __future__ import annotations

import numpy as np
import pytest
from mineru_vl_utils.mineru_client import DEFAULT_PROMPTS, DEFAULT_SAMPLING_PARAMS, MinerUClientHelper
from PIL import Image

from mineru_edge.export.tiny import draw, pages, sample, samples, tokenizer
from mineru_edge.models.bundle import Bundle
from mineru_edge.runtime.patches import patchify, smart_resize
from mineru_edge.runtime.positions import prompt_positions

SEEDS = range(8)


@pytest.fixture(scope="module")
def drawn() -> list[pages.TruthPage]:
    return [pages.generate_page(seed) for seed in SEEDS]


def test_a_seed_is_a_page(drawn: list[pages.TruthPage]) -> None:
    again = pages.generate_page(SEEDS[3])
    assert again.image.tobytes() == drawn[3].image.tobytes()
    assert again.blocks == drawn[3].blocks
    assert len({page.image.tobytes() for page in drawn}) == len(drawn)


def test_boxes_hold_the_ink(drawn: list[pages.TruthPage]) -> None:
    for page in drawn:
        ink = np.asarray(page.image.convert("L"), np.int16) < 120
        width, height = page.image.size
        for block in page.blocks:
            x0, y0, x1, y1 = block.bbox
            assert 0 <= x0 < x1 <= 999
            assert 0 <= y0 < y1 <= 999
            ink[y0 * height // 1000 : y1 * height // 1000 + 1, x0 * width // 1000 : x1 * width // 1000 + 1] = False
        assert not ink.any(), f"ink outside every box of page {page.seed}"


def test_every_kind_of_block_is_drawn() -> None:
    seen = {block.type for seed in range(40) for block in pages.generate_page(seed).blocks}
    assert seen == {"text", "title", "table", "equation", "header", "footer", "page_number", "list"}


def test_the_protocol_reads_the_layout_answer(drawn: list[pages.TruthPage]) -> None:
    helper = MinerUClientHelper(
        backend="mineru-edge",
        prompts=DEFAULT_PROMPTS,
        sampling_params=DEFAULT_SAMPLING_PARAMS,
        layout_image_size=samples.LAYOUT_PX,
        min_image_edge=28,
        max_image_edge_ratio=50,
        simple_post_process=True,
        handle_equation_block=False,
        abandon_list=False,
        abandon_paratext=False,
        image_analysis=False,
        debug=False,
    )
    for page in drawn:
        found = helper.parse_layout_output(page.layout)
        assert [(b.type, tuple(round(v * 1000) for v in b.bbox), b.angle) for b in found] == [
            (b.type, b.bbox, 0) for b in page.blocks
        ]


def test_pieces_stand_inside_their_block(drawn: list[pages.TruthPage]) -> None:
    for page in drawn:
        for block in page.drawn:
            x0, y0, x1, y1 = block.box
            for piece in block.pieces:
                assert piece.x != piece.x or (x0 <= piece.x <= x1 and y0 <= piece.y <= y1), (page.seed, piece)


def test_a_prompt_costs_thirteen_tokens_and_text_is_bytes() -> None:
    built = tokenizer.build()
    assert built.get_vocab_size() <= tokenizer.VOCAB
    prompt = (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
        "<|vision_end|>\nText Recognition:<|im_end|>\n<|im_start|>assistant\n"
    )
    assert len(built.encode(prompt).ids) == 13
    text = "Größe 12 €\n<fcel>a<nl>"
    ids = built.encode(text).ids
    assert len(ids) == len("Größe 12 €\na".encode()) + 2
    assert built.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("size", [(600, 30), (41, 41), (42, 70), (98, 14), (827, 1166), (3000, 2000), (5, 5)])
def test_samples_are_resized_as_the_runtime_does(size: tuple[int, int], embedded_bundle: Bundle) -> None:
    pre = embedded_bundle.preprocessing
    height, width = smart_resize(size[1], size[0], factor=28, min_pixels=pre.min_pixels, max_pixels=pre.max_pixels)
    assert samples.smart_size(*size) == (width, height)


def test_samples_hold_what_the_runtime_would_compute(embedded_bundle: Bundle) -> None:
    page = pages.generate_page(2)
    for made in samples.page_samples(2, layout=True, content=True)[:4]:
        count = len(made.grey)
        rows, cols = (int(v) + 1 for v in made.grid.max(0))
        start = len(samples.BEFORE)
        assert list(made.ids[start : start + count // 4]) == [samples.IMAGE] * (count // 4)
        assert made.ids[-1] == samples.EOS
        assert len(made.cells) == len(made.ids) - made.answer_from
        expected = prompt_positions(start, rows // 2, cols // 2, len(made.ids) - start - count // 4)
        assert np.array_equal(made.positions, expected.axes)
    layout = samples.page_samples(2, layout=True, content=False)[0]
    small = page.image.resize(samples.LAYOUT_PX, Image.Resampling.BICUBIC)
    seen = patchify(small, embedded_bundle.preprocessing, embedded_bundle.vision)
    mean, std = (
        np.array(v, np.float32) for v in (embedded_bundle.preprocessing.mean, embedded_bundle.preprocessing.std)
    )
    values = (layout.grey[:, None].astype(np.float32) / 255 - mean[:, None]) / std[:, None]
    assert np.allclose(
        seen.values, values.reshape(len(values), -1), atol=1 / 255 / 0.26 + 1e-4
    )  # resized in grey: one level


def test_the_sample_page_fits() -> None:
    image, blocks = sample.compose()
    assert image.size == pages.PAGE_PX
    for block in blocks:
        x0, y0, x1, y1 = block.box
        assert x0 >= 0
        assert y0 >= 0
        assert x1 <= image.width
        assert y1 <= image.height
    assert [b.type for b in blocks if b.content] == [
        "header", "title", "text", "title", "text", "table", "equation", "text", "page_number",
    ]  # fmt: skip
    assert min(b.box[3] - b.box[1] for b in blocks) > draw.PAD_PX
