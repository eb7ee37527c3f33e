"""Which engine runs which graph: decided here and nowhere else, from what is wanted, installed and in the bundle, and
from the processor. Imports no engine, until it meets a processor of which that is not enough: then OpenVINO shows by a
self-test what it does there."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from mineru_edge.models.bundle import Bundle, Format, KVKind
from mineru_edge.models.errors import EngineError, MineruEdgeError

from .threads import CPUINFO, cpu_field

EngineName = Literal["onnxruntime", "openvino"]
Wish = Literal["auto", "onnxruntime", "openvino", "openvino-f32"]
GraphName = Literal["vision", "decoder"]
Kernels = Literal["integer", "float", "wrong"]
SelfTest = Callable[[Bundle, GraphName], Kernels]

AUTO = "auto"
FORMATS: dict[EngineName, Format] = {"onnxruntime": "onnx", "openvino": "openvino"}
INSTALL: dict[EngineName, str] = {
    "onnxruntime": "pip install onnxruntime",
    "openvino": "pip install 'mineru-edge[openvino]'",
}
_X86 = ("x86_64", "amd64")
_BF16 = {"avx512_bf16", "amx_bf16"}
_INT8 = {"avx_vnni", "avx512_vnni", "amx_int8"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One graph's engine and why. `bf16`: its attention multiplies bf16 numbers; all else is f32 activations. `tested`:
    openvino is in memory whether chosen or not."""

    engine: EngineName
    reason: str
    bf16: bool = False
    tested: bool = False

    @property
    def name(self) -> str:
        return f"{self.engine}{' with bf16 attention' if self.bf16 else ''}"

    @property
    def words(self) -> str:
        return f"{self.name} ({self.reason})"

    @property
    def wish(self) -> Wish:
        """What asks for the same again."""
        return "openvino-f32" if self.engine == "openvino" and not self.bf16 else self.engine


@dataclass(frozen=True, slots=True)
class Engines:
    vision: Choice
    decoder: Choice

    @property
    def words(self) -> str:
        return f"vision {self.vision.words}, decoder {self.decoder.words}"

    @property
    def wish(self) -> str:
        """What asks for the same again."""
        return f"vision={self.vision.wish},decoder={self.decoder.wish}"


ONNXRUNTIME = Engines(Choice("onnxruntime", "the default"), Choice("onnxruntime", "the default"))


def parse_wishes(text: str) -> dict[GraphName, Wish]:
    """ "openvino" for both graphs, or "vision=openvino,decoder=onnxruntime"; a graph that is not named is "auto".

    MineruEdgeError for anything else.
    """
    wishes: dict[GraphName, Wish] = {"vision": "auto", "decoder": "auto"}
    parts = [part.strip() for part in text.split(",")]
    named = [part.partition("=") for part in parts if "=" in part]
    pairs = named if len(named) == len(parts) else [(graph, "=", text.strip()) for graph in wishes]
    for graph, _, wish in pairs:
        if graph not in wishes or wish not in get_args(Wish) or len(pairs) != len({graph for graph, *_ in pairs}):
            known = ", ".join(get_args(Wish))
            raise MineruEdgeError(
                f"engine {text!r} is not one of {known}, nor like vision=openvino,decoder=onnxruntime"
            )
        wishes[graph] = wish  # type: ignore[assignment]
    return wishes


def choose_engines(
    bundle: Bundle,
    wish: str = AUTO,
    *,
    kv: KVKind = "fp32",
    installed: Collection[EngineName] | None = None,
    architecture: str | None = None,
    features: Collection[str] | None = None,
    self_test: SelfTest | None = None,
) -> tuple[Engines, ...]:
    """The best choice first; behind it, where the choice was ours, those that need less memory: first the decoder by
    another engine, then vision too.

    EngineError when a graph has no engine, with what to install or to export. None looks at this machine. `self_test`
    is asked where both engines are able, and the features, as Linux names those of x86, do not tell.
    """
    wishes = parse_wishes(wish)
    have = _installed() if installed is None else tuple(installed)
    machine = _Machine(
        (architecture or platform.machine()).lower() in _X86,
        frozenset(_features() if features is None else features),
        self_test or _ask_openvino,
    )
    best = Engines(*(_choose(bundle, graph, wishes[graph], kv, have, machine) for graph in get_args(GraphName)))
    lean = Engines(*(_lean(bundle, getattr(best, graph), wishes[graph], have) for graph in get_args(GraphName)))
    return tuple(dict.fromkeys((best, Engines(best.vision, lean.decoder), lean)))


