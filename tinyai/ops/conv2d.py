"""``conv2d``: two-dimensional convolution of integers of 8 or 16 bits into int32 or int64, grouped
or not, and the transposed convolution, which is one over spread data."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow
from tinyai.ir import NARROW, Array, DType, Example, Op, Type
from tinyai.ops.contraction import Contraction
from tinyai.ops.scales import QUANTIZED_PRODUCT, require_compared, require_factors
from tinyai.ops.window import NHWC, ImageOp, Window, axes, to_nhwc
from tinyai.source import Call, constant_of, fixed_type, one_number, require, sources
from tinyai.traits import Border, ChannelMap, Range

DATA = (*NARROW, DType.INT16)
WEIGHTS = (DType.INT8, DType.INT16)


@dataclass(frozen=True)
class Conv2d(Contraction, ImageOp):
    """Convolution of ``data - zero_point``, zero-padded.

    in: data int8, uint8 or int16 in ``layout`` (NHWC or NCHW); weights [out channels, kernel
    height, kernel width, in channels / groups], whatever the layout of the data: int8, or int16
    where a zero point of their own was taken off. out: int32, or int64 where ``wide`` (of int16
    only), in ``layout``. A depthwise convolution has as many groups as input channels.
    """

    name: ClassVar[str] = "conv2d"
    takes_epilogue: ClassVar[bool] = True
    window: Window
    groups: int = 1
    layout: str = NHWC
    zero_point: int = 0
    wide: bool = False
    proven: bool = False

    def infer(self, *inputs: Type) -> Type:
        data, weight = inputs
        products = weight.elements // weight.shape[0]
        check_products(data, weight, products, self)
        n, h, w, c = (data.shape[axis] for axis in axes(self.layout))
        out_channels, *kernel, in_channels = weight.shape
        if tuple(kernel) != self.window.kernel:
            raise ValueError(f"weights {weight} do not fit the window {self.window.kernel}")
        if in_channels * self.groups != c or out_channels % self.groups:
            raise ValueError(f"weights {weight} do not fit {self.groups} groups of {data}")
        out = dict(zip("NHWC", (n, *self.window.output((h, w)), out_channels), strict=True))
        return Type(tuple(out[axis] for axis in self.layout), self.accumulator)

    def reference(self, *inputs: Array) -> Array:
        data, weight = inputs
        # float64 holds every sum of products exactly.
        x = to_nhwc(data, self.layout).astype(np.float64) - self.zero_point
        x = self.window.pad(x, 0)
        outputs, kernel_height, kernel_width, _ = weight.shape
        grouped = weight.reshape(self.groups, outputs // self.groups, *weight.shape[1:])
        total = np.zeros(())
        for row in range(kernel_height):
            for column in range(kernel_width):
                tap = self.window.tap(x, row, column)
                total = total + _products(tap, grouped[:, :, row, column])
        result = total.astype(self.accumulator.numpy)
        return result if self.layout == NHWC else result.transpose(0, 3, 1, 2)

    def macs(self, *inputs: Type) -> int:
        _, weight = inputs
        spread = self.window.upsample[0] * self.window.upsample[1]  # zeros are no work
        return self.infer(*inputs).elements * weight.elements // weight.shape[0] // spread

    @property
    def mixes_channels(self) -> bool:
        return self.groups == 1 and self.layout == NHWC

    @property
    def meets_edge(self) -> bool:
        return any(self.window.padding) or self.window.upsample != (1, 1)

    @property
    def border(self) -> Border | None:
        spread = self.window.upsample != (1, 1)
        return None if spread else Border(*self.window.padding, self.zero_point)

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        """Of a depthwise convolution."""
        data, weight = inputs
        if not (self.layout == NHWC and self.groups == data.channels > 1):
            return None
        return ChannelMap((np.arange(weight.shape[0]) // (weight.shape[0] // data.channels),))

    def with_channels(self, kept: Array, count: int) -> Op:
        return replace(self, groups=int(kept.sum()))

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range | None:
        return super().infer_range(types, data, constants) if self.layout == NHWC else None

    def padded(self, widths: Sequence[tuple[int, int]], value: float) -> Op | None:
        """By the zero point, along height and width."""
        n, h, w, c = axes(self.layout)
        if self.window.upsample != (1, 1) or value != self.zero_point:
            return None
        if not widths[n] == widths[c] == (0, 0):
            return None
        (top, bottom), (left, right), own = widths[h], widths[w], self.window.padding
        padding = (own[0] + top, own[1] + left, own[2] + bottom, own[3] + right)
        return replace(self, window=replace(self.window, padding=padding))

    @staticmethod
    def examples() -> Iterator[Example]:
        def example(
            data: tuple[int, int, int, int],
            out_channels: int,
            kernel: tuple[int, int],
            layout: str,
            groups: int = 1,
            strides: tuple[int, int] = (1, 1),
            dilation: tuple[int, int] = (1, 1),
            padding: tuple[int, int, int, int] = (0, 0, 0, 0),
            upsample: tuple[int, int] = (1, 1),
            zero_point: int = 0,
            dtype: DType = DType.INT8,
            weights: DType = DType.INT8,
            wide: bool = False,
        ) -> Example:
            window = Window(kernel, strides, dilation, padding, upsample=upsample)
            n, h, w, c = data
            shape = data if layout == NHWC else (n, c, h, w)
            weight = Type((out_channels, *kernel, c // groups), weights)
            op = Conv2d(window, groups, layout, zero_point, wide)
            return op, (Type(shape, dtype), weight)

        u8, i16 = DType.UINT8, DType.INT16
        for layout in ("NHWC", "NCHW"):
            yield example((1, 5, 7, 3), 4, (3, 3), layout, padding=(1, 1, 1, 1))
            yield example((2, 9, 8, 5), 7, (3, 2), layout, strides=(2, 1), padding=(0, 1, 1, 0))
            yield example((1, 9, 9, 4), 6, (3, 3), layout, dilation=(2, 3), padding=(2, 3, 2, 3))
            yield example((1, 6, 6, 8), 12, (3, 3), layout, groups=4, padding=(1, 1, 1, 1))
            yield example((2, 6, 5, 16), 20, (1, 1), layout)
            yield example((1, 7, 7, 33), 5, (1, 1), layout, strides=(2, 2))
            yield example((2, 9, 2, 6), 20, (1, 1), layout, strides=(1, 3))
            yield example((1, 2, 9, 16), 17, (1, 1), layout, strides=(2, 1))
            yield example((1, 8, 8, 19), 19, (3, 3), layout, groups=19, padding=(1, 1, 1, 1))
            yield example((1, 9, 9, 6), 6, (5, 5), layout, groups=6, strides=(2, 2))
            yield example((2, 7, 9, 3), 6, (3, 3), layout, groups=3, padding=(1, 0, 0, 1))
            yield example((1, 3, 3, 2), 3, (3, 3), layout, padding=(3, 3, 3, 3), strides=(3, 3))
            yield example((1, 5, 5, 3), 4, (3, 3), layout, padding=(1, 1, 1, 1), zero_point=-128)
            yield example((1, 5, 5, 9), 4, (1, 1), layout, zero_point=131, dtype=u8, weights=i16)
            yield example((1, 6, 5, 4), 8, (3, 3), layout, groups=4, zero_point=127, dtype=u8)
            yield example((1, 6, 5, 4), 4, (3, 3), layout, groups=4, zero_point=5, weights=i16)
            yield example((1, 4, 3, 4), 6, (3, 2), layout, padding=(2, 1, 1, 1), upsample=(2, 3))
            yield example((1, 3, 4, 2), 2, (2, 2), layout, groups=2, upsample=(2, 2), zero_point=3)
            yield example((1, 4, 19, 4), 6, (2, 3), layout, padding=(0, 1, 1, 1))
            for by, wide in ((DType.INT8, True), (DType.INT8, False), (i16, True)):
                of_16 = functools.partial(example, dtype=i16, weights=by, wide=wide)
                yield of_16((2, 5, 7, 9), 6, (3, 3), layout, padding=(1, 0, 1, 1))
                yield of_16((1, 6, 5, 8), 8, (3, 3), layout, groups=8, strides=(2, 1))
                yield of_16((1, 6, 5, 20), 7, (1, 1), layout)


def _products(tap: Array, weights: Array) -> Array:
    """[n, h, w, outputs] of ``tap`` [n, h, w, channels] and ``weights`` [groups, outputs of a
    group, channels of a group], all in float64."""
    groups, outputs, channels = weights.shape
    if groups == 1:
        sums = tap.reshape(-1, channels) @ weights[0].T.astype(tap.dtype)
    else:
        sums = np.einsum("rgi,goi->rgo", tap.reshape(-1, groups, channels), weights)
    return np.asarray(sums.reshape(*tap.shape[:3], groups * outputs))


def check_products(data: Type, weight: Type, products: int, op: Contraction) -> None:
    """Raise ``ValueError`` for types or a size at which an int32 accumulator may overflow; a
    ``wide`` one is int64, which no tensor is large enough for."""
    zero_point = op.zero_point
    if data.dtype not in DATA or weight.dtype not in WEIGHTS:
        raise ValueError(
            f"products of {data.dtype} by {weight.dtype}: {' or '.join(DATA)} by "
            f"{' or '.join(WEIGHTS)} only"
        )
    if not data.dtype.range[0] <= zero_point <= data.dtype.range[1]:
        raise ValueError(f"zero point {zero_point} is no {data.dtype}")
    short, large = data.dtype is DType.INT16, op.wide or op.proven
    if (large and not short) or (zero_point and short):
        raise ValueError(f"sums in int64, or a zero point of int16: not of {data.dtype}")
    most = max_products(data.dtype, weight.dtype, zero_point)
    if products > most and not large:
        raise ValueError(f"{weight} may overflow int32: at most {most} products")


def max_products(data: DType, weight: DType, zero_point: int) -> int:
    """The number of products whose sum cannot overflow int32. Weights of int16 are 8-bit ones less
    their zero point: at most 255 in size."""
    largest = max(abs(bound - zero_point) for bound in data.range)
    return (2**31 - 1) // (largest * (128 if weight is DType.INT8 else 255))


def with_room(op: Contraction, data: DType, weight: Array, what: str) -> Contraction:
    """``op`` whose sums have room for all products by ``weight``, [channels, …]; refuses ``what``,
    their number, where int32 might not hold them."""
    products = weight.size // max(weight.shape[0], 1)
    most = max_products(data, DType(weight.dtype.name), op.zero_point)
    if op.wide or products <= most:
        return op
    largest = np.abs(weight.astype(np.int64)).reshape(weight.shape[0], -1).sum(axis=1).max()
    proven = data is DType.INT16 and int(largest) * -data.range[0] <= DType.INT32.range[1]
    require(proven, what, products, f"<= {most}")
    return replace(op, proven=True)  # type: ignore[type-var]


def lower_conv2d(call: Call, lowering: Lowering) -> str:
    """conv2d in NCHW or NHWC, weights in any order of O, I, H and W."""
    require_int8_weights(call, lowering)
    return _lower(call, lowering, constant_of(call, "weight", "weights"), 0)


def lower_quantized_conv2d(call: Call, lowering: Lowering) -> str:
    """quantized_conv2d: the zero point of the data stays, that of the weights is taken off here."""
    weight = constant_of(call, "weight", "weights")
    order = str(call.attrs["weight_layout"])
    require("O" in order, "kernel layout", order, "OIHW …")
    weight = centred(call, weight, order.index("O"))
    return _lower(call, lowering, weight, zero_point(call, lowering))


def lower_quantized_conv2d_transpose(call: Call, lowering: Lowering) -> str:
    """quantized_conv2d_transpose: a convolution of the spread data by the turned weights."""
    attrs = call.attrs
    layout = _data_layout(call)
    order = str(attrs["weight_layout"])
    require(sorted(order) == sorted("OIHW"), "kernel layout", order, "IOHW …")
    groups = int(attrs["groups"])
    weight = centred(call, constant_of(call, "weight", "weights"), order.index("O"))
    # The data's channels run along I, grouped; a group's output channels along O.
    weight = weight.transpose([order.index(axis) for axis in "IOHW"])[:, :, ::-1, ::-1]
    inner, outer, height, width = weight.shape
    require(inner % groups == 0, "groups", groups, f"a divisor of {inner} channels")
    weight = weight.reshape(groups, inner // groups, outer, height, width)
    weight = weight.transpose(0, 2, 3, 4, 1).reshape(-1, height, width, inner // groups)
    forward = Window.of(attrs, (height, width))
    rows, columns = forward.extent[0] - 1, forward.extent[1] - 1
    more_rows, more_columns = (int(v) for v in attrs["output_padding"])
    top, left, bottom, right = forward.padding
    border = (
        rows - top,
        columns - left,
        rows - bottom + more_rows,
        columns - right + more_columns,
    )
    require(min(border) >= 0, "padding", forward.padding, "at most the kernel's extent - 1")
    window = replace(forward, strides=(1, 1), padding=border, upsample=forward.strides)
    dtype = lowering.type(call["data"]).dtype
    require(dtype in NARROW, "dtype of the data", dtype, ", ".join(NARROW))
    op = Conv2d(window, groups, layout, zero_point(call, lowering))
    return _add(call, lowering, op, weight)


def require_int8_weights(call: Call, lowering: Lowering) -> None:
    """Operators without zero points take int8 or int16 by int8."""
    data, weight = lowering.type(call["data"]), constant_of(call, "weight", "weights")
    require(
        data.dtype in (DType.INT8, DType.INT16) and weight.dtype == np.int8,
        "dtypes of data and weights",
        f"{data.dtype} and {weight.dtype}",
        "int8 and int8, int16 and int8",
    )


def is_wide(call: Call, lowering: Lowering) -> bool:
    """Whether sums are int64, as an operator's result says; they may be where the data is int16."""
    data, result = lowering.type(call["data"]).dtype, fixed_type(call.type, "result").dtype
    require_compared(lowering, data)
    allowed = (DType.INT32, *((DType.INT64,) if data is DType.INT16 else ()))
    require(result in allowed, "dtype of the result", result, ", ".join(allowed))
    return result is DType.INT64


