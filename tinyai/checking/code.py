"""Compiled code of a network: run, and watched at work beside the operators' references."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.backend import compile_network
from tinyai.checking.arithmetic import arithmetic
from tinyai.checking.difference import Difference, difference
from tinyai.checking.result import ArithmeticLine, FirstDifference
from tinyai.codegen.lowered import Lowered
from tinyai.ir import Array, Graph
from tinyai.network import Network
from tinyai.reference import run_node
from tinyai.runtime.runner import aligned_bytes, check_cpu, load, pointers
from tinyai.runtime.toolchain import Toolchain
from tinyai.runtime.watch import HOOK_FLAG, watched
from tinyai.target import Target

REFERENCE = "the operators' references"


@dataclass(frozen=True, eq=False)
class Code:
    """Code under test: ``name`` says which. ``run`` computes the outputs from the inputs, through
    ``library``, whose functions begin with ``symbol``; ``graph`` is what it was made from, None
    where that is not known. ``reset`` lets the next run begin from the initial state."""

    name: str
    library: ctypes.CDLL
    symbol: str
    graph: Lowered | None
    run: Callable[[Sequence[Array]], list[Array]]
    reset: Callable[[], None] = lambda: None

    def first_wrong_layer(
        self,
        inputs: Sequence[Array],
        before: Sequence[Sequence[Array]] = (),
        states: Sequence[Array] = (),
    ) -> FirstDifference | None:
        """The first layer whose result is not that of its operator's reference, if any, in the run
        on ``inputs``, which follows those ``before``, after which there are these ``states``. Asked
        where the graph is known; raises ``OptionError`` where the library has no hook."""
        graph, found = self.graph, list[FirstDifference]()
        assert graph is not None
        values = Values(graph, [*inputs, *states])

        def see(number: int, result: Array) -> None:
            if found:
                return
            node = graph.nodes[number]
            expected = run_node(node, values.known)
            wrong = difference(result, expected)
            if wrong:
                lines = arithmetic(graph, node, values.known, wrong.index)
                found.append(layer_of(graph, number, wrong, self.name, REFERENCE, lines))
            values.add(number, expected)

        self.reset()
        for each in before:
            self.run(each)
        with watched(self.library, self.symbol, graph, see):
            self.run(inputs)
        return found[0] if found else None


class Values:
    """The tensors of a graph while its nodes run in turn: those that are still to be read."""

    def __init__(self, graph: Graph, inputs: Sequence[Array]) -> None:
        self.known: dict[str, Array] = dict(graph.constants)
        self.known.update(zip(graph.inputs, inputs, strict=True))
        self._last = {name: i for i, node in enumerate(graph.nodes) for name in node.reads()}
        self._graph = graph

    def add(self, number: int, value: Array) -> None:
        """The result of a node; what nobody reads after it goes away."""
        node = self._graph.nodes[number]
        self.known[node.output] = value
        for name in node.reads():
            if self._last[name] <= number:
                self.known.pop(name, None)


def layer_of(
    graph: Graph,
    number: int,
    wrong: Difference,
    found_by: str,
    expected_by: str,
    lines: Sequence[ArithmeticLine] = (),
) -> FirstDifference:
    node, stored = graph.nodes[number], graph.tensors[graph.nodes[number].output].stored
    of = graph.type(node.output)
    return FirstDifference(
        number=number,
        layers=len(graph.nodes),
        names=node.sources,
        operator=str(node.op),
        type=f"{of} ({stored})" if stored else str(of),
        found_by=found_by,
        expected_by=expected_by,
        index=wrong.index,
        found=wrong.found,
        expected=wrong.expected,
        differing=wrong.count,
        elements=of.elements,
        arithmetic=tuple(lines),
    )


def compiled_code(network: Network, target: Target, toolchain: Toolchain | None = None) -> Code:
    """The network compiled for this machine, so that it can be watched."""
    compiled = compile_network(network, target.here())
    graph, source = compiled.graph, compiled.source
    toolchain = toolchain or Toolchain()
    hooked = Toolchain(toolchain.cc, (*toolchain.flags, HOOK_FLAG))
    library = load(source.text, hooked)
    entry = getattr(library, f"{source.symbol}_step" if network.states else source.symbol)
    entry.restype = ctypes.c_int32
    sizes = (source.arena_bytes, source.state_bytes) if network.states else (source.arena_bytes,)
    memories = [aligned_bytes(size) for size in sizes]

    def run(inputs: Sequence[Array]) -> list[Array]:
        arrays = [np.ascontiguousarray(each) for each in inputs]
        outputs = [np.empty(port.type.shape, port.type.dtype.numpy) for port in network.outputs]
        places = [ctypes.c_void_p(memory.ctypes.data) for memory in memories]
        check_cpu(entry(pointers(arrays), pointers(outputs), *places))
        return outputs

    def reset() -> None:
        if network.states:
            place = ctypes.c_void_p(memories[1].ctypes.data)
            getattr(library, f"{source.symbol}_reset")(place)

    reset()
    return Code(f"the C of {network.name}", library, source.symbol, graph, run, reset)
