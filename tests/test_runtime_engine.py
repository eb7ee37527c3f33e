"""The whole runtime on real graphs: a random checkpoint of the true architecture, exported in the test."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tiny_checkpoint import write_checkpoint

from mineru_edge import runtime
from mineru_edge.export.exporter import export
from mineru_edge.models.bundle import DECODER_FILE, ENGINE_FILES, OV_DECODER_FILE, Bundle
from mineru_edge.models.errors import BudgetError, EngineError
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.positions import text_rotary
from mineru_edge.runtime.request import DecodeParams, FinishReason, Request, Result

CAPACITY = 400
SIZES = [(56, 56), (300, 100), (31, 250), (252, 196), (120, 480), (28, 28), None, (330, 330)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The head is untied: a random tied one repeats its input for ever."""
    return write_checkpoint(tmp_path_factory.mktemp("random") / "checkpoint", tied=False)


@pytest.fixture(
    scope="module", params=[(kind, form) for form in ENGINE_FILES for kind in ("fp32", "int8")], ids="-".join
)
def bundle(request: pytest.FixtureRequest, checkpoint: Path) -> Bundle:
    """For each engine alone, so that all below is asked of both.

    Asked of one elsewhere, as the other has no such thing: the int8 store and mapped weights are ONNX Runtime's, the
    self-test and the attention that is put into a graph OpenVINO's.
    """
    kind, form = request.param
    return export(checkpoint, checkpoint.parent / f"{kind}-{form}", precision=kind, format=form)


@pytest.fixture(scope="module")
def engine(bundle: Bundle) -> Iterator[Engine]:
    with Engine.open(bundle, slots=4, threads=1, capacity_tokens=CAPACITY) as engine:
        yield engine


def picture(size: tuple[int, int], seed: int = 0) -> Image.Image:
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    random = np.random.default_rng(seed)
    for _ in range(12):
        x, y = (int(random.integers(0, side)) for side in size)
        colour = tuple(int(value) for value in random.integers(0, 255, 3))
        draw.rectangle((x, y, x + 30, y + 9), fill=colour)
    return image


def requests(tokens: int = 24, **rules: float) -> list[Request]:
    """Several sizes, prompts and lengths, so that slots end at different times."""
    return [
        Request(
            None if size is None else picture(size, index),
            "\nText Recognition:" + "!" * index,
            DecodeParams(max(1, tokens - 2 * index), **rules),  # type: ignore[arg-type]
        )
        for index, size in enumerate(SIZES)
    ]


def run(engine: Engine, asked: list[Request]) -> list[Result]:
    found = dict(engine.results(asked))
    assert sorted(found) == list(range(len(asked)))
    return [found[index] for index in range(len(asked))]


def test_answers_differ_and_are_no_errors(engine: Engine) -> None:
    """Else the comparisons below would compare nothing."""
    found = run(engine, requests())
    assert all(result.error is None for result in found)
    assert len({result.token_ids for result in found}) == len(found)
    assert max(len(set(result.token_ids)) for result in found) > 8
    assert [bool(result.patches) for result in found] == [size is not None for size in SIZES]
    assert all(result.prefill_s > 0 and result.decode_s > 0 for result in found)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("order", ["forward", "backward", "rotated"])
def test_tokens_do_not_depend_on_slots_or_order(bundle: Bundle, engine: Engine, slots: int, order: str) -> None:
    rules = {"presence_penalty": 1.0, "frequency_penalty": 0.05, "no_repeat_ngram": 5}
    asked = requests(**rules)
    expected = [result.token_ids for result in run(engine, asked)]
    places = {
        "forward": list(range(len(asked))),
        "backward": list(reversed(range(len(asked)))),
        "rotated": [(index + 3) % len(asked) for index in range(len(asked))],
    }[order]
    with Engine.open(bundle, slots=slots, threads=1, capacity_tokens=CAPACITY) as other:
        found = run(other, [asked[place] for place in places])
    assert [result.token_ids for result in found] == [expected[place] for place in places]


