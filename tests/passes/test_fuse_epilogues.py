"""Elementwise nodes go into the epilogues of those that make their inputs."""

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
from tinyai.ir import Operand, Step, Type, verify
from tinyai.ops import Reshape
from tinyai.ops.steps import (
    Add,
    Cast,
    Clip,
    LeftShift,
    Maximum,
    Minimum,
    Multiply,
    Relu,
    RightShift,
    Subtract,
    SubtractFrom,
)
from tinyai.passes import fuse_epilogues


def test_a_requantization_chain_becomes_the_epilogue_of_its_convolution() -> None:
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)), source="conv")
    y = b.step(y, add(b.number(64)), source="add")
    y = b.step(y, RightShift(operand=Operand(b.number(7))), source="shift")
    y = b.step(b.step(y, Clip(-127, 127)), Cast(INT8), source="conv")
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"""
        %t8: int8[1,2,2,2] = {CONV} [%in0, %c1] >> add(%c3) >> right_shift(%c5) >> clip(-127, 127)\
 >> cast(int8)  # conv, add, shift
        """,
    )


def test_a_value_that_is_read_twice_is_not_fused() -> None:
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)))
    graph = b.graph([b.step(y, Relu()), b.step(y, Cast(INT8))])
    assert len(fuse_epilogues(graph).nodes) == 3
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)))
    graph = b.graph([b.step(y, add(y))])
    assert_becomes(
        fuse_epilogues,
        graph,
        f"""
        %t2: int32[1,2,2,2] = {CONV} [%in0, %c1]
        %t3: int32[1,2,2,2] = elementwise [%t2] >> add(%t2)
        """,
    )


def test_an_output_is_not_fused_away() -> None:
    b = Small()
    y = b.conv(b.input(Type(SHAPE, INT8)))
    graph = b.graph([y, b.step(y, Relu())])
    assert_becomes(
        fuse_epilogues,
        graph,
        f"""
        %t2: int32[1,2,2,2] = {CONV} [%in0, %c1]
        %t3: int32[1,2,2,2] = elementwise [%t2] >> relu()
        """,
    )


def test_a_broadcast_is_not_fused_into_the_smaller_value() -> None:
    b = Small()
    small = b.step(b.input(Type((2,), INT32)), Relu())
    graph = b.graph([b.spread(small, SHAPE, Clip(-5, 5))])
    assert_becomes(
        fuse_epilogues,
        graph,
        """
        %t1: int32[2] = elementwise(shape=(2,)) [%in0] >> relu()
        %t2: int32[1,2,2,2] = elementwise [%t1] >> clip(-5, 5)
        """,
    )


def test_an_operator_without_epilogue_takes_no_steps() -> None:
    b = Small()
    flat = b.add(Reshape((8,)), [b.input(Type(SHAPE, INT8))])
    graph = b.graph([b.step(flat, Relu())])
    assert len(fuse_epilogues(graph).nodes) == 2


def test_the_second_branch_of_a_residual_add_is_converted_while_it_is_read() -> None:
    b = Small()
    x, other = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8))
    branch = b.step(other, Cast(INT32), source="cast")
    branch = b.step(branch, LeftShift(operand=Operand(b.number(3))), source="shift")
    y = b.step(b.conv(x, source="conv"), add(branch), source="add")
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"""
        %t7: int32[1,2,2,2] = {CONV} [%in0, %c5] >> add(%in1 >> cast(int32) >> left_shift(%c3))\
  # conv, add, cast, shift
        """,
    )


def test_operands_of_operands_are_converted_while_they_are_read_too() -> None:
    b = Small()
    x, y, z = (b.input(Type((3,), INT8)) for _ in range(3))
    inner = b.step(b.step(y, Cast(INT32)), add(b.step(z, Cast(INT32))))
    graph = b.graph([b.step(b.step(x, Cast(INT32)), add(inner))])
    assert_becomes(
        fuse_epilogues,
        graph,
        "%t7: int32[3] = elementwise(shape=(3,)) [%in0] >> cast(int32)"
        " >> add(%in1 >> cast(int32) >> add(%in2 >> cast(int32)))",
    )


def test_an_operand_that_is_read_twice_is_computed_once() -> None:
    b = Small()
    x, other = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8))
    branch = b.step(other, Cast(INT32))
    graph = b.graph([b.step(b.conv(x), add(branch)), b.step(b.conv(x), add(branch))])
    assert len(fuse_epilogues(graph).nodes) == 3


@pytest.mark.parametrize(
    ("step", "swapped"),
    [
        (Add, Add),
        (Multiply, Multiply),
        (Maximum, Maximum),
        (Minimum, Minimum),
        (Subtract, SubtractFrom),
        (SubtractFrom, Subtract),
    ],
)
def test_a_convolution_that_is_the_second_operand_takes_the_step_the_other_way_round(
    step: type[Step], swapped: type[Step]
) -> None:
    b = Small()
    x, first = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT32))
    y = b.step(first, step(operand=Operand(b.conv(x))), Relu())
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"%t4: int32[1,2,2,2] = {CONV} [%in0, %c2] >> {swapped.name}(%in1) >> relu()",
    )


def test_a_convolution_as_the_second_operand_takes_a_broadcast_first_one() -> None:
    b = Small()
    x, row = b.input(Type(SHAPE, INT8)), b.input(Type((2,), INT32))
    y = b.spread(row, SHAPE, Subtract(operand=Operand(b.conv(x))))
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"%t4: int32[1,2,2,2] = {CONV} [%in0, %c2] >> subtract_from(%in1)",
    )


def test_of_two_convolutions_the_first_takes_the_sum() -> None:
    b = Small()
    x, other = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8))
    y = b.step(b.conv(x, source="left"), add(b.conv(other, source="right")))
    assert_becomes(
        fuse_epilogues,
        b.graph([y]),
        f"""
        %t5: int32[1,2,2,2] = {CONV} [%in1, %c4]  # right
        %t6: int32[1,2,2,2] = {CONV} [%in0, %c2] >> add(%t5)  # left
        """,
    )


def test_an_operand_with_steps_of_its_own_keeps_its_side() -> None:
    b = Small()
    x, first = b.input(Type(SHAPE, INT8)), b.input(Type(SHAPE, INT8))
    y = b.step(first, add(b.conv(x), Cast(INT8)))
    graph = b.graph([y])
    after = verify(fuse_epilogues(verify(graph)))
    assert len(after.nodes) == 2
    assert_same_meaning(graph, after)
