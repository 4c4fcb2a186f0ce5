"""Kernels of elementwise nodes that add two 8-bit tensors, each rescaled."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tinyai.codegen.ctree import Code, Statement
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import AnyAdd, Sums
from tinyai.codegen.kernels import elementwise
from tinyai.codegen.kernels.elementwise import ElementRow, one_call
from tinyai.codegen.linear_add import linear_add_of
from tinyai.codegen.lowered import Kernel, Lowered, Prepared
from tinyai.codegen.placed import stored_index
from tinyai.codegen.quantized_add import quantized_add_of
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node, Step
from tinyai.ops import Elementwise
from tinyai.ops.steps import Add


def add_of(graph: Lowered, chain: Sequence[Step], dtype: DType, sums: Sums) -> AnyAdd | str:
    """The sum that steps from values of ``dtype`` are, in the cheapest form that is proved to be
    equal, or why they are none."""
    linear = (linear_add_of(graph, chain, dtype, form) for form in sums.forms)
    tried: Iterator[AnyAdd | str] = itertools.chain(
        (quantized_add_of(graph, chain, dtype),), linear
    )
    reasons = []
    for add in tried:
        if not isinstance(add, str):
            return add
        reasons.append(add)
    return "; ".join(dict.fromkeys(reasons))


def _is_sum(graph: Lowered, node: Node) -> bool:
    """Whether a tensor that is computed is added."""
    return any(
        isinstance(step, Add) and step.operand and step.operand.tensor not in graph.constants
        for step in node.epilogue
    )


@dataclass(frozen=True)
class SumOfTwo(Prepared):
    add: AnyAdd
    sums: Sums

    def takes(self, graph: Lowered, name: str) -> bool:
        return elementwise.takes(graph, self.node, name)

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        add = self.add
        second = f"{epilogue.param(add.operand)} + "

        def call(at: ElementRow) -> Statement:
            operand = second + stored_index(graph.stored(add.operand), at.axes)
            return self.sums.call(epilogue, add, at.source, operand, at.out, at.count)

        return one_call(graph, self.node, epilogue, call)


def _prepared(graph: Lowered, node: Node, *, sums: Sums) -> SumOfTwo | str:
    add = add_of(graph, node.epilogue, graph.type(node.inputs[0]).dtype, sums)
    if isinstance(add, str):
        return add
    axes, _ = elementwise.loops(graph, node)
    shapes = [graph.type(tensor).shape for tensor in (node.inputs[0], add.operand)]
    if not elementwise.in_rows(axes, *shapes):
        return "a tensor that is broadcast along the last loop"
    return SumOfTwo(node, add, sums)


KERNELS = tuple(
    Kernel(
        name=f"elementwise_add_{micro.name}",
        op=Elementwise,
        isa=micro.name,
        prepare=functools.partial(_prepared, sums=micro.sums),
        kind=_is_sum,
        split=True,
    )
    for micro in MICROKERNELS
    if micro.sums
)
