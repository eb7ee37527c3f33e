"""The decoder over an int8 key-value store: the same graph and weights, with a scale per layer, head and dimension.

The scales are static, so they are measured: `calibrate.py` runs pages through the bundle and gives the largest absolute
key and value of each dimension.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from mineru_edge.models.bundle import DECODER_FILE, DECODER_KV8_FILE, Bundle
from mineru_edge.models.errors import SpaceError
from mineru_edge.models.tensors import decoder_inputs, decoder_outputs

HEADROOM = 1.1  # over what was seen; beyond it values are cut off
_LARGEST = 127
_K_SCALE_INPUT = 12  # of GroupQueryAttention; the one for values follows


def write_kv8(bundle: Bundle, peaks: NDArray[np.float32]) -> Bundle:
    """Add the graph to a bundle and save it. `peaks` f32 [layers, key|value, kv_heads, head_dim], largest absolutes.

    SpaceError when it cannot be written.
    """
    text = bundle.text
    assert peaks.shape == (text.layers, 2, text.kv_heads, text.head_dim), peaks.shape
    scales = np.maximum(peaks, np.finfo(np.float32).tiny) * np.float32(HEADROOM / _LARGEST)
    model = onnx.load(str(bundle.file(DECODER_FILE)), load_external_data=False)
    specs = (*decoder_inputs(text, store="int8"), *decoder_outputs(text, store="int8"))
    stored = {spec.name for spec in specs if spec.dtype == "int8"}
    for value in (*model.graph.input, *model.graph.output):
        if value.name in stored:
            value.type.tensor_type.elem_type = TensorProto.INT8
    nodes = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    assert len(nodes) == text.layers, f"{len(nodes)} attentions for {text.layers} layers"
    for node, layer in zip(nodes, scales, strict=True):
        node.input.extend([""] * (_K_SCALE_INPUT - len(node.input)))
        for kind, scale in zip("kv", layer, strict=True):
            name = f"{node.name}.{kind}_scale"
            model.graph.initializer.append(numpy_helper.from_array(scale[None, :, None], name))
            node.input.append(name)
            node.attribute.append(helper.make_attribute(f"{kind}_quant_type", "PER_CHANNEL"))
        node.attribute.append(helper.make_attribute("kv_cache_bit_width", 8))
    target = bundle.path / DECODER_KV8_FILE
    try:
        onnx.save(model, str(target))
    except OSError as error:
        raise SpaceError(f"{target} cannot be written: {error.strerror or error}", hint="make room") from error
    extended = bundle.with_file(DECODER_KV8_FILE)
    extended.save()
    return extended
