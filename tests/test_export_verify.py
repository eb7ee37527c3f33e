"""`verify` against transformers: the same model passes in fp32 and INT8, another does not, and all is recorded."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tiny_checkpoint import TinyShape, write_checkpoint

from mineru_edge.export.agreement import Agreement, edits
from mineru_edge.export.calibrate import kv_peaks
from mineru_edge.export.cases import Page, open_page
from mineru_edge.export.exporter import export
from mineru_edge.export.kv8 import write_kv8
from mineru_edge.export.parity import THRESHOLDS, Compared, Divergence, Golden, Parity, boxes_back, layout_boxes
from mineru_edge.export.verify import verify
from mineru_edge.models.bundle import Bundle
from mineru_edge.models.errors import CheckpointError, InputError, ParityError
from mineru_edge.runtime import engines, plan

pytest.importorskip("torch")


def draw_page(width: int = 420, height: int = 300) -> Page:
    """Some marks on grain: the models here are random, what counts is that both sides see the same."""
    grain = np.random.default_rng(2).integers(200, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(grain)
    ImageDraw.Draw(image).text((40, 40), "A line of text, and another", fill="black")
    ImageDraw.Draw(image).rectangle((40, 120, 300, 200), outline="black", width=3)
    blocks = (("text", (50, 100, 900, 260)), ("table", (80, 380, 750, 700)), ("equation", (80, 700, 400, 930)))
    return Page(image, (*blocks, ("image", (0, 0, 100, 100)), ("text", (10, 10, 12, 12))))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two random models with heads of their own, so that answers vary, and the bundles of the first.

    In `both8` and `both32` it is for both engines, in `both8` over both stores.
    """
    folder = tmp_path_factory.mktemp("verify")
    for seed in (3, 4):
        write_checkpoint(folder / f"checkpoint{seed}", TinyShape(), seed=seed, tied=False)
    export(folder / "checkpoint3", folder / "fp32", precision="fp32")
    export(folder / "checkpoint3", folder / "int8")
    export(folder / "checkpoint3", folder / "both32", precision="fp32", format="both")
    both = export(folder / "checkpoint3", folder / "both8", format="both")
    write_kv8(both, kv_peaks(both, [draw_page()], threads=1))
    return folder


