"""Each formula of docs/arithmetic.md, computed as the page writes it, gives the integers of that
framework's arithmetic.

What the page has between backquotes is evaluated as it stands there, on all pairs of int8 or on
random integers. What it says in words is a function here, under the page's heading.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.paths import ROOT
from tinyai.arithmetic import OnnxArithmetic, TfliteArithmetic, TorchArithmetic, TvmArithmetic
from tinyai.builders import Arithmetic, Scale, Sides, Steps
from tinyai.ir import Builder, DType, Type
from tinyai.ops import Elementwise
from tinyai.ops import steps as step_classes
from tinyai.ops.functions import fused_multiply_add
from tinyai.ops.scales import fixed_point
from tinyai.reference import run_graph

Array = npt.NDArray[Any]
Make = Callable[[Builder, list[str]], Steps]

PAGE = (ROOT / "docs" / "arithmetic.md").read_text()
BYTES = np.arange(-128, 128, dtype=np.int8)
PAIRS = [each.reshape(-1) for each in np.meshgrid(BYTES, BYTES)]
RANDOM = np.random.default_rng(0)
SUMS = np.concatenate([np.arange(-3000, 3000), RANDOM.integers(-(2**24), 2**24, 4000)])
ACCUMULATORS = SUMS.astype(np.int32)
# The scales and zero points of two inputs and of the result: some that are near no simple number,
# and powers of two, under which many results lie on a half.
SCALES = {
    "odd": (0.0371, -3, 0.0517, 11, 0.0853, 5),
    "ties": (0.25, -3, 0.5, 11, 1.0, 5),
    "one is much larger": (0.9, 7, 0.0021, -128, 1.3, -9),
    "one is much smaller": (3e-3, 5, 0.9, -7, 1.1, 11),
}
each_scale = pytest.mark.parametrize("numbers", SCALES.values(), ids=SCALES)


def scales(numbers: tuple[float, ...]) -> list[Scale]:
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [Scale(np.asarray(scale, np.float32), int(zero)) for scale, zero in pairs]


def computed(make: Make, *inputs: Array) -> Array:
    """The results of the steps that ``make`` returns, on the first input."""
    builder = Builder("formula")
    names = [builder.input(Type(each.shape, DType(str(each.dtype)))) for each in inputs]
    result = builder.add(Elementwise(inputs[0].shape), names[:1], make(builder, names))
    (found,) = run_graph(builder.graph([result]), inputs)
    return found


def accumulated(how: Arithmetic, numbers: tuple[float, ...], maker: str = "") -> Array:
    a, b, target = scales(numbers)
    factors = a.scale, b.scale
    source = Scale(np.asarray(a.scale * b.scale, np.float32), 0, None, factors, maker)
    return computed(
        lambda builder, _: how.requantize(builder, source, target, DType.INT32, DType.INT8, 1),
        ACCUMULATORS,
    )


def quantized(how: Arithmetic, numbers: tuple[float, ...], x: Array) -> Array:
    target = scales(numbers)[2]
    return computed(lambda builder, _: how.quantize(builder, target, DType.INT8, 1), x)


def of_pairs(how: Arithmetic, numbers: tuple[float, ...], operation: str) -> Array:
    a, b, target = scales(numbers)

    def make(builder: Builder, names: list[str]) -> Steps:
        sides = Sides(a, b, names[1], (PAIRS[0].shape, PAIRS[1].shape))
        if operation == "multiply":
            return how.multiply(builder, sides, target, DType.INT8)
        return how.add(builder, sides, target, DType.INT8, step_classes.Add)

    return computed(make, *PAIRS)


# --- What the page's formulas are made of ---------------------------------------------------------


def away(value: Array) -> Array:
    """The nearest whole number, halves away from zero."""
    whole = np.trunc(value)
    return whole + np.where(np.abs(value - whole) >= 0.5, np.sign(value), 0)


def upward(acc: Array, ratio: float) -> Array:
    """R, under TVM's heading."""
    m, s = fixed_point(ratio)
    assert s <= 0
    return written("(acc * m + 2^(30 - s)) >> (31 - s)", acc=acc.astype(np.int64), m=m, s=s)


