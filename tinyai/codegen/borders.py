"""Which tensors are stored with a border around the image.

A convolution whose window reaches over the edge of its input would have to copy it; where the
input's maker can write it into the middle of a bordered place, and all readers can read it there,
it is made so at once.

A sum, or another elementwise node, can take the memory of an image that it reads, but not where one
of them has a border: such images get one where that does not make the arena larger.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyai.codegen.lowered import Lowered
from tinyai.codegen.placed import Storage
from tinyai.codegen.plan import least_arena
from tinyai.ir import Node, operand_tensors
from tinyai.ops import Elementwise
from tinyai.ops.contraction import Contraction
from tinyai.traits import Border


def with_borders(graph: Lowered) -> Lowered:
    """The graph with the borders of its tensors."""
    wanted = _wanted(graph)
    shared = {name for node in graph.nodes for name in _could_share_memory(graph, node)}
    graph = graph.with_storage({name: wanted[name] for name in wanted if name not in shared})
    least = _arena(graph) if shared & set(wanted) else 0
    for name in wanted:
        if name in shared:
            trial = graph.with_storage({name: wanted[name]})
            if (needed := _arena(trial)) <= least:
                graph, least = trial, needed
    return graph


def _arena(graph: Lowered) -> int:
    return least_arena(graph, graph.scratch_bytes())


def _could_share_memory(graph: Lowered, node: Node) -> set[str]:
    """The result of a node and the tensors that it reads element by element."""
    computed = set(operand_tensors(node.epilogue)) - set(graph.constants)
    if isinstance(node.op, Elementwise):
        computed |= set(node.inputs)
    return computed | {node.output} if computed else set()


def _wanted(graph: Lowered) -> dict[str, Storage]:
    """Every tensor that its maker and its readers can have a border around, with that border."""
    wanted = {}
    for node in graph.nodes:
        name, readers = node.output, graph.readers[node.output]
        over_edges = [reader for reader in readers if reader.inputs[0] == name]
        border = _widest(over_edges) if name not in graph.outputs else None
        if border:
            stored = Storage(graph.type(name), border)
            trial = graph.with_storage({name: stored})
            if all(trial.takes(each, name) for each in (node, *readers)):
                wanted[name] = stored
    return wanted


def _widest(users: Sequence[Node]) -> Border | None:
    """The border that serves all readers; None where none is needed, or two differ in its value."""
    read = [user.op.border for user in users if isinstance(user.op, Contraction)]
    borders = [border for border in read if border and any(border.sides)]
    values = {border.value for border in borders}
    if len(values) != 1:
        return None
    sides = zip(*(border.sides for border in borders), strict=True)
    top, left, bottom, right = map(max, sides)
    return Border(top, left, bottom, right, values.pop())
