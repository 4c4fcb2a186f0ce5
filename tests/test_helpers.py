"""Short private functions that are called once: few, for what explains nothing stands where it is
used."""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tinyai

ROOT = Path(tinyai.__file__).parent
LINES, MOST = 6, 60


def called_once(text: str) -> Iterator[str]:
    """Names of the private functions of a module, of at most ``LINES`` lines, that the module calls
    once and does not name elsewhere. A decorated one is in use otherwise."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    named = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    called = {node.id for node in calls if isinstance(node, ast.Name)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.end_lineno and not node.decorator_list:
            short = node.end_lineno - node.lineno < LINES
            once = named[node.name] == 1 and node.name in called
            if node.name.startswith("_") and short and once:
                yield node.name


def test_few_short_functions_are_called_once() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in ROOT.rglob("*.py")
        for name in called_once(path.read_text())
    }
    assert len(found) <= MOST, "\n".join(sorted(found))


def test_such_functions_are_found() -> None:
    module = """
    def _once(): ...

    def _twice(): ...

    @cached
    def _kept(): ...

    def _row(): ...

    def public(): ...

    def _long():
        a = 1
        a = 1
        a = 1
        a = 1
        a = 1
        a = 1

    TABLE = {"row": _row, "calls": (_once(), _twice(), _twice(), _kept(), public(), _long())}
    """
    assert list(called_once(textwrap.dedent(module))) == ["_once"]
