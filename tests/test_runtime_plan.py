"""Memory as arithmetic: what a limit buys, in which order it is lowered, and what a refusal says."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path

import pytest
from bundles import write_bundle

from mineru_edge.models.architecture import TextShape, VisionShape
from mineru_edge.models.bundle import (
    DECODER_DATA_FILE,
    EMBED_FILE,
    OV_DECODER_DATA_FILE,
    OV_VISION_DATA_FILE,
    TOKENIZER_FILE,
    VISION_DATA_FILE,
    Bundle,
    FileEntry,
    embed_bytes,
)
from mineru_edge.models.errors import BudgetError
from mineru_edge.runtime import engine as engines
from mineru_edge.runtime import plan as plans
from mineru_edge.runtime.engines import choose_engines
from mineru_edge.runtime.footprint import ORT_PACKED_PER_BYTE
from mineru_edge.runtime.kv import KVStore
from mineru_edge.runtime.plan import Plan, make_plan

GB = 1_000_000_000


@pytest.fixture
def small(tmp_path: Path) -> Bundle:
    return write_bundle(tmp_path)


@pytest.fixture
def full(small: Bundle) -> Bundle:
    """MinerU2.5's shapes and the sizes of its INT8 files."""
    text = TextShape(
        layers=24, width=896, heads=14, kv_heads=2, head_dim=64, mlp_width=4864, vocab=151936, rope_theta=1e6,
        mrope_sections=(8, 12, 12), norm_eps=1e-6, max_positions=16384,
    )  # fmt: skip
    vision = VisionShape(
        depth=32, width=1280, heads=16, mlp_width=5120, patch=14, merge=2, temporal=2, channels=3, out_width=896
    )
    sizes = {
        TOKENIZER_FILE: 5_363_651,
        EMBED_FILE: embed_bytes(text, "int8"),
        VISION_DATA_FILE: 667_471_872,
        DECODER_DATA_FILE: 509_815_296,
    }
    files = tuple(FileEntry(path, size, "0" * 64) for path, size in sizes.items())
    pixels = dataclasses.replace(small.preprocessing, max_pixels=1605632, layout_size=(1036, 1036))
    return dataclasses.replace(small, text=text, vision=vision, files=files, preprocessing=pixels)


def test_parts_add_up_and_are_named(full: Bundle) -> None:
    plan = make_plan(full, limit_bytes=8 * GB)
    assert plan.total_bytes == sum(part.bytes for part in plan.parts)
    assert len({part.name for part in plan.parts}) == len(plan.parts)
    assert all(part.bytes > 0 for part in plan.parts)
    assert {plans.STORE, plans.WEIGHTS, plans.WORK} <= {part.name for part in plan.parts}
    assert plan.bytes_of(plans.STORE, plans.LOGITS) == sum(
        part.bytes for part in plan.parts if part.name in (plans.STORE, plans.LOGITS)
    )


def test_the_store_takes_what_the_plan_says(small: Bundle) -> None:
    plan = make_plan(small, limit_bytes=8 * GB)
    store = KVStore(small.text, slots=plan.slots, capacity_tokens=plan.capacity_tokens)
    assert store.nbytes == {part.name: part.bytes for part in plan.parts}[plans.STORE]


def test_with_room_everything_is_at_its_best(full: Bundle) -> None:
    plan = make_plan(full, limit_bytes=8 * GB)
    assert plan.slots == plans.SLOTS
    assert plan.patch_cap == 1605632 // 196
    assert plan.capacity_tokens == plan.patch_cap // 4 + plans.TEXT_TOKENS + plans.ROOM_TOKENS


def test_capacity_never_passes_the_model_s_longest(small: Bundle) -> None:
    assert make_plan(small, limit_bytes=8 * GB).capacity_tokens == small.text.max_positions


def lowered(full: Bundle) -> list[Plan]:
    """Plans from plenty down to the least that fits."""
    found, limit = [], 4 * GB
    while True:
        try:
            found.append(make_plan(full, limit_bytes=limit))
        except BudgetError as error:
            return [*found, make_plan(full, limit_bytes=error.need_bytes)]
        limit -= 20_000_000


