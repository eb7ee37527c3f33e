"""The int8 key-value store: its scales fit what is stored, its answers stay close, and a bundle without it says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_checkpoint import TinyShape, write_checkpoint

from mineru_edge import cli
from mineru_edge.export.calibrate import kv_peaks
from mineru_edge.export.cases import Page
from mineru_edge.export.exporter import export
from mineru_edge.export.kv8 import HEADROOM, write_kv8
from mineru_edge.models.bundle import DECODER_KV8_FILE, Bundle, KVKind
from mineru_edge.models.errors import BundleError
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.plan import STORE, make_plan
from mineru_edge.runtime.request import DecodeParams, Request


def page() -> Page:
    noise = np.random.default_rng(5).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    return Page(Image.fromarray(noise), (("text", (0, 0, 1000, 400)), ("table", (0, 400, 1000, 1000))))


@pytest.fixture(scope="module")
def peaks_and_bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, Bundle]:
    """f32 weights, so that the store is all that differs."""
    folder = tmp_path_factory.mktemp("kv8")
    write_checkpoint(folder / "checkpoint", TinyShape(), tied=False)
    bundle = export(folder / "checkpoint", folder / "bundle", precision="fp32")
    peaks = kv_peaks(bundle, [page()], threads=1)
    return peaks, write_kv8(bundle, peaks)


def run(bundle: Bundle, kv: KVKind, *, slots: int = 1) -> tuple[list[tuple[int, ...]], np.ndarray, np.ndarray]:
    """Tokens of three requests, and the logits and the first layer's keys after the prefill of one."""
    images = [page().image.resize(size) for size in ((112, 84), (84, 84), (140, 56))]
    requests = [Request(image, "\nText Recognition:", DecodeParams(12)) for image in images]
    with Engine.open(bundle, slots=slots, threads=1, kv=kv) as engine:
        results = dict(engine.results(requests))
        prompt = engine.model.prompt("\nText Recognition:", engine.model.see(images[0]))
        *_, logits = engine.model.prefill(prompt, 0)
        keys = engine.kv.views(0, 0, 1)[0][0, :, : prompt.tokens].astype(np.float32)
        return [results[n].token_ids for n in range(3)], logits.copy(), keys


def test_what_is_stored_is_the_f32_row_rounded(peaks_and_bundle: tuple[np.ndarray, Bundle]) -> None:
    peaks, bundle = peaks_and_bundle
    scale = peaks[0, 0][:, None] * HEADROOM / 127
    _, _, exact = run(bundle, "fp32")
    _, _, codes = run(bundle, "int8")
    assert np.abs(codes).max() > 60  # the scales are not far too large
    assert np.abs(codes * scale - exact).max() <= scale.max() * 0.51


def test_answers_stay_close(peaks_and_bundle: tuple[np.ndarray, Bundle]) -> None:
    _, bundle = peaks_and_bundle
    _, exact, _ = run(bundle, "fp32")
    _, close, _ = run(bundle, "int8")
    error = float(np.linalg.norm(close - exact) / np.linalg.norm(exact))
    assert 0 < error < 0.03


def test_slots_do_not_change_answers(peaks_and_bundle: tuple[np.ndarray, Bundle]) -> None:
    _, bundle = peaks_and_bundle
    assert run(bundle, "int8", slots=3)[0] == run(bundle, "int8", slots=1)[0]


def test_peaks_are_those_of_every_request(peaks_and_bundle: tuple[np.ndarray, Bundle]) -> None:
    peaks, bundle = peaks_and_bundle
    half = kv_peaks(bundle, [Page(page().image, page().blocks[:1])], threads=1)  # type: ignore[index]
    assert (peaks >= half).all()
    assert (peaks > half).any()
    assert (half > 0).all()


def test_a_store_of_int8_is_a_quarter(peaks_and_bundle: tuple[np.ndarray, Bundle]) -> None:
    _, bundle = peaks_and_bundle
    plans = {kv: make_plan(bundle, slots=2, capacity_tokens=256, kv=kv) for kv in ("fp32", "int8")}  # type: ignore[arg-type]
    assert plans["fp32"].bytes_of(STORE) == 4 * plans["int8"].bytes_of(STORE)
    with Engine.open(bundle, slots=2, capacity_tokens=256, threads=1, kv="int8") as engine:
        assert engine.kv.nbytes == plans["int8"].bytes_of(STORE)


def test_the_export_calibrates_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    plain = export(checkpoint, tmp_path / "plain")
    assert plain.kv_kinds == ("fp32",)
    with pytest.raises(BundleError, match="--kv int8"):
        Engine.open(plain, kv="int8")
    assert cli.main(["prepare", "--kv", "int8", str(plain.path)]) == BundleError.exit_code
    assert cli.main(["export", "--kv", "int8", str(checkpoint), str(tmp_path / "kv8")]) == 0
    bundle = Bundle.load(tmp_path / "kv8")
    bundle.verify()
    assert bundle.kv_kinds == ("fp32", "int8")
    assert (bundle.path / DECODER_KV8_FILE).stat().st_size < 100_000  # the weights are not there twice
    capsys.readouterr()
