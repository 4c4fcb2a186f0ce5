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
        "tanh": tanh,
    }
)
