"""The formulas of docs/arithmetic.md are those of the code, in whole numbers and fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tests.support.paths import ROOT
from tinyai.arithmetic import arithmetic_of
from tinyai.builders import Arithmetic, Scale, Sides, Steps
from tinyai.ir import Array, Builder, DType, Type
from tinyai.ops import Elementwise
from tinyai.ops.scales import fixed_point
from tinyai.ops.steps import Add, FixedPointMultiply
from tinyai.reference import run_graph
from tinyai.source import Rounding

RATIOS = (0.75, 0.5, 0.3141592653589793, 0.0123, 1.7e-4, 3e-7)
SUMS = np.unique(
    np.concatenate(
        [
            np.arange(-600, 600),
            np.random.default_rng(0).integers(-(2**31), 2**31, 3000),
            [-(2**31), 2**31 - 1],
        ]
    )
).astype(np.int32)


def away(value: Fraction) -> int:
    """The nearest integer, halves away from zero."""
    size = int(abs(value) + Fraction(1, 2))
    return size if value >= 0 else -size


def upward(acc: int, m: int, s: int) -> int:
    """R of the page, under TVM's heading."""
    return (acc * m + 2 ** (30 - s)) >> (31 - s)


def twice(acc: int, m: int, s: int) -> int:
    """The two lines of the page, under TFLite's heading."""
    product = acc * m
    nudge = 2**30 if product >= 0 else 1 - 2**30
    high = int(Fraction(product + nudge, 2**31))  # cut towards zero
    return away(Fraction(high, 2**-s))


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_ratio_is_a_multiplier_of_31_bits_and_a_shift(ratio: float) -> None:
    m, s = fixed_point(ratio)
    assert 2**30 <= m < 2**31
    assert s <= 0
    assert abs(Fraction(m) * Fraction(2) ** (s - 31) - Fraction(ratio)) <= Fraction(2) ** (s - 32)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize(("ties", "formula"), [("upward", upward), ("twice", twice)])
def test_the_pages_formulas_are_the_steps(ratio: float, ties: str, formula: object) -> None:
    assert callable(formula)
    m, s = fixed_point(ratio)
    found = FixedPointMultiply((m,), (s,), None, ties).reference(SUMS, None)
    assert found.tolist() == [formula(int(acc), m, s) for acc in SUMS]


def test_the_page_has_these_formulas() -> None:
    page = (ROOT / "docs" / "arithmetic.md").read_text()
    assert "((acc * m + 2^(30 - s)) >> (31 - s))" in page
    assert "high = trunc((acc * m + nudge) / 2^31)" in page
    assert "nudge = 2^30, or 1 - 2^30 where the product is negative" in page
    for formula in (
        "q = clip(rint((float)acc * r) + zo)",
        "q = clip(away(x * (1 / so)) + zo)",
        "q = clip(rint(x / so) + zo)",
        "q = clip(rint(x * (1 / so)) + zo)",
        "q = clip(R(a - za, sa / so) + R(b - zb, sb / so) + zo)",
        "q = clip(rint(fma(a, ra, fma(b, rb, c))))",
        "c = zo - fma(ra, za, rb * zb)",
        "q = clip((((a - za) * fa + (b - zb) * fb + 2^(k - 1)) >> k) + zo)",
        "q = clip(rint((a - za) * (b - zb) * r + zo))",
        "q = clip(rint(sum * B + (zo - n * zi * B)))",
        "B = si / so * (1 / n)",
    ):
        assert formula in page, formula


# --- Each framework's operators, on random integers and scales ------------------------------------

F = np.float32
ZA, ZB, ZO = 5, -7, 11
A, B = np.random.default_rng(1).integers(-128, 128, (2, 2000)).astype(np.int8)
SCALES = [(F(0.031), F(0.0177), F(0.0421)), (F(0.5), F(0.25), F(0.125)), (F(3e-3), F(0.9), F(1.1))]
of_each_scale = pytest.mark.parametrize(("sa", "sb", "so"), SCALES)


def scale(value: np.float32, zero: int = 0, *factors: np.float32) -> Scale:
    return Scale(np.asarray(value), zero, factors=tuple(map(np.asarray, factors)))


def computed(chain: Callable[[Builder, list[str]], Steps], *given: Array) -> list[int]:
    """What steps make of the first of the inputs, by their numpy references."""
    builder = Builder("steps")
    names = [builder.input(Type(each.shape, DType(each.dtype.name))) for each in given]
    steps = chain(builder, names)
    graph = builder.graph([builder.add(Elementwise(given[0].shape), [names[0]], steps)])
    (result,) = run_graph(graph, list(given))
    return [int(each) for each in result]


def how(rounding: str) -> Arithmetic:
    return arithmetic_of(Rounding(rounding))


def sides(builder: Builder, names: list[str], sa: np.float32, sb: np.float32) -> Sides:
    return Sides(scale(sa, ZA), scale(sb, ZB), names[1], (A.shape, B.shape))


