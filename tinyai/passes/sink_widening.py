"""Store values at their narrowest: conversions to a wider type move to where the value is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tinyai.ir import DType, Graph, Node, Operand, Step, Tensor, Type, step_types
from tinyai.ops import Elementwise
from tinyai.ops.steps import Cast


def sink_widening(graph: Graph) -> Graph:
    """The tail of an epilogue that widens (int8 to int32 in front of a residual add) moves to the
    readers, when every reader is an elementwise node or an operand, or sums in int32 anyway.

    A convolution's result then takes a quarter of the arena. Readers repeat the tail: casts and
    shifts by constants, which cost less than the memory traffic that they save.
    """
    tails: dict[str, tuple[Step, ...]] = {}
    tensors = dict(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        head = tails.get(node.inputs[0], ()) if isinstance(node.op, Elementwise) else ()
        node = replace(node, epilogue=(*head, *_with_tails(node.epilogue, tails)))
        start = tensors[node.inputs[0]].type if head else graph.computed(node)
        found = step_types(start.dtype, node.epilogue)
        found[0] = found[len(head)]  # to keep nothing would repeat what the node does, too
        keep = narrowest(found)
        tail = node.epilogue[keep:]
        if tail and _can_sink(graph, node, tail, found[keep]):
            node = replace(node, epilogue=node.epilogue[:keep])
            tails[node.output] = tail
            narrow = Type(graph.type(node.output).shape, found[keep])
            tensors[node.output] = Tensor(node.output, narrow)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def dtypes(graph: Graph, node: Node) -> list[DType]:
    """Type after the operator and after each step."""
    return step_types(graph.computed(node).dtype, node.epilogue)


def narrowest(dtypes: Sequence[DType]) -> int:
    """How many steps to keep: up to the last place at which the value is narrowest. ``dtypes`` are
    those in front of the first step and after each."""
    sizes = [dtype.bytes for dtype in dtypes]
    smallest = min(sizes)
    return len(sizes) if sizes[-1] == smallest else len(sizes) - 1 - sizes[::-1].index(smallest)


def _can_sink(graph: Graph, node: Node, tail: tuple[Step, ...], narrow: DType) -> bool:
    """``narrow`` is the dtype in front of the tail."""
    constant_operands = all(
        step.operand is None or step.operand.tensor in graph.constants for step in tail
    )
    if not constant_operands or node.output in graph.outputs:
        return False
    return all(
        isinstance(reader.op, Elementwise)
        or (tail == (Cast(DType.INT32),) and _sums_narrow(graph, reader, node.output, narrow))
        for reader in graph.readers[node.output]
        if node.output in reader.inputs
    )


def _sums_narrow(graph: Graph, reader: Node, name: str, narrow: DType) -> bool:
    """Whether an operator gives int32 for a tensor of the type ``narrow`` as well: a maximum keeps
    its input's type, an average takes no int16."""
    types = (
        replace(graph.type(each), dtype=narrow) if each == name else graph.type(each)
        for each in reader.inputs
    )
    try:
        return reader.op.takes_narrow and reader.op.infer(*types).dtype is DType.INT32
    except ValueError:
        return False


def _with_tails(steps: Iterable[Step], tails: dict[str, tuple[Step, ...]]) -> Iterator[Step]:
    """Steps that read tensors which have lost their ``tails``: each operand begins with its own."""

    def behind(operand: Operand) -> Operand:
        head = tails.get(operand.tensor, ())
        return replace(operand, steps=(*head, *_with_tails(operand.steps, tails)))

    return (step.with_operand(behind) for step in steps)
