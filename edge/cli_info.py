"""The `info` command: what a bundle holds, without reading its weights unless asked to. And `prepare`, beside it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import click

from mineru_edge.models.bundle import Bundle, KVKind, embedded
from mineru_edge.models.errors import EngineError, megabytes
from mineru_edge.models.sensitivity import MatrixLoss, Sensitivity, read_sensitivity

SHOWN = 3  # matrices of a ranking, beside those that were promoted


def open_bundle(path: str | None) -> Bundle:
    """The bundle at `path`, None for the embedded one. BundleError when it does not load."""
    return Bundle.load(embedded() if path is None else path)


def show(path: str | None, *, engine: str, as_json: bool, check: bool) -> None:
    """Print the bundle at `path`, None for the embedded one. BundleError when it does not load, or fails `check`."""
    bundle = open_bundle(path)
    if check:
        bundle.verify()
    if as_json:
        click.echo(json.dumps({**facts(bundle), "here": dict(_chosen(bundle, engine))}, ensure_ascii=False))
        return
    vision, text, size = bundle.vision, bundle.text, bundle.preprocessing.layout_size
    rows = [
        ("bundle", str(bundle.path)),
        ("model", bundle.model_name),
        ("source", bundle.source),
        ("engines", ", ".join(bundle.engines)),
        *_chosen(bundle, engine),
        ("precision", ", ".join(f"{name} {kind}" for name, kind in dataclasses.asdict(bundle.precision).items())),
        ("vision", f"{vision.depth} blocks, width {vision.width}, {vision.heads} heads, patch {vision.patch} px"),
        ("text", f"{text.layers} layers, width {text.width}, {text.heads} heads, {text.kv_heads} for keys and values"),
        ("vocabulary", f"{text.vocab:,} tokens"),
        ("layout picture", f"{size[0]} x {size[1]} px"),
        ("key-value store", f"{text.kv_bytes_per_token(4):,} bytes per token"),
        ("written by", ", ".join(f"{name} {version}" for name, version in bundle.tools)),
        *((entry.path, f"{entry.bytes:,} bytes") for entry in bundle.files),
        ("all files", megabytes(bundle.total_bytes)),
    ]
    if check:
        rows.append(("sha256", "all files as listed"))
    if (found := read_sensitivity(bundle)) is not None:
        rows += sensitivity_rows(found)
    print_rows(rows)


def sensitivity_rows(found: Sensitivity) -> list[tuple[str, str]]:
    """What calibration found, in short: the promoted matrices and the head of the ranking."""
    what = f"{found.requests} requests of {found.pages} {'page' if found.pages == 1 else 'pages'}"
    promoted = f"{len(found.promoted)} of {len(found.matrices)} matrices promoted"
    listed = [matrix for rank, matrix in enumerate(found.matrices) if rank < SHOWN or matrix.scheme != matrix.first]
    return [("calibrated", f"{what}, {promoted}"), *(("", _matrix_words(matrix)) for matrix in listed)]


def _matrix_words(matrix: MatrixLoss) -> str:
    kept = "" if matrix.scheme == matrix.first else f", kept as {matrix.scheme}"
    return f"{matrix.name}: {matrix.first_error:.2%} off as {matrix.first}{kept}"


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Two columns on stdout."""
    width = max([20, *(len(name) + 2 for name, _ in rows)])
    for name, value in rows:
        click.echo(f"{name:<{width}}{value}")


def _chosen(bundle: Bundle, engine: str) -> list[tuple[str, str]]:
    """What would run each graph on this machine, and why; or why nothing can."""
    from mineru_edge.runtime.engines import choose_engines

    try:
        best = choose_engines(bundle, engine)[0]
    except EngineError as error:
        return [("runs here", f"no: {error}")]
    return [("vision by", best.vision.words), ("decoder by", best.decoder.words)]


def prepare_here(path: str | None, kv: KVKind, engine: str) -> None:
    """Prepare the bundle at `path`, None for the embedded one, for this machine; says where the files lie."""
    from mineru_edge.runtime.graphs import prepare

    bundle = open_bundle(path)
    bundle.check_kv(kv)
    for folder in prepare(bundle, kv, engine):
        size = sum(file.stat().st_size for file in folder.iterdir())
        click.echo(f"{folder}: {megabytes(size)}")


def facts(bundle: Bundle) -> dict[str, Any]:
    """The bundle as JSON values; `sensitivity` is None when it was exported without calibration."""
    values = dataclasses.asdict(bundle)
    found = read_sensitivity(bundle)
    sensitivity = found.to_json() if found is not None else None
    return {**values, "path": str(bundle.path), "total_bytes": bundle.total_bytes, "sensitivity": sensitivity}
