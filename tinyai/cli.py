"""The commands of ``tinyai``, which is ``python -m tinyai`` too.

What a command needs is imported when it runs, so that help is there at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

import click

from tinyai._version import __version__
from tinyai.errors import BoundaryError, EnvironmentProblem, TinyAIError
from tinyai.target import Target, split_target

if TYPE_CHECKING:
    from rich.console import Console

    from tinyai import doctor as doctor_
    from tinyai.report import Report
    from tinyai.runtime.layers import LayerTime
    from tinyai.runtime.tuner import Measured

P = ParamSpec("P")
R = TypeVar("R")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="tinyai %(version)s")
def main() -> None:
    """Turn int8 networks of Apache TVM into readable C."""


def _with_messages(command: Callable[P, R]) -> Callable[P, R]:
    """What is foreseen to fail ends with a message and the exit code 2, without a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except TinyAIError as error:
            _fail(error)
        except OSError as error:
            if error.errno == errno.EPIPE:  # who reads our output has enough of it: click's to end
                raise
            _fail(_of_the_system(error))

    return run


def _fail(error: TinyAIError) -> NoReturn:
    click.echo(f"error: {error}", err=True)
    sys.exit(2)


def _of_the_system(error: OSError) -> TinyAIError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return EnvironmentProblem(
        "a file cannot be written" if full else "the system refuses",
        found=error,
        allowed="room for the C, objects and the library" if full else "a file that can be used",
        hint="free some space, or set TMPDIR to a folder that has it"
        if full
        else "permissions and free space; TMPDIR names the folder for what is in between",
    )


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
@click.pass_context
@_with_messages
def doctor(context: click.Context, as_json: bool) -> None:
    """Tell what the environment offers, and what to do about what is missing.

    The exit code is 0 where there is a TVM with Relay and a C compiler, else 1.
    """
    from tinyai import doctor as doctor_

    findings = doctor_.examine()
    advice = doctor_.advise(findings)
    if as_json:
        facts = dataclasses.asdict(findings) | {"advice": [dataclasses.asdict(a) for a in advice]}
        click.echo(json.dumps(facts, indent=2))
    else:
        _print_findings(findings, advice)
    context.exit(int(any(item.level == "error" for item in advice)))


@main.command()
@click.argument("file", type=click.Path())
@click.option(
    "--target", default="tinyai", show_default=True, help="Options: 'tinyai -isa=..., llvm'."
)
@click.option("--input-shapes", default="", help="As tvmc's: 'data:[1,3,32,32] other:[1,8]'.")
@click.option("--format", "style", type=click.Choice(["table", "json", "text"]), default="table")
@click.option("--strict", is_flag=True, help="Exit code 1 where an operator computes on the host.")
@click.pass_context
@_with_messages
def explain(
    context: click.Context, file: str, target: str, input_shapes: str, style: str, strict: bool
) -> None:
    """Tell which operators of FILE (.onnx, .tflite) stay on the host, why, and what to change.

    The exit code is 0 where the report is printed; 1 where a region is above arena_limit or
    weight_limit, and under --strict where an operator that computes stays on the host; 2 where FILE
    or an option is bad, or there is no TVM with Relay.
    """
    try:
        report = _explain(file, target, input_shapes)
    except BoundaryError as error:  # the target string has -strict=1
        report, strict = error.report, True
    if style == "table":
        from rich.console import Console

        Console(highlight=False).print(report.table())
    else:
        click.echo(report.json() if style == "json" else str(report))
    context.exit(int(bool(report.exceeding or (strict and report.computing))))


@main.command()
@click.argument("file", type=click.Path())
@click.option(
    "--target", default="tinyai", show_default=True, help="Options: 'tinyai -isa=..., llvm'."
)
@click.option("--input-shapes", default="", help="As tvmc's: 'data:[1,3,32,32] other:[1,8]'.")
@click.option("--runs", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--layers", is_flag=True, help="One row a layer, under the source model's names.")
@click.option("--json", "as_json", is_flag=True, help="Print every layer as JSON.")
@click.pass_context
@_with_messages
def bench(
    context: click.Context,
    file: str,
    target: str,
    input_shapes: str,
    runs: int,
    layers: bool,
    as_json: bool,
) -> None:
    """Time the regions of FILE (.onnx, .tflite) on random input, by a clock behind every layer.

    Times are medians of all runs. The exit code is 2 where FILE or an option is bad, or there is no
    TVM with Relay.
    """
    times = _bench(file, target, input_shapes, runs)
    if as_json:
        rows = {name: [dataclasses.asdict(each) for each in row] for name, row in times.items()}
        click.echo(json.dumps(rows, indent=2))
        return
    from tinyai.runtime.layers import times_table
    from tinyai.runtime.peak import vnni_peak

    peak, _ = vnni_peak(Target.from_options(split_target(target)[0]).threads)
    for name, row in times.items():
        _wide_console().print(times_table(name, row, layers=layers, peak=peak))


@main.command()
@click.argument("file", type=click.Path())
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--target", default="tinyai", show_default=True, help="Options: 'tinyai -threads=2, llvm'."
)
@click.option("--input-shapes", default="", help="As tvmc's: 'data:[1,3,32,32] other:[1,8]'.")
@click.option(
    "--seconds",
    default=0.5,
    show_default=True,
    type=click.FloatRange(min=0),
    help="How long a layer runs.",
)
@click.pass_context
@_with_messages
def tune(
    context: click.Context,
    file: str,
    output: Path,
    target: str,
    input_shapes: str,
    seconds: float,
) -> None:
    """Measure on this machine how the layers of FILE (.onnx, .tflite) are best cut up.

    The schedules go to a JSON file for the target's option -tuning=, after each layer; layers that
    stand in it already are not measured again, so that a run that was stopped goes on. The exit
    code is 2 where a file or an option is bad, or there is no TVM with Relay.
    """
    measured = _tune(file, output, target, input_shapes, seconds)
    if measured:
        from tinyai.runtime.tuner import tuning_table

        _wide_console().print(tuning_table(measured))
    else:
        click.echo(f"{output} has every layer that leaves a choice")


