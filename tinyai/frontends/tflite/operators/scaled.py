"""What readers of several operators have in common: scales, windows, activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyai.frontends.tflite.reader import Read, Site
from tinyai.frontends.tflite.tensors import FileTensor
from tinyai.ir import Array
from tinyai.source import Constant, Expr, SourceType, require
from tinyai.vocabulary import constant

SAME, VALID = 0, 1
# The fused activations of the schema that have a meaning here, by number: their bounds.
NONE = 0
BOUNDS = {1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}


def pair(tensor: FileTensor) -> tuple[Constant, Constant]:
    """The scale and the zero point of a tensor that has one of each."""
    return constant(tensor.scale, "float32"), constant(tensor.zero_point, "int32")


def to_scale(site: Site, value: Expr, scale: Array | np.float32, zero: int, axis: int = -1) -> Expr:
    """Integers at ``scale``, one or one along ``axis``, at the output's scale."""
    of = SourceType(value.type.shape, site.output.dtype)
    source = constant(scale, "float32"), constant(zero, "int32")
    attrs = {"axis": axis, "rounding": "None", "compute_dtype": "None"}
    return site.call("requantize", value, *source, *pair(site.output), of=of, **attrs)


def dequantized(site: Site, place: int = 0) -> Expr:
    """A float input, or the floats of a quantized one."""
    value, tensor = site.value(place), site.tensor(place)
    if not tensor.is_quantized:
        return value
    of = SourceType(value.type.shape, "float32")
    return site.call("dequantize", value, *pair(tensor), of=of, axis=-1)


def by_element(read: Read) -> Read:
    """A reader of an operator whose result has the shape of its input."""

    def checked(site: Site) -> Expr | tuple[Expr, ...]:
        found, wanted = site.tensor(0).shape, site.shape
        require(found == wanted, "shapes of input and result", (found, wanted), "one shape")
        return read(site)

    return checked


def of_floats(site: Site, function: Callable[[Expr], Expr]) -> Expr:
    """A function of floats of the first input: as it is, or between dequantize and quantize."""
    quantized = site.is_quantized()
    result = function(dequantized(site))
    return site.call("quantize", result, *pair(site.output), axis=-1) if quantized else result


def float_type(site: Site) -> SourceType:
    return SourceType(site.output.type.shape, "float32")


def activated(site: Site, value: Expr, of: SourceType | None = None) -> Expr:
    """The fused activation of an operator on its result; ``of`` is that of a result in another
    shape."""
    kind = site.options("FusedActivationFunction")
    require(kind == NONE or kind in BOUNDS, "fused activation", kind, "none, or a ReLU")
    return value if kind == NONE else bounded(site, value, *BOUNDS[kind])


def bounded(site: Site, value: Expr, low: float, high: float) -> Expr:
    """A result between two numbers, as TFLite rounds these to the result's scale."""
    output = site.output
    if not output.is_quantized:
        if math.isinf(high):
            return site.call("relu", value, of=value.type)
        return site.call("clip", value, of=value.type, low=low, high=high)
    ends = np.iinfo(output.dtype)
    steps = [ends.max if math.isinf(end) else _step(output, end) for end in (low, high)]
    first, last = (min(max(step, int(ends.min)), int(ends.max)) for step in steps)
    return site.call("clip", value, of=value.type, low=float(first), high=float(last))


def _step(tensor: FileTensor, real: float) -> int:
    """The integer of a real number, halves away from zero, the quotient in float32."""
    quotient = float(np.float32(real) / tensor.scale)
    return tensor.zero_point + int(math.copysign(math.floor(abs(quotient) + 0.5), quotient))


def windows(
    site: Site, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...]:
    """Before each dimension, then after each, what ``SAME`` adds around ``sizes``; nothing for
    ``VALID``."""
    padding = site.options("Padding")
    require(padding in (SAME, VALID), "padding", padding, "SAME, VALID")
    require(min(strides) > 0, "strides", tuple(strides), "1 and more")
    added = [
        max(0, (-(-size // stride) - 1) * stride + taps - size) if padding == SAME else 0
        for size, taps, stride in zip(sizes, kernel, strides, strict=True)
    ]
    return (*(each // 2 for each in added), *(each - each // 2 for each in added))


def ints(values: Array) -> list[int]:
    return [int(value) for value in np.asarray(values).reshape(-1)]


def axes_of(values: Array, rank: int) -> tuple[int, ...]:
    """Axes in order, each once, which may be counted from the end."""
    found = ints(values)
    require(all(-rank <= axis < rank for axis in found), "axes", found, f"{-rank} .. {rank - 1}")
    return tuple(sorted({axis % rank for axis in found}))


def image_shape(tensor: FileTensor) -> tuple[int, int, int, int]:
    shape = tensor.shape
    require(len(shape) == 4, "dimensions", f"{len(shape)}, of {tensor.name!r}", "4")
    batch, height, width, channels = shape
    return batch, height, width, channels


Attributes = dict[str, Any]