def twice(acc: Array, m: int, s: int) -> Array:
    """The two lines under TFLite's heading, in whole numbers."""
    assert "high = trunc((acc * m + nudge) / 2^31)" in PAGE
    assert "nudge = 2^30, or 1 - 2^30 where the product is negative" in PAGE
    product = acc.astype(np.int64) * m
    nudged = product + np.where(product >= 0, 2**30, 1 - 2**30)
    high = np.where(nudged >= 0, nudged >> 31, -(-nudged >> 31))
    return away(high / 2.0**-s).astype(np.int64)


def twice_by(acc: Array, ratio: float) -> Array:
    m, s = fixed_point(ratio)
    return twice(acc, m, s) if s <= 0 else twice(acc << s, m, 0)


def clip(value: Array) -> Array:
    return np.clip(value, -128, 127).astype(np.int8)


def written(formula: str, **names: object) -> Array:
    """The value of a formula of the page."""
    assert formula in PAGE
    python = formula.replace("^", "**").replace("(float)", "")
    known = {"clip": clip, "rint": np.rint, "away": away, "R": upward, "fma": fused_multiply_add}
    result: Array = eval(python, {**known, **names})
    return result


def float32(**names: Any) -> dict[str, Array]:
    """As arrays, of whose operations each result is a float32."""
    return {name: np.atleast_1d(np.asarray(value, np.float32)) for name, value in names.items()}


def named(numbers: tuple[float, ...]) -> dict[str, Any]:
    """The scales, as float32 holds them, and the zero points by the page's names."""
    a, b, target = scales(numbers)
    named_scales = {"sa": a.scale, "sb": b.scale, "so": target.scale}
    return {name: float(scale) for name, scale in named_scales.items()} | {
        "za": a.zero_point,
        "zb": b.zero_point,
        "zo": target.zero_point,
    }


def reals(so: float) -> Array:
    """Floats over the range of a result, of which half lie on halves of its scale."""
    halves = (np.arange(-300, 300) + 0.5) * so
    return np.concatenate([halves, 40 * so * RANDOM.standard_normal(600)]).astype(np.float32)


RATIOS = (0.75, 0.5, 0.3141592653589793, 0.0123, 1.7e-4, 3e-7)
INT32 = np.concatenate([RANDOM.integers(-(2**31), 2**31, 3000), [-(2**31), 2**31 - 1]])


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_ratio_is_a_multiplier_of_31_bits_and_a_shift(ratio: float) -> None:
    m, s = fixed_point(ratio)
    assert 2**30 <= m < 2**31
    assert s <= 0
    assert abs(Fraction(m) * Fraction(2) ** (s - 31) - Fraction(ratio)) <= Fraction(2) ** (s - 32)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize(("ties", "formula"), [("upward", upward), ("twice", twice_by)])
def test_all_of_int32_is_rescaled_by_the_formulas(
    ratio: float, ties: str, formula: Callable[[Array, float], Array]
) -> None:
    m, s = fixed_point(ratio)
    found = step_classes.FixedPointMultiply((m,), (s,), None, ties).reference(
        INT32.astype(np.int32), None
    )
    np.testing.assert_array_equal(found, formula(INT32, ratio))


def test_a_fused_product_and_sum_is_rounded_once() -> None:
    """To the nearest of the float32 numbers around the exact value, or to the even one."""
    numbers = RANDOM.integers(-128, 128, (3, 2000)) * np.float32(0.0371)
    found = fused_multiply_add(*(each.astype(np.float32) for each in numbers))
    for a, b, c, rounded in zip(*numbers.astype(np.float32), found, strict=True):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        near = np.float32(float(exact))
        around = [near, *(np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf))]
        distances = [abs(Fraction(float(each)) - exact) for each in around]
        even = [each.view(np.uint32) & 1 for each in around]
        wanted = min(zip(distances, even, around, strict=True))[2]
        assert rounded == wanted, (a, b, c)


# --- TVM ------------------------------------------------------------------------------------------