def zero_point(call: Call, lowering: Lowering) -> int:
    """The data's zero point, for which the type of the data has to have room. The scales are left
    to the requantization after it; they have to be some."""
    require_factors(call)
    value = int(one_number(call, "data_zero_point", "zero point of the data"))
    dtype = lowering.type(call["data"]).dtype
    require(dtype in DATA, "dtype of the data", dtype, ", ".join(DATA))
    # TVM takes it off in 16 bits, in which int16 less another number wraps.
    low, high = (0, 0) if dtype is DType.INT16 else dtype.range
    allowed = f"{low} .. {high}" if low < high else f"{low} for {dtype}"
    require(low <= value <= high, "zero point of the data", value, allowed)
    return value


def centred(call: Call, weight: Array, axis: int) -> Array:
    """Weights less their zero point (one, or one an output channel along ``axis``): int8 where
    they fit, else int16."""
    allowed = "int8, uint8"
    require(weight.dtype.name in allowed.split(", "), "dtype of weights", weight.dtype, allowed)
    zero = constant_of(call, "weight_zero_point", "zero point of the weights")
    if zero.size > 1:
        fits = zero.size == weight.shape[axis]
        require(fits, "zero points of the weights", zero.size, f"1 or {weight.shape[axis]}")
        zero = zero.reshape([-1 if dim == axis else 1 for dim in range(weight.ndim)])
    else:
        zero = zero.reshape(())
    wide = weight.astype(np.int16) - zero.astype(np.int16)
    narrow = wide.astype(np.int8)
    return narrow if np.array_equal(narrow, wide) else wide


