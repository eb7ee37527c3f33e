"""Which engine runs which graph: every way to ask, and every machine, without an engine being imported."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from bundles import write_bundle

from mineru_edge.models.bundle import Bundle, Format, Precision
from mineru_edge.models.errors import EngineError, MineruEdgeError
from mineru_edge.runtime.engines import (
    ONNXRUNTIME,
    EngineName,
    GraphName,
    Kernels,
    SelfTest,
    choose_engines,
    other_engines,
    parse_wishes,
)
from mineru_edge.runtime.footprint import library_bytes

BOTH: tuple[EngineName, ...] = ("onnxruntime", "openvino")
SERVER = {"avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"}


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return dataclasses.replace(write_bundle(tmp_path), engines=("onnx", "openvino"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", ("auto", "auto")),
        ("openvino", ("openvino", "openvino")),
        ("vision=openvino,decoder=onnxruntime", ("openvino", "onnxruntime")),
        (" decoder=onnxruntime , vision=openvino-f32", ("openvino-f32", "onnxruntime")),
        ("decoder=openvino", ("auto", "openvino")),
    ],
)
def test_wishes(text: str, expected: tuple[str, str]) -> None:
    wishes = parse_wishes(text)
    assert (wishes["vision"], wishes["decoder"]) == expected


@pytest.mark.parametrize(
    "text",
    ["", "onnx", "vision=onnx", "head=openvino", "vision=openvino,onnxruntime", "vision=auto,vision=openvino", "="],
)
def test_a_wish_that_is_none_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(MineruEdgeError, match="auto, onnxruntime, openvino, openvino-f32"):
        parse_wishes(text)


@pytest.mark.parametrize(
    ("architecture", "features", "vision", "decoder"),
    [
        ("x86_64", SERVER, ("openvino", True), "openvino"),
        ("AMD64", {"avx512_vnni", "avx512_bf16"}, ("openvino", True), "openvino"),
        ("x86_64", {"avx2", "avx_vnni"}, ("onnxruntime", False), "openvino"),
        ("x86_64", {"avx2"}, ("onnxruntime", False), "onnxruntime"),
        ("x86_64", {"avx2", "avx512_bf16"}, ("openvino", True), "onnxruntime"),
    ],
)
def test_auto_goes_by_the_processor(
    bundle: Bundle, architecture: str, features: set[str], vision: tuple[str, bool], decoder: str
) -> None:
    best = choose_engines(bundle, installed=BOTH, architecture=architecture, features=features)[0]
    assert (best.vision.engine, best.vision.bf16) == vision
    assert best.decoder.engine == decoder
    assert best.vision.reason
    assert best.decoder.words.startswith(decoder)


def finds(vision: Kernels, decoder: Kernels) -> SelfTest:
    found: dict[GraphName, Kernels] = {"vision": vision, "decoder": decoder}
    return lambda _, graph: found[graph]


def not_needed(_: Bundle, graph: GraphName) -> Kernels:
    raise AssertionError(f"openvino was started to test its {graph}")


@pytest.mark.parametrize("architecture", ["aarch64", "arm64", "riscv64"])
def test_on_other_processors_openvino_has_to_show_integer_kernels(bundle: Bundle, architecture: str) -> None:
    def chosen(vision: Kernels, decoder: Kernels) -> tuple[str, str]:
        best = choose_engines(
            bundle,
            installed=BOTH,
            architecture=architecture,
            features={"asimddp", "i8mm", "bf16"},
            self_test=finds(vision, decoder),
        )[0]
        assert best.vision.tested
        assert not best.vision.bf16
        for choice, kernels in ((best.vision, vision), (best.decoder, decoder)):
            words = {"integer": "found integer kernels", "float": "found no integer", "wrong": "give wrong results"}
            assert words[kernels] in choice.reason
        return best.vision.engine, best.decoder.engine

    assert chosen("integer", "integer") == ("openvino", "openvino")
    assert chosen("integer", "float") == ("openvino", "onnxruntime")
    assert chosen("wrong", "integer") == ("onnxruntime", "openvino")
    assert chosen("float", "wrong") == ("onnxruntime", "onnxruntime")


def test_so_it_has_to_where_the_system_does_not_tell_the_features(bundle: Bundle) -> None:
    for kernels, decoder in (("integer", "openvino"), ("float", "onnxruntime")):
        best = choose_engines(
            bundle, installed=BOTH, architecture="AMD64", features=(), self_test=finds("integer", kernels)
        )[0]
        assert (best.vision.engine, best.decoder.engine) == ("onnxruntime", decoder)


def test_openvino_is_not_started_where_its_kernels_do_not_matter(bundle: Bundle) -> None:
    for options in (
        {"installed": ("onnxruntime",), "architecture": "aarch64"},
        {"installed": BOTH, "architecture": "aarch64", "wish": "onnxruntime"},
        {"installed": BOTH, "architecture": "aarch64", "wish": "vision=openvino", "kv": "int8"},
        {"installed": BOTH, "architecture": "x86_64", "features": SERVER},
    ):
        choose_engines(bundle, **{"features": (), "self_test": not_needed, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ImportError("no such library"), EngineError("cannot open it")])
def test_an_engine_that_fails_its_self_test_is_not_chosen(bundle: Bundle, error: Exception) -> None:
    def fails(_: Bundle, graph: GraphName) -> Kernels:
        raise error

    (only,) = choose_engines(bundle, installed=BOTH, architecture="aarch64", features=(), self_test=fails)
    assert (only.vision.engine, only.decoder.engine) == ("onnxruntime", "onnxruntime")
    assert str(error) in only.vision.reason


def test_a_self_test_leaves_openvino_in_the_plan(bundle: Bundle) -> None:
    tested = choose_engines(
        bundle, installed=BOTH, architecture="aarch64", features=(), self_test=finds("float", "float")
    )[0]
    assert library_bytes(tested) > library_bytes(ONNXRUNTIME) == 0


def test_a_wish_goes_before_the_processor(bundle: Bundle) -> None:
    (asked,) = choose_engines(
        bundle, "vision=onnxruntime,decoder=openvino", installed=BOTH, architecture="aarch64", features=()
    )
    assert (asked.vision.engine, asked.decoder.engine) == ("onnxruntime", "openvino")


@pytest.mark.parametrize(
    ("wish", "kind", "bf16"), [("openvino", "int8", True), ("openvino-f32", "int8", False), ("openvino", "fp32", False)]
)
def test_bf16_is_for_int8_bundles_and_can_be_refused(bundle: Bundle, wish: str, kind: str, bf16: bool) -> None:
    stored = Precision(vision=kind, decoder=kind, embedding=kind)  # type: ignore[arg-type]
    chosen = choose_engines(
        dataclasses.replace(bundle, precision=stored), wish, installed=BOTH, architecture="x86_64", features=SERVER
    )
    assert chosen[0].vision.bf16 == bf16


def test_behind_our_own_choice_stand_those_that_need_less_memory(bundle: Bundle) -> None:
    chosen = choose_engines(bundle, installed=BOTH, architecture="x86_64", features=SERVER)
    assert [(each.vision.engine, each.decoder.engine) for each in chosen] == [
        ("openvino", "openvino"),
        ("openvino", "onnxruntime"),
        ("onnxruntime", "onnxruntime"),
    ]
    assert all("memory" in choice.reason for choice in (chosen[1].decoder, chosen[2].vision, chosen[2].decoder))
    assert len(choose_engines(bundle, "openvino", installed=BOTH, architecture="x86_64", features=SERVER)) == 1


@pytest.mark.parametrize(
    ("engines", "installed", "engine", "reason"),
    [
        (("onnx",), BOTH, "onnxruntime", "the bundle has no openvino graphs"),
        (("openvino",), BOTH, "openvino", "the bundle has no onnx graphs"),
        (("onnx", "openvino"), ("onnxruntime",), "onnxruntime", "openvino is not installed"),
        (("onnx", "openvino"), ("openvino",), "openvino", "onnxruntime is not installed"),
    ],
)
def test_the_only_one_there_is(
    bundle: Bundle, engines: tuple[Format, ...], installed: tuple[EngineName, ...], engine: str, reason: str
) -> None:
    (only,) = choose_engines(
        dataclasses.replace(bundle, engines=engines), installed=installed, architecture="x86_64", features=SERVER
    )
    assert {(choice.engine, choice.reason) for choice in (only.vision, only.decoder)} == {(engine, reason)}


@pytest.mark.parametrize(
    ("engines", "installed", "wish", "message"),
    [
        (("openvino",), ("onnxruntime",), "auto", r"openvino is not installed.*pip install 'mineru-edge\[openvino\]'"),
        (("onnx",), (), "auto", "onnxruntime is not installed.*pip install onnxruntime"),
        (("onnx",), BOTH, "vision=openvino", "none for openvino.*--format openvino"),
        (("onnx", "openvino"), ("onnxruntime",), "openvino", r"pip install 'mineru-edge\[openvino\]'"),
    ],
)
def test_no_engine_says_what_to_install_or_export(
    bundle: Bundle, engines: tuple[Format, ...], installed: tuple[EngineName, ...], wish: str, message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        choose_engines(dataclasses.replace(bundle, engines=engines), wish, installed=installed, features=())


def test_int8_keys_and_values_are_onnxruntimes(bundle: Bundle) -> None:
    best = choose_engines(bundle, kv="int8", installed=BOTH, architecture="x86_64", features=SERVER)[0]
    assert (best.vision.engine, best.decoder.engine) == ("openvino", "onnxruntime")
    with pytest.raises(EngineError, match="decoder=onnxruntime"):
        choose_engines(bundle, "openvino", kv="int8", installed=BOTH)


@pytest.mark.parametrize("wish", ["auto", "openvino-f32", "vision=openvino,decoder=onnxruntime", "decoder=openvino"])
@pytest.mark.parametrize("features", [SERVER, {"avx2"}])
def test_what_was_chosen_can_be_asked_for_again(bundle: Bundle, wish: str, features: set[str]) -> None:
    machine = {"installed": BOTH, "architecture": "x86_64", "features": features}
    first = choose_engines(bundle, wish, **machine)[0]  # type: ignore[arg-type]
    (again,) = choose_engines(bundle, first.wish, **machine)  # type: ignore[arg-type]
    assert (again.vision.name, again.decoder.name) == (first.vision.name, first.decoder.name)


@pytest.mark.parametrize(
    ("wish", "other"),
    [
        ("onnxruntime", "vision=openvino,decoder=openvino"),
        ("openvino-f32", "vision=onnxruntime,decoder=onnxruntime"),
        ("vision=openvino,decoder=onnxruntime", "vision=onnxruntime,decoder=openvino"),
    ],
)
def test_the_other_engine_of_each_graph(bundle: Bundle, wish: str, other: str) -> None:
    (chosen,) = choose_engines(bundle, wish, installed=BOTH, architecture="x86_64", features=SERVER)
    assert other_engines(bundle, chosen, installed=BOTH) == other
    assert other_engines(bundle, chosen, installed=BOTH[:1]) is None
    assert other_engines(dataclasses.replace(bundle, engines=("onnx",)), chosen, installed=BOTH) is None
