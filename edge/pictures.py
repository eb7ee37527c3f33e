"""A picture file or a PIL image as pages: known formats only, and sizes bounded before anything is decoded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from mineru_edge.models.errors import InputError

from .intake import PDF_HEADER_WITHIN, Sheet, in_words
from .pixels import RASTER_PX, upright_rgb

# What README promises; Pillow would run other programs for some formats, and reads many that nobody has tried here.
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "GIF", "BMP")
_FRAMES = frozenset({"TIFF", "GIF", "WEBP", "PNG"})  # elsewhere a second frame is a thumbnail, a layer or a depth map
_REDUCED_COPY = 1  # TIFF tag 254, bit 0: this frame is a smaller copy of another
_END_OF_JPEG = b"\xff\xd9"
_DAMAGED = "the file is damaged or cut off: copy or save it again"


class ImageSource:
    """A picture file; each frame of a TIFF, GIF, WebP or animated PNG is a page.

    `data` is what `image` was opened from, None for the user's own, which is left as it is.
    """

    def __init__(self, image: Image.Image, name: str, *, max_image_px: int, data: Path | bytes | None = None) -> None:
        self._image, self._name, self._data, self._max_image_px = image, name, data, max_image_px
        if data is not None and image.format == "JPEG":
            _shrink_while_decoding(image)
        if not image.width or not image.height:
            raise InputError(f"{name} has no pixels ({image.width} x {image.height})", hint="give a picture of a page")
        if words := self._too_large():
            self.close()
            raise InputError(f"{name} is too large: {words}", hint="reduce the picture, or raise max_image_px")
        self._frames = (None,) if data is None else _frames(image, name)

    @property
    def page_count(self) -> int:
        return len(self._frames)

    def sheets(self, numbers: Sequence[int]) -> Iterator[Sheet]:
        for number in numbers:
            try:
                yield self._sheet(number, self._frames[number - 1])
            except Exception as error:
                words = f"cannot be decoded: {in_words(error)}"
                if self.page_count == 1:
                    raise InputError(f"{self._name} {words}", hint=_DAMAGED) from error
                yield Sheet(number, None, words)

    def close(self) -> None:
        if self._data is not None:
            self._image.close()

    def _sheet(self, number: int, frame: int | None) -> Sheet:
        if self._data is None:
            return Sheet(number, upright_rgb(self._image))
        if frame is not None:
            self._image.seek(frame)
            if words := self._too_large():
                raise ValueError(words)
            return Sheet(number, upright_rgb(self._image))
        try:
            return Sheet(number, upright_rgb(self._image))
        except OSError as error:
            if self._image.format != "JPEG" or "truncated" not in str(error):
                raise
            return Sheet(number, _cut_off(self._data), warnings=("the file is cut off: what is missing is grey",))
        finally:
            self._image.close()  # the full picture need not wait in memory until the page is read

    def _too_large(self) -> str | None:
        """Why the frame at hand is not to be decoded."""
        width, height = self._image.size
        if width * height <= self._max_image_px:
            return None
        millions, allowed = width * height / 1e6, self._max_image_px / 1e6
        return f"{width} x {height} is {millions:,.0f} million pixels, {allowed:,.0f} are allowed"


def _cut_off(data: Path | bytes) -> Image.Image:
    """What there is of a JPEG without its end. Cameras and broken copies leave such; the decoder fills up with grey."""
    whole = (data if isinstance(data, bytes) else data.read_bytes()) + _END_OF_JPEG
    with Image.open(BytesIO(whole), formats=("JPEG",)) as image:
        _shrink_while_decoding(image)
        return upright_rgb(image)


def open_picture(data: Path | bytes, name: str) -> Image.Image:
    """The picture with its header read, nothing decoded yet."""
    try:
        with warnings.catch_warnings():  # the size is checked by us, and refused with a message of ours
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(BytesIO(data) if isinstance(data, bytes) else data, formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise InputError(f"{name} is too large: {error}", hint="reduce the picture") from error
    except UnidentifiedImageError as error:
        raise InputError(
            f"{name} is neither a PDF (no %PDF- in its first {PDF_HEADER_WITHIN} bytes) nor a known picture",
            hint="give a PDF, PNG, JPEG, TIFF, WebP, GIF or BMP",
        ) from error
    except Exception as error:  # Pillow's readers raise many kinds on damaged headers
        raise InputError(f"{name} cannot be opened as a picture: {in_words(error)}", hint=_DAMAGED) from error


def _shrink_while_decoding(image: Image.Image) -> None:
    """JPEG can be decoded at half, a quarter or an eighth, which saves the memory of the full picture."""
    scale = (RASTER_PX / max(1, image.width * image.height)) ** 0.5
    if scale < 0.5:
        image.draft(None, (round(image.width * scale), round(image.height * scale)))


def _frames(image: Image.Image, name: str) -> tuple[int | None, ...]:
    """The frames that are pages; (None,) when there is nothing to seek for."""
    count: int = getattr(image, "n_frames", 1) if image.format in _FRAMES else 1
    if count == 1:
        return (None,)
    if image.format != "TIFF":
        return tuple(range(count))
    pages = []
    try:
        for frame in range(count):
            image.seek(frame)
            tags: Any = getattr(image, "tag_v2", {})
            if not tags.get(254, 0) & _REDUCED_COPY:
                pages.append(frame)
        image.seek(0)
    except Exception as error:
        raise InputError(f"{name} has a damaged list of pages: {in_words(error)}", hint=_DAMAGED) from error
    return tuple(pages) or (0,)
