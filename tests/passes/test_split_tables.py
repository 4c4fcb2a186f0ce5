"""Look-ups after convolutions are nodes of their own."""

from __future__ import annotations

import pytest

from tests.support.pass_graphs import (
    CONV,
    INT8,
    INT32,
    NARROWED,
    SHAPE,
    Small,
    assert_becomes,
)
from tinyai.ir import Operand, Type
from tinyai.ops.steps import Cast, LeftShift, Lookup
from tinyai.passes import split_tables

TABLE = Lookup(tuple(range(127, -129, -1)), INT8)


def test_a_table_and_what_follows_it_leave_a_convolution() -> None:
    b = Small()
    shift = LeftShift(operand=Operand(b.number(3)))
    y = b.conv(b.input(Type(SHAPE, INT8)), *NARROWED, TABLE, Cast(INT32), shift, source="swish")
    assert_becomes(
        split_tables,
        b.graph([y]),
        f"""
        %t4: int8[1,2,2,2] = {CONV} [%in1, %c2] >> clip(-128, 127) >> cast(int8)  # swish
        %t3: int32[1,2,2,2] = elementwise [%t4] >> lookup(256 values of int8) >> cast(int32)\
 >> left_shift(%c0)  # swish
        """,
    )


@pytest.mark.parametrize("steps", [NARROWED, (TABLE,)])
def test_other_nodes_stay_as_they_are(steps: tuple[Lookup, ...]) -> None:
    b = Small()
    x = b.input(Type(SHAPE, INT8))
    graph = b.graph([b.step(x, *steps) if steps == (TABLE,) else b.conv(x, *steps)])
    assert str(split_tables(graph)) == str(graph)