def test_logits_of_a_batch_are_those_of_one(engine: Engine) -> None:
    """Four rows of different lengths at once, in pairs to the last bit, and each alone."""
    model = engine.model
    lengths, deltas = [], []
    for slot, size in enumerate([(56, 56), (300, 100), (31, 250), (252, 196)]):
        prompt = model.prompt("x" * slot, model.see(picture(size, slot)))
        list(model.prefill(prompt, slot))
        lengths.append(prompt.tokens)
        deltas.append(prompt.delta)
    tokens = [65, 66, 67, 68]
    positions = [length + delta for length, delta in zip(lengths, deltas, strict=True)]
    fed = list(zip(tokens, lengths, positions, strict=True))
    together = model.decode(0, fed).copy()
    np.testing.assert_array_equal(model.decode(0, fed[:2]), together[:2])
    np.testing.assert_array_equal(model.decode(2, fed[2:]), together[2:])
    for slot in range(4):
        np.testing.assert_allclose(model.decode(slot, fed[slot : slot + 1])[0], together[slot], atol=1e-4)


def test_prefill_in_chunks_is_prefill_at_once(engine: Engine) -> None:
    model = engine.model
    prompt = model.prompt("\nText Recognition:", model.see(picture((300, 100))))
    (whole,) = (row.copy() for row in model.prefill(prompt, 0))
    for size in (1, 7, 64):
        rows = []
        for start in range(0, prompt.tokens, size):
            part = slice(start, start + size)
            cos, sin = prompt.rotary.cos[None, part], prompt.rotary.sin[None, part]
            rows.append(model._graphs.decoder.run(1, prompt.embeds[None, part], cos, sin, [start])[0].copy())
        np.testing.assert_allclose(rows[-1], whole, atol=2e-4 if "fp32" in str(model.bundle.path) else 0.1)


def test_decoding_is_prefilling_one_token_more(engine: Engine) -> None:
    """The store after a prefill and two steps says the same as a prefill of all, positions included."""
    model, text = engine.model, "\nText Recognition:"
    seen = model.see(picture((300, 100)))
    prompt = model.prompt(text, seen)
    list(model.prefill(prompt, 0))
    said = [model.tokens.prompt("ab", image_tokens=0).before[-13 + index] for index in range(2)]
    for count, token in enumerate(said):
        past = prompt.tokens + count
        stepped = model.decode(0, [(token, past, past + prompt.delta)])[0].copy()
    longer = model.prompt(text, seen)
    axes = np.concatenate([longer.axes, np.tile(prompt.tokens + prompt.delta + np.arange(2), (3, 1))], axis=1)
    rotary = text_rotary(axes, model.bundle.text)
    embeds = np.concatenate([longer.embeds, model._embedding.rows(said)])
    at_once = model._graphs.decoder.run(1, embeds[None], rotary.cos[None], rotary.sin[None], [0])[0]
    np.testing.assert_allclose(stepped, at_once, atol=2e-4 if "fp32" in str(model.bundle.path) else 0.1)


def test_the_same_request_twice_with_another_picture(engine: Engine) -> None:
    asked = [Request(picture((200, 90), seed), "same", DecodeParams(12)) for seed in (2, 3, 2)]
    first, second, again = run(engine, asked)
    assert first.token_ids == again.token_ids
    assert first.token_ids != second.token_ids


def test_the_store_stays_where_it_is_and_leftovers_do_no_harm(engine: Engine) -> None:
    address, size = engine.kv.address, engine.kv.nbytes
    expected = run(engine, requests(20))
    for layer in range(engine.kv.layers):  # whatever a slot held before is out of sight
        for blocks in engine.kv.blocks(layer):
            blocks[...] = 1e3
    found = run(engine, requests(20))
    assert [result.token_ids for result in found] == [result.token_ids for result in expected]
    assert (engine.kv.address, engine.kv.nbytes) == (address, size)


def test_more_than_the_capacity_ends_with_length(bundle: Bundle) -> None:
    with Engine.open(bundle, slots=2, threads=1, capacity_tokens=100) as engine:
        found = run(engine, [Request(picture((56, 56)), "go", DecodeParams(500)) for _ in range(3)])
    for result in found:
        assert result.finish_reason is FinishReason.length
        assert result.prompt_tokens + len(result.token_ids) == 101
    assert len({result.token_ids for result in found}) == 1


