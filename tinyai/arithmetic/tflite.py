"""The arithmetic of TFLite's reference kernels (LiteRT's ``BUILTIN_REF`` resolver) for int8.

Multipliers come from the scales in double precision; products round twice, halves away from zero.
Each formula was compared with LiteRT 2.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from tinyai.arithmetic.tflite_functions import lookup_of
from tinyai.builders import Arithmetic, Lowering, Scale, Sides, Steps
from tinyai.ir import NARROW, Array, Builder, DType, Operand, Step
from tinyai.ops import steps
from tinyai.ops.elementwise import apply, given_function
from tinyai.ops.functions import FUNCTIONS
from tinyai.ops.normalize import add_tflite_l2_norm
from tinyai.ops.scales import (
    FixedPoint,
    centred_product,
    dequantize,
    fixed_point,
    fixed_point_step,
    minus,
    narrow,
    number,
    plus,
    scale_of,
    times,
    widen,
)
from tinyai.ops.softmax import add_tflite_softmax
from tinyai.source import IN_FLOATS, Call, Expr, require

ADD_SHIFT = 20  # places that both sides of a sum are shifted up before they are rescaled


class TfliteArithmetic(Arithmetic):
    whose: ClassVar[str] = "TFLite's"
    divides_with_rescaling: ClassVar[bool] = True
    needs_requantized_means: ClassVar[bool] = True
    rounds_averages: ClassVar[bool] = True
    has_log_softmax: ClassVar[bool] = False
    has_layer_norm: ClassVar[bool] = False

    def requantize(
        self, builder: Builder, source: Scale, target: Scale, found: DType, to: DType, rank: int
    ) -> Steps:
        require(to in NARROW, "dtype of the result", to, ", ".join(NARROW))
        _require_one_zero_point(source)
        # LiteRT 2.3's reference kernel gives other integers than its optimized one, some of them
        # unset memory.
        sums = "SUM of integers, which LiteRT's own kernels compute in two ways"
        require(source.maker != "sum", "TFLite's arithmetic of", sums, "a MEAN")
        factors = [factor.astype(np.float64) for factor in source.factors or (source.scale,)]
        ratios = np.asarray(math.prod(factors[1:], start=factors[0]) / np.float64(target.scale))
        axis = source.axis if ratios.size > 1 else None
        if source.maker == "quantized_dense":
            step: Step = _dense_step(ratios, axis, target.zero_point, to)
        else:
            step = fixed_point_step(ratios, axis, "twice")
        return (
            *widen(found),
            *minus(builder, source.zero_point),
            step,
            *plus(builder, target.zero_point),
            *narrow(to),
        )

    def quantize(self, builder: Builder, target: Scale, to: DType, rank: int) -> Steps:
        _require_one_zero_point(target)
        scale = number(builder, target.spread(target.scale, rank), DType.FLOAT32)
        return (
            steps.Divide(operand=scale),
            steps.Round(),
            *plus(builder, target.zero_point, DType.FLOAT32),
            *narrow(to),
        )

    def add(
        self, builder: Builder, sides: Sides, target: Scale, to: DType, step: type[Step]
    ) -> Steps:
        """Both sides, 20 places up, at twice the larger scale; their sum at the output's."""
        largest = 2 * max(float(side.scale) for side in sides.scales)
        left, other = (
            (
                steps.Cast(DType.INT32),
                *minus(builder, side.zero_point),
                steps.LeftShift(operand=number(builder, ADD_SHIFT, DType.INT32)),
                _one(float(side.scale) / largest),
            )
            for side in sides.scales
        )
        return (
            *left,
            step(operand=Operand(sides.tensor, other)),
            _one(largest / (2**ADD_SHIFT * float(target.scale))),
            *plus(builder, target.zero_point),
            *narrow(to),
        )

    def multiply(self, builder: Builder, sides: Sides, target: Scale, to: DType) -> Steps:
        return (
            *centred_product(builder, sides),
            _one(float(sides.product_ratio(target))),
            *plus(builder, target.zero_point),
            *narrow(to),
        )

    def mean(self, builder: Builder, source: Scale, target: Scale, count: int, to: DType) -> Steps:
        """The division is part of the multiplier, in integers."""
        multiplier, shift = fixed_point(float(source.scale) / float(target.scale))
        places = min(int(math.log2(count)), 32, 31 + shift)
        divided = (multiplier << places) // count
        return (
            *minus(builder, source.zero_point * count),
            steps.FixedPointMultiply((divided,), (shift - places,), None, "twice"),
            *plus(builder, target.zero_point),
            *narrow(to),
        )

    def limits_after(
        self,
        bounds: tuple[float, float],
        source: Scale,
        target: Scale,
        found: DType,
        to: DType,
    ) -> Steps:
        """TVM's importer clips before the requantization, so ``bounds`` are on ``source``. Refuses
        those of which it can not be told which ReLU (``RELUS``) they are of, where that makes a
        difference."""
        return _relu_limits(bounds, source, target, found, to)

    def quantized_function(
        self, quantize: Call, lowering: Lowering, target: Scale, to: DType
    ) -> str | None:
        """Float functions between dequantize and quantize that are one operator of TFLite's, as its
        int8 kernel computes it.

        What a file has between a dequantize and a quantize of their own is ``IN_FLOATS``.
        """
        functions = _of_dequantized(quantize["data"])
        if not functions:
            return None
        last = functions[0]
        if any(each.origin == IN_FLOATS for each in functions):
            for each in functions:
                found = f"{each.spelled} of float32"
                require(each.op in EXACT, "TFLite's arithmetic of", found, ", ".join(EXACT))
            return None
        known = ", ".join((*TFLITE_FUNCTIONS, "leaky_relu", "softmax, hard-swish, L2 norm"))
        require(to is DType.INT8, "dtype of the result", to, "int8")
        dequantized = _dequantize_below(functions)
        data = dequantized["data"]
        source = scale_of(dequantized, "input")
        found = lowering.type(data).dtype
        require(found is DType.INT8, "dtype of the function's input", found, "int8")
        table = lookup_of(last, source, target)
        if table is not None:
            return apply(quantize, lowering, data, table, quant=target.qparams)
        names = " of ".join(each.spelled for each in functions)
        require(len(functions) == 1, "TFLite's arithmetic of", names, known)
        if last.op == "softmax":
            quantization = float(target.scale), target.zero_point
            allowed = 1 / 256, -128
            require(quantization == allowed, "quantization of a softmax", quantization, allowed)
            return add_tflite_softmax(last, lowering, data, float(source.scale))
        if last.op == "rms_norm":
            return add_tflite_l2_norm(last, lowering, source, target)
        function: Step
        if last.op == "function":  # the front end's, which knows what the kernel tabulates
            function = given_function(last)
        else:
            require(last.op in TFLITE_FUNCTIONS, "TFLite's arithmetic of", last.spelled, known)
            function = steps.Function(TFLITE_FUNCTIONS[last.op])
        builder = lowering.builder
        inverse = np.asarray(np.float32(1) / target.scale)
        chain = (
            *dequantize(builder, source, lowering.type(data).dtype, 0),
            function,
            *times(builder, inverse),
            steps.Round(),
            *plus(builder, target.zero_point, DType.FLOAT32),
            *narrow(to),
        )
        return apply(quantize, lowering, data, *chain, quant=target.qparams)


