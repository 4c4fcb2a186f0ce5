"""``tinyai check``."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tinyai.cli.shared import (
    MODEL,
    RequestedTarget,
    backend_option,
    command,
    file_options,
    html_option,
    json_option,
    target_options,
)
from tinyai.files import check_place
from tinyai.stages import OWN_IMPORTS, stage

if TYPE_CHECKING:
    from tinyai.model_file import FileOptions
    from tinyai.report.page import Page
    from tinyai.target import Target


@command(
    "check",
    "tinyai check model.tflite",
    "tinyai check model.onnx --against tvm --samples 100",
    "tinyai check model.tflite --with net.so",
    "tinyai check model.tflite --input images.npz --json",
    "tinyai check model.tflite --html check.html",
    short_help="Compare a model's integers with its framework's.",
)
@click.argument("file", type=click.Path())
@click.option(
    "--against",
    type=click.Choice(["tvm", "litert", "onnxruntime", "relax"]),
    help="With whom to compare.  [default: FILE's own framework]",
)
@click.option(
    "--with",
    "built",
    type=click.Path(path_type=Path),
    help="Code that is compared instead: a library (.so), or a C package (a folder or .tar).",
)
@click.option("--samples", default=10, show_default=True, help="Random inputs.", type=int)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Further inputs: .npz by the names of FILE's inputs, or .npy of its only one.",
)
@target_options
@file_options
@backend_option
@json_option
@html_option
@click.pass_context
def check(
    context: click.Context,
    file: str,
    against: str | None,
    built: Path | None,
    samples: int,
    inputs: tuple[Path, ...],
    asked: RequestedTarget,
    reading: FileOptions,
    backend: str,
    as_json: bool,
    html: Path | None,
) -> None:
    """Compare the integers of FILE's code with those of another program, bit for bit.

    The code is made anew, or is what --with names, of "tinyai compile". Where they differ, the
    first layer that does is shown under FILE's own name, with both values and the arithmetic of one
    element. LiteRT runs its reference kernels; relax is FILE in TVM's Relax VM, with tinyai's
    regions and TVM's floats where there are none. The program that is compared with sets the
    rounding.

    The exit code is 0 where all values are equal, 1 where one is not or FILE cannot be compiled, 2
    where an option is bad or the program is not installed.
    """
    with stage(OWN_IMPORTS):
        from tinyai.checking import check as checking

    if html:
        check_place(html)
    whose = checking.opponent_of(Path(file), against or "")
    compared = checking.check(
        file,
        checking.target_of(asked.options, whose) if asked.options or not built else None,
        built=built,
        against=whose.name,
        samples=samples,
        inputs=inputs,
        **asdict(reading),
        backend=backend,
    )
    if html:
        target = checking.target_of(asked.options, whose)
        _page(file, target, reading, backend, compared.json()).write(html)
    click.echo(compared.json() if as_json else str(compared))
    context.exit(0 if compared.equal else MODEL)


def _page(file: str, target: Target, reading: FileOptions, backend: str, compared: str) -> Page:
    """The page of what was compared, with the layers of a file that is read without a framework."""
    from tinyai.frontends.files import explain_file, is_read
    from tinyai.own import own_of
    from tinyai.report import Report

    own = own_of(backend)
    report = explain_file(file, target, reading, own) if is_read(file) else Report((), ())
    facts = (("target", str(target)),)
    page = report.page(Path(file).name, "tinyai check", facts)
    return replace(page, comparison=json.loads(compared))
