"""Division as two multiplications: used where every float keeps its result, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.machines import require_isa, runner
from tinyai.codegen.quotient import Reciprocal, reciprocal_of
from tinyai.ir import Array, Builder, DType, Graph, Operand, Step, Type
from tinyai.ops import Elementwise, TableSoftmax
from tinyai.ops.steps import Add, Cast, Clip, Divide, Round, Subtract
from tinyai.reference import run_graph, run_steps
from tinyai.target import Target

NARROW = (DType.INT8, DType.UINT8, DType.INT16)
MODES = ("even", "away", "floor", "cut")


def quantization(
    divisor: float, to: DType, mode: str = "even", zero_point: int = 0, count: int = 1
) -> tuple[Graph, tuple[Step, ...]]:
    b = Builder("g")
    numbers = [b.constant(np.array(n, np.float32)) for n in (divisor, zero_point)]
    chain = (
        Divide(operand=Operand(numbers[0])),
        Round(mode),
        Add(operand=Operand(numbers[1])),
        Clip(*to.range),
        Cast(to),
    )
    of = Type((count,), DType.FLOAT32)
    return b.graph([b.add(Elementwise((count,)), [b.input(of)], chain)]), chain


def around(divisor: float, to: DType, zero_point: int) -> Array:
    """Floats next to where results change, and those at the ends of the type."""
    halves = np.arange(to.range[0] - 1, to.range[1] + 2) - zero_point + 0.5
    near = (halves * np.float64(np.float32(divisor))).astype(np.float32)
    steps = np.arange(-9, 10).astype(np.int32)
    values = (near.view(np.int32)[:, None] + steps).view(np.float32).reshape(-1)
    big = np.finfo(np.float32).max
    ends = [np.inf, -np.inf, np.nan, big, -big, 0.0, -0.0, 1e-45, -1e-45, 1e-38, 2e38, -2e38]
    return np.append(values, np.array(ends, np.float32))


def assert_exact(graph: Graph, chain: tuple[Step, ...], values: Array, found: Reciprocal) -> None:
    numbers = {name: value.reshape(-1) for name, value in graph.constants.items()}
    with np.errstate(all="ignore"):
        quotients = found.quotient(values)
        want, got = (run_steps(c, v, numbers) for c, v in ((chain, values), (chain[1:], quotients)))
    number = ~np.isnan(values)
    np.testing.assert_array_equal(got[number], want[number])
    assert np.isnan(quotients[~number]).all()


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    divisor=st.floats(2.0**-50, 2.0**50, width=32),
    to=st.sampled_from(NARROW[:2]),
    mode=st.sampled_from(MODES),
    zero_point=st.integers(-128, 255),
)
def test_every_float_next_to_a_tie_has_the_result_of_the_division(
    divisor: float, to: DType, mode: str, zero_point: int
) -> None:
    graph, chain = quantization(divisor, to, mode, zero_point)
    found = reciprocal_of(graph, chain)
    if found is not None:
        assert_exact(graph, chain, around(divisor, to, zero_point), found)


def test_nearly_every_scale_has_such_a_form() -> None:
    divisors = np.random.default_rng(0).uniform(0.001, 0.1, 200).astype(np.float32)
    found = [reciprocal_of(*quantization(float(d), DType.UINT8, "even", 133)) for d in divisors]
    assert sum(each is not None for each in found) > 190


def test_a_power_of_two_is_one_multiplication() -> None:
    found = reciprocal_of(*quantization(2.0**-5, DType.INT16))
    assert found == Reciprocal(np.float32(32), np.float32(0))


def test_all_floats_of_a_quantization() -> None:
    """A sample of each 4,096 of them, of both signs."""
    graph, chain = quantization(0.03249903, DType.UINT8, "even", 133)
    found = reciprocal_of(graph, chain)
    assert found is not None
    values = np.arange(0, 1 << 32, 4093, dtype=np.uint64).astype(np.uint32).view(np.float32)
    assert_exact(graph, chain, values, found)


def test_an_approximation_is_told_from_the_quotient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One product by the nearest reciprocal is wrong next to some tie: the proof sees it."""
    graph, chain = quantization(0.0123, DType.INT16, "away", 7)

    def rough(divisor: float) -> Reciprocal:
        return Reciprocal(np.float32(1 / divisor), np.float32(0))

    monkeypatch.setattr("tinyai.codegen.quotient._reciprocal", rough)
    assert reciprocal_of(graph, chain) is None


