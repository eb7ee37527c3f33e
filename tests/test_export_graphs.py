"""The graphs: what is in them, and that a row never depends on its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from PIL import Image
from product_graph import OpenVinoProduct, ProductGraph
from tiny_checkpoint import TinyShape, write_checkpoint

from mineru_edge.export.exporter import export
from mineru_edge.export.onnx_writer import ALIGN_BYTES, INLINE_BYTES
from mineru_edge.export.schemes import Scheme, decoder_matrices
from mineru_edge.models import tensors
from mineru_edge.models.bundle import DECODER_FILE, VISION_FILE, Bundle
from mineru_edge.models.tensors import TensorSpec
from mineru_edge.runtime.engine import Engine
from mineru_edge.runtime.engines import choose_engines
from mineru_edge.runtime.graphs import DecoderGraph, block_tokens, open_graphs
from mineru_edge.runtime.kv import KVStore
from mineru_edge.runtime.model import Model

Floats = NDArray[np.float32]
RANDOM = np.random.default_rng(11)
PICTURE = Image.fromarray(RANDOM.integers(0, 256, (84, 168, 3), dtype=np.uint8))
PROMPT = "\nText Recognition:"

CPU_FACTS = Path("/proc/cpuinfo")
EXACT_KERNELS = CPU_FACTS.exists() and "avx512_vnni" in CPU_FACTS.read_text()
"""Where rows were found to be equal bit for bit; other instruction sets have kernels nobody has looked at yet."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    checkpoint = write_checkpoint(folder / "checkpoint")
    wide: dict[str, Scheme] = dict.fromkeys(decoder_matrices_of(checkpoint), "nbits8_block128")
    export(checkpoint, folder / "fp32", precision="fp32", format="both")
    export(checkpoint, folder / "int8", format="both")
    export(checkpoint, folder / "block128", schemes=wide, format="both")
    export(checkpoint, folder / "w8a8", decoder="w8a8", format="both")
    export(checkpoint, folder / "int4", decoder="int4", format="both")
    return folder


def decoder_matrices_of(checkpoint: Path) -> list[str]:
    from mineru_edge.export.checkpoint import Checkpoint
    from mineru_edge.export.facts import read_facts

    return decoder_matrices(read_facts(Checkpoint.open(checkpoint)).text)


KINDS = ("fp32", "int8", "block128", "w8a8", "int4")
ONNX, OPENVINO = "onnxruntime", "openvino-f32"  # as they are asked for


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bundle(folder: Path, kind: str) -> Bundle:
    return Bundle.load(folder / kind)


by_each_engine = pytest.mark.parametrize(
    ("kind", "engine"), [(kind, engine) for engine in (ONNX, OPENVINO) for kind in KINDS]
)


def opened(folder: Path, kind: str, engine: str) -> Engine:
    return Engine.open(Bundle.load(folder / kind), slots=4, threads=1, capacity_tokens=256, engine=engine)


def first_logits(model: Model, picture: Image.Image = PICTURE) -> Floats:
    *_, logits = model.prefill(model.prompt(PROMPT, model.see(picture)), 0)
    return np.array(logits)


def relative(found: Floats, expected: Floats) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def nodes(bundle: Bundle, file: str) -> list[Any]:
    return list(onnx.load(bundle.file(file), load_external_data=False).graph.node)


def attribute(node: Any, name: str) -> Any:
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def test_inputs_and_outputs_are_those_of_the_contract(bundle: Bundle) -> None:
    text, vision = bundle.text, bundle.vision
    for file, inputs, outputs in (
        (VISION_FILE, tensors.vision_inputs(vision), tensors.vision_outputs(vision)),
        (DECODER_FILE, tensors.decoder_inputs(text), tensors.decoder_outputs(text)),
    ):
        graph = onnx.load(bundle.file(file), load_external_data=False).graph
        for values, specs in ((graph.input, inputs), (graph.output, outputs)):
            found = [
                TensorSpec(
                    value.name,
                    tuple(d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim),
                    onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,  # type: ignore[arg-type]
                )
                for value in values
            ]
            assert found == list(specs)


def test_attention_never_writes_its_scores(bundle: Bundle) -> None:
    vision, decoder = nodes(bundle, VISION_FILE), nodes(bundle, DECODER_FILE)
    assert not {"Attention", "Softmax"} & {node.op_type for node in vision + decoder}
    seen = [node for node in vision if node.op_type == "MultiHeadAttention"]
    assert len(seen) == bundle.vision.depth
    assert all(len(node.input) == 3 for node in seen)  # a mask or bias would switch to the slow kernel
    read = [node for node in decoder if node.op_type == "GroupQueryAttention"]
    assert [attribute(node, "do_rotary") for node in read] == [0] * bundle.text.layers


