"""How large integers can get on their way through steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tinyai.ir import DType, Graph, Operand, Step

INT32_MAX = 2**31 - 1


def largest_size(graph: Graph, chain: Iterable[Step], dtype: DType) -> int:
    """The largest absolute value that integer steps can give, from any value of ``dtype``; that of
    the type where nothing better is known. Floats count as ``INT32_MAX``."""
    size = _of_type(dtype)
    for step in chain:
        dtype = step.result(dtype)
        operand = 0 if step.operand is None else _largest_operand(graph, step.operand)
        known = step.largest(size, operand, graph.constant_operand(step))
        size = _of_type(dtype) if known is None else min(known, _of_type(dtype))
    return size


def _of_type(dtype: DType) -> int:
    return INT32_MAX if dtype.is_float else max(-dtype.range[0], dtype.range[1])


def _largest_operand(graph: Graph, operand: Operand) -> int:
    value = graph.constants.get(operand.tensor)
    if value is None or operand.steps or value.dtype.kind == "f":
        return largest_size(graph, operand.steps, graph.type(operand.tensor).dtype)
    return int(np.abs(value.astype(np.int64)).max())
