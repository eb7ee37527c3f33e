"""`mineru-edge parse` in a process where the build machine's libraries cannot be imported and no socket can be made.

Looking at `sys.modules` afterwards would not do: a library that is imported only when it is installed would go
unnoticed here and be missed on the device.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FORBIDDEN = ("torch", "torchvision", "transformers", "optimum", "onnx", "nncf")

BLOCK = f"""
import sys

for name in {FORBIDDEN!r}:
    sys.modules[name] = None  # any import of it, or below it, raises ModuleNotFoundError

def no_network(event, arguments):
    if event.startswith("socket."):
        raise OSError("no network here: " + event)

sys.addaudithook(no_network)
"""
WORDS = set("coffee machine manual minutes bottle water green button start price orange hot".split())
"""Some that stand on the sample page. Other processors round otherwise, so one may be misread there."""
PARSE = """
from mineru_edge.cli import main
sys.exit(main())
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code, *arguments], capture_output=True, text=True, timeout=600)


def test_a_page_becomes_markdown(sample_pdf: Path) -> None:
    run = python(PARSE, "parse", str(sample_pdf))
    assert run.returncode == 0, run.stderr
    found = set(re.findall(r"[a-z]+", run.stdout.lower()))
    assert len(WORDS - found) <= 1, run.stdout


@pytest.mark.parametrize("name", [*FORBIDDEN, "torch.nn", "onnx.helper"])
def test_the_block_blocks_imports(name: str) -> None:
    run = python(f"import {name}")
    assert run.returncode != 0
    assert "ModuleNotFoundError" in run.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import socket; socket.create_connection(('localhost', 9))",
        "import urllib.request; urllib.request.urlopen('http://localhost:9/')",
        "import _socket; _socket.socket()",
    ],
)
def test_the_block_blocks_sockets(code: str) -> None:
    run = python(code)
    assert run.returncode != 0
    assert "no network here: socket." in run.stderr