def test_an_image_over_the_patch_cap_is_scaled_down(bundle: Bundle) -> None:
    with Engine.open(bundle, slots=1, threads=1, capacity_tokens=CAPACITY, patch_cap=100) as engine:
        (found,) = run(engine, [Request(picture((900, 700)), "go", DecodeParams(3))])
    assert 50 < found.patches <= 100
    assert found.error is None


def test_steps_stream_and_requests_are_drawn_as_slots_fall_free(engine: Engine) -> None:
    drawn = []

    def asked() -> Iterator[Request]:
        for index, request in enumerate(requests(6)[:8]):
            drawn.append(index)
            yield request

    steps = engine.steps(asked())
    next(steps)
    assert len(drawn) == engine.plan.slots
    rest = list(steps)
    assert len(drawn) == 8
    assert sum(step.result is not None for step in rest) >= 7
    assert engine.idle


def test_closing_the_iterator_early_cancels_what_it_began(engine: Engine) -> None:
    steps = engine.steps(requests())
    next(steps)
    steps.close()
    assert not engine.idle
    engine.step()
    assert engine.idle
    assert [result.error for result in run(engine, requests(4)[:2])] == [None, None]


def test_against_transformers(checkpoint: Path) -> None:
    """fp32, greedy, no penalties: vision rows, first logits and tokens."""
    import torch
    from transformers import Qwen2VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    export(checkpoint, checkpoint.parent / "parity", precision="fp32")
    bundle = Bundle.load(checkpoint.parent / "parity")
    reference = Qwen2VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()
    processor = Qwen2VLImageProcessorPil.from_pretrained(checkpoint)
    with Engine.open(bundle, slots=2, threads=1, capacity_tokens=CAPACITY) as engine:
        for index, size in enumerate([(56, 56), (300, 100), (31, 250), (330, 330)]):
            image, prompt = picture(size, index), "\nText Recognition:"
            (found,) = run(engine, [Request(image, prompt, DecodeParams(16))])
            pixels = processor(images=image, return_tensors="pt")
            ids = engine.model.tokens.prompt(prompt, image_tokens=found.patches // 4)
            inputs = torch.tensor([[*ids.before, *ids.image, *ids.after]])
            with torch.inference_mode():
                answer = reference.generate(
                    input_ids=inputs,
                    attention_mask=torch.ones_like(inputs),
                    mm_token_type_ids=(inputs == bundle.special.image_pad).int(),
                    **pixels,
                    max_new_tokens=16,
                    do_sample=False,
                )
            generated = [int(token) for token in answer[0, inputs.shape[1] :] if int(token) not in bundle.special.eos]
            assert list(found.token_ids) == generated
            with torch.inference_mode():
                rows = reference.model.visual(pixels["pixel_values"], grid_thw=pixels["image_grid_thw"]).pooler_output
            seen = engine.model.see(image)
            np.testing.assert_allclose(seen.rows, rows.numpy(), atol=1e-4 * float(rows.abs().max()))


def test_a_limit_that_is_too_low_is_refused_before_anything_is_opened(bundle: Bundle) -> None:
    with pytest.raises(BudgetError) as caught:
        Engine.open(bundle, memory_limit_bytes=50_000_000)
    assert caught.value.need_bytes > 50_000_000


def junk(graph: bytes) -> bytes:
    return b"x" * len(graph)


def cut_off(graph: bytes) -> bytes:
    return graph[: len(graph) // 2] + b" " * (len(graph) - len(graph) // 2)


@pytest.mark.parametrize("damage", [junk, cut_off])
def test_a_graph_that_cannot_be_opened_is_an_engine_error(
    bundle: Bundle, tmp_path: Path, damage: Callable[[bytes], bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(bundle.path, broken)
    graph = OV_DECODER_FILE if bundle.engines == ("openvino",) else DECODER_FILE
    (broken / graph).write_bytes(damage((broken / graph).read_bytes()))
    with pytest.raises(EngineError, match=f"{graph}.*info --check"):
        Engine.open(Bundle.load(broken), slots=1, threads=1)
    assert len("".join(capfd.readouterr())) < 1000  # engines have printed what they could not read


def test_a_bundle_for_another_engine_says_so(bundle: Bundle) -> None:
    other = "openvino" if bundle.engines == ("onnx",) else "onnxruntime"
    with pytest.raises(EngineError, match=f"none for {other}.*--format"):
        Engine.open(bundle, slots=1, threads=1, engine=other)


def test_an_engine_that_cannot_be_imported_names_what_to_install(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "ov" if bundle.engines == ("openvino",) else "ort"
    monkeypatch.setitem(sys.modules, f"mineru_edge.runtime.{module}", None)
    monkeypatch.delattr(runtime, module)
    with pytest.raises(EngineError, match=r"cannot be imported.*pip install"):
        Engine.open(bundle, slots=1, threads=1)


def test_importing_the_runtime_imports_no_engine_and_no_torch() -> None:
    code = (
        "import sys, mineru_edge.runtime.engine\n"
        "found = {'onnxruntime', 'openvino', 'torch', 'transformers', 'mineru_vl_utils'} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


OFFLINE = """
import sys

for name in ("torch", "transformers", "optimum", "onnx", "nncf", "mineru_vl_utils"):
    sys.modules[name] = None

def no_network(event, arguments):
    if event.startswith("socket."):
        raise OSError("no network here: " + event)

sys.addaudithook(no_network)
"""
ASK = """
from PIL import Image
from mineru_edge.models.bundle import Bundle
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.request import DecodeParams, Request

def ask(engine, size, tokens=3):
    ((_, result),) = engine.results([Request(Image.new("RGB", size, "white"), "go", DecodeParams(tokens))])
    return result

bundle = Bundle.load(sys.argv[1])
"""


def test_it_runs_without_torch_and_without_a_network(bundle: Bundle) -> None:
    code = """
with Engine.open(bundle, slots=1, threads=1, capacity_tokens=200) as engine:
    result = ask(engine, (100, 60))
sys.exit(result.error or (0 if len(result.token_ids) == 3 else 1))
"""
    subprocess.run([sys.executable, "-c", OFFLINE + ASK + code, str(bundle.path)], check=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA and /proc are Linux's")
def test_a_run_out_of_memory_is_an_error_and_the_next_one_is_right(bundle: Bundle) -> None:
    code = """
import resource

def data_bytes():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))

with Engine.open(bundle, slots=1, threads=1, capacity_tokens=2000) as engine:
    before = ask(engine, (84, 56))
    limit = data_bytes() + 24_000_000
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    large = ask(engine, (900, 700))
    after = ask(engine, (84, 56))
assert before.error is None, before
assert large.finish_reason.value == "error", large
assert after.error is None, after
assert before.token_ids == after.token_ids
"""
    subprocess.run([sys.executable, "-c", "import sys\n" + ASK + code, str(bundle.path)], check=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_memory_does_not_grow_with_requests_of_many_shapes(bundle: Bundle) -> None:
    code = """
def anonymous_bytes():
    lines = open("/proc/self/status").read().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon", "VmSwap")))

with Engine.open(bundle, slots=3, threads=1, capacity_tokens=400) as engine:
    def some(count, start):
        sizes = [(28 + (i * 67) % 240, 28 + (i * 101) % 240) for i in range(start, start + count)]
        pictures = (Image.new("RGB", size, "white") for size in sizes)
        asked = (Request(picture, "go", DecodeParams(2 + i % 9)) for i, picture in enumerate(pictures))
        assert all(result.error is None for _, result in engine.results(asked))

    ask(engine, (268, 268), 10)  # larger than all that follow: an engine may keep what its largest run took
    some(60, 0)
    levels = []
    for start in range(60, 180, 20):
        some(20, start)
        engine.kv.release()  # else it counts the rows that happened to be written since no slot was live
        levels.append(anonymous_bytes())
    grown = min(levels[3:]) - min(levels[:3])  # caches of kernels turn over: up and down by some MB
assert grown < 5_000_000, grown  # the fault was 0.3 MB a request, 18 MB here; slower growth is for the soak
"""
    subprocess.run([sys.executable, "-c", "import sys\n" + ASK + code, str(bundle.path)], check=True)


def test_closing_gives_everything_back(bundle: Bundle) -> None:
    engine = Engine.open(bundle, slots=2, threads=1, capacity_tokens=CAPACITY)
    run(engine, requests(3)[:3])
    store = weakref.ref(engine.kv)
    engine.close()
    engine.close()
    gc.collect()
    assert store() is None