@each_scale
def test_tvm_s_accumulator(numbers: tuple[float, ...]) -> None:
    by = named(numbers)
    product = float(np.float32(by["sa"]) * np.float32(by["sb"]))
    m, s = fixed_point(product / by["so"])
    formula = "clip(((acc * m + 2^(30 - s)) >> (31 - s)) + zo)"
    wanted = written(formula, acc=SUMS, m=m, s=s, zo=by["zo"])
    np.testing.assert_array_equal(accumulated(TvmArithmetic(), numbers), wanted)


@each_scale
def test_tvm_s_sum(numbers: tuple[float, ...]) -> None:
    a, b = (each.astype(np.int64) for each in PAIRS)
    formula = "clip(R(a - za, sa / so) + R(b - zb, sb / so) + zo)"
    wanted = written(formula, a=a, b=b, **named(numbers))
    np.testing.assert_array_equal(of_pairs(TvmArithmetic(), numbers, "add"), wanted)


@each_scale
def test_tvm_s_quantize(numbers: tuple[float, ...]) -> None:
    by = named(numbers)
    x = reals(by["so"])
    wanted = written("clip(away(x * (1 / so)) + zo)", **float32(x=x, so=by["so"], zo=by["zo"]))
    np.testing.assert_array_equal(quantized(TvmArithmetic(), numbers, x), wanted)


# --- TFLite ---------------------------------------------------------------------------------------


@each_scale
def test_tflite_s_accumulator_is_rounded_twice(numbers: tuple[float, ...]) -> None:
    by = named(numbers)
    wanted = clip(twice_by(SUMS, by["sa"] * by["sb"] / by["so"]) + by["zo"])
    np.testing.assert_array_equal(accumulated(TfliteArithmetic(), numbers), wanted)


@each_scale
def test_tflite_s_fully_connected_layer_is_rounded_once(numbers: tuple[float, ...]) -> None:
    by = named(numbers)
    wanted = clip(away(SUMS * (by["sa"] * by["sb"] / by["so"])) + by["zo"])
    found = accumulated(TfliteArithmetic(), numbers, "quantized_dense")
    np.testing.assert_array_equal(found, wanted)


@each_scale
def test_tflite_s_sum_is_three_roundings(numbers: tuple[float, ...]) -> None:
    by = named(numbers)
    assert "shifts both sides 20 places up, rescales each to twice the larger scale" in PAGE
    larger = 2 * max(by["sa"], by["sb"])
    a, b = (each.astype(np.int64) for each in PAIRS)
    sides = twice_by((a - by["za"]) << 20, by["sa"] / larger)
    sides = sides + twice_by((b - by["zb"]) << 20, by["sb"] / larger)
    wanted = clip(twice_by(sides, larger / (2**20 * by["so"])) + by["zo"])
    np.testing.assert_array_equal(of_pairs(TfliteArithmetic(), numbers, "add"), wanted)