def test_a_tighter_limit_lowers_slots_then_capacity_then_patches(full: Bundle) -> None:
    found = lowered(full)
    best = found[0]
    for plan in found:
        assert plan.limit_bytes is not None
        assert plan.total_bytes <= plan.limit_bytes
        if plan.slots > 1:
            assert (plan.capacity_tokens, plan.patch_cap) == (best.capacity_tokens, best.patch_cap)
        elif plan.patch_cap < best.patch_cap:
            assert plan.capacity_tokens == plan.patch_cap // 4 + plans.TEXT_TOKENS + plans.LEAST_ROOM_TOKENS
    for looser, tighter in itertools.pairwise(found):
        assert tighter.slots <= looser.slots
        assert tighter.capacity_tokens <= looser.capacity_tokens
        assert tighter.patch_cap <= looser.patch_cap
    assert found[-1].slots == 1
    assert found[-1].patch_cap == plans.LEAST_PATCHES


def test_a_page_s_layout_fits_one_gigabyte_when_prepared(full: Bundle) -> None:
    """5476 patches are the layout picture; below, it is scaled down."""
    plan = make_plan(full, limit_bytes=GB, packed_is_mapped=True)
    assert plan.patch_cap >= 5476
    assert plan.slots == 1
    assert plan.prefill_chunk < plans.PREFILL_CHUNKS[0]
    assert make_plan(full, limit_bytes=int(1.55 * GB)).patch_cap >= 5476


def test_the_process_that_draws_pages_is_counted(full: Bundle) -> None:
    alone, beside = make_plan(full, limit_bytes=4 * GB), make_plan(full, limit_bytes=4 * GB, drawn_apart=True)
    assert beside.total_bytes == alone.total_bytes + plans.DRAWER_BYTES
    assert beside.drawer_stays
    room = 4 * GB - beside.total_bytes + beside.bytes_of(plans.WORK)
    assert beside.drawing_bytes == min(room, plans.DRAWING_MOST_BYTES)


def test_where_memory_is_short_it_goes_between_pages_before_pictures_get_smaller(full: Bundle) -> None:
    alone = make_plan(full, limit_bytes=GB, packed_is_mapped=True)
    beside = make_plan(full, limit_bytes=GB, packed_is_mapped=True, drawn_apart=True)
    assert not beside.drawer_stays
    assert beside.patch_cap == alone.patch_cap
    assert beside.total_bytes <= GB
    assert beside.drawing_bytes >= plans.DRAWING_BYTES


def test_a_small_model_leaves_room_to_draw_a_page(small: Bundle) -> None:
    least = 0
    try:
        make_plan(small, limit_bytes=1_000_000, drawn_apart=True)
    except BudgetError as error:
        least = error.need_bytes
    plan = make_plan(small, limit_bytes=least, drawn_apart=True)
    assert plan.drawing_bytes == plan.bytes_of(plans.WORK) == plans.DRAWING_BYTES