def test_integer_products_where_the_scheme_says_so(bundle: Bundle, kind: str) -> None:
    vision, decoder = nodes(bundle, VISION_FILE), nodes(bundle, DECODER_FILE)
    blocks = [node for node in decoder if node.op_type == "MatMulNBits"]
    rows = [node for node in vision if node.op_type == "MatMulIntegerToFloat"]
    if kind == "fp32":
        assert not blocks + rows
        return
    products = 7 * bundle.text.layers + 1
    assert len(blocks) == (0 if kind == "w8a8" else products)
    assert [node.op_type for node in decoder].count("MatMulIntegerToFloat") == products - len(blocks)
    assert {attribute(node, "accuracy_level") for node in blocks} <= {4}  # without it: 280 times slower
    bits = [attribute(node, "bits") for node in blocks]
    assert bits == [4 if kind == "int4" else 8] * (len(bits) - 1) + [8] * bool(bits)  # the head keeps 8
    assert {attribute(node, "block_size") for node in blocks} <= {128 if kind == "block128" else 32}
    assert len(rows) == 4 * bundle.vision.depth + 2
    assert [node.op_type for node in vision].count("Einsum") == 1  # patch embedding


def test_weights_lie_page_aligned_and_apart_in_the_data_file(bundle: Bundle) -> None:
    for file in (VISION_FILE, DECODER_FILE):
        end = 0
        for tensor in onnx.load(bundle.file(file), load_external_data=False).graph.initializer:
            facts = {entry.key: entry.value for entry in tensor.external_data}
            if not facts:
                assert len(tensor.raw_data) < INLINE_BYTES
                continue
            offset, length = int(facts["offset"]), int(facts["length"])
            assert offset % ALIGN_BYTES == 0
            assert offset >= end
            end = offset + length
        assert end == bundle.file(file).with_suffix(".data").stat().st_size


@by_each_engine
def test_int8_is_close_to_fp32(folder: Path, kind: str, engine: str) -> None:
    with opened(folder, "fp32", ONNX) as exact:
        rows, logits = exact.model.see(PICTURE).rows, first_logits(exact.model)
    bounds = (1e-5, 1e-5) if kind == "fp32" else (0.05, 0.4 if kind == "int4" else 0.08)
    with opened(folder, kind, engine) as close:
        assert relative(close.model.see(PICTURE).rows, rows) < bounds[0]
        assert relative(first_logits(close.model), logits) < bounds[1]


