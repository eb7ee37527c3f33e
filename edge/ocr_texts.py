"""What OCR reads in blocks that were found by others, such as the model."""

from __future__ import annotations

from collections.abc import Mapping

from PIL import Image

from .document import Box
from .glyphs import turned_box, upright
from .ocr import PageLines
from .text_layer import TextLayer


def ocr_texts(
    lines: PageLines, page: Image.Image, boxes: Mapping[int, Box], wanted: Mapping[int, str]
) -> dict[int, str]:
    """The text of those boxes in `wanted` (index to block type) that hold a line, whichever way it runs.

    Lines belong to the smallest of all `boxes` that holds most of them; those in no wanted box are not read.
    """
    kept = [boxes[index] for index in wanted]
    seen = lines.glyphs(lambda line: any(_holds(box, line) for box in kept))
    best: dict[int, str] = {}
    for turn in sorted({glyph.turn for glyph in seen.glyphs}):
        image = page.rotate(turn, expand=True) if turn else page
        level = {index: turned_box(box, -turn % 360) for index, box in boxes.items()}
        words = TextLayer(upright(seen, turn), image)
        for index, held in words.owned_by_line(level).items():
            if index is not None and index in wanted:
                text = words.text(held)
                best[index] = max(best.get(index, ""), text, key=len)
    return best


def _holds(box: Box, line: Box) -> bool:
    x, y = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]
