"""The decode loop on scripted graphs: slots, batches, limits, failures. No engine, no weights."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from fakes import EOS, IDS, VISION_ROW, Rig, drain, fake_bundle, rig
from PIL import Image

from mineru_edge.models.bundle import Bundle
from mineru_edge.runtime.positions import prompt_positions, text_rotary
from mineru_edge.runtime.request import DecodeParams, FinishReason, Request, Result


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return fake_bundle(tmp_path)


def ask(prompt: str = "hi", *, image: Image.Image | None = None, tokens: int = 40, **options: float) -> Request:
    return Request(image, prompt, DecodeParams(tokens, **options))  # type: ignore[arg-type]


def mixing(held: list[int]) -> int:
    """Depends on every token and its place; ends after a while."""
    value = sum((index + 1) * token for index, token in enumerate(held))
    return EOS if value % 23 == 0 else value % 251


def expected(rig: Rig, request: Request) -> tuple[list[int], FinishReason]:
    """What `mixing` says on paper."""
    before, _, after = rig.model.tokens.prompt(request.prompt, image_tokens=0)
    held, said = [*before, *after], []
    while len(said) < request.params.max_new_tokens:
        token = mixing(held)
        if token == EOS:
            return said, FinishReason.stop
        held.append(token)
        said.append(token)
    return said, FinishReason.length


def results(steps: dict[int, list]) -> dict[int, Result]:
    return {ticket: events[-1].result for ticket, events in steps.items()}


@pytest.mark.parametrize("slots", [1, 2, 4, 7])
@pytest.mark.parametrize("reverse", [False, True])
def test_answers_depend_on_the_request_alone(bundle: Bundle, slots: int, reverse: bool) -> None:
    """Requests of many lengths, so that slots are freed in the middle and others move into the holes."""
    requests = [ask("abc" * (index % 9) + str(index), tokens=3 + index * 7 % 40) for index in range(25)]
    if reverse:
        requests.reverse()
    found = rig(bundle, mixing, slots=slots)
    tickets = {found.scheduler.submit(request): request for request in requests}
    done = results(drain(found.scheduler))
    assert set(done) == set(tickets)
    reasons = set()
    for ticket, request in tickets.items():
        said, reason = expected(found, request)
        assert list(done[ticket].token_ids) == said
        assert done[ticket].finish_reason is reason
        assert done[ticket].error is None
        reasons.add(reason)
    assert reasons == {FinishReason.stop, FinishReason.length}


def test_all_live_slots_decode_in_one_run(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, slots=4)
    for _ in range(4):
        found.scheduler.submit(ask(tokens=5))
    drain(found.scheduler)
    assert [run for run in found.decoder.runs if run[1] == 1] == [(4, 1)] * 4


def test_a_free_slot_is_filled_at_once(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, slots=2)
    for tokens in (2, 9, 3):
        found.scheduler.submit(ask(tokens=tokens))
    drain(found.scheduler)
    assert [run for run in found.decoder.runs if run[1] == 1] == [(2, 1)] * 8  # the idle row pairs with the last one


def test_a_decoder_whose_rows_never_depend_on_each_other_gets_no_idle_row(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, slots=2)
    found.decoder.row_multiple = 1
    for tokens in (2, 9, 3):
        found.scheduler.submit(ask(tokens=tokens))
    drain(found.scheduler)
    runs = [batch for batch, tokens in found.decoder.runs if tokens == 1]
    assert runs == [2] * 3 + [1] * 5


def test_prefill_goes_in_chunks(bundle: Bundle) -> None:
    found = rig(bundle, mixing, prefill_chunk=16)
    found.scheduler.submit(ask("x" * 50, tokens=1))
    drain(found.scheduler)
    total = len("user\n") + 50 + len("\nassistant\n")
    assert found.decoder.runs == [(1, 16)] * (total // 16) + [(1, total % 16)]


def test_the_store_s_memory_is_let_go_when_no_slot_is_live(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rig(bundle, lambda held: 65, slots=2)
    live: list[int] = []
    monkeypatch.setattr(found.kv, "release", lambda: live.append(len(found.scheduler._live)))
    for tokens in (4, 9, 4):
        found.scheduler.submit(ask(tokens=tokens))
    drain(found.scheduler)
    assert live == [0]  # the third came into a slot while the second was read
    found.scheduler.submit(ask(tokens=4))
    drain(found.scheduler)
    assert live == [0, 0]


def test_the_store_stays_where_it_is(bundle: Bundle) -> None:
    found = rig(bundle, mixing)
    address, size = found.kv.address, found.kv.nbytes
    for _ in range(20):
        found.scheduler.submit(ask())
    drain(found.scheduler)
    assert (found.kv.address, found.kv.nbytes) == (address, size)


def test_image_rows_take_the_place_of_the_placeholders(bundle: Bundle) -> None:
    held_first: list[list[int]] = []

    def rule(held: list[int]) -> int:
        held_first.append(held)
        return EOS

    found = rig(bundle, rule)
    found.scheduler.submit(ask("go", image=Image.new("RGB", (112, 84))))
    (done,) = results(drain(found.scheduler)).values()
    ids = found.model.tokens.prompt("go", image_tokens=12)
    assert held_first[-1] == [*ids.before, *[VISION_ROW] * 12, *ids.after]
    assert done.patches == 48 == found.vision.calls[0]
    assert done.prompt_tokens == len(held_first[-1])
    assert done.finish_reason is FinishReason.stop
    assert done.token_ids == ()


def test_positions_go_on_behind_the_image(bundle: Bundle) -> None:
    """The store holds each token's rotary cosine: prompt by M-RoPE, then one step of all three axes per token."""
    found = rig(bundle, lambda held: 65, slots=1)
    found.scheduler.submit(ask("go", image=Image.new("RGB", (140, 56)), tokens=6))
    drain(found.scheduler)
    before, image, after = found.model.tokens.prompt("go", image_tokens=10)
    axes, delta = prompt_positions(len(before), 2, 5, len(after))
    total = len(before) + len(image) + len(after)
    fed = np.tile(np.arange(total, total + 5) + delta, (3, 1))  # the sixth token is never fed
    assert fed[0, 0] == axes.max() + 1
    expected = text_rotary(np.concatenate([axes, fed], axis=1), bundle.text).cos[:, -1]
    stored = found.kv.views(0, 0, 1)[1][0, 0, : total + 5, 0]
    np.testing.assert_array_equal(stored, expected)


