"""How long work tells of what it has done."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""Called with (done, of all, what was done), both counted in the work's own measure."""
