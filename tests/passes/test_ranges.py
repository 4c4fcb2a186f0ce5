"""What is said about the channels of a tensor is true: their bounds, and which are equal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.planted_channels import ARITHMETICS, planted
from tests.support.random_graphs import graphs, random_array, random_inputs
from tinyai.ir import Array, Builder, DType, Graph, Op, Operand, Type, verify
from tinyai.ops import OPS, Conv2d, Dense, Pad, Sum
from tinyai.ops.steps import RightShift
from tinyai.passes import drop_channels
from tinyai.passes.channels import equal_channels
from tinyai.passes.ranges import ranges
from tinyai.reference import run_node


def assert_true(graph: Graph, seed: int) -> None:
    """On random inputs every value lies in its channel's range, and channels of one number are
    equal. Bounds that are no numbers stand for every float."""
    known, numbers = ranges(graph), equal_channels(graph)
    values = dict(graph.constants)
    values |= dict(zip(graph.inputs, random_inputs(graph, seed), strict=True))
    for node in graph.nodes:
        values[node.output] = run_node(node, values)
    for name, value in values.items():
        rows = value.reshape(-1, graph.type(name).channels)
        low, high = known[name].low, known[name].high
        assert low.dtype == high.dtype == (np.float32 if value.dtype.kind == "f" else np.int64)
        assert low.shape == high.shape == rows.shape[1:]
        inside = (low <= rows) & (rows <= high)
        assert np.all(inside | (np.isnan(rows) & np.isinf(low))), f"%{name} in {graph}"
        if name not in graph.constants:
            assert_equal_where_numbers_are(rows, numbers[name])


def assert_equal_where_numbers_are(rows: Array, numbers: Array) -> None:
    for number in np.unique(numbers):
        same = rows[:, numbers == number]
        assert all(column.tobytes() == same[:, 0].tobytes() for column in same.T)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_planted_networks(arithmetic: str) -> None:
    for seed in range(200, 230):
        assert_true(planted(seed, arithmetic), seed)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(graph=graphs(), seed=st.integers(0, 2**16))
def test_any_graph(graph: Graph, seed: int) -> None:
    assert_true(graph, seed)


def test_bounds_of_a_border_around_integers_are_integers() -> None:
    """The border's value is a float, also where what it surrounds is not."""
    b = Builder("g")
    x = b.input(Type((1, 2, 3, 2), DType.INT32))
    padded = b.add(Pad(((0, 0), (1, 0), (0, 0), (0, 0)), -9722.0), [x])
    shift = RightShift(operand=Operand(b.constant(np.array([12], np.int32))))
    assert_true(verify(b.graph([b.add(Sum((1,)), [padded], (shift,))])), 1)


def examples() -> Iterator[tuple[Op, tuple[Type, ...]]]:
    return ((op, types) for kind in OPS for op, types in kind.examples())


def test_every_operator_on_a_few_values() -> None:
    """Inputs that are constant but for the last channel, so that bounds are as narrow as can be."""
    for op, types in examples():
        rng = np.random.default_rng(1)
        b = Builder("g")
        names = []
        for number, of in enumerate(types):
            value = random_array(rng, of)
            if value.ndim:
                value[..., :-1] = value.reshape(-1)[0]
            by_weights = number > 0 and isinstance(op, Conv2d | Dense)
            names.append(b.constant(value if not by_weights else random_array(rng, of)))
        graph = verify(b.graph([b.add(op, names)]))
        assert_true(graph, 1)
        assert drop_channels(graph).outputs == graph.outputs
