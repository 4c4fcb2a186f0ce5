"""Why a node of an edge program is outside of a delegate, for the report and for messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch.fx import Node

from tinyai.frontends.executorch.grouping import is_pair
from tinyai.frontends.executorch.hints import NOT_QUANTIZED
from tinyai.frontends.executorch.operators import READERS
from tinyai.frontends.executorch.reader import operator_of
from tinyai.qdq.operands import operator_name
from tinyai.report import Reason
from tinyai.source import Expr, Refusal


def reason_of(node: Node, refusal: Refusal) -> Reason:
    """A refusal for the report."""
    name = operator_of(node)
    known = name in READERS
    kind, row = ("operator", name) if known else ("none", "")
    return Reason(kind, row, int(known), refusal.clause, refusal.found, refusal.allowed)


def why_float(node: Node, refusal: Refusal | None, inside: Collection[Node]) -> Refusal:
    """What keeps an operator from becoming one of integers; ``inside`` is its group."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.dtype != torch.float32:
        dtype = str(value.dtype).removeprefix("torch.")
        return Refusal("dtype of the result", dtype, "float32, quantized")
    if refusal is None:
        users = [user for user in node.users if not is_pair(user, "quantize")]
        found = f"read as float32 by {operators_of(users or node.users)}"
        return Refusal(NOT_QUANTIZED, found, "a quantize after it, and no other reader")
    outside = [each for each in node.all_input_nodes if each not in inside]
    if refusal.found == operator_name(Expr(())) and outside:
        return Refusal(refusal.clause, f"float32 of {operators_of(outside)}", refusal.allowed)
    return refusal


def operators_of(nodes: Iterable[Node]) -> str:
    """What nodes are, for messages: operators, or the ends of a program."""
    ends = {"placeholder": "an input of the program", "output": "an output of the program"}
    makers = (node.args[0] if operator_of(node) == "getitem" else node for node in nodes)
    found = {ends.get(node.op) or operator_of(node) for node in makers if isinstance(node, Node)}
    return ", ".join(sorted(found))
