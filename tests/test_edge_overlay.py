"""Pages written as pictures with their blocks drawn in."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import ONE_TEXT, Bench, FakeEngine, layout, result
from PIL import Image
from small_pdf import LINE, encrypted, pdf

from mineru_edge.document import Block, Page
from mineru_edge.overlay import COLOURS, draw_blocks
from mineru_edge.runtime.request import FinishReason

Run = Callable[..., int]

TWO = layout(("title", (100, 100, 900, 200)), ("table", (100, 500, 900, 900)))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Bench(tmp_path, monkeypatch).parse


def test_boxes_have_the_colour_of_their_type(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.pdf"
    path.write_bytes(pdf(LINE, LINE))
    assert run(FakeEngine([TWO, ONE_TEXT], lambda _: "x"), path, "--overlay", tmp_path / "seen") == 0
    assert capfd.readouterr().out.startswith("# x\n")
    assert sorted(each.name for each in (tmp_path / "seen").iterdir()) == ["two_page_1.png", "two_page_2.png"]
    with Image.open(tmp_path / "seen" / "two_page_1.png") as page:
        assert page.size == (556, 556)  # 200 points at 200 dpi
        assert page.getpixel((300, 55)) == COLOURS["title"]  # upper edge of the first box
        assert page.getpixel((499, 80)) == COLOURS["title"]  # right edge
        assert page.getpixel((55, 400)) == COLOURS["table"]
        assert page.getpixel((300, 499)) == COLOURS["table"]
        assert page.getpixel((501, 80)) == (255, 255, 255)
        assert page.getpixel((400, 80)) == (255, 255, 255)


def test_with_o_chosen_pages_and_a_password(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "locked.pdf"
    path.write_bytes(encrypted(LINE, user="secret", owner=""))
    out, seen = tmp_path / "out", tmp_path / "seen"
    engine = FakeEngine([ONE_TEXT], ["x"])
    assert run(engine, path, "--password", "secret", "--pages", "1", "-o", out, "--overlay", seen) == 0
    assert (out / "locked.md").exists()
    assert (seen / "locked_page_1.png").exists()
    assert not list(out.glob("*.png"))


def test_pictures_and_stdin(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = tmp_path / "scan.png"
    Image.new("RGB", (300, 200), "white").save(scan)
    assert run(FakeEngine([ONE_TEXT], ["x"]), scan, "--overlay", tmp_path) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(scan.read_bytes())))
    assert run(FakeEngine([ONE_TEXT], ["x"]), "-", "--overlay", tmp_path) == 0
    drawn = [Image.open(tmp_path / name) for name in ("scan_page_1.png", "stdin_page_1.png")]
    assert [image.size for image in drawn] == [(300, 200)] * 2
    assert drawn[0].getpixel((150, 20)) == drawn[1].getpixel((150, 20)) == COLOURS["text"]


def test_the_layer_alone_has_pictures_too(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.pdf"
    path.write_bytes(pdf(LINE))
    assert run(FakeEngine(), path, "--text", "layer", "--overlay", tmp_path) == 0
    with Image.open(tmp_path / "one_page_1.png") as page:
        assert COLOURS["text"] in {colour for _, colour in page.getcolors(1 << 20) or ()}


def test_failed_pages(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "three.pdf"
    path.write_bytes(pdf("", "", "").replace(b"14 0 obj", b"98 0 obj"))
    layouts = ["", result("", FinishReason.error, error="vision failed")]
    assert run(FakeEngine(layouts), path, "--overlay", tmp_path / "seen") == 10
    colours = {}
    for number in (1, 2):
        with Image.open(tmp_path / "seen" / f"three_page_{number}.png") as page:
            colours[number] = {colour for _, colour in page.getcolors(1 << 20) or ()}
    assert colours[1] == {(255, 255, 255)}
    assert COLOURS["title"] in colours[2]  # the reason
    assert not (tmp_path / "seen" / "three_page_3.png").exists()


def test_a_folder_that_cannot_be_written_is_9(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.pdf"
    path.write_bytes(pdf(LINE))
    (tmp_path / "file").write_text("")
    assert run(FakeEngine([ONE_TEXT], ["x"]), path, "--overlay", tmp_path / "file") == 9


def test_reading_order_is_drawn_from_block_to_block() -> None:
    blocks = tuple(Block("text", (x, 0.1, x + 0.1, 0.2)) for x in (0.1, 0.7))
    page = Page(1, 1, blocks=blocks)
    image = Image.new("RGB", (400, 400), "white")
    assert draw_blocks(image, page).getpixel((200, 59)) == COLOURS["header"]
    assert image.getpixel((200, 59)) == (255, 255, 255)


def test_every_type_of_the_model_has_a_colour() -> None:
    from mineru_vl_utils.structs import BLOCK_TYPES

    assert set(BLOCK_TYPES) - {"unknown"} <= set(COLOURS)


@pytest.mark.parametrize("box", [(0.0, 0.0, 1.0, 1.0), (0.999, 0.999, 1.0, 1.0), (0.0, 0.0, 0.001, 0.001)])
def test_boxes_at_the_edge_stay_on_the_page(box: tuple[float, float, float, float]) -> None:
    drawn = draw_blocks(Image.new("RGB", (3, 2), "white"), Page(1, 1, blocks=(Block("table", box),)))
    assert drawn.size == (3, 2)
    assert drawn.getpixel((0, 0) if box[0] == 0 else (2, 1)) == COLOURS["table"]
