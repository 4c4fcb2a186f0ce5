"""Small graphs for the tests of passes: a graph in, the nodes that are to come out."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

import numpy as np

from tests.support.random_graphs import random_inputs
from tinyai.ir import Builder, DType, Graph, Operand, Step, verify
from tinyai.ops import Conv2d, Elementwise
from tinyai.ops.steps import Add, Cast, Clip, Lookup
from tinyai.ops.window import Window
from tinyai.reference import run_graph

Pass = Callable[[Graph], Graph]
INT8, INT32, FLOAT32 = DType.INT8, DType.INT32, DType.FLOAT32
SHAPE = (1, 2, 2, 2)
CONV = "conv2d(1×1)"
TO_FLOAT = (Cast(INT32), Cast(FLOAT32))
NARROWED = (Clip(-128, 127), Cast(INT8))


def assert_same_meaning(before: Graph, after: Graph, seed: int = 1) -> None:
    inputs = random_inputs(before, seed)
    expected, found = run_graph(before, inputs), run_graph(after, inputs)
    for name, want, got in zip(before.outputs, expected, found, strict=True):
        assert (want.shape, want.dtype) == (got.shape, got.dtype)
        assert want.tobytes() == got.tobytes(), f"%{name}\n{before}\n{after}"


class Small(Builder):
    """A builder with the few operators that the cases below are made of."""

    def __init__(self) -> None:
        super().__init__("g")

    def step(self, x: str, *chain: Step, source: str = "") -> str:
        shape = self.type(x).shape
        return self.add(Elementwise(shape), [x], chain, (source,) if source else ())

    def spread(self, x: str, shape: tuple[int, ...], *chain: Step) -> str:
        return self.add(Elementwise(shape), [x], chain)

    def conv(self, x: str, *chain: Step, source: str = "") -> str:
        weight = self.constant(np.array([[3, -2], [1, 5]], np.int8).reshape(2, 1, 1, 2))
        op = Conv2d(Window((1, 1)))
        return self.add(op, [x, weight], chain, (source,) if source else ())

    def number(self, value: int | Sequence[int]) -> str:
        return self.constant(np.array(value, np.int32))


def add(name: str, *inner: Step) -> Add:
    return Add(operand=Operand(name, inner))


def assert_becomes(run: Pass, before: Graph, nodes: str) -> Graph:
    """``run`` turns ``before`` into a graph of these nodes, with the same results."""
    after = verify(run(verify(before)))
    short = str(Conv2d(Window((1, 1)))), CONV
    lines = [line[2:].replace(*short) for line in str(after).splitlines()]
    found = [line for line in lines if " = " in line]
    found = [line.replace("elementwise(shape=(1, 2, 2, 2))", "elementwise") for line in found]
    assert found == textwrap.dedent(nodes).strip().splitlines()
    assert_same_meaning(before, after)
    return after


def without_names(graph: Graph) -> str:
    """A graph in print, whose values are numbered in the order in which they are read and made, and
    whose nodes name no layers of the source model."""
    numbers: dict[str, str] = {}

    def number(name: re.Match[str]) -> str:
        return numbers.setdefault(name[0], f"%{len(numbers)}")

    nodes = [line.partition("  # ")[0] for line in str(graph).splitlines() if " = " in line]
    return re.sub(r"%\w+", number, "\n".join([*nodes, str(graph.outputs)]))


def lookups(graph: Graph) -> list[tuple[int, ...]]:
    steps = [step for node in graph.nodes for step in node.epilogue]
    return [step.table for step in steps if isinstance(step, Lookup)]
