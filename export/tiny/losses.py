"""What the tiny model is trained on: next token, and three helpers that are thrown away afterwards.

Next-token loss alone hardly leaves its plateau at this size. The helpers: a CTC head on the normalised vision rows
of each text
line (three frames per 14 px column); a head on the layout picture's rows that names each patch's block and box; and
attention
supervision, which asks one head of two middle decoder layers to look at the cell that holds the next character.
Penalties the client applies when decoding are subtracted in training too, so that the model learns to outvote them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .batches import Batch
from .model import Config, TinyQwen2VL
from .samples import FRAMES_PER_COLUMN, PENALTIES, TYPES

MEAN = torch.tensor((0.48145466, 0.4578275, 0.40821073))
STD = torch.tensor((0.26862954, 0.26130258, 0.27577711))
GUIDED = ((1, 0), (2, 1))  # decoder layer, head
EDGES_AFTER, VALUE_AFTER = 1, 2  # decoder layers
UNITS = 0.3  # what the loss of a coordinate's last digit counts
PLACES = 24  # rows and columns told apart
NEAR = torch.tensor((0.12, 0.06, 0.12, 0.06))  # of the page: how far off an edge may be that a patch is asked about
TALL = torch.tensor((1.0, 2.0, 1.0, 2.0))  # lines are closer than columns, so an error counts more upwards
FINE = 0.005  # of the page: a coordinate's loss is linear above and quadratic below


class Helpers(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.ctc = nn.Linear(c.vision_width, FRAMES_PER_COLUMN * 257)
        self.merged_ctc = nn.Linear(c.width, 2 * FRAMES_PER_COLUMN * 257)
        self.types = nn.Linear(c.vision_width, len(TYPES))
        self.boxes = nn.Linear(c.vision_width, 4)
        self.places = nn.Linear(c.width, 2 * PLACES)
        self.merged_boxes = nn.Linear(c.width, 2 * 4)
        self.cell_boxes = nn.Linear(c.width, 2 * 4)
        self.value = nn.Linear(c.width, 1)


def pixels(grey: Tensor) -> Tensor:
    """u8 [B, N, 196] -> normalised f32 [B, N, 588], channel outermost as the image processor has it."""
    values = grey.float()[:, :, None] / 255
    return ((values - MEAN[:, None]) / STD[:, None]).flatten(2)


def penalties(target: Tensor, vocab: int, presence: float, frequency: float) -> Tensor:
    """[B, T] -> [B, T, vocab], what the client subtracts at each step given the tokens before it."""
    hot = F.one_hot(target.clamp(min=0), vocab).float()
    counts = hot.cumsum(1) - hot
    return presence * (counts > 0) + frequency * counts


def digit_weights(values: Tensor) -> Tensor:
    """[B, T] of which coordinate is spelt, NaN elsewhere -> what each token's loss counts.

    Coordinates are three digits and a blank. The last digit is a thousandth of the page, less than a pixel of the
    picture: mostly chance, which should not drown the others.
    """
    finite = torch.isfinite(values)
    place = torch.arange(values.shape[1]).expand_as(values)
    before = torch.where(finite, -1, place).cummax(1).values  # the last token that is no coordinate
    return torch.where(finite & ((place - before - 1) % 4 == 2), UNITS, 1.0)


def token_loss(
    hidden: Tensor, table: Tensor, target: Tensor, weights: Tensor, presence: float, frequency: float
) -> tuple[Tensor, Tensor]:
    valid = target >= 0
    chosen, wanted = hidden[valid], target[valid]  # padding is a third of a batch
    logits = (chosen.to(torch.bfloat16) @ table.to(torch.bfloat16).T).float()
    if presence:
        logits = logits - penalties(target, table.shape[0], presence, frequency)[valid]
    loss = (F.cross_entropy(logits, wanted, reduction="none") * weights[valid]).mean()
    return loss, (logits.argmax(-1) == wanted).float().mean()


def attention_loss(pair: tuple[Tensor, Tensor], head: int, batch: dict[str, Tensor]) -> Tensor:
    q, k = pair[0][:, head].float(), pair[1][:, head].float()
    take, cells, cell_of = batch["take"], batch["cells"], batch["cell_of"]
    wanted = (cells[..., 0] >= 0) & (batch["target"] >= 0)
    q = q.gather(1, take[..., None].expand(-1, -1, q.shape[-1]))
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(torch.arange(k.shape[1]) > take[..., None], -1e4)
    row, col = cell_of[:, None, :, 0], cell_of[:, None, :, 1]
    inside = (row >= cells[..., 0:1]) & (row <= cells[..., 1:2]) & (col >= cells[..., 2:3]) & (col <= cells[..., 3:4])
    mass = (scores.softmax(-1) * inside).sum(-1)
    return -(torch.log(mass + 1e-5) * wanted).sum() / wanted.sum().clamp(min=1)


def place_loss(scores: Tensor, cell_of: Tensor) -> Tensor:
    """Each picture position names its merged row and column, which it can only know from M-RoPE."""
    known = (cell_of[..., 0] >= 0) & (cell_of[..., 0] < PLACES) & (cell_of[..., 1] < PLACES)
    row, col = scores[known].float().chunk(2, -1)
    return F.cross_entropy(row, cell_of[known][:, 0].long()) + F.cross_entropy(col, cell_of[known][:, 1].long())


def reading_loss(scores: Tensor, b: Batch) -> Tensor:
    """CTC over [runs, patches, frames per patch x 257]; class 256 is the blank."""
    frames = scores.unflatten(-1, (FRAMES_PER_COLUMN, 257)).flatten(1, 2).log_softmax(-1).transpose(0, 1)
    lengths = torch.from_numpy(b.run_length) * FRAMES_PER_COLUMN
    targets = torch.from_numpy(b.run_target), torch.from_numpy(b.run_target_length)
    return F.ctc_loss(frames, targets[0], lengths, targets[1], blank=256, zero_infinity=True)


def losses(model: TinyQwen2VL, helpers: Helpers, b: Batch) -> dict[str, Tensor]:
    """The named losses and ``correct``, the share of answer tokens predicted right."""
    t = {
        name: torch.from_numpy(getattr(b, name))
        for name in ("grey", "grid", "patches", "ids", "positions", "image_index", "take", "target", "cells", "cell_of")
    }
    out: dict[str, Tensor] = {}
    with torch.autocast("cpu", torch.bfloat16):
        rows, merged = model.visual(pixels(t["grey"]), t["grid"], t["patches"])
        picture = t["image_index"] >= 0
        embeds = model.model["embed_tokens"](t["ids"])
        placed = merged.to(embeds.dtype).gather(
            1, t["image_index"].clamp(min=0)[..., None].expand(-1, -1, embeds.shape[-1])
        )
        embeds = torch.where(picture[..., None], placed, embeds)
        hidden, pairs, states = model(embeds, t["positions"])
        hidden = hidden.gather(1, t["take"][..., None].expand(-1, -1, hidden.shape[-1]))
    presence, frequency = PENALTIES.get(b.task, (1.0, 0.05))
    weights = digit_weights(torch.from_numpy(b.values))
    out["token"], out["correct"] = token_loss(
        hidden, model.model["embed_tokens"].weight, t["target"], weights, presence, frequency
    )
    if bool((t["cells"] >= 0).any()):
        out["look"] = torch.stack([attention_loss(pairs[layer], head, t) for layer, head in GUIDED]).mean()
    out["place"] = place_loss(helpers.places(states[0]), t["cell_of"])
    if len(b.run_index):
        index = torch.from_numpy(b.run_index)
        out["ctc"] = reading_loss(helpers.ctc(rows.flatten(0, 1).float()[index]), b)
        halves = helpers.merged_ctc(merged.flatten(0, 1).float()[index // 4]).unflatten(-1, (2, -1))
        right = (index % 2).bool()[..., None]  # in merge order, odd patches are the right half of their cell
        out["merged_ctc"] = reading_loss(torch.where(right, halves[..., 1, :], halves[..., 0, :]), b)
    if b.types is not None:
        out |= layout_losses(helpers, rows.float(), merged.float(), states, t, b)
    return out


def coordinates(head: nn.Linear, state: Tensor) -> Tensor:
    """A head on the residual stream, whose size grows with depth; scaled so that one step moves the answer little."""
    normal = F.rms_norm(state.float(), (state.shape[-1],))
    out: Tensor = 0.5 + 0.1 * head(normal)
    return out


def layout_losses(
    helpers: Helpers, rows: Tensor, merged: Tensor, states: list[Tensor], t: dict[str, Tensor], b: Batch
) -> dict[str, Tensor]:
    """Each patch tells its block's type and how far off the block's near edges are; each merged cell the latter for its
    upper and its lower half; inside the decoder, where on the page those edges are; and the answer, which edge it is
    spelling. The first two need no absolute position, which vision does not have; the third has M-RoPE to make it one.
    """
    types, boxes, values = (torch.from_numpy(a) for a in (b.types, b.boxes, b.values))
    inside = types > 0
    rows_cols = t["grid"].amax(1, keepdim=True) + 1
    centre = ((t["grid"] + 0.5) / rows_cols).flip(-1).repeat(1, 1, 2)
    near = inside[..., None] & ((boxes - centre).abs() < NEAR)
    merged_count = types.shape[1] // 4
    start = int((t["image_index"][0] == 0).nonzero())
    cells = coordinates(helpers.cell_boxes, states[EDGES_AFTER][:, start : start + merged_count]).unflatten(-1, (2, 4))
    # merge order: patches 0 and 1 of a cell are its upper half, and either may be the one inside a block
    halves, close = boxes.unflatten(1, (merged_count, 2, 2)), near.unflatten(1, (merged_count, 2, 2))
    first = inside.unflatten(1, (merged_count, 2, 2))[..., 0, None]
    middle = centre.unflatten(1, (merged_count, 2, 2)).mean(-2)
    edges = torch.where(first, halves[..., 0, :], halves[..., 1, :])
    known = torch.where(first, close[..., 0, :], close[..., 1, :])
    offsets = helpers.merged_boxes(merged).unflatten(-1, (2, 4))
    spelling = states[VALUE_AFTER].gather(1, t["take"][..., None].expand(-1, -1, states[0].shape[-1]))
    told = coordinates(helpers.value, spelling)[..., 0]
    wanted = torch.isfinite(values)
    return {
        "type": F.cross_entropy(helpers.types(rows).flatten(0, 1), types.flatten()),
        "box": F.smooth_l1_loss((TALL * helpers.boxes(rows))[near], (TALL * (boxes - centre))[near], beta=FINE),
        "merged_box": F.smooth_l1_loss((TALL * offsets)[known], (TALL * (edges - middle))[known], beta=FINE),
        "edge": F.smooth_l1_loss((TALL * cells)[known], (TALL * edges)[known], beta=FINE),
        "value": F.smooth_l1_loss(told[wanted], values[wanted], beta=FINE),
    }


WEIGHTS = {
    "token": 1.0,
    "look": 0.6,
    "ctc": 0.3,
    "merged_ctc": 0.5,
    "type": 0.3,
    "box": 20.0,
    "merged_box": 20.0,
    "edge": 20.0,
    "value": 60.0,
    "place": 0.2,
    "correct": 0.0,
}


def total(parts: dict[str, Tensor]) -> Tensor:
    return torch.stack([WEIGHTS[k] * v for k, v in parts.items()]).sum()
