"""A wheel built from a clean copy holds every file of the four folders, and works on its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FOLDERS = {"edge": "mineru_edge", **{name: f"mineru_edge/{name}" for name in ("models", "runtime", "export")}}


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy") / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, copy)
    for name in FOLDERS:
        shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    out = copy.parent / "wheels"
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(copy)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (built,) = out.iterdir()
    return built


def test_every_source_file_is_in_the_wheel_and_nothing_else(root: Path, wheel: Path) -> None:
    expected = {
        f"{package}/{path.relative_to(root / folder).as_posix()}"
        for folder, package in FOLDERS.items()
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert sorted(names) == sorted(expected)


def test_the_licence_travels(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())


def test_the_unpacked_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "from mineru_edge.models import bundle; print(bundle.__file__);"
        "bundle.Bundle.load(bundle.embedded()).verify();"
        "import sys; sys.argv = ['mineru-edge', '--help'];"
        "from mineru_edge.cli import main; sys.exit(main())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    where, *text = run.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert any("parse" in line for line in text)
