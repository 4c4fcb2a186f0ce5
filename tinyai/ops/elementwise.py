"""``elementwise``: a value as it is, for the epilogue to work on, and all that is lowered to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.builders import Lower, Lowering, OperatorRow
from tinyai.ir import Array, DType, Example, Move, Op, Operand, QParams, Step, Type, broadcasts
from tinyai.ops import steps
from tinyai.ops.functions import FUNCTIONS
from tinyai.ops.layout import Reshape
from tinyai.ops.scales import divided
from tinyai.source import Call, Constant, Expr, constant_of, fixed_type, require, sources
from tinyai.traits import ChannelMap, Dims


@dataclass(frozen=True)
class Elementwise(Move):
    """Copies its input, broadcast to ``shape``; the steps of the epilogue do the work.

    in: any type, a shape that broadcasts to ``shape``; out: the same type, ``shape``.
    """

    name: ClassVar[str] = "elementwise"
    takes_epilogue: ClassVar[bool] = True
    dims: ClassVar[Dims] = Dims.ALIGNED
    shape: tuple[int, ...]

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if not broadcasts(x.shape, self.shape):
            raise ValueError(f"{x} does not broadcast to {self.shape}")
        return Type(self.shape, x.dtype)

    def reference(self, *inputs: Array) -> Array:
        return np.broadcast_to(inputs[0], self.shape)

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        return replace(self, shape=shape)

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        (data,) = inputs
        if not (data.shape and self.shape):
            return None
        count = self.shape[-1]
        same = data.channels == count
        return ChannelMap((np.arange(count) if same else np.zeros(count, np.int64),))

    def with_channels(self, kept: Array, count: int) -> Op:
        return replace(self, shape=(*self.shape[:-1], count))

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Elementwise((2, 3)), (Type((2, 3), DType.INT8),)
        yield Elementwise((2, 5, 7, 3)), (Type((5, 1, 3), DType.INT32),)
        yield Elementwise(()), (Type((), DType.FLOAT32),)
        yield Elementwise((4, 1, 6)), (Type((1, 6), DType.INT64),)
        yield Elementwise((2, 5)), (Type((2, 5), DType.BOOL),)


def apply(
    call: Call, lowering: Lowering, value: Expr, *chain: Step, quant: QParams | None = None
) -> str:
    """A node that applies ``chain`` to ``value``, in the shape of the call's result."""
    shape = tuple(d for d in call.type.shape if d is not None)
    return lowering.builder.add(
        Elementwise(shape), [lowering.tensor(value)], tuple(chain), sources(call), quant
    )


def lower_identity(call: Call, lowering: Lowering) -> str:
    """stop_fusion and other operators that only mark a place."""
    return lowering.tensor(call["data"])


def lower_broadcast_to(call: Call, lowering: Lowering) -> str:
    """broadcast_to: the shape of the result says it all."""
    return apply(call, lowering, call["data"])


