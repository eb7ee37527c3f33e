"""The bundle: one directory with everything a device needs, described file by file in FORMAT.md.

`bundle.json` is written last and atomically, so a directory without it is an unfinished export and never loads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn

from .architecture import ChatTemplate, Preprocessing, SpecialIds, TextShape, VisionShape
from .errors import BundleError, SpaceError
from .records import EXPORT_AGAIN, Record, parse_json

FORMAT_VERSION = 1

BUNDLE_FILE = "bundle.json"
TOKENIZER_FILE = "tokenizer.json"
EMBED_FILE = "embed.bin"
VISION_FILE, VISION_DATA_FILE = "onnx/vision.onnx", "onnx/vision.data"
DECODER_FILE, DECODER_DATA_FILE = "onnx/decoder.onnx", "onnx/decoder.data"
DECODER_KV8_FILE = "onnx/decoder_kv8.onnx"  # optional; its weights are in DECODER_DATA_FILE
OV_VISION_FILE, OV_VISION_DATA_FILE = "openvino/vision.xml", "openvino/vision.bin"
OV_DECODER_FILE, OV_DECODER_DATA_FILE = "openvino/decoder.xml", "openvino/decoder.bin"
PARITY_FILE = "parity.json"
SENSITIVITY_FILE = "sensitivity.json"

COPY_AGAIN = "copy the whole bundle directory again, or export it again"

Kind = Literal["int8", "int4", "fp32"]
Format = Literal["onnx", "openvino"]
Formats = Literal["onnx", "openvino", "both"]
KVKind = Literal["fp32", "int8"]
ENGINE_FILES: dict[Format, tuple[str, ...]] = {
    "onnx": (VISION_FILE, VISION_DATA_FILE, DECODER_FILE, DECODER_DATA_FILE),
    "openvino": (OV_VISION_FILE, OV_VISION_DATA_FILE, OV_DECODER_FILE, OV_DECODER_DATA_FILE),
}


@dataclass(frozen=True, slots=True)
class Precision(Record):
    """How the weights of each component are stored. Activations and the key-value store are fp32 either way."""

    vision: Kind
    decoder: Kind
    embedding: Kind


@dataclass(frozen=True, slots=True)
class FileEntry(Record):
    """One file of the bundle: its path below the bundle, with forward slashes, its size and its sha256 in hex."""

    path: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.path)
        if not self.path or parts.is_absolute() or ".." in parts.parts or "\\" in self.path:
            raise ValueError(f"{self.path!r} does not lie in the bundle")
        if self.bytes < 0:
            raise ValueError(f"{self.path} cannot have {self.bytes} bytes")
        if len(self.sha256) != 64 or set(self.sha256) - set("0123456789abcdef"):
            raise ValueError(f"{self.path} has {self.sha256!r} where 64 hex digits are expected")

    @classmethod
    def measure(cls, folder: Path, path: str) -> FileEntry:
        """The entry of `folder/path` as it lies on disk now; reads the file once. OSError when it cannot."""
        return cls(path, (folder / path).stat().st_size, sha256_of(folder / path))


@dataclass(frozen=True, slots=True)
class Bundle:
    """What `bundle.json` says, with the directory it was read from. `tools` pairs a package with its version."""

    path: Path
    model_name: str
    source: str
    vision: VisionShape
    text: TextShape
    preprocessing: Preprocessing
    special: SpecialIds
    chat: ChatTemplate
    precision: Precision
    engines: tuple[Format, ...]
    files: tuple[FileEntry, ...]
    tools: tuple[tuple[str, str], ...]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Bundle:
        """Read and check a bundle: format version, fields, and that every file is there with its size.

        Does not read the weights; `verify` does. Raises BundleError naming the file, what was expected, what was
        found, and the cure.
        """
        folder = Path(path)
        if not folder.is_dir():
            _refuse(
                folder,
                "a bundle directory",
                "a file" if folder.exists() else "nothing",
                "give the directory that `mineru-edge export` wrote",
            )
        stored = _read_bundle_json(folder / BUNDLE_FILE)
        bundle = cls(**{name: getattr(stored, name) for name in _FIELDS}, path=folder)
        for entry in bundle.files:
            bundle._check_size(entry)
        return bundle

    def save(self) -> None:
        """Write `bundle.json` in `path`, atomically and as the last file. SpaceError when it cannot be written."""
        stored = _Stored(format_version=FORMAT_VERSION, **{name: getattr(self, name) for name in _FIELDS})
        text = json.dumps(stored.to_json(), indent=2, ensure_ascii=False) + "\n"
        target, draft = self.path / BUNDLE_FILE, self.path / f"{BUNDLE_FILE}.part"
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise SpaceError(f"{target} cannot be written: {error.strerror or error}") from error

    def verify(self) -> None:
        """Read every file and compare its sha256. BundleError names the first file that differs."""
        for entry in self.files:
            self._check_size(entry)
            path = self.path / entry.path
            try:
                found = sha256_of(path)
            except OSError as error:
                _refuse(path, "a readable file", error.strerror or str(error), COPY_AGAIN)
            if found != entry.sha256:
                _refuse(path, f"sha256 {entry.sha256}", f"sha256 {found}", COPY_AGAIN)

    @property
    def kv_kinds(self) -> tuple[KVKind, ...]:
        """How the key-value store may be kept: as f32, and as int8 when the bundle was exported with its scales."""
        return ("fp32", "int8") if any(entry.path == DECODER_KV8_FILE for entry in self.files) else ("fp32",)

    def check_kv(self, kind: KVKind) -> None:
        """BundleError when the key-value store cannot be kept so."""
        if kind not in self.kv_kinds:
            raise BundleError(f"{self.path} has no decoder for {kind} keys and values", hint="export it with --kv int8")

    def file(self, name: str) -> Path:
        """The path of a file of this bundle, such as `VISION_FILE`. BundleError when the bundle has none."""
        if name not in {entry.path for entry in self.files}:
            _refuse(self.path / BUNDLE_FILE, f"an entry for {name}", "none", EXPORT_AGAIN)
        return self.path / name

    def with_file(self, name: str) -> Bundle:
        """A copy whose entry for `name` is measured anew, or added; `save` it to keep it."""
        others = tuple(entry for entry in self.files if entry.path != name)
        return dataclasses.replace(self, files=(*others, FileEntry.measure(self.path, name)))

    @property
    def total_bytes(self) -> int:
        """Size of all files of the bundle, without `bundle.json`."""
        return sum(entry.bytes for entry in self.files)

    def _check_size(self, entry: FileEntry) -> None:
        path = self.path / entry.path
        if not path.is_file():
            _refuse(path, f"a file of {entry.bytes} bytes", "nothing", COPY_AGAIN)
        if (found := path.stat().st_size) != entry.bytes:
            _refuse(path, f"{entry.bytes} bytes", f"{found} bytes", COPY_AGAIN)


@dataclass(frozen=True, slots=True)
class _Stored(Record):
    """`bundle.json` itself, field by field."""

    format_version: int
    model_name: str
    source: str
    engines: tuple[Format, ...]
    precision: Precision
    vision: VisionShape
    text: TextShape
    preprocessing: Preprocessing
    special: SpecialIds
    chat: ChatTemplate
    files: tuple[FileEntry, ...]
    tools: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        sizes = {entry.path: entry.bytes for entry in self.files}
        if len(sizes) != len(self.files):
            raise ValueError("files names a path twice")
        if not self.engines:
            raise ValueError("engines must name at least one engine")
        needed = [TOKENIZER_FILE, EMBED_FILE, *(name for engine in self.engines for name in ENGINE_FILES[engine])]
        if missing := [name for name in needed if name not in sizes]:
            raise ValueError(f"files: expected an entry for {missing[0]}, found none")
        if sizes[EMBED_FILE] != (expected := embed_bytes(self.text, self.precision.embedding)):
            raise ValueError(f"{EMBED_FILE}: expected {expected} bytes for this shape, found {sizes[EMBED_FILE]}")
        if self.vision.out_width != self.text.width:
            raise ValueError(f"vision.out_width {self.vision.out_width} differs from text.width {self.text.width}")


_FIELDS = tuple(field.name for field in dataclasses.fields(_Stored) if field.name != "format_version")


def embed_bytes(text: TextShape, kind: Kind) -> int:
    """Size of `embed.bin`. int8: rows [vocab, width], then one f32 scale per row; fp32: rows alone. Row-major."""
    return text.vocab * (text.width + 4) if kind == "int8" else text.vocab * text.width * 4


def measure_files(folder: Path) -> tuple[FileEntry, ...]:
    """Entries of all files below `folder` but `bundle.json`, by path: what `export` lists once it has written them."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return tuple(FileEntry.measure(folder, path) for path in paths if path != BUNDLE_FILE)