def _require_one_zero_point(of: Scale) -> None:
    """A tensor of TFLite's with a scale for each channel has one zero point."""
    fits = of.zero_points is None
    require(fits, "TFLite's arithmetic of", "a zero point for each channel", "one zero point")


# Float operators that work value by value or along an axis, as between dequantize and quantize.
OF_VALUES = frozenset(
    {
        *FUNCTIONS,
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "clip", "round"),
        *("relu", "leaky_relu", "prelu", "softmax", "log_softmax", "rms_norm", "function"),
    }
)
# Functions of floats that all compute alike, and that are defined for all of them.
EXACT = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "clip", "relu"),
    *("leaky_relu", "prelu", "abs", "negative", "floor", "ceil"),
)
# What TFLite's int8 kernel tabulates, by the operator's name.
TFLITE_FUNCTIONS: Mapping[str, str] = MappingProxyType({"sigmoid": "sigmoid", "tanh": "tanhf"})
RELUS = ((0.0, math.inf), (0.0, 6.0), (-1.0, 1.0))


def _relu_limits(
    bounds: tuple[float, float], source: Scale, target: Scale, found: DType, to: DType
) -> Steps:
    def imported(real: float) -> float:
        return source.zero_point + (real if math.isinf(real) else round(real / source.scale.item()))

    def wanted(real: float) -> float:
        places = np.asarray(np.float32(real) / np.float32(target.scale))
        return target.zero_point + (real if math.isinf(real) else int(_round_away(places)))

    def within(pair: tuple[float, float], dtype: DType) -> tuple[int, int]:
        low, high = (int(min(max(bound, dtype.range[0]), dtype.range[1])) for bound in pair)
        return low, high

    relus = [
        pair for pair in RELUS if within((imported(pair[0]), imported(pair[1])), found) == bounds
    ]
    require(bool(relus), "TFLite's arithmetic of", f"a clip to {bounds}", "a ReLU")
    ratio = float(source.scale) / float(target.scale)
    ends = [(end - source.zero_point) * ratio + target.zero_point for end in found.range]
    reached = math.floor(ends[0]), math.ceil(ends[1])
    limits = {
        within((max(wanted(low), reached[0]), min(wanted(high), reached[1])), to)
        for low, high in relus
    }
    require(len(limits) == 1, "TFLite's arithmetic of", f"one of the ReLUs {relus}", "one of them")
    return (steps.Clip(*limits.pop()),)