def _tune(
    file: str, output: Path, target: str, input_shapes: str, seconds: float
) -> tuple[Measured, ...]:
    with _relay_for("tune"):
        from tinyai.frontends.relay.bench import region_graphs
        from tinyai.frontends.relay.load import load_model
    from rich.progress import MofNCompleteColumn, Progress

    from tinyai.runtime.tuner import tune_layers

    options, _ = split_target(target)
    mod, params = load_model(file, input_shapes)
    found = region_graphs(mod, params, options)
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn()) as progress:
        return tune_layers(found.values(), output, seconds=seconds, track=progress.track)


def _bench(
    file: str, target: str, input_shapes: str, runs: int
) -> dict[str, tuple[LayerTime, ...]]:
    with _relay_for("bench"):
        from tinyai.frontends.relay.bench import bench_layers
        from tinyai.frontends.relay.load import load_model
    options, _ = split_target(target)
    mod, params = load_model(file, input_shapes)
    return bench_layers(mod, params, options, runs=runs)


def _wide_console() -> Console:
    """A file or a pipe has room for a row a layer."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 180
    return console


def _explain(file: str, target: str, input_shapes: str) -> Report:
    with _relay_for("explain"):
        from tinyai.frontends.relay.explain import explain
        from tinyai.frontends.relay.load import load_model
    options, _ = split_target(target)
    mod, params = load_model(file, input_shapes)
    return explain(mod, params, **options)


@contextlib.contextmanager
def _relay_for(command: str) -> Iterator[None]:
    """Imports within need a TVM with Relay: without one the error says so."""
    try:
        yield
    except Exception as error:  # a broken TVM raises what it likes
        raise EnvironmentProblem(
            f"{command} needs a TVM with Relay",
            found=" ".join(str(error).splitlines()[:1]) or type(error).__name__,
            allowed="a TVM with Relay, such as 0.17",
            hint="python -m tinyai doctor",
        ) from None


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
@_with_messages
def tvmc(context: click.Context, arguments: tuple[str, ...]) -> None:
    """TVM's own command line, with tinyai among its targets.

    python -m tinyai tvmc compile --target "tinyai -isa=scalar, llvm" model.tflite
    """
    with _relay_for("tvmc"):
        from tinyai.frontends.relay.tvmc import run_tvmc
    context.exit(run_tvmc(arguments))


@main.command("install-tvm")
@click.option("--python", default=sys.executable, help="Of which environment.  [default: this one]")
@click.option("--no-deps", is_flag=True, help="Without the packages that TVM needs.")
@_with_messages
def install_tvm(python: str, no_deps: bool) -> None:
    """Bring a TVM with Relay into an environment (Linux on x86-64).

    Apache TVM's own packages have none any more. This takes a complete TVM 0.17, pinned by its
    sha256, out of another package, and installs it as apache-tvm. It downloads 82 MB once.
    """
    from tinyai.install_tvm import install_tvm

    install_tvm(python, dependencies=not no_deps)


def _print_findings(findings: doctor_.Findings, advice: tuple[doctor_.Advice, ...]) -> None:
    from rich.console import Console
    from rich.text import Text

    # Lines are not wrapped: a path that is cut in two cannot be copied.
    console = Console(soft_wrap=True, highlight=False)
    for name, value in _rows(findings):
        console.print(Text(f"{name:<14}", style="bold") + Text(value))
    for item in advice:
        style = {"error": "bold red", "warning": "yellow"}.get(item.level, "dim")
        console.print(Text(f"{item.level}: {item.problem}", style=style))
        console.print(Text(f"  try: {item.hint}"))
    if not advice:
        console.print(Text("All is there.", style="green"))


def _rows(findings: doctor_.Findings) -> list[tuple[str, str]]:
    tvm = findings.tvm
    rows = [
        ("Python", findings.python),
        ("Machine", findings.machine),
        ("TVM", f"{tvm.version or 'broken'} at {tvm.location}" if tvm.location else "none"),
        ("installed as", ", ".join(tvm.distributions) or "no distribution"),
        ("Relay", "yes" if tvm.relay else "no"),
    ]
    rows += [("Package", f"{name}: {version or 'none'}") for name, version in findings.packages]
    for compiler in findings.compilers:
        rows.append(("Compiler", f"{compiler.command}: {compiler.version} at {compiler.path}"))
    return [*rows, ("CPU", ", ".join(findings.isas))]
