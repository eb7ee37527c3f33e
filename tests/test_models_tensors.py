"""The graph contract, checked against the numbers of the small shapes."""

from __future__ import annotations

from bundles import TEXT, VISION

from mineru_edge.models.tensors import decoder_inputs, decoder_outputs, vision_inputs, vision_outputs


def test_vision_takes_patches_and_rotary_and_gives_embeds() -> None:
    assert [(spec.name, spec.axes) for spec in vision_inputs(VISION)] == [
        ("patches", ("patches", 588)),
        ("cos", ("patches", 8)),
        ("sin", ("patches", 8)),
    ]
    assert [(spec.name, spec.axes) for spec in vision_outputs(VISION)] == [("embeds", ("tokens", 32))]


def test_what_leaves_vision_fits_the_decoder() -> None:
    assert vision_outputs(VISION)[0].axes[-1] == decoder_inputs(TEXT)[0].axes[-1]


def test_every_past_has_a_present_of_the_same_shape() -> None:
    past = {spec.name: spec for spec in decoder_inputs(TEXT) if spec.name.startswith("past_")}
    present = {spec.name: spec for spec in decoder_outputs(TEXT) if spec.name.startswith("present_")}
    assert len(past) == 2 * TEXT.layers
    for name, spec in past.items():
        twin = present[name.replace("past_", "present_")]
        assert (twin.axes, twin.dtype) == (spec.axes, spec.dtype) == (("batch", 2, "capacity", 16), "float32")


def test_lengths_are_int32_and_the_total_is_a_scalar() -> None:
    specs = {spec.name: spec for spec in decoder_inputs(TEXT)}
    assert (specs["seqlens_k"].axes, specs["seqlens_k"].dtype) == (("batch",), "int32")
    assert (specs["total_sequence_length"].axes, specs["total_sequence_length"].dtype) == ((), "int32")


def test_logits_are_those_of_the_last_position() -> None:
    assert decoder_outputs(TEXT)[0].axes == ("batch", 1, 40)
