"""The commands of ``python -m tinyai``."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.console import Console
from rich.text import Text

from tinyai import doctor as doctor_


@click.group()
def main() -> None:
    """Turn int8 networks of Apache TVM into readable C."""


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Tell what the environment offers, and what to do about what is missing.

    The exit code is 0 where there is a TVM with Relay and a C compiler, else 1.
    """
    findings = doctor_.examine()
    advice = doctor_.advise(findings)
    if as_json:
        facts = dataclasses.asdict(findings) | {"advice": [dataclasses.asdict(a) for a in advice]}
        click.echo(json.dumps(facts, indent=2))
    else:
        _print_findings(findings, advice)
    context.exit(int(any(item.level == "error" for item in advice)))


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def tvmc(context: click.Context, arguments: tuple[str, ...]) -> None:
    """TVM's own command line, with tinyai among its targets.

    python -m tinyai tvmc compile --target "tinyai -isa=scalar, llvm" model.tflite
    """
    from tinyai.frontends.tvmc import run_tvmc

    context.exit(run_tvmc(arguments))


def _print_findings(findings: doctor_.Findings, advice: tuple[doctor_.Advice, ...]) -> None:
    # Lines are not wrapped: a path that is cut in two cannot be copied.
    console = Console(soft_wrap=True, highlight=False)
    for name, value in _rows(findings):
        console.print(Text(f"{name:<14}", style="bold") + Text(value))
    for item in advice:
        style = "bold red" if item.level == "error" else "yellow"
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
    for compiler in findings.compilers:
        rows.append(("Compiler", f"{compiler.command}: {compiler.version} at {compiler.path}"))
    return [*rows, ("CPU", ", ".join(findings.isas))]
