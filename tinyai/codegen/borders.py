"""Which tensors are stored with a border around the image.

A convolution whose window reaches over the edge of its input would have to copy it; where the
input's maker can write it into the middle of a bordered place, and all readers can read it there,
it is made so at once.

A sum, or another elementwise node, can take the memory of an image that it reads, but not where one
of them has a border: such images get one where that does not make the arena larger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tinyai.codegen.isa.section import Isa
from tinyai.codegen.kernels import Kernel
from tinyai.ir import Border, Graph, Node, operand_tensors
from tinyai.ops import Elementwise
from tinyai.ops.contraction import Contraction


def with_borders(
    graph: Graph, kernels: Mapping[Isa, Mapping[str, Kernel]], arena: Callable[[Graph], int]
) -> Graph:
    """The graph with the borders of its tensors. ``arena`` says how many bytes a graph needs."""
    wanted = _wanted(graph, kernels)
    shared = {name for node in graph.nodes for name in _could_share_memory(graph, node)}
    graph = _stored(graph, {name: wanted[name] for name in wanted if name not in shared})
    least = arena(graph) if shared & set(wanted) else 0
    for name in wanted:
        if name in shared:
            trial = _stored(graph, {name: wanted[name]})
            if (needed := arena(trial)) <= least:
                graph, least = trial, needed
    return graph


def _could_share_memory(graph: Graph, node: Node) -> set[str]:
    """The result of a node and the tensors that it reads element by element."""
    computed = set(operand_tensors(node.epilogue)) - set(graph.constants)
    if isinstance(node.op, Elementwise):
        computed |= set(node.inputs)
    return computed | {node.output} if computed else set()


def _stored(graph: Graph, borders: Mapping[str, Border]) -> Graph:
    """The graph with these tensors stored with these borders."""
    made = {name: replace(graph.tensors[name], border=border) for name, border in borders.items()}
    return replace(graph, tensors={**graph.tensors, **made})


def _wanted(graph: Graph, kernels: Mapping[Isa, Mapping[str, Kernel]]) -> dict[str, Border]:
    """The border of every tensor that its maker and its readers can have one around."""

    def bordered(node: Node) -> bool:
        return all(rows[node.output].bordered for rows in kernels.values())

    wanted = {}
    for node in graph.nodes:
        users = graph.readers[node.output]
        if node.output in graph.outputs or not users or not bordered(node):
            continue
        if all(bordered(user) and _meets_border(graph, user, node.output) for user in users):
            border = _widest(users)
            if border:
                wanted[node.output] = border
    return wanted


def _meets_border(graph: Graph, user: Node, name: str) -> bool:
    """Whether a node reads the tensor at its strides: as the image of a convolution, or element by
    element."""
    op, shape = user.op, graph.type(name).shape
    as_image = _border(user) is not None
    as_element = shape == graph.type(user.output).shape
    return (
        isinstance(op, Contraction | Elementwise)
        and name not in user.inputs[1:]
        and (name not in user.inputs or as_image or (as_element and isinstance(op, Elementwise)))
        and (name not in operand_tensors(user.epilogue) or as_element)
    )


def _widest(users: Sequence[Node]) -> Border | None:
    """The border that serves all readers; None where none is needed, or two differ in its value."""
    borders = [border for border in map(_border, users) if border and any(border.sides)]
    values = {border.value for border in borders}
    if len(values) != 1:
        return None
    sides = zip(*(border.sides for border in borders), strict=True)
    top, left, bottom, right = map(max, sides)
    return Border(top, left, bottom, right, values.pop())


def _border(user: Node) -> Border | None:
    """What a node reads around its image."""
    return user.op.border if isinstance(user.op, Contraction) else None
