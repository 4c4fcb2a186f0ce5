"""Which tensors are stored with a border around the image.

A convolution whose window reaches over the edge of its input would have to copy it; where the
input's maker can write it into the middle of a bordered place, and all readers can read it there,
it is made so at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tinyai.codegen.isa import Isa
from tinyai.codegen.kernels import Kernel
from tinyai.ir import Border, Graph, Node, operand_tensors
from tinyai.ops import Conv2d


def with_borders(graph: Graph, kernels: Mapping[Isa, Mapping[str, Kernel]]) -> Graph:
    """The graph with the borders of its tensors."""

    def bordered(node: Node) -> bool:
        return all(rows[node.output].bordered for rows in kernels.values())

    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.reads():
            readers.setdefault(name, []).append(node)
    tensors = dict(graph.tensors)
    for node in graph.nodes:
        users = readers.get(node.output, [])
        if node.output in graph.outputs or not users or not bordered(node):
            continue
        if all(bordered(user) and _reads_as_image(user, node.output) for user in users):
            border = _widest(users)
            tensors[node.output] = replace(tensors[node.output], border=border)
    return replace(graph, tensors=tensors)


def _reads_as_image(user: Node, name: str) -> bool:
    """Whether the tensor is the image of a convolution and nothing else of it."""
    op = user.op
    alone = user.inputs[0] == name and name not in operand_tensors(user.epilogue)
    return isinstance(op, Conv2d) and op.window.upsample == (1, 1) and alone


def _widest(users: list[Node]) -> Border | None:
    """The border that serves all readers; None where none is needed, or two differ in its value."""
    ops = [user.op for user in users if isinstance(user.op, Conv2d)]
    padded = [op for op in ops if any(op.window.padding)]
    values = {op.zero_point for op in padded}
    if len(values) != 1:
        return None
    top, left, bottom, right = (
        max(sides) for sides in zip(*(op.window.padding for op in padded), strict=True)
    )
    return Border(top, left, bottom, right, values.pop())
