"""A path, bytes, a stream or a PIL image becomes pages: upright RGB pictures, drawn one by one as they are asked for.

What cannot be read at all is an InputError that names the file, what is wrong and the cure. A page that cannot be
drawn costs only itself: it arrives as a `Sheet` with an error.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, Union

from PIL import Image, UnidentifiedImageError

from mineru_edge.models.errors import InputError

from .document import LAYER, MODEL
from .pixels import RASTER_PX, upright_rgb

if TYPE_CHECKING:
    from .glyphs import PageGlyphs

Input = Union[str, "os.PathLike[str]", bytes, IO[bytes], Image.Image]

MAX_IMAGE_PX = 80_000_000  # decoded at once this is 240 MB; Pillow itself starts to warn at 89 million
PDF_HEADER_WITHIN = 1024  # bytes of junk that may stand before %PDF-
_FRAMES = frozenset({"TIFF", "GIF", "WEBP", "PNG"})  # elsewhere a second frame is a thumbnail, a layer or a depth map
_REDUCED_COPY = 1  # TIFF tag 254, bit 0: this frame is a smaller copy of another


@dataclass(frozen=True, slots=True)
class Sheet:
    """Page `number` (from 1) as an upright RGB picture, or the reason why there is none.

    `glyphs` are those of a PDF page when they were asked for; a page whose text comes from them alone has no picture.
    """

    number: int
    image: Image.Image | None
    error: str | None = None
    glyphs: PageGlyphs | None = None


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


def open_source(
    source: Input,
    *,
    dpi: float = 200,
    password: str | None = None,
    max_image_px: int = MAX_IMAGE_PX,
    text: str = MODEL,
) -> Source:
    """The pages of `source`. `dpi` and `password` are for PDF, `max_image_px` bounds what is decoded of a picture.

    `text` is where their text will be taken from; a picture has none of its own.
    """
    name = source_name(source)
    if isinstance(source, Image.Image):
        _refuse_layer(name, text)
        return ImageSource(source, name, max_image_px=max_image_px, owned=False)
    data = _readable(source, name)
    head = _head(data, name)
    if not head:
        raise InputError(f"{name} is empty (0 bytes)", hint="check how it was saved or copied")
    if b"%PDF-" in head:
        from .pdf import PdfSource

        return PdfSource(data, name, dpi=dpi, password=password, text=text)
    _refuse_layer(name, text)
    return ImageSource(_open_image(data, name), name, max_image_px=max_image_px, owned=True)


def _refuse_layer(name: str, text: str) -> None:
    if text == LAYER:
        raise InputError(
            f"{name} is a picture and has no text layer",
            hint='let the model read it (--text auto, Reader(text="auto"))',
        )


class ImageSource:
    """A picture file; each frame of a TIFF, GIF, WebP or animated PNG is a page."""

    def __init__(self, image: Image.Image, name: str, *, max_image_px: int, owned: bool) -> None:
        if owned and image.format == "JPEG":
            _shrink_while_decoding(image)
        if not image.width or not image.height:
            raise InputError(f"{name} has no pixels ({image.width} x {image.height})", hint="give a picture of a page")
        if (pixels := image.width * image.height) > max_image_px:
            image.close() if owned else None
            raise InputError(
                f"{name} is too large: {image.width} x {image.height} is {pixels / 1e6:,.0f} million pixels, "
                f"{max_image_px / 1e6:,.0f} are allowed",
                hint="reduce the picture, or raise max_image_px",
            )
        self._image, self._name, self._owned = image, name, owned
        self._frames = _frames(image) if owned else (None,)

    @property
    def page_count(self) -> int:
        return len(self._frames)

    def sheets(self, numbers: Sequence[int]) -> Iterator[Sheet]:
        for number in numbers:
            try:
                yield Sheet(number, self._draw(self._frames[number - 1]))
            except Exception as error:
                if self.page_count == 1:
                    raise InputError(
                        f"{self._name} cannot be decoded: {error or type(error).__name__}",
                        hint="the file is damaged or cut off: copy or save it again",
                    ) from error
                yield Sheet(number, None, f"cannot be decoded: {error or type(error).__name__}")

    def close(self) -> None:
        if self._owned:
            self._image.close()

    def _draw(self, frame: int | None) -> Image.Image:
        if not self._owned:
            return upright_rgb(self._image)
        if frame is not None:
            self._image.seek(frame)
            return upright_rgb(self._image)
        try:
            return upright_rgb(self._image)
        finally:
            self._image.close()  # the full picture need not wait in memory until the page is read


def _shrink_while_decoding(image: Image.Image) -> None:
    """JPEG can be decoded at half, a quarter or an eighth, which saves the memory of the full picture."""
    scale = (RASTER_PX / max(1, image.width * image.height)) ** 0.5
    if scale < 0.5:
        image.draft(None, (round(image.width * scale), round(image.height * scale)))


def _frames(image: Image.Image) -> tuple[int | None, ...]:
    """The frames that are pages; (None,) when there is nothing to seek for."""
    count: int = getattr(image, "n_frames", 1) if image.format in _FRAMES else 1
    if count == 1:
        return (None,)
    if image.format != "TIFF":
        return tuple(range(count))
    pages = []
    for frame in range(count):
        image.seek(frame)
        tags: Any = getattr(image, "tag_v2", {})
        if not tags.get(254, 0) & _REDUCED_COPY:
            pages.append(frame)
    image.seek(0)
    return tuple(pages) or (0,)


def _readable(source: str | os.PathLike[str] | bytes | IO[bytes], name: str) -> Path | bytes:
    """A file that exists, or the bytes themselves."""
    if isinstance(source, bytes):
        return source
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
    return path


def _head(data: Path | bytes, name: str) -> bytes:
    if isinstance(data, bytes):
        return data[:PDF_HEADER_WITHIN]
    try:
        with data.open("rb") as file:
            return file.read(PDF_HEADER_WITHIN)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}", hint="check its permissions") from error


def _open_image(data: Path | bytes, name: str) -> Image.Image:
    """The picture with its header read, nothing decoded yet."""
    try:
        with warnings.catch_warnings():  # the size is checked by us, and refused with a message of ours
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(BytesIO(data) if isinstance(data, bytes) else data)
    except Image.DecompressionBombError as error:
        raise InputError(f"{name} is too large: {error}", hint="reduce the picture") from error
    except UnidentifiedImageError as error:
        raise InputError(
            f"{name} is neither a PDF (no %PDF- in its first {PDF_HEADER_WITHIN} bytes) nor a picture",
            hint="give a PDF, PNG, JPEG, TIFF, WebP, GIF or BMP",
        ) from error
    except Exception as error:  # Pillow's readers raise many kinds on damaged headers
        raise InputError(
            f"{name} cannot be opened as a picture: {error or type(error).__name__}",
            hint="the file is damaged: copy or save it again",
        ) from error