def other_engines(bundle: Bundle, engines: Engines, *, installed: Collection[EngineName] | None = None) -> str | None:
    """The wish for each graph by the engine that it does not have in `engines`.

    None when the bundle holds graphs for one engine only, or one is not installed. None for `installed` looks here.
    """
    have = _installed() if installed is None else tuple(installed)
    if any(FORMATS[engine] not in bundle.engines or engine not in have for engine in FORMATS):
        return None
    return f"vision={_other(engines.vision.engine)},decoder={_other(engines.decoder.engine)}"


@dataclass(frozen=True, slots=True)
class _Machine:
    x86: bool
    features: frozenset[str]
    self_test: SelfTest

    def tells(self, graph: GraphName) -> bool:
        """Whether what is known of the processor is enough. Without bf16, vision is no faster in openvino on x86."""
        return self.x86 and (bool(self.features) or graph == "vision")


def has_dot_products() -> bool:
    """Whether this is an x86 processor with 8-bit dot products: then every engine's sums of 8-bit codes are right."""
    return platform.machine().lower() in _X86 and bool(_INT8 & _features())


def _choose(
    bundle: Bundle, graph: GraphName, wish: Wish, kv: KVKind, have: Collection[EngineName], machine: _Machine
) -> Choice:
    # A bundle in fp32 is there for comparisons, so nothing of it is rounded.
    bf16 = bool(graph == "vision" and bundle.precision.vision == "int8" and machine.features & _BF16)
    engine: EngineName
    if wish != "auto":
        engine = "openvino" if wish == "openvino-f32" else wish
        _check(bundle, engine, have)
        if graph == "decoder" and kv == "int8" and engine == "openvino":
            raise EngineError("only onnxruntime keeps keys and values as int8", hint="--engine decoder=onnxruntime")
        return Choice(engine, "as asked", bf16 and wish == "openvino")
    able = [engine for engine in FORMATS if FORMATS[engine] in bundle.engines and engine in have]
    if not able:
        _check(bundle, next(engine for engine in FORMATS if FORMATS[engine] in bundle.engines), have)
    if len(able) == 1:
        (engine,) = able
        other = _other(engine)
        missing = (
            f"{other} is not installed"
            if FORMATS[other] in bundle.engines
            else f"the bundle has no {FORMATS[other]} graphs"
        )
        return Choice(engine, missing, bf16 and engine == "openvino")
    if graph == "decoder" and kv == "int8":
        return Choice("onnxruntime", "it keeps keys and values as int8")
    if not machine.tells(graph):
        return _tested(bundle, graph, machine.self_test)
    if graph == "vision" and machine.features & _BF16:
        return Choice("openvino", "this processor multiplies bf16", bf16)
    if graph == "decoder" and machine.features & _INT8:
        return Choice("openvino", "faster on a processor with 8-bit dot products")
    return Choice("onnxruntime", "as fast on this processor, in less memory")


def _tested(bundle: Bundle, graph: GraphName, self_test: SelfTest) -> Choice:
    try:
        kernels = self_test(bundle, graph)
    except (ImportError, EngineError) as error:
        return Choice("onnxruntime", f"openvino failed its self-test: {error}", tested=True)
    if kernels == "integer":
        return Choice("openvino", "its self-test found integer kernels", tested=True)
    found = "no integer kernels" if kernels == "float" else "integer kernels that give wrong results"
    return Choice("onnxruntime", f"openvino's self-test found {found}", tested=True)


def _ask_openvino(bundle: Bundle, graph: GraphName) -> Kernels:
    from .ov_selftest import kernels

    return kernels(bundle, graph)


def _lean(bundle: Bundle, chosen: Choice, wish: Wish, have: Collection[EngineName]) -> Choice:
    """onnxruntime maps its weights, OpenVINO packs them on the heap."""
    free = wish == AUTO and chosen.engine != "onnxruntime"
    if free and "onnx" in bundle.engines and "onnxruntime" in have:
        return Choice("onnxruntime", "the memory limit leaves too little for openvino", tested=chosen.tested)
    return chosen


def _other(engine: EngineName) -> EngineName:
    return next(each for each in FORMATS if each != engine)


def _check(bundle: Bundle, engine: EngineName, have: Collection[EngineName]) -> None:
    if FORMATS[engine] not in bundle.engines:
        raise EngineError(
            f"{bundle.path} holds graphs for {', '.join(bundle.engines)}, none for {engine}",
            hint=f"export it with --format {FORMATS[engine]} or both",
        )
    if engine not in have:
        raise EngineError(f"{engine} is not installed, and {bundle.path} is to run with it", hint=INSTALL[engine])


def _installed() -> tuple[EngineName, ...]:
    return tuple(engine for engine in FORMATS if importlib.util.find_spec(engine) is not None)


def _features(cpuinfo: Path = CPUINFO) -> set[str]:
    return set(cpu_field(cpuinfo, "flags", "Features").split())
