"""Values are stored narrow, and widened where they are read."""

from __future__ import annotations

import pytest

from tests.support.pass_graphs import (
    CONV,
    INT8,
    INT32,
    SHAPE,
    Small,
    add,
    assert_becomes,
    assert_same_meaning,
)
from tinyai.ir import DType, Op, Operand, Type, verify
from tinyai.ops import AdaptivePool2d, AvgPool2d, Reshape, Sum
from tinyai.ops.steps import (
    Cast,
    Clip,
    LeftShift,
    Lookup,
    Multiply,
    Relu,
)
from tinyai.ops.window import Window
from tinyai.passes import sink_widening

INT16 = DType.INT16


def test_a_value_in_front_of_a_residual_add_is_stored_as_int8() -> None:
    b = Small()
    x, other, shift = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8)), b.number(3)
    tail = (Cast(INT32), LeftShift(operand=Operand(shift)))
    wide = b.conv(x, Clip(-127, 127), Cast(INT8), *tail)
    y = b.conv(other, add(wide), Cast(INT8))
    z = b.step(wide, Relu(), Cast(INT8))
    assert_becomes(
        sink_widening,
        b.graph([y, z]),
        f"""
        %t4: int8[1,2,2,2] = {CONV} [%in0, %c3] >> clip(-127, 127) >> cast(int8)
        %t6: int8[1,2,2,2] = {CONV} [%in1, %c5] >> add(%t4 >> cast(int32) >> left_shift(%c2))\
 >> cast(int8)
        %t7: int8[1,2,2,2] = elementwise [%t4] >> cast(int32) >> left_shift(%c2) >> relu()\
 >> cast(int8)
        """,
    )


def test_a_per_channel_tail_sinks_into_readers_that_broadcast() -> None:
    b = Small()
    channel = b.number([3, 4])
    x = b.input(Type((2,), INT32))
    row = b.step(x, Clip(-9, 9), Cast(INT8), Cast(INT32), Multiply(operand=Operand(channel)))
    y = b.spread(row, SHAPE, Relu())
    z = b.spread(row, (3, 2), add(row))
    assert_becomes(
        sink_widening,
        b.graph([y, z]),
        """
        %t2: int8[2] = elementwise(shape=(2,)) [%in1] >> clip(-9, 9) >> cast(int8)
        %t3: int32[1,2,2,2] = elementwise [%t2] >> cast(int32) >> multiply(%c0) >> relu()
        %t4: int32[3,2] = elementwise(shape=(3, 2)) [%t2] >> cast(int32) >> multiply(%c0)\
 >> add(%t2 >> cast(int32) >> multiply(%c0))
        """,
    )


def test_a_table_of_wider_results_is_a_tail_too() -> None:
    """Its reader begins with what is stored now, which alone has a place in the table."""
    b = Small()
    x = b.conv(b.input(Type(SHAPE, INT8)), Clip(-127, 127), Cast(INT8))
    wide = b.step(x, Lookup(tuple(range(-512, 512, 4)), INT16))
    y = b.step(wide, Cast(INT32), Clip(-300, 300))
    graph = verify(b.graph([b.step(y, Relu())]))
    after = verify(sink_widening(graph))
    assert [after.type(node.output).dtype for node in after.nodes] == [INT8, INT8, INT16, INT32]
    assert_same_meaning(graph, after)


def test_a_tail_sinks_into_operands_of_operands() -> None:
    b = Small()
    x, y, z = (b.input(Type((3,), INT32)) for _ in range(3))
    wide = b.step(x, Cast(INT8), Cast(INT32))
    first, second = (b.step(each, add(each, add(wide))) for each in (y, z))
    assert_becomes(
        sink_widening,
        b.graph([first, second]),
        """
        %t3: int8[3] = elementwise(shape=(3,)) [%in0] >> cast(int8)
        %t4: int32[3] = elementwise(shape=(3,)) [%in1] >> add(%in1 >> add(%t3 >> cast(int32)))
        %t5: int32[3] = elementwise(shape=(3,)) [%in2] >> add(%in2 >> add(%t3 >> cast(int32)))
        """,
    )


def test_a_value_that_a_kernel_reads_whole_stays_wide() -> None:
    b = Small()
    x = b.input(Type((8,), INT32))
    wide = b.step(x, Cast(INT8), Cast(INT32))
    graph = b.graph([b.add(Reshape((2, 4)), [wide]), b.step(wide, Relu())])
    assert str(sink_widening(graph)) == str(graph)


def test_an_output_stays_wide() -> None:
    b = Small()
    wide = b.step(b.input(Type((8,), INT32)), Cast(INT8), Cast(INT32))
    graph = b.graph([wide, b.step(wide, Relu())])
    assert str(sink_widening(graph)) == str(graph)


def test_a_tail_that_reads_another_value_stays() -> None:
    b = Small()
    x, other = b.input(Type((8,), INT32)), b.input(Type((8,), INT32))
    wide = b.step(x, Cast(INT8), Cast(INT32), add(other))
    graph = b.graph([b.step(wide, Relu()), b.step(wide, Cast(INT8))])
    assert str(sink_widening(graph)) == str(graph)


def test_a_narrowing_epilogue_stays_where_it_is() -> None:
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)), Clip(-127, 127), Cast(INT8))
    graph = b.graph([b.step(y, Cast(INT32)), b.step(y, Relu())])
    assert str(sink_widening(graph)) == str(graph)


def test_a_sum_of_integers_widens_what_it_reads_itself() -> None:
    b = Small()
    wide = b.step(b.input(Type((3, 4), INT32)), Cast(INT8), Cast(INT32))
    total = b.add(Sum((1,)), [wide])
    assert_becomes(
        sink_widening,
        b.graph([b.step(wide, Relu()), total]),
        """
        %t1: int8[3,4] = elementwise(shape=(3, 4)) [%in0] >> cast(int8)
        %t2: int32[3] = sum(axes=(1,)) [%t1]
        %t3: int32[3,4] = elementwise(shape=(3, 4)) [%t1] >> cast(int32) >> relu()
        """,
    )


def test_a_sum_takes_a_tail_that_does_more_than_widen_as_it_is() -> None:
    b = Small()
    wide = b.step(b.input(Type((3, 4), INT32)), Cast(INT8), Cast(INT32), add(b.number(5)))
    graph = b.graph([b.add(Sum((1,)), [wide])])
    assert str(sink_widening(graph)) == str(graph)


@pytest.mark.parametrize(
    "op",
    [Sum((1, 2)), AvgPool2d(Window((2, 2))), AdaptivePool2d("avg", (1, 1))],
    ids=lambda op: op.name,
)
def test_a_reader_gets_no_type_that_it_does_not_take(op: Op) -> None:
    b = Small()
    wide = b.step(b.input(Type(SHAPE, INT16)), Cast(INT32))
    graph = b.graph([b.add(op, [wide], (Cast(INT16),))])
    assert str(verify(sink_widening(verify(graph)))) == str(graph)
