"""Kernel of elementwise nodes: the fewest loops, the steps inside."""

from __future__ import annotations

from tinyai.codegen.index import Axis, element, merge_dims
from tinyai.codegen.kernels.table import Kernel, Values, anywhere
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Graph, Node, operand_tensors
from tinyai.ops import Elementwise


def loops(graph: Graph, node: Node) -> tuple[list[Axis], str]:
    """The fewest loops over the output, and the number of the input's element in them."""
    source, out = graph.tensors[node.inputs[0]], graph.tensors[node.output]
    operands = graph.types(operand_tensors(node.epilogue))
    shapes = [source.type.shape, *(operand.shape for operand in operands)]
    stored = [out.strides, *([] if source.dense else [source.strides])]
    axes = merge_dims(out.type.shape, shapes, stored)
    return axes, element(source.type.shape, axes, source.strides)


def same_shape(graph: Graph, node: Node) -> bool:
    return graph.type(node.inputs[0]).shape == graph.type(node.output).shape


def _values(graph: Graph, node: Node, epilogue: Epilogue) -> Values:
    axes, taken = loops(graph, node)
    out = graph.tensors[node.output]
    steps = epilogue.write(f"in0[{taken}]", graph.type(node.inputs[0]).dtype, axes)
    return {
        "axes": axes,
        "steps": steps,
        "store": element(out.type.shape, axes, out.strides),
        "result": epilogue.result,
    }


KERNELS = (
    Kernel(
        name="elementwise_scalar",
        op=Elementwise,
        template="elementwise_scalar.c.j2",
        values=_values,
        strided_out=anywhere,
        strided_in=same_shape,
    ),
)
