"""A path, bytes, a stream or a PIL image becomes pages: upright RGB pictures, drawn one by one as they are asked for.

What cannot be read at all is an InputError that names the file, what is wrong and the cure. A page that cannot be
drawn costs only itself: it arrives as a `Sheet` with an error. Files are opened and drawn in a process of their own,
see `drawer`; a PIL image is in this one already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, Union

from PIL import Image

from mineru_edge.models.errors import InputError

from .document import LAYER, MODEL

if TYPE_CHECKING:
    from .drawer import Drawer
    from .glyphs import PageGlyphs

Input = Union[str, "os.PathLike[str]", bytes, IO[bytes], Image.Image]

MAX_IMAGE_PX = 80_000_000  # decoded at once this is 240 MB; Pillow itself starts to warn at 89 million
PDF_HEADER_WITHIN = 1024  # bytes of junk that may stand before %PDF-


@dataclass(frozen=True, slots=True)
class Sheet:
    """Page `number` (from 1) as an upright RGB picture, or the reason why there is none.

    `glyphs` are those of a PDF page when they were asked for; a page whose text comes from them alone has no picture.
    `warnings` say what the picture may lack.
    """

    number: int
    image: Image.Image | None
    error: str | None = None
    glyphs: PageGlyphs | None = None
    warnings: tuple[str, ...] = ()


class Source(Protocol):
    """An open document."""

    @property
    def page_count(self) -> int: ...

    def sheets(self, numbers: Sequence[int]) -> Iterator[Sheet]:
        """The pages `numbers`, each drawn when it is asked for."""
        ...

    def close(self) -> None: ...


def source_name(source: Input) -> str:
    """What messages and results call this input."""
    if isinstance(source, (str, os.PathLike)):
        return printable(os.fspath(source))
    if isinstance(source, bytes):
        return "<bytes>"
    if isinstance(source, Image.Image):
        return str(getattr(source, "filename", "") or "<image>")
    name = getattr(source, "name", None)
    return printable(name) if isinstance(name, str) else "<stream>"


def printable(path: str) -> str:
    """`path` as text that can be written anywhere: bytes of a file name that are no UTF-8 become U+FFFD."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def in_words(error: BaseException) -> str:
    """What went wrong with a file, whatever kind of error a library made of it."""
    if isinstance(error, MemoryError):
        return "it needs more memory than it may take"
    return str(error) or type(error).__name__


def open_source(
    source: Input,
    *,
    dpi: float = 200,
    password: str | None = None,
    max_image_px: int = MAX_IMAGE_PX,
    text: str = MODEL,
    drawer: Drawer | None = None,
) -> Source:
    """The pages of `source`. `dpi` and `password` are for PDF, `max_image_px` bounds what is decoded of a picture.

    `text` is where their text will be taken from; a picture has none of its own. `drawer` is the process to draw in,
    one that ends with the source unless given.
    """
    name = source_name(source)
    if isinstance(source, Image.Image):
        from .pictures import ImageSource

        _refuse_layer(name, text)
        return ImageSource(source, name, max_image_px=max_image_px)
    from .drawer import Drawer

    data = _readable(source, name)
    drawer, own = (Drawer(), True) if drawer is None else (drawer, False)
    return drawer.open(data, name, dpi=dpi, password=password, max_image_px=max_image_px, text=text, own=own)


def open_here(
    data: Path | bytes,
    name: str,
    *,
    dpi: float = 200,
    password: str | None = None,
    max_image_px: int = MAX_IMAGE_PX,
    text: str = MODEL,
) -> Source:
    """As `open_source`, but drawn in this very process: what breaks it breaks the process."""
    head = _head(data, name)
    if not head:
        raise InputError(f"{name} is empty (0 bytes)", hint="check how it was saved or copied")
    if b"%PDF-" in head:
        from .pdf import PdfSource

        return PdfSource(data, name, dpi=dpi, password=password, text=text)
    from .pictures import ImageSource, open_picture

    _refuse_layer(name, text)
    return ImageSource(open_picture(data, name), name, max_image_px=max_image_px, data=data)


def _refuse_layer(name: str, text: str) -> None:
    if text == LAYER:
        raise InputError(
            f"{name} is a picture and has no text layer",
            hint='let the model read it (--text auto, Reader(text="auto"))',
        )


def _readable(source: str | os.PathLike[str] | bytes | IO[bytes], name: str) -> Path | bytes:
    """A file that exists, or the bytes themselves: of a stream and of a pipe, which can be read only once."""
    if isinstance(source, bytes):
        return source
    try:
        if not isinstance(source, (str, os.PathLike)):
            data = source.read()
            if not isinstance(data, bytes):
                raise InputError(f"{name} gives text, not bytes", hint="open it in binary mode")
            return data
        path = Path(source)
        if path.is_dir():
            raise InputError(f"{name} is a directory", hint="name the files in it")
        if not path.exists():
            raise InputError(f"{name} does not exist", hint="check the path")
        if path.is_fifo():
            return path.read_bytes()
        if not path.is_file():
            raise InputError(f"{name} is a device", hint="give a file")
        return path.absolute()
    except MemoryError as error:
        raise InputError(f"{name} does not fit into memory", hint="save it to a file and give its path") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in a path, a closed stream
        raise InputError(f"{name} cannot be read: {error}", hint="check the path and its permissions") from error


def _head(data: Path | bytes, name: str) -> bytes:
    if isinstance(data, bytes):
        return data[:PDF_HEADER_WITHIN]
    try:
        with data.open("rb") as file:
            return file.read(PDF_HEADER_WITHIN)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}", hint="check its permissions") from error
