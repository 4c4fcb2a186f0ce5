"""Interval analysis: between which bounds the values of each channel lie, whatever the input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tinyai.ir import Graph, Step, Type
from tinyai.traits import Range


def ranges(graph: Graph) -> dict[str, Range]:
    """The range of every tensor."""
    known = {name: _unknown(graph.type(name)) for name in graph.inputs}
    for name, value in graph.constants.items():
        wide = np.float32 if value.dtype.kind == "f" else np.int64
        rows = value.reshape(-1, value.shape[-1] if value.ndim else 1)
        rows = rows if rows.size else np.zeros((1, rows.shape[1]), wide)
        known[name] = Range(rows.min(axis=0).astype(wide), rows.max(axis=0).astype(wide))
    for node in graph.nodes:
        types, result = graph.types(node.inputs), graph.computed(node)
        data = [known[name] for name in node.inputs]
        constants = [graph.constants.get(name) for name in node.inputs]
        found = _fitting(node.op.infer_range(types, data, constants), result)
        known[node.output] = _behind(graph, node.epilogue, result, found, known)
    return known


def _unknown(of: Type) -> Range:
    low, high = (-math.inf, math.inf) if of.dtype.is_float else of.dtype.range
    kind = np.float32 if of.dtype.is_float else np.int64
    return Range(np.full(of.channels, low, kind), np.full(of.channels, high, kind))


def _fitting(found: Range | None, of: Type) -> Range:
    """``found`` where it is known and fits the type; what may wrap, or is no number, can be any
    value of the type."""
    unknown = _unknown(of)
    if found is None:
        return unknown
    if of.dtype.is_float:
        fits = np.isfinite(found.low) & np.isfinite(found.high)
    else:
        fits = (found.low >= unknown.low) & (found.high <= unknown.high)
    return Range(np.where(fits, found.low, unknown.low), np.where(fits, found.high, unknown.high))


def _behind(
    graph: Graph, chain: Sequence[Step], of: Type, value: Range, known: Mapping[str, Range]
) -> Range:
    """The range after the steps of ``chain`` on a value of type ``of``."""
    for step in chain:
        operand = None
        if step.operand is not None:
            name = step.operand.tensor
            start = replace(of, dtype=graph.type(name).dtype)
            other = known[name]
            wide = Range(*(np.broadcast_to(b, (of.channels,)) for b in (other.low, other.high)))
            operand = _behind(graph, step.operand.steps, start, wide, known)
        after = replace(of, dtype=step.result(of.dtype))
        value = _fitting(step.infer_range(of, value, operand), after)
        of = after
    return value
