"""Rescaling of 8-bit values as one float operation: used where it is exact, and nowhere else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyai.codegen.line import line_of
from tinyai.ir import Builder, DType, Graph, Operand, Step, Type
from tinyai.ops import Elementwise
from tinyai.ops.steps import Add, Cast, Clip, FixedPointMultiply, Relu, Subtract
from tinyai.reference import run_steps

INT32 = DType.INT32


def rescaling(
    zero_point: int, multiplier: int, shift: int, offset: int, rounding: str = "upward"
) -> tuple[Graph, tuple[Step, ...]]:
    b = Builder("g")
    first, last = (b.constant(np.array(n, np.int32)) for n in (zero_point, offset))
    chain = (
        Cast(INT32),
        Subtract(operand=Operand(first)),
        FixedPointMultiply((multiplier,), (shift,), None, rounding),
        Add(operand=Operand(last)),
    )
    return b.graph([b.add(Elementwise((256,)), [b.input(Type((256,), DType.INT8))], chain)]), chain


def rounded(value: Fraction) -> int:
    """To the nearest float32, then to the nearest integer, halves to even."""
    assert Fraction(float(value)) == value  # so that what follows rounds once
    return int(np.rint(np.float32(float(value))))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    dtype=st.sampled_from((DType.INT8, DType.UINT8)),
    zero_point=st.integers(-128, 255),
    multiplier=st.integers(2**30, 2**31 - 1),
    shift=st.integers(-8, 3),
    offset=st.integers(-128, 255),
    rounding=st.sampled_from(("upward", "tonearest", "twice")),
)
def test_a_line_gives_every_value_what_its_steps_give(
    dtype: DType, zero_point: int, multiplier: int, shift: int, offset: int, rounding: str
) -> None:
    graph, chain = rescaling(zero_point, multiplier, shift, offset, rounding)
    line = line_of(graph, chain, dtype)
    if line is None:
        return
    chain = chain[: line.steps]
    values = np.arange(dtype.range[0], dtype.range[1] + 1).astype(dtype.numpy)
    numbers = {name: value.reshape(-1) for name, value in graph.constants.items()}
    want = run_steps(chain, values, numbers)
    a, b = Fraction(float(line.a)), Fraction(float(line.b))
    assert [rounded(int(x) * a + b) for x in values] == want.tolist()


def test_nearly_every_rescaling_to_eight_bits_is_a_line() -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(200):
        numbers = rng.integers(-128, 128), rng.integers(2**30, 2**31), rng.integers(-4, 1)
        graph, chain = rescaling(*map(int, numbers), int(rng.integers(-128, 128)))
        found += line_of(graph, chain, DType.INT8) is not None
    assert found >= 198


def test_a_line_ends_in_front_of_a_step_that_is_none() -> None:
    graph, chain = rescaling(3, 2**30 + 12345, 0, 5)
    for step in (Relu(), Clip(-9, 9)):
        line = line_of(graph, (*chain, step, *chain), DType.INT8)
        assert line is not None
        assert line.steps == 4


def test_results_that_a_float_cannot_hold_are_no_line() -> None:
    graph, chain = rescaling(3, 2**30 + 12345, 20, 5)
    assert line_of(graph, chain, DType.INT8) is None


def test_values_of_other_types_and_chains_without_a_multiplication_are_no_line() -> None:
    graph, chain = rescaling(3, 2**30 + 12345, 0, 5)
    assert line_of(graph, chain[1:], INT32) is None
    assert line_of(graph, chain[:2], DType.INT8) is None
    by_channel = FixedPointMultiply((2**30, 2**30 + 1), (0, 0), 0)
    assert line_of(graph, (chain[0], by_channel), DType.INT8) is None
