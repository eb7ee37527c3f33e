"""PDF pages with text whose meaning, direction or visibility is odd, and what is read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PIL import Image
from small_pdf import pdf

from mineru_edge.document import AUTO, Page
from mineru_edge.glyphs import PageGlyphs
from mineru_edge.layer_page import layer_page
from mineru_edge.pdf import PdfSource

WHOLE = (0.0, 0.0, 1.0, 1.0)


def text(*lines: str, x: float = 20, y: float = 180, size: float = 10, leading: float = 12, font: str = "F1") -> str:
    """A content stream: `lines` in Helvetica, or in the font of `meaning`, from the bottom left, in points."""
    drawn = " ".join(f"({line}) Tj 0 {-leading:g} Td" for line in lines)
    return f"BT /{font} {size:g} Tf {x:g} {y:g} Td {drawn} ET\n"


def meaning(content: str, meanings: Mapping[str, str], *, base: str = "Helvetica", extra: str = "") -> bytes:
    """A page with a second font F2, whose signs mean what `meanings` says (hexadecimal UTF-16)."""
    pairs = " ".join(f"<{ord(sign):02X}> <{code}>" for sign, code in meanings.items())
    table = (
        "begincmap 1 begincodespacerange <00> <FF> endcodespacerange "
        f"{len(meanings)} beginbfchar {pairs} endbfchar endcmap"
    )
    font = f"<< /Type /Font /Subtype /Type1 /BaseFont /{base} /ToUnicode 101 0 R >>"
    stream = f"<< /Length {len(table)} >>\nstream\n{table}\nendstream"
    fonts = "/Resources << /Font << /F1 3 0 R /F2 100 0 R >> >>"
    return pdf(content, extra=f"{fonts} {extra}", objects=[font, stream])


def opened(data: bytes, *, number: int = 1, dpi: float = 144) -> tuple[PageGlyphs, Image.Image]:
    """The glyphs and the picture of one page."""
    source = PdfSource(data, "test.pdf", dpi=dpi, text=AUTO)
    try:
        (sheet,) = source.sheets([number])
    finally:
        source.close()
    assert sheet.glyphs is not None
    assert sheet.image is not None
    return sheet.glyphs, sheet.image


def layer(data: bytes, *, number: int = 1) -> Page:
    """One page by its text layer alone."""
    source = PdfSource(data, "test.pdf", text="layer")
    try:
        (sheet,) = source.sheets([number])
    finally:
        source.close()
    assert sheet.image is None
    return layer_page(sheet, source.page_count)


def contents(page: Page) -> Sequence[str | None]:
    return [block.content for block in page.blocks]
