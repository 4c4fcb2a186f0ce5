"""How much work an operator of an edge program is, by its shapes."""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from tinyai.frontends.executorch.reader import arguments_of, operator_of

# The operand whose rows meet the columns of the other.
_ROWS = {
    "aten.linear": "input",
    "aten.mm": "self",
    "aten.addmm": "mat1",
    "aten.bmm": "self",
    "aten.baddbmm": "batch1",
    "aten.matmul": "self",
}


def macs_of(node: Node) -> int | None:
    """Multiply-accumulates of a convolution or a product of matrices in one run, without regard to
    padding; None for another operator, or where shapes are not known."""
    name, args = operator_of(node), arguments_of(node)
    result = _shape(node)
    if name in _ROWS:
        rows = _shape(args[_ROWS[name]])
        return math.prod(result) * rows[-1] if result is not None and rows else None
    if not name.startswith("aten.conv"):
        return None
    transposed = "transpose" in name or bool(args.get("transposed"))
    places, weight = _shape(args["input"]) if transposed else result, _shape(args.get("weight"))
    if not places or not weight:
        return None
    # Each place of the result meets every weight once; of a transposed one, each of the data.
    spatial = len(weight) - 2
    batches, inside = places[: -spatial - 1], places[len(places) - spatial :]
    return math.prod(batches) * math.prod(inside) * math.prod(weight)


def _shape(node: object) -> tuple[int, ...] | None:
    """The shape of a tensor; None where it is dynamic or there is none."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if not isinstance(value, torch.Tensor) or not all(isinstance(dim, int) for dim in value.shape):
        return None
    return tuple(value.shape)
