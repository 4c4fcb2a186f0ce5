"""A sum of two rescaled 8-bit tensors in 16-bit lanes: used where it is exact, and nowhere else."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyai.codegen.quantized_add import Branch, QuantizedAdd, branch_of, quantized_add_of
from tinyai.ir import Builder, DType, Graph, Operand, Step, Type
from tinyai.ops import Elementwise
from tinyai.ops.steps import Add, Cast, Clip, FixedPointMultiply, Multiply, Relu, Subtract

BYTES = np.arange(256, dtype=np.int64)


def in_lanes(branch: Branch) -> list[int]:
    """The documented formula; what has to fit 16 bits does."""
    assert 0 <= branch.above < 2**8
    assert 0 <= branch.scale < 2**16
    widened = BYTES + 256 * branch.above
    scaled = widened * branch.scale >> 16
    return (branch.times * widened + scaled + branch.constant).tolist()


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    zero_point=st.integers(0, 255),
    multiplier=st.integers(-(2**31) + 1, 2**31 - 1),
    shift=st.integers(-8, 3),
)
def test_a_branch_gives_every_byte_what_its_rescaling_gives(
    zero_point: int, multiplier: int, shift: int
) -> None:
    results = (BYTES - zero_point) * multiplier + 2 ** (30 - shift) >> 31 - shift
    branch = branch_of(tuple(results.tolist()))
    if branch is not None:
        assert in_lanes(branch) == results.tolist()


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.integers(-3, 3), min_size=256, max_size=256), st.integers(-2, 2))
def test_any_function_has_no_branch_or_an_exact_one(noise: list[int], slope: int) -> None:
    results = (BYTES * slope + np.array(noise) // 3).tolist()
    branch = branch_of(tuple(results))
    assert branch is None or in_lanes(branch) == results


def test_nearly_every_rescaling_is_a_branch() -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(200):
        zero_point, multiplier = int(rng.integers(256)), int(rng.integers(2**30, 2**31))
        shift = int(rng.integers(-3, 3))
        results = (BYTES - zero_point) * multiplier + 2 ** (30 - shift) >> 31 - shift
        found += branch_of(tuple(results.tolist())) is not None
    assert found >= 198


def test_a_slope_of_one_needs_no_product() -> None:
    branch = branch_of(tuple((BYTES - 128).tolist()))
    assert branch == Branch(times=1, above=0, scale=0, constant=-128)


class Sum:
    """A graph of one node: two branches of int8[256], and steps after their sum."""

    def __init__(self, *behind: Step, scale: Step | None = None):
        b = Builder("sum")
        x, y = (b.input(Type((256,), DType.INT8)) for _ in range(2))
        zero_point = Operand(b.constant(np.array(3, np.int32)))
        scale = scale or FixedPointMultiply((2**30 + 12345,), (1,))
        rescaled = Cast(DType.INT32), Subtract(operand=zero_point), scale
        chain = (*rescaled, Add(operand=Operand(y, rescaled)), *behind)
        self.graph: Graph = b.graph([b.add(Elementwise((256,)), [x], chain)])

    def form(self) -> QuantizedAdd | str:
        return quantized_add_of(self.graph, self.graph.nodes[0].epilogue, DType.INT8)


def test_a_sum_of_rescaled_branches_has_the_form() -> None:
    form = Sum(Clip(-100, 90), Cast(DType.INT8)).form()
    assert isinstance(form, QuantizedAdd)
    assert (form.low, form.high, form.dtype) == (-100, 90, DType.INT8)
    both = in_lanes(form.x)[0] + in_lanes(form.y)[0]
    ends = in_lanes(form.x)[0] - form.x.constant + in_lanes(form.y)[0] - form.y.constant
    assert form.constant == both - ends


def test_other_sums_say_why_they_have_not() -> None:
    tail = Clip(-100, 90), Cast(DType.INT8)
    assert "after the sum" in str(Sum(Clip(-100, 90)).form())
    assert "after the sum" in str(Sum(*tail, Cast(DType.INT32), Relu()).form())
    assert "no line" in str(Sum(*tail, scale=Relu()).form())
    by_200 = FixedPointMultiply((25 * 2**26,), (8,))
    assert "do not fit 16 bits" in str(Sum(*tail, scale=by_200).form())
    graph = Sum(*tail).graph
    chain = graph.nodes[0].epilogue
    assert "no sum" in str(quantized_add_of(graph, chain[:3], DType.INT8))
    assert "no function" in str(quantized_add_of(graph, chain, DType.INT32))
    multiplied = (*chain[:3], Multiply(operand=chain[3].operand), *tail)
    assert "no sum" in str(quantized_add_of(graph, multiplied, DType.INT8))