def _of_dequantized(value: Expr) -> list[Call]:
    """The float functions between ``value`` and a dequantize, last first; none where no dequantize
    is after functions alone."""
    found: dict[Call, None] = {}
    stack, dequantized = [value], False
    while stack:
        each = stack.pop()
        if not isinstance(each, Call) or each in found:
            continue
        if each.op == "dequantize":
            dequantized = True
        elif each.op in OF_VALUES:
            found[each] = None
            stack += each.args
    return list(found) if dequantized else []


def _dequantize_below(functions: list[Call]) -> Call:
    """The first dequantize that ``functions`` read."""
    return next(
        arg
        for each in functions
        for arg in each.args
        if isinstance(arg, Call) and arg.op == "dequantize"
    )


def _one(ratio: float) -> FixedPoint:
    return fixed_point_step(np.asarray(ratio), None, "twice")


# --- Fully connected -----------------------------------------------------------------------------


def _dense_step(ratios: Array, axis: int | None, zero_point: int, to: DType) -> Step:
    """TFLite multiplies this accumulator in double precision and rounds halves away from zero.

    Both that and a fixed-point product are rising steps of the accumulator, so they are equal
    everywhere if they are equal around each step that leads to a value of ``to``. A multiplier that
    passes is looked for next to the exact one. Of ratios around 1e-6 nine of ten have none: one of
    the steps is too near to an integer for 31 bits. Then it is a product in double precision.
    """
    ratios = ratios.reshape(-1)
    results = to.range[0] - zero_point, to.range[1] - zero_point
    found = [_proven(float(ratio), *results) for ratio in ratios]
    for ties in ("upward", "tonearest"):
        numbers = [each.get(ties) for each in found]
        if None not in numbers:
            multipliers, shifts = zip(*(n for n in numbers if n is not None), strict=True)
            return steps.FixedPointMultiply(multipliers, shifts, axis, ties)
    return steps.RealMultiply(tuple(ratios.tolist()), axis, "away", 0, *results)


def _proven(ratio: float, low: int, high: int) -> dict[str, tuple[int, int]]:
    """By what ties do, a multiplier and shift that equal ``round(accumulator * ratio)`` within
    ``low`` and ``high``."""
    exact, shift = fixed_point(ratio)
    edges = _edges(ratio, low, high)
    wanted = np.clip(_round_away(edges * ratio), low, high)
    result: dict[str, tuple[int, int]] = {}
    for nudge in (0, 1, -1, 2, -2, 3, -3):
        for ties in ("upward", "tonearest"):
            step = steps.FixedPointMultiply((exact + nudge,), (shift,), None, ties)
            if ties in result or not 0 <= exact + nudge < 2**31:
                continue
            got = step.reference(edges.astype(np.int32), None).astype(np.int64)
            if np.array_equal(np.clip(got, low, high), wanted):
                result[ties] = (exact + nudge, shift)
    return result


def _edges(ratio: float, low: int, high: int) -> Array:
    """Accumulators around each place where the result may step from one integer to the next."""
    results = np.arange(low - 1, high + 2, dtype=np.float64) + 0.5
    with np.errstate(over="ignore", divide="ignore"):
        places = np.clip(np.floor(results / ratio), -(2.0**31) + 4, 2.0**31 - 5)
    near = places[:, None] + np.arange(-3, 5)
    return np.asarray(np.unique(near), np.float64)


def _round_away(x: Array) -> Array:
    whole = np.trunc(x)
    away = np.abs(x - whole) >= 0.5
    return np.asarray(whole + np.where(away, np.sign(x), 0), np.int64)