def _data_layout(call: Call) -> str:
    layout = str(call.attrs["layout"])
    require(layout in ("NHWC", "NCHW"), "data layout", layout, "NHWC, NCHW")
    out_layout = call.attrs.get("out_layout") or layout
    require(out_layout == layout, "output layout", out_layout, layout)
    return layout


def _lower(call: Call, lowering: Lowering, weight: Array, zero_point: int) -> str:
    layout = _data_layout(call)
    order = str(call.attrs["weight_layout"])
    require(sorted(order) == sorted("OIHW"), "kernel layout", order, "OIHW …")
    weight = weight.transpose([order.index(axis) for axis in "OHWI"])
    groups, channels = (
        int(call.attrs["groups"]),
        lowering.type(call["data"]).shape[axes(_data_layout(call))[3]],
    )
    if groups == channels > 1:  # depthwise: O is the channel, I the multiplier
        weight = weight.transpose(0, 3, 1, 2).reshape(-1, 1, *weight.shape[1:3])
        weight = weight.transpose(0, 2, 3, 1)
    window = Window.of(call.attrs, (weight.shape[1], weight.shape[2]))
    return _add(
        call, lowering, Conv2d(window, int(call.attrs["groups"]), layout, zero_point), weight
    )


def _add(call: Call, lowering: Lowering, op: Conv2d, weight: Array) -> str:
    wide = replace(op, wide=is_wide(call, lowering))
    room = with_room(wide, lowering.type(call["data"]).dtype, weight, "products of one output")
    # TVM types a convolution whose groups do not divide its channels.
    channels = lowering.type(call["data"]).shape[axes(op.layout)[3]]
    fits = weight.shape[3] * op.groups == channels and weight.shape[0] % op.groups == 0
    found = f"{op.groups} for {channels} channels to {weight.shape[0]}"
    require(fits, "groups", found, f"divisors of both, {weight.shape[3]} channels a group")
    inputs = [lowering.tensor(call["data"]), lowering.builder.constant(weight)]
    return lowering.builder.add(room, inputs, sources=sources(call))


CONVOLUTION = "strides padding dilation groups layout weight_layout out_layout"
OPERATORS = {
    "conv2d": OperatorRow(lower_conv2d, "data weight", CONVOLUTION),
    "quantized_conv2d": OperatorRow(lower_quantized_conv2d, QUANTIZED_PRODUCT, CONVOLUTION),
    "quantized_conv2d_transpose": OperatorRow(
        lower_quantized_conv2d_transpose, QUANTIZED_PRODUCT, f"{CONVOLUTION} output_padding"
    ),
}
