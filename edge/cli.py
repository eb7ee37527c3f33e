"""The command line: results on stdout, everything else on stderr, every error one line and an exit code.

Commands import what they need inside themselves, so that `--help` starts no engine.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mineru_edge.models.errors import INTERRUPT, OK, InputError, MineruEdgeError

if TYPE_CHECKING:
    from mineru_edge.models.bundle import KVKind


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="mineru-edge")
def cli() -> None:
    """Read document pages into Markdown and JSON: on the CPU, offline, within a memory limit."""


def _pages(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """--pages is checked before anything is opened, so that a slip is a usage error."""
    from .pagespec import parse_pages

    if value is not None:
        try:
            parse_pages(value)
        except InputError as error:
            raise click.BadParameter(str(error)) from error
    return value


def _formats(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """--format as names."""
    from .formats import parse_formats

    try:
        return None if value is None else parse_formats(value)
    except MineruEdgeError as error:
        raise click.BadParameter(str(error)) from error


def _size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """An amount of memory, in bytes."""
    from .units import parse_bytes

    try:
        return None if value is None else parse_bytes(value)
    except MineruEdgeError as error:
        raise click.BadParameter(str(error)) from error


def _engines(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """--engine is checked before anything is opened."""
    from mineru_edge.runtime.engines import parse_wishes

    try:
        parse_wishes(value)
    except MineruEdgeError as error:
        raise click.BadParameter(str(error)) from error
    return value


# Options that several commands have.
_memory_limit = click.option(
    "--memory-limit", callback=_size, metavar="SIZE", help="What the process may take, such as 2G or 1500M."
)
_threads = click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads; chosen by the machine unless given."
)
_slots = click.option(
    "--slots", type=click.IntRange(min=1), metavar="N", help="Blocks read at once; chosen unless given."
)
_kv = click.option(
    "--kv", type=click.Choice(["fp32", "int8"]), default="fp32", show_default=True, help="Keys and values."
)
_engine = click.option(
    "--engine",
    callback=_engines,
    default="auto",
    show_default=True,
    metavar="NAME",
    help="auto, onnxruntime, openvino or openvino-f32 (no bf16), or as in vision=openvino,decoder=onnxruntime.",
)


@cli.command(short_help="Read PDF files and pictures.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", metavar="DIR", help="Write NAME in each format, and images/, into this directory.")
@click.option(
    "--format",
    "formats",
    callback=_formats,
    metavar="LIST",
    help="Some of md,html,text,content_list,result; md,content_list,result with -o, else md, unless given.",
)
@click.option("--headers-footers", is_flag=True, help="Show them, page numbers and margin notes in md, html and text.")
@click.option(
    "--resume", is_flag=True, help="Go on where a run into the same -o was ended; failed pages are tried again."
)
@click.option("--pages", callback=_pages, metavar="LIST", help="Pages such as 1-3,7 (from 1, both ends included).")
@click.option("--bundle", metavar="DIR", help="The exported model; the small embedded one unless given.")
@_memory_limit
@_threads
@_slots
@_kv
@_engine
@click.option("--password", metavar="TEXT", help="Opens encrypted PDF files.")
@click.option(
    "--text",
    type=click.Choice(["auto", "model", "layer", "ocr"]),
    default="auto",
    show_default=True,
    help="Who reads text: the PDF where it can be trusted, else the model; the model; the PDF alone, without a model; "
    "OCR (extra quick).",
)
@click.option(
    "--layout",
    type=click.Choice(["model", "detector"]),
    default="model",
    show_default=True,
    help="Who finds the blocks of a page: the model, or a small detector (extra quick).",
)
@click.option("--quick", is_flag=True, help="The detector, and OCR for text that the PDF does not give (extra quick).")
@click.option(
    "--page-deadline",
    "page_deadline_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Ends a page after so long with what it has; what it lacks counts as failed.",
)
@click.option("--overlay", metavar="DIR", help="Write each page as NAME_page_N.png with its blocks drawn in.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per document on stdout, in place of Markdown.")
@click.option("-v", "--verbose", is_flag=True, help="Print the memory plan first.")
def parse(**options: Any) -> int:
    """Read PDF files and pictures; Markdown goes to stdout unless another --format, -o or --json is given.

    FILE may be a folder: all PDF files and pictures in it and in the folders below it, by name, hidden ones left out;
    -o has the same folders then. `-` is stdin. With several files a bad one does not stop the others. The exit code is
    10 when pages or files failed, 130 after Ctrl-C, which keeps all pages read so far.
    """
    from .cli_parse import parse_files

    return parse_files(**options)


@cli.command(short_help="Show what a bundle holds.")
@click.argument("bundle", required=False)
@_engine
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON object.")
@click.option("--check", is_flag=True, help="Read every file and compare its sha256.")
def info(bundle: str | None, engine: str, as_json: bool, check: bool) -> None:
    """Show shapes, precision, engines and file sizes of BUNDLE, the embedded one unless given."""
    from .cli_info import show

    show(bundle, engine=engine, as_json=as_json, check=check)


@cli.command(short_help="Get a bundle ready for this processor, once.")
@click.argument("bundle", required=False)
@_kv
@_engine
def prepare(bundle: str | None, kv: KVKind, engine: str) -> None:
    """Write BUNDLE's graphs as their engines want them on this processor, into BUNDLE/prepared.

    For ONNX Runtime that is the weights in its own layout, mapped from then on: the decoder's are no longer packed on
    the heap at every start, half a gigabyte less private memory at MinerU2.5's size, and vision's no longer at every
    picture, a sixth of a small one's time. Takes twice the weights on disk. For OpenVINO it is vision as compiled, a
    few megabytes, which saves seconds at every start. Answers stay the same. Run it again after an engine was updated.
    """
    from .cli_info import prepare_here

    prepare_here(bundle, kv, engine)


@cli.command(short_help="Measure speed and memory on this machine.")
@click.argument("bundle", required=False)
@click.option(
    "--only",
    "kinds",
    multiple=True,
    type=click.Choice(["vision", "prefill", "request", "decode", "page"]),
    help="This kind of work alone; may be given several times.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs per case; medians.")
@click.option("--vs", "versus", metavar="FILE", help="Print ratios to an earlier run, whose output is in FILE.")
@click.option(
    "--soak", "soak_requests", type=click.IntRange(min=8), metavar="N", help="Does memory grow over N requests?"
)
@_memory_limit
@_threads
@_slots
@_kv
@_engine
def bench(bundle: str | None, kinds: tuple[str, ...], **options: Any) -> int:
    """Measure BUNDLE, the embedded one unless given: pictures of four sizes, decoding with 1 to 8 slots, a whole page.

    Prints a table, then one line of JSON. Lengths are forced, so that random weights serve too.
    """
    from .bench import KINDS
    from .cli_bench import run

    return run(bundle, kinds=kinds or KINDS, **options)


@cli.command(short_help="Turn a checkpoint into a bundle (build machine).")
@click.argument("checkpoint")
@click.argument("bundle")
@click.option(
    "--precision",
    type=click.Choice(["int8", "fp32"]),
    default="int8",
    show_default=True,
    help="How weights are stored; fp32 is for comparisons.",
)
@click.option(
    "--decoder",
    type=click.Choice(["int8", "w8a8", "int4"]),
    default="int8",
    show_default=True,
    help="How an int8 bundle stores its decoder: in blocks; with 8-bit activations too, faster; in 4 bits, smaller.",
)
@click.option(
    "--format",
    "formats",
    type=click.Choice(["onnx", "openvino", "both"]),
    default="onnx",
    show_default=True,
    help="For which engine: ONNX Runtime, OpenVINO, or a choice on the device.",
)
@click.option(
    "--kv",
    type=click.Choice(["fp32", "int8"]),
    default="fp32",
    show_default=True,
    help="int8 adds a decoder that keeps keys and values in a quarter of the memory.",
)
@click.option(
    "--calibrate",
    multiple=True,
    metavar="FILE",
    help="Pages, PDF or pictures: matrices that lose too much on them stay in more bits. May be given several times.",
)
def export(checkpoint: str, bundle: str, **options: Any) -> None:
    """Turn CHECKPOINT, a Hugging Face directory, into BUNDLE, a directory that runs without torch.

    With --calibrate it is compared with the checkpoint as `verify` does, and the matrices that lose most are promoted
    until the thresholds hold: a few pages of the kind to be read are enough. Exit code 7 when they cannot be held.
    Needs the build machine's packages: pip install 'mineru-edge[export]'.
    """
    from .cli_build import export_bundle

    export_bundle(checkpoint, bundle, **options)


@cli.command(short_help="Compare a bundle with its checkpoint (build machine).")
@click.argument("checkpoint")
@click.argument("bundle")
@click.argument("pages", nargs=-1, metavar="[PAGE]...")
@_engine
def verify(checkpoint: str, bundle: str, pages: tuple[str, ...], engine: str) -> None:
    """Compare BUNDLE with CHECKPOINT run by transformers, on pages of yours (PDF or pictures) or on built-in ones.

    Where the bundle and the machine have both engines, the other one answers too, and how far the two agree is shown.
    Writes parity.json into the bundle. Exit code 7 when a threshold is missed.
    """
    from .cli_build import verify_bundle

    verify_bundle(checkpoint, bundle, pages, engine)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # pages hold any language, whatever the locale says
    try:
        code = cli.main(args=arguments, prog_name="mineru-edge", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except MineruEdgeError as error:
        return report(error)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPT
    except BrokenPipeError:
        # The reader of our stdout has gone, as `head` does; without this, Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return MineruEdgeError.exit_code
    except OSError as error:  # such as a full disk behind stdout
        return report(MineruEdgeError(str(error)))


def report(error: MineruEdgeError) -> int:
    """One line on stderr; the error's exit code."""
    click.echo(f"error: {' '.join(str(error).split())}", err=True)
    return error.exit_code
