"""Kernels by row, and graphs around the edges of their tiles: random shapes, types, zero points and
epilogues."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.support.example_graphs import (
    EPILOGUES,
    Site,
    any_sum,
    branches,
    onnx_branches,
    quotient,
    random_array,
    tflite_branches,
    tflite_relu,
)
from tinyai.codegen import kernels
from tinyai.codegen.kernels import KERNELS, Kernel
from tinyai.codegen.kernels.tile import Tiled
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.ir import Array, Builder, DType, Example, Graph, Node, Op, Type, verify
from tinyai.ops import (
    AdaptivePool2d,
    AvgPool2d,
    BatchMatmul,
    Conv2d,
    Dense,
    Elementwise,
    FloatAvgPool2d,
    FloatInterpolate,
    Interleave,
    Interpolate,
    MaxPool2d,
    Normalize,
    Sum,
    TableSoftmax,
    Transpose,
)
from tinyai.ops.interpolate import Taps
from tinyai.ops.softmax import onnx_powers
from tinyai.ops.window import Window
from tinyai.passes import optimize
from tinyai.source import Refusal
from tinyai.target import ISAS

# Shapes in one C file; a row meets one file in `make test`, four in `make test-all`.
A_FILE = 50
# Numbers of channels at, before and after whole vectors and panels.
CHANNELS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 80, 96)
WIDE = (*CHANNELS, 112, 127, 128, 129, 144, 192, 200)
# Lengths of sums at, before and after the parts of those in 64 bits.
PARTS = (*CHANNELS, 440, 448, 456, 460, 896, 1300)
# Epilogues that SIMD rows have a form of, and one that only scalar steps have.
MIXED = (
    "nothing",
    "qnn",
    "qnn unsigned",
    "requantize",
    "residual",
    "fixed point",
    "exit",
    "floats",
    "small types",
    "branches",
    "tflite",
    "tflite relu",
    "tflite branches",
    "onnx",
    "onnx branches",
    "quotient",
)
OF_64_BITS = ("nothing", "requantize", "fixed point 64")
# The one epilogue of rows that are for it.
ONLY = {"_add": "any sum", "pool2d_bytes": "nothing", "_lookup": "tables", "_planes": "quotient"}
WRITTEN = EPILOGUES | {
    "branches": branches,
    "tflite relu": tflite_relu,
    "tflite branches": tflite_branches,
    "onnx branches": onnx_branches,
    "any sum": any_sum,
    "quotient": quotient,
}
Rng = np.random.Generator
# Rows of files for one instruction set; others are for files that several share.
ALONE = [kernel for kernel in KERNELS if kernel.isa in ISAS]
SIMD = [kernel for kernel in ALONE if kernel.isa != "scalar"]


def serves(kernel: Kernel, graph: Graph, node: Node) -> bool:
    return kernel.op is type(node.op) and not isinstance(
        kernel.prepare(Lowered.of(graph), node), str
    )


def force_kernel(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> None:
    """Every node gets this row."""
    monkeypatch.setattr(kernels, "KERNELS", (kernel,))


def tiling_of(graph: Lowered, node: Node) -> Tiling:
    """How a convolution is cut up."""
    kernel = next(graph.kernels(node))
    assert isinstance(kernel, Tiled)
    return kernel.tiling(graph)


def assert_equal(found: Array, expected: Array, what: object) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
    np.testing.assert_array_equal(found, expected, str(what))


def pick(rng: Rng, values: tuple[int, ...]) -> int:
    return int(rng.choice(values))


def window(rng: Rng, largest: int) -> Window:
    kernel = pick(rng, (1, 1, 2, 3, 3, 4, 5, largest)), pick(rng, (1, 1, 2, 3, 3, 5, largest))
    padding = tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel))
    padding = padding if rng.random() < 0.6 else (0, 0, 0, 0)
    strides = pick(rng, (1, 1, 2, 3)), pick(rng, (1, 1, 2, 3))
    dilation = (1, 1) if rng.random() < 0.8 else (pick(rng, (1, 2)), pick(rng, (1, 2, 3)))
    return Window(kernel, strides, dilation, (padding[0], padding[1], padding[2], padding[3]))


def quantized(rng: Rng) -> tuple[DType, int]:
    dtype = DType.INT8 if rng.random() < 0.7 else DType.UINT8
    low, high = dtype.range
    return dtype, pick(rng, (low, 0, high, int(rng.integers(low, high + 1))))


def convolution(rng: Rng) -> Example:
    dtype, zero_point = quantized(rng)
    groups = pick(rng, (1, 1, 1, 1, 2, 3))
    per_group = pick(rng, CHANNELS[3:14] if groups > 1 else CHANNELS[:14])
    out = pick(rng, CHANNELS if groups > 1 else WIDE)
    n, h, w = pick(rng, (1, 1, 1, 2)), int(rng.integers(1, 12)), int(rng.integers(1, 15))
    each = window(rng, 7)
    if rng.random() < 0.1:
        each = Window(each.kernel, upsample=(pick(rng, (1, 2)), pick(rng, (2, 3))))
    weight = Type((out * groups, *each.kernel, per_group), DType.INT8)
    op = Conv2d(each, groups, zero_point=zero_point)
    return op, (Type((n, h, w, per_group * groups), dtype), weight)


def depthwise(rng: Rng) -> Example:
    dtype, zero_point = quantized(rng)
    channels = pick(rng, WIDE[1:])
    n, h, w = pick(rng, (1, 1, 2)), int(rng.integers(1, 9)), int(rng.integers(1, 24))
    each = window(rng, 9)
    weight = Type((channels, *each.kernel, 1), DType.INT8)
    return Conv2d(each, channels, zero_point=zero_point), (Type((n, h, w, channels), dtype), weight)


def dense(rng: Rng, lengths: tuple[int, ...] = WIDE) -> Example:
    dtype, zero_point = quantized(rng)
    k, out = pick(rng, lengths), pick(rng, WIDE)
    rows = pick(rng, (1, 1, 2, 5, 6, 7, 11, 13, 25))
    return Dense(zero_point), (Type((rows, k), dtype), Type((out, k), DType.INT8))


def image(rng: Rng, dtypes: tuple[DType, ...]) -> Type:
    shape = pick(rng, (1, 2)), int(rng.integers(1, 9)), int(rng.integers(1, 9)), pick(rng, CHANNELS)
    return Type(shape, dtypes[int(rng.integers(len(dtypes)))])


def max_pool(rng: Rng) -> Example:
    return MaxPool2d(window(rng, 3)), (image(rng, (DType.INT8, DType.UINT8, DType.INT32)),)


def avg_pool(rng: Rng) -> Example:
    each = window(rng, 3)
    op = AvgPool2d(
        each, count_include_pad=bool(rng.random() < 0.5), rounded=bool(rng.random() < 0.5)
    )
    return op, (image(rng, (DType.INT8, DType.UINT8, DType.INT32)),)


def float_avg_pool(rng: Rng) -> Example:
    each = replace(window(rng, 3), dilation=(1, 1))
    include, by_columns = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    zero_point, scale = int(rng.integers(-128, 256)), float(np.float32(rng.random()))
    op = FloatAvgPool2d(each, "NHWC", include, by_columns, zero_point, scale)
    return op, (image(rng, (DType.INT8, DType.UINT8)),)


def interpolation(rng: Rng, whole: float) -> tuple[Taps, Taps, Type]:
    """Rows and columns of an image, with weights that add up to ``whole``."""
    of = image(rng, (DType.INT8, DType.UINT8))

    def taps(size: int) -> Taps:
        parts = rng.integers(0, 257, int(rng.integers(1, 9))) * whole / 256
        ends = rng.integers(0, size, (len(parts), 2)).tolist()
        return tuple(
            (*end, whole - part, part) for end, part in zip(ends, parts.tolist(), strict=True)
        )

    return taps(of.shape[1]), taps(of.shape[2]), of


def interpolate(rng: Rng) -> Example:
    rows, columns, of = interpolation(rng, 1024)
    zero_point = int(rng.integers(*(0, 256) if of.dtype is DType.UINT8 else (-128, 128)))
    return Interpolate(rows, columns, "NHWC", zero_point), (of,)


def float_interpolate(rng: Rng) -> Example:
    rows, columns, of = interpolation(rng, 1)
    scale = float(np.float32(rng.random()))
    return FloatInterpolate(rows, columns, "NHWC", int(rng.integers(-128, 256)), scale), (of,)


def adaptive_pool(rng: Rng) -> Example:
    kind = "avg" if rng.random() < 0.5 else "max"
    size = pick(rng, (1, 1, 2, 3)), pick(rng, (1, 1, 2, 3))
    return AdaptivePool2d(kind, size), (image(rng, (DType.INT8, DType.UINT8, DType.INT32)),)


def elementwise(rng: Rng) -> Example:
    of = image(rng, (DType.INT8, DType.UINT8, DType.INT32, DType.FLOAT32))
    return Elementwise(of.shape), (of,)


def total(rng: Rng) -> Example:
    of = image(rng, (DType.INT8, DType.UINT8, DType.INT32))
    axes = ((1,), (2,), (1, 2), (0, 1))[int(rng.integers(4))]
    return Sum(axes, keepdims=bool(rng.random() < 0.5)), (of,)


def transpose(rng: Rng) -> Example:
    dtypes = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.FLOAT32, DType.INT64)
    sides = (*CHANNELS, 100, 130)
    shape = (*(pick(rng, (1, 1, 2, 3)) for _ in range(2)), pick(rng, sides), pick(rng, sides))
    of = Type(shape, dtypes[int(rng.integers(len(dtypes)))])
    return Transpose(tuple(map(int, rng.permutation(len(shape))))), (of,)


def interleave(rng: Rng) -> Example:
    """Floats in planes, which become channels."""
    sides, count = (*CHANNELS, 100, 255, 256, 257, 300), int(rng.integers(2, 9))
    shape = (pick(rng, (1, 2)), count, *(pick(rng, sides) for _ in range(int(rng.integers(1, 3)))))
    return Interleave(1), (Type(shape, DType.FLOAT32),)


def batch_matmul(rng: Rng) -> Example:
    rows, columns, k = pick(rng, (1, 3, 16, 17, 33, 70)), pick(rng, CHANNELS), pick(rng, CHANNELS)
    batches = ((1, 1), (2, 2), (3, 1), (1, 3))[int(rng.integers(4))]
    types = [
        Type(shape, (DType.INT8, DType.UINT8)[int(rng.integers(2))])
        for shape in ((batches[0], rows, k), (batches[1], columns, k))
    ]
    zeros = (int(rng.integers(*of.dtype.range)) * (rng.random() < 0.8) for of in types)
    return BatchMatmul(*zeros), tuple(types)


def _row(rng: Rng, *dtypes: DType) -> Type:
    sides = (*CHANNELS, 100, 130)
    shape = pick(rng, (1, 2, 3, 5, 9)), pick(rng, sides)
    return Type(shape, dtypes[int(rng.integers(len(dtypes)))])


def norm(rng: Rng) -> Example:
    of = _row(rng, DType.INT8, DType.UINT8, DType.INT16)
    zero = None if rng.random() < 0.5 else int(rng.integers(*of.dtype.range))
    return Normalize(1, float(rng.uniform(0.01, 2)), zero), (of,)


def table_softmax(rng: Rng) -> Example:
    of = _row(rng, DType.INT8, DType.UINT8)
    if of.shape[1] == 1:  # of which ONNX Runtime's powers are infinite
        of = replace(of, shape=(of.shape[0], 2))
    # Of the steepest ones some powers are too small for quotients by inverses.
    powers = onnx_powers(float(rng.uniform(0.004, 0.5)), of.shape[1])
    return TableSoftmax(1, powers, 256.0), (of,)


DRAWS: dict[type[Op], Callable[[Rng], Example]] = {
    BatchMatmul: batch_matmul,
    Dense: dense,
    MaxPool2d: max_pool,
    AvgPool2d: avg_pool,
    FloatAvgPool2d: float_avg_pool,
    FloatInterpolate: float_interpolate,
    Interpolate: interpolate,
    AdaptivePool2d: adaptive_pool,
    Elementwise: elementwise,
    Sum: total,
    Normalize: norm,
    TableSoftmax: table_softmax,
    Transpose: transpose,
    Interleave: interleave,
}


def drawn(kernel: Kernel, rng: Rng) -> Example:
    if "patches" in kernel.name:  # of int16
        op, (data, weight) = convolution(rng) if kernel.op is Conv2d else dense(rng, PARTS)
        op = replace(op, zero_point=0, wide=bool(rng.random() < 0.5))  # type: ignore[call-arg]
        return op, (replace(data, dtype=DType.INT16), weight)
    if kernel.op is Conv2d:
        return depthwise(rng) if "depthwise" in kernel.name else convolution(rng)
    return DRAWS[kernel.op](rng)


def served_graph(kernel: Kernel, seed: int, count: int = A_FILE) -> Graph:
    """``count`` nodes that the kernel serves, each with an epilogue that fits."""
    rng = np.random.default_rng(seed)
    builder, outputs = Builder(f"shapes_{seed}"), []
    while len(outputs) < count:
        op, types = drawn(kernel, rng)
        mixed = MIXED[int(rng.integers(len(MIXED)))]
        epilogue = next((ONLY[part] for part in ONLY if part in kernel.name), mixed)
        try:
            op.infer(*types)
        except (ValueError, Refusal):
            continue
        # By the numbers that it will have: a few sums have no form in 16 bits.
        trial = Builder("trial")
        most = pick(rng, (1, 8, 16)) if "groups" in kernel.name else 1
        add(trial, op, types, epilogue, copy.deepcopy(rng), most)
        graph = optimize(verify(trial.graph([trial.nodes[-1].output])))
        if len(graph.nodes) == 1 and serves(kernel, graph, graph.nodes[0]):
            outputs.append(add(builder, op, types, epilogue, rng, most))
    return verify(builder.graph(outputs))


def add(
    builder: Builder, op: Op, types: tuple[Type, ...], epilogue: str, rng: Rng, parts: int = 1
) -> str:
    """A node with an epilogue; its weights are so many ``parts`` of what their type holds."""
    result = op.infer(*types)
    inputs = [builder.input(types[0])]
    fixed = not isinstance(op, BatchMatmul)  # of which both matrices are computed
    inputs += [
        builder.constant(random_array(rng, of) // parts) if fixed else builder.input(of)
        for of in types[1:]
    ]
    if result.dtype.is_float and epilogue != "quotient":
        epilogue = "exit"
    if not op.takes_epilogue:
        epilogue = "nothing"
    elif result.dtype is DType.INT64:
        epilogue = OF_64_BITS[int(rng.integers(len(OF_64_BITS)))]
    site = Site(builder, result, "NHWC", rng)
    return builder.add(op, inputs, tuple(WRITTEN[epilogue](site)))
