"""The benchmark measures what it says; its output is read back by `--vs`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mineru_edge import bench, bench_report, cli
from mineru_edge.bench import Case, PageSplit
from mineru_edge.machine import this_machine
from mineru_edge.models.bundle import Bundle
from mineru_edge.models.errors import EngineError, InputError
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.request import FinishReason


@pytest.fixture(scope="module")
def engine(embedded_bundle: Bundle) -> Iterator[Engine]:
    with Engine.open(embedded_bundle, slots=2, threads=1) as opened:
        yield opened


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "REQUEST_PX", ((56, 84),))
    monkeypatch.setattr(bench, "DECODE_PAST", 100)
    monkeypatch.setattr(bench, "PAGE_PX", (300, 400))
    monkeypatch.setattr(bench, "LAYOUT_TOKENS", 12)
    monkeypatch.setattr(bench, "CROPS_PX", ((112, 56), (84, 84), (56, 28)))


def case(name: str = "1 slot", *, seconds: float = 2.0, private: int | None = 100) -> Case:
    return Case("decode", name, seconds, 64, "tokens", 3, private, 200, 300)


@pytest.mark.usefixtures("short")
def test_every_kind_is_measured(engine: Engine) -> None:
    results = list(bench.cases(engine, repeats=2))
    assert [r.kind if isinstance(r, Case) else "split" for r in results] == [
        "vision", "prefill", "request", "decode", "decode", "page", "split",
    ]  # fmt: skip
    vision, prefill, request, one, two, page, split = results
    assert isinstance(vision, Case)
    assert (vision.units, vision.unit, vision.repeats) == (4 * 6, "patches", 2)
    assert isinstance(prefill, Case)
    assert prefill.units > 4 * 6 // 4  # the picture's tokens and the prompt's
    assert isinstance(request, Case)
    assert max(vision.seconds, prefill.seconds) < request.seconds
    assert isinstance(one, Case)
    assert isinstance(two, Case)
    assert (one.units, two.units) == (bench.DECODE_STEPS, 2 * bench.DECODE_STEPS)
    assert 100 <= int(one.name.rsplit(" ", 1)[1]) < 140
    assert isinstance(page, Case)
    assert page.units == 3 * bench.CROP_TOKENS
    assert isinstance(split, PageSplit)
    spent = split.raster_s + split.vision_s + split.prefill_s + split.decode_s
    assert spent == pytest.approx(page.seconds)
    assert min(split.raster_s, split.vision_s, split.prefill_s, split.decode_s) > 0
    assert split.first_token_s < page.seconds
    assert split.tokens_per_s == pytest.approx(page.rate)
    assert engine.idle


@pytest.mark.usefixtures("short")
def test_only_the_kinds_asked_for(engine: Engine) -> None:
    assert {r.kind for r in bench.cases(engine, repeats=1, kinds=("prefill",)) if isinstance(r, Case)} == {"prefill"}


def test_a_request_that_fails_is_an_error_not_a_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise EngineError("bad_alloc")

    monkeypatch.setattr(engine.model._graphs.vision, "run", fail)
    with pytest.raises(EngineError, match=f"{FinishReason.error.value}: bad_alloc"):
        list(bench.cases(engine, repeats=1, kinds=("vision",)))
    assert engine.idle


def test_the_last_line_is_read_back_as_ratios(tmp_path: Path) -> None:
    line = bench_report.to_json(
        [case()], this_machine(), threads=2, bundle="m", plan={}, open_s=0.5, work=bench.page_work((10, 20))
    )
    assert "\n" not in line
    (tmp_path / "before.txt").write_text(f"a table\n{line}\n", encoding="utf-8")
    before = bench_report.earlier(str(tmp_path / "before.txt"))
    now = [case(seconds=1.0, private=50), case("2 slots"), PageSplit(1, 1, 1, 1, 1, 1)]
    _, *rows = bench_report.ratios(now, before)
    assert [row.split() for row in rows] == [["decode", "1", "slot", "2.00", "0.50"]]


@pytest.mark.parametrize("text", ["", "no JSON\n", "{\n", '{"cases": [{}]}\n', '{"other": 1}\n', '{"cases": 3}\n'])
def test_a_file_without_a_benchmark_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="holds no benchmark"):
        bench_report.earlier(str(tmp_path / "x"))


def test_a_row_has_its_rate_and_unknown_memory_is_a_question_mark() -> None:
    row = bench_report.row(case(private=None)).split()
    assert row[:6] == ["decode", "1", "slot", "2.000", "32.0", "tokens/s"]
    assert row[6:8] == ["?", "0"]


@pytest.mark.usefixtures("short")
def test_the_command_prints_a_table_and_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--only", "vision", "--repeats", "1", "--threads", "1", "--slots", "1"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)
    assert any(line.startswith("vision   56 x 84") for line in table)
    assert [c["kind"] for c in found["cases"]] == ["vision"]
    assert found["threads"] == 1
    assert found["plan"]["slots"] == 1
    assert found["page"] is None
    assert found["open_s"] > 0
    assert found["work"]["crops_px"] == [[112, 56], [84, 84], [56, 28]]


def test_a_missing_earlier_file_stops_before_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--vs", "nowhere.txt"]) == InputError.exit_code
    assert capsys.readouterr().out == ""


def test_the_machine_is_told_from_proc(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2 avx_vnni\n")
    (tmp_path / "meminfo").write_text("MemTotal:        2048 kB\nMemFree: 1 kB\n")
    found = this_machine(cpuinfo=tmp_path / "cpuinfo", meminfo=tmp_path / "meminfo")
    assert (found.cpu, found.features, found.memory_bytes) == ("Some CPU @ 2 GHz", ("avx2", "avx_vnni"), 2048 * 1024)
    arm = tmp_path / "arm"
    arm.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\nModel\t\t: A board\n")
    assert this_machine(cpuinfo=arm).cpu == "A board"
    assert this_machine(cpuinfo=arm).features == ("asimddp", "i8mm")
    assert this_machine(cpuinfo=tmp_path / "none", meminfo=tmp_path / "none").memory_bytes is None
