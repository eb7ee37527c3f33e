"""Real files held against what is known of them: a table in Markdown, one row per file.

    python tests/documents.py DIRECTORY > tests/documents.md

DIRECTORY has a `manifest.json` that lists files with facts: pages, sizes, words, password, limits, tables. Such files
belong to others and are not in this repository. Each file is read in processes of its own: by `--quick`; a PDF by
`--text layer`; one with a text layer by `--text model` too, for the time. `--only FILE...` reads some. The exit code is
1 when a fact does not hold without a reason, or a reason is given for one that does.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from document_scores import similarity, table_scores, words_in

from mineru_edge.models.errors import InputError, megabytes
from mineru_edge.pdf import LONG_EDGE_PX

DPI = 200
LIMIT_BYTES = 1_000_000_000  # no file of a few hundred kilobytes may take more
LIMIT_S = 120
IN_A_TABLE = "stands in a table, which is the model's, and the embedded one cannot read it"
REASONS = {
    ("line_korean.jpg", "visible text"): "PP-OCRv6 small knows no Korean",
    ("map_cmyk.jpg", "visible text"): "words inside of a figure stay in the picture",
    ("page_height_2e31.pdf", "no layer, said so"): "nothing is drawn on it, so that nothing is missing",
    ("text_in_six_directions.pdf", "words"): "the detector takes the page for a figure, whose words are not read",
    ("table_animal_sounds.pdf", "words"): IN_A_TABLE,
    ("table_eu_structural_funds.pdf", "words"): IN_A_TABLE,
    ("table_flags_footnotes.pdf", "words"): IN_A_TABLE,
    ("table_nics_rotated.pdf", "words"): IN_A_TABLE,
    ("table_scan_single.pdf", "visible text"): IN_A_TABLE,
}
"""Why a fact cannot hold: (file, fact) -> words."""


@dataclass(frozen=True)
class Run:
    """One process: its exit code, what it gave (None after an error), and its last words."""

    code: int
    document: dict[str, Any] | None
    stderr: str

    @property
    def pages(self) -> list[dict[str, Any]]:
        return self.document["pages"] if self.document else []

    @property
    def contents(self) -> list[str]:
        return [block["content"] or "" for page in self.pages for block in page["blocks"]]

    @property
    def page_s(self) -> float | None:
        """Seconds per page, without the start of the process."""
        return self.document["seconds"] / max(1, len(self.pages)) if self.document else None

    @property
    def peak_bytes(self) -> int:
        return (self.document or {}).get("peak_rss_bytes") or 0


@dataclass
class Row:
    """What was seen of one file. `missed` has the facts that did not hold, with what was seen instead."""

    name: str
    quick: Run
    model: Run | None
    layer: Run | None
    held: list[str] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)

    def check(self, fact: str, holds: bool, seen: object = "") -> None:
        if holds:
            self.held.append(fact)
        else:
            self.missed[fact] = str(seen)


def read(path: Path, *options: str) -> Run:
    """`mineru-edge parse` in a process of its own."""
    command = [sys.executable, "-m", "mineru_edge", "parse", str(path), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S * 5)
    document = json.loads(done.stdout) if done.stdout.startswith("{") else None
    return Run(done.returncode, None if document is None or "error" in document else document, done.stderr)


def row(folder: Path, entry: dict[str, Any]) -> Row:
    """One file, read and held against its facts."""
    path, facts = folder / entry["file"], entry["expected"]
    password = ["--password", facts["password"]] if "password" in facts else []
    found = Row(
        entry["file"],
        read(path, "--quick", *password),
        read(path, "--text", "model", *password) if facts.get("text_layer") is True else None,
        read(path, "--text", "layer", *password) if path.suffix == ".pdf" else None,
    )
    if "open_error" in facts:
        found.check("refused", found.quick.code == InputError.exit_code, found.quick.stderr)
        return found
    if password:
        refused = read(path, "--quick")
        words = "encrypted" in refused.stderr
        found.check("password", refused.code == InputError.exit_code and words, refused.stderr)
    runs = [run for run in (found.layer, found.quick, found.model) if run is not None]
    found.check(
        "limits",
        all(run.peak_bytes < LIMIT_BYTES and (run.page_s or 0) < LIMIT_S for run in runs),
        [(run.peak_bytes, run.page_s) for run in runs],
    )
    _check_pages(found, facts)
    _check_words(found, facts)
    return found


def _check_pages(found: Row, facts: dict[str, Any]) -> None:
    document = found.quick.document or {}
    pages = found.quick.pages
    found.check("pages", document.get("page_count") == facts.get("pages", 1), document.get("page_count"))
    failed = [page["number"] for page in pages if page["error"]]
    expected = [int(error.split()[1].strip(":")) for error in facts.get("page_errors", ())]
    found.check("page errors", failed == expected, failed)
    sizes = [(page["width_px"], page["height_px"]) for page in pages if not page["error"]]
    wanted = [_pixels(width, height) for width, height, _ in facts.get("page_size_pt_and_rotate", ())]
    if "width" in facts:
        wanted = [(facts["width"], facts["height"])]
    close = len(sizes) == len(wanted) and all(
        abs(seen - right) <= 2 for pair in zip(sizes, wanted, strict=True) for seen, right in zip(*pair, strict=True)
    )
    found.check("sizes", close, f"{sizes} for {wanted}")
    if facts.get("blank"):
        found.check("blank", not found.quick.contents, found.quick.contents)


def _pixels(width_pt: float, height_pt: float) -> tuple[int, int]:
    scale = min(DPI / 72, LONG_EDGE_PX / max(width_pt, height_pt))
    return max(1, round(width_pt * scale)), max(1, round(height_pt * scale))


def _check_words(found: Row, facts: dict[str, Any]) -> None:
    quick = words_in(found.quick.contents)
    if found.layer is not None:
        text = words_in(found.layer.contents)
        if facts["text_layer"] is True:
            lacking = [words for words in facts.get("must_contain", ()) if words_in([words]) not in text]
            found.check("words of the layer", not lacking, lacking)
        elif not facts.get("blank"):
            found.check("no layer, said so", found.layer.code != 0 and not text, found.layer.stderr)
    lacking = [words for words in facts.get("must_contain", ()) if words_in([words]) not in quick]
    if "must_contain" in facts:
        found.check("words", not lacking, lacking)
    if "visible_text" in facts:
        lacking = [words for words in facts["visible_text"] if words_in([words]) not in quick]
        found.check("visible text", not lacking, f"not found: {', '.join(lacking)}")
    hidden = [words for words in facts.get("not_visible", ()) if words_in([words]) in quick]
    if "not_visible" in facts:
        found.check("hidden text left out", not hidden, hidden)


def table(folder: Path, rows: Sequence[Row], entries: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Lines of Markdown."""
    yield "| file | pages | facts that hold | similarity: layer, quick | TEDS: layer, quick"
    yield " | s/page: layer, quick, model | peak: layer, quick, model | what does not hold |\n"
    yield "|---|---|---|---|---|---|---|---|\n"
    for each in rows:
        runs = [run for run in (each.layer, each.quick) if run is not None]
        truth = entries[each.name]
        alike = [similarity(folder, truth, run.contents) for run in runs if any(run.contents)]
        scores = [table_scores(folder, truth, run.pages) for run in runs]
        everyone = [run for run in (*runs, each.model) if run is not None]
        reasons = [REASONS.get((each.name, fact), f"**{fact}: {seen}**") for fact, seen in each.missed.items()]
        cells = [
            each.name,
            str(len(each.quick.pages) or ""),
            ", ".join(dict.fromkeys(each.held)),
            ", ".join(f"{value:.3f}" for value in alike if value is not None),
            "; ".join(", ".join(f"{value:.2f}" for value in values) for values in scores if values),
            ", ".join(f"{run.page_s:.2f}" for run in everyone if run.page_s is not None),
            ", ".join(megabytes(run.peak_bytes).split(".")[0] for run in everyone if run.peak_bytes),
            "; ".join(reasons).replace("|", "\\|").replace("\n", " "),
        ]
        yield f"| {' | '.join(cells)} |\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--only", nargs="*", metavar="FILE")
    given = options.parse_args()
    manifest = json.loads((given.folder / "manifest.json").read_text("utf-8"))["documents"]
    entries = {entry["file"]: entry for entry in manifest if not given.only or entry["file"] in given.only}
    rows = []
    for number, entry in enumerate(entries.values(), 1):
        sys.stderr.write(f"{number}/{len(entries)} {entry['file']}\n")
        rows.append(row(given.folder, entry))
    sys.stdout.write(HEAD.format(day=date.today(), processor=platform.processor() or platform.machine()))
    sys.stdout.writelines(table(given.folder, rows, entries))
    missed = {(each.name, fact) for each in rows for fact in each.missed}
    needless = {key for key in REASONS if key[0] in entries} - missed
    sys.stdout.write(f"\n{sum(len(each.held) for each in rows)} facts hold, {len(missed)} do not.\n")
    for name, fact in sorted(needless):
        sys.stdout.write(f"\n{name}: {fact} holds, and a reason is given why it cannot.\n")
    return 1 if needless or missed - set(REASONS) else 0


HEAD = """# Documents as people have them

Made by `python tests/documents.py DIRECTORY` on {day} ({processor}), with the embedded model. Each run is a process of
its own. Columns with several values are for `--text layer` (PDF alone), `--quick` and `--text model`, in this order.

- *facts*: `words` and `visible text` must be in what `--quick` gave, `words of the layer` in what `--text layer` gave;
  `limits` are under 1 GB and under 120 s a page; `sizes` are those of the pictures at 200 dpi, at most 3500 pixels.
- *similarity* to a reference text kept by others, 1 less the edit distance over the longer, letters and digits alone.
- *TEDS* of each true table against the best that was given: rows and tabs of the layer's text; what the embedded model
  made of the tables that the detector found. It was made for another kind of table and says nothing of MinerU2.5.
- *peak* is resident memory in MB, the drawing process included. Time is that of reading, without the start.

"""

if __name__ == "__main__":
    sys.exit(main())