def test_capacity_ends_with_length(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, capacity_tokens=32)
    found.scheduler.submit(ask("", tokens=1000))
    (done,) = results(drain(found.scheduler)).values()
    assert done.finish_reason is FinishReason.length
    assert done.prompt_tokens + len(done.token_ids) == 32 + 1  # the last one needs no room, it is never fed


@pytest.mark.parametrize("spare", [0, 1])
def test_a_prompt_that_fills_the_slot_still_gives_a_token(bundle: Bundle, spare: int) -> None:
    found = rig(bundle, lambda held: 65, capacity_tokens=32)
    found.scheduler.submit(ask("x" * (16 - spare), tokens=1000))
    (done,) = results(drain(found.scheduler)).values()
    assert done.finish_reason is FinishReason.length
    assert len(done.token_ids) == 1 + spare


def test_a_prompt_longer_than_a_slot_is_an_error_with_numbers(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, capacity_tokens=32)
    found.scheduler.submit(ask("x" * 17))
    (done,) = results(drain(found.scheduler)).values()
    assert done.finish_reason is FinishReason.error
    assert "33 tokens" in str(done.error)
    assert "32" in str(done.error)


def test_a_placeholder_in_the_prompt_is_an_error(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65)
    found.scheduler.submit(ask("<|image_pad|>", image=Image.new("RGB", (56, 56))))
    (done,) = results(drain(found.scheduler)).values()
    assert done.finish_reason is FinishReason.error
    assert done.error == "the prompt has 5 image placeholders, the image gives 4 rows"
    assert not found.decoder.runs


