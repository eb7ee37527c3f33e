"""The memory limit is held by the system: a request that passes it fails alone. In a process of its own, for the limit
is the process's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mineru_edge.export.exporter import export
from mineru_edge.models.bundle import Bundle, Format
from mineru_edge.models.errors import BudgetError
from mineru_edge.runtime import ceiling
from mineru_edge.runtime.ceiling import Ceiling
from mineru_edge.runtime.engine import Engine

resource = pytest.importorskip("resource")
needs_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell")

ONE_TOO_MANY = """
import resource, sys
from PIL import Image
from mineru_edge.models.bundle import Bundle
from mineru_edge.runtime import ceiling
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.request import DecodeParams, Request

ceiling.STACKS_BYTES = 0
params = DecodeParams(4, ignore_eos=True)
small = Request(Image.new("RGB", (280, 56), "white"), "read", params)
large = Request(Image.new("RGB", (1400, 700), "white"), "read", params)
unlimited = resource.getrlimit(resource.RLIMIT_DATA)
with Engine.open(Bundle.load(sys.argv[1]), memory_limit_bytes=800_000_000, slots=2, threads=1) as engine:
    engine._ceiling.lift()
    own = ceiling.own_memory(ceiling.STATUS)
    engine._ceiling = ceiling.Ceiling(own.resident_bytes + int(sys.argv[2]), promised_bytes=0, needed_bytes=0)
    for index, result in engine.results([small, large, small]):
        print(index, result.finish_reason.value, len(result.token_ids), result.error)
assert resource.getrlimit(resource.RLIMIT_DATA) == unlimited
"""


# Room for the small request and not for the large one. OpenVINO makes kernels for each new size besides.
@needs_linux
@pytest.mark.parametrize(("form", "room_bytes"), [("onnx", 25_000_000), ("openvino", 60_000_000)])
def test_what_passes_the_limit_fails_alone(
    embedded_checkpoint: Path, tmp_path: Path, form: Format, room_bytes: int
) -> None:
    bundle = export(embedded_checkpoint, tmp_path / "bundle", format=form)
    command = [sys.executable, "-c", ONE_TOO_MANY, str(bundle.path), str(room_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second, third = sorted(done.stdout.splitlines())
    assert first == "0 length 4 None"
    assert second.startswith("1 error 0 no memory for ")
    assert second.endswith("; give a higher memory limit")
    assert third == "2 length 4 None"


@needs_linux
def test_a_limit_holds_from_open_to_close(embedded_bundle: Bundle) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    engine = Engine.open(embedded_bundle, memory_limit_bytes=4_000_000_000, slots=1, threads=1)
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        own = ceiling.own_memory(ceiling.STATUS)
        assert own is not None
        assert own.data_bytes < soft < own.data_bytes + 4_000_000_000
        assert hard == before[1]
    finally:
        engine.close()
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with Engine.open(embedded_bundle, slots=1, threads=1):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before  # nobody asked for one


@needs_linux
def test_a_process_that_is_large_already_is_refused(embedded_bundle: Bundle) -> None:
    ballast = b"x" * 300_000_000
    with pytest.raises(BudgetError, match="this process holds"):
        Engine.open(embedded_bundle, memory_limit_bytes=400_000_000, slots=1, threads=1)
    assert ballast


@needs_linux
def test_a_tighter_limit_of_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    tight = (10_000, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: tight)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("changed"))
    Ceiling(8_000_000_000, promised_bytes=0, needed_bytes=0).lift()
