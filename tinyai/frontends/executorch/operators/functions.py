"""Functions of one value that have no row of their own: torch computes them when code is made.

Between a dequantize and a quantize such a function has 256 arguments. torch's own operators on
these give the table, so that nobody has to write down what the function is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Node
from torch.fx.node import map_arg

from tinyai.frontends.executorch.operators.rows import OTHER, reads
from tinyai.frontends.executorch.reader import (
    QUANTIZATION,
    Reading,
    Site,
    is_pure,
    operator_of,
    tags_of,
)
from tinyai.ir import Array
from tinyai.source import Expr, SourceType, ordered, require

# That work element by element, though torch does not say so.
_UNTAGGED = ("aten.log_sigmoid",)
# What the edge dialect would take apart.
_WHOLE = ("celu", "selu", "mish", "softplus", "threshold", "log_sigmoid")


@reads(OTHER, namespace="", whole=[getattr(torch.ops.aten, name).default for name in _WHOLE])
def _function(site: Site) -> Expr:
    """Any operator that works element by element on one value, or on functions of the same one, and
    on constants of one number."""
    node, reading = site.node, site.reading
    known = "an operator that tinyai.executorch reads"
    require(_works_by_element(node), "operator", operator_of(node), known)
    read = _values(node, reading)
    single = len(read) == 1 and reading(read[0]).type.dtype == "float32"
    starts = {read[0]} if single else _starts(node, reading)
    # Nodes of the same value are equal here: it is dequantized for each of its readers.
    pairs = [operator_of(each).startswith(QUANTIZATION) for each in starts]
    values = {(e.target, e.args) if p else e for e, p in zip(starts, pairs, strict=True)}
    require(len(values) == 1 and node not in starts, "operands", len(read), "functions of one")
    start = next(each for each in node.graph.nodes if each in starts)
    value, of = reading(start), SourceType(site.type.shape, "float32")
    require(value.type == of, "type of a function's operand", value.type, of)
    function = _evaluated(starts, node, reading)
    return site.call("function", value, label=function.label, compute=function)


def _works_by_element(node: Node) -> bool:
    """Whether an operator works element by element, and always in the same way."""
    name = operator_of(node)
    tagged = torch.Tag.pointwise in tags_of(node) or name in _UNTAGGED
    return tagged and is_pure(node) and not name.startswith(QUANTIZATION)


def _values(node: Node, reading: Reading) -> list[Node]:
    """The operands that are computed at run time."""
    return [each for each in node.all_input_nodes if reading.known(each) is None]


def _starts(node: Node, reading: Reading) -> set[Node]:
    """The values that a node is a function of, by way of others that are functions of them."""
    found = set()
    for each in ordered(node, lambda n: _values(n, reading) if _works_by_element(n) else []):
        if not _works_by_element(each):
            found.add(each)
    return found


def _evaluated(starts: set[Node], node: Node, reading: Reading) -> Evaluated:
    """A node as a function of the one value of ``starts``."""

    def below(each: Node) -> list[Node]:
        return [] if each in starts else _values(each, reading)

    steps = tuple(each for each in ordered(node, below) if each not in starts)
    numbers = {}
    for each in {operand: None for step in steps for operand in step.all_input_nodes}:
        value = reading.known(each)
        if value is not None:
            same = value.size > 0 and bool((value == value.flat[0]).all())
            require(same, "constant of a function", f"{value.size} numbers", "one number")
            numbers[each] = value.reshape(-1)[:1].reshape(())
    return Evaluated(frozenset(starts), steps, numbers)


@dataclass(frozen=True)
class Evaluated:
    """The last of ``steps`` as a function of the value that ``starts`` hold; their other operands
    are ``numbers``."""

    starts: frozenset[Node]
    steps: tuple[Node, ...]
    numbers: Mapping[Node, Array]

    @property
    def label(self) -> str:
        """What is computed, step by step, with all its numbers: y0 of x, y1 of these, and so on."""
        shown: dict[Node, object] = {n: repr(value.item()) for n, value in self.numbers.items()}
        shown |= dict.fromkeys(self.starts, "x")
        told = []
        for number, step in enumerate(self.steps):
            args, kwargs = map_arg((step.args, step.kwargs), shown.__getitem__)
            named = (f"{name}={value}" for name, value in kwargs.items())
            told.append(f"{operator_of(step)}({', '.join([*map(str, args), *named])})")
            shown[step] = f"y{number}"
        return "; ".join(told)

    def __call__(self, values: Array) -> Array:
        tensors = {each: torch.from_numpy(value.copy()) for each, value in self.numbers.items()}
        tensors |= dict.fromkeys(self.starts, torch.from_numpy(np.array(values, np.float32)))
        with torch.no_grad():
            for step in self.steps:
                target: Any = step.target
                args, kwargs = map_arg((step.args, step.kwargs), tensors.__getitem__)
                tensors[step] = target(*args, **kwargs)
        return np.asarray(tensors[self.steps[-1]].numpy())