def test_a_picture_that_cannot_be_read_is_an_error_and_the_others_go_on(bundle: Bundle) -> None:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)).save(file, "PNG")
    cut = Image.open(io.BytesIO(file.getvalue()[:9000]))
    found = rig(bundle, mixing)
    good = ask("good")
    tickets = [
        found.scheduler.submit(good),
        found.scheduler.submit(ask(image=cut)),
        found.scheduler.submit(good),
    ]
    done = results(drain(found.scheduler))
    assert done[tickets[1]].finish_reason is FinishReason.error
    assert done[tickets[1]].error
    for ticket in (tickets[0], tickets[2]):
        assert list(done[ticket].token_ids) == expected(found, good)[0]


@pytest.mark.parametrize("how", ["fail_when", "spoil_when"])
def test_a_request_whose_run_fails_ends_alone(bundle: Bundle, how: str) -> None:
    """One of three breaks in the middle of decoding; its rows are not finite or its run raises."""
    first = rig(bundle, mixing).model.tokens.prompt("T", image_tokens=0).before[5]

    def breaks(held: list[int]) -> int:
        return len(held) > 25 and held[5] == first

    found = rig(bundle, mixing, slots=3, **{how: breaks})  # type: ignore[arg-type]
    requests = [ask("abc", tokens=30), ask("Txx", tokens=30), ask("cdefg", tokens=30)]
    tickets = [found.scheduler.submit(request) for request in requests]
    done = results(drain(found.scheduler))
    assert done[tickets[1]].finish_reason is FinishReason.error
    assert ("bad_alloc" if how == "fail_when" else "not finite") in str(done[tickets[1]].error)
    assert list(done[tickets[1]].token_ids) == expected(found, requests[1])[0][: len(done[tickets[1]].token_ids)]
    for index in (0, 2):
        assert list(done[tickets[index]].token_ids) == expected(found, requests[index])[0]


def test_values_that_are_not_finite_do_not_stay_in_the_store(bundle: Bundle) -> None:
    found = rig(bundle, mixing, spoil_when=lambda held: len(held) > 20)
    found.scheduler.submit(ask("abcdefgh"))
    drain(found.scheduler)
    assert not found.kv.views(0, 0, 1)[0].any()


def test_a_loop_ends_with_repetition(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65 + len(held) % 3, slots=2, capacity_tokens=4000)
    looping = found.scheduler.submit(ask(tokens=3000))
    done = results(drain(found.scheduler))[looping]
    assert done.finish_reason is FinishReason.repetition
    assert 512 <= len(done.token_ids) < 560
    assert done.text


def test_a_deadline_ends_one_request_and_keeps_what_it_read(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, slots=2)
    hurried = found.scheduler.submit(ask(deadline_s=5.0))
    patient = found.scheduler.submit(ask(tokens=9))
    steps = {hurried: [], patient: []}
    while not found.scheduler.idle:
        found.clock[0] += 1
        for step in found.scheduler.step():
            steps[step.ticket].append(step)
    done = results(steps)
    assert done[hurried].finish_reason is FinishReason.deadline
    assert len(done[hurried].token_ids) == 6 + 1  # the prefill's token, five seconds of steps, one late
    assert done[patient].finish_reason is FinishReason.length
    assert len(done[patient].token_ids) == 9


def test_waiting_for_a_slot_does_not_count_against_the_deadline(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, slots=1)
    found.scheduler.submit(ask(tokens=20))
    second = found.scheduler.submit(ask(tokens=3, deadline_s=5.0))
    steps = []
    while not found.scheduler.idle:
        found.clock[0] += 1
        steps += found.scheduler.step()
    assert {s.ticket: s.result for s in steps if s.result}[second].finish_reason is FinishReason.length


def test_a_deadline_can_pass_during_prefill(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: found.clock.__setitem__(0, found.clock[0] + 1) or 65)
    found.scheduler.submit(ask("x" * 64, deadline_s=2.0))
    (done,) = results(drain(found.scheduler)).values()
    assert done.finish_reason is FinishReason.deadline
    assert done.token_ids == ()
    assert len(found.decoder.runs) == 2


