"""Signed images become unsigned ones where nobody sees it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.pass_graphs import (
    INT8,
    INT32,
    SHAPE,
    assert_same_meaning,
)
from tinyai.ir import Builder, DType, Op, Operand, Step, Type, verify
from tinyai.ops import (
    AdaptivePool2d,
    AvgPool2d,
    Concatenate,
    Conv2d,
    Elementwise,
    FloatAvgPool2d,
    MaxPool2d,
    Sum,
    Transpose,
)
from tinyai.ops.steps import (
    Add,
    Cast,
    Clip,
    FixedPointMultiply,
    Lookup,
    Multiply,
    MultiplyAdd,
    Relu,
    RightShift,
    Round,
    Subtract,
)
from tinyai.ops.window import Window
from tinyai.passes import make_unsigned


def requantized(builder: Builder, low: int = -128, zero_point: int = -5) -> tuple[Step, ...]:
    number = builder.constant(np.array(zero_point, np.int32))
    scale = FixedPointMultiply((2**30,), (-7,))
    return (scale, Add(operand=Operand(number)), Clip(low, 127), Cast(INT8))


def two_convolutions(**options: int) -> Builder:
    builder = Builder("region")
    x = builder.input(Type(SHAPE, INT8))
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    first = builder.add(Conv2d(Window((1, 1))), [x, weight], requantized(builder, **options))
    builder.add(Conv2d(Window((1, 1)), zero_point=-5), [first, weight], requantized(builder))
    return builder


def test_an_image_between_two_convolutions_becomes_unsigned() -> None:
    before = two_convolutions().graph(["t5"])
    after = verify(make_unsigned(before))
    first, second = after.nodes
    assert after.type(first.output).dtype is DType.UINT8
    assert [step.text(str) for step in first.epilogue[-3:]] == [
        "add(number_123_)",
        "clip(0, 255)",
        "cast(uint8)",
    ]
    assert second.op == Conv2d(Window((1, 1)), zero_point=123)
    assert after.type(after.outputs[0]).dtype is INT8
    assert_same_meaning(before, after)


def test_both_branches_of_a_sum_become_unsigned() -> None:
    builder = two_convolutions()
    x, y = "t3", "t5"
    five = builder.constant(np.array(-5, np.int32))
    centred = (Cast(INT32), Subtract(operand=Operand(five)))
    chain = (*centred, Add(operand=Operand(y, centred)), *requantized(builder))
    total = builder.add(Elementwise(SHAPE), [x], chain)
    before = builder.graph([total])
    after = verify(make_unsigned(before))
    assert [after.type(node.output).dtype for node in after.nodes] == ["uint8", "uint8", "int8"]
    assert_same_meaning(before, after)


def test_an_image_that_somebody_else_reads_or_that_is_returned_stays_signed() -> None:
    builder = two_convolutions()
    before = builder.graph(["t3", "t5"])
    assert str(make_unsigned(before)) == str(before)
    builder.add(Elementwise(SHAPE), ["t3"], (Relu(),))
    before = builder.graph(["t5", "t6"])
    assert str(make_unsigned(before)) == str(before)


def test_an_image_without_a_zero_point_gets_one_that_its_readers_take_off() -> None:
    builder = Builder("region")
    x = builder.input(Type(SHAPE, INT8))
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    seven = Operand(builder.constant(np.array(7, np.int32)))
    shift = (RightShift(operand=seven), Clip(-127, 127), Cast(INT8))
    image = builder.add(Conv2d(Window((1, 1))), [x, weight], shift)
    behind = builder.add(Conv2d(Window((1, 1))), [image, weight], shift)
    total = (Cast(INT32), Add(operand=Operand(image, (Cast(INT32),))), Clip(-127, 127), Cast(INT8))
    before = builder.graph([builder.add(Elementwise(SHAPE), [behind], total)])
    after = verify(make_unsigned(before))
    first, second, last = after.nodes
    assert [step.text(str) for step in first.epilogue[1:]] == [
        "add(number_128_)",
        "clip(1, 255)",
        "cast(uint8)",
    ]
    assert second.op == Conv2d(Window((1, 1)), zero_point=128)
    assert [after.type(node.output).dtype for node in after.nodes] == ["uint8", "uint8", "int8"]
    assert [type(step) for step in last.epilogue[:3]] == [Cast, Subtract, Add]
    assert_same_meaning(before, after)


def rounded(builder: Builder, zero_point: float | None, low: float = -128) -> tuple[Step, ...]:
    """A requantization in floats."""
    scale = Multiply(operand=Operand(builder.constant(np.array(0.37, np.float32))))
    number = builder.constant(np.array(zero_point or 0, np.float32))
    plus = (Add(operand=Operand(number)),) if zero_point is not None else ()
    return (Cast(DType.FLOAT32), scale, Round("even"), *plus, Clip(low, 127), Cast(INT8))


def convolutions_in_floats(zero_point: float | None = -5, low: float = -128) -> Builder:
    builder = Builder("region")
    x = builder.input(Type(SHAPE, INT8))
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    first = builder.add(Conv2d(Window((1, 1))), [x, weight], rounded(builder, zero_point, low))
    builder.add(Conv2d(Window((1, 1)), zero_point=-5), [first, weight])
    return builder


@pytest.mark.parametrize(("zero_point", "larger"), [(-5, 123), (None, 128), (0, 128), (-128, 0)])
def test_an_image_of_rounded_floats_becomes_unsigned(zero_point: int | None, larger: int) -> None:
    builder = convolutions_in_floats(zero_point=zero_point)
    before = builder.graph([builder.nodes[-1].output])
    after = verify(make_unsigned(before))
    first, second = after.nodes
    assert [step.text(str) for step in first.epilogue[-3:]] == [
        f"add(number_{larger}__float32)",
        "clip(0, 255)",
        "cast(uint8)",
    ]
    assert second.op == Conv2d(Window((1, 1)), zero_point=123)
    assert_same_meaning(before, after)


@pytest.mark.parametrize(
    "options",
    [
        {"zero_point": 0.5},
        {"low": -3.5},
        {"low": -np.inf},
        {"zero_point": 2.0**24},
        {"zero_point": np.inf},
    ],
)
def test_floats_that_are_no_small_integers_stay_signed(options: dict[str, float]) -> None:
    builder = convolutions_in_floats(**options)
    before = builder.graph([builder.nodes[-1].output])
    assert str(make_unsigned(before)) == str(before)


def test_rounding_comes_before_what_is_added() -> None:
    for order, unsigned in (((2, 3), True), ((3, 2), True), ((3,), False), ((), False)):
        builder = Builder("region")
        x = builder.input(Type(SHAPE, INT8))
        weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
        steps = rounded(builder, -5)
        steps = (*steps[:2], *(steps[n] for n in order), *steps[4:])
        first = builder.add(Conv2d(Window((1, 1))), [x, weight], steps)
        second = builder.add(Conv2d(Window((1, 1)), zero_point=-5), [first, weight])
        before = builder.graph([second])
        after = verify(make_unsigned(before))
        assert (after.type(first).dtype is DType.UINT8) is unsigned, order
        assert_same_meaning(before, after)


def test_floats_of_both_branches_of_a_sum_lose_what_was_added() -> None:
    builder = convolutions_in_floats()
    x, y = (node.output for node in builder.nodes)
    builder.nodes[-1] = replace(builder.nodes[-1], epilogue=rounded(builder, None))
    builder.tensors[y] = replace(builder.tensors[y], type=Type(SHAPE, INT8))
    five = Operand(builder.constant(np.array(2.5, np.float32)))
    inner = MultiplyAdd(0.75, operand=Operand(y, (Cast(DType.FLOAT32),)))
    chain = (Cast(DType.FLOAT32), Subtract(operand=five), inner, Round("even"))
    total = builder.add(Elementwise(SHAPE), [x], (*chain, Clip(-128, 127), Cast(INT8)))
    before = builder.graph([total])
    after = verify(make_unsigned(before))
    assert [after.type(node.output).dtype for node in after.nodes] == ["uint8", "uint8", "int8"]
    assert_same_meaning(before, after)


PADDED = Window((2, 2), (1, 1), padding=(1, 0, 0, 1))


@pytest.mark.parametrize(
    ("op", "unsigned"),
    [
        (AvgPool2d(PADDED), AvgPool2d(PADDED, zero_point=128)),
        (AvgPool2d(PADDED, rounded=True), AvgPool2d(PADDED, rounded=True, zero_point=128)),
        (AvgPool2d(PADDED, "NHWC", True), AvgPool2d(PADDED, "NHWC", True, zero_point=128)),
        (FloatAvgPool2d(PADDED, scale=0.5), FloatAvgPool2d(PADDED, zero_point=128, scale=0.5)),
        (AdaptivePool2d("avg", (1, 1)), AdaptivePool2d("avg", (1, 1), zero_point=128)),
        (Sum((1, 2)), Sum((1, 2))),
    ],
    ids=str,
)
def test_an_average_takes_the_zero_point_off(op: Op, unsigned: Op) -> None:
    builder = Builder("region")
    x = builder.input(Type((1, 2, 3, 2), INT8))
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    image = builder.add(Conv2d(Window((1, 1))), [x, weight], requantized(builder))
    before = builder.graph([builder.add(op, [image])])
    after = verify(make_unsigned(before))
    first, second = after.nodes
    assert after.type(first.output).dtype is DType.UINT8
    assert second.op == unsigned
    total = ["subtract(number_768_)"] if isinstance(op, Sum) else []
    assert [step.text(str) for step in second.epilogue] == total
    assert_same_meaning(before, after)


@pytest.mark.parametrize(
    "op", [MaxPool2d(Window((1, 2), padding=(0, 1, 0, 1))), Concatenate(1), Transpose((0, 2, 1, 3))]
)
def test_what_carries_elements_on_becomes_unsigned_with_what_it_reads(op: Op) -> None:
    builder = Builder("region")
    x = builder.input(Type((1, 3, 3, 2), INT8))
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    image = builder.add(Conv2d(Window((1, 1))), [x, weight], requantized(builder))
    read = [image, image] if isinstance(op, Concatenate) else [image]
    carried = builder.add(op, read)
    last = builder.add(Conv2d(Window((1, 1)), zero_point=-5), [carried, weight])
    before = builder.graph([last])
    after = verify(make_unsigned(before))
    assert [after.type(name).dtype for name in (image, carried)] == [DType.UINT8] * 2
    assert after.nodes[-1].op == Conv2d(Window((1, 1)), zero_point=123)
    assert_same_meaning(before, after)


def test_nothing_is_carried_on_where_one_part_has_to_stay_signed() -> None:
    builder = Builder("region")
    x = builder.input(Type((1, 3, 3, 2), INT8))
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    image = builder.add(Conv2d(Window((1, 1))), [x, weight], requantized(builder))
    turned = builder.add(Transpose((0, 2, 1, 3)), [image])
    both = builder.add(Concatenate(1), [turned, x])
    before = builder.graph([builder.add(Conv2d(Window((1, 1))), [both, weight])])
    assert str(make_unsigned(before)) == str(before)


def test_tables_make_and_read_unsigned_values() -> None:
    builder = Builder("region")
    x = builder.input(Type((1, 2, 3, 2), INT8))
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    image = builder.add(Conv2d(Window((1, 1))), [x, weight], requantized(builder))
    table = Lookup(tuple(range(127, -129, -1)), INT8)
    looked_up = builder.add(Elementwise((1, 2, 3, 2)), [image], (table,))
    before = builder.graph([builder.add(Conv2d(Window((1, 1))), [looked_up, weight])])
    after = verify(make_unsigned(before))
    assert [after.type(name).dtype for name in (image, looked_up)] == [DType.UINT8] * 2
    assert_same_meaning(before, after)


def test_an_image_that_a_maximum_returns_stays_signed() -> None:
    for op in (MaxPool2d(Window((2, 2))), AdaptivePool2d("max", (1, 1))):
        builder = two_convolutions()
        before = builder.graph([builder.add(op, ["t3"]), "t5"])
        assert str(make_unsigned(before)) == str(before)


def test_an_image_whose_larger_zero_point_could_wrap_stays_signed() -> None:
    builder = Builder("region")
    x = builder.input(Type(SHAPE, INT32))
    number = Operand(builder.constant(np.array(-5, np.int32)))
    steps = (Add(operand=number), Clip(-128, 127), Cast(INT8))
    image = builder.add(Elementwise(SHAPE), [x], steps)
    weight = builder.constant(np.arange(4, dtype=np.int8).reshape(2, 1, 1, 2))
    before = builder.graph([builder.add(Conv2d(Window((1, 1))), [image, weight])])
    assert str(make_unsigned(before)) == str(before)
