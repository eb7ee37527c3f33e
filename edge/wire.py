"""What the drawing process and its owner say to each other: JSON with its length before it, then raw bytes.

JSON and not pickle, for that process may be in the hands of the file it has opened. Pixels follow in strips, so that
neither side ever holds a page twice.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from operator import attrgetter
from typing import IO, Any

from PIL import Image

from .glyphs import Glyph, PageGlyphs
from .intake import Sheet

MOST_MESSAGE_BYTES = 1 << 26  # the glyphs of the fullest page allowed are a third of that
MOST_PIXELS = 1 << 24  # of a page: more than either way of drawing gives
STRIP_BYTES = 1 << 20
_LENGTH = struct.Struct("<Q")
_glyph_row = attrgetter(*Glyph.__slots__)


def send(stream: IO[bytes], message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> dict[str, Any]:
    """The next message. EOFError when the other side has gone, ValueError when it talks nonsense."""
    (length,) = _LENGTH.unpack(read_exactly(stream, _LENGTH.size))
    if length > MOST_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes")
    message = json.loads(read_exactly(stream, length))
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message


def read_exactly(stream: IO[bytes], count: int) -> bytes:
    """`count` bytes. EOFError when the other side has gone before."""
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def send_sheet(stream: IO[bytes], sheet: Sheet) -> None:
    glyphs = sheet.glyphs and {
        "width": sheet.glyphs.width,
        "height": sheet.glyphs.height,
        "blank": sheet.glyphs.blank,
        "rows": [_glyph_row(glyph) for glyph in sheet.glyphs.glyphs],
    }
    message = {"number": sheet.number, "error": sheet.error, "warnings": sheet.warnings, "glyphs": glyphs}
    send(stream, {"sheet": {**message, "size": sheet.image and sheet.image.size}})
    if sheet.image is not None:
        for top, bottom in _strips(*sheet.image.size):
            stream.write(sheet.image.crop((0, top, sheet.image.width, bottom)).tobytes())
        stream.flush()


def receive_sheet(stream: IO[bytes], message: dict[str, Any]) -> Sheet:
    """The sheet of `message`, its pixels read from `stream`. ValueError, TypeError or KeyError when it is nonsense."""
    image, glyphs = None, message["glyphs"]
    if message["size"] is not None:
        width, height = (int(side) for side in message["size"])
        if not (width > 0 < height and width * height <= MOST_PIXELS):
            raise ValueError(f"a page of {width} x {height} pixels")
        image = Image.new("RGB", (width, height))
        for top, bottom in _strips(width, height):
            size = width, bottom - top
            image.paste(Image.frombytes("RGB", size, read_exactly(stream, 3 * width * (bottom - top))), (0, top))
    if glyphs is not None:
        rows = (Glyph(text, tuple(ink), tuple(cell), *rest) for text, ink, cell, *rest in glyphs["rows"])
        glyphs = PageGlyphs(float(glyphs["width"]), float(glyphs["height"]), tuple(rows), bool(glyphs["blank"]))
    return Sheet(int(message["number"]), image, message["error"], glyphs, tuple(map(str, message["warnings"])))


def _strips(width: int, height: int) -> Iterator[tuple[int, int]]:
    rows = max(1, STRIP_BYTES // (3 * width))
    return ((top, min(top + rows, height)) for top in range(0, height, rows))
