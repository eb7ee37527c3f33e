"""Reading without the model's layout pass: what is asked of the model, what blocks say, what is refused."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_engine import LAYOUT_PROMPT, ONE_TEXT, FakeEngine
from pdf_text import text
from PIL import Image
from quick_fakes import FakeDetector, FakeOcr
from small_pdf import pdf
from test_torch_free import BLOCK, PARSE

from mineru_edge import detector as detector_module
from mineru_edge import ocr as ocr_module
from mineru_edge import reader as reader_module
from mineru_edge.detector import Found
from mineru_edge.models.errors import BudgetError, EngineError, MineruEdgeError
from mineru_edge.quick import BESIDE, opening
from mineru_edge.reader import Reader
from mineru_edge.runtime.plan import NOTHING

Open = Callable[..., Reader]
UPPER, LOWER = (0.05, 0.05, 0.95, 0.3), (0.05, 0.5, 0.95, 0.8)
TABLE = "<table><tr><td>t</td></tr></table>"
PAGE = pdf(text("Own words", y=170) + text("1 2 3", y=80))


@pytest.fixture
def ocr(monkeypatch: pytest.MonkeyPatch) -> FakeOcr:
    """Every Reader's detector finds text above a table, and its OCR says two lines."""
    fake = FakeOcr([("seen above", (40, 40, 300, 60)), ("seen below", (40, 230, 300, 250))])
    found = [Found("text", UPPER, 0.9), Found("table", LOWER, 0.9)]
    monkeypatch.setattr(detector_module, "Detector", lambda *, threads: FakeDetector(found))
    monkeypatch.setattr(ocr_module, "Ocr", lambda *, threads: fake)
    return fake


@pytest.mark.parametrize(
    ("options", "content", "source", "prompts"),
    [
        ({"quick": True}, "Own words", "layer", ["Table"]),
        ({"layout": "detector"}, "Own words", "layer", ["Table"]),
        ({"layout": "detector", "text": "ocr"}, "seen above", "ocr", ["Table"]),
        ({"layout": "detector", "text": "model"}, "asked", "model", ["Text", "Table"]),
    ],
)
def test_the_detector_finds_and_the_one_asked_for_reads(
    open_reader: Open, ocr: FakeOcr, options: dict[str, Any], content: str, source: str, prompts: list[str]
) -> None:
    engine = FakeEngine([], lambda request: "asked")
    (page,) = open_reader(engine, dpi=144, **options).read(PAGE).pages
    assert [request.prompt.strip().split()[0] for request in engine.submitted] == prompts
    above, table = page.blocks
    assert (above.content, above.source, above.found_by) == (content, source, "detector")
    assert (table.type, table.source, table.found_by) == ("table", "model", "detector")
    assert page.layout is None
    assert above.to_dict()["found_by"] == "detector"


def test_a_scan_is_read_by_ocr_only_when_quick(open_reader: Open, ocr: FakeOcr) -> None:
    scan = Image.new("RGB", (400, 400), "white")
    (page,) = open_reader(FakeEngine([], ["<fcel>t<nl>"]), quick=True).read(scan).pages
    assert [(block.content, block.source) for block in page.blocks] == [("seen above", "ocr"), (TABLE, "model")]
    (page,) = open_reader(FakeEngine([], ["a", "<fcel>t<nl>"]), layout="detector").read(scan).pages
    assert [(block.content, block.source) for block in page.blocks] == [("a", "model"), (TABLE, "model")]


def test_with_the_models_layout_ocr_reads_its_blocks_and_the_model_what_ocr_does_not_see(
    open_reader: Open, ocr: FakeOcr
) -> None:
    engine = FakeEngine([ONE_TEXT + "\n" + ONE_TEXT.replace("100 100 900 200", "100 800 900 900")], ["by the model"])
    (page,) = open_reader(engine, text="ocr").read(Image.new("RGB", (400, 400))).pages
    assert engine.submitted[0].prompt == LAYOUT_PROMPT
    assert [(block.content, block.source, block.found_by) for block in page.blocks] == [
        ("seen above", "ocr", "model"),
        ("by the model", "model", "model"),
    ]


