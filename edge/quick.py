"""The two libraries of the extra `quick`, RapidOCR and rapid-layout, opened without a word and without a network."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from mineru_edge.models.errors import EngineError
from mineru_edge.runtime.plan import Beside
from mineru_edge.runtime.private_memory import give_large_blocks_back

# Measured with rapidocr 3.10, rapid-layout 1.2.1 and OpenCV 5.0 on pages of 4,400 characters.
BESIDE = Beside(kept_bytes=140_000_000, work_bytes=260_000_000)
_INSTALL = "pip install 'mineru-edge[quick]'"
_HEADLESS = "pip install --force-reinstall --no-deps opencv-python-headless"


@contextmanager
def opening(name: str) -> Iterator[None]:
    """For the import and the opening of the library `name`, which tell of their files on stderr unless kept from it.

    EngineError when it is not installed, or when it or something it needs cannot be loaded.
    """
    give_large_blocks_back()  # or what a page takes is kept
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    except ModuleNotFoundError as error:
        raise EngineError(f"{name} needs {error.name}, which is not installed", hint=_INSTALL) from error
    except ImportError as error:  # OpenCV with windows, which one of the two asks for, needs libGL
        hint = f"where libGL is missing: {_HEADLESS}" if "libGL" in str(error) else _INSTALL
        raise EngineError(f"{name} cannot be loaded: {error}", hint=hint) from error
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(f"{name} cannot be opened: {error}", hint=f"install it again: {_INSTALL}") from error
    finally:
        logging.disable(before)


def session_options(threads: int) -> dict[str, int]:
    """What both take for their sessions. A number of threads above the machine's would be taken for "all of them"."""
    return {"intra_op_num_threads": min(threads, os.cpu_count() or 1), "inter_op_num_threads": 1}
