"""Whose integers are computed is an ``Arithmetic``'s to say: nobody else asks for a framework."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinyai

ROOT = Path(tinyai.__file__).parent
FRAMEWORKS = {"tflite", "onnx", "torch"}
CLASSES = {"TvmArithmetic", "TfliteArithmetic", "OnnxArithmetic", "TorchArithmetic"}
# Where no framework is asked for: by folder or file.
CORE = ("ops/*.py", "qdq/*.py", "lowering.py", "passes/*.py", "codegen/**/*.py")


def questions(source: str) -> Iterator[tuple[int, str]]:
    """Lines that have a framework's name as a text of its own, its class, or a rounding's mode."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if text in FRAMEWORKS:
                yield node.lineno, repr(text)
            case ast.Name(id=name) if name in CLASSES:
                yield node.lineno, name
            case ast.Attribute(value=ast.Name(id="rounding") | ast.Attribute(attr="rounding")):
                yield node.lineno, f"rounding.{node.attr}"
            case ast.ImportFrom(module=str(module)) if module.startswith("tinyai.arithmetic."):
                yield node.lineno, module


def test_the_core_asks_for_no_framework() -> None:
    files = [path for pattern in CORE for path in sorted(ROOT.glob(pattern))]
    assert len(files) > 60
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in files
        for line, what in questions(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'lowering.rounding.mode == "upward"',
        'mode in ("onnx",)',
        "isinstance(how, TfliteArithmetic)",
        "from tinyai.arithmetic.tvm import MODES",
        'named = {"torch": 1}',
    ],
)
def test_a_question_is_found_however_it_is_put(line: str) -> None:
    assert list(questions(line))
