"""Float32 functions of one value, as TVM's CPU code computes them.

TVM's LLVM code calls the C library for exp, log and erf and writes the others out in terms of
them, so the same calls in the same order give the same bits.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tinyai.ir import Array

ONE = np.float32(1)


def _from_libm(name: str) -> Callable[[Array], Array]:
    """A ``float name(float)`` of the C library, element by element."""

    def call(values: Array) -> Array:
        function = _libm_function(name)
        distinct, back = np.unique(values, return_inverse=True)
        results = np.array([function(float(x)) for x in distinct], np.float32)
        return results[back].reshape(values.shape)

    return call


@functools.cache
def _libm_function(name: str) -> Callable[[float], float]:
    library = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
    function = getattr(library, name)
    function.argtypes, function.restype = [ctypes.c_float], ctypes.c_float
    return function  # type: ignore[no-any-return]


exp = _from_libm("expf")


def sigmoid(x: Array) -> Array:
    return np.asarray(ONE / (ONE + exp(-x)))


def tanh(x: Array) -> Array:
    """Written with the exponential that does not overflow on the value's side of zero."""
    two = np.float32(2)
    small, large = exp(-two * x), exp(two * x)
    return np.where(x >= 0, (ONE - small) / (ONE + small), (large - ONE) / (large + ONE))


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of float32, rounded once.

    The product is exact in double precision. The sum is rounded to odd there, which makes its
    second rounding, to float32, the only one that shows (Boldo and Melquiond, "Emulation of a FMA
    and correctly rounded sums", 2008).
    """
    product = np.float64(a) * np.float64(b)
    addend = np.float64(c)
    total = np.asarray(product + addend)
    with np.errstate(invalid="ignore"):  # of infinities, which are exact
        back = total - product
        error = (product - (total - back)) + (addend - back)
    even = (total.view(np.int64) & 1) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    inexact = np.isfinite(total) & (error != 0)
    total = np.where(inexact & even, np.nextafter(total, towards), total)
    return np.asarray(total.astype(np.float32))


def mlas_logistic(x: Array) -> Array:
    """ONNX Runtime's sigmoid (MLAS): a quotient of polynomials, by fused multiply-adds."""
    x = np.clip(x, np.float32(-18), np.float32(18))
    square = x * x
    above = _polynomial(square, _LOGISTIC_ABOVE) * x
    quotient = above / _polynomial(square, _LOGISTIC_BELOW)
    return np.asarray(np.maximum(quotient + np.float32(0.5), np.float32(0)))


def mlas_tanh(x: Array) -> Array:
    """ONNX Runtime's tanh (MLAS), in the same form."""
    x = np.clip(x, np.float32(-9), np.float32(9))
    square = x * x
    return np.asarray(_polynomial(square, _TANH_ABOVE) * x / _polynomial(square, _TANH_BELOW))


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Horner's scheme, the highest power first."""
    total = np.full(x.shape, coefficients[0], np.float32)
    for coefficient in coefficients[1:]:
        total = fused_multiply_add(total, x, np.asarray(coefficient, np.float32))
    return total


_LOGISTIC_ABOVE = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
_LOGISTIC_BELOW = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)
_TANH_ABOVE = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_BELOW = (
    1.19825839466702e-06,
    1.18534705686654e-04,
    2.26843463243900e-03,
    4.89352518554385e-03,
)

# What one framework computes for a function that TVM has another formula for.
FRAMEWORK_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "mlas_logistic": mlas_logistic,
        "mlas_tanh": mlas_tanh,
        "tanhf": _from_libm("tanhf"),
    }
)

# By the name of TVM's operator.
FUNCTIONS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "abs": np.abs,
        "ceil": np.ceil,
        "erf": _from_libm("erff"),
        "exp": exp,
        "floor": np.floor,
        "log": _from_libm("logf"),
        "negative": np.negative,
        "rsqrt": lambda x: ONE / np.sqrt(x),
        "sigmoid": sigmoid,
        "sqrt": np.sqrt,
        "square": np.square,
        "tanh": tanh,
    }
)

# Of these every C compiler makes the same float32, for IEEE 754 says what they are.
EXACT_FUNCTIONS = ("abs", "negative", "rsqrt", "sqrt", "square")
