"""A kernel takes what is elementwise behind a reshape of its result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pass_graphs import INT8, INT32, Small, assert_becomes, assert_same_meaning
from tests.support.random_graphs import Maker
from tinyai.ir import DType, Graph, Operand, Step, Type, verify
from tinyai.ops import Dense, Elementwise, Reshape
from tinyai.ops.steps import Add, Cast, Clip, Fill, FixedPointMultiply
from tinyai.passes import fuse_epilogues, optimize, remove_unused, sink_reshapes

ROWS, UNITS = 4, 6


def product(b: Small, shape: tuple[int, ...]) -> str:
    """Sums of [4, 6], in another shape."""
    x = b.input(Type((ROWS, 3), INT8))
    weight = b.constant(np.arange(3 * UNITS, dtype=np.int8).reshape(UNITS, 3))
    return b.add(Reshape(shape), [b.add(Dense(), [x, weight])])


def of(b: Small, *values: int, shape: tuple[int, ...]) -> Step:
    return Add(operand=Operand(b.constant(np.resize(np.array(values, np.int32), shape))))


def test_a_product_takes_its_bias_a_residual_and_a_mask_behind_a_third_dimension() -> None:
    b = Small()
    shape = (1, ROWS, UNITS)
    sums = product(b, shape)
    residual, mask = b.input(Type(shape, INT8)), b.input(Type((1, 1, UNITS), DType.BOOL))
    scaled = FixedPointMultiply(tuple(2**30 + n for n in range(UNITS)), (-3,) * UNITS, 2)
    biased = b.step(sums, of(b, 1, 2, 3, shape=(UNITS,)), scaled)
    widened = Operand(residual, (Cast(INT32), of(b, 5, shape=(1, 1, 1))))
    y = b.step(biased, Add(operand=widened), Fill(-7, operand=Operand(mask)))
    z = b.step(y, Clip(-9, 90), Cast(INT8))
    assert_becomes(
        lambda graph: remove_unused(fuse_epilogues(sink_reshapes(graph))),
        b.graph([z]),
        """
        %t13: int8[4,6] = reshape(shape=(4, 6)) [%in4]
        %t14: bool[6] = reshape(shape=(6,)) [%in5]
        %t16: int8[4,6] = dense [%in0, %c1] >> add(%c6) >> fixed_point_multiply(6 along axis 1, \
upward) >> add(%t13 >> cast(int32) >> add(%c12)) >> fill(%t14, -7) >> clip(-9, 90) >> cast(int8)
        %t10: int8[1,4,6] = reshape(shape=(1, 4, 6)) [%t16]
        """,
    )


def reads_nothing_else(graph: Graph) -> bool:
    """Whether the kernel takes all."""
    return not any(isinstance(node.op, Elementwise) for node in optimize(graph).nodes)


@pytest.mark.parametrize(
    ("shape", "number", "moves"),
    [
        ((1, 4, 6), (6,), True),
        ((2, 2, 6), (6,), True),
        ((2, 2, 6), (1, 1, 6), True),
        ((2, 2, 6), (2, 2, 6), True),
        ((2, 2, 6), (2, 6), False),
        ((2, 2, 6), (2, 1, 1), False),
        ((2, 12), (1, 1), True),
        ((2, 12), (12,), False),
        ((24,), (), True),
        ((4, 2, 3), (2, 3), False),
        ((4, 6, 1), (6, 1), False),
        ((2, 2, 6), (1, 2, 2, 6), False),
    ],
)
def test_operands_go_with_it_where_both_shapes_have_their_dimensions(
    shape: tuple[int, ...], number: tuple[int, ...], moves: bool
) -> None:
    b = Small()
    sums = product(b, shape)
    whole = np.broadcast_shapes(shape, number)
    added = b.add(Elementwise(whole), [sums], (of(b, 7, -2, 5, 11, 3, shape=number),))
    graph = b.graph([b.step(added, Clip(-128, 127), Cast(INT8))])
    assert_same_meaning(graph, sink_reshapes(graph))
    assert reads_nothing_else(graph) is moves


def test_a_reshape_that_has_other_readers_stays_where_it_is() -> None:
    b = Small()
    sums = product(b, (1, ROWS, UNITS))
    graph = b.graph([b.step(sums, of(b, 1, shape=(UNITS,))), b.step(sums, Clip(0, 9))])
    assert sink_reshapes(graph).nodes == graph.nodes


SHAPES = ((1, 4, 6), (2, 2, 6), (4, 1, 6), (4, 2, 3), (4, 6, 1), (1, 2, 12), (24,))


@st.composite
def products(draw: st.DrawFn) -> Graph:
    """Reshaped sums, and elementwise nodes behind them with any steps and operands."""
    b = Small()
    make = Maker(draw, b, np.random.default_rng(draw(st.integers(0, 2**16))), [])
    shape = draw(st.sampled_from(SHAPES))
    x = product(b, shape)
    kinds = st.sampled_from([INT8, INT32, DType.BOOL])
    for some in draw(st.lists(st.sampled_from([shape, shape[-1:], (1,) * len(shape)]), max_size=3)):
        make.pool.append(b.input(Type(some, draw(kinds))))
    for _ in range(draw(st.integers(1, 3))):
        x = b.add(Elementwise(shape), [x], make.steps(b.type(x), 3))
    return verify(b.graph([x]))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(products())
def test_what_any_steps_behind_a_product_mean_stays_the_same(graph: Graph) -> None:
    assert_same_meaning(graph, verify(sink_reshapes(graph)))
    assert_same_meaning(graph, optimize(graph))
