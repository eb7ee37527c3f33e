"""Memory as arithmetic: from a bundle and a limit to slots, capacity and patch cap, with the bytes of every part.

Counted are the pages this process needs resident at its worst moment, mapped weights included while they are used.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from mineru_edge.models.bundle import EMBED_FILE, TOKENIZER_FILE, Bundle, KVKind
from mineru_edge.models.errors import BudgetError, megabytes

from .engines import ONNXRUNTIME, Engines
from .footprint import library_bytes, prefill_bytes, vision_bytes, weights_of
from .kv import ITEM_BYTES
from .mapped import can_drop
from .memory import available_bytes

logger = logging.getLogger(__name__)

SLOTS = 8
ROOM_TOKENS = 4096  # generated tokens a slot has room for beside its prompt, when memory allows
LEAST_ROOM_TOKENS = 1024
TEXT_TOKENS = 64  # template and prompt around an image
LEAST_PATCHES = 1024  # below it a page's layout cannot be told
PATCH_STEPS = 64
PREFILL_CHUNKS = (512, 256, 128)
RASTER_PX = 3500
SHARE_OF_AVAILABLE = 0.8  # when no limit is given

# Measured with Python 3.11, onnxruntime 1.32, tokenizers 0.23, Pillow 13 on x86-64 Linux.
INTERPRETER_BYTES = 180_000_000  # libraries in memory, and what the engine keeps after a run
TOKENIZER_BYTES_PER_BYTE = 16  # 86 MB on the heap for a tokenizer.json of 5.4 MB
EMBED_ROW_BYTES = 8192  # a row lies on one page or two, and a scale on another
RASTERS = 2  # the page and the next one; a copy in conversion lives while no graph runs
DRAWER_BYTES = 40_000_000  # the process that draws pages, between two of them: measured 30 to 41 MB resident
DRAWING_BYTES = 100_000_000  # what it has for a page at least: bitmap, copy, fonts and pictures on it
DRAWING_MOST_BYTES = 1_000_000_000  # more is a bomb: an A0 drawing that is one picture takes half of that

LIBRARIES, TOKENIZER, EMBEDDING, WEIGHTS = "interpreter and engine", "tokenizer", "embedding rows", "weights kept"
WORK, STORE, LOGITS, PAGES = "vision or decoding at work", "key-value store", "logits", "page rasters"
DRAWER = "drawing process"
BESIDE = "beside the model"


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Beside:
    """What else this process holds all the time, and what that takes while it works, when no graph of ours does."""

    kept_bytes: int = 0
    work_bytes: int = 0


NOTHING = Beside()


@dataclass(frozen=True, slots=True)
class Plan:
    """What the runtime allows itself. `limit_bytes` is None when neither the user nor the system set one."""

    slots: int
    capacity_tokens: int
    patch_cap: int
    prefill_chunk: int
    raster_px: int
    parts: tuple[Part, ...]
    limit_bytes: int | None
    drawer_stays: bool = True  # or it ends after every page, where memory is short

    def bytes_of(self, *names: str) -> int:
        """The sum of these parts."""
        return sum(part.bytes for part in self.parts if part.name in names)

    @property
    def total_bytes(self) -> int:
        return _total(self.parts)

    @property
    def drawing_bytes(self) -> int:
        """What drawing one page may take in its process: all that is left, and what the graphs have at other times."""
        if self.limit_bytes is None:
            return DRAWING_MOST_BYTES
        own_bytes = 0 if self.drawer_stays else DRAWER_BYTES
        return min(DRAWING_MOST_BYTES, self.limit_bytes - self.total_bytes + self.bytes_of(WORK) - own_bytes)


@dataclass(frozen=True, slots=True)
class _Choice:
    slots: int
    capacity_tokens: int
    patch_cap: int
    prefill_chunk: int
    drawer_stays: bool = True


@dataclass(frozen=True, slots=True)
class _Setting:
    """What a plan cannot choose."""

    bundle: Bundle
    engines: Engines
    packed_is_mapped: bool
    kv: KVKind
    raster_pixels: int
    drawn_apart: bool = False
    beside: Beside = NOTHING
    vision_is_copied: bool = False


def make_plan(
    bundle: Bundle,
    *,
    engines: Engines = ONNXRUNTIME,
    packed_is_mapped: bool = False,
    kv: KVKind = "fp32",
    limit_bytes: int | None = None,
    slots: int | None = None,
    capacity_tokens: int | None = None,
    patch_cap: int | None = None,
    raster_px: int = RASTER_PX,
    drawn_apart: bool = False,
    beside: Beside = NOTHING,
    vision_is_copied: bool = False,
) -> Plan:
    """The largest plan within `limit_bytes`, or within most of the memory available now when that is None.

    What is given is kept; what is None starts at its best and is lowered as far as needed, slots first, then capacity,
    then the prefill chunk; then the drawing process goes between pages, and the patch cap is lowered. BudgetError when
    the lowest does not fit, with what would make it fit. ValueError for an option outside its range.
    `packed_is_mapped` says that the decoder's weights were prepared, `drawn_apart` that another process draws pages,
    `beside` is other work that this process does, `vision_is_copied` that vision's weights are on the heap, where they
    would not be if they were prepared.
    """
    _check_options(bundle, slots, capacity_tokens, patch_cap, raster_px)
    if limit_bytes is None and (available := available_bytes()) is not None:
        limit_bytes = int(available * SHARE_OF_AVAILABLE)
    setting = _Setting(bundle, engines, packed_is_mapped, kv, raster_px**2, drawn_apart, beside, vision_is_copied)
    choice = None
    for choice in _choices(bundle, slots, capacity_tokens, patch_cap):
        parts = _parts(setting, choice)
        need_bytes = _total(parts)
        if limit_bytes is None or need_bytes <= limit_bytes:
            return Plan(
                choice.slots,
                choice.capacity_tokens,
                choice.patch_cap,
                choice.prefill_chunk,
                raster_px,
                parts,
                limit_bytes,
                choice.drawer_stays,
            )
    assert choice is not None
    assert limit_bytes is not None
    given = {"slots": slots, "capacity_tokens": capacity_tokens, "patch_cap": patch_cap}
    hint = _cure(setting, given, limit_bytes)
    packs = engines.decoder.engine == "onnxruntime"
    can_prepare = vision_is_copied or (packs and not packed_is_mapped)
    prepared = dataclasses.replace(setting, packed_is_mapped=packs, vision_is_copied=False)
    if hint is None and can_prepare and _total(_parts(prepared, choice)) <= limit_bytes:
        hint = f"run `mineru-edge prepare {bundle.path}` first, which takes weights off the heap"
    raise BudgetError(
        need_bytes=need_bytes,
        limit_bytes=limit_bytes,
        hint=hint or f"set the memory limit to {megabytes(need_bytes)} or more",
    )


def forecast(
    bundle: Bundle,
    *,
    slots: int,
    tokens: int,
    patches: int,
    raster_pixels: int,
    packed_is_mapped: bool,
    kv: KVKind = "fp32",
    engines: Engines = ONNXRUNTIME,
    drawn_apart: bool = False,
    vision_is_copied: bool = False,
) -> tuple[Part, ...]:
    """What work takes that is no more than `slots` sequences of `tokens` and pictures of `patches`, part by part.

    `drawn_apart`: its pages come from a drawing process, which is counted.
    """
    setting = _Setting(
        bundle, engines, packed_is_mapped, kv, raster_pixels, drawn_apart, vision_is_copied=vision_is_copied
    )
    return _parts(setting, _Choice(slots, tokens, patches, PREFILL_CHUNKS[0]))


def _parts(setting: _Setting, choice: _Choice) -> tuple[Part, ...]:
    bundle, engines = setting.bundle, setting.engines
    text, sizes = bundle.text, {entry.path: entry.bytes for entry in bundle.files}
    droppable = can_drop()
    weights = weights_of(
        bundle,
        engines,
        packed_is_mapped=setting.packed_is_mapped,
        droppable=droppable,
        vision_is_copied=setting.vision_is_copied,
    )
    prompt = choice.capacity_tokens * 4 * (text.width + 2 * text.rotary_width)
    vision = weights.seeing + vision_bytes(bundle.vision, choice.patch_cap, engines.vision.engine)
    decoding = weights.decoding + prefill_bytes(text, min(choice.prefill_chunk, choice.capacity_tokens)) + prompt
    drawing = DRAWING_BYTES + (0 if choice.drawer_stays else DRAWER_BYTES) if setting.drawn_apart else 0
    spoken = max(0, choice.capacity_tokens - choice.patch_cap // bundle.vision.merge**2)
    embedding = sizes[EMBED_FILE]
    if droppable:
        embedding = min(embedding, choice.slots * spoken * EMBED_ROW_BYTES)
    parts = (
        Part(LIBRARIES, INTERPRETER_BYTES + library_bytes(engines)),
        Part(TOKENIZER, sizes[TOKENIZER_FILE] * TOKENIZER_BYTES_PER_BYTE),
        Part(EMBEDDING, embedding),
        Part(WEIGHTS, weights.kept),
        Part(WORK, max(vision, decoding, drawing, setting.beside.work_bytes)),  # one at a time
        Part(STORE, choice.slots * choice.capacity_tokens * text.kv_bytes_per_token(ITEM_BYTES[setting.kv])),
        Part(LOGITS, choice.slots * text.vocab * 4),
        Part(PAGES, RASTERS * setting.raster_pixels * 3),
        Part(DRAWER, DRAWER_BYTES if setting.drawn_apart and choice.drawer_stays else 0),
        Part(BESIDE, setting.beside.kept_bytes),
    )
    return tuple(part for part in parts if part.bytes)


def _total(parts: tuple[Part, ...]) -> int:
    return sum(part.bytes for part in parts)


def _choices(
    bundle: Bundle, slots: int | None, capacity_tokens: int | None, patch_cap: int | None
) -> Iterator[_Choice]:
    """From the best to the least."""
    pixels = bundle.preprocessing.max_pixels // bundle.vision.patch**2
    most_patches = patch_cap or pixels
    least_patches = patch_cap or min(pixels, LEAST_PATCHES)

    def capacity(patches: int, room: int) -> int:
        tokens = patches // bundle.vision.merge**2 + TEXT_TOKENS + room
        return capacity_tokens or min(tokens, bundle.text.max_positions)

    most_slots, least_slots = slots or SLOTS, slots or 1
    chunk, least_chunk = PREFILL_CHUNKS[0], PREFILL_CHUNKS[-1]
    for count in range(most_slots, least_slots - 1, -1):
        yield _Choice(count, capacity(most_patches, ROOM_TOKENS), most_patches, chunk)
    for room in range(ROOM_TOKENS, LEAST_ROOM_TOKENS - 1, -256):
        yield _Choice(least_slots, capacity(most_patches, room), most_patches, chunk)
    for chunk in PREFILL_CHUNKS:
        yield _Choice(least_slots, capacity(most_patches, LEAST_ROOM_TOKENS), most_patches, chunk)
    for step in range(PATCH_STEPS, -1, -1):
        patches = least_patches + (most_patches - least_patches) * step // PATCH_STEPS
        yield _Choice(least_slots, capacity(patches, LEAST_ROOM_TOKENS), patches, least_chunk, drawer_stays=False)


def _cure(setting: _Setting, given: dict[str, int | None], limit_bytes: int) -> str | None:
    """The given option to lower, and to what, if lowering one alone is enough."""
    for name, value in given.items():
        if value is None:
            continue
        for choice in _choices(setting.bundle, **{**given, name: None}):
            lower = getattr(choice, name)
            if lower < value and _total(_parts(setting, choice)) <= limit_bytes:
                return f"lower {name} from {value} to {lower}"
    return None


def _check_options(
    bundle: Bundle, slots: int | None, capacity_tokens: int | None, patch_cap: int | None, raster_px: int
) -> None:
    if slots is not None and slots < 1:
        raise ValueError(f"slots must be at least 1, found {slots}")
    most = bundle.text.max_positions
    if capacity_tokens is not None and not 1 <= capacity_tokens <= most:
        raise ValueError(f"capacity_tokens must be 1 to {most}, the model's longest, found {capacity_tokens}")
    least = bundle.vision.merge**2
    if patch_cap is not None and patch_cap < least:
        raise ValueError(f"patch_cap must be at least {least}, the patches of one token, found {patch_cap}")
    if raster_px < 1:
        raise ValueError(f"raster_px must be at least 1, found {raster_px}")
