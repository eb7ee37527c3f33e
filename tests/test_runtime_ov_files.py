"""OpenVINO graphs that can be read and are not what the exporter writes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tiny_checkpoint import write_checkpoint

from mineru_edge.export.exporter import export
from mineru_edge.models.bundle import OV_DECODER_FILE, OV_VISION_FILE, Bundle
from mineru_edge.models.errors import EngineError
from mineru_edge.runtime.engine import Engine


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("openvino")
    return export(write_checkpoint(folder / "checkpoint"), folder / "bundle", format="openvino")


@pytest.mark.parametrize(
    ("file", "pattern", "instead", "message"),
    [
        (OV_DECODER_FILE, "activation_block", "activation_blick", "runtime attribute"),
        (OV_DECODER_FILE, '<activation_block value="32"', '<activation_block value="xx"', "xx"),
        (OV_DECODER_FILE, r"layers\.0\.self_attn\.mixed", "layers.0.self_attn.other", r"layers\.0\.self_attn\.mixed"),
        (OV_DECODER_FILE, r'offset="\d(?=\d{5}")', 'offset="9', "cannot open"),
        (OV_VISION_FILE, "patches", "patchez", "patches"),
    ],
)
def test_what_is_wrong_is_said(
    bundle: Bundle, tmp_path: Path, file: str, pattern: str, instead: str, message: str
) -> None:
    shutil.copytree(bundle.path, tmp_path / "copy")
    text = (tmp_path / "copy" / file).read_text()
    changed = re.sub(pattern, instead, text)
    assert changed != text
    (tmp_path / "copy" / file).write_text(changed)
    with pytest.raises(EngineError, match=message):
        Engine.open(Bundle.load(tmp_path / "copy"), slots=1, threads=1)
