"""OpenVINO where its 8-bit products overflow: activations then stay f32.

Its kernel library can be made to believe that there are no 8-bit dot products, in a process of its own: this file is
that process as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from product_graph import X86
from tiny_checkpoint import write_checkpoint

from mineru_edge.export.exporter import export
from mineru_edge.models.bundle import Bundle
from mineru_edge.runtime import ov_models
from mineru_edge.runtime.arrays import F32
from mineru_edge.runtime.graphs import prepare
from mineru_edge.runtime.kv import KVStore
from mineru_edge.runtime.ov import BLOCK_TOKENS, OvDecoder, OvVision
from mineru_edge.runtime.ov_selftest import kernels

SMALLEST = "model.layers.0.self_attn.o_proj"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("overflow")
    checkpoint = write_checkpoint(folder / "checkpoint")
    export(checkpoint, folder / "fp32", precision="fp32", format="openvino")
    export(checkpoint, folder / "w8a8", decoder="w8a8", format="openvino")
    export(checkpoint, folder / "mixed", decoder="w8a8", format="openvino", schemes={SMALLEST: "nbits8_block32"})
    return folder


def drawn(*shapes: tuple[int, ...]) -> list[F32]:
    draw = np.random.default_rng(5)
    return [draw.standard_normal(shape, np.float32) for shape in shapes]


def seen(bundle: Bundle) -> F32:
    given = drawn((64, bundle.vision.patch_values), *2 * [(64, bundle.vision.rotary_width)])
    return OvVision(bundle, threads=1, bf16=False).run(*given)


def decoded(bundle: Bundle) -> F32:
    store = KVStore(bundle.text, slots=2, capacity_tokens=64, block_tokens=BLOCK_TOKENS)
    given = drawn((2, 24, bundle.text.width), *2 * [(2, 24, bundle.text.rotary_width)])
    return OvDecoder(bundle, store, threads=1).run(0, *given, [0, 0]).copy()


def main(folder: Path) -> None:
    """Print how far the 8-bit bundle is off fp32, and what the self-test finds for the decoder that has both kinds."""
    found: dict[str, float | str] = {}
    for run in (seen, decoded):
        right, rounded = (run(Bundle.load(folder / name)) for name in ("fp32", "w8a8"))
        found[run.__name__] = float(np.linalg.norm(rounded - right) / np.linalg.norm(right))
    found["mixed"] = kernels(Bundle.load(folder / "mixed"), "decoder")
    print(json.dumps(found))  # noqa: T201


def without_dot_products(folder: Path, *, known: bool) -> dict[str, float | str]:
    """What `main` prints there; unless that is `known`, the processor is taken for one that has them."""
    run = subprocess.run(
        [sys.executable, __file__, str(folder), "known" if known else ""],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, float | str] = json.loads(run.stdout)
    return found


def test_answers_are_right_where_sums_overflow(folder: Path) -> None:
    """And a matrix in blocks, smaller than those of rounded activations, does not hide what these do."""
    found = without_dot_products(folder, known=True)
    assert found == {
        "seen": pytest.approx(0.015, abs=0.015),
        "decoded": pytest.approx(0.015, abs=0.015),
        "mixed": "wrong" if X86 else "integer",
    }


def test_they_would_be_wrong(folder: Path) -> None:
    """By 8 %, where 8 bits cost 2."""
    found = without_dot_products(folder, known=False)
    assert [found[run] > 0.05 for run in ("seen", "decoded")] == [X86, X86]  # type: ignore[operator]


def test_what_was_compiled_for_other_products_is_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, folders = Bundle.load(folder / "w8a8"), set()
    for wrong in (True, False):
        monkeypatch.setattr(ov_models, "_codes_go_wrong", lambda *_, wrong=wrong: wrong)
        folders |= set(prepare(bundle, "fp32", "openvino"))
    assert len(folders) == 2


if __name__ == "__main__":
    ov_models.has_dot_products = lambda: sys.argv[2] != "known"
    main(Path(sys.argv[1]))
