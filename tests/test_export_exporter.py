"""The export as a whole: a bundle or nothing, whatever happens on the way."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tiny_checkpoint import TinyShape, write_checkpoint

from mineru_edge.export import exporter
from mineru_edge.export.exporter import export
from mineru_edge.models.bundle import ENGINE_FILES, Bundle, Precision
from mineru_edge.models.errors import BundleError, CheckpointError, SpaceError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("export") / "checkpoint")


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export(checkpoint, tmp_path_factory.mktemp("bundles") / "int8")


def hashes(bundle: Bundle) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in bundle.files}


def test_a_bundle_is_whole_and_says_what_it_is(checkpoint: Path, bundle: Bundle) -> None:
    bundle.verify()
    assert set(hashes(bundle)) == {"tokenizer.json", "embed.bin", *ENGINE_FILES["onnx"]}
    assert bundle.precision.decoder == bundle.precision.vision == bundle.precision.embedding == "int8"
    assert bundle.engines == ("onnx",)
    assert (bundle.path / "tokenizer.json").read_bytes() == (checkpoint / "tokenizer.json").read_bytes()
    assert [path.name for path in bundle.path.parent.iterdir()] == ["int8"]


def test_fp32_is_told_apart_and_larger(checkpoint: Path, bundle: Bundle, tmp_path: Path) -> None:
    exact = export(checkpoint, tmp_path / "fp32", precision="fp32")
    assert exact.precision.decoder == "fp32"
    assert exact.total_bytes > 2.5 * bundle.total_bytes


def test_a_part_is_fp32_when_all_of_its_matrices_are(checkpoint: Path, bundle: Bundle, tmp_path: Path) -> None:
    mixed = export(checkpoint, tmp_path / "b", schemes={"model.embed_tokens": "fp32", "lm_head": "fp32"})
    assert mixed.precision == Precision(vision="int8", decoder="int8", embedding="fp32")
    changed = {name for name, digest in hashes(mixed).items() if digest != hashes(bundle)[name]}
    assert changed == {"embed.bin", "onnx/decoder.onnx", "onnx/decoder.data"}


def test_the_same_checkpoint_gives_the_same_bytes(bundle: Bundle, tmp_path: Path) -> None:
    expected: dict[str, str] = {}
    for options in ({"shards": 3}, {"newer_names": True}, {}):
        path = write_checkpoint(tmp_path / f"checkpoint{len(list(tmp_path.iterdir()))}", **options)  # type: ignore[arg-type]
        found = hashes(export(path, tmp_path / f"{path.name}.bundle", format="both"))
        expected = expected or found
        assert found == expected
    assert hashes(bundle).items() <= expected.items()
    assert set(expected) - set(hashes(bundle)) == {*ENGINE_FILES["openvino"]}


def test_progress_counts_every_byte_once(checkpoint: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    export(checkpoint, tmp_path / "b", progress=lambda *call: calls.append(call))
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert {call[1] for call in calls} == {done[-1]}
    assert {"visual.merger.mlp.2.weight", "model.norm.weight", "model.embed_tokens.weight"} <= {c[2] for c in calls}


def test_memory_follows_the_largest_tensor_not_the_model(tmp_path: Path) -> None:
    shape = TinyShape(vision_depth=8, layers=16, vocab=1024)
    path = write_checkpoint(tmp_path / "checkpoint", shape)
    whole = (path / "model.safetensors").stat().st_size
    largest = 640 * 640 * 4  # visual.merger.mlp.0
    assert whole > 15 * largest
    tracemalloc.start()
    try:
        export(path, tmp_path / "bundle", precision="fp32")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * largest


def test_a_flipped_byte_is_found_by_file(bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(bundle.path, tmp_path / "copy")
    for name in ("onnx/decoder.data", "onnx/vision.data", "embed.bin"):
        file = tmp_path / "copy" / name
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        with pytest.raises(BundleError, match=name.replace(".", "[.]")):
            Bundle.load(tmp_path / "copy").verify()
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    Bundle.load(tmp_path / "copy").verify()


def test_what_exists_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("mine")
    with pytest.raises(SpaceError, match="exists"):
        export(checkpoint, tmp_path / "b")
    assert (tmp_path / "b" / "mine").read_text() == "mine"


def test_errors_of_the_checkpoint_leave_nothing(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoint", drop=("model.norm.weight",))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        export(path, tmp_path / "out" / "b")
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_breaks_while_it_is_read_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "checkpoint")
    file = tmp_path / "checkpoint" / "model.safetensors"

    def cut(done: int, total: int, name: str) -> None:
        os.truncate(file, file.stat().st_size // 2)

    with pytest.raises(CheckpointError, match="ends before"):
        export(tmp_path / "checkpoint", tmp_path / "out" / "b", progress=cut)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_checkpoint_that_vanishes_is_not_called_a_full_disk(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match="cannot be read"):
        export(
            tmp_path / "checkpoint",
            tmp_path / "b",
            progress=lambda *_: (tmp_path / "checkpoint" / "model.safetensors").unlink(missing_ok=True),
        )
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_too_little_space_is_said_before_anything_is_written(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(exporter.shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(SpaceError, match=r"needs .* MB"):
        export(checkpoint, tmp_path / "out" / "b")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_disk_that_fills_up_leaves_nothing(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(exporter.shutil, "copyfile", full)
    with pytest.raises(SpaceError, match="No space left"):
        export(checkpoint, tmp_path / "out" / "b")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_size_limit_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    limited = f"""
import resource
from mineru_edge.export.exporter import export
from mineru_edge.models.errors import SpaceError
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
try:
    export({str(checkpoint)!r}, {str(tmp_path / "out" / "b")!r})
except SpaceError as error:
    print("refused:", error)
"""
    run = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, timeout=120)
    assert run.stdout.startswith("refused:"), run.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SpaceError, match="file"):
        export(checkpoint, tmp_path / "file" / "b")


SLOW = """
import sys, time
from mineru_edge.export.exporter import export

def wait(done, total, name):
    if name == sys.argv[3]:
        print("half-way", flush=True)
        time.sleep(600)

export(sys.argv[1], sys.argv[2], progress=wait)
"""


@pytest.mark.parametrize("at", ["visual.blocks.1.mlp.fc1.weight", "model.layers.1.self_attn.q_proj.weight"])
def test_a_killed_export_leaves_nothing_that_loads_and_can_be_run_again(
    checkpoint: Path, bundle: Bundle, tmp_path: Path, at: str
) -> None:
    target = tmp_path / "b"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(checkpoint), str(target), at], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "half-way\n"
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert not target.exists()
    left = list(tmp_path.iterdir())
    assert len(left) == 1  # the draft, which no one could clear
    with pytest.raises(BundleError):
        Bundle.load(left[0])
    assert hashes(export(checkpoint, target)) == hashes(bundle)
    assert list(tmp_path.iterdir()) == [target]


def test_an_interrupted_export_clears_up(checkpoint: Path, tmp_path: Path) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(checkpoint, tmp_path / "out" / "b", progress=interrupt)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_draft_of_a_living_process_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        draft = tmp_path / f".b.part-{other.pid}"
        draft.mkdir()
        export(checkpoint, tmp_path / "b")
        assert draft.is_dir()
    finally:
        other.kill()
        other.wait(60)
    export(checkpoint, tmp_path / "c")
    assert draft.is_dir()  # another target's business
    shutil.rmtree(tmp_path / "b")
    export(checkpoint, tmp_path / "b")
    assert not draft.exists()
