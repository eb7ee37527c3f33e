"""PDF files of a few hundred bytes, written by hand, so that every oddity is in plain sight."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

LINE = "BT /F1 24 Tf 20 150 Td (Hello) Tj ET"


def pdf(
    *pages: str,
    box: str = "0 0 200 200",
    extra: str | Sequence[str] = "",
    catalog: str = "",
    objects: Sequence[str] = (),
) -> bytes:
    """One page per content stream. `extra` is put into the page dictionaries, `objects` are numbered from 100."""
    extras = [extra] * len(pages) if isinstance(extra, str) else list(extra)
    kids = " ".join(f"{10 + 2 * index} 0 R" for index in range(len(pages)))
    parts = {
        1: f"<< /Type /Catalog /Pages 2 0 R {catalog} >>",
        2: f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    }
    for index, (content, entries) in enumerate(zip(pages, extras, strict=True)):
        parts[10 + 2 * index] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [{box}] /Contents {11 + 2 * index} 0 R"
            f" /Resources << /Font << /F1 3 0 R >> >> {entries} >>"
        )
        parts[11 + 2 * index] = f"<< /Length {len(content)} >>\nstream\n{content}\nendstream"
    parts.update({100 + index: text for index, text in enumerate(objects)})
    return _file(parts)


def encrypted(content: str, *, user: str, owner: str) -> bytes:
    """One page of 200 x 200 points under the oldest standard handler: RC4 with 40 bits (ISO 32000-1, 7.6.3)."""
    identity, permissions = b"\x01" * 16, (-4).to_bytes(4, "little", signed=True)
    owner_entry = _rc4(hashlib.md5(_padded(owner)).digest()[:5], _padded(user))
    key = hashlib.md5(_padded(user) + owner_entry + permissions + identity).digest()[:5]
    page_key = hashlib.md5(key + (11).to_bytes(3, "little") + bytes(2)).digest()[:10]
    data = pdf(_rc4(page_key, content.encode()).decode("latin-1"))
    entries = f"/V 1 /R 2 /P -4 /O <{owner_entry.hex()}> /U <{_rc4(key, _padded('')).hex()}>"
    trailer = f"/Encrypt << /Filter /Standard {entries} >> /ID [<{identity.hex()}> <{identity.hex()}>]"
    return data.replace(b"/Root 1 0 R", f"/Root 1 0 R {trailer}".encode())


def _padded(password: str) -> bytes:
    padding = "28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a"
    return (password.encode() + bytes.fromhex(padding))[:32]


def _rc4(key: bytes, data: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def _file(parts: dict[int, str]) -> bytes:
    out = b"%PDF-1.7\n"
    offsets = {}
    for number, text in sorted(parts.items()):
        offsets[number] = len(out)
        out += f"{number} 0 obj\n{text}\nendobj\n".encode("latin-1")
    start = len(out)
    out += b"xref\n0 1\n0000000000 65535 f \n"
    for number, offset in offsets.items():
        out += f"{number} 1\n{offset:010d} 00000 n \n".encode()
    out += f"trailer\n<< /Size {max(parts) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()
    return out


def dark_box(x: int, y: int, width: int, height: int) -> str:
    """A page content: one black rectangle, in points from the bottom left."""
    return f"0 g {x} {y} {width} {height} re f"
