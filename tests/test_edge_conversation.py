"""The page's deadline, by a clock that the scripted engine moves: every request takes ten seconds."""

from __future__ import annotations

from collections.abc import Iterator

from fake_engine import LAYOUT_PROMPT, FakeEngine, layout, result
from PIL import Image

from mineru_edge.conversation import Conversation
from mineru_edge.document import Page
from mineru_edge.intake import Sheet
from mineru_edge.protocol import PageProtocol
from mineru_edge.runtime.request import FinishReason, Step

THREE = layout(*(("text", (100, top, 900, top + 80)) for top in (100, 300, 500)))


class SlowEngine(FakeEngine):
    """One request at a time, in two steps. What was cancelled ends at the next step with half of a word."""

    def __init__(self, pages: int) -> None:
        super().__init__([THREE] * pages, lambda _: "word", slots=1)
        self.now = 0.0
        self.halfway = False

    def step(self) -> list[Step]:
        gone = [ticket for ticket, _ in self._waiting if ticket in self.cancelled]
        self._waiting = type(self._waiting)(each for each in self._waiting if each[0] not in gone)
        steps = [Step(ticket, None, "", result("wo", FinishReason.cancelled)) for ticket in gone]
        self.halfway = not self.halfway and not gone
        if self._waiting:
            self.now += 5
            steps += [] if self.halfway else super().step()
        return steps


def read(pages: int, deadline_s: float | None, *, drawing_s: float = 0.0) -> list[Page]:
    """`drawing_s` is how long each page after the first takes to be drawn."""
    engine = SlowEngine(pages)

    def draw(number: int) -> Sheet:
        engine.now += drawing_s if number > 1 else 0
        return Sheet(number, Image.new("RGB", (400, 500), "white"))

    sheets: Iterator[Sheet] = map(draw, range(1, pages + 1))
    work = Conversation(
        engine,
        PageProtocol((336, 336)),
        page_count=pages,
        pictures=False,
        page_deadline_s=deadline_s,
        clock=lambda: engine.now,
    )
    found = list(work.pages(sheets))
    assert len([request for request in engine.submitted if request.prompt == LAYOUT_PROMPT]) == pages
    return found


def words(page: Page) -> list[tuple[str | None, str | None]]:
    return [(block.content, block.finish_reason) for block in page.blocks]


def test_a_page_past_its_deadline_keeps_what_it_has() -> None:
    (page,) = read(1, 30)  # 10 s for the layout, 10 s for each of two blocks
    assert words(page) == [("word", "stop"), ("word", "stop"), ("wo", "deadline")]
    assert page.error is None
    assert page.failures == ("page 1, block 3 (text): the page's deadline of 30 s had passed",)
    assert page.cut_short == ()


def test_the_clock_of_a_page_starts_when_the_one_before_is_done() -> None:
    late, whole = read(2, 30), read(2, 50)
    # Page 2 is asked for while page 1 is read: its layout takes 10 s of page 1's time and none of its own.
    assert [words(page)[-1] for page in late] == [("wo", "deadline"), ("word", "stop")]
    assert [page.failures for page in whole] == [(), ()]


def test_a_layout_past_the_deadline_fails_the_page_and_no_other() -> None:
    first, second = read(2, 5)
    assert first.error == "its blocks could not be found: the page's deadline of 5 s had passed"
    assert (first.blocks, second.number) == ((), 2)


def test_without_a_deadline_nothing_is_withdrawn() -> None:
    assert [page.failures for page in read(3, None)] == [(), (), ()]


def test_the_drawing_of_the_next_page_does_not_count() -> None:
    for page in read(2, 45, drawing_s=20):  # 40 s for each page by itself
        assert [reason for _, reason in words(page)] == ["stop"] * 3
