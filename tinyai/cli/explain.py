"""``tinyai explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tinyai.cli.shared import (
    MODEL,
    RequestedTarget,
    backend_option,
    command,
    console,
    file_options,
    html_option,
    json_option,
    next_steps,
    relay_for,
    require_no_backend,
    target_options,
    tell_rounding,
)
from tinyai.errors import BoundaryError
from tinyai.files import check_place
from tinyai.model_file import IMPORTED
from tinyai.stages import stage

if TYPE_CHECKING:
    from tinyai.model_file import FileOptions
    from tinyai.report import Report


@command(
    "explain",
    "tinyai explain model.tflite",
    "tinyai explain model.tflite --html model.html",
    "tinyai explain model.onnx --strict --json",
    short_help="Say which operators stay on the host, and why.",
)
@click.argument("file", type=click.Path())
@target_options
@file_options
@backend_option
@json_option
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "text"]),
    default="table",
    help="How the report is printed.",
)
@click.option("--strict", is_flag=True, help="Exit code 1 where an operator computes on the host.")
@html_option
@click.pass_context
def explain(
    context: click.Context,
    file: str,
    asked: RequestedTarget,
    reading: FileOptions,
    backend: str,
    as_json: bool,
    style: str,
    strict: bool,
    html: Path | None,
) -> None:
    """Tell which operators of FILE stay on the host, why, and what to change.

    FILE is .onnx, .tflite, or Relay's text (.relay, .txt). The exit code is 0 where the report is
    printed; 1 where FILE cannot be read or a region is above arena_limit or weight_limit, and under
    --strict where an operator that computes stays on the host; 2 where an option is bad, or there
    is no TVM with Relay.
    """
    asked = asked.for_model(file)
    if html:
        check_place(html)
    try:
        report = _report(file, asked, reading, backend)
    except BoundaryError as error:  # the target string has -strict=1
        report, strict = error.report, True
    if html:
        facts = (("rounding", asked.options["rounding"]),)
        report.page(Path(file).name, "tinyai explain", facts).write(html)
    tell_rounding(file, asked, aside=as_json or style == "json")
    if style == "table" and not as_json:
        console().print(report.table())
        unread = [row for row in report.host if row.reason.clause == "operator"]
        path, others = Path(file), report.regions or len(unread) < len(report.host)
        if unread and others and path.suffix.lower() in IMPORTED:
            next_steps(("tinyai", "cut", file, "-o", f"{path.stem}_part{path.suffix}"))
    else:
        click.echo(str(report) if style == "text" and not as_json else report.json())
    context.exit(MODEL if report.exceeding or (strict and report.computing) else 0)


def _report(file: str, asked: RequestedTarget, reading: FileOptions, backend: str) -> Report:
    if asked.is_of_target:
        from tinyai.frontends.files import explain_file, is_read
        from tinyai.own import own_of

        if is_read(file):
            return explain_file(file, asked.target, reading, own_of(backend))
    require_no_backend(backend, file)
    with relay_for("explain"):
        from tinyai.frontends.relay.explain import explain
        from tinyai.frontends.relay.load import load_model
    mod, params = load_model(file, reading.shapes_for_tvm())
    with stage("regions and their C"):
        return explain(mod, params, **asked.options)
