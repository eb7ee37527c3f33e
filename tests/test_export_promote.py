"""`export --calibrate`: the matrix that was made sensitive is found, it alone is promoted, and the rest stays small."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_checkpoint import TinyShape, write_checkpoint, write_weights

from mineru_edge.cli import main
from mineru_edge.cli_build import _pictures
from mineru_edge.export import promote as promotion
from mineru_edge.export.cases import Page, generated
from mineru_edge.export.checkpoint import Checkpoint
from mineru_edge.export.exporter import export
from mineru_edge.export.parity import THRESHOLDS, Compared, Parity
from mineru_edge.export.parts import files_of, part_of
from mineru_edge.export.promote import _better
from mineru_edge.export.schemes import Scheme
from mineru_edge.models.bundle import PARITY_FILE, SENSITIVITY_FILE, Bundle, Formats, embedded_checkpoint
from mineru_edge.models.errors import BundleError, InputError, ParityError
from mineru_edge.models.sensitivity import MatrixLoss, Sensitivity, read_sensitivity

pytest.importorskip("torch")

CHANNEL = 7


def with_outlier(path: Path, norm: str, matrices: tuple[str, ...], factor: float) -> Path:
    """The embedded checkpoint with one channel between `norm` and the `matrices` that read it scaled by a power of two.

    What the norm gives is divided by `factor`, what the matrices take is multiplied by it: in f32 the same model.
    """
    shutil.copytree(embedded_checkpoint(), path)
    checkpoint = Checkpoint.open(path)
    weights = {name: checkpoint.read(name) for name in checkpoint.tensors}
    for name in (f"{norm}.weight", f"{norm}.bias"):
        if name in weights:
            weights[name][CHANNEL] /= factor
    for name in matrices:
        weights[f"{name}.weight"][:, CHANNEL] *= factor
    write_weights(path, weights, dtype="BF16")
    return path


def a_page() -> Page:
    (page,) = generated(1, first_seed=100)
    assert page.blocks is not None
    return replace(page, blocks=page.blocks[:3])


OUTLIERS = {
    "visual.blocks.3.mlp.fc1": ("visual.blocks.3.norm2", ("visual.blocks.3.mlp.fc1",), 64),
    "model.layers.2.mlp.gate_up_proj": (
        "model.layers.2.post_attention_layernorm",
        ("model.layers.2.mlp.gate_proj", "model.layers.2.mlp.up_proj"),
        1024,
    ),
}
"""Name of the matrix in the graphs -> norm before it, matrices of the checkpoint, factor."""


@pytest.mark.parametrize(
    ("name", "formats"), [*((name, "onnx") for name in OUTLIERS), *zip(OUTLIERS, ("both", "openvino"), strict=True)]
)
def test_the_matrix_with_an_outlier_channel_is_picked(tmp_path: Path, name: str, formats: Formats) -> None:
    checkpoint = with_outlier(tmp_path / "checkpoint", *OUTLIERS[name])
    plain = export(checkpoint, tmp_path / "plain", format=formats)
    calibrated = export(checkpoint, tmp_path / "calibrated", calibrate=[a_page()], format=formats)
    found = read_sensitivity(calibrated)
    assert found is not None
    first, second = found.matrices[:2]
    assert (first.name, first.scheme) == (name, "fp32")
    assert first.first_error > 4 * second.first_error
    assert found.promoted == (first,)
    assert [comparison.promoted for comparison in found.comparisons] == [((name, "fp32"),), ()]
    missed = " ".join(found.comparisons[0].missed)
    assert ("vision_error is" in missed) == (part_of(name) == "vision")
    assert "logits_error is" in missed or part_of(name) == "vision"
    assert not found.comparisons[1].missed

    calibrated.verify()
    assert json.loads((calibrated.path / PARITY_FILE).read_text("utf-8"))["passed"]
    changed = {entry.path for entry in calibrated.files} - {
        entry.path for entry in plain.files if entry in calibrated.files
    }
    part = part_of(name)
    assert changed == {*files_of(part, plain.engines), PARITY_FILE, SENSITIVITY_FILE}
    assert calibrated.precision == plain.precision


def test_the_embedded_model_needs_no_promotion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the command line, and into `info`."""
    a_page().image.save(tmp_path / "page.png")
    arguments = ["export", str(embedded_checkpoint()), str(tmp_path / "b"), "--calibrate", str(tmp_path / "page.png")]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "requests of 1 page, 0 of 40 matrices promoted" in printed
    assert "off as w8a8_token" in printed

    assert main(["info", str(tmp_path / "b")]) == 0
    assert printed in capsys.readouterr().out
    assert main(["info", "--json", "--check", str(tmp_path / "b")]) == 0
    stored = json.loads((tmp_path / "b" / SENSITIVITY_FILE).read_text("utf-8"))
    assert json.loads(capsys.readouterr().out)["sensitivity"] == stored


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("promote") / "checkpoint", TinyShape(layers=1, vision_depth=1))