def test_fp32_equals_the_reference(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fp32", tmp_path / "b")
    heard: list[tuple[int, int]] = []
    parity = verify(
        folder / "checkpoint3", tmp_path / "b", pages=[draw_page(), draw_page(200, 600)], max_new_tokens=24, threads=1,
        progress=lambda done, total, what: heard.append((done, total)),
    )  # fmt: skip
    parity.check()
    assert [r.kind for r in parity.requests] == ["layout", "text", "table", "formula"] * 2
    assert all(r.tokens == 24 and r.divergence is None and r.positions_equal and r.ids_equal for r in parity.requests)
    measured = parity.measured()
    assert measured["patches_difference"] == 0
    assert measured["vision_error"] < 1e-5
    assert measured["logits_error"] < 1e-5
    assert heard == [(n, 16) for n in range(1, 17)]

    stored = json.loads((tmp_path / "b" / "parity.json").read_text("utf-8"))
    assert stored["passed"]
    assert len(stored["requests"]) == 8
    again = Bundle.load(tmp_path / "b")
    assert "parity.json" in {entry.path for entry in again.files}
    again.verify()


def test_int8_is_within_its_thresholds_up_to_the_first_token(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "int8", tmp_path / "b")
    parity = verify(folder / "checkpoint3", tmp_path / "b", pages=[draw_page()], max_new_tokens=1, threads=1)
    assert parity.precision == "int8"
    measured = parity.measured()
    assert 1e-3 < measured["vision_error"] < THRESHOLDS["int8"].vision_error
    assert 1e-3 < measured["logits_error"] < THRESHOLDS["int8"].logits_error


def test_other_weights_miss_the_thresholds(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fp32", tmp_path / "b")
    parity = verify(folder / "checkpoint4", tmp_path / "b", pages=[draw_page().image], max_new_tokens=6, threads=1)
    with pytest.raises(ParityError, match="vision_error is"):
        parity.check()
    assert not json.loads((tmp_path / "b" / "parity.json").read_text("utf-8"))["passed"]
    assert any(r.divergence is not None for r in parity.requests)
    Bundle.load(tmp_path / "b").verify()


def test_a_bundle_of_another_shape_is_refused(folder: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "other", TinyShape(layers=1))
    with pytest.raises(CheckpointError, match="another model"):
        verify(tmp_path / "other", folder / "fp32", pages=[draw_page()])


def test_pages_may_be_paths_of_pictures(tmp_path: Path) -> None:
    page = draw_page().image
    page.save(tmp_path / "page.png")
    np.testing.assert_array_equal(np.asarray(open_page(tmp_path / "page.png").image), np.asarray(page))
    (tmp_path / "no.png").write_text("no picture")
    for path in (tmp_path / "no.png", tmp_path / "nowhere.png"):
        with pytest.raises(InputError, match=path.name):
            open_page(path)


@pytest.mark.parametrize(
    ("a", "b", "count"),
    [([], [], 0), ([1, 2, 3], [1, 2, 3], 0), ([1, 2, 3], [1, 3], 1), ([1, 2], [2, 1, 2], 1), ([1, 2, 3], [4, 5], 3)],
)
def test_edits(a: list[int], b: list[int], count: int) -> None:
    assert edits(a, b) == edits(b, a) == count


def test_layout_boxes_are_read_and_nonsense_is_skipped() -> None:
    line = "<|box_start|>010 020 900 999<|box_end|><|ref_start|>page_number<|ref_end|><|rotate_up|>"
    assert layout_boxes(f"{line}\nnonsense\n{line}") == [("page_number", 10, 20, 900, 999)] * 2
    assert layout_boxes("<|box_start|>010 020 900<|box_end|><|ref_start|>text<|ref_end|>") == []


def test_a_box_is_back_when_type_and_place_agree() -> None:
    one, two = ("text", 100, 100, 200, 200), ("title", 100, 300, 200, 400)
    near, elsewhere = ("text", 100, 100, 200, 190), ("text", 600, 100, 700, 200)
    assert boxes_back([one, two], [two, one], 1.0) == (2, 2)
    assert boxes_back([one], [near], 1.0) == (0, 1)
    assert boxes_back([one], [near], 0.7) == (1, 1)
    assert boxes_back([one], [elsewhere, near], 0.7) == (1, 2)
    assert boxes_back([one, one], [one], 1.0) == (1, 2)
    assert boxes_back([one], [("table", 100, 100, 200, 200)], 0.0001) == (0, 1)
    assert boxes_back([], [], 1.0) == (0, 0)


GOOD = Compared(
    page=0, kind="layout", patches=16, prompt_tokens=20, patches_difference=0.0, vision_error=1e-6, logits_error=1e-6,
    positions_equal=True, ids_equal=True, tokens=100, edits=0, divergence=None, boxes=(3, 3),
)  # fmt: skip
ENGINES = (("vision", "onnxruntime"), ("decoder", "openvino"))
SPLIT = Divergence(at=7, reference=65, exported=66, margin=0.25, second=True)


def parity(*requests: Compared) -> Parity:
    return Parity("fp32", requests, (Golden("text", "", "p", 8, (1, 2), 0.5),), (("torch", "2"),), ENGINES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vision_error": 2e-4}, "vision_error is 0.0002, at most 0.0001 is allowed"),
        ({"vision_error": float("nan")}, "vision_error"),
        ({"patches_difference": float("inf")}, "patches_difference is inf"),
        ({"edits": 1}, "token_error is 0.005"),
        ({"divergence": SPLIT}, "divergence_margin is 0.25"),
        ({"divergence": SPLIT}, "equal_share is 0.5, at least 1 is allowed"),
        ({"boxes": (2, 3)}, "boxes_share is 0.833"),
        ({"positions_equal": False}, "1 requests have other positions"),
        ({"ids_equal": False}, "1 prompts have other ids"),
    ],
)
def test_each_threshold_is_held(change: dict[str, object], said: str) -> None:
    assert parity(GOOD, GOOD).missed() == []
    with pytest.raises(ParityError, match=said):
        parity(GOOD, replace(GOOD, **change)).check()  # type: ignore[arg-type]


def test_the_table_names_the_divergence() -> None:
    table = parity(GOOD, replace(GOOD, divergence=SPLIT, boxes=(2, 3))).table()
    assert "page 0 layout: token 7 of 100 is 66, not 65: the second best, margin 0.25" in table
    assert "5/6" in table
    assert "within the thresholds for fp32" in parity(GOOD).table()


def test_parity_survives_json() -> None:
    stored = json.loads(json.dumps(parity(GOOD).to_json()))
    assert stored["measured"].keys() == stored["thresholds"].keys()
    assert stored["golden"][0]["ids"] == [1, 2]
    assert stored["engines"] == {"vision": "onnxruntime", "decoder": "openvino"}
    assert stored["other_engines"] is stored["kv8"] is None


def test_answers_are_compared_one_by_one() -> None:
    found = Agreement.between([(1, 2, 3), (4,), (), (5, 6)], [(1, 3), (4,), (7,), (5, 6)], ENGINES)
    assert found == Agreement(ENGINES, requests=4, equal=2, tokens=6, edits=2)
    assert found.share == pytest.approx(4 / 6)
    assert found.to_json()["share"] == found.share
    assert Agreement.between([()], [()], ENGINES).share == 1


BY_OPENVINO = (("vision", "openvino"), ("decoder", "openvino"))
BY_ONNXRUNTIME = (("vision", "onnxruntime"), ("decoder", "onnxruntime"))


@pytest.mark.parametrize(
    ("engine", "first", "second"),
    [
        ("openvino", BY_OPENVINO, BY_ONNXRUNTIME),
        ("vision=onnxruntime,decoder=openvino", ENGINES, (("vision", "openvino"), ("decoder", "onnxruntime"))),
    ],
)
def test_in_fp32_the_other_engine_gives_the_same(
    folder: Path, tmp_path: Path, engine: str, first: object, second: object
) -> None:
    shutil.copytree(folder / "both32", tmp_path / "b")
    parity = verify(
        folder / "checkpoint3", tmp_path / "b", pages=[draw_page()], max_new_tokens=12, threads=1, engine=engine
    )
    parity.check()
    assert parity.engines == first
    assert parity.other_engines == Agreement(second, requests=4, equal=4, tokens=48, edits=0)  # type: ignore[arg-type]
    assert {"onnxruntime", "openvino"} <= dict(parity.tools).keys()
    assert "the other engines, vision o" in parity.table()
    stored = json.loads((tmp_path / "b" / "parity.json").read_text("utf-8"))
    assert stored["engines"] == dict(parity.engines)
    assert stored["other_engines"] == {
        "engines": dict(second), "requests": 4, "equal": 4, "tokens": 48, "edits": 0, "share": 1.0  # type: ignore[call-overload]
    }  # fmt: skip


def test_an_int8_store_is_compared_with_an_f32_one_of_its_own_engine(folder: Path, tmp_path: Path) -> None:
    """Whichever engine answers first: the two stores differ in nothing else. And no request is asked twice."""
    heard: list[tuple[int, int]] = []

    def verified(engine: str) -> Parity:
        shutil.copytree(folder / "both8", tmp_path / engine)
        return verify(
            folder / "checkpoint3", tmp_path / engine, pages=[draw_page()], max_new_tokens=24, threads=1, engine=engine,
            progress=lambda done, total, what: heard.append((done, total)),
        )  # fmt: skip

    ort, ov = verified("onnxruntime"), verified("openvino")
    assert heard == [(n, 16) for n in range(1, 17)] * 2  # four requests: reference, both engines, int8 store
    assert ov.kv8 == ort.kv8
    assert ort.kv8 is not None
    assert (ort.kv8.engines, ort.kv8.requests, ort.kv8.tokens) == (BY_ONNXRUNTIME, 4, 96)
    assert ort.other_engines is not None
    assert ov.other_engines is not None
    assert ov.other_engines.edits == ort.other_engines.edits > 0  # the same two answers, the other way round
    assert "int8 keys and values against f32 ones, vision onnxruntime, decoder onnxruntime: " in ov.table()
    assert json.loads((tmp_path / "openvino" / "parity.json").read_text("utf-8"))["kv8"]["tokens"] == 96


def test_with_one_engine_nothing_is_said_of_another(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "both32", tmp_path / "b")
    monkeypatch.setattr(engines, "_installed", lambda: ("onnxruntime",))
    parity = verify(folder / "checkpoint3", tmp_path / "b", pages=[draw_page()], max_new_tokens=2, threads=1)
    assert (parity.engines, parity.other_engines) == (BY_ONNXRUNTIME, None)
    assert "openvino" not in dict(parity.tools)
    assert "the other engines" not in parity.table()


def test_an_engine_that_does_not_fit_the_memory_costs_its_own_figure_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reference is in memory as well, and has taken minutes."""
    shutil.copytree(folder / "both32", tmp_path / "b")
    monkeypatch.setattr(plan, "available_bytes", lambda: 500_000_000)
    parity = verify(
        folder / "checkpoint3", tmp_path / "b", pages=[draw_page()], max_new_tokens=2, threads=1, engine="onnxruntime"
    )
    parity.check()
    assert parity.other_engines is None
    assert "not compared with vision=openvino,decoder=openvino: needs " in caplog.text
