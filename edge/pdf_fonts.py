"""Fonts that a page is set in and the file does not hold: PDFium draws another in their place, or nothing.

Latin text comes out in a likeness, with letters of other widths; CJK only where the system has a font for it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from typing import Any

import pypdfium2.raw as pdfium_c

MOST_OBJECTS = 20_000  # of a page; a font that comes later goes unnoticed
_DEEPEST = 8  # forms within forms
_BUILT_IN = re.compile(r"(Helvetica|Arial|Times|Courier|Symbol|ZapfDingbats)", re.IGNORECASE)


def absent_fonts(page: Any) -> tuple[str, ...]:
    """Names of the fonts of an open pypdfium2 page that are neither in the file nor built into PDFium, sorted."""
    names = set()
    seen: set[int] = set()
    for drawn in _texts(pdfium_c.FPDFPage_CountObjects, pdfium_c.FPDFPage_GetObject, page, [MOST_OBJECTS], 0):
        font = pdfium_c.FPDFTextObj_GetFont(drawn)
        if not font or (address := ctypes.addressof(font.contents)) in seen:
            continue
        seen.add(address)
        name = font_name(font)
        if pdfium_c.FPDFFont_GetIsEmbedded(font) == 0 and name and not _BUILT_IN.match(name):
            names.add(name)
    return tuple(sorted(names))


def font_name(font: Any) -> str:
    """The font's own name without the tag of a subset: "CMMI10". Empty when it has none."""
    buffer = ctypes.create_string_buffer(128)
    if not font or not 0 < pdfium_c.FPDFFont_GetBaseFontName(font, buffer, 128) <= 128:
        return ""
    return buffer.value.decode("utf-8", "replace").rpartition("+")[2]


def _texts(count: Any, get: Any, holder: Any, left: list[int], depth: int) -> Iterator[Any]:
    for index in range(min(count(holder), left[0])):
        left[0] -= 1
        drawn = get(holder, index)
        kind = pdfium_c.FPDFPageObj_GetType(drawn)
        if kind == pdfium_c.FPDF_PAGEOBJ_TEXT:
            yield drawn
        elif kind == pdfium_c.FPDF_PAGEOBJ_FORM and depth < _DEEPEST:
            yield from _texts(pdfium_c.FPDFFormObj_CountObjects, pdfium_c.FPDFFormObj_GetObject, drawn, left, depth + 1)
