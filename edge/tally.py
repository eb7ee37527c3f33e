"""What a run has done, counted page by page for the words at its end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from mineru_edge.models.errors import megabytes

from .document import Memory, Page
from .units import many

_WHERE = re.compile(r"page \d+(?:, block \d+)?(?: \([a-z_]+\))?: ")
_MOST_REASONS = 10
_LONGEST_REASON = 160  # characters


class Tally:
    """Counts of one run. `kept` pages were read in an earlier one."""

    def __init__(self) -> None:
        self.files = self.failed_files = 0
        self.pages = self.failed_pages = self.kept_pages = 0
        self._blocks: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def add(self, page: Page, *, kept: bool = False) -> None:
        self.pages += 1
        self.kept_pages += kept
        self.failed_pages += bool(page.failures)
        self._reasons.update({_WHERE.sub("", words, count=1) for words in page.failures})
        for block in page.blocks:
            if block.finish_reason is not None:
                self._blocks[block.finish_reason] += 1
            elif block.content is not None:
                self._blocks[f"from {block.source}"] += 1

    def lines(self, *, seconds: float, memory: Memory) -> Iterator[str]:
        """The summary: files, pages, blocks by finish reason or by who read them instead, failures by reason."""
        files = f"{many(self.files, 'file')}{f' ({self.failed_files} not read)' if self.failed_files else ''}"
        kept = f" ({self.kept_pages} from before)" if self.kept_pages else ""
        yield f"{files}, {many(self.pages, 'page')}{kept}, {seconds:,.1f} s{_peak(memory)}"
        if self._blocks:
            yield f"blocks: {', '.join(f'{count:,} {reason}' for reason, count in self._blocks.most_common())}"
        if self.failed_pages:
            yield f"failed in whole or in part: {many(self.failed_pages, 'page')}"
        for reason, count in self._reasons.most_common(_MOST_REASONS):
            yield f"  {many(count, 'page')}: {reason[:_LONGEST_REASON]}"
        if len(self._reasons) > _MOST_REASONS:
            yield f"  and {len(self._reasons) - _MOST_REASONS} other reasons"


def _peak(memory: Memory) -> str:
    if memory.peak_private_bytes is None or memory.peak_rss_bytes is None:
        return ""
    return f", peak memory {megabytes(memory.peak_private_bytes)} ({megabytes(memory.peak_rss_bytes)} resident)"
