"""Convolutions and dense layers as plain numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tinyai.ir import DType, Graph, Node
from tinyai.ops import Conv2d, Dense
from tinyai.ops.window import NHWC, Window, axes

# A patch is padded with zeros to whole vectors of products; longer ones pay no remainder loop.
VECTOR = 8


@dataclass(frozen=True)
class Geometry:
    """A convolution or dense layer as plain numbers."""

    n: int
    h: int
    w: int
    c: int
    oh: int
    ow: int
    oc: int
    groups: int
    window: Window
    layout: str
    zero_point: int
    weight: DType
    data: DType
    sums: DType

    @classmethod
    def of(cls, graph: Graph, node: Node) -> Geometry:
        data, weight = graph.types(node.inputs)
        dtypes = weight.dtype, data.dtype, node.op.infer(data, weight).dtype
        if isinstance(node.op, Dense):  # rows are the pixels of a 1×1 convolution
            rows, k = data.shape
            numbers = (1, 1, rows, k, 1, rows, weight.shape[0], 1)
            window = Window((1, 1))
            return cls(*numbers, window, NHWC, node.op.zero_point, *dtypes)
        op = node.op
        assert isinstance(op, Conv2d)
        n, h, w, c = (data.shape[axis] for axis in axes(op.layout))
        oh, ow = op.window.output((h, w))
        numbers = (n, h, w, c, oh, ow, weight.shape[0], op.groups)
        window = _near(op.window, (oh, ow))
        return cls(*numbers, window, op.layout, op.zero_point, *dtypes)

    def together(self, number: int) -> Geometry:
        """The geometry that computes ``number`` neighbouring outputs of a row as one, with that
        many times the channels, by a window that is wider by their distance. It reads and writes
        the same elements."""
        if number == 1:
            return self
        (rows, columns), (down, along) = self.window.kernel, self.window.strides
        columns += (number - 1) * along
        window = replace(self.window, kernel=(rows, columns), strides=(down, number * along))
        return replace(self, ow=self.ow // number, oc=number * self.oc, window=window)

    @property
    def group_in(self) -> int:
        return self.c // self.groups

    @property
    def group_out(self) -> int:
        return self.oc // self.groups

    @property
    def k(self) -> int:
        """Values of a patch, padded."""
        products = self.group_in * math.prod(self.window.kernel)
        return -(-products // VECTOR) * VECTOR

    @property
    def data_strides(self) -> tuple[int, int, int, int]:
        """Elements between neighbours of the input in N, H, W and C."""
        image = self.h * self.w * self.c
        if self.layout == NHWC:
            return image, self.w * self.c, self.c, 1
        return image, self.w, 1, self.h * self.w


def _near(window: Window, outputs: tuple[int, int]) -> Window:
    """The window with strides and dilations of 1 where there is one output, or one row or column of
    the kernel: files may say any number there."""
    strides = [1 if n == 1 else each for n, each in zip(outputs, window.strides, strict=True)]
    dilation = [1 if k == 1 else d for k, d in zip(window.kernel, window.dilation, strict=True)]
    return replace(window, strides=(strides[0], strides[1]), dilation=(dilation[0], dilation[1]))
