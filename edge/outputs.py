"""The files of `parse -o`: NAME.md, NAME_content_list.json, NAME_result.json and images/.

Each is written whole or not at all: next to its place first, then moved there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mineru_edge.models.errors import SpaceError

from .document import Document, Page
from .intake import printable

IMAGES = "images"
HINT = "give a directory with room that can be written to"


class OutputFolder:
    """One directory for the results of one run. Made when the first file is written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def keep_pictures(self, name: str, page: Page) -> Page:
        """Write the pictures of `page` under images/; the page comes back with their paths in place of their bytes."""
        blocks = []
        for index, block in enumerate(page.blocks, 1):
            if block.picture is not None:
                image_path = f"{IMAGES}/{name}_p{page.number:04d}_{index:03d}.jpg"
                self.write_file(image_path, block.picture)
                block = dataclasses.replace(block, picture=None, image_path=image_path)
            blocks.append(block)
        return dataclasses.replace(page, blocks=tuple(blocks))

    def write(self, name: str, document: Document) -> None:
        """The three text files of `document`. SpaceError when one cannot be written."""
        self.write_file(f"{name}_content_list.json", _json(document.content_list))
        self.write_file(f"{name}_result.json", _json(document.to_dict()))
        self.write_file(f"{name}.md", document.markdown.encode())

    def write_file(self, relative: str, data: bytes) -> None:
        """One file at a path relative to the directory. SpaceError when it cannot be written."""
        target = self._path / relative
        draft: str | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(draft, 0o666 & ~_umask())
            os.replace(draft, target)
        except OSError as error:
            if draft is not None:
                with contextlib.suppress(OSError):
                    os.unlink(draft)
            raise SpaceError(f"{target} cannot be written: {error.strerror or error}", hint=HINT) from error


def output_names(sources: Sequence[str]) -> list[str]:
    """A name for the files of each source: its stem, with a number where two would be the same on any file system."""
    taken: set[str] = set()
    names = []
    for source in sources:
        stem = "stdin" if source == "-" else printable(Path(source).stem) or "document"
        name, count = stem, 1
        while name.casefold() in taken:
            count += 1
            name = f"{stem}-{count}"
        taken.add(name.casefold())
        names.append(name)
    return names


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _umask() -> int:
    """What a plain open() would leave out of 0666; mkstemp gives 0600."""
    umask = os.umask(0)
    os.umask(umask)
    return umask
