"""No growth: 300 requests of 100 shapes leave the process where it was after warm-up."""

from __future__ import annotations

from pathlib import Path

import pytest

from mineru_edge import cli, cli_bench
from mineru_edge.export.exporter import export
from mineru_edge.models.bundle import Format
from mineru_edge.runtime.engine import Engine
from mineru_edge.soak import MOST_GROWTH_BYTES, WARM_UP, growth_bytes, soak


def test_growth_is_the_slope_after_warm_up() -> None:
    assert growth_bytes([*range(0, 10_000 * WARM_UP, 10_000), *[5_000_000] * 60]) == pytest.approx(0, abs=1)
    assert growth_bytes([1000 * n for n in range(100)]) == pytest.approx(1000)
    assert growth_bytes([5_000_000] * (WARM_UP + 8)) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("form", ["onnx", "openvino"])
def test_memory_does_not_grow(form: Format, embedded_checkpoint: Path, tmp_path: Path) -> None:
    bundle = export(embedded_checkpoint, tmp_path / "bundle", format=form)
    with Engine.open(bundle, slots=4, threads=1) as engine:
        found = [sample for sample in soak(engine, 260, shapes=100, longest_px=280) if sample is not None]
    if not found:
        pytest.skip("this system does not tell how much private memory a process has")
    assert len(found) == 300
    assert growth_bytes(found) < MOST_GROWTH_BYTES


@pytest.mark.parametrize(("growth", "code"), [(0.0, 0), (MOST_GROWTH_BYTES + 1.0, 1)])
def test_the_command_fails_on_growth(
    growth: float, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_bench, "SOAK_PX", 56)
    monkeypatch.setattr(cli_bench, "growth_bytes", lambda samples: growth)
    assert cli.main(["bench", "--soak", "8", "--threads", "1"]) == code
    assert "8 requests after 40 to warm up: " in capsys.readouterr().out
