"""Pages become training samples: grey patch codes, prompt and answer ids, M-RoPE positions, and targets for the
helpers.

Everything is numpy, made in producer processes, so that drawing runs beside the training.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from . import pages, words
from .draw import FAMILIES, NOWHERE, Drawn, Style, paragraph
from .tokenizer import build, token_id

Array = NDArray[Any]

TOKENIZER = build()
LAYOUT_PX = (280, 588)  # lines are closer than columns: a row of merged cells is one line of print
UNIT, PATCH = 28, 14
MIN_PIXELS, MAX_PIXELS = 4 * UNIT * UNIT, 1280 * UNIT * UNIT
FRAMES_PER_COLUMN = 3
INSIDE = (26, 26)  # thousandths from a truth box's corner to its first ink
TYPES = ("none", "text", "title", "table", "equation", "header", "footer", "page_number")
PROMPTS = {"layout": "\nLayout Detection:", "table": "\nTable Recognition:", "equation": "\nFormula Recognition:"}
PENALTIES = {"layout": (0.0, 0.0), "table": (1.0, 0.005)}  # presence, frequency; everything else (1.0, 0.05)
EOS = token_id(TOKENIZER, "<|im_end|>")
IMAGE = token_id(TOKENIZER, "<|image_pad|>")
BEFORE = TOKENIZER.encode(
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
).ids


Spelt = tuple[str, tuple[int, int, int, int] | None, float | None]
"""A part of an answer, the merged cells it is read from (rows, columns), and the coordinate it spells."""


@dataclass(slots=True)
class Sample:
    task: str
    grey: Array  # u8 [N, 196], merge order
    grid: Array  # i64 [N, 2] patch row, column
    ids: Array  # i64 [S], prompt, picture, answer, EOS
    positions: Array  # i64 [3, S]
    answer_from: int  # index of the first answer id
    cells: Array  # i16 [answer, 4] first row, last row, first column, last column of the merged cells looked at, or -1
    values: Array  # f32 [answer] the coordinate that a digit belongs to, in page units, or NaN
    runs: list[tuple[Array, Array]]  # reading helper: patch indices of a line, byte ids
    types: Array | None = None  # layout helper: i64 [N]
    boxes: Array | None = None  # f32 [N, 4] in page units


def smart_size(width: int, height: int) -> tuple[int, int]:
    """Picture size in pixels after the Qwen2-VL rule (transformers ``smart_resize``), width and height."""
    h, w = round(height / UNIT) * UNIT, round(width / UNIT) * UNIT
    if h * w > MAX_PIXELS:
        beta = math.sqrt(height * width / MAX_PIXELS)
        h, w = (max(UNIT, math.floor(v / beta / UNIT) * UNIT) for v in (height, width))
    elif h * w < MIN_PIXELS:
        beta = math.sqrt(MIN_PIXELS / (height * width))
        h, w = (math.ceil(v * beta / UNIT) * UNIT for v in (height, width))
    return w, h


def patchify(image: Image.Image) -> tuple[Array, Array]:
    """Grey picture with sides in multiples of 28 -> u8 [N, 196] and grid [N, 2], both in merge order."""
    pixels = np.asarray(image, np.uint8)
    rows, cols = pixels.shape[0] // PATCH, pixels.shape[1] // PATCH
    grey = (
        pixels.reshape(rows // 2, 2, PATCH, cols // 2, 2, PATCH)
        .transpose(0, 3, 1, 4, 2, 5)
        .reshape(rows * cols, PATCH * PATCH)
    )
    r, c = np.meshgrid(np.arange(rows), np.arange(cols), indexing="ij")
    order = np.stack((r, c), -1).reshape(rows // 2, 2, cols // 2, 2, 2).transpose(0, 2, 1, 3, 4).reshape(-1, 2)
    return grey, order


def merge_index(row: int, col: Array, cols: int) -> Array:
    """Index in merge order of the patches at one row and several columns."""
    index: Array = ((row // 2) * (cols // 2) + col // 2) * 4 + (row % 2) * 2 + col % 2
    return index


def assemble(
    task: str,
    image: Image.Image,
    pieces: list[Spelt],
    runs: list[tuple[Array, Array]],
) -> Sample:
    grey, grid = patchify(image)
    rows, cols = image.height // UNIT, image.width // UNIT
    answer: list[int] = []
    cells: list[tuple[int, int, int, int]] = []
    values: list[float] = []
    for text, rect, value in pieces:
        spelt = TOKENIZER.encode(text, add_special_tokens=False).ids
        answer += spelt
        cells += [rect or (-1, -1, -1, -1)] * len(spelt)
        values += [NOWHERE if value is None else value] * len(spelt)
    answer.append(EOS)
    cells.append((-1, -1, -1, -1))
    values.append(NOWHERE)
    after = TOKENIZER.encode(
        f"<|vision_end|>{PROMPTS.get(task, chr(10) + 'Text Recognition:')}<|im_end|>\n<|im_start|>assistant\n"
    ).ids
    start, n = len(BEFORE), rows * cols
    ids = np.array([*BEFORE, *[IMAGE] * n, *after, *answer], np.int64)
    positions = np.empty((3, len(ids)), np.int64)
    positions[:, :start] = np.arange(start)
    r, c = np.divmod(np.arange(n), cols)
    positions[:, start : start + n] = np.stack((np.zeros(n, np.int64), r, c)) + start
    positions[:, start + n :] = start + max(rows, cols) + np.arange(len(ids) - start - n)
    told = np.array(cells, np.int16), np.array(values, np.float32)
    return Sample(task, grey, grid, ids, positions, start + n + len(after), *told, runs)


def content_sample(page: Image.Image, block: Drawn, rng: random.Random) -> Sample:
    """A block's crop, cut as the protocol cuts a layout box that is some pixels off, more often outwards: what lies
    far inside would cut letters that nobody can read."""
    out = [rng.triangular(-6, 10, 1) for _ in range(4)]
    x0, y0, x1, y1 = (round(v + sign * o) for v, sign, o in zip(block.box, (-1, -1, 1, 1), out, strict=True))
    x0, y0, x1, y1 = max(0, x0), max(0, y0), min(page.width, x1), min(page.height, y1)
    crop = page.crop((x0, y0, x1, y1))
    width, height = smart_size(*crop.size)
    sx, sy = width / crop.width, height / crop.height
    crop = crop.resize((width, height), Image.Resampling.BICUBIC)
    rows, cols = height // UNIT, width // UNIT

    def cell(x: float, y: float) -> tuple[int, int, int, int] | None:
        if x != x:
            return None
        r = min(rows - 1, max(0, int((y - y0) * sy // UNIT)))
        c = min(cols - 1, max(0, int((x - x0) * sx // UNIT)))
        return r, r, c, c

    runs = []
    for s in block.segments:
        row = min(2 * rows - 1, max(0, int((s.y - y0) * sy // PATCH)))
        first, last = (min(2 * cols - 1, max(0, int((v - x0) * sx // PATCH))) for v in (s.x0, s.x1))
        target = np.array(TOKENIZER.encode(s.text, add_special_tokens=False).ids, np.int64)
        runs.append((merge_index(row, np.arange(first, last + 1), 2 * cols), target))
    task = block.type if block.type in PROMPTS else "text"
    return assemble(task, crop, [(p.text, cell(p.x, p.y), None) for p in block.pieces], runs)


def line_sample(rng: random.Random, tokens: int) -> Sample:
    """A short block of about ``tokens`` characters on its own small canvas: what reading starts with."""
    style = Style(rng.choice(tuple(FAMILIES)), rng.random() < 0.2, rng.randint(17, 23), rng.randint(0, 60))
    text = words.words(rng, max(1, round(tokens / 6 * rng.uniform(0.3, 1.2))))
    image = Image.new("L", (560, 230), 255)
    block = paragraph(ImageDraw.Draw(image), "text", style, text, 24, 20, rng.uniform(200, 480), rng.uniform(1.25, 1.5))
    image = image.crop((0, 0, max(300, int(block.box[2]) + 20), min(230, int(block.box[3]) + 20)))
    return content_sample(pages.scan(image, rng).convert("L"), block, rng)


def cell_at(x: int, y: int, rows: int, cols: int) -> tuple[int, int]:
    """Merged row and column of a point in thousandths of the page."""
    return min(rows - 1, max(0, y * rows // 1000)), min(cols - 1, max(0, x * cols // 1000))


def layout_sample(page: pages.TruthPage, grey: Image.Image) -> Sample:
    image = grey.resize(LAYOUT_PX, Image.Resampling.BICUBIC)
    rows, cols = LAYOUT_PX[1] // UNIT, LAYOUT_PX[0] // UNIT
    pieces: list[Spelt] = []
    types = np.zeros((2 * rows, 2 * cols), np.int64)
    boxes = np.zeros((2 * rows, 2 * cols, 4), np.float32)
    best = np.zeros((2 * rows, 2 * cols), np.float32)
    for n, b in enumerate(page.blocks):
        x0, y0, x1, y1 = b.bbox
        whole = (*cell_at(x0, y0, rows, cols), *cell_at(x1 - 1, y1 - 1, rows, cols))
        first, last = (
            cell_at(x0 + INSIDE[0], y0 + INSIDE[1], rows, cols),
            cell_at(x1 - INSIDE[0], y1 - INSIDE[1], rows, cols),
        )
        line = pages.layout_line(b)
        start, end = line.index(">") + 1, line.index("<|box_end|>")
        around = whole[0], whole[2], whole[1], whole[3]
        pieces.append((("\n" if n else "") + line[:start], around, None))
        for place, (corner, value) in enumerate(zip((first, first, last, last), b.bbox, strict=True)):
            digits = line[start + 4 * place : min(end, start + 4 * place + 4)]
            pieces.append((digits, (corner[0], corner[0], corner[1], corner[1]), value / 1000))
        pieces.append((line[end:], around, None))
        if b.type == "list":
            continue
        left, right = np.arange(2 * cols) * 500 / cols, np.arange(1, 2 * cols + 1) * 500 / cols
        top, bottom = np.arange(2 * rows) * 500 / rows, np.arange(1, 2 * rows + 1) * 500 / rows
        cover_x = np.clip(np.minimum(right, x1) - np.maximum(left, x0), 0, None) / (500 / cols)
        cover_y = np.clip(np.minimum(bottom, y1) - np.maximum(top, y0), 0, None) / (500 / rows)
        cover = cover_y[:, None] * cover_x[None, :]
        won = (cover > best) & (cover > 0.25)
        best[won] = cover[won]
        types[won] = TYPES.index(b.type)
        boxes[won] = np.array(b.bbox, np.float32) / 1000
    sample = assemble("layout", image, pieces, [])
    r, c = sample.grid.T
    sample.types, sample.boxes = types[r, c], boxes[r, c]
    return sample


def page_samples(seed: int, layout: bool, content: bool) -> list[Sample]:
    page = pages.generate_page(seed)
    grey = page.image.convert("L")
    rng = random.Random(~seed)
    out = [layout_sample(page, grey)] if layout else []
    if content:
        out += [content_sample(grey, b, rng) for b in page.drawn if b.pieces]
    return out
