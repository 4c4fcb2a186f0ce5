"""The vector form of a requantization means what its steps mean."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.example_graphs import Builder
from tinyai.codegen.requantization import Requantization, Rounded, requantization_of
from tinyai.ir import Array, DType, Graph, Operand, Step, Type
from tinyai.ops import Elementwise
from tinyai.ops.scales import fixed_point
from tinyai.ops.steps import (
    Add,
    Cast,
    Clip,
    FixedPointMultiply,
    Multiply,
    Relu,
    RightShift,
    Round,
)
from tinyai.source import Refusal

CHANNELS = 3
Numbers = tuple[int, ...]
TAIL = (Clip(-127, 127), Cast(DType.INT8))


class Chain:
    """Steps after sums of three channels; numbers in them become constants of one graph."""

    def __init__(self) -> None:
        self.builder = Builder("chain")
        self.steps: list[Step] = []

    def with_number(
        self, kind: type[Add | RightShift | Multiply], *numbers: float, dtype: DType = DType.INT32
    ) -> "Chain":
        value = np.array(numbers[0] if len(numbers) == 1 else numbers, dtype.numpy)
        return self.then(kind(operand=Operand(self.builder.constant(value))))

    def then(self, *steps: Step) -> "Chain":
        self.steps += steps
        return self

    def graph(self) -> Graph:
        sums = self.builder.input(Type((1, CHANNELS), DType.INT32))
        node = self.builder.add(Elementwise((1, CHANNELS)), [sums], tuple(self.steps))
        return self.builder.graph([node])

    def form(self, reach: int) -> Requantization | str:
        graph = self.graph()
        (node,) = graph.nodes
        return requantization_of(
            graph, node, node.epilogue, CHANNELS, 1, np.full(CHANNELS, reach, np.int64)
        )

    def reference(self, sums: Array) -> Array:
        graph = self.graph()
        for step in self.steps:
            sums = step.reference(sums, step.operand and graph.constants[step.operand.tensor])
        return sums


def in_vectors(form: Requantization, sums: Array) -> Array:
    """The documented formula, in int32 wherever the form says so."""
    start = (sums + form.bias).astype(np.int32)
    if form.floats:
        product = start.astype(np.float32) * form.multiplier.view(np.float32)
        whole = np.rint(product).astype(np.int32) + form.offset
        return np.clip(whole, form.low, form.high).astype(form.dtype.numpy)
    wide = (start << form.left).astype(np.int64) * form.multiplier >> 32
    offset = form.offset - 2 * ((start < 0) & form.twice)
    shifted = (wide.astype(np.int32) + offset).astype(np.int32) >> form.right
    return np.clip(shifted, form.low, form.high).astype(form.dtype.numpy)


def in_rounding_instructions(form: Rounded, sums: Array) -> Array:
    """The same for the form of instructions that round, with what these saturate."""
    x = (sums + form.bias).astype(np.int32).astype(np.int64)
    high = x * form.multiplier + (2**30 if form.nearest else 0) >> 31
    high = high - ((high < 0) & form.away)
    places = -form.right.astype(np.int64)
    shifted = high + (np.left_shift(np.int64(1), places) >> 1) >> places
    halves = np.clip(np.clip(shifted, -(2**15), 2**15 - 1) + form.zero_point, -(2**15), 2**15 - 1)
    return np.clip(halves, form.low, form.high).astype(form.dtype.numpy)


def relay_quantize(bias: Numbers, *, relu: bool, rounding: int, places: Numbers) -> Chain:
    """What ``relay.quantize`` writes for a requantization."""
    chain = Chain().with_number(Add, *bias)
    if relu:
        chain.then(Relu())
    return chain.with_number(Add, rounding).with_number(RightShift, *places).then(*TAIL)


def each(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[Numbers]:
    return st.tuples(*[numbers] * CHANNELS)


@given(
    bias=each(st.integers(-500, 500)) | each(st.integers(-(2**31), 2**31 - 1)),
    relu=st.booleans(),
    rounding=st.integers(0, 31).map(lambda s: 2**s >> 1) | st.integers(-100, 100),
    places=each(st.integers(1, 31)) | st.tuples(st.integers(0, 31)),
    reach=st.integers(0, 2**32) | st.integers(0, 5000),
    zero_point=st.integers(-128, 128),
    seed=st.integers(0, 99),
)
def test_a_shift_that_has_a_vector_form_means_the_same_in_it(
    bias: Numbers,
    relu: bool,
    rounding: int,
    places: Numbers,
    reach: int,
    zero_point: int,
    seed: int,
) -> None:
    chain = relay_quantize(bias, relu=relu, rounding=rounding, places=places)
    chain.steps, tail = chain.steps[:-2], chain.steps[-2:]
    chain.with_number(Add, zero_point).then(*tail)
    form = chain.form(reach)
    if isinstance(form, str):
        return
    ends = [-reach, -reach + 1, -1, 0, 1, reach - 1, reach]
    drawn = np.random.default_rng(seed).integers(-reach, reach, (50, CHANNELS), endpoint=True)
    sums = np.concatenate([np.repeat(np.clip(ends, -reach, reach)[:, None], CHANNELS, 1), drawn])
    sums = sums.astype(np.int32)
    assert np.array_equal(in_vectors(form, sums), chain.reference(sums))
    if form.rounded:
        assert np.array_equal(in_rounding_instructions(form.rounded, sums), chain.reference(sums))


def edges(chain: Chain, reach: int) -> Array:
    """For each 8-bit result and channel, the least sum that gives it or more, by bisection."""
    results = np.arange(-128, 256)[:, None]
    below, at = (np.full((len(results), CHANNELS), each) for each in (-reach - 1, reach))
    while np.any(at - below > 1):
        middle = (below + at) >> 1
        there = chain.reference(middle.astype(np.int32)) >= results
        below, at = np.where(there, below, middle), np.where(there, middle, at)
    return at


def assert_means_the_same(chain: Chain, form: Requantization, reach: int, seed: int) -> None:
    """On sums at random and around every edge between two results."""
    near = [edges(chain, reach) + distance for distance in (-1, 0, 1)]
    drawn = np.random.default_rng(seed).integers(-reach, reach, (200, CHANNELS), endpoint=True)
    sums = np.clip(np.concatenate([*near, drawn]), -reach, reach).astype(np.int32)
    assert np.array_equal(in_vectors(form, sums), chain.reference(sums))
    if form.rounded:
        assert np.array_equal(in_rounding_instructions(form.rounded, sums), chain.reference(sums))


@settings(deadline=None)
@given(
    bias=each(st.integers(-500, 500)) | each(st.integers(-(2**20), 2**20)),
    multipliers=each(st.integers(2**30, 2**31 - 1) | st.sampled_from([0, 2**30, 2**31 - 1])),
    shifts=each(st.integers(-12, -1)) | each(st.integers(-31, 3)),
    rounding=st.sampled_from(["twice", "tonearest"]),
    zero_point=st.integers(-128, 127),
    low=st.integers(-128, 0),
    relu=st.booleans(),
    reach=st.integers(0, 2**28) | st.integers(0, 2**17),
    seed=st.integers(0, 99),
)
def test_other_roundings_that_have_a_vector_form_mean_the_same_in_it(
    bias: Numbers,
    multipliers: Numbers,
    shifts: Numbers,
    rounding: str,
    zero_point: int,
    low: int,
    relu: bool,
    reach: int,
    seed: int,
) -> None:
    low = min(zero_point, 126) if relu else low
    chain = Chain().with_number(Add, *bias)
    chain.then(FixedPointMultiply(multipliers, shifts, 1, rounding))
    chain.with_number(Add, zero_point).then(Clip(low, 127), Cast(DType.INT8))
    form = chain.form(reach)
    if isinstance(form, Requantization):
        assert_means_the_same(chain, form, reach, seed)


@given(
    bias=each(st.integers(-(2**20), 2**20)),
    factors=each(st.floats(2.0**-20, 2.0, width=32)),
    zero_point=st.integers(0, 255),
    seed=st.integers(0, 99),
)
def test_a_float_product_has_a_vector_form_that_means_the_same(
    bias: Numbers, factors: tuple[float, ...], zero_point: int, seed: int
) -> None:
    chain = Chain().with_number(Add, *bias).then(Cast(DType.FLOAT32))
    chain.with_number(Multiply, *factors, dtype=DType.FLOAT32).then(Round("even"))
    chain.with_number(Add, zero_point, dtype=DType.FLOAT32)
    chain.then(Clip(0, 255), Cast(DType.UINT8))
    form = chain.form(2**24)
    assert isinstance(form, Requantization), form
    assert form.numbers == ("multiplier", "offset")
    assert_means_the_same(chain, form, 2**24, seed)


def tflite(shift: int, low: int) -> Requantization:
    chain = Chain().then(FixedPointMultiply((1_234_567_891,), (shift,), None, "twice"))
    form = chain.with_number(Add, -5).then(Clip(low, 127), Cast(DType.INT8)).form(10**6)
    assert isinstance(form, Requantization), form
    return form


def test_rounding_twice_asks_for_the_sign_of_a_sum_only_where_it_can_show() -> None:
    assert tflite(-8, low=-128).twice
    assert not tflite(-8, low=-5).twice, "a ReLU"
    assert not tflite(0, low=-128).twice, "the second rounding has nothing to do"


def test_instructions_that_round_look_for_the_sign_of_a_sum_only_where_it_can_show() -> None:
    forms = [tflite(-8, low=-128), tflite(-8, low=-5), tflite(0, low=-128)]
    assert [form.rounded and (form.rounded.nearest, form.rounded.away) for form in forms] == [
        (True, True),
        (True, False),
        (True, False),
    ]
    assert tflite(2, low=-128).rounded is None, "shifted to the left"


def test_behind_a_relu_rounding_twice_needs_no_shift_before_the_product() -> None:
    assert tflite(-8, low=-5).numbers == ("multiplier", "offset", "right")


@pytest.mark.parametrize("relu", [False, True])
def test_the_requantization_of_relay_quantize_has_a_vector_form(relu: bool) -> None:
    form = relay_quantize((7, -90, 5), relu=relu, rounding=64, places=(7,)).form(10**6)
    assert isinstance(form, Requantization)
    assert (form.low, form.high) == (0 if relu else -127, 127)


@pytest.mark.parametrize(
    ("chain", "reach"),
    [
        (relay_quantize((0, 0, 0), relu=False, rounding=64, places=(7,)), 2**31 - 64),
        (relay_quantize((0, 0, 0), relu=True, rounding=128, places=(7,)), 1000),
        (relay_quantize((0, 0, 0), relu=False, rounding=0, places=(0,)), 1000),
    ],
    ids=["a sum that could wrap", "a rounding that moves 0", "no places"],
)
def test_a_shift_without_a_vector_form_says_so(chain: Chain, reach: int) -> None:
    assert chain.form(reach) == "no multiplication after the bias"


def test_a_zero_point_behind_bounds_moves_the_bounds() -> None:
    scale = FixedPointMultiply((2**30,), (-5,))
    chain = (
        Chain().then(scale, Relu()).with_number(Add, -128).then(Clip(-128, 127), Cast(DType.INT8))
    )
    form = chain.form(10**4)
    assert isinstance(form, Requantization)
    assert (form.low, form.high) == (-128, 127)
    sums = np.arange(-(10**4), 10**4, dtype=np.int32)[:, None].repeat(CHANNELS, 1)
    assert np.array_equal(in_vectors(form, sums), chain.reference(sums))


@pytest.mark.parametrize("ratio", [np.inf, np.nan])
def test_a_ratio_of_scales_that_is_no_finite_number_is_refused(ratio: float) -> None:
    with pytest.raises(Refusal, match="a finite one"):
        fixed_point(ratio)


def test_fixed_points_round_halves_away_from_zero_and_drop_what_is_too_small() -> None:
    half = 2.0**-32
    assert fixed_point(0.5 + half) == (2**30 + 1, 0)
    assert fixed_point(1.0 - half / 2) == (2**30, 1), "rounded up to the next power of two"
    assert fixed_point(2.0**-32) == (2**30, -31)
    assert fixed_point(2.0**-33) == (0, 0)
    assert fixed_point(0.0) == (0, 0)