def test_a_run_that_asked_for_the_model_never_sees_the_detector(
    open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rapid_layout", None)
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    (page,) = open_reader(FakeEngine([ONE_TEXT], ["read"])).read(Image.new("RGB", (400, 400))).pages
    assert [(block.source, block.found_by) for block in page.blocks] == [("model", "model")]


def test_the_model_is_opened_when_the_first_table_comes(
    open_reader: Open, ocr: FakeOcr, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[dict[str, Any]] = []
    reader = open_reader(FakeEngine(), quick=True)
    monkeypatch.setattr(
        reader_module, "_open_engine", lambda *_, **options: opened.append(options) or FakeEngine([], ["t"])
    )
    monkeypatch.setattr(FakeDetector, "blocks", lambda *_: [Found("text", UPPER, 0.9)])
    assert reader.read(pdf(text("Own words", y=170))).markdown == "Own words\n"
    assert opened == []
    monkeypatch.setattr(FakeDetector, "blocks", lambda *_: [Found("table", LOWER, 0.9)])
    reader.read(PAGE)
    assert len(opened) == 1


def test_the_plan_counts_it_and_too_small_a_limit_is_known_at_once(open_reader: Open, ocr: FakeOcr) -> None:
    plan = open_reader(FakeEngine(), quick=True, memory_limit="2G").plan
    assert plan.bytes_of("beside the model") == BESIDE.kept_bytes
    assert plan.bytes_of("vision or decoding at work") >= BESIDE.work_bytes
    with pytest.raises(BudgetError):
        open_reader(FakeEngine(), quick=True, memory_limit="200M")
    assert NOTHING.kept_bytes == NOTHING.work_bytes == 0


def test_a_page_that_the_detector_fails_on_costs_itself(
    open_reader: Open, ocr: FakeOcr, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([RuntimeError("bad_alloc"), [Found("text", UPPER, 0.9)]])

    def blocks(*_: object) -> list[Found]:
        given = next(seen)
        if isinstance(given, Exception):
            raise given
        return given

    monkeypatch.setattr(FakeDetector, "blocks", blocks)
    first, second = open_reader(FakeEngine(), quick=True).read(pdf(text("one"), text("two"))).pages
    assert first.failures == ("page 1: its blocks could not be found: RuntimeError('bad_alloc')",)
    assert [block.content for block in second.blocks] == ["two"]


@pytest.mark.parametrize(
    "options",
    [
        {"quick": True, "text": "ocr"},
        {"text": "layer", "layout": "detector"},
        {"layout": "paddle"},
        {"text": "tesseract"},
    ],
)
def test_options_that_mean_nothing_together_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(MineruEdgeError):
        Reader(**options)


@pytest.mark.parametrize("options", [{"quick": True}, {"text": "ocr"}, {"layout": "detector"}])
def test_a_missing_extra_is_named_before_the_first_page(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "rapid_layout", None)
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(EngineError, match=r"pip install 'mineru-edge\[quick\]'"):
        Reader(**options)


def test_a_library_of_windows_that_is_missing_has_its_own_cure() -> None:
    with pytest.raises(EngineError, match="opencv-python-headless"), opening("OCR"):
        raise ImportError("libGL.so.1: cannot open shared object file")
    assert logging.root.manager.disable == logging.NOTSET


def test_the_sample_page_is_read_offline_without_a_word_on_stderr(sample_pdf: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", BLOCK + PARSE, "parse", str(sample_pdf), "--quick", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (run.returncode, run.stderr) == (0, "")
    blocks = json.loads(run.stdout)["pages"][0]["blocks"]
    said = " ".join(block["content"] for block in blocks if block["source"] == "ocr")
    assert "This machine makes coffee in two minutes." in said
    assert {block["found_by"] for block in blocks} <= {"detector", "ocr"}