def embedded() -> Path:
    """The directory of the embedded model's bundle, the default of `Reader`."""
    return Path(__file__).parent / "tiny" / "bundle"


def embedded_checkpoint() -> Path:
    """The checkpoint that the embedded bundle was exported from, in Hugging Face layout."""
    return Path(__file__).parent / "tiny" / "checkpoint"


def _read_bundle_json(path: Path) -> _Stored:
    try:
        value: Any = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        _refuse(
            path,
            "the file that ends an export",
            "nothing",
            "give the directory that `mineru-edge export` wrote, or export again if it was interrupted",
        )
    except OSError as error:
        _refuse(path, "a readable file", error.strerror or str(error), "check the permissions")
    except ValueError as error:
        _refuse(path, "JSON", str(error), COPY_AGAIN)
    version = value.get("format_version") if isinstance(value, dict) else None
    if version != FORMAT_VERSION or isinstance(version, bool):
        newer = isinstance(version, int) and version > FORMAT_VERSION
        _refuse(
            path,
            f"format_version {FORMAT_VERSION}",
            repr(version) if version is not None else "none",
            "install a newer mineru-edge" if newer else EXPORT_AGAIN,
        )
    return _Stored.from_json(value, str(path))


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hex. OSError when it cannot be read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _refuse(path: Path, expected: str, found: str, cure: str) -> NoReturn:
    raise BundleError(f"{path}: expected {expected}, found {found}", hint=cure)
