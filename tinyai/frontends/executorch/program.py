"""Which nodes of an exported program tinyai takes: the program as ``tinyai.partition`` asks it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from tinyai.frontends.executorch.barred import names_of
from tinyai.frontends.executorch.hints import NOT_TO_DELEGATE
from tinyai.frontends.executorch.operators import READERS
from tinyai.frontends.executorch.reader import (
    QUANTIZATION,
    Reading,
    calls,
    dim_order_of,
    from_outside,
    operator_of,
)
from tinyai.own import NO_BACKEND, OwnBackend
from tinyai.partition.division import Division, divide
from tinyai.partition.model import ItemModel, ModelPart
from tinyai.partition.reasons import such_as
from tinyai.partition.told import NOT_QUANTIZED
from tinyai.patterns import computes
from tinyai.qdq.operands import operator_name
from tinyai.report import Reason
from tinyai.source import Expr, Refusal, Rounding
from tinyai.target import Target
from tinyai.vocabulary import call

# XNNPACK's integers: what ExecuTorch computes.
ARITHMETIC = Rounding("torch")


class Program(Reading, ItemModel[Node]):
    """A program of the edge dialect, or of ATen before anything is taken apart. Tensors of inputs
    and outputs have their dimensions in the order of memory."""

    rounding = ARITHMETIC

    def __init__(
        self,
        program: ExportedProgram,
        inside: Collection[Node] | None = None,
        own: OwnBackend = NO_BACKEND,
    ) -> None:
        super().__init__(program, READERS, inside)
        self.program, self.own = program, own
        values = [node for node in self.graph.nodes if node.op != "output"]
        self.order = [node for node in values if node not in self.constants]
        self.outputs = {node for node in values if any(user.op == "output" for user in node.users)}
        self.read()

    def reads(self, node: Node) -> list[Node]:
        return [each for each in node.all_input_nodes if each not in self.constants]

    def users(self, node: Node) -> Collection[Node]:
        return list(node.users)

    def name(self, node: Node) -> str:
        return str(node.name)

    def operator(self, node: Node) -> str:
        return operator_of(node)

    def kind(self, node: Node) -> str:
        if node.op != "call_function" or operator_of(node) == "executorch_call_delegate":
            return "input"
        name = operator_of(node)
        if name.startswith(QUANTIZATION):
            kind = name.removeprefix(QUANTIZATION).partition("_per_")[0]
            return kind if kind in ("quantize", "dequantize") else ""
        if name == "getitem":
            return "part"
        return "computes" if name not in MOVING and computes(name) else ""

    def is_known(self, node: Node) -> bool:
        return self.known(node) is not None

    def reason(self, node: Node, refusal: Refusal) -> Reason:
        name = operator_of(node)
        known = name in READERS
        kind, row = ("operator", name) if known else ("none", "")
        return Reason(kind, row, int(known), refusal.clause, refusal.found, refusal.allowed)

    def why_float(self, node: Node, refusal: Refusal | None, inside: Collection[Node]) -> Refusal:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype != torch.float32:
            dtype = str(value.dtype).removeprefix("torch.")
            return Refusal("dtype of the result", dtype, "float32, quantized")
        if refusal is None:
            users = [user for user in node.users if self.kind(user) != "quantize"]
            found = f"read as float32 by {operators_of(users or node.users)}"
            return Refusal(NOT_QUANTIZED, found, "a quantize after it, and no other reader")
        outside = [each for each in node.all_input_nodes if each not in inside]
        if refusal.found == operator_name(Expr(())) and outside:
            return Refusal(refusal.clause, f"float32 of {operators_of(outside)}", refusal.allowed)
        return refusal

    def from_outside(self, node: Node) -> tuple[Expr | None, Expr]:
        if node in self.parameters:
            return self.parameters[node], self(node)
        return from_outside(node)

    def stored(self, node: Node, value: Expr) -> Expr:
        order = dim_order_of(node)
        if order == tuple(range(len(order))):
            return value
        of = replace(value.type, shape=tuple(value.type.shape[dim] for dim in order))
        return call("transpose", of, value, axes=order)

    def part(self, nodes: Collection[Node]) -> ModelPart[Node]:
        """What is a constant of the whole program, which readers looked at, is none of a part that
        gets it from outside: such a part is read by itself."""
        outside = {each for node in nodes for each in self.reads(node)} - {*nodes}
        if any(map(self.is_known, outside)):
            return Program(self.program, set(nodes), self.own).part(nodes)
        return super().part(nodes)


def division_of(
    program: ExportedProgram,
    target: Target,
    without: Collection[str] = (),
    own: OwnBackend = NO_BACKEND,
) -> Division[Node]:
    """The regions of a program that tinyai can build, with a back end of one's ``own`` before it,
    and without the operators of the names ``without``. It may be a program of ATen, before anything
    is taken apart."""
    reading, names = Program(program, own=own), frozenset(without)
    barred = {}
    for node in calls(program):
        if reading.is_known(node):
            continue  # a constant by now: a delegate has its value, not what computes it
        if names and names_of(node) & names:
            barred[node] = Refusal(NOT_TO_DELEGATE, operator_of(node), "others")
        elif node in reading.refused:
            name, refusal = operator_of(node), reading.refused[node]
            if name not in READERS:  # with those that are read and have names like it
                like = f"one that tinyai reads{such_as(name, sorted(READERS))}"
                refusal = Refusal(refusal.clause, refusal.found, like)
            barred[node] = refusal
    return divide(reading, target, barred)


def operators_of(nodes: Iterable[Node]) -> str:
    """What nodes are, for messages: operators, or the ends of a program."""
    ends = {"placeholder": "an input of the program", "output": "an output of the program"}
    makers = (node.args[0] if operator_of(node) == "getitem" else node for node in nodes)
    found = {ends.get(node.op) or operator_of(node) for node in makers if isinstance(node, Node)}
    return ", ".join(sorted(found))


_COPIED = ("view", "permute", "squeeze", "unsqueeze", "expand", "alias", "slice", "select", "t")
MOVING = frozenset(
    (
        *(f"aten.{name}{copy}" for name in (*_COPIED, "transpose") for copy in ("", "_copy")),
        *("aten.clone", "dim_order_ops._to_dim_order_copy", "dim_order_ops._clone_dim_order"),
    )
)
