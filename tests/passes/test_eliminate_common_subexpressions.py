"""Nodes that compute the same become one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.pass_graphs import (
    FLOAT32,
    INT8,
    INT32,
    Small,
    add,
    assert_becomes,
    assert_same_meaning,
)
from tinyai.ir import DType, Step, Type, verify
from tinyai.ops.steps import (
    Cast,
    Clip,
    Relu,
)
from tinyai.passes import eliminate_common_subexpressions


def test_equal_nodes_become_one_that_names_all_sources() -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    first, second = (
        b.step(x, add(b.number([1, 2, 3])), Cast(INT8), source=name) for name in ("a", "b")
    )
    graph = b.graph([b.step(b.step(first, Relu()), add(second))])
    assert_becomes(
        eliminate_common_subexpressions,
        graph,
        """
        %t2: int8[3] = elementwise(shape=(3,)) [%in0] >> add(%c1) >> cast(int8)  # a, b
        %t5: int8[3] = elementwise(shape=(3,)) [%t2] >> relu()
        %t6: int8[3] = elementwise(shape=(3,)) [%t5] >> add(%t2)
        """,
    )


def test_merged_nodes_make_their_readers_equal() -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    left, right = (b.step(b.step(x, Cast(INT8)), Relu()) for _ in range(2))
    graph = b.graph([b.step(left, add(right))])
    assert len(eliminate_common_subexpressions(graph).nodes) == 3


@pytest.mark.parametrize(
    "other", [Clip(0, 5), Cast(DType.UINT8), Relu()], ids=lambda step: step.name
)
def test_nodes_of_another_epilogue_stay_apart(other: Step) -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    first, second = b.step(x, Clip(0, 6)), b.step(x, other)
    graph = b.graph([b.step(first, Cast(INT8)), b.step(second, Cast(INT8))])
    assert len(eliminate_common_subexpressions(graph).nodes) == 4


def test_constants_of_equal_bytes_and_another_type_stay_apart() -> None:
    b = Small()
    x, y = b.input(Type((2,), INT32)), b.input(Type((2,), FLOAT32))
    zero, flat = b.number([0, 0]), b.constant(np.zeros(2, np.float32))
    graph = b.graph([b.step(x, add(zero)), b.step(y, add(flat))])
    assert_same_meaning(graph, verify(eliminate_common_subexpressions(graph)))


def test_constants_of_equal_bytes_and_another_shape_stay_apart() -> None:
    b = Small()
    x = b.input(Type((2, 2), INT32))
    row, column = b.constant(np.array([[1, 2]])), b.constant(np.array([[1], [2]]))
    graph = b.graph([b.step(x, Cast(DType.INT64), add(row), add(column))])
    assert_same_meaning(graph, verify(eliminate_common_subexpressions(graph)))


def test_outputs_keep_nodes_of_their_own() -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    graph = b.graph([b.step(x, Relu()), b.step(x, Relu())])
    after = eliminate_common_subexpressions(graph)
    assert after.outputs == graph.outputs
    assert len(after.nodes) == 2