def lower_tile(call: Call, lowering: Lowering) -> str:
    """tile: the whole tensor again and again along each axis."""
    shape = fixed_type(call.type, "result").shape
    data = lowering.type(call["data"]).shape
    data = (1,) * (len(shape) - len(data)) + data
    sizes = list(zip(data, shape, strict=True))
    before = tuple(dim for size, _ in sizes for dim in (1, size))
    wide = tuple(dim for size, total in sizes for dim in (total // size, size))
    return _spread(call, lowering, before, wide)


def lower_repeat(call: Call, lowering: Lowering) -> str:
    """repeat: each element again and again, along one axis or in one row."""
    data = lowering.type(call["data"])
    axis, copies = call.attrs["axis"], int(call.attrs["repeats"])
    shape = (data.elements,) if axis is None else data.shape
    behind = 1 + (int(axis or 0) % len(shape))
    before, wide = ((*shape[:behind], n, *shape[behind:]) for n in (1, copies))
    return _spread(call, lowering, before, wide)


def _spread(call: Call, lowering: Lowering, before: tuple[int, ...], wide: tuple[int, ...]) -> str:
    """The argument in the shape ``before``, broadcast to ``wide``, in the result's shape."""
    value = lowering.tensor(call["data"])
    for op in (Reshape(before), Elementwise(wide), Reshape(fixed_type(call.type, "result").shape)):
        value = lowering.builder.add(op, [value], sources=sources(call))
    return value


_NUMBERS = tuple(dtype for dtype in DType if dtype is not DType.BOOL)


def lower_binary(
    step: Callable[..., Step], swapped: Callable[..., Step], dtypes: Sequence[DType] = _NUMBERS
) -> Lower:
    """add, subtract, multiply, maximum, minimum: with a constant or of two branches.

    The running value is the argument that is no constant; ``swapped`` is the step that gives the
    same result where that is the second one.
    """

    def lower(call: Call, lowering: Lowering) -> str:
        left, right = call["left"], call["right"]
        left_type, right_type = lowering.type(left), lowering.type(right)
        require(
            left_type.dtype == right_type.dtype,
            "dtypes",
            f"{left_type} and {right_type}",
            "two of one dtype",
        )
        dtype = left_type.dtype
        require(dtype in dtypes, f"dtype of {call.spelled}", dtype, ", ".join(dtypes))
        use_right = isinstance(left, Constant) or left_type.elements < right_type.elements
        if use_right and not isinstance(right, Constant):
            return apply(call, lowering, right, swapped(operand=Operand(lowering.tensor(left))))
        return apply(call, lowering, left, step(operand=Operand(lowering.tensor(right))))

    return lower


def lower_shift(step: Callable[..., Step]) -> Lower:
    """right_shift, left_shift by constant amounts."""

    def lower(call: Call, lowering: Lowering) -> str:
        amounts = constant_of(call, "amount", "shift amount")
        dtype = lowering.type(call["data"]).dtype
        require(dtype.is_integer, "dtype", dtype, "an integer")
        require(
            amounts.dtype == dtype.numpy and amounts.min() >= 0 and amounts.max() < 8 * dtype.bytes,
            "shift amount",
            f"{amounts.dtype} {amounts.min()} .. {amounts.max()}",
            f"{dtype} 0 .. {8 * dtype.bytes - 1}",
        )
        operand = Operand(lowering.tensor(call["amount"]))
        return apply(call, lowering, call["data"], step(operand=operand))

    return lower


def lower_bias_add(call: Call, lowering: Lowering) -> str:
    """bias_add: a vector along ``axis``, constant or not."""
    value = lowering.type(call["data"])
    axis = int(call.attrs["axis"]) % len(value.shape)
    bias = lowering.tensor(call["bias"])
    require(
        lowering.builder.type(bias).dtype == value.dtype,
        "dtype of the bias",
        lowering.builder.type(bias).dtype,
        value.dtype,
    )
    spread = (-1, *[1] * (len(value.shape) - axis - 1))
    if bias in lowering.builder.constants:
        bias = lowering.builder.constant(lowering.builder.constants[bias].reshape(spread))
    else:
        channels = lowering.builder.type(bias).elements
        bias = lowering.builder.add(Reshape((channels, *spread[1:])), [bias])
    return apply(call, lowering, call["data"], steps.Add(operand=Operand(bias)))


def lower_prelu(call: Call, lowering: Lowering) -> str:
    """prelu of float32: max(value, 0) + slope * min(value, 0) would be another sum; TVM takes
    value > 0 ? value : value * slope, with a slope for each element along ``axis``."""
    value = lowering.type(call["data"])
    require(value.dtype.is_float, "dtype of prelu", value.dtype, "float32")
    slope = constant_of(call, "slope", "slope")
    axis = int(call.attrs["axis"]) % len(value.shape)
    if np.all(slope == slope.reshape(-1)[0]):
        return apply(call, lowering, call["data"], steps.LeakyRelu(float(slope.reshape(-1)[0])))
    spread = slope.reshape(-1, *[1] * (len(value.shape) - axis - 1))
    operand = Operand(lowering.builder.constant(spread.astype(np.float32)))
    return apply(call, lowering, call["data"], steps.Prelu(operand=operand))


def lower_function(name: str) -> Lower:
    """A float32 function of one value, by its name in ``ops/functions.py``."""

    def lower(call: Call, lowering: Lowering) -> str:
        dtype = lowering.type(call["data"]).dtype
        require(dtype.is_float, f"dtype of {call.spelled}", dtype, "float32")
        function = lowering.arithmetic.functions.get(name, name)
        return apply(call, lowering, call["data"], steps.Function(function))

    return lower


def lower_given_function(call: Call, lowering: Lowering) -> str:
    """function: a float32 function of one value, which the source of the model computes."""
    dtype = lowering.type(call["data"]).dtype
    require(dtype.is_float, f"dtype of {call.spelled}", dtype, "float32")
    return apply(call, lowering, call["data"], given_function(call))


def given_function(call: Call) -> steps.GivenFunction:
    """The step of a call of ``function``."""
    return steps.GivenFunction(str(call.attrs["label"]), compute=call.attrs["compute"])


def lower_divide(call: Call, lowering: Lowering) -> str:
    """divide of float32."""
    value, divisor = call["left"], call["right"]
    dtype = lowering.type(value).dtype
    require(dtype.is_float, "dtype of divide", dtype, "float32")
    if isinstance(divisor, Constant) and lowering.arithmetic.inverts_divisors:
        return apply(call, lowering, value, *divided(lowering.builder, divisor.value))
    return apply(call, lowering, value, steps.Divide(operand=Operand(lowering.tensor(divisor))))


def lower_clip(call: Call, lowering: Lowering) -> str:
    low, high = float(call.attrs["low"]), float(call.attrs["high"])
    dtype = lowering.type(call["data"]).dtype
    require(low <= high, "bounds of clip", f"{low} .. {high}", "low <= high")
    if not dtype.is_float:
        require(
            all(dtype.range[0] <= bound <= dtype.range[1] for bound in (low, high))
            and low.is_integer()
            and high.is_integer(),
            "bounds of clip",
            f"{low} .. {high}",
            f"whole numbers of {dtype}",
        )
    clip = steps.Clip(low, high)
    if not dtype.is_float and clip.is_identity(dtype, None):  # a ReLU, where a scale begins at zero
        lowering.builder.credit(lowering.tensor(call["data"]), sources(call))
        return lowering.tensor(call["data"])
    return apply(call, lowering, call["data"], clip)


def require_known_floats(call: Call, lowering: Lowering) -> None:
    """Of floats none but constants and what is dequantized here becomes a bool: others are a
    host's."""
    for each in call.args:
        made = isinstance(each, Constant) or (isinstance(each, Call) and each.op == "dequantize")
        dtype = lowering.type(each).dtype
        require(made or not dtype.is_float, f"dtype of {call.spelled}", dtype, "integers")


def lower_cast(call: Call, lowering: Lowering) -> str:
    """cast; from float to integer only after a clip to the integer's range (else undefined)."""
    source = lowering.type(call["data"]).dtype
    name = str(call.attrs["dtype"])
    require(name in set(DType), "dtype of cast", name, ", ".join(DType))
    to = DType(name)
    if to == source:
        return lowering.tensor(call["data"])
    if to is DType.BOOL:
        require_known_floats(call, lowering)
    elif source.is_float:
        clip = lowering.builder.last_step(lowering.tensor(call["data"]))
        found = f"bounds {clip.low} .. {clip.high}" if isinstance(clip, steps.Clip) else "no clip"
        inside = (
            isinstance(clip, steps.Clip) and to.range[0] <= clip.low <= clip.high <= to.range[1]
        )
        # A float32 holds every integer of up to 16 bits, so that the bounds themselves are safe.
        require(
            inside and to.bytes < 4,
            "cast of a float",
            f"{found}, to {to}",
            "a clip to the range of the integer in front of it, at most 16 bits",
        )
    return apply(call, lowering, call["data"], steps.Cast(to))


def lower_relu(call: Call, lowering: Lowering) -> str:
    return apply(call, lowering, call["data"], steps.Relu())


def lower_leaky_relu(call: Call, lowering: Lowering) -> str:
    alpha = float(call.attrs["alpha"])
    require(abs(alpha) < 128, "alpha", alpha, "-128 < alpha < 128")
    return apply(call, lowering, call["data"], steps.LeakyRelu(alpha))


def lower_round(call: Call, lowering: Lowering) -> str:
    dtype = lowering.type(call["data"]).dtype
    require(dtype.is_float, "dtype", dtype, "float32")
    return apply(call, lowering, call["data"], steps.Round())


OPERATORS = {
    "add": OperatorRow(lower_binary(steps.Add, steps.Add), "left right"),
    "subtract": OperatorRow(lower_binary(steps.Subtract, steps.SubtractFrom), "left right"),
    "multiply": OperatorRow(lower_binary(steps.Multiply, steps.Multiply), "left right"),
    "maximum": OperatorRow(lower_binary(steps.Maximum, steps.Maximum), "left right"),
    "minimum": OperatorRow(lower_binary(steps.Minimum, steps.Minimum), "left right"),
    "right_shift": OperatorRow(lower_shift(steps.RightShift), "data amount"),
    "left_shift": OperatorRow(lower_shift(steps.LeftShift), "data amount"),
    "bias_add": OperatorRow(lower_bias_add, "data bias", "axis"),
    "relu": OperatorRow(lower_relu),
    "leaky_relu": OperatorRow(lower_leaky_relu, "data", "alpha"),
    "clip": OperatorRow(lower_clip, "data", "low high"),
    "round": OperatorRow(lower_round),
    "prelu": OperatorRow(lower_prelu, "data slope", "axis"),
    "divide": OperatorRow(lower_divide, "left right"),
    **{name: OperatorRow(lower_function(name)) for name in FUNCTIONS},
    "function": OperatorRow(lower_given_function, "data", "label compute"),
    "cast": OperatorRow(lower_cast, "data", "dtype", compute=False),
    "copy": OperatorRow(lower_identity, compute=False),
    "stop_fusion": OperatorRow(lower_identity, compute=False),
    "broadcast_to": OperatorRow(lower_broadcast_to),
    "tile": OperatorRow(lower_tile),
    "repeat": OperatorRow(lower_repeat, "data", "repeats axis"),
}
