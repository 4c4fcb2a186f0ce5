"""The operators of ``tinyai.ir``: one file an operator or family, with shape rule, numpy reference,
examples, and the builders that lower a source model's operator to it."""

from __future__ import annotations

from tinyai.ir import Op
from tinyai.ops.conv2d import Conv2d
from tinyai.ops.dense import Dense
from tinyai.ops.elementwise import Elementwise
from tinyai.ops.layout import Concatenate, Pad, Reshape, Slice, Transpose
from tinyai.ops.matmul import BatchMatmul
from tinyai.ops.pool2d import AdaptivePool2d, AvgPool2d, FloatAvgPool2d, MaxPool2d
from tinyai.ops.reduce import Sum
from tinyai.ops.resize import Resize
from tinyai.ops.softmax import IntegerSoftmax, Softmax, TableSoftmax

__all__ = [
    "OPS",
    "AdaptivePool2d",
    "AvgPool2d",
    "BatchMatmul",
    "Concatenate",
    "Conv2d",
    "Dense",
    "Elementwise",
    "FloatAvgPool2d",
    "IntegerSoftmax",
    "MaxPool2d",
    "Pad",
    "Reshape",
    "Resize",
    "Slice",
    "Softmax",
    "Sum",
    "TableSoftmax",
    "Transpose",
]

OPS: tuple[type[Op], ...] = (
    Conv2d,
    Dense,
    BatchMatmul,
    MaxPool2d,
    AvgPool2d,
    FloatAvgPool2d,
    AdaptivePool2d,
    Sum,
    Softmax,
    IntegerSoftmax,
    TableSoftmax,
    Elementwise,
    Concatenate,
    Pad,
    Reshape,
    Slice,
    Transpose,
    Resize,
)
