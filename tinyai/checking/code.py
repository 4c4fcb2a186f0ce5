"""Compiled code of a network: run, and watched at work beside the operators' references."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.backend import Compiled, compile_graph
from tinyai.checking.arithmetic import arithmetic
from tinyai.checking.difference import Difference, difference
from tinyai.checking.result import Layer
from tinyai.ir import Array, Graph, Node
from tinyai.network import Network
from tinyai.reference import run_node
from tinyai.runtime.runner import aligned_bytes, check_cpu, load, pointers
from tinyai.runtime.toolchain import Toolchain
from tinyai.runtime.watch import HOOK_FLAG, watched
from tinyai.target import Target

REFERENCE = "the operators' references"


@dataclass(frozen=True, eq=False)
class Code:
    """A library with the entry of ``compiled``, which it was made from; called with arrays of the
    graph's input types, it returns its outputs."""

    name: str
    compiled: Compiled
    library: ctypes.CDLL

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        graph, source = self.compiled.graph, self.compiled.source
        arrays = [np.ascontiguousarray(each) for each in inputs]
        outputs = [np.empty(of.shape, of.dtype.numpy) for of in graph.types(graph.outputs)]
        arena = aligned_bytes(source.arena_bytes)
        entry = getattr(self.library, source.symbol)
        entry.restype = ctypes.c_int32
        entry.argtypes = [ctypes.c_void_p] * 3
        check_cpu(entry(pointers(arrays), pointers(outputs), arena.ctypes.data))
        return outputs

    def first_wrong_layer(self, inputs: Sequence[Array]) -> Layer | None:
        """The first layer whose result is not that of its operator's reference, if any."""
        graph, found = self.compiled.graph, list[Layer]()
        values = Values(graph, inputs)

        def see(number: int, result: Array) -> None:
            if found:
                return
            node = graph.nodes[number]
            expected = run_node(node, values.known)
            wrong = difference(result, expected)
            if wrong:
                found.append(self._layer(number, wrong, values.known))
            values.add(number, expected)

        with watched(self.library, self.compiled.source.symbol, graph, see):
            self(inputs)
        return found[0] if found else None

    def _layer(self, number: int, wrong: Difference, values: Mapping[str, Array]) -> Layer:
        graph = self.compiled.graph
        lines = arithmetic(graph, graph.nodes[number], values, wrong.index)
        return layer_of(graph, number, wrong, self.name, REFERENCE, lines)


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
    lines: Sequence[object] = (),
) -> Layer:
    node: Node = graph.nodes[number]
    of = graph.type(node.output)
    return Layer(
        number=number,
        layers=len(graph.nodes),
        names=node.sources,
        operator=str(node.op),
        type=str(of),
        found_by=found_by,
        expected_by=expected_by,
        index=wrong.index,
        found=wrong.found,
        expected=wrong.expected,
        differing=wrong.count,
        elements=of.elements,
        arithmetic=tuple(lines),  # type: ignore[arg-type]
    )


def compiled_code(network: Network, target: Target, toolchain: Toolchain | None = None) -> Code:
    """The network compiled for this machine, so that it can be watched."""
    compiled = compile_graph(network.graph, target, abi="plain", hooked=True)
    toolchain = toolchain or Toolchain()
    hooked = Toolchain(toolchain.cc, (*toolchain.flags, HOOK_FLAG))
    return Code(f"the C of {network.name}", compiled, load(compiled.source.text, hooked))
