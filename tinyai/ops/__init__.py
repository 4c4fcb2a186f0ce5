"""The operators of ``tinyai.ir``: one file an operator or family, with shape rule, numpy reference,
examples, traits, and the builders that lower a source model's operators to it.

Every file of this folder is found: its operators are in ``OPS``, and its ``OPERATORS``, a row for
each source operator, are in those of all. What is imported by name here is for readers' sake.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from importlib import import_module
from inspect import isabstract, isclass
from pkgutil import iter_modules

from tinyai.builders import OperatorRow
from tinyai.ir import Op
from tinyai.ops.conv2d import Conv2d
from tinyai.ops.cumsum import CumSum
from tinyai.ops.dense import Dense
from tinyai.ops.elementwise import Elementwise
from tinyai.ops.gather import Gather
from tinyai.ops.interleave import Interleave
from tinyai.ops.interpolate import FloatInterpolate, Interpolate
from tinyai.ops.layout import Concatenate, Pad, Reshape, Slice, Transpose
from tinyai.ops.matmul import BatchMatmul
from tinyai.ops.normalize import IntegerL2Norm, Normalize
from tinyai.ops.pool2d import AdaptivePool2d, AvgPool2d, FloatAvgPool2d, MaxPool2d
from tinyai.ops.reduce import Sum
from tinyai.ops.resize import Resize
from tinyai.ops.softmax import IntegerSoftmax, Softmax, TableSoftmax

__all__ = [
    "FAMILIES",
    "OPERATORS",
    "OPS",
    "AdaptivePool2d",
    "AvgPool2d",
    "BatchMatmul",
    "Concatenate",
    "Conv2d",
    "CumSum",
    "Dense",
    "Elementwise",
    "FloatAvgPool2d",
    "FloatInterpolate",
    "Gather",
    "IntegerL2Norm",
    "IntegerSoftmax",
    "Interleave",
    "Interpolate",
    "MaxPool2d",
    "Normalize",
    "Pad",
    "Reshape",
    "Resize",
    "Slice",
    "Softmax",
    "Sum",
    "TableSoftmax",
    "Transpose",
    "operator_row",
    "operators_added",
]

_FILES = tuple(import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__))

# All operators, in the order of their files.
OPS: tuple[type[Op], ...] = tuple(
    kind
    for file in _FILES
    for kind in vars(file).values()
    if isclass(kind) and issubclass(kind, Op) and not isabstract(kind)
    if kind.__module__ == file.__name__
)

# The source operators that tinyai takes, each with its builder.
OPERATORS: dict[str, OperatorRow] = {
    name: row for file in _FILES for name, row in getattr(file, "OPERATORS", {}).items()
}
# The file of each, by name.
FAMILIES: Mapping[str, str] = {
    name: file.__name__.rpartition(".")[2]
    for file in _FILES
    for name in getattr(file, "OPERATORS", {})
}
# Those of another back end, while it is at work.
_ADDED: ContextVar[Mapping[str, OperatorRow]] = ContextVar("_ADDED", default={})  # noqa: B039


def operator_row(name: str) -> OperatorRow | None:
    """The row of a source operator; None where it has none."""
    return _ADDED.get().get(name) or OPERATORS.get(name)


@contextlib.contextmanager
def operators_added(rows: Mapping[str, OperatorRow]) -> Iterator[None]:
    """Inside of the block these operators have builders too, which are found before those of the
    same name."""
    token = _ADDED.set({**_ADDED.get(), **rows})
    try:
        yield
    finally:
        _ADDED.reset(token)
