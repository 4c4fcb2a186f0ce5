"""``tinyai doctor``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from tinyai.cli.shared import USAGE, command, json_option, print_json

if TYPE_CHECKING:
    from tinyai import doctor as doctor_


@command(
    "doctor", "tinyai doctor", short_help="Tell what the environment offers, and what is missing."
)
@json_option
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Tell what the environment offers, and what to do about what is missing.

    The exit code is 0 where model files can be compiled and a TVM, if there is one, works; else 2.
    """
    from tinyai import doctor as doctor_

    findings = doctor_.examine()
    advice = doctor_.advise(findings)
    if as_json:
        print_json(
            dataclasses.asdict(findings) | {"advice": [dataclasses.asdict(a) for a in advice]}
        )
    else:
        _print_findings(findings, advice)
    context.exit(USAGE if any(item.level == "error" for item in advice) else 0)


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
        ("Relay", "yes" if tvm.relay else "no, but Relax" if tvm.relax else "no"),
    ]
    rows += [("Package", f"{name}: {version or 'none'}") for name, version in findings.packages]
    for compiler in findings.compilers:
        rows.append(("Compiler", f"{compiler.command}: {compiler.version} at {compiler.path}"))
    return [*rows, ("CPU", ", ".join(findings.isas))]
