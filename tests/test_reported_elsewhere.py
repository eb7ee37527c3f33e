"""Small inputs after public reports about other document readers, where no test of a part holds them already.

`USER_NEEDS.md` has every report by its number, with the test that holds it.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from bundles import PREPROCESSING, VISION
from fake_engine import FakeEngine, layout
from fakes import EOS, drain, fake_bundle, rig
from pdf_text import contents, layer
from PIL import Image, ImageDraw
from small_pdf import LINE, dark_box, pdf

from mineru_edge.drawer import Drawer
from mineru_edge.memory import private_bytes
from mineru_edge.models.bundle import DECODER_FILE, Bundle
from mineru_edge.models.errors import BundleError
from mineru_edge.pdf import PdfSource
from mineru_edge.reader import Reader
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.graphs import open_graphs
from mineru_edge.runtime.kv import KVStore
from mineru_edge.runtime.memory import kernel_bytes
from mineru_edge.runtime.patches import patchify
from mineru_edge.runtime.request import DecodeParams, Request

Open = Callable[..., Reader]
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_a9_another_resampling_is_refused_not_guessed(embedded_bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(embedded_bundle.path, tmp_path / "bundle")
    facts = json.loads((tmp_path / "bundle" / "bundle.json").read_text("utf-8"))
    facts["preprocessing"]["resample"] = "bilinear"
    (tmp_path / "bundle" / "bundle.json").write_text(json.dumps(facts), "utf-8")
    with pytest.raises(BundleError, match="resample"):
        Bundle.load(tmp_path / "bundle")


@pytest.mark.parametrize("size", [(1000, 1400), (2480, 3508), (3508, 1000)])
def test_a11_boxes_are_those_of_the_page_to_a_thousandth(open_reader: Open, size: tuple[int, int]) -> None:
    """Marks in the four corners; each crop holds its mark and nothing else."""
    boxes = [(20, 30, 120, 80), (880, 30, 980, 80), (20, 920, 120, 970), (880, 920, 980, 970)]
    page = Image.new("RGB", size, "white")
    for number, box in enumerate(boxes, 1):
        left, top, right, bottom = (edge * side / 1000 for edge, side in zip(box, size * 2, strict=True))
        ImageDraw.Draw(page).rectangle((left, top, right - 1, bottom - 1), fill=(number * 40, 0, 0))
    engine = FakeEngine([layout(*[("text", box) for box in boxes])], lambda _: "x")
    (found,) = open_reader(engine).read(page).pages
    assert [block.box for block in found.blocks] == [tuple(edge / 1000 for edge in box) for box in boxes]
    for number, request in enumerate(engine.submitted[1:], 1):
        assert request.image is not None
        inside = np.asarray(request.image)[2:-2, 2:-2]
        assert (inside == (number * 40, 0, 0)).all()


def test_b7_a_figure_of_a_transparent_page_can_be_kept(open_reader: Open) -> None:
    page = Image.new("RGBA", (400, 500), (0, 0, 0, 0))
    ImageDraw.Draw(page).rectangle((40, 50, 199, 149), fill=(200, 0, 0, 255))
    engine = FakeEngine([layout(("image", (100, 100, 500, 300)))])
    (block,) = open_reader(engine).read(page, pictures=True).pages[0].blocks
    assert (block.picture or b"")[:2] == b"\xff\xd8"


TURNED = {0: "", 90: "0 1 -1 0 200 0 cm", 180: "-1 0 0 -1 200 200 cm", 270: "0 -1 1 0 0 200 cm"}


@pytest.mark.parametrize("rotate", list(TURNED))
def test_c1_a_table_is_the_same_however_its_page_is_turned(rotate: int) -> None:
    """Content turned one way and /Rotate the other, as scanners and printer drivers write it."""
    table = f"{dark_box(20, 100, 160, 2)} BT /F1 12 Tf 20 110 Td (Drink) Tj 80 0 Td (Price) Tj ET"
    upright, turned = pdf(table), pdf(f"{TURNED[rotate]} {table}", extra=f"/Rotate {rotate}")
    pictures = []
    for data in (upright, turned):
        source = PdfSource(data, "x.pdf", dpi=72)
        (sheet,) = source.sheets([1])
        source.close()
        assert sheet.image is not None
        pictures.append(np.asarray(sheet.image, np.float32))
    assert np.abs(pictures[0] - pictures[1]).mean() < 1
    assert contents(layer(turned)) == contents(layer(upright)) == ["Drink\tPrice"]


@linux
def test_c16_many_pages_take_the_memory_of_one() -> None:
    drawer = Drawer()
    source = drawer.open(pdf(*[LINE] * 300), "long.pdf", dpi=36)
    held = []
    for sheet in source.sheets(range(1, 301)):
        assert sheet.image is not None
        status = Path(f"/proc/{drawer.process_ids[0]}/status")
        held.append(kernel_bytes(status, "RssAnon", "VmSwap") or 0)
    drawer.close()
    assert held[0] > 0
    assert max(held[150:]) - max(held[50:150]) < 2_000_000


@linux
def test_g8_preparing_pictures_leaves_nothing_behind() -> None:
    pictures = [Image.new("RGB", (100 + 7 * n % 200, 60 + 13 * n % 200), "white") for n in range(50)]

    def prepare(times: int) -> int:
        for n in range(times):
            patchify(pictures[n % len(pictures)], PREPROCESSING, VISION)
        return private_bytes() or 0

    settled = prepare(300)
    assert prepare(1000) - settled < 2_000_000


def test_g9_the_crops_of_a_page_are_seen_one_at_a_time(tmp_path: Path) -> None:
    made = rig(fake_bundle(tmp_path), lambda held: EOS, slots=4, capacity_tokens=128)
    for _ in range(60):
        made.scheduler.submit(Request(Image.new("RGB", (112, 56), "white"), "read", DecodeParams(4)))
    ended = drain(made.scheduler)
    assert len(ended) == 60
    assert len(made.vision.calls) == 60
    assert max(made.vision.calls) == 8 * 4  # the patches of one crop


def test_h10_an_idle_engine_takes_no_processor_time(embedded_bundle: Bundle) -> None:
    with Engine.open(embedded_bundle, slots=2, threads=2) as engine:
        asked = Request(Image.new("RGB", (280, 56), "white"), "read", DecodeParams(4, ignore_eos=True))
        assert [result.error for _, result in engine.results([asked])] == [None]
        time.sleep(0.1)
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.1


def test_d11_buffers_bound_in_place_change_nothing(embedded_bundle: Bundle) -> None:
    """A prefill and two steps, against the same session with arrays in and arrays out."""
    text, file = embedded_bundle.text, str(embedded_bundle.file(DECODER_FILE))
    store = KVStore(text, slots=1, capacity_tokens=64)
    bound = open_graphs(embedded_bundle, store, threads=1).decoder
    free = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    presents = [output.name for output in free.get_outputs()[1:]]
    held = {name: np.zeros((1, text.kv_heads, 64, text.head_dim), np.float32) for name in presents}
    random = np.random.default_rng(5)
    past = 0
    for tokens in (20, 1, 1):
        embeds = random.standard_normal((1, tokens, text.width), np.float32)
        angles = random.uniform(-1, 1, (1, tokens, text.rotary_width)).astype(np.float32)
        cos, sin = np.cos(angles), np.sin(angles)
        lengths = {
            "seqlens_k": np.array([past + tokens - 1], np.int32),
            "total_sequence_length": np.array(past + tokens, np.int32),
        }
        pasts = {name.replace("present", "past"): value for name, value in held.items()}
        logits, *now = free.run(["logits", *presents], {"embeds": embeds, "cos": cos, "sin": sin, **lengths, **pasts})
        held = dict(zip(presents, now, strict=True))
        np.testing.assert_allclose(bound.run(0, embeds, cos, sin, [past])[0], logits[0, 0], rtol=1e-4, atol=1e-4)
        past += tokens
    keys, _ = store.views(0, 0, 1)
    np.testing.assert_allclose(keys[:, :, :past], held["present_key_0"][:, :, :past], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("otsl", "html"),
    [
        (  # J1: merged with the cell above, in the second column
            "<fcel>a<fcel>b<nl><fcel>c<ucel><nl>",
            '<table><tr><td>a</td><td rowspan="2">b</td></tr><tr><td>c</td></tr></table>',
        ),
        (  # J4: one merged cell in nine
            "<fcel>a<fcel>b<fcel>c<nl><fcel>d<lcel><fcel>e<nl><fcel>f<fcel>g<fcel>h<nl>",
            '<table><tr><td>a</td><td>b</td><td>c</td></tr><tr><td colspan="2">d</td><td>e</td></tr>'
            "<tr><td>f</td><td>g</td><td>h</td></tr></table>",
        ),
        (  # ragged rows are filled up
            "<fcel>a<nl><fcel>b<fcel>c<nl>",
            "<table><tr><td>a</td><td></td></tr><tr><td>b</td><td>c</td></tr></table>",
        ),
        ("<lcel><fcel>a<nl>", "<table><tr><td></td><td>a</td></tr></table>"),  # nothing to merge with
    ],
)
def test_j_tables_keep_their_spans(open_reader: Open, otsl: str, html: str) -> None:
    engine = FakeEngine([layout(("table", (0, 0, 999, 999)))], [otsl])
    (block,) = open_reader(engine).read(Image.new("RGB", (400, 500), "white")).pages[0].blocks
    assert block.content == html
