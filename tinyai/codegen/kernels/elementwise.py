"""Kernel of elementwise nodes: the fewest loops, the steps inside."""

from __future__ import annotations

from tinyai.codegen.index import element, merge_dims
from tinyai.codegen.kernels.table import Kernel, Values
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Graph, Node, operand_tensors
from tinyai.ops import Elementwise


def _values(graph: Graph, node: Node, epilogue: Epilogue) -> Values:
    (source,) = graph.types(node.inputs)
    out = graph.type(node.output)
    operands = graph.types(operand_tensors(node.epilogue))
    axes = merge_dims(out.shape, [source.shape, *(operand.shape for operand in operands)])
    steps = epilogue.write(f"in0[{element(source.shape, axes)}]", source.dtype, axes)
    return {
        "axes": axes,
        "steps": steps,
        "store": element(out.shape, axes),
        "result": epilogue.result,
    }


KERNELS = (
    Kernel(
        name="elementwise_scalar",
        op=Elementwise,
        template="elementwise_scalar.c.j2",
        values=_values,
    ),
)
