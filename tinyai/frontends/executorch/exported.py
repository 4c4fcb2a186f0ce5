"""An exported torch graph as the quantizer sees it: each node is one call of the vocabulary.

The readers of ``operators/`` may write a node with several calls, as a convolution and its bias.
Between them no pair can go. So one of them stands for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tinyai.frontends.executorch.operators import AS_ONE, READERS
from tinyai.frontends.executorch.reader import Reading, operator_of, type_of_value
from tinyai.ir import Array
from tinyai.qdq.functions import ELEMENTWISE
from tinyai.qdq.moves import MOVES
from tinyai.qdq.operands import is_call
from tinyai.quantizer.points import Point, Points
from tinyai.quantizer.roles import Role
from tinyai.source import Call, Constant, Expr, SourceType, Tuple, children, ordered, require
from tinyai.vocabulary import call

# What moves values and does more than that: it picks some.
PICKING = ("max_pool1d", "max_pool2d", "max_pool3d", "global_max_pool2d", "max", "min")


class FloatReading(Reading):
    """The expressions of an exported module, as its operators are read."""

    def __init__(self, model: GraphModule) -> None:
        super().__init__(model, READERS)
        self.read()
        self.results = tuple(map(self, self.graph.output_node().all_input_nodes))

    def _unknown(self, node: Node) -> Call:
        return replace(super()._unknown(node), spelling=str(node.target))

    def _parameter(self, node: Node) -> Expr:
        """As the module has it, whatever its order in memory."""
        return Expr(self.types_of(node))

    def _type_of_value(self, value: torch.Tensor) -> SourceType:
        """A dynamic dimension has the size that it was exported with: it may be fixed later."""
        return type_of_value(value, _size)


class Exported(FloatReading):
    """``root`` is what the graph computes; ``nodes`` says which node an expression came from."""

    def __init__(self, model: GraphModule) -> None:
        # Of a call that stands for a node the one that it was read as.
        self._as_read: dict[Expr, Call] = {}
        super().__init__(model)
        self.root = _tuple_of(self.results)

    def output_channels(self, product: Call) -> int | None:
        """The axis of the output channels in the weights of a product, as their node has them; None
        where each group or matrix has its own."""
        core = self._as_read[product]
        grouped = core.op == "conv2d_transpose" and core.attrs["groups"] != 1
        if grouped or core.op == "batch_matmul":
            return None
        axis = core.attrs.get("weight_layout", "O").index("O")
        weight = core["weight"]
        while is_call(weight, "transpose") and weight not in self.nodes:
            axis, weight = weight.attrs["axes"][axis], weight["data"]
        return int(axis)

    def nodes_of(self, expr: Expr) -> Iterator[Node]:
        """The nodes that read what an expression is made from: its own, and those that it stands
        for, as a part of a split stands for the split."""
        node = self.nodes[expr]
        yield node
        if operator_of(node) == "getitem":
            yield from node.all_input_nodes
        elif is_call(expr, "function"):
            yield from getattr(expr.attrs["compute"], "steps", ())

    def _call(self, node: Node) -> Expr:
        made = super()._call(node)
        if isinstance(made, Tuple):  # its parts are nodes
            return made
        types = self.types_of(node)
        require(len(types) == 1, "result", f"a tuple of {len(types)}", "one tensor")
        core = None
        if is_call(made) and made not in self.nodes:
            core = self._core(made, AS_ONE.get(self.readers[operator_of(node)]))
        one = replace(self._as_one(made, core, types), name=node.name, spelling=str(node.target))
        found, kept = self._values_of(made), self._values_of(one)
        require(found == kept, "values that are read", len(found), len(kept))
        if core is not None:
            self._as_read[one] = core
        return one

    def _core(self, made: Call, as_one: str | None) -> Call:
        """The call that stands for all that a reader made of a node: what its row says, or the one
        that computes with its values."""
        inside = (e for e in self._inside(made) if is_call(e) and e not in self.nodes)
        inner = [each for each in inside if self._values_of(each)]
        computing = [e for e in inner if not is_call(e, *MOVES) or is_call(e, *PICKING)] or [made]
        if as_one and len(computing) > 1:
            (value,) = self._values_of(made)
            attrs: dict[str, Any] = {"label": made.spelled, "compute": _unknown}
            return call(as_one, made.type, value, **(attrs if as_one == "function" else {}))
        sums = [each for each in computing if not is_call(each, *ELEMENTWISE, "bias_add")]
        biases = [each for each in computing if is_call(each, "bias_add")]
        found = sums or biases or computing
        require(len(found) == 1, "calls of one node", len(found), "one, or as_one of its row")
        return found[0]

    def _as_one(self, made: Expr, core: Call | None, types: tuple[SourceType, ...]) -> Call:
        if core is None:
            return call("copy", types, made)
        args = tuple(map(self._of_node, core.args))
        return replace(core, types=types, load_attrs=lambda: core.attrs, load=lambda: args)

    def _inside(self, expr: Expr) -> Iterator[Expr]:
        """What an expression is made from, down to the values of nodes."""
        return ordered(expr, lambda each: () if each in self.nodes else children(each))

    def _of_node(self, operand: Expr) -> Expr:
        """The node's value that an operand is made from; a number that no node has, as it is."""
        if isinstance(operand, Tuple) and operand not in self.nodes:
            return _tuple_of(tuple(map(self._of_node, operand.fields)))
        while operand not in self.nodes and is_call(operand):
            operand = operand.args[0]
        return operand

    def _values_of(self, expr: Expr) -> tuple[Expr, ...]:
        """The nodes' values of run time that an expression reads, in order."""
        read = (each for each in self._inside(expr) if each in self.nodes)
        return tuple(each for each in read if not isinstance(each, Constant))


class ModulePoints(Points):
    """Functions of the model's own inputs too: who configures a module asks for all that is in it.
    What only moves an input is left where nothing after it is quantized."""

    def _pending_or(self, expr: Expr, role: Role) -> None:
        computes = role is not Role.MOVE or is_call(expr, *PICKING)
        if computes and all(type(each) is Expr for each in self.operands(expr)):
            self.roles[expr] = role
        else:
            super()._pending_or(expr, role)

    def residuals(self) -> list[Point]:
        """None: ExecuTorch's delegates take 8 bits."""
        return []


def _unknown(values: Array) -> Array:
    """Several functions of one value are one table, whatever it computes."""
    raise NotImplementedError


def _size(size: Any) -> int | None:
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None


def _tuple_of(parts: tuple[Expr, ...]) -> Tuple:
    return Tuple(tuple(of for part in parts for of in part.types), load=lambda: parts)
