"""What operators and steps answer passes is true of their numpy references."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.random_graphs import random_array
from tinyai.ir import Array, DType, Operand, Step, Type
from tinyai.ops import steps
from tinyai.ops.steps import STEP_KINDS

CHANNELS = 5
OPERAND = Operand("c")
STEPS: dict[str, tuple[Step, ...]] = {
    **{
        kind.name: (kind(operand=OPERAND),)
        for kind in STEP_KINDS.values()
        if issubclass(kind, steps._Binary) and kind is not steps.MultiplyAdd
    },
    "clip": (steps.Clip(-7, 90), steps.Clip(-128, 127), steps.Clip(-(2.0**31), 2.0**31 - 1)),
    "cast": tuple(map(steps.Cast, DType)),
    "relu": (steps.Relu(),),
    "leaky_relu": tuple(map(steps.LeakyRelu, (0.1, -0.5, 2.0, -3.0))),
    "multiply_add": (steps.MultiplyAdd(0.3, operand=OPERAND),),
    "round": tuple(map(steps.Round, ("away", "even", "floor", "cut"))),
    "fixed_point_multiply": tuple(
        steps.FixedPointMultiply((3 << 29, 5 << 28, 7, 0, -(1 << 30)), (-3, 0, 2, 1, -9), 1, how)
        for how in ("upward", "tonearest", "tflite")
    ),
    "real_multiply": (
        steps.RealMultiply((0.5, 0.25, 3.0, 1e-3, 0.1), 1, "cut", 3, -100, 90),
        steps.RealMultiply((0.3,), None, "away", 0, -128, 127),
    ),
    "lookup": (steps.Lookup(tuple((i * 37) % 251 for i in range(256)), DType.UINT8),),
    "function": (steps.Function("sqrt"),),
}


def cases(*dtypes: DType) -> Iterator[tuple[Step, Array, Array]]:
    """Steps with values of a type that they take, and an operand: at the edges and at random."""
    for name, kinds in STEPS.items():
        for step in kinds:
            for dtype in dtypes or tuple(DType):
                rng = np.random.default_rng(1)
                value = random_array(rng, Type((40, CHANNELS), dtype))
                if not dtype.is_float:
                    value[:4].T[:] = [*dtype.range, 0, -1 if dtype.range[0] else 1]
                operand = random_array(rng, Type((1, CHANNELS), dtype))
                if "shift" in name or name == "divide":
                    operand = np.arange(1, CHANNELS + 1).astype(dtype.numpy).reshape(1, -1)
                try:
                    step.result(dtype)
                except ValueError:
                    continue
                yield step, value, operand


def test_every_kind_of_step_is_tried() -> None:
    assert set(STEPS) == set(STEP_KINDS)
    assert {step.name for step, _, _ in cases()} == set(STEP_KINDS)


def test_a_commuted_step_gives_the_same_where_value_and_operand_change_places() -> None:
    found = set()
    for step, value, operand in cases():
        if step.commuted is not None:
            found.add(step.name)
            other = step.commuted(operand=OPERAND)
            there = step.reference(value, np.broadcast_to(operand, value.shape))
            back = other.reference(np.broadcast_to(operand, value.shape), value)
            np.testing.assert_array_equal(there, back)
    assert found == {"add", "multiply", "maximum", "minimum", "subtract", "subtract_from"}


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if not dtype.is_float])
def test_what_is_an_identity_changes_no_integer(dtype: DType) -> None:
    found = set()
    for step, value, operand in cases(dtype):
        for other in (operand, np.zeros_like(operand)):
            if step.is_identity(dtype, None if step.operand is None else other):
                found.add(step.name)
                np.testing.assert_array_equal(step.reference(value, other), value)
                assert step.result(dtype) is dtype
    assert {"add", "subtract", "cast"} <= found
    assert steps.Clip(*dtype.range).is_identity(dtype, None)


def test_what_commutes_with_widening_gives_the_same_in_64_bits() -> None:
    found = set()
    for step, value, operand in cases(DType.INT32):
        if step.commutes_with_widening():
            found.add(step.name)
            narrow, wide = (step.reference(v, operand) for v in (value, value.astype(np.int64)))
            np.testing.assert_array_equal(narrow, wide)
    assert found == {"fixed_point_multiply", "relu", "cast", "clip"}


def test_numbers_along_a_dimension_belong_to_elements() -> None:
    found = set()
    elements = [3, 0, 4]
    for step, value, operand in cases():
        if step.along is not None:
            found.add(step.name)
            some = step.with_elements(elements, 1)
            np.testing.assert_array_equal(
                some.reference(value[:, elements], operand),
                step.reference(value, operand)[:, elements],
            )
            turned = step.with_elements(range(CHANNELS), 0)
            np.testing.assert_array_equal(
                turned.reference(value.T, operand), step.reference(value, operand).T
            )
            if not step.keeps_channels:
                same, numbers = step.apart()
                other, fewer = some.apart()
                assert same == other
                np.testing.assert_array_equal(numbers[elements], fewer)
    assert found == {"fixed_point_multiply", "real_multiply"}


def test_no_result_is_larger_than_the_largest() -> None:
    for step, value, operand in cases(DType.INT32):
        few = value // 2**20
        size, most = (int(np.abs(each.astype(np.int64)).max()) for each in (few, operand))
        largest = step.largest(size, most, operand)
        if largest is not None and not step.result(DType.INT32).is_float:
            wide = step.reference(few.astype(np.int64), operand.astype(np.int64))
            fits = not isinstance(step, steps.Cast) or step.to.bytes >= 4
            assert not fits or np.abs(wide).max() <= largest, step


def test_a_step_without_traits_answers_what_is_true_of_any() -> None:
    step = steps.Function("sqrt")
    assert (step.commuted, step.along) == (None, None)
    assert not step.is_identity(DType.INT32, None)
    assert not step.commutes_with_widening()
    assert step.largest(1, 0, None) is None