def test_other_chains_keep_their_division() -> None:
    graph, chain = quantization(0.1, DType.INT8)
    divide, rounds, _, clip, cast = chain
    assert reciprocal_of(graph, chain) is not None
    for other in (
        chain[:-1],
        chain[1:],
        (divide, clip),
        (divide, rounds, cast),
        (*chain[:3], Clip(-200, 100), cast),
        (divide, Cast(DType.INT32), clip, cast),
    ):
        assert reciprocal_of(graph, other) is None, other
    for divisor in (0.0, -0.5, 1e-30, 1e30, np.inf, np.nan):
        assert reciprocal_of(*quantization(divisor, DType.INT8)) is None, divisor
    b = Builder("channels")
    many = Operand(b.constant(np.array([0.1, 0.2], np.float32)))
    of = Type((2,), DType.FLOAT32)
    steps = (Divide(operand=many), clip, cast)
    channels = b.graph([b.add(Elementwise((2,)), [b.input(of)], steps)])
    assert reciprocal_of(channels, steps) is None
    assert reciprocal_of(channels, (divide, Subtract(operand=many), clip, cast)) is None


@pytest.mark.parametrize("to", NARROW)
@pytest.mark.parametrize("mode", MODES)
def test_vectors_compute_what_was_proved(to: DType, mode: str) -> None:
    require_isa("avx512vnni")
    values = around(0.0371, to, 5)
    values = values[~np.isnan(values)]
    graph, _ = quantization(0.0371, to, mode, 5, len(values))
    run = runner(graph, Target(isa="avx512vnni"))
    assert ("_mm512_fmadd_ps" in run.source.text) is ("_mm512_div_ps" not in run.source.text)
    with np.errstate(all="ignore"):
        (want,) = run_graph(graph, [values])
    np.testing.assert_array_equal(run(values)[0], want)


def softmax(powers: Array, factor: float, shape: tuple[int, int]) -> Graph:
    b = Builder("g")
    op = TableSoftmax(1, tuple(map(float, powers)), factor)
    return b.graph([b.add(op, [b.input(Type(shape, DType.UINT8))])])


@pytest.mark.parametrize("seed", range(6))
def test_shares_by_the_inverse_of_a_sum_are_those_of_division(seed: int) -> None:
    """Of powers with mantissas of all kinds, and exponents down to the least that is taken."""
    require_isa("avx512vnni")
    rng = np.random.default_rng(seed)
    mantissas = rng.integers(0, 2**23, 256)
    mantissas[::3] = rng.choice([0, 1, 2**22, 2**23 - 2, 2**23 - 1], mantissas[::3].size)
    least, largest = ((-99, -20), (-30, 0), (0, 10), (60, 113), (-3, 3), (20, 110))[seed]
    exponents = np.sort(rng.integers(least, largest + 1, 256))
    powers = np.ldexp(1 + mantissas / 2.0**23, exponents).astype(np.float32)
    graph = softmax(powers, 1.0, (300, 197))
    run = runner(graph, Target(isa="avx512vnni"))
    assert "tinyai_quotient_16(" in run.source.text
    # Rows whose largest value is not the last of the table have other sums.
    x = rng.integers(0, rng.integers(2, 257, (300, 1)), (300, 197)).astype(np.uint8)
    (found,), (wanted,) = run(x), run_graph(graph, [x])
    np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32))


@pytest.mark.parametrize(("least", "largest"), [(-101, 0), (-20, 120), (-90, 50)])
def test_shares_near_the_ends_of_float32_are_divided(least: int, largest: int) -> None:
    require_isa("avx512vnni")
    powers = np.ldexp(1.0, np.linspace(least, largest, 256).astype(int)).astype(np.float32)
    graph = softmax(powers, 1.0, (16, 197))
    run = runner(graph, Target(isa="avx512vnni"))
    assert "tinyai_quotient_16(" not in run.source.text
    x = np.random.default_rng(0).integers(0, 256, (16, 197)).astype(np.uint8)
    (found,), (wanted,) = run(x), run_graph(graph, [x])
    np.testing.assert_array_equal(found, wanted)
