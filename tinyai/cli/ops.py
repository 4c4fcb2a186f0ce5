"""``tinyai ops``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import click

from tinyai.cli.shared import command, console, json_option, print_json, relay_for
from tinyai.frontends.faults import missing


@dataclass(frozen=True)
class Support:
    """An operator that tinyai takes. ``family`` is its file in ``tinyai/ops``; ``relay`` are
    Relay's names of it; ``integers`` whether it is taken on integers, else between a dequantize and
    a quantize alone; ``composites`` the patterns that have it."""

    operator: str
    family: str
    relay: tuple[str, ...]
    integers: bool
    composites: tuple[str, ...]


def support() -> tuple[Support, ...]:
    """A row for each operator of the code's own table, by family and name."""
    with relay_for("ops"):
        from tinyai.frontends.relay.spelling import supported
    from tinyai.match import operators
    from tinyai.patterns import OPERATORS, PATTERNS

    spelled = supported()
    rows = []
    for name, row in OPERATORS.items():
        inside = [each for each in PATTERNS if name in operators(each.pattern)]
        family = row.lower.__module__.rpartition(".")[2]
        floats = all(each.floats for each in inside) and bool(inside)
        rows.append(
            Support(
                name,
                family,
                tuple(sorted(relay for relay, ours in spelled.items() if ours == name)),
                not floats
                or family == "layout"
                or name in ("quantize", "dequantize")
                or _takes_integers(name),
                tuple(each.name for each in inside),
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.family, row.operator)))


def _takes_integers(name: str) -> bool:
    """Whether the operator alone is taken on two tensors of integers, asked of its builder."""
    from tinyai.lowering import refusal_of_operator
    from tinyai.source import Expr, SourceType
    from tinyai.vocabulary import call, signature

    of, known = SourceType((2, 3), "int8"), signature(name)
    assert known is not None
    args = [Expr((of,)) for _ in known.operands]
    attributes: dict[str, Any] = dict.fromkeys(known.attributes, 1)
    made = call(name, of, *args, **attributes)
    return refusal_of_operator(made) is None


def markdown(rows: tuple[Support, ...]) -> str:
    """The table of the README: a line for each family."""
    lines = ["| family | of integers | between `qnn.dequantize` and `qnn.quantize` alone |"]
    lines.append("|---|---|---|")
    for family in dict.fromkeys(row.family for row in rows):
        cells = [
            ", ".join(
                f"`{name}`"
                for row in rows
                if row.family == family and row.integers == integers
                for name in row.relay
            )
            for integers in (True, False)
        ]
        lines.append(f"| {family} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def read_of(form: str) -> list[str]:
    """The operators that are read of a format of files, by its own names. Raises
    ``EnvironmentProblem`` where the format's package is missing."""
    try:
        if form == "tflite":
            from tinyai.frontends.tflite import operators as tflite
            from tinyai.frontends.tflite.variables import KINDS

            return sorted([*tflite.READERS, *KINDS])
        from tinyai.frontends.onnx import operators as onnx
    except ImportError:
        raise missing(form) from None
    return sorted(f"{domain}.{name}".lstrip(".") for domain, name in onnx.READERS)


@command("ops", "tinyai ops", "tinyai ops --json", "tinyai ops --of tflite")
@click.option(
    "--of",
    "language",
    type=click.Choice(["relay", "tflite", "onnx"]),
    default="relay",
    show_default=True,
    help="Whose names; those of a format of files need no TVM.",
)
@click.option("--format", "style", type=click.Choice(["table", "markdown"]), default="table")
@json_option
def ops(language: str, style: str, as_json: bool) -> None:
    """List the operators that tinyai takes, from the code's own tables.

    Whether one of a model is taken depends on its types and attributes too: tinyai explain MODEL.
    """
    if language != "relay":
        names = read_of(language)
        if as_json:
            print_json(names)
        else:
            click.echo("\n".join(names))
        return
    rows = support()
    if as_json:
        print_json([asdict(row) for row in rows])
    elif style == "markdown":
        click.echo(markdown(rows))
    else:
        from rich.table import Table

        table = Table("family", "operator", "on", "in patterns")
        for row in rows:
            where = "integers" if row.integers else "between dequantize and quantize"
            table.add_row(row.family, ", ".join(row.relay), where, ", ".join(row.composites))
        console().print(table)
