"""``conv2d``: two-dimensional convolution of int8 by int8 into int32, grouped or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Example, Op, Type
from tinyai.ops.window import NHWC, Window, axes, to_nhwc
from tinyai.source import Call, Lowering, constant_of, fixed_type, require, sources

# int8 * int8 is at most 2**14: so many products cannot overflow the int32 accumulator.
MAX_PRODUCTS = (2**31 - 1) // 2**14


@dataclass(frozen=True)
class Conv2d(Op):
    """Convolution, zero-padded.

    in: data int8 in ``layout`` (NHWC or NCHW); weights int8 [out channels, kernel height,
    kernel width, in channels / groups], whatever the layout of the data.
    out: int32 in ``layout``. A depthwise convolution has as many groups as input channels.
    """

    name: ClassVar[str] = "conv2d"
    takes_epilogue: ClassVar[bool] = True
    window: Window
    groups: int = 1
    layout: str = NHWC

    def infer(self, *inputs: Type) -> Type:
        data, weight = inputs
        if (data.dtype, weight.dtype) != (DType.INT8, DType.INT8):
            raise ValueError(f"conv2d of {data.dtype} by {weight.dtype}: int8 by int8 only")
        n, h, w, c = (data.shape[axis] for axis in axes(self.layout))
        out_channels, *kernel, in_channels = weight.shape
        if tuple(kernel) != self.window.kernel:
            raise ValueError(f"weights {weight} do not fit the window {self.window.kernel}")
        if in_channels * self.groups != c or out_channels % self.groups:
            raise ValueError(f"weights {weight} do not fit {self.groups} groups of {data}")
        if weight.elements // out_channels > MAX_PRODUCTS:
            raise ValueError(f"{weight} may overflow int32: at most {MAX_PRODUCTS} products")
        out = dict(zip("NHWC", (n, *self.window.output((h, w)), out_channels), strict=True))
        return Type(tuple(out[axis] for axis in self.layout), DType.INT32)

    def reference(self, *inputs: Array) -> Array:
        data, weight = inputs
        x = self.window.pad(to_nhwc(data, self.layout), 0).astype(np.float64)
        out_channels, kernel_height, kernel_width, in_channels = weight.shape
        grouped = weight.reshape(self.groups, out_channels // self.groups, *weight.shape[1:])
        total = np.zeros(())
        for row in range(kernel_height):
            for column in range(kernel_width):
                tap = self.window.tap(x, row, column)
                tap = tap.reshape(*tap.shape[:3], self.groups, in_channels)
                # float64 holds every sum of int8 products exactly.
                products = np.einsum("nhwgi,goi->nhwgo", tap, grouped[:, :, row, column])
                total = total + products
        result = total.reshape(*total.shape[:3], out_channels).astype(np.int32)
        return result if self.layout == NHWC else result.transpose(0, 3, 1, 2)

    def macs(self, *inputs: Type) -> int:
        _, weight = inputs
        return self.infer(*inputs).elements * weight.elements // weight.shape[0]

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
        ) -> Example:
            window = Window(kernel, strides, dilation, padding)
            n, h, w, c = data
            shape = data if layout == NHWC else (n, c, h, w)
            weight = Type((out_channels, *kernel, c // groups), DType.INT8)
            return Conv2d(window, groups, layout), (Type(shape, DType.INT8), weight)

        for layout in ("NHWC", "NCHW"):
            yield example((1, 5, 7, 3), 4, (3, 3), layout, padding=(1, 1, 1, 1))
            yield example((2, 9, 8, 5), 7, (3, 2), layout, strides=(2, 1), padding=(0, 1, 1, 0))
            yield example((1, 9, 9, 4), 6, (3, 3), layout, dilation=(2, 3), padding=(2, 3, 2, 3))
            yield example((1, 6, 6, 8), 12, (3, 3), layout, groups=4, padding=(1, 1, 1, 1))
            yield example((2, 6, 5, 16), 20, (1, 1), layout)
            yield example((1, 7, 7, 33), 5, (1, 1), layout, strides=(2, 2))
            yield example((1, 8, 8, 19), 19, (3, 3), layout, groups=19, padding=(1, 1, 1, 1))
            yield example((1, 9, 9, 6), 6, (5, 5), layout, groups=6, strides=(2, 2))
            yield example((2, 7, 9, 3), 6, (3, 3), layout, groups=3, padding=(1, 0, 0, 1))
            yield example((1, 3, 3, 2), 3, (3, 3), layout, padding=(3, 3, 3, 3), strides=(3, 3))


def lower_conv2d(call: Call, lowering: Lowering) -> str:
    """nn.conv2d in NCHW or NHWC, weights in any order of O, I, H and W."""
    attrs = call.attrs
    data = lowering.type(call.args[0])
    weight = constant_of(call, 1, "weights")
    layout = attrs["data_layout"]
    require(layout in ("NHWC", "NCHW"), "data layout", layout, "NHWC, NCHW")
    out_layout = attrs.get("out_layout") or layout
    require(out_layout == layout, "output layout", out_layout, layout)
    kernel_layout = attrs["kernel_layout"]
    require(sorted(kernel_layout) == sorted("OIHW"), "kernel layout", kernel_layout, "OIHW …")
    require(
        data.dtype is DType.INT8 and weight.dtype == np.int8,
        "dtypes of data and weights",
        f"{data.dtype} and {weight.dtype}",
        "int8 and int8",
    )
    result = fixed_type(call.type, "result")
    require(result.dtype is DType.INT32, "dtype of the result", result.dtype, "int32")
    groups = int(attrs["groups"])
    channels = data.shape[axes(layout)[3]]
    weight = weight.transpose([kernel_layout.index(axis) for axis in "OHWI"])
    if groups == channels and groups > 1:  # depthwise: Relay's O is the channel, I the multiplier
        weight = weight.transpose(0, 3, 1, 2).reshape(-1, 1, *weight.shape[1:3])
        weight = weight.transpose(0, 2, 3, 1)
    products = weight.size // weight.shape[0]
    require(products <= MAX_PRODUCTS, "products of one output", products, f"<= {MAX_PRODUCTS}")
    window = Window.of(attrs, (weight.shape[1], weight.shape[2]))
    op = Conv2d(window, groups, layout)
    inputs = [lowering.tensor(call.args[0]), lowering.builder.constant(weight)]
    return lowering.builder.add(op, inputs, sources=sources(call))
