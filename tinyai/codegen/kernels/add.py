"""Kernels of elementwise nodes that add two 8-bit tensors, each rescaled."""

from __future__ import annotations

import functools

from tinyai.codegen.index import place
from tinyai.codegen.kernels import elementwise
from tinyai.codegen.kernels.lanes import Row, one_call
from tinyai.codegen.kernels.table import Kernel, Values, anywhere
from tinyai.codegen.quantized_add import VECTOR, QuantizedAdd, quantized_add_of
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Graph, Node
from tinyai.ops import Elementwise


def _add(graph: Graph, node: Node) -> QuantizedAdd | str:
    return quantized_add_of(graph, node.epilogue, graph.type(node.inputs[0]).dtype)


def _demands(graph: Graph, node: Node) -> str | None:
    add = _add(graph, node)
    if isinstance(add, str):
        return add
    axes, _ = elementwise.loops(graph, node)
    shapes = [graph.type(tensor).shape for tensor in (node.inputs[0], add.operand)]
    if not elementwise.in_rows(axes, *shapes):
        return "a tensor that is broadcast along the last loop"
    return None


def _values(graph: Graph, node: Node, epilogue: Epilogue, *, isa: str) -> Values:
    add = _add(graph, node)
    assert isinstance(add, QuantizedAdd)
    second = f"{epilogue.param(add.operand)} + "

    def call(at: Row) -> str:
        operand = second + place(graph.tensors[add.operand], at.axes)
        return add.call(epilogue, isa, at.taken, operand, at.out, at.count)

    return one_call(graph, node, epilogue, call)


KERNELS = tuple(
    Kernel(
        name=f"elementwise_add_{isa}",
        op=Elementwise,
        isa=isa,
        template="elementwise_core.c.j2",
        demands=_demands,
        values=functools.partial(_values, isa=isa),
        bordered=True,
        strided_out=anywhere,
        strided_in=elementwise.same_shape,
        split=True,
    )
    for isa in VECTOR
)