def test_a_system_that_cannot_drop_pages_keeps_all_weights(full: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 GB of limit then are what 1.2 GB are elsewhere."""
    monkeypatch.setattr(plans, "can_drop", lambda: False)
    weights = {p.name: p.bytes for p in make_plan(full, limit_bytes=8 * GB).parts}[plans.WEIGHTS]
    assert weights == 667_471_872 + int(509_815_296 * ORT_PACKED_PER_BYTE)
    with pytest.raises(BudgetError):
        make_plan(full, limit_bytes=int(1.5 * GB))


def test_a_refusal_has_both_numbers_and_the_limit_that_would_do(full: Bundle) -> None:
    with pytest.raises(BudgetError) as caught:
        make_plan(full, limit_bytes=GB // 2)
    error = caught.value
    assert error.limit_bytes == GB // 2
    assert error.need_bytes > GB // 2
    assert "set the memory limit to" in str(error)
    assert make_plan(full, limit_bytes=error.need_bytes).total_bytes == error.need_bytes


def test_a_refusal_names_prepare_when_that_would_do(full: Bundle) -> None:
    with pytest.raises(BudgetError, match="mineru-edge prepare"):
        make_plan(full, limit_bytes=GB)
    with pytest.raises(BudgetError, match="mineru-edge prepare"):
        make_plan(full, limit_bytes=GB, packed_is_mapped=True, vision_is_copied=True)
    assert make_plan(full, limit_bytes=GB, packed_is_mapped=True).total_bytes <= GB


def test_copied_weights_of_vision_are_kept_whole(full: Bundle) -> None:
    mapped, copied = (make_plan(full, limit_bytes=4 * GB, vision_is_copied=copied) for copied in (False, True))
    assert copied.bytes_of(plans.WEIGHTS) == mapped.bytes_of(plans.WEIGHTS) + 667_471_872
    assert copied.bytes_of(plans.WORK) < mapped.bytes_of(plans.WORK)


@pytest.mark.parametrize(("option", "value"), [("slots", 40), ("capacity_tokens", 16000), ("patch_cap", 100_000)])
def test_a_refusal_names_the_given_option_that_is_too_high(full: Bundle, option: str, value: int) -> None:
    with pytest.raises(BudgetError, match=f"lower {option} from {value} to (\\d+)") as caught:
        make_plan(full, limit_bytes=int(1.35 * GB), **{option: value})  # type: ignore[arg-type]
    lower = int(str(caught.value).rsplit(" ", 1)[1])
    assert make_plan(full, limit_bytes=int(1.35 * GB), **{option: lower}).total_bytes <= 1.35 * GB  # type: ignore[arg-type]


def test_what_is_given_is_kept(full: Bundle) -> None:
    plan = make_plan(full, limit_bytes=4 * GB, slots=2, capacity_tokens=3000, patch_cap=6000, raster_px=2000)
    assert (plan.slots, plan.capacity_tokens, plan.patch_cap, plan.raster_px) == (2, 3000, 6000, 2000)


def test_without_a_limit_most_of_what_is_available_is_the_limit(full: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "available_bytes", lambda: 3 * GB)
    plan = make_plan(full)
    assert plan.limit_bytes == int(3 * GB * plans.SHARE_OF_AVAILABLE)
    assert plan.total_bytes <= plan.limit_bytes
    monkeypatch.setattr(plans, "available_bytes", lambda: None)
    assert make_plan(full).limit_bytes is None
    assert make_plan(full).slots == plans.SLOTS
    monkeypatch.setattr(plans, "available_bytes", lambda: GB)
    with pytest.raises(BudgetError):
        make_plan(full)


@pytest.mark.parametrize(
    "options", [{"slots": 0}, {"capacity_tokens": 0}, {"capacity_tokens": 16385}, {"patch_cap": 3}, {"raster_px": 0}]
)
def test_impossible_options_are_refused(full: Bundle, options: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        make_plan(full, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limit", "vision", "decoder"),
    [
        (2.6 * GB, "onnxruntime", "onnxruntime"),  # either would fit in openvino, with one slot or smaller pictures
        (3.4 * GB, "openvino", "onnxruntime"),
        (4 * GB, "openvino", "openvino"),
    ],
)
def test_the_faster_engines_are_left_where_they_would_cost_pictures_or_slots(
    full: Bundle, monkeypatch: pytest.MonkeyPatch, limit: float, vision: str, decoder: str
) -> None:
    sizes = {OV_VISION_DATA_FILE: 664_506_536, OV_DECODER_DATA_FILE: 509_406_128}
    files = (*full.files, *(FileEntry(path, size, "0" * 64) for path, size in sizes.items()))
    both = dataclasses.replace(full, files=files, engines=("onnx", "openvino"))
    server = functools.partial(
        choose_engines,
        installed=("onnxruntime", "openvino"),
        architecture="x86_64",
        features={"avx512_vnni", "amx_bf16"},
    )
    monkeypatch.setattr(engines, "choose_engines", server)
    monkeypatch.setattr(engines, "is_prepared", lambda bundle, kv, chosen: chosen.decoder.engine == "onnxruntime")
    chosen, plan = engines.choose_plan(both, limit_bytes=int(limit))
    assert (chosen.vision.engine, chosen.decoder.engine) == (vision, decoder)
    assert plan.total_bytes <= limit
    assert plan.patch_cap == 1605632 // 196
    assert plan.slots >= engines.ENOUGH_SLOTS
