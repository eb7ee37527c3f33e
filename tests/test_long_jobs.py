"""Jobs in processes of their own, with the embedded model: killed at random moments, and as long as they may be.

    python -m pytest tests/test_long_jobs.py --kills 20 --long-pages 500

are the numbers to try before a release; without them the model reads fewer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import subprocess
import sys
import time
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from job_results import results
from small_pdf import pdf

from mineru_edge.memory import private_bytes

PAGES = 10
SEED = 20261130
WARM_UP_PAGES = 50
MOST_GROWTH_BYTES, FULL_LENGTH = 5_000_000, 500  # from page 50 to page 500


def line(number: int) -> str:
    return f"BT /F1 14 Tf 20 {150 - number % 140} Td (Page {number}: never stop) Tj ET"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory, sample_pdf: Path) -> Path:
    """Ten pages: the sample page, which has pictures to keep, between pages of one line."""
    path = tmp_path_factory.mktemp("book") / "book.pdf"
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(contextlib.closing(pdfium.PdfDocument.new()))
        sample = stack.enter_context(contextlib.closing(pdfium.PdfDocument(sample_pdf)))
        lines = stack.enter_context(contextlib.closing(pdfium.PdfDocument(pdf(*map(line, range(PAGES))))))
        for number in range(PAGES):
            made.import_pages(*((lines, [number]) if number % 3 else (sample, [0])))
        made.save(path)
    return path


def parse(book: Path, out: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mineru_edge", "parse", str(book), "-o", str(out)]
    command += ["--text", "model", "--threads", "1", "--format", "md,html,text,content_list,result", *options]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def test_a_kill_at_any_moment_leaves_what_a_resumed_run_completes(
    book: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    started = time.monotonic()
    assert parse(book, tmp_path / "whole").wait() == 0
    whole_s = time.monotonic() - started
    whole = results(tmp_path / "whole")
    assert len([name for name in whole if name.startswith("images/")]) >= 8  # table and formula of four pages
    rng = random.Random(SEED)
    for kill in range(pytestconfig.getoption("kills")):
        out = tmp_path / f"killed{kill}"
        for options in ([], ["--resume"])[: 1 + kill % 2]:  # every other one is killed twice
            process = parse(book, out, *options)
            time.sleep(rng.uniform(0, whole_s))
            process.kill()
            process.wait()
        assert parse(book, out, "--resume").wait() == 0
        assert results(out) == whole
        lines = (out / ".mineru-edge" / "book.jsonl").read_bytes().splitlines()
        assert [json.loads(each)["number"] for each in lines[1:]] == list(range(1, PAGES + 1))  # none of them twice


LONG = """
import sys
from mineru_edge import cli, journal, memory

append = journal.Journal.append

def watched(self, page):
    append(self, page)
    print(memory.private_bytes(), flush=True)

journal.Journal.append = watched
sys.exit(cli.main(sys.argv[1:]))
"""


def column(number: int) -> str:
    """Twelve headings and as many lines of text, so that a page that is held is seen."""
    rows = ((f"/F1 {4 + row % 2 * 3} Tf", 190 - 7 * row, f"Page {number}, row {row}") for row in range(24))
    return f"BT {' '.join(f'{font} 1 0 0 1 10 {y} Tm ({text}) Tj' for font, y, text in rows)} ET"


@pytest.mark.skipif(private_bytes() is None, reason="this system does not tell how much private memory a process has")
@pytest.mark.parametrize(("text", "usual"), [("layer", 200), ("auto", 60)])
def test_memory_does_not_grow_with_the_pages(
    tmp_path: Path, pytestconfig: pytest.Config, text: str, usual: int
) -> None:
    count = pytestconfig.getoption("long_pages") or usual
    path = tmp_path / "long.pdf"
    path.write_bytes(pdf(*map(column if text == "layer" else line, range(count))))
    command = [sys.executable, "-c", LONG, "parse", str(path), "-o", str(tmp_path / "out")]
    done = subprocess.run([*command, "--text", text, "--threads", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    samples = [int(words) for words in done.stdout.split()]
    assert len(samples) == count
    pages = json.loads((tmp_path / "out" / "long_result.json").read_text("utf-8"))["pages"]
    assert [page["number"] for page in pages] == list(range(1, count + 1))
    growth = max(samples[WARM_UP_PAGES:]) - max(samples[:WARM_UP_PAGES])
    logging.getLogger(__name__).info("%s: %d pages, peak %+d bytes after page %d", text, count, growth, WARM_UP_PAGES)
    # The model's store is still filling up within 60 pages; without it, held pages show in the part of the growth.
    part = (count - WARM_UP_PAGES) / (FULL_LENGTH - WARM_UP_PAGES) if text == "layer" else 1
    assert growth < part * MOST_GROWTH_BYTES