@pytest.mark.parametrize("engine", [ONNX, OPENVINO])
@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_one_matrix_kept_exact_brings_the_result_closer(folder: Path, tmp_path: Path, kind: str, engine: str) -> None:
    names = [f"visual.blocks.{i}.{part}" for i in range(2) for part in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")]
    names += ["visual.merger.mlp.0", "visual.merger.mlp.2"]
    kept: dict[str, Scheme] = dict.fromkeys(names if kind == "fp32" else names[:4], "fp32")
    export(folder / "checkpoint", tmp_path / "kept", schemes=kept, format="both")
    errors = []
    with opened(folder, "fp32", engine) as exact:
        rows = exact.model.see(PICTURE).rows
    for path in (tmp_path / "kept", folder / "int8"):
        with opened(path.parent, path.name, engine) as close:
            errors.append(relative(close.model.see(PICTURE).rows, rows))
    assert errors[0] < (1e-6 if kind == "fp32" else 0.9 * errors[1])


Run = Callable[[list[int], int, int], Floats]


def decoder_of(bundle: Bundle, engine: str, slots: int) -> DecoderGraph:
    """Over a new store."""
    engines = choose_engines(bundle, engine)[0]
    store = KVStore(bundle.text, slots=slots, capacity_tokens=128, block_tokens=block_tokens(engines))
    return open_graphs(bundle, store, threads=1, engines=engines).decoder


@pytest.fixture
def decode(bundle: Bundle, engine: str) -> Run:
    """(slots, first token, tokens) -> logits [slots, vocab]: feeds each slot its own made-up rows, in one run."""
    text, decoder = bundle.text, decoder_of(bundle, engine, 4)
    random = np.random.default_rng(3)
    embeds = random.standard_normal((4, 64, text.width), np.float32)
    angles = random.uniform(-1, 1, (4, 64, text.rotary_width)).astype(np.float32)

    def run(slots: list[int], first: int, tokens: int) -> Floats:
        part = np.s_[slots[0] : slots[-1] + 1, first : first + tokens]
        return np.array(
            decoder.run(slots[0], embeds[part], np.cos(angles[part]), np.sin(angles[part]), [first] * len(slots))
        )

    return run


@by_each_engine
def test_prefill_in_chunks_changes_nothing(decode: Run, kind: str) -> None:
    whole = decode([0], 0, 60)
    for chunk in (30, 7, 1):
        for first in range(0, 60, chunk):
            logits = decode([0], first, min(chunk, 60 - first))
        assert relative(logits, whole) < (1e-5 if kind == "fp32" else 0.03)


@by_each_engine
def test_the_graph_says_how_many_rows_are_independent(bundle: Bundle, kind: str, engine: str) -> None:
    assert decoder_of(bundle, engine, 1).row_multiple == row_multiple(kind, engine)


def row_multiple(kind: str, engine: str) -> int:
    return 2 if kind == "block128" and engine == ONNX else 1


@by_each_engine
def test_a_row_gives_the_same_alone_and_in_a_batch(decode: Run, kind: str, engine: str) -> None:
    for slot in range(4):
        decode([slot], 0, 40)
    together = decode([0, 1, 2, 3], 40, 1)
    assert len(np.unique(together[:, 0])) == 4
    for batch in ([0], [1], [2], [3], [0, 1], [2, 3], [0, 1, 2], [1, 2, 3]):
        apart = decode(batch, 40, 1)
        # The kernel for blocks of 128 takes two rows at a time and adds up a left-over one in another order.
        if EXACT_KERNELS and len(batch) % row_multiple(kind, engine) == 0:
            np.testing.assert_array_equal(apart, together[batch])
        # A difference of 1e-7 can move an activation to the next 8-bit code: that is what the wider bound is for.
        assert relative(apart, together[batch]) < (1e-5 if kind == "fp32" else 0.03)


@by_each_engine
def test_rows_of_different_length_share_a_batch(bundle: Bundle, kind: str, engine: str) -> None:
    text, decoder = bundle.text, decoder_of(bundle, engine, 2)
    embeds = np.random.default_rng(4).standard_normal((2, 50, text.width), np.float32)
    cos, sin = np.ones((2, 50, text.rotary_width), np.float32), np.zeros((2, 50, text.rotary_width), np.float32)
    alone = []
    for slot, length in enumerate((9, 41)):
        row = np.s_[slot : slot + 1]
        decoder.run(slot, embeds[row, :length], cos[row, :length], sin[row, :length], [0])
        alone.append(
            np.array(decoder.run(slot, embeds[row, length : length + 1], cos[row, :1], sin[row, :1], [length])[0])
        )
    step = np.stack([embeds[0, 9:10], embeds[1, 41:42]])
    together = decoder.run(0, step, cos[:, :1], sin[:, :1], [9, 41])
    for slot in range(2):
        assert relative(together[slot], alone[slot]) < (1e-5 if kind == "fp32" else 0.03)


SCHEMES: tuple[Scheme, ...] = ("fp32", "w8a8_token", "nbits8_block128", "nbits8_block32", "nbits4_block32")


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [(kind, scheme) for kind in (ProductGraph, OpenVinoProduct) for scheme in SCHEMES],
)
@pytest.mark.parametrize(("inputs", "outputs"), [(160, 480), (192, 40), (128, 64), (588, 33)])
def test_products(
    tmp_path: Path, kind: type[ProductGraph | OpenVinoProduct], scheme: Scheme, inputs: int, outputs: int
) -> None:
    matrix, bias = RANDOM.standard_normal((outputs, inputs), np.float32), RANDOM.standard_normal(outputs, np.float32)
    product = kind(tmp_path, scheme, matrix, bias)
    x = RANDOM.standard_normal((6, inputs), np.float32)
    x[1] = 0
    x[2, 3] = 1000  # an outlier
    y = product(x)
    expected = x @ matrix.T + bias
    np.testing.assert_allclose(y[1], bias, atol=1e-6)
    for row, bound in ((0, 0.02), (2, 0.06), (3, 0.02)):  # the outlier harms its own row alone
        bound = 3e-6 if scheme == "fp32" else 0.15 if scheme == "nbits4_block32" else bound
        assert relative(y[row] - bias, expected[row] - bias) < bound
    for row in range(6):
        np.testing.assert_allclose(product(x[row : row + 1])[0], y[row], rtol=1e-5, atol=1e-5 * np.abs(y[row]).max())


def test_the_head_is_the_embedding_only_when_tied(tmp_path: Path) -> None:
    shape = TinyShape(layers=1, vision_depth=1)
    tied = export(write_checkpoint(tmp_path / "a", shape), tmp_path / "tied", precision="fp32")
    untied = export(write_checkpoint(tmp_path / "b", shape, tied=False), tmp_path / "untied", precision="fp32")
    with Engine.open(tied, slots=1, threads=1) as one, Engine.open(untied, slots=1, threads=1) as other:
        np.testing.assert_array_equal(one.model.see(PICTURE).rows, other.model.see(PICTURE).rows)
        assert relative(first_logits(other.model), first_logits(one.model)) > 0.1
