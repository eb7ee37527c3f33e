"""The files of `parse -o`: NAME in each format that was asked for, and images/ beside it.

Each is written whole or not at all: next to its place first, then moved there. A name may have folders in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from mineru_edge.models.errors import SpaceError

from .document import Page

IMAGES = "images"
HINT = "give a directory with room that can be written to"


class OutputFolder:
    """One directory for the results of one run. Made when the first file is written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def keep_pictures(self, name: str, page: Page) -> Page:
        """Write the pictures of `page` to images/ beside `name`; the page comes back with their paths, as seen from
        there, in place of their bytes."""
        place = PurePosixPath(name)
        blocks = []
        for index, block in enumerate(page.blocks, 1):
            if block.picture is not None:
                image_path = f"{IMAGES}/{place.name}_p{page.number:04d}_{index:03d}.jpg"
                self.write_file(str(place.parent / image_path), block.picture)
                block = dataclasses.replace(block, picture=None, image_path=image_path)
            blocks.append(block)
        return dataclasses.replace(page, blocks=tuple(blocks))

    def write_file(self, relative: str, data: bytes) -> None:
        """One file at a path relative to the directory. SpaceError when it cannot be written."""
        self.write_pieces(relative, [data])

    def write_pieces(self, relative: str, pieces: Iterable[bytes]) -> None:
        """As `write_file`, for what need not be in memory all at once."""
        target = self.path / relative
        draft = target.with_name(f".{target.name}.part")  # always the same, so that a kill leaves one at most
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with draft.open("wb") as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())  # else a power cut may leave the new name with nothing behind it
                os.replace(draft, target)
            finally:
                with contextlib.suppress(OSError):
                    draft.unlink()
        except OSError as error:
            raise SpaceError(f"{target} cannot be written: {error.strerror or error}", hint=HINT) from error
