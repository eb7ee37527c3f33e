"""The training model is Qwen2-VL, its checkpoint is one, and its losses look where they should."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from transformers import Qwen2VLForConditionalGeneration  # noqa: E402

from mineru_edge.export.tiny import batches, checkpoint, losses, samples  # noqa: E402
from mineru_edge.export.tiny.model import Config, TinyQwen2VL  # noqa: E402


@pytest.fixture(scope="module")
def drawn() -> list[samples.Sample]:
    return samples.page_samples(3, layout=True, content=True)


@pytest.fixture(scope="module")
def model() -> TinyQwen2VL:
    torch.manual_seed(0)
    return TinyQwen2VL(Config()).eval()


def logits(model: TinyQwen2VL, batch: batches.Batch) -> torch.Tensor:
    """Logits at every position, in f32 and without the training's shortcuts."""
    ids, index = torch.from_numpy(batch.ids), torch.from_numpy(batch.image_index)
    grid, positions = torch.from_numpy(batch.grid), torch.from_numpy(batch.positions)
    _, merged = model.visual(losses.pixels(torch.from_numpy(batch.grey)), grid, torch.from_numpy(batch.patches))
    table = model.model["embed_tokens"]
    placed = merged.gather(1, index.clamp(min=0)[..., None].expand(-1, -1, merged.shape[-1]))
    hidden, _, _ = model(torch.where((index >= 0)[..., None], placed, table(ids)), positions)
    return hidden @ table.weight.T


def test_the_checkpoint_is_the_model(tmp_path: Path, model: TinyQwen2VL, drawn: list[samples.Sample]) -> None:
    halved = TinyQwen2VL(Config())
    halved.load_state_dict({k: v.to(torch.bfloat16).float() for k, v in model.state_dict().items()})
    both = torch.nn.ModuleList([halved, losses.Helpers(Config())])
    torch.save({"both": both.state_dict()}, tmp_path / "train.pt")
    checkpoint.write(tmp_path / "train.pt", tmp_path / "checkpoint")
    again = checkpoint.read(tmp_path / "checkpoint")
    assert all(torch.equal(again[name], value) for name, value in halved.state_dict().items())
    reference = Qwen2VLForConditionalGeneration.from_pretrained(tmp_path / "checkpoint", dtype=torch.float32).eval()
    for sample in drawn[:3]:
        batch = batches.collate([sample])
        rows, cols = (int(v) + 1 for v in sample.grid.max(0))
        grey = losses.pixels(torch.from_numpy(batch.grey))
        frames = grey.view(-1, 3, 1, 196).expand(-1, -1, 2, -1).reshape(grey.shape[1], -1)
        ids = torch.from_numpy(batch.ids)
        with torch.no_grad():
            expected = reference(
                input_ids=ids,
                pixel_values=frames,
                image_grid_thw=torch.tensor([[1, rows, cols]]),
                attention_mask=torch.ones_like(ids),
                mm_token_type_ids=(ids == samples.IMAGE).int(),
            ).logits
            found = logits(halved, batch)
        assert float((found - expected).abs().max()) < 1e-4 * float(expected.abs().max())


def test_padding_changes_nothing(model: TinyQwen2VL, drawn: list[samples.Sample]) -> None:
    pair = sorted((s for s in drawn if s.task == "text"), key=lambda s: len(s.grey))
    short, long = pair[0], pair[-1]
    assert len(short.grey) < len(long.grey)
    with torch.no_grad():
        alone = logits(model, batches.collate([short]))[0]
        together = logits(model, batches.collate([short, long]))[0, : len(short.ids)]
    assert float((alone - together).abs().max()) < 1e-4 * float(alone.abs().max())


def test_losses_fall_on_one_page(drawn: list[samples.Sample]) -> None:
    torch.manual_seed(0)
    model, helpers = TinyQwen2VL(Config()), losses.Helpers(Config())
    both = torch.nn.ModuleList([model, helpers])
    optimizer = torch.optim.AdamW(both.parameters(), lr=1e-3)
    made = batches.cut(drawn, random.Random(0))
    assert {b.task for b in made} >= {"layout", "text"}

    def sweep() -> float:
        whole = 0.0
        for batch in made:
            parts = losses.losses(model, helpers, batch)
            optimizer.zero_grad()
            losses.total(parts).backward()
            torch.nn.utils.clip_grad_norm_(both.parameters(), 1.0)
            optimizer.step()
            whole += float(parts["token"].detach())
        return whole

    first = sweep()
    for _ in range(6):
        last = sweep()
    assert last < 0.8 * first


def test_penalties_count_only_what_came_before() -> None:
    target = torch.tensor([[5, 5, 7, -100]])
    taken = losses.penalties(target, 8, presence=1.0, frequency=0.5)[0]
    assert taken[0].tolist() == [0.0] * 8
    assert taken[1, 5] == 1.5
    assert taken[2, 5] == 2.0
    assert taken[3, 7] == 1.5
    assert taken[3, 5] == 2.0


def test_the_last_digit_of_a_coordinate_counts_less() -> None:
    nowhere = float("nan")
    spelt = [nowhere, *[0.1] * 4, *[0.2] * 4, *[0.3] * 4, *[0.4] * 3, nowhere, nowhere, *[0.5] * 4]
    found = losses.digit_weights(torch.tensor([spelt]))[0].tolist()
    assert [place for place, weight in enumerate(found) if weight < 1] == [3, 7, 11, 15, 20]
