"""The project's files of Python: short enough to be read in one go, and all of them is reached."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinyai

PACKAGE = Path(tinyai.__file__).parent
ROOT = PACKAGE.parent
MOST = 500
ENDS = ast.Return, ast.Raise, ast.Break, ast.Continue


def test_no_file_of_the_package_is_longer_than_the_most() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > MOST} == {}


def unreached(text: str) -> Iterator[int]:
    """The lines of statements behind one that ends their block."""
    for node in ast.walk(ast.parse(text)):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for before, after in itertools.pairwise(block) if isinstance(block, list) else ():
                if isinstance(before, ENDS):
                    yield after.lineno


@pytest.mark.parametrize("folder", ["tinyai", "tests", "benchmarks", "docs"])
def test_every_statement_is_reached(folder: str) -> None:
    """A function whose first line is lost is the end of the one before, and never called."""
    lines = {path: [*unreached(path.read_text())] for path in (ROOT / folder).rglob("*.py")}
    assert lines
    assert {str(path): found for path, found in lines.items() if found} == {}


def test_an_unreached_statement_is_found() -> None:
    text = "def f(x):\n    if x:\n        return 1\n    raise ValueError\n\n    need(x)\n"
    assert [*unreached(text)] == [6]