def test_what_no_promotion_can_mend_is_an_error_and_leaves_nothing(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impossible = replace(THRESHOLDS["int8"], vision_error=0.0)
    for kind in ("int8", "fp32"):
        monkeypatch.setitem(THRESHOLDS, kind, impossible)
    monkeypatch.setattr(promotion, "NEW_TOKENS", 2)
    with pytest.raises(ParityError, match=r"vision_error is .*no promotion is left"):
        export(checkpoint, tmp_path / "b", calibrate=[a_page()])
    assert list(tmp_path.iterdir()) == []


def test_promotion_goes_on_while_it_helps(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold below what the vision part reaches in 8 bits ends with all of it in f32, and nothing else."""
    monkeypatch.setitem(THRESHOLDS, "int8", replace(
        THRESHOLDS["int8"], vision_error=1e-5, divergence_margin=9.0, token_error=9.0, equal_share=0.0, boxes_share=0.0,
    ))  # fmt: skip
    monkeypatch.setattr(promotion, "NEW_TOKENS", 2)
    bundle = export(checkpoint, tmp_path / "b", calibrate=[a_page()])
    found = read_sensitivity(bundle)
    assert found is not None
    assert [len(comparison.promoted) for comparison in found.comparisons] == [1, 2, 3, 0]
    assert {matrix.name for matrix in found.promoted} == {
        m.name for m in found.matrices if m.name.startswith("visual.")
    }
    assert (bundle.precision.vision, bundle.precision.decoder) == ("fp32", "int8")

    again = export(checkpoint, tmp_path / "again", calibrate=[a_page()], kv="int8")
    again.verify()
    assert again.kv_kinds == ("fp32", "int8")
    assert set(bundle.files) < set(again.files)  # the same to the last bit, and one decoder more


def test_pages_are_those_that_parse_sees(root: Path, tmp_path: Path) -> None:
    a_page().image.save(tmp_path / "page.png")
    pictures = _pictures([str(root / "tests" / "data" / "sample.pdf"), str(tmp_path / "page.png")])
    assert pictures is not None
    assert [picture.mode for picture in pictures] == ["RGB", "RGB"]
    assert pictures[0].size == (600, 848)  # 216 points at 200 dpi
    assert pictures[1].tobytes() == a_page().image.tobytes()
    assert _pictures([]) is None


@pytest.mark.parametrize("page", ["nowhere.png", "no.png"])
def test_a_page_that_cannot_be_read_ends_it_before_it_begins(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str
) -> None:
    (tmp_path / "no.png").write_text("no picture")
    bundle = tmp_path / "b"
    assert main(["export", str(checkpoint), str(bundle), "--calibrate", str(tmp_path / page)]) == InputError.exit_code
    assert page in capsys.readouterr().err
    with pytest.raises(InputError):
        export(checkpoint, bundle, calibrate=[tmp_path / page])
    assert not bundle.exists()


def test_with_fp32_there_is_nothing_to_calibrate(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(checkpoint), str(tmp_path / "b"), "--precision", "fp32", "--calibrate", "page.png"]
    assert main(arguments) == 2
    assert "--calibrate" in capsys.readouterr().err


LOSSES = (
    MatrixLoss("visual.blocks.0.mlp.fc1", 9, (("w8a8_token", 0.04),), "w8a8_token", "w8a8_token"),
    MatrixLoss(
        "model.layers.0.mlp.down_proj", 9, (("w8a8_token", 0.09), ("nbits8_block128", 0.03), ("nbits8_block32", 0.02)),
        "nbits8_block128", "nbits8_block128",
    ),
    MatrixLoss(
        "lm_head", 9, (("w8a8_token", 0.01), ("nbits8_block128", 0.01), ("nbits8_block32", 0.01)),
        "nbits8_block128", "nbits8_block128",
    ),
)  # fmt: skip
GOOD = Compared(
    page=0, kind="layout", patches=16, prompt_tokens=20, patches_difference=0.0, vision_error=0.01, logits_error=0.01,
    positions_equal=True, ids_equal=True, tokens=100, edits=0, divergence=None, boxes=(3, 3),
)  # fmt: skip


def better(count: int, now: Mapping[str, Scheme] | None = None, **compared: float) -> dict[str, Scheme]:
    """What is promoted when one request was compared with that outcome."""
    first: dict[str, Scheme] = {loss.name: loss.first for loss in LOSSES}  # type: ignore[misc]
    return _better(LOSSES, {**first, **(now or {})}, Parity("int8", (replace(GOOD, **compared),), (), (), ()), count)  # type: ignore[arg-type]


def test_the_worst_go_first_and_by_one_scheme() -> None:
    assert better(3) == {}
    assert better(1, edits=50) == {"visual.blocks.0.mlp.fc1": "fp32"}
    done: dict[str, Scheme] = {"visual.blocks.0.mlp.fc1": "fp32"}
    assert better(1, done, edits=50) == {"model.layers.0.mlp.down_proj": "nbits8_block32"}
    done["model.layers.0.mlp.down_proj"] = "nbits8_block32"
    both: dict[str, Scheme] = {
        "model.layers.0.mlp.down_proj": "fp32",
        "lm_head": "fp32",
    }  # smaller blocks help no head here
    assert better(2, done, logits_error=0.5) == both
    assert better(2, {**done, **both}, logits_error=0.5) == {}


def test_what_was_missed_says_where_to_look() -> None:
    assert better(3, vision_error=0.5, logits_error=0.5) == {"visual.blocks.0.mlp.fc1": "fp32"}
    for change in ({"patches_difference": 0.5}, {"positions_equal": False}, {"ids_equal": False}):
        assert better(3, edits=50, **change) == {}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[:-9], "expected JSON"),
        (lambda text: text.replace('"sensitivity_version": 1', '"sensitivity_version": 2'), "sensitivity_version 1"),
        (lambda text: text.replace('"pages"', '"leaves"'), "pages"),
    ],
)
def test_a_damaged_ranking_is_named(tmp_path: Path, damage: Callable[[str], str], said: str) -> None:
    found = Sensitivity(1, pages=1, requests=1, matrices=LOSSES, comparisons=())
    (tmp_path / SENSITIVITY_FILE).write_text(damage(json.dumps(found.to_json())), "utf-8")
    bundle = replace(Bundle.load(embedded_checkpoint().parent / "bundle"), path=tmp_path)
    assert read_sensitivity(bundle) is None  # what is not listed is not read
    with pytest.raises(BundleError, match=said):
        read_sensitivity(bundle.with_file(SENSITIVITY_FILE))
