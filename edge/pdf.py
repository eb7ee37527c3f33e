"""PDF pages as pictures and glyphs, by PDFium: forms filled in, /Rotate and CropBox honoured, sizes bounded at first.

PDFium is one machine with global state and no locks of its own, so every call goes through one lock of ours.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from PIL import Image

from mineru_edge.models.errors import InputError

from .document import LAYER, MODEL
from .glyphs import PageGlyphs
from .intake import Sheet, in_words
from .pdf_fonts import absent_fonts
from .pdf_glyphs import read_glyphs

LONG_EDGE_PX = 3500
POINTS_PER_INCH = 72

_LOCK = threading.Lock()
_USER_UNIT = re.compile(rb"/UserUnit\s*([0-9.]+)")


class PdfSource:
    """An open PDF. Pages come at `dpi`, or less where the long edge would pass `LONG_EDGE_PX`.

    `text` is where their text will be taken from: with "model" they come without glyphs, with "layer" without picture.
    """

    def __init__(
        self,
        data: Path | bytes,
        name: str,
        *,
        dpi: float = 200,
        password: str | None = None,
        text: str = MODEL,
    ) -> None:
        self._name = name
        self._dpi = dpi
        self._text = text
        with _LOCK:
            self._pdf = _open(data, name, password)
            with contextlib.suppress(pdfium.PdfiumError):  # a broken form must not cost the page beneath it
                self._pdf.init_forms()
            self._page_count = len(self._pdf)
        self._may_have_units = _mentions(data, b"/UserUnit") or _mentions(data, b"/ObjStm")

    @property
    def page_count(self) -> int:
        return self._page_count

    def sheets(self, numbers: Sequence[int]) -> Iterator[Sheet]:
        for number in numbers:
            image, glyphs = None, None
            warnings: tuple[str, ...] = ()
            try:
                with _LOCK:
                    if self._text != LAYER:
                        image = self._draw(number - 1)
                        warnings = self._font_warnings(number - 1)
            except (pdfium.PdfiumError, ValueError, MemoryError, OSError) as error:
                yield Sheet(number, None, f"cannot be drawn: {in_words(error)}")
                continue
            try:
                with _LOCK:
                    if self._text != MODEL:
                        glyphs = self._glyphs(number - 1)
            except (pdfium.PdfiumError, ValueError, MemoryError) as error:
                if image is None:
                    yield Sheet(number, None, f"cannot be read: {in_words(error)}")
                    continue
            yield Sheet(number, image, glyphs=glyphs, warnings=warnings)

    def close(self) -> None:
        with _LOCK:
            self._pdf.close()

    def _draw(self, index: int) -> Image.Image:
        page = self._pdf.get_page(index)
        try:
            width, height = page.get_size()
            scale = self._scale(index, width, height)
            bitmap = page.render(scale=scale, rev_byteorder=True)
            try:
                image: Image.Image = bitmap.to_pil()  # a copy, for Pillow keeps RGB in four bytes
            finally:
                bitmap.close()
        finally:
            page.close()
        assert image.mode == "RGB"
        return image

    def _font_warnings(self, index: int) -> tuple[str, ...]:
        """Of each font on the page."""
        page = self._pdf.get_page(index)
        try:
            names = absent_fonts(page)
        finally:
            page.close()
        return tuple(
            f"the font {name} is not in the file: its signs may look different or be missing" for name in names
        )

    def _glyphs(self, index: int) -> PageGlyphs:
        page = self._pdf.get_page(index)
        try:
            return read_glyphs(page)
        finally:
            page.close()

    def _scale(self, index: int, width: float, height: float) -> float:
        """Pixels per canvas unit, so that neither edge passes the cap whatever size the file claims."""
        long_edge = max(width, height)
        if not (math.isfinite(long_edge) and min(width, height) > 0):
            raise ValueError(f"its size is {width:g} x {height:g} points")
        cap = (LONG_EDGE_PX - 0.5) / long_edge  # half a pixel less: PDFium's size is rounded up
        scale = self._dpi / POINTS_PER_INCH
        if scale < cap and self._may_have_units:
            scale *= self._user_unit(index)
        return min(scale, cap)

    def _user_unit(self, index: int) -> float:
        """The page's /UserUnit, 1 when it has none. PDFium has no call for it, but copies it with the page."""
        found = _UserUnitFinder()
        copy = pdfium.PdfDocument.new()
        try:
            copy.import_pages(self._pdf, [index])
            copy.save(found)
        except pdfium.PdfiumError:
            return 1.0
        finally:
            copy.close()
        return found.unit


class _UserUnitFinder:
    """A file to write to that keeps nothing but the /UserUnit that passes by."""

    def __init__(self) -> None:
        self.unit = 1.0
        self._tail = b""

    def write(self, data: Any) -> int:
        self._tail = self._tail[-40:] + bytes(data)  # PDFium writes in small pieces that may cut the number
        if found := _USER_UNIT.search(self._tail):
            with contextlib.suppress(ValueError):
                self.unit = max(1.0, float(found[1]))
        return len(data)


def _open(data: Path | bytes, name: str, password: str | None) -> Any:
    try:
        return pdfium.PdfDocument(data, password=password)
    except pdfium.PdfiumError as error:
        code = error.err_code
        if code == pdfium_c.FPDF_ERR_PASSWORD:
            if password:  # of several files one may need none
                with contextlib.suppress(pdfium.PdfiumError):
                    return pdfium.PdfDocument(data)
                raise InputError(f"{name} is encrypted and the password does not open it") from error
            raise InputError(
                f"{name} is encrypted", hint="give its password (--password, Reader(password=...))"
            ) from error
        if code == pdfium_c.FPDF_ERR_SUCCESS:
            raise InputError(f"{name} has no pages", hint="check how it was made") from error
        if code == pdfium_c.FPDF_ERR_SECURITY:
            raise InputError(
                f"{name} is protected in a way PDFium does not know", hint="save it unprotected"
            ) from error
        raise InputError(
            f"{name} is not a PDF that can be read: {_reason(error)}",
            hint="the file is damaged or cut off: copy it again, or print it to a new PDF",
        ) from error


def _reason(error: pdfium.PdfiumError) -> str:
    """PDFium's own words, without the wrapper's: "Failed to load document (PDFium: Data format error)."."""
    found = re.search(r"PDFium: (.+?)\)", str(error))
    return found[1] if found else str(error)


def _mentions(data: Path | bytes, word: bytes) -> bool:
    """Whether the file holds `word` uncompressed."""
    if isinstance(data, bytes):
        return word in data
    with data.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return view.find(word) >= 0
