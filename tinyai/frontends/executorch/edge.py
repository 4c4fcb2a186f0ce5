"""From an exported program in the edge dialect, a delegate's or a whole one, to ``ir.Graph``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from tinyai.errors import OptionError, UnsupportedError
from tinyai.frontends.executorch.program import ARITHMETIC, Program
from tinyai.frontends.executorch.reader import constants_of, dim_order_of, type_of
from tinyai.ir import Graph
from tinyai.own import NO_BACKEND, OwnBackend
from tinyai.partition.model import ModelPart
from tinyai.source import Refusal
from tinyai.target import Target

# The name of the class of the back end: what the runtime asks for.
BACKEND = "TinyAIExecuTorchBackend"


def target_of(options: Mapping[str, Any]) -> Target:
    """Raises ``OptionError`` for an option that is none, for a rounding that is not PyTorch's, for
    an entry that is not the runtime's, and for a number that is text."""
    for name, allowed in (("rounding", ARITHMETIC.mode), ("abi", Target().abi)):
        if options.get(name, allowed) != allowed:
            raise OptionError(f"option {name!r}", found=options[name], allowed=allowed)
    for name, value in options.items():
        if isinstance(value, str) and isinstance(getattr(Target(), name, ""), int):
            hint = f"{name}={value}" if value.strip().isdecimal() else f"{name}=1"
            raise OptionError(f"option {name!r}", found=repr(value), allowed="a number", hint=hint)
    return Target.from_options({**options, "rounding": ARITHMETIC.mode})


@dataclass(frozen=True)
class EdgePort:
    """An input or output: the node's name, and its tensor as torch has it. ``dim_order`` are the
    dimensions of ``shape`` from the outermost in memory to the innermost."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]


@dataclass(frozen=True)
class EdgeGraph:
    """A program's graph, whose tensors have their dimensions in the order of memory: that of an
    input of ``graph`` is ``shape`` of its port in the order ``dim_order``.

    ``inputs`` and ``outputs`` are in the program's order, which is the graph's. ``handles`` has the
    debug handle of each node by its name: the ``sources`` of the graph's nodes are such names.
    """

    graph: Graph
    inputs: tuple[EdgePort, ...]
    outputs: tuple[EdgePort, ...]
    handles: Mapping[str, int]


def graph_of(
    program: ExportedProgram,
    target: Target | None = None,
    name: str = "net",
    own: OwnBackend = NO_BACKEND,
) -> EdgeGraph:
    """The graph of a program whose constants are in it, under the name ``name``, a C identifier.
    Nothing depends on ``target``: the arithmetic is PyTorch's, "torch". A back end of one's ``own``
    goes before tinyai.

    Raises ``UnsupportedError``, which names the operator, for what cannot be built.
    """
    inputs, outputs = ends_of(program)
    reading = Program(program, own=own)
    values = {node: reading(node) for node in program.graph.nodes if node.op != "output"}
    whole = ModelPart(reading, reading.parameters, values)
    try:
        graph = whole.graph(whole.integers(outputs), inputs, name)
    except Refusal as refusal:
        call = refusal.call
        what = f"operator {call.spelled} {call.name!r}" if call else "an operand"
        raise UnsupportedError(
            f"{what} of a program: {refusal.clause}",
            found=refusal.found,
            allowed=refusal.allowed,
            hint="leave it to another partitioner: tinyai.executorch.explain says what is taken",
        ) from None
    ports = tuple(map(_port, inputs)), tuple(map(_port, outputs))
    return EdgeGraph(graph, *ports, handles_of(program))


def ends_of(program: ExportedProgram) -> tuple[list[Node], list[Node]]:
    """The nodes that a program is called with, and those that it returns."""
    constants = constants_of(program)
    nodes = list(program.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder" and node not in constants]
    returned = next(node for node in nodes if node.op == "output").args[0]
    return inputs, [node for node in returned if isinstance(node, Node)]


def handles_of(program: ExportedProgram) -> dict[str, int]:
    """The debug handles of a program's nodes by their names."""
    found = ((node.name, node.meta.get("debug_handle")) for node in program.graph.nodes)
    return {name: handle for name, handle in found if isinstance(handle, int)}


def _port(node: Node) -> EdgePort:
    of = type_of(node)
    return EdgePort(
        node.name, of.dtype, tuple(int(dim or 0) for dim in of.shape), dim_order_of(node)
    )
