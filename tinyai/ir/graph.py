"""Nodes and graphs, how they are printed and rewritten."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType

from tinyai.dropped import NOTHING, Dropped
from tinyai.ir.operators import Op
from tinyai.ir.steps import Step, format_steps, operand_tensors, rename_steps
from tinyai.ir.types import Array, Tensor, Type


@dataclass(frozen=True)
class Node:
    """``output = epilogue(op(inputs))``. ``sources`` are names from the user's model."""

    op: Op
    inputs: tuple[str, ...]
    output: str
    epilogue: tuple[Step, ...] = ()
    sources: tuple[str, ...] = ()

    def reads(self) -> tuple[str, ...]:
        """Every tensor that the node reads, inputs first, operands of steps after, each once."""
        return tuple(dict.fromkeys((*self.inputs, *operand_tensors(self.epilogue))))

    @property
    def named(self) -> str:
        """The operator, and the names by which the user's model knows the layer, for messages."""
        of = f" of layer {', '.join(map(repr, self.sources))}" if self.sources else ""
        return f"{self.op.name}{of}"


def rename_reads(node: Node, rename: Callable[[str], str]) -> Node:
    """The same node with every tensor that it reads renamed."""
    inputs = tuple(map(rename, node.inputs))
    return replace(node, inputs=inputs, epilogue=rename_steps(node.epilogue, rename))


@dataclass(frozen=True)
class Graph:
    """A region: inputs, constants, nodes in the order of execution, outputs.

    ``tensors`` holds every tensor by name; ``constants`` the values of those that are constant
    (read-only arrays). ``outputs`` are names of tensors that nodes define, each once.
    ``dropped`` is what passes left out of the source model.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Array] = field(default_factory=dict)
    dropped: Dropped = NOTHING

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))

    def type(self, name: str) -> Type:
        """Shape and dtype of a tensor."""
        return self.tensors[name].type

    def types(self, names: Iterable[str]) -> list[Type]:
        """Shapes and dtypes of tensors, in the order of their names."""
        return [self.type(name) for name in names]

    def computed(self, node: Node) -> Type:
        """The type of what a node's operator computes, before its epilogue."""
        return node.op.infer(*self.types(node.inputs))

    @functools.cached_property
    def makers(self) -> Mapping[str, Node]:
        """The node that defines each tensor that is neither an input nor constant."""
        return MappingProxyType({node.output: node for node in self.nodes})

    @functools.cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each tensor, in the order of execution, each once; none for what
        nobody reads."""
        found: dict[str, list[Node]] = {name: [] for name in self.tensors}
        for node in self.nodes:
            for name in node.reads():
                found[name].append(node)
        return MappingProxyType({name: tuple(nodes) for name, nodes in found.items()})

    @functools.cached_property
    def uses(self) -> Mapping[str, int]:
        """How often each tensor is read: by nodes (each read counts) and as an output."""
        count = dict.fromkeys(self.tensors, 0)
        for node in self.nodes:
            for name in (*node.inputs, *operand_tensors(node.epilogue)):
                count[name] += 1
        for name in self.outputs:
            count[name] += 1
        return MappingProxyType(count)

    def constant_operand(self, step: Step | None) -> Array | None:
        """The value of a step's operand, where that is constant and has no steps of its own."""
        if step is None or step.operand is None or step.operand.steps:
            return None
        return self.constants.get(step.operand.tensor)

    def number(self, name: str) -> Array | None:
        """The value of a constant that is one number, in whatever shape."""
        value = self.constants.get(name)
        return value if value is not None and value.size == 1 else None

    def number_operand(self, step: Step | None) -> Array | None:
        """``constant_operand``, where it is one number."""
        if step is None or step.operand is None or step.operand.steps:
            return None
        return self.number(step.operand.tensor)

    def macs(self) -> int:
        """Multiply-accumulates of a call."""
        return sum(node.op.macs(*self.types(node.inputs)) for node in self.nodes)

    def weight_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(value.nbytes for value in self.constants.values())

    def __str__(self) -> str:
        return print_graph(self)


def rewritten(
    graph: Graph, rewrite: Callable[[Node], Node | str], known: Mapping[str, str] | None = None
) -> Graph:
    """The graph with each node as ``rewrite`` gives it; where that is the name of another tensor,
    the node goes away, and all that follow read that tensor. ``known`` are such names of before."""
    instead = dict(known or {})
    nodes = []
    for node in graph.nodes:
        found = rewrite(rename_reads(node, lambda name: instead.get(name, name)))
        if isinstance(found, str):
            instead[node.output] = found
        else:
            nodes.append(found)
    return replace(graph, nodes=tuple(nodes))


def unused_name(prefix: str, *taken: Mapping[str, Tensor]) -> str:
    """A name for a new tensor that none of these has."""
    names = (f"{prefix}{number}" for number in count(len(taken[0])))
    return next(name for name in names if not any(name in each for each in taken))


def format_node(graph: Graph, node: Node) -> str:
    inputs = ", ".join(f"%{name}" for name in node.inputs)
    output = str(graph.tensors.get(node.output, f"%{node.output}: ?"))
    epilogue = f" >> {format_steps(node.epilogue)}" if node.epilogue else ""
    sources = f"  # {', '.join(node.sources)}" if node.sources else ""
    return f"{output} = {node.op} [{inputs}]{epilogue}{sources}"


def print_graph(graph: Graph) -> str:
    """The graph as text: one line a tensor or node, the same for the same graph."""
    lines = [f"graph {graph.name} {{"]
    lines += [f"  input {graph.tensors[name]}" for name in graph.inputs]
    lines += [f"  constant {graph.tensors[name]}" for name in graph.constants]
    lines += [f"  {format_node(graph, node)}" for node in graph.nodes]
    lines += [f"  return {', '.join(f'%{name}' for name in graph.outputs)}", "}"]
    return "\n".join(lines)
