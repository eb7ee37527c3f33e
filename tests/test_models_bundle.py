"""A bundle comes back as it was saved, and every kind of damage is refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundles import TEXT, write_bundle

from mineru_edge.models.bundle import (
    BUNDLE_FILE,
    DECODER_DATA_FILE,
    EMBED_FILE,
    PARITY_FILE,
    TOKENIZER_FILE,
    VISION_DATA_FILE,
    VISION_FILE,
    Bundle,
    FileEntry,
    embed_bytes,
    measure_files,
)
from mineru_edge.models.errors import BundleError, SpaceError

Json = dict[str, Any]


def rewrite(folder: Path, change: Callable[[Json], object]) -> None:
    path = folder / BUNDLE_FILE
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_load_gives_back_what_save_wrote(tmp_path: Path) -> None:
    saved = write_bundle(tmp_path)
    loaded = Bundle.load(tmp_path)
    assert loaded == saved
    assert loaded.path == tmp_path
    loaded.verify()


def test_load_takes_a_string(tmp_path: Path) -> None:
    assert Bundle.load(str(write_bundle(tmp_path).path)).model_name == "made-up"


def test_every_file_but_bundle_json_is_listed(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path)
    listed = {entry.path for entry in bundle.files}
    assert {VISION_FILE, VISION_DATA_FILE, TOKENIZER_FILE, EMBED_FILE} < listed
    assert BUNDLE_FILE not in listed
    assert bundle.total_bytes == sum((tmp_path / name).stat().st_size for name in listed)


def test_file_gives_the_path_and_refuses_what_is_not_listed(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path)
    assert bundle.file(VISION_FILE) == tmp_path / "onnx" / "vision.onnx"
    with pytest.raises(BundleError, match=r"bundle\.json: expected an entry for parity\.json, found none"):
        bundle.file(PARITY_FILE)


def test_with_file_adds_and_replaces_one_entry(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path)
    (tmp_path / PARITY_FILE).write_text("{}")
    more = bundle.with_file(PARITY_FILE)
    assert len(more.files) == len(bundle.files) + 1
    (tmp_path / PARITY_FILE).write_text('{"a": 1}')
    again = more.with_file(PARITY_FILE)
    assert len(again.files) == len(more.files)
    again.save()
    Bundle.load(tmp_path).verify()


def test_saving_leaves_no_draft_and_a_failed_save_keeps_the_old_file(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path)
    assert [path.name for path in tmp_path.glob("*.part")] == []
    (tmp_path / f"{BUNDLE_FILE}.part").mkdir()
    with pytest.raises(SpaceError, match=r"bundle\.json cannot be written: "):
        bundle.save()
    assert Bundle.load(tmp_path) == bundle


def test_an_unfinished_export_does_not_load(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    (tmp_path / BUNDLE_FILE).unlink()
    with pytest.raises(
        BundleError, match=r"bundle\.json: expected the file that ends an export, found nothing; .*export"
    ):
        Bundle.load(tmp_path)


@pytest.mark.parametrize(("make", "found"), [(False, "nothing"), (True, "a file")])
def test_a_bundle_is_a_directory(tmp_path: Path, make: bool, found: str) -> None:
    path = tmp_path / "bundle"
    if make:
        path.write_text("x")
    with pytest.raises(BundleError, match=f"expected a bundle directory, found {found}; give the directory"):
        Bundle.load(path)


@pytest.mark.parametrize(
    ("version", "cure"),
    [(2, "install a newer mineru-edge"), (0, "export the bundle again"), ("1", "export"), (True, "export")],
)
def test_an_unknown_format_version_is_refused(tmp_path: Path, version: object, cure: str) -> None:
    write_bundle(tmp_path)
    rewrite(tmp_path, lambda value: value.update(format_version=version))
    with pytest.raises(BundleError, match=rf"expected format_version 1, found {version!r}; {cure}"):
        Bundle.load(tmp_path)


def test_a_missing_format_version_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    rewrite(tmp_path, lambda value: value.pop("format_version"))
    with pytest.raises(BundleError, match="expected format_version 1, found none"):
        Bundle.load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1, 2", '{"format_version": 1, "format_version": 1}', '{"a": NaN}'])
def test_what_is_not_json_is_refused(tmp_path: Path, text: str) -> None:
    write_bundle(tmp_path)
    (tmp_path / BUNDLE_FILE).write_text(text)
    with pytest.raises(BundleError, match=r"bundle\.json: expected JSON, found .*; copy the whole bundle"):
        Bundle.load(tmp_path)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    (tmp_path / BUNDLE_FILE).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BundleError, match=r"bundle\.json: expected JSON"):
        Bundle.load(tmp_path)


CHANGES: list[tuple[str, Callable[[Json], object], str]] = [
    ("a field is gone", lambda b: b.pop("chat"), "expected the field 'chat', found none"),
    ("a field is unknown", lambda b: b.update(extra=1), "found also 'extra'"),
    ("a nested field is gone", lambda b: b["text"].pop("vocab"), r"\.text: expected the field 'vocab', found none"),
    ("a nested field is unknown", lambda b: b["vision"].update(tiles=4), r"\.vision: .* found also 'tiles'"),
    (
        "a number is a string",
        lambda b: b["text"].update(vocab="40"),
        r"\.text\.vocab: expected a whole number, found \"40\"",
    ),
    (
        "a number is a bool",
        lambda b: b["text"].update(layers=True),
        r"\.text\.layers: expected a whole number, found true",
    ),
    ("a number is a fraction", lambda b: b["text"].update(layers=2.5), r"expected a whole number, found 2\.5"),
    ("a shape is impossible", lambda b: b["text"].update(kv_heads=3), r"\.text: 4 heads cannot share 3"),
    (
        "a list is short",
        lambda b: b["preprocessing"].update(mean=[0.5]),
        r"\.mean: expected a list of 3, found \[0\.5\]",
    ),
    (
        "a precision is unknown",
        lambda b: b["precision"].update(vision="int3"),
        "expected 'int8' or 'int4' or 'fp32', found \"int3\"",
    ),
    ("an engine is unknown", lambda b: b.update(engines=["tpu"]), r"\.engines\[0\]: expected 'onnx' or 'openvino'"),
    ("there is no engine", lambda b: b.update(engines=[]), "at least one engine"),
    ("an object is a list", lambda b: b.update(chat=[]), r"\.chat: expected an object, found \[\]"),
    (
        "a layout id is a string",
        lambda b: b["special"]["layout"].update({"<|box_end|>": "x"}),
        r"layout\.<\|box_end\|>: ",
    ),
    (
        "an engine's file is not listed",
        lambda b: b.update(engines=["onnx", "openvino"]),
        r"an entry for openvino/vision\.xml",
    ),
    ("a path is listed twice", lambda b: b["files"].append(b["files"][0]), "names a path twice"),
    ("a path leaves the bundle", lambda b: b["files"][0].update(path="../x"), r"'\.\./x' does not lie in the bundle"),
    ("a path is absolute", lambda b: b["files"][0].update(path="/x"), "'/x' does not lie in the bundle"),
    ("a hash is short", lambda b: b["files"][0].update(sha256="ab"), "64 hex digits"),
    (
        "vocab and embed.bin differ",
        lambda b: b["text"].update(vocab=41),
        r"embed\.bin: expected 1476 bytes .* found 1440",
    ),
    ("the widths differ", lambda b: b["vision"].update(out_width=16), "out_width 16 differs from text.width 32"),
]


@pytest.mark.parametrize(
    ("change", "message"), [change[1:] for change in CHANGES], ids=[change[0] for change in CHANGES]
)
def test_a_wrong_field_is_named_with_a_cure(tmp_path: Path, change: Callable[[Json], object], message: str) -> None:
    write_bundle(tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(BundleError, match=message) as raised:
        Bundle.load(tmp_path)
    assert str(tmp_path / BUNDLE_FILE) in str(raised.value)
    assert raised.value.hint is not None
    assert raised.value.exit_code == 4


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    (tmp_path / VISION_DATA_FILE).unlink()
    with pytest.raises(BundleError, match=r"vision\.data: expected a file of 27 bytes, found nothing; copy the whole"):
        Bundle.load(tmp_path)


def test_a_cut_file_is_named_with_both_sizes(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    path = tmp_path / DECODER_DATA_FILE
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(BundleError, match=r"decoder\.data: expected 28 bytes, found 25 bytes; copy the whole"):
        Bundle.load(tmp_path)


@pytest.mark.parametrize("name", [VISION_DATA_FILE, DECODER_DATA_FILE, EMBED_FILE, TOKENIZER_FILE])
def test_verify_names_the_file_with_a_flipped_byte(tmp_path: Path, name: str) -> None:
    bundle = write_bundle(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(content)
    loaded = Bundle.load(tmp_path)
    expected = next(entry.sha256 for entry in bundle.files if entry.path == name)
    with pytest.raises(
        BundleError, match=rf"{re.escape(name)}: expected sha256 {expected}, found sha256 [0-9a-f]{{64}}; copy"
    ):
        loaded.verify()


def test_measured_files_are_sorted_and_leave_bundle_json_out(tmp_path: Path) -> None:
    for name in ("b", "a/c", BUNDLE_FILE):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert measure_files(tmp_path) == (FileEntry("a/c", 0, empty), FileEntry("b", 0, empty))


def test_size_of_the_embedding_file() -> None:
    assert embed_bytes(TEXT, "int8") == 40 * 32 + 40 * 4
    assert embed_bytes(TEXT, "fp32") == 40 * 32 * 4