def clip(value: float) -> int:
    return int(min(max(value, -128), 127))


def fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a * b + c, rounded once: of the float32 numbers around it the nearest, or the even one."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = F(float(exact))
    around = (near, np.nextafter(near, F(-np.inf)), np.nextafter(near, F(np.inf)))
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


@of_each_scale
@pytest.mark.parametrize("rounding", ["onnx", "torch"])
def test_an_accumulator_is_multiplied_in_float32(sa, sb, so, rounding) -> None:
    r = F(F(sa * sb) / so)
    source, target = scale(F(sa * sb), 0, sa, sb), scale(so, ZO)
    sums = SUMS // 1000
    found = computed(
        lambda builder, names: how(rounding).requantize(
            builder, source, target, DType.INT32, DType.INT8, 1
        ),
        sums,
    )
    assert found == [clip(np.rint(F(F(acc) * r)) + ZO) for acc in sums]


@of_each_scale
@pytest.mark.parametrize("rounding", ["upward", "onnx", "torch"])
def test_floats_are_quantized(sa, sb, so, rounding) -> None:
    halves = np.arange(-300, 300).astype(F) / F(2) * so
    x = np.concatenate([halves, np.random.default_rng(2).normal(0, 3, 500).astype(F)])
    formulas = {
        "upward": lambda each: away(Fraction(float(F(each * F(F(1) / so))))),
        "onnx": lambda each: np.rint(F(each / so)),
        "torch": lambda each: np.rint(F(each * F(F(1) / so))),
    }
    found = computed(
        lambda builder, names: how(rounding).quantize(builder, scale(so, ZO), DType.INT8, 1), x
    )
    assert found == [clip(formulas[rounding](each) + ZO) for each in x]


@of_each_scale
@pytest.mark.parametrize("rounding", ["upward", "onnx", "torch"])
def test_sums_of_two_scales(sa, sb, so, rounding) -> None:
    found = computed(
        lambda builder, names: how(rounding).add(
            builder, sides(builder, names, sa, sb), scale(so, ZO), DType.INT8, Add
        ),
        A,
        B,
    )
    assert found == [SUM[rounding](int(a), int(b), sa, sb, so) for a, b in zip(A, B, strict=True)]


def rescaled(value: int, ratio: float) -> int:
    """R of the page; a positive shift goes first."""
    m, s = fixed_point(ratio)
    return upward(value << max(s, 0), m, min(s, 0))


def upward_sum(a: int, b: int, sa: np.float32, sb: np.float32, so: np.float32) -> int:
    ra, rb = (float(each) / float(so) for each in (sa, sb))
    return clip(rescaled(a - ZA, ra) + rescaled(b - ZB, rb) + ZO)


def onnx_sum(a: int, b: int, sa: np.float32, sb: np.float32, so: np.float32) -> int:
    ra, rb = F(sa / so), F(sb / so)
    c = F(F(ZO) - fma(ra, F(ZA), F(rb * F(ZB))))
    return clip(np.rint(fma(F(a), ra, fma(F(b), rb, c))))


def torch_sum(a: int, b: int, sa: np.float32, sb: np.float32, so: np.float32) -> int:
    ra, rb = F(sa / so), F(sb / so)
    k = next(k for k in range(60) if 2**20 <= max(ra, rb) * 2.0**k < 2**21)
    fa, fb = (round(float(each) * 2**k) for each in (ra, rb))
    return clip((((a - ZA) * fa + (b - ZB) * fb + 2 ** (k - 1)) >> k) + ZO)


SUM = {"upward": upward_sum, "onnx": onnx_sum, "torch": torch_sum}


@of_each_scale
@pytest.mark.parametrize("rounding", ["onnx", "torch"])
def test_products_add_the_zero_point_before_or_after_rounding(sa, sb, so, rounding) -> None:
    r = F(F(sa * sb) / so)

    def formula(a: int, b: int) -> int:
        product = F(F((a - ZA) * (b - ZB)) * r)
        return clip(np.rint(F(product + F(ZO))) if rounding == "onnx" else np.rint(product) + ZO)

    found = computed(
        lambda builder, names: how(rounding).multiply(
            builder, sides(builder, names, sa, sb), scale(so, ZO), DType.INT8
        ),
        A,
        B,
    )
    assert found == [formula(int(a), int(b)) for a, b in zip(A, B, strict=True)]


@of_each_scale
def test_torchs_mean_is_one_product(sa, sb, so) -> None:
    n, sums = 49, (SUMS // 400000).astype(np.int32)
    b = F(F(sa / so) * F(F(1) / F(n)))
    c = F(F(ZO) - F(F(n * ZA) * b))
    found = computed(
        lambda builder, names: how("torch").mean(
            builder, scale(sa, ZA), scale(so, ZO), n, DType.INT8
        ),
        sums,
    )
    assert found == [clip(np.rint(F(F(F(acc) * b) + c))) for acc in sums]
