"""Chains of steps on 8-bit values become tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.pass_graphs import (
    CONV,
    FLOAT32,
    INT8,
    INT32,
    NARROWED,
    SHAPE,
    TO_FLOAT,
    Small,
    add,
    assert_becomes,
    assert_same_meaning,
    lookups,
)
from tinyai.ir import DType, Operand, Type, verify
from tinyai.ops.steps import (
    Add,
    Cast,
    Clip,
    FixedPointMultiply,
    LeftShift,
    Lookup,
    Multiply,
    Relu,
    Round,
)
from tinyai.passes import make_tables


def table_of(function: Callable[[Any], Any], start: DType = INT8) -> tuple[int, ...]:
    low, high = start.range
    return tuple(int(function(value)) for value in range(low, high + 1))


def test_a_function_in_float_of_one_8_bit_value_becomes_a_table() -> None:
    b = Small()
    half = b.constant(np.array(0.5, np.float32))
    by_half = Multiply(operand=Operand(half))
    y = b.conv(
        b.input(Type(SHAPE, INT8)), *NARROWED, *TO_FLOAT, by_half, Round(), *NARROWED, Relu()
    )
    after = assert_becomes(
        make_tables,
        b.graph([y]),
        f"%t3: int8[1,2,2,2] = {CONV} [%in1, %c2] >> clip(-128, 127) >> cast(int8)"
        " >> lookup(256 values of int8)",
    )
    halves_away = table_of(lambda value: max(np.sign(value) * ((abs(value) + 1) // 2), 0))
    assert lookups(after) == [halves_away]


def test_a_product_of_a_value_and_a_function_of_it_becomes_a_table() -> None:
    b = Small()
    x = b.input(Type((4,), DType.UINT8))
    square = Multiply(operand=Operand(x, TO_FLOAT))
    y = b.step(x, *TO_FLOAT, square, Round(), Clip(0, 255), Cast(DType.UINT8))
    after = assert_becomes(
        make_tables,
        b.graph([y]),
        "%t1: uint8[4] = elementwise(shape=(4,)) [%in0] >> lookup(256 values of uint8)",
    )
    assert lookups(after) == [table_of(lambda v: min(v * v, 255), DType.UINT8)]


def test_a_table_takes_the_short_steps_around_it() -> None:
    b = Small()
    table = Lookup(tuple(range(127, -129, -1)), INT8)
    x = b.input(Type((4,), INT8))
    after = verify(make_tables(verify(b.graph([b.step(x, Relu(), table, Clip(-9, 9))]))))
    assert lookups(after) == [table_of(lambda v: max(-9, min(9, -1 - max(v, 0))))]


def test_an_operands_product_a_channel_makes_no_table() -> None:
    b = Small()
    each = FixedPointMultiply((2**30 + 1, 2**30 + 7), (0, -3), 0)
    x = b.input(Type((2,), INT8))
    plus = Add(operand=Operand(x, (Cast(INT32), each)))
    graph = verify(b.graph([b.step(x, Cast(INT32), plus, *NARROWED)]))
    after = verify(make_tables(graph))
    assert lookups(after) == []
    assert_same_meaning(graph, after)


def test_integer_steps_become_a_table_from_four_on() -> None:
    shorter = (Cast(INT32), LeftShift(operand=Operand("c0")), Cast(INT8))
    longer = (*shorter[:2], *NARROWED)
    for chain, tables in ((shorter, 0), (longer, 1)):
        b = Small()
        b.number(1)
        graph = b.graph([b.step(b.input(Type((4,), INT8)), *chain)])
        after = verify(make_tables(verify(graph)))
        assert len(lookups(after)) == tables
        assert_same_meaning(graph, after)


@pytest.mark.parametrize("what", ["another tensor", "a constant a channel", "int16"])
def test_what_does_not_depend_on_one_8_bit_value_alone_is_no_table(what: str) -> None:
    b = Small()
    x = b.input(Type((4,), DType.INT16 if what == "int16" else INT8))
    other = {
        "another tensor": b.input(Type((4,), FLOAT32)),
        "a constant a channel": b.constant(np.arange(4, dtype=np.float32)),
        "int16": b.constant(np.array(0.5, np.float32)),
    }[what]
    graph = b.graph([b.step(x, *TO_FLOAT, add(other), Clip(-9, 9), Cast(INT8))])
    assert str(make_tables(graph)) == str(graph)


def test_a_value_that_has_changed_is_no_longer_the_nodes_input() -> None:
    b = Small()
    x = b.input(Type((4,), INT8))
    plus = b.step(x, Relu(), Clip(0, 5), *TO_FLOAT, *NARROWED, add(x))
    graph = verify(b.graph([plus]))
    after = verify(make_tables(graph))
    assert_same_meaning(graph, after)


def test_a_fixed_point_product_a_channel_is_no_table() -> None:
    each = FixedPointMultiply((2**30 + 1, 2**30 + 7), (0, -3), 0)
    one = FixedPointMultiply((2**30 + 1,), (0,))
    for step, tables in ((each, 0), (one, 1)):
        b = Small()
        graph = b.graph([b.step(b.input(Type((2,), INT8)), Cast(INT32), step, *NARROWED)])
        after = verify(make_tables(verify(graph)))
        assert len(lookups(after)) == tables
        assert_same_meaning(graph, after)


@pytest.mark.parametrize("values", [[1, -2, 3, 4], [7]])
def test_a_constant_that_meets_itself_is_the_value_at_both_places(values: list[int]) -> None:
    b = Small()
    c = b.constant(np.array(values, np.int8))
    graph = verify(b.graph([b.step(c, Cast(INT32), add(c, Cast(INT32)), *TO_FLOAT[1:], *NARROWED)]))
    after = verify(make_tables(graph))
    assert len(lookups(after)) == 1
    assert_same_meaning(graph, after)
