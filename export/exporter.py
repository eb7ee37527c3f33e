"""A checkpoint becomes a bundle, or nothing does.

All files are written to a hidden sibling of the target, `bundle.json` last, and the directory is renamed in the end:
whatever stops an export half-way, the target is either whole or not there. Leftovers of killed exports are removed by
the next one to the same target.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mineru_edge.models import bundle as layout
from mineru_edge.models.bundle import Bundle, Format, Formats, KVKind
from mineru_edge.models.errors import MineruEdgeError, SpaceError, megabytes

from .checkpoint import Checkpoint
from .facts import Facts, read_facts, tensor_shapes
from .parts import PARTS, Part, part_of, precision_of, write_part
from .progress import Progress
from .schemes import EMBEDDING, Decoder, Precision, Scheme, choose

if TYPE_CHECKING:
    from PIL import Image

    from .cases import Page

FORMATS: dict[Formats, tuple[Format, ...]] = {
    "onnx": ("onnx",), "openvino": ("openvino",), "both": ("onnx", "openvino")
}  # fmt: skip


def export(
    checkpoint: str | os.PathLike[str],
    bundle: str | os.PathLike[str],
    *,
    precision: Precision = "int8",
    format: Formats = "onnx",
    decoder: Decoder = "int8",
    kv: KVKind = "fp32",
    schemes: Mapping[str, Scheme] | None = None,
    calibrate: Sequence[Page | Image.Image | str | os.PathLike[str]] | None = None,
    progress: Progress | None = None,
) -> Bundle:
    """Write the bundle of a checkpoint directory; returns it loaded.

    `decoder` is how the decoder of an int8 bundle is stored, `schemes` overrides how single matrices are (see
    `schemes.py`). `calibrate` gives pages on which the torch reference says what each matrix loses, and the worst are
    kept better until the bundle agrees with it (see `promote.py`). With `kv` int8, generated pages are run through the
    bundle, and it gets a second decoder whose key-value store is int8. `progress` hears of the checkpoint's bytes
    first, then of what comes after them. Needs memory for about three times the largest tensor in f32, to calibrate
    that of the reference. CheckpointError when the checkpoint cannot be used, InputError when a page cannot be read,
    ParityError when calibration does not help, SpaceError when the bundle cannot be written; none leaves anything
    behind.
    """
    assert calibrate is None or precision == "int8", "there is nothing to promote"
    engines = FORMATS[format]
    if kv == "int8" and "onnx" not in engines:
        raise MineruEdgeError("keys and values can be int8 in ONNX graphs only", hint="give --format onnx or both")
    pages = None if calibrate is None else _open_pages(calibrate)
    target = Path(os.path.abspath(bundle))
    if target.exists():
        raise SpaceError(f"{target} exists", hint="remove it, or give another name")
    opened = Checkpoint.open(Path(checkpoint))
    facts = read_facts(opened)
    opened.expect(tensor_shapes(facts, tied_head=opened.tied_head))
    chosen = choose(facts.vision, facts.text, precision, schemes, decoder=decoder)
    with _draft(target) as draft:
        _check_space(draft, _weight_bytes(opened, chosen, len(engines)))
        if progress is not None:
            opened.on_read = _counter(opened, progress, len(engines))
        for part in PARTS:
            write_part(draft, part, opened, facts, chosen, engines)
        shutil.copyfile(opened.path / layout.TOKENIZER_FILE, draft / layout.TOKENIZER_FILE)
        _describe(draft, opened, facts, chosen, engines).save()
        opened.on_read = None
        if pages is not None:
            _promote(Bundle.load(draft), opened, facts, chosen, pages, progress)
        if kv == "int8":
            _add_kv8(Bundle.load(draft), progress)
    return Bundle.load(target)


# What these three import runs the engine or the reference, which a plain export does not.


def _open_pages(pages: Sequence[Page | Image.Image | str | os.PathLike[str]]) -> list[Page]:
    from .cases import open_page

    return [open_page(page) for page in pages]


def _promote(
    bundle: Bundle,
    checkpoint: Checkpoint,
    facts: Facts,
    schemes: Mapping[str, Scheme],
    pages: Sequence[Page],
    progress: Progress | None,
) -> None:
    from .promote import promote

    promote(bundle, checkpoint, facts, schemes, pages, progress=progress)


def _add_kv8(bundle: Bundle, progress: Progress | None) -> None:
    from .calibrate import kv_peaks
    from .kv8 import write_kv8

    write_kv8(bundle, kv_peaks(bundle, progress=progress))


def _describe(
    draft: Path, checkpoint: Checkpoint, facts: Facts, schemes: Mapping[str, Scheme], engines: tuple[Format, ...]
) -> Bundle:
    packages = [(package, importlib.metadata.version(package)) for package in ("mineru-edge", "numpy", *engines)]
    name = str(checkpoint.config.get("_name_or_path") or "") or checkpoint.path.resolve().name
    return Bundle(
        path=draft, model_name=name, source=checkpoint.path.resolve().name, vision=facts.vision, text=facts.text,
        preprocessing=facts.preprocessing, special=facts.special, chat=facts.chat,
        precision=precision_of(schemes), engines=engines, files=layout.measure_files(draft),
        tools=(*packages, ("python", platform.python_version())),
    )  # fmt: skip


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """A directory beside `target` that takes its name on a clean exit, and is gone on any other."""
    draft = target.parent / f".{target.name}.part-{os.getpid()}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear_stale(target)
        draft.mkdir()
        yield draft
        draft.rename(target)
    except OSError as error:
        what = f"{error.filename or target} cannot be written: {error.strerror or error}"
        raise SpaceError(what, hint="make room, or give another place") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _clear_stale(target: Path) -> None:
    """Remove drafts for the same target whose process is gone."""
    for path in target.parent.glob(f".{target.name}.part-*"):
        number = path.name.rpartition("-")[2]
        if number.isdigit() and not _alive(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    if process == os.getpid():
        return False  # a leftover of an earlier process with our number
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's
    return True


def _check_space(draft: Path, need_bytes: int) -> None:
    free = shutil.disk_usage(draft).free
    if free < need_bytes:
        raise SpaceError(
            f"the bundle needs {megabytes(need_bytes)}, but {draft.parent} has {megabytes(free)} left",
            hint="make room, or give another place",
        )


def _weight_bytes(checkpoint: Checkpoint, schemes: Mapping[str, Scheme], formats: int) -> int:
    """About the bundle's size: exact for f32, within a few per cent for 8 bits with their scales."""
    kinds = dataclasses.asdict(precision_of(schemes))

    def size(part: Part, name: str) -> float:
        times = 1 if part == "embedding" else formats
        return times * math.prod(checkpoint.tensors[name].shape) * (4 if kinds[part] == "fp32" else 1.05)

    head = size("decoder", f"{EMBEDDING}.weight") if checkpoint.tied_head else 0
    return int(head + sum(size(part_of(name.removesuffix(".weight")), name) for name in checkpoint.tensors))


def _read_order(checkpoint: Checkpoint, formats: int) -> list[str]:
    """Every read of an export by tensor name: graphs are read for each format, a tied table for each and once more."""
    table = f"{EMBEDDING}.weight"
    graphs = [name for name in checkpoint.tensors if name != table or checkpoint.tied_head]
    return [*graphs * formats, table]


def _counter(checkpoint: Checkpoint, progress: Progress, formats: int) -> Callable[[int, str], None]:
    total, done = sum(checkpoint.tensors[name].bytes for name in _read_order(checkpoint, formats)), 0

    def count(size: int, name: str) -> None:
        nonlocal done
        done += size
        progress(done, total, name)

    return count
