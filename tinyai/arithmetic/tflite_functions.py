"""Functions of one int8 value as TFLite's reference kernels compute them: 256 results each.

Each was compared with LiteRT 2.3 on all values and many scales.
"""

from __future__ import annotations

import numpy as np

from tinyai.builders import Scale
from tinyai.ir import Array, DType
from tinyai.ops.scales import fixed_point
from tinyai.ops.steps import FixedPointMultiply, Lookup
from tinyai.source import Call, Constant, Expr, require

# An int8 less its zero point, as a real number.
_VALUES = np.arange(-128, 128)


def lookup_of(value: Call, source: Scale, target: Scale) -> Lookup | None:
    """The table of the float function ``value`` of a dequantized tensor, from int8 at ``source``
    to int8 at ``target``; None where it is another function, or one of another float.

    Raises ``Refusal`` for scales that TFLite itself does not take.
    """
    x = _VALUES - source.zero_point
    if value.op == "leaky_relu" and _is_dequantize(value["data"]):
        # Either side of zero has a multiplier of its own; both ratios are taken in float32.
        alpha, from_scale = np.float32(float(value.attrs["alpha"])), np.float32(source.scale)
        to_scale = np.float32(target.scale)
        above, below = from_scale / to_scale, from_scale * alpha / to_scale
        results = np.where(x >= 0, _product(x, float(above)), _product(x, float(below)))
    elif _is_hard_swish(value):
        results = _hard_swish(x, source, target)
    else:
        return None
    results = np.clip(results + target.zero_point, -128, 127)
    return Lookup(tuple(map(int, results)), DType.INT8)


def _product(x: Array, ratio: float) -> Array:
    """``x`` times ``ratio``, which may be negative: its sign is taken off first."""
    multiplier, shift = fixed_point(abs(ratio))
    require(shift <= 30, "ratio of the scales", f"2**{shift}", "at most 2**30")
    step = FixedPointMultiply((multiplier,), (shift,), None, "twice")
    product = step.reference(x.astype(np.int32), None).astype(np.int64)
    return -product if ratio < 0 else product


# --- Hard-swish ----------------------------------------------------------------------------------


def _is_hard_swish(value: Expr) -> bool:
    """Whether ``value`` is x * clip(x + 3, 0, 6) / 6 of one dequantized x, as TVM's importer writes
    the operator."""
    if not (_is_by(value, "divide", 6) and isinstance(value, Call)):
        return False
    product = value["left"]
    if not (isinstance(product, Call) and product.op == "multiply"):
        return False
    for x, gate in (product.args, product.args[::-1]):
        if isinstance(gate, Call) and gate.op == "clip" and isinstance(x, Call):
            bounds = float(gate.attrs["low"]), float(gate.attrs["high"])
            above = gate["data"]
            if bounds == (0, 6) and isinstance(above, Call) and _is_by(above, "add", 3):
                return _is_dequantize(x) and above["left"] is x
    return False


def _is_dequantize(value: Expr) -> bool:
    return isinstance(value, Call) and value.op == "dequantize"


def _is_by(value: Expr, op: str, number: float) -> bool:
    """Whether ``value`` is ``op`` of something and the one number ``number``."""
    if not isinstance(value, Call) or value.op != op:
        return False
    by = value["right"]
    return isinstance(by, Constant) and by.value.size == 1 and float(by.value.reshape(())) == number


def _hard_swish(x: Array, source: Scale, target: Scale) -> Array:
    """In 16 bits: ``x`` times a factor in [0, 1] that rises from -3 to 3.

    x is shifted up by 7 places. The factor is x at the scale that makes 3.0 one half more than the
    largest int16, saturated, and brought from [-1, 1] to [0, 1].
    """
    fine = np.float32(1 / 128) * np.float32(source.scale)
    multiplier, shift = _fixed_point16(fine / np.float32(target.scale))
    steepness, places = _fixed_point16(fine / np.float32(3 / 32768))
    fits = -15 <= shift <= 0 and -15 <= places <= 15
    found = f"{source.scale}, {target.scale}"
    require(fits, "scales of a hard-swish", found, "of a ratio below 128, and not next to nothing")
    high = (x * 128).astype(np.int16).astype(np.int64)
    factor = high
    if places > 0:
        factor = _saturated(factor << (places - 1))
    factor = _high_product(factor, steepness)
    factor = _saturated(factor << 1) if places > 0 else _shifted(factor, -places)
    factor = (factor + 2**15) >> 1
    product = factor * _high_product(high, multiplier)
    cut = np.sign(product) * (np.abs(product) >> 15)
    return _shifted(cut, -shift)


def _fixed_point16(ratio: np.float32) -> tuple[int, int]:
    """``ratio`` as m * 2**(shift - 15), m of 15 bits: from the 31 bits, halves up."""
    multiplier, shift = fixed_point(float(ratio))
    return min((multiplier + 2**15) >> 16, 2**15 - 1), shift


def _saturated(x: Array) -> Array:
    return np.clip(x, -(2**15), 2**15 - 1)


def _high_product(a: Array, b: int) -> Array:
    """a * b / 2**15 to the nearest, halves away from zero, as gemmlowp rounds."""
    product = a * b
    nudged = product + np.where(product >= 0, 2**14, 1 - 2**14)
    return np.asarray(np.sign(nudged) * (np.abs(nudged) >> 15))


def _shifted(x: Array, places: int) -> Array:
    """x / 2**places, halves away from zero."""
    mask = (1 << places) - 1
    return np.asarray((x >> places) + ((x & mask) > (mask >> 1) + (x < 0)))