@each_scale
@pytest.mark.parametrize("n", [2, 9, 49, 100])
def test_tflite_s_mean_has_the_division_in_its_multiplier(
    numbers: tuple[float, ...], n: int
) -> None:
    source, _, target = scales(numbers)
    by = named(numbers)
    m, s = fixed_point(by["sa"] / by["so"])
    assert "`m' = (m << p) / n`, cut, with `p = min(floor(log2(n)), 32, 31 + s)`" in PAGE
    p = min(int(np.floor(np.log2(n))), 32, 31 + s)
    totals = RANDOM.integers(-128 * n, 127 * n + 1, 3000).astype(np.int32)
    wanted = clip(twice(totals - n * by["za"], (m << p) // n, s - p) + by["zo"])
    found = computed(
        lambda builder, _: TfliteArithmetic().mean(builder, source, target, n, DType.INT8), totals
    )
    np.testing.assert_array_equal(found, wanted)


# --- ONNX Runtime and XNNPACK ---------------------------------------------------------------------


@each_scale
@pytest.mark.parametrize("how", [OnnxArithmetic(), TorchArithmetic()], ids=["onnx", "torch"])
def test_an_accumulator_is_one_product_of_float32(
    how: Arithmetic, numbers: tuple[float, ...]
) -> None:
    by = named(numbers)
    assert "`r = (float32)(sx * sw) / so`, each operation in float32" in PAGE
    r = np.float32(np.float32(by["sa"]) * np.float32(by["sb"])) / np.float32(by["so"])
    formula = "clip(rint((float)acc * r) + zo)"
    wanted = written(formula, **float32(acc=ACCUMULATORS, r=r, zo=by["zo"]))
    np.testing.assert_array_equal(accumulated(how, numbers), wanted)


@each_scale
def test_onnx_runtime_s_sum(numbers: tuple[float, ...]) -> None:
    by = float32(**named(numbers))
    by |= {"a": PAIRS[0].astype(np.float32), "b": PAIRS[1].astype(np.float32)}
    assert "`ra = sa / so`, `rb = sb / so`" in PAGE
    by |= {"ra": by["sa"] / by["so"], "rb": by["sb"] / by["so"]}
    by["c"] = written("zo - fma(ra, za, rb * zb)", **by)
    wanted = written("clip(rint(fma(a, ra, fma(b, rb, c))))", **by)
    np.testing.assert_array_equal(of_pairs(OnnxArithmetic(), numbers, "add"), wanted)


def product(formula: str, numbers: tuple[float, ...]) -> Array:
    by = float32(a=PAIRS[0], b=PAIRS[1], **named(numbers))
    return written(formula, r=by["sa"] * by["sb"] / by["so"], **by)


@each_scale
def test_onnx_runtime_s_product(numbers: tuple[float, ...]) -> None:
    wanted = product("clip(rint((a - za) * (b - zb) * r + zo))", numbers)
    np.testing.assert_array_equal(of_pairs(OnnxArithmetic(), numbers, "multiply"), wanted)


@each_scale
def test_xnnpack_s_product(numbers: tuple[float, ...]) -> None:
    wanted = product("clip(rint((a - za) * (b - zb) * r) + zo)", numbers)
    np.testing.assert_array_equal(of_pairs(TorchArithmetic(), numbers, "multiply"), wanted)


@each_scale
@pytest.mark.parametrize(
    ("how", "formula"),
    [
        (OnnxArithmetic(), "clip(rint(x / so) + zo)"),
        (TorchArithmetic(), "clip(rint(x * (1 / so)) + zo)"),
    ],
    ids=["onnx", "torch"],
)
def test_quantize(how: Arithmetic, formula: str, numbers: tuple[float, ...]) -> None:
    by = named(numbers)
    x = reals(by["so"])
    wanted = written(formula, **float32(x=x, so=by["so"], zo=by["zo"]))
    np.testing.assert_array_equal(quantized(how, numbers, x), wanted)


@each_scale
def test_xnnpack_s_sum_is_of_fixed_point(numbers: tuple[float, ...]) -> None:
    by = named(numbers)
    ratios = [np.float32(np.float32(by[side]) / np.float32(by["so"])) for side in ("sa", "sb")]
    assert "the larger is at least `2^20` and below `2^21`, with one shift `k` for both" in PAGE
    k = 20 - int(np.floor(np.log2(max(ratios))))
    fa, fb = (int(np.rint(float(ratio) * 2.0**k)) for ratio in ratios)
    assert 2**20 <= max(fa, fb) < 2**21
    a, b = (each.astype(np.int64) for each in PAIRS)
    formula = "clip((((a - za) * fa + (b - zb) * fb + 2^(k - 1)) >> k) + zo)"
    wanted = written(formula, a=a, b=b, fa=fa, fb=fb, k=k, **by)
    np.testing.assert_array_equal(of_pairs(TorchArithmetic(), numbers, "add"), wanted)


@each_scale
@pytest.mark.parametrize("n", [2, 9, 49, 100])
def test_xnnpack_s_mean_is_one_product(numbers: tuple[float, ...], n: int) -> None:
    source, _, target = scales(numbers)
    totals = RANDOM.integers(-128 * n, 127 * n + 1, 3000).astype(np.int32)
    names = named(numbers)
    by = float32(sum=totals, n=n, si=names["sa"], zi=names["za"], so=names["so"], zo=names["zo"])
    by["B"] = written("si / so * (1 / n)", **by)
    wanted = written("clip(rint(sum * B + (zo - n * zi * B)))", **by)
    found = computed(
        lambda builder, _: TorchArithmetic().mean(builder, source, target, n, DType.INT8), totals
    )
    np.testing.assert_array_equal(found, wanted)
