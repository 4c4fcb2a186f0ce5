"""Which nodes of an edge program may go into one delegate, as far as their edges tell."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from tinyai.frontends.executorch.reader import QUANTIZATION, constants_of, operator_of
from tinyai.patterns import computes


def calls(program: ExportedProgram) -> Iterator[Node]:
    return (node for node in program.graph.nodes if node.op == "call_function")


def is_pair(node: Node, kind: str) -> bool:
    return operator_of(node).startswith(f"{QUANTIZATION}{kind}")


def without_loose_ends(program: ExportedProgram, taken: set[Node]) -> set[Node]:
    """``taken`` without pairs that belong to operators outside: another back end that knows
    quantization takes these together."""
    fixed = set(constants_of(program))
    for node in calls(program):  # also those that read nothing at all
        if fixed.issuperset(node.all_input_nodes):
            fixed.add(node)
    left = set(taken)
    while True:
        loose = {node for node in left if _is_loose(node, left, fixed)}
        if not loose:
            return left
        left -= loose


def _is_loose(node: Node, taken: set[Node], fixed: Collection[Node]) -> bool:
    users = set(node.users)
    if is_pair(node, "dequantize"):
        return not users & taken and not any(user.op == "output" for user in users)
    if is_pair(node, "quantize"):
        source = node.args[0]
        return isinstance(source, Node) and source.op == "call_function" and source not in taken
    # A part of a result, and what is made of constants, go with those around them.
    if operator_of(node) == "getitem":
        return node.args[0] not in taken
    return node in fixed and not users & taken


class _Taken(OperatorSupportBase):  # type: ignore[misc]  # torch.fx has no type hints here
    def __init__(self, taken: set[Node]) -> None:
        self.taken = taken

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        return node in self.taken


def groups_of(program: ExportedProgram, taken: set[Node]) -> Iterator[tuple[Node, ...]]:
    """Groups without a way from one to itself through others; those that compute something."""
    module: GraphModule = program.graph_module
    proposed = CapabilityBasedPartitioner(
        module, _Taken(taken), allows_single_node_partition=True
    ).propose_partitions()
    order = {node: place for place, node in enumerate(program.graph.nodes)}
    groups = [tuple(sorted(each.nodes, key=order.__getitem__)) for each in proposed]
    for nodes in sorted(groups, key=lambda group: order[group[0]]):
        if any(node_computes(node) for node in nodes):
            yield nodes


def node_computes(node: Node) -> bool:
    """Whether an operator does more than quantize, or move values to another place."""
    name = operator_of(node)
    if name in ("getitem", *MOVING) or name.startswith(QUANTIZATION):
        return False
    return computes(name)


_COPIED = ("view", "permute", "squeeze", "unsqueeze", "expand", "alias", "slice", "select", "t")
MOVING = frozenset(
    (
        *(f"aten.{name}{copy}" for name in (*_COPIED, "transpose") for copy in ("", "_copy")),
        *("aten.clone", "dim_order_ops._to_dim_order_copy", "dim_order_ops._clone_dim_order"),
    )
)
