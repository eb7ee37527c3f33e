"""The command line with a scripted engine: options, messages and every exit code."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_engine import ONE_TEXT, Bench, FakeEngine, result
from small_pdf import LINE, pdf
from tiny_checkpoint import write_checkpoint

from mineru_edge import reader as reader_module
from mineru_edge.cli import cli, main
from mineru_edge.models.errors import BudgetError, EngineError
from mineru_edge.runtime.request import FinishReason

Run = Callable[..., int]


@pytest.fixture
def bundle(bench: Bench) -> Path:
    return bench.bundle


def engine(pages: int = 1, answer: str = "words") -> FakeEngine:
    return FakeEngine([ONE_TEXT] * pages, lambda _: answer)


def test_a_bad_file_alone_gives_its_own_code(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(engine(), tmp_path / "none.pdf") == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert err == f"error: {tmp_path / 'none.pdf'} does not exist; check the path\n"
    assert run(engine(), tmp_path / "none.pdf", tmp_path / "nor.pdf") == 3


def test_a_bad_file_does_not_stop_the_others(
    run: Run, scan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7\n")
    assert run(engine(), broken, scan) == 10
    out, err = capfd.readouterr()
    assert "words" in out
    assert str(broken) in err


def test_a_page_that_failed_is_a_warning_and_10(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "three.pdf"
    path.write_bytes(pdf(LINE, LINE, LINE).replace(b"12 0 obj", b"98 0 obj"))
    assert run(engine(2), path) == 10
    out, err = capfd.readouterr()
    assert out.count("words") == 2
    assert err.startswith(f"warning: {path}: page 2: cannot be drawn")


def test_what_was_cut_short_is_a_warning_and_0(run: Run, scan: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(FakeEngine([ONE_TEXT], [result("words", FinishReason.repetition)]), scan) == 0
    assert capfd.readouterr().err == f"warning: {scan}: page 1: block 1 (text) was cut short: repetition\n"


def test_stdin(run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pdf(LINE))))
    assert run(engine(), "-") == 0
    assert capfd.readouterr().out == "words\n"


def test_pages_and_password_reach_the_reader(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from small_pdf import encrypted

    path = tmp_path / "locked.pdf"
    path.write_bytes(encrypted(LINE, user="secret", owner=""))
    assert run(engine(), path) == 3
    assert "--password" in capfd.readouterr().err
    assert run(engine(), path, "--password", "secret", "--pages", "1") == 0
    assert run(engine(), path, "--password", "secret", "--pages", "2") == 3
    assert "the document has 1 page" in capfd.readouterr().err


def test_the_plan_is_printed_on_request(run: Run, scan: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(engine(), scan, "-v") == 0
    out, err = capfd.readouterr()
    assert out == "words\n"
    assert "activations" in err
    assert "5.0 MB" in err


def test_progress_is_for_terminals(
    run: Run, scan: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert run(engine(), scan) == 0
    out, err = capsys.readouterr()
    assert out == "words\n"
    assert re.search(r"page 1/1: 1 block, \d+\.\d s, \d+\.\d s in all\n", err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["parse"],
        ["parse", "x.pdf", "--pages", "3-1"],
        ["parse", "x.pdf", "--memory-limit", "lots"],
        ["parse", "x.pdf", "--threads", "0"],
        ["parse", "x.pdf", "--unknown"],
        ["export", "only-one"],
        ["export", "a", "b", "--precision", "int4"],
        ["nonsense"],
    ],
)
def test_usage_errors_are_2(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Error" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BudgetError(need_bytes=2_000_000_000, limit_bytes=1_000_000_000, hint="lower slots"), 5),
        (EngineError("onnxruntime is\nmissing"), 8),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_stops_everything_is_one_line(
    error: BaseException, code: int, scan: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def fail(*_: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(reader_module, "_open_engine", fail)
    assert main(["parse", str(scan), str(scan), "--bundle", str(bundle)]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.strip().count("\n") == 0
    assert err.strip() == "interrupted" or err.startswith("error: ")


def test_an_interrupt_while_reading_is_130(run: Run, scan: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> str:
        raise KeyboardInterrupt

    assert run(FakeEngine([ONE_TEXT], interrupted), scan, scan) == 130
    assert capfd.readouterr().err.strip() == "interrupted"


def test_a_missing_bundle_is_4(scan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", str(scan), "--bundle", str(tmp_path / "none")]) == 4
    assert main(["info", str(tmp_path / "none")]) == 4
    assert capfd.readouterr().err.count("error: ") == 2


def test_info(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(bundle)]) == 0
    shown = capfd.readouterr().out
    for words in ("made-up", "vision int8", "336 x 336 px", "embed.bin", "onnx/vision.data"):
        assert words in shown
    assert main(["info", str(bundle), "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["model_name"] == "made-up"
    assert facts["text"]["vocab"] == 40
    assert facts["total_bytes"] == sum(entry["bytes"] for entry in facts["files"])


def test_info_check_reads_every_byte(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(bundle), "--check"]) == 0
    data = bytearray((bundle / "onnx" / "vision.data").read_bytes())
    data[3] ^= 1
    (bundle / "onnx" / "vision.data").write_bytes(data)
    assert main(["info", str(bundle)]) == 0
    assert main(["info", str(bundle), "--check"]) == 4
    assert "vision.data" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["export", "verify"])
def test_a_missing_extra_says_how_to_get_it(
    command: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "checkpoint")
    target = bundle if command == "verify" else tmp_path / "new"
    for name in [name for name in sys.modules if name.startswith("mineru_edge.export")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("torch", "onnx", "transformers", "safetensors"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([command, str(tmp_path / "checkpoint"), str(target)]) == 8
    assert "pip install 'mineru-edge[export]'" in capfd.readouterr().err


HEAVY = {"numpy", "PIL", "tokenizers", "onnxruntime", "pypdfium2", "mineru_vl_utils", "loguru", "torch", "onnx"}


@pytest.mark.parametrize(
    "command", [[], *([name] for name in cli.commands)], ids=lambda words: " ".join(words) or "all"
)
def test_help_starts_no_engine(command: list[str]) -> None:
    code = (
        "import sys; from mineru_edge.cli import main; code = main(sys.argv[1:]); print(*sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command, "--help"], capture_output=True, text=True, check=True)
    assert "Usage: mineru-edge" in done.stdout
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert loaded & HEAVY == set()


def test_the_package_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mineru_edge", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("mineru-edge, version ")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_behind_stdout_is_one_line(bundle: Path) -> None:
    with open("/dev/full", "w") as full:
        code = "import sys; from mineru_edge.cli import main; sys.exit(main(sys.argv[1:]))"
        arguments = [sys.executable, "-c", code, "info", str(bundle)]
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert "No space left" in done.stderr


def test_a_reader_that_goes_away_is_no_traceback(bundle: Path) -> None:
    code = "import sys; from mineru_edge.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = [sys.executable, "-c", code, "info", str(bundle)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait()
