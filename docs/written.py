"""Pages of the site that are written from the code: commands from the command line's own parser,
and the index of errors from where they are raised."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

import tinyai
from tinyai import errors as kinds
from tinyai.cli import main
from tinyai.cli.shared import exit_code

PACKAGE = Path(tinyai.__file__).parent


def cell(text: str) -> str:
    """Text in a cell of a table, in which nothing is markup."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*")


# --- Commands ------------------------------------------------------------------------------------


def commands() -> str:
    """A section for each command: what it does, its options, its examples."""
    help_text = inspect.cleandoc(main.help or "")
    intro = "Written from the commands themselves: `tinyai COMMAND --help` prints the same."
    sections = [_section(name, command) for name, command in sorted(main.commands.items())]
    return "\n\n".join(["# Commands", intro, help_text, *sections]) + "\n"


def _section(name: str, command: click.Command) -> str:
    parts = [f"## tinyai {name}", _help(command)]
    if name == "tvmc":  # whose options are TVM's
        parts.append("Its options are TVM's: `tinyai tvmc compile --help` lists them.")
    else:
        parts.append(_options(name, command))
    examples = getattr(command, "examples", ())
    parts.append("\n".join(["```sh", *examples, "```"]))
    return "\n\n".join(parts)


def _help(command: click.Command) -> str:
    """The text of a command; a block that click does not wrap stays as it is."""
    blocks = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        f"```\n{block[2:]}\n```" if block.startswith("\b\n") else _plain(block) for block in blocks
    )


def _plain(text: str) -> str:
    """Text of a command's help, in which flags are code."""
    return re.sub(
        r"(?<![\w`-])--?[a-z][\w-]*", r"`\g<0>`", text.replace("<", "&lt;").replace("*", r"\*")
    )


def _options(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"tinyai {name}")
    rows = ["| option | meaning |", "|---|---|"]
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record and (record[1] or isinstance(parameter, click.Option)):
            rows.append(f"| `{record[0].replace('|', '/')}` | {cell(record[1])} |")
    usage = command.get_usage(context).removeprefix("Usage: ")
    return f"```\n{' '.join(usage.split())}\n```\n\n" + "\n".join(rows)


# --- Errors --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raised:
    """A message as the source has it: ``…`` stands for what is known when it is raised."""

    kind: str
    what: str
    allowed: str
    hint: str


def errors() -> str:
    """The kinds of errors, and each message that the source raises."""
    classes = [
        kind
        for _, kind in inspect.getmembers(kinds, inspect.isclass)
        if issubclass(kind, (kinds.TinyAIError, Warning)) and kind.__module__ == kinds.__name__
    ]
    rows = ["| kind | what it is | exit code |", "|---|---|---|"]
    rows += [f"| `{kind.__name__}` | {cell(_first(kind))} | {_code(kind)} |" for kind in classes]
    index = ["| message | kind | allowed | try |", "|---|---|---|---|"]
    for row in sorted(set(messages()), key=lambda row: row.what.lower()):
        cells = " | ".join(map(cell, (row.what, row.kind, row.allowed, row.hint)))
        index.append(f"| {cells} |")
    return "\n".join(
        (
            "# Error index",
            "",
            "Every error says what was **found**, what is **allowed** and what to **try**.",
            "In Python it is an exception with these three as attributes.",
            "A command prints it and ends with the code of its kind.",
            "",
            "## Kinds",
            "",
            *rows,
            "",
            "## Messages",
            "",
            "Written from the source. `…` is what is known only when the error is raised.",
            "",
            *index,
            "",
        )
    )


def _first(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0]


def _code(kind: type) -> str:
    if issubclass(kind, Warning):
        return "a warning"
    return str(exit_code(kind.__new__(kind)))


def messages() -> Iterator[Raised]:
    """Each error of the package that is made with a text."""
    names = {name for name in dir(kinds) if name.endswith(("Error", "Problem"))}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            what = _text(node.args[0])
            if node.func.id in names and re.search(r"\w{3}", what.replace("…", "")):
                known = {each.arg: _text(each.value) for each in node.keywords}
                allowed, hint = known.get("allowed", ""), known.get("hint", "")
                yield Raised(node.func.id, what, allowed, hint)


def _text(node: ast.expr) -> str:
    """A text of the source; ``…`` for what is computed."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return re.sub("…+", "…", "".join(map(_text, parts)))
        case ast.Constant(value=None):
            return ""
    return "…"
