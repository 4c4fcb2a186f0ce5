"""``tinyai ops``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from tinyai.cli.shared import command, console, json_option, print_json, relay_for
from tinyai.errors import EnvironmentProblem
from tinyai.frontends.faults import missing

if TYPE_CHECKING:
    from rich.table import Table

_LANGUAGES = ("relay", "tflite", "onnx")


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
    from tinyai.ops import FAMILIES
    from tinyai.patterns import OPERATORS, PATTERNS

    spelled = supported()
    rows = []
    for name in OPERATORS:
        inside = [each for each in PATTERNS if name in operators(each.pattern)]
        family = FAMILIES[name]
        floats = all(each.floats for each in inside) and bool(inside)
        rows.append(
            Support(
                name,
                family,
                tuple(sorted(relay for relay, ours in spelled.items() if ours == name)),
                not floats
                or family in ("layout", "logic")
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
    """A line for each family of Relay's operators."""
    lines = ["| family | of integers | between `qnn.dequantize` and `qnn.quantize` alone |"]
    lines.append("|---|---|---|")
    for family in dict.fromkeys(row.family for row in rows if row.relay):
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


def markdown_of_files(form: str, families: dict[str, list[str]]) -> str:
    """A line for each family of a format's operators."""
    lines = [f"| family | operators of .{form} files |", "|---|---|"]
    for family, names in families.items():
        lines.append(f"| {family} | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines)


def read_of(form: str) -> dict[str, list[str]]:
    """The operators that are read of a format of files, by its own names, by the file of their
    readers. Raises ``EnvironmentProblem`` where the format's package is missing."""
    families: dict[str, list[str]] = {}
    try:
        if form == "tflite":
            from tinyai.frontends.tflite import operators as tflite
            from tinyai.frontends.tflite.variables import KINDS

            families["variables"], families["loops"] = list(KINDS), ["WHILE"]
            rows = {kind: row.read.__module__ for kind, row in tflite.READERS.items()}
        else:
            from tinyai.frontends.onnx import operators as onnx
            from tinyai.frontends.onnx.fused import FUSED
            from tinyai.frontends.onnx.load import SPELLINGS
            from tinyai.frontends.onnx.recurrent import USUAL

            def full(domain: str, name: str) -> str:
                return f"{domain}.{name}".lstrip(".")

            families["by others"] = [*SPELLINGS, *USUAL]
            families["fused"] = [full(*key) for key in FUSED]
            rows = {full(*key): row.read.__module__ for key, row in onnx.READERS.items()}
    except ImportError:
        raise missing(form) from None
    for name, module in rows.items():
        families.setdefault(module.rpartition(".")[2], []).append(name)
    return {family: sorted(names) for family, names in sorted(families.items())}


def _found(languages: tuple[str, ...]) -> dict[str, Any]:
    """The rows of the languages that are there. Raises ``EnvironmentProblem`` where none is."""
    found: dict[str, Any] = {}
    for language in languages:
        try:
            found[language] = support() if language == "relay" else read_of(language)
        except EnvironmentProblem as error:
            problem = error
    if not found:
        raise problem
    return found


@command(
    "ops",
    "tinyai ops",
    "tinyai ops --json",
    "tinyai ops --of tflite",
    short_help="List the operators that are taken.",
)
@click.option(
    "--of",
    "language",
    type=click.Choice(_LANGUAGES),
    help="Whose names; those of a format of files need no TVM.  [default: all that are there]",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "markdown"]),
    default="table",
    help="How the rows are printed.",
)
@json_option
def ops(language: str | None, style: str, as_json: bool) -> None:
    """List the operators that tinyai takes, from the code's own tables.

    Whether one of a model is taken depends on its types and attributes too: tinyai explain MODEL.
    """
    found = _found((language,) if language else _LANGUAGES)
    if style == "markdown":
        tables = [
            markdown(rows) if name == "relay" else markdown_of_files(name, rows)
            for name, rows in found.items()
        ]
        click.echo("\n\n".join(tables))
        return
    if as_json:
        plain = {
            name: list(map(asdict, rows)) if name == "relay" else sorted(chain(*rows.values()))
            for name, rows in found.items()
        }
        print_json(plain[language] if language else plain)
        return
    for name, rows in found.items():
        console().print(_table_of_relay(rows) if name == "relay" else _table_of_files(name, rows))


def _table_of_relay(rows: tuple[Support, ...]) -> Table:
    from rich.table import Table

    table = Table("family", "operators of Relay", "on", "in patterns")
    for row in rows:
        where = "integers" if row.integers else "between dequantize and quantize"
        table.add_row(row.family, ", ".join(row.relay), where, ", ".join(row.composites))
    return table


def _table_of_files(form: str, families: dict[str, list[str]]) -> Table:
    from rich.table import Table

    table = Table("family", f"operators of .{form} files")
    for family, names in families.items():
        table.add_row(family, ", ".join(names))
    return table