def test_cancel_ends_a_waiting_and_a_live_request(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, slots=1)
    live, waiting, other = (found.scheduler.submit(ask(tokens=9)) for _ in range(3))
    steps = {live: found.scheduler.step(), waiting: [], other: []}
    found.scheduler.cancel(live)
    found.scheduler.cancel(waiting)
    found.scheduler.cancel(999)
    for ticket, events in drain(found.scheduler).items():
        steps[ticket] += events
    done = results(steps)
    assert done[live].finish_reason is done[waiting].finish_reason is FinishReason.cancelled
    assert done[live].token_ids == (65, 65)
    assert done[waiting].token_ids == ()
    assert len(done[other].token_ids) == 9


def test_cancel_all(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, slots=2)
    tickets = [found.scheduler.submit(ask()) for _ in range(5)]
    found.scheduler.step()
    found.scheduler.cancel()
    done = results(drain(found.scheduler))
    assert set(done) == set(tickets)
    assert {result.finish_reason for result in done.values()} == {FinishReason.cancelled}
    again = found.scheduler.submit(ask(tokens=3))
    assert results(drain(found.scheduler))[again].finish_reason is FinishReason.length


@pytest.mark.parametrize("every", [False, True])
def test_cancel_stops_a_long_prefill(bundle: Bundle, every: bool) -> None:
    def rule(held: list[int]) -> int:
        found.scheduler.cancel(None if every else ticket)
        return 65

    found = rig(bundle, rule)
    ticket = found.scheduler.submit(ask("x" * 100))
    assert results(drain(found.scheduler))[ticket].finish_reason is FinishReason.cancelled
    assert len(found.decoder.runs) == 1


def test_streamed_text_joins_to_the_result(bundle: Bundle) -> None:
    spoken = rig(bundle, mixing).model.tokens.prompt("文 𠮷é!", image_tokens=0).before[5:-11]

    def rule(held: list[int]) -> int:
        return [*spoken, EOS][len(held) - len("user\n\nassistant\n")]

    found = rig(bundle, rule)
    found.scheduler.submit(ask("", tokens=40))
    (events,) = drain(found.scheduler).values()
    assert "".join(step.text for step in events) == events[-1].result.text == "文 𠮷é!"
    assert [step.text for step in events if step.text] == list("文 𠮷é!")
    assert [step.token_id for step in events] == [*spoken, None]
    assert all(step.result is None for step in events[:-1])


def test_a_cut_character_is_shown_with_the_result(bundle: Bundle) -> None:
    spoken = rig(bundle, mixing).model.tokens.prompt("文", image_tokens=0).before[5:-11]
    found = rig(bundle, lambda held: spoken[len(held) - 16])
    found.scheduler.submit(ask("", tokens=2))
    (events,) = drain(found.scheduler).values()
    assert [step.text for step in events] == ["", "\ufffd"]


def test_special_tokens_stay_in_the_text_and_the_end_token_does_not(bundle: Bundle) -> None:
    spoken = [IDS["<fcel>"], IDS["<nl>"], EOS]
    found = rig(bundle, lambda held: spoken[len(held) - 16])
    found.scheduler.submit(ask(""))
    (done,) = results(drain(found.scheduler)).values()
    assert done.text == "<fcel><nl>"
    assert done.token_ids == tuple(spoken[:2])


def test_times_are_counted_by_phase(bundle: Bundle) -> None:
    def tick(held: list[int]) -> int:
        found.clock[0] += 1
        return 65

    found = rig(bundle, tick, slots=2, prefill_chunk=100)
    first, second = (found.scheduler.submit(ask(tokens=3)) for _ in range(2))
    done = results(drain(found.scheduler))
    assert done[first].vision_s == 0
    assert done[first].prefill_s == done[second].prefill_s == 1
    assert done[first].decode_s == done[second].decode_s == 2 * 2  # two steps of two rows


def test_rules_reach_the_loop_and_never_another_sequence(bundle: Bundle) -> None:
    found = rig(bundle, lambda held: 65, slots=2)
    punished = found.scheduler.submit(ask(tokens=3, presence_penalty=30.0))
    plain = found.scheduler.submit(ask(tokens=3))
    banned = found.scheduler.submit(ask(tokens=4, no_repeat_ngram=2))
    done = results(drain(found.scheduler))
    assert done[punished].token_ids == (65, 319, 318)
    assert done[plain].token_ids == (65, 65, 65)
    assert done[banned].token_ids == (65, 65, 319, 65)
