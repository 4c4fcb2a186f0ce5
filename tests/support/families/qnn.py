"""Every operator of QNN, and what stands between scales with them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relay

from tests.support.cases import (
    CONVOLUTIONS,
    DEPTHWISE,
    FLOATS,
    Every,
    Family,
    Input,
    Suite,
    const,
    nchw_or_nhwc,
    random,
)
from tinyai.frontends.relay.spelling import UNSPELLED
from tinyai.ir import Array
from tinyai.ops.functions import FUNCTIONS

qnn = relay.qnn.op
# The same integers as at LLVM's own level, and built in less time.
TARGET = "llvm -opt-level=1"

Scale = tuple[Any, int]  # scale and zero point


def number(value: Any) -> relay.Constant:
    return const(value, "float32")


def pair(scale: Scale) -> tuple[relay.Constant, relay.Constant]:
    return number(scale[0]), const(scale[1])


def ends(dtype: str) -> tuple[int, int]:
    return np.iinfo(dtype).min, np.iinfo(dtype).max


# --- Convolution and dense -----------------------------------------------------------------------


def convolution(
    data: relay.Expr,
    weight_oihw: Array,
    layout: str,
    kernel_layout: str,
    zero_point: int = 0,
    weight_zero_point: Any = 0,
    **attrs: Any,
) -> relay.Expr:
    weight = weight_oihw.transpose(["OIHW".index(axis) for axis in kernel_layout])
    return qnn.conv2d(
        data,
        relay.const(np.ascontiguousarray(weight)),
        const(zero_point),
        const(weight_zero_point),
        number(0.5),
        number(0.25),
        data_layout=layout,
        kernel_layout=kernel_layout,
        **attrs,
    )


def conv_family() -> Family:
    family = Family()

    def add(
        name: str,
        layout: str,
        kernel: str,
        row: Any,
        dtype: str,
        zero_point: int,
        weights: str = "int8",
        weight_zero_point: Any = 0,
        oracle_kernel: str = "",
    ) -> None:
        data, shape, attrs = row
        weight = random(name, shape, weights)
        attrs = {"kernel_size": shape[2:], "channels": shape[0], **attrs}

        def build(kernel_layout: str, x: relay.Expr) -> relay.Expr:
            zeros = zero_point, weight_zero_point
            return convolution(x, weight, layout, kernel_layout, *zeros, **attrs)

        n, c, h, w = data
        which = "per channel" if np.ndim(weight_zero_point) else weight_zero_point
        family.add(
            f"{name} {layout} {kernel} {dtype} {zero_point} by {weights} {which}",
            Input(nchw_or_nhwc(layout, n, c, h, w), dtype),
            functools.partial(build, kernel),
            functools.partial(build, oracle_kernel) if oracle_kernel else None,
        )

    rows = {**CONVOLUTIONS, **DEPTHWISE}
    # Each window with one of the ends of a range as the zero point, in turn.
    zeros = [(dtype, end) for dtype in ("int8", "uint8") for end in ends(dtype)]
    for number_of_row, (name, row) in enumerate(rows.items()):
        for layout in ("NCHW", "NHWC"):
            if (name, layout) == ("1x1 batch 3", "NHWC"):
                continue  # TVM's process ends with a segmentation fault
            kernel = "OIHW" if layout == "NCHW" else "HWOI" if name in DEPTHWISE else "HWIO"
            add(name, layout, kernel, row, *zeros[number_of_row % 4])
    # Weights with a zero point of their own: one, or one an output channel.
    row, depthwise = CONVOLUTIONS["3x2 strided asymmetric pads"], DEPTHWISE["depthwise"]
    for weights, zero in (
        ("int8", -128),
        ("int8", 3),
        ("uint8", 0),
        ("uint8", 127),
        ("uint8", 255),
    ):
        for dtype, zero_point in (("int8", 127), ("uint8", 0)):
            for layout, kernel in (("NCHW", "OIHW"), ("NHWC", "HWIO")):
                add("regular", layout, kernel, row, dtype, zero_point, weights, zero)
        add("depthwise", "NCHW", "OIHW", depthwise, "uint8", 255, weights, zero)
        add("depthwise", "NHWC", "HWOI", depthwise, "int8", -128, weights, zero)
    for weights in ("int8", "uint8"):
        each = random(f"zero points {weights}", (7,), weights)
        add("regular", "NCHW", "OIHW", row, "int8", -1, weights, each)
        add("regular", "NHWC", "HWIO", row, "uint8", 128, weights, each)
        each = random(f"zero points {weights}", (19,), weights)
        add("depthwise", "NCHW", "OIHW", depthwise, "int8", 100, weights, each)
        add("depthwise", "NHWC", "HWOI", depthwise, "uint8", 3, weights, each)
    # Orders that TVM's CPU has no code for: the same weights in an order that it knows.
    for kernel in ("HWIO", "OHWI", "HWOI"):
        add("regular", "NCHW", kernel, row, "int8", 5, "int8", 1, "OIHW")
    for kernel in ("OIHW", "OHWI", "HWOI"):
        add("regular", "NHWC", kernel, row, "uint8", 5, "uint8", 1, "HWIO")
    row = DEPTHWISE["depthwise multiplier 2"]
    for kernel in ("OHWI", "HWOI", "HWIO"):
        add("depthwise multiplier 2", "NCHW", kernel, row, "int8", 5, "int8", 1, "OIHW")
    for kernel in ("OIHW", "OHWI", "HWIO"):
        add("depthwise multiplier 2", "NHWC", kernel, row, "uint8", 5, "int8", -1, "HWOI")
    return family


TRANSPOSED: dict[str, tuple[tuple[int, int, int, int], tuple[int, int, int, int], Any]] = {
    # name: data NCHW, weights IOHW, attributes
    "3x3": ((1, 3, 4, 5), (3, 4, 3, 3), {}),
    "3x3 padded": ((2, 2, 5, 3), (2, 5, 3, 3), {"padding": (1, 1)}),
    "strided": ((1, 3, 4, 5), (3, 4, 3, 3), {"strides": (2, 2), "padding": (1, 1)}),
    "strided with output padding": (
        (1, 3, 4, 5),
        (3, 4, 3, 3),
        {"strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1)},
    ),
    "unequal": (
        (1, 5, 3, 4),
        (5, 2, 4, 3),
        {"strides": (3, 2), "padding": (0, 1, 2, 2), "output_padding": (2, 0)},
    ),
    "kernel of the stride": ((2, 4, 3, 3), (4, 3, 2, 2), {"strides": (2, 2)}),
    "kernel below the stride": ((1, 4, 3, 3), (4, 3, 2, 1), {"strides": (3, 2)}),
    "1x1": ((1, 9, 3, 4), (9, 5, 1, 1), {}),
}


def transposed_convolution(
    data: relay.Expr,
    weight_iohw: Array,
    layout: str,
    kernel_layout: str,
    zero_point: int,
    weight_zero_point: Any,
    **attrs: Any,
) -> relay.Expr:
    weight = weight_iohw.transpose(["IOHW".index(axis) for axis in kernel_layout])
    return qnn.conv2d_transpose(
        data,
        relay.const(np.ascontiguousarray(weight)),
        const(zero_point),
        const(weight_zero_point),
        number(0.5),
        number(0.25),
        data_layout=layout,
        kernel_layout=kernel_layout,
        kernel_size=weight_iohw.shape[2:],
        channels=weight_iohw.shape[1] * attrs.get("groups", 1),
        **attrs,
    )


def conv_transpose_family() -> Family:
    family = Family()

    def add(
        name: str,
        layout: str,
        kernel: str,
        row: Any,
        dtype: str,
        zero_point: int,
        weights: str = "int8",
        weight_zero_point: Any = 0,
    ) -> None:
        data, shape, attrs = row
        weight = random(name, shape, weights)
        zeros = zero_point, weight_zero_point

        def build(x: relay.Expr) -> relay.Expr:
            return transposed_convolution(x, weight, layout, kernel, *zeros, **attrs)

        def in_nchw(x: relay.Expr) -> relay.Expr:
            x = x if layout == "NCHW" else relay.transpose(x, (0, 3, 1, 2))
            y = transposed_convolution(x, weight, "NCHW", "IOHW", *zeros, **attrs)
            return y if layout == "NCHW" else relay.transpose(y, (0, 2, 3, 1))

        n, c, h, w = data
        which = "per channel" if np.ndim(weight_zero_point) else weight_zero_point
        family.add(
            f"{name} {layout} {kernel} {dtype} {zero_point} by {weights} {which}",
            Input(nchw_or_nhwc(layout, n, c, h, w), dtype),
            build,
            # TVM's CPU has code for this order alone.
            None if (layout, kernel) == ("NCHW", "IOHW") else in_nchw,
        )

    zeros = [(dtype, end) for dtype in ("int8", "uint8") for end in ends(dtype)]
    for number_of_row, (name, row) in enumerate(TRANSPOSED.items()):
        add(name, "NCHW", "IOHW", row, *zeros[number_of_row % 4])
        add(name, "NHWC", "HWIO", row, *zeros[(number_of_row + 1) % 4])
    row = TRANSPOSED["unequal"]
    for weights, zero in (("int8", 5), ("uint8", 0), ("uint8", 255)):
        add("zero point of the weights", "NCHW", "IOHW", row, "int8", 1, weights, zero)
        add("zero point of the weights", "NHWC", "OHWI", row, "uint8", 1, weights, zero)
    add("zero points", "NCHW", "IOHW", row, "int8", -1, "int8", np.array([7, -128]))
    add("zero points", "NCHW", "OIHW", row, "uint8", 9, "uint8", np.array([0, 255]))
    grouped = ((1, 6, 4, 3), (6, 2, 3, 3), {"groups": 3, "strides": (2, 1), "padding": (1, 1)})
    add("grouped", "NCHW", "IOHW", grouped, "int8", 3)
    add("grouped", "NHWC", "HWIO", grouped, "uint8", 200, "uint8", 9)
    depthwise = ((1, 5, 4, 3), (5, 1, 3, 3), {"groups": 5, "strides": (2, 2)})
    add("depthwise", "NCHW", "IOHW", depthwise, "uint8", 3)
    return family


def dense_family() -> Family:
    family = Family()

    def add(rows: int, k: int, units: int, dtype: str, zero: int, weights: str, w0: Any) -> None:
        weight = relay.const(random(f"qnn dense {k}", (units, k), weights))
        which = "per channel" if np.ndim(w0) else w0
        family.add(
            f"dense {rows}x{k} by {units}, {dtype} {zero} by {weights} {which}",
            Input((rows, k), dtype),
            lambda x: qnn.dense(
                x, weight, const(zero), const(w0), number(0.5), number(0.25), units
            ),
        )

    for dtype in ("int8", "uint8"):
        for zero in (*ends(dtype), 5):
            for rows, k, units in ((1, 64, 10), (3, 17, 5)):
                add(rows, k, units, dtype, zero, "int8", 0)
        for weights, w0 in (("int8", 127), ("uint8", 0), ("uint8", 128)):
            add(2, 130, 9, dtype, 1, weights, w0)
        add(2, 19, 4, dtype, 77, "int8", np.array([-128, 0, 5, 127]))
        add(2, 19, 4, dtype, 77, "uint8", np.array([255, 0, 5, 127]))
    return family


def matmul_family() -> Family:
    family = Family()
    for dtype in ("int8", "uint8"):
        for zeros in ((ends(dtype)[0], ends(dtype)[1]), (5, 77), (0, 0)):
            for batches, rows, columns, k in (((1, 1), 1, 9, 64), ((3, 3), 5, 4, 17)):
                quantization = *map(const, zeros), number(0.5), number(0.25)
                family.add(
                    f"{batches} {rows}x{k} by {columns}, {dtype} {zeros}",
                    (Input((batches[0], rows, k), dtype), Input((batches[1], columns, k), dtype)),
                    lambda x, y, q=quantization: qnn.batch_matmul(x, y, *q),
                )
        quantization = const(3), const(9), number(0.05), number(0.25)
        family.add(
            f"requantized {dtype}",
            (Input((2, 5, 30), dtype), Input((2, 7, 30), dtype)),
            lambda x, y, q=quantization, t=dtype: requantize(
                qnn.batch_matmul(x, y, *q), (0.0125, 0), (0.9, 3), t
            ),
        )
        family.add(
            f"dense by weights of run time, {dtype}",
            (Input((3, 30), dtype), Input((7, 30), dtype)),
            lambda x, y, q=quantization, t=dtype: requantize(
                qnn.dense(x, y, *q, 7), (0.0125, 0), (0.9, 3), t
            ),
        )
    return family


# --- Requantization ------------------------------------------------------------------------------

INT32 = 2**31 - 1


def requantize(
    x: relay.Expr, source: Scale, target: Scale, out: str = "int8", **attrs: Any
) -> relay.Expr:
    return qnn.requantize(x, *pair(source), *pair(target), out_dtype=out, **attrs)


MODES = [
    (rounding, compute_dtype)
    for rounding in ("UPWARD", "TONEAREST")
    for compute_dtype in ("int64", "float32", "float64")
]


RATIOS = {
    "usual": 0.0037,
    "a half": 0.5,
    "one": 1.0,
    "near one": float(np.nextafter(np.float32(1), np.float32(0))),
    "above one": 1.75,
    "large": 300.7,
    "a power of two": 0.0625,
    "twice": 2.0,
    "tiny": 3e-7,
    "tinier than 32 bits": 1.2e-10,
}


def bound(compute_dtype: str, ratio: float) -> int:
    """So large may an accumulator be that no result is beyond int32 (TVM casts a float32 there
    before it clips: undefined), and that a float32 holds it."""
    return int(min(2**24 if compute_dtype == "float32" else 2**30, 2**30 / ratio))


def requantize_family() -> Family:
    """TVM builds no requantization along an axis that is negative and not -1."""
    family = Family()
    shape = (2, 5, 3, 7)

    def add(name: str, x: Input, *args: Any, **attrs: Any) -> None:
        family.add(name, x, lambda x: requantize(x, *args, **attrs))

    scales = np.array([0.5, 0.003, 1.7, 1e-9, 0.25, 0.01, 77.7])
    two_scales = ((0.5, 0.5), (0.3, 0.7), (0.7, 0.3), (0.25, 0.5), (9.0, 0.01))
    for rounding, compute in MODES:
        how = f"{rounding} {compute}"
        attrs = {"rounding": rounding, "compute_dtype": compute}
        results = ("int8", "uint8") if compute == "float32" else ("int8", "uint8", "int32")
        for (name, ratio), out in zip(RATIOS.items(), itertools.cycle(results)):
            most = bound(compute, ratio)
            x = Input(shape, "int32", -most, most)
            add(f"int32 to {out}, ratio {name}, {how}", x, (ratio, 0), (1.0, 3), out, **attrs)
        pairs = itertools.cycle(itertools.product(("int8", "uint8"), repeat=2))
        ends_of_pairs = ((0, 1), (1, 0), (0, 0))
        for (ours, theirs), (of, to), (one, other) in zip(
            itertools.islice(pairs, 6), itertools.cycle(two_scales), itertools.cycle(ends_of_pairs)
        ):
            zeros = ends(ours)[one], ends(theirs)[other]
            add(
                f"{ours} {of} {zeros[0]} to {theirs} {to} {zeros[1]}, {how}",
                Every((4, 64), ours),
                (of, zeros[0]),
                (to, zeros[1]),
                theirs,
                **attrs,
            )
        for axis, size in ((0, 2), (1, 5), (3, 7), (-1, 7)):
            most = bound(compute, 2 * scales[:size].max())
            x = Input(shape, "int32", -most, most)
            each = (scales[:size], 0)
            add(f"int32 along axis {axis}, {how}", x, each, (0.5, 4), axis=axis, **attrs)
        add(
            f"int8 to uint8 along an axis, {how}",
            Input(shape, "int8"),
            (scales, -7),
            (0.5, 4),
            "uint8",
            axis=3,
            **attrs,
        )
        accumulators = Input(shape, "int32", -(2**20), 2**20)
        equal, zero_point = (np.full(5, 0.25), 0), (scales[:5], 12345)
        add(f"equal scales along an axis, {how}", accumulators, equal, (0.25, 4), axis=1, **attrs)
        add(f"zero point along an axis, {how}", accumulators, zero_point, (9.0, 3), axis=1, **attrs)
    for rounding in ("UPWARD", "TONEAREST"):
        add(
            f"uint8 to int32 {rounding}",
            Every((4, 64), "uint8"),
            (0.7, 3),
            (0.01, -9),
            "int32",
            rounding=rounding,
        )
    usual = (0.003, 0), (0.9, 3)
    x = Input(shape, "int32", -(2**24), 2**24)
    add("float32 said alone", x, *usual, compute_dtype="float32")
    add("TONEAREST said alone", x, *usual, rounding="TONEAREST")
    add("nothing said, any int32", Input(shape, "int32"), *usual)
    add("one scale as a vector", Input((3, 1), "int32", -999, 999), ([0.03], 0), (0.9, 3), axis=1)
    return family


# --- Arithmetic ----------------------------------------------------------------------------------

BROADCASTS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("scalar", ()),
    ("vector", (4,)),
    ("outer", (2, 1, 3, 1)),
    ("channels", (5, 1, 1)),
    ("larger", (3, 2, 5, 3, 4)),
)
BINARY = {"add": qnn.add, "subtract": qnn.subtract, "mul": qnn.mul}


def binary_family() -> Family:
    family = Family()
    scales = {
        "unequal": ((0.3, 5), (0.07, -9), (0.11, 3)),
        "left equal": ((0.3, 5), (0.07, -9), (0.3, 3)),
        "right equal": ((0.3, 5), (0.07, -9), (0.07, 3)),
        "all equal": ((0.3, -128), (0.3, 127), (0.3, 0)),
        "all the same": ((0.3, 0), (0.3, 0), (0.3, 0)),
        "halves": ((0.25, 1), (0.5, 2), (0.5, 3)),
        "small to large": ((0.001, 1), (0.002, 2), (7.0, 3)),
        "large to small": ((7.0, 1), (3.0, 2), (0.01, 3)),
    }
    usual = scales["unequal"]
    x = Input((2, 5, 3, 4), "int8")
    for name, op in BINARY.items():

        def apply(a: relay.Expr, b: relay.Expr, of: Any, op: Any = op) -> relay.Expr:
            left, right, out = of
            return op(a, b, *pair(left), *pair(right), *pair(out))

        for dtype in ("int8", "uint8"):
            for what, each in scales.items():
                if dtype == "uint8" and "equal" not in what:
                    continue
                shift = 128 if dtype == "uint8" else 0
                moved = tuple((scale, zero + shift) for scale, zero in each)
                family.add(
                    f"{name} {dtype} {what}",
                    (Input((2, 5, 3, 7), dtype), Input((2, 5, 3, 7), dtype)),
                    lambda a, b, of=moved, apply=apply: apply(a, b, of),
                )
        for what, shape in BROADCASTS if name == "subtract" else BROADCASTS[-2:]:
            two = (x, Input(shape, "int8"))
            constant = random(f"{name} {what}", shape)
            family.add(
                f"{name} of tensor and {what}",
                two,
                lambda a, b, apply=apply: apply(a, b, usual),
            )
            family.add(
                f"{name} of {what} and tensor",
                two,
                lambda a, b, apply=apply: apply(b, a, usual),
            )
            family.add(
                f"{name} of tensor and constant {what}",
                x,
                lambda a, c=constant, apply=apply: apply(a, const(c, "int8"), usual),
            )
            family.add(
                f"{name} of constant {what} and tensor",
                x,
                lambda a, c=constant, apply=apply: apply(const(c, "int8"), a, usual),
            )
        family.add(
            f"{name} of column and row",
            (Input((3, 1), "int8"), Input((1, 4), "int8")),
            lambda a, b, apply=apply: apply(a, b, usual),
        )
        family.add(
            f"{name} of a tensor and itself",
            Every((4, 64), "int8"),
            lambda a, apply=apply: apply(a, a, usual),
        )
        family.add(
            f"{name} and clip",
            (x, x),
            lambda a, b, apply=apply: relay.clip(apply(a, b, usual), 3, 100),
        )

    def swish(x: relay.Expr) -> relay.Expr:
        return relay.multiply(x, relay.sigmoid(x))

    def pooled(x: relay.Expr) -> relay.Expr:
        return dequantize(relay.nn.max_pool2d(x, (2, 1)), (0.05, 3))

    for name, function in (("sigmoid", relay.sigmoid), ("swish", swish)):
        family.add(
            f"{name} as the second side of a sum",
            (Every((4, 64), "uint8"), Every((4, 64), "int8")),
            lambda x, y, f=function: qnn.add(
                x,
                quantize(f(dequantize(y, (0.05, 3))), (0.02, 9), "uint8"),
                *pair((0.1, 0)),
                *pair((0.02, 9)),
                *pair((0.12, 5)),
            ),
        )
    family.add(
        "one swish at two scales",
        Every((1, 4, 8, 8), "int8"),
        lambda x: qnn.subtract(
            quantize(swish(pooled(x)), (0.03, -9)),
            quantize(swish(pooled(x)), (0.02, 9)),
            *pair((0.03, -9)),
            *pair((0.02, 9)),
            *pair((0.04, 5)),
        ),
    )
    family.add(
        "a gate of each channel",
        (Every((4, 8, 8), "int8"), Input((4, 1, 1), "int8")),
        lambda x, y: qnn.mul(
            x,
            quantize(relay.sigmoid(dequantize(y, (0.05, 3))), (1 / 256, -128)),
            *pair((0.1, 3)),
            *pair((1 / 256, -128)),
            *pair((0.1, 3)),
        ),
    )
    return family


def concatenate_family() -> Family:
    family = Family()
    same, other, third = (0.3, 5), (0.07, 9), (0.3, 6)

    def join(parts: Any, scales: Any, out: Scale, axis: int) -> relay.Expr:
        return qnn.concatenate(
            relay.Tuple(list(parts)),
            relay.Tuple([number(scale) for scale, _ in scales]),
            relay.Tuple([const(zero) for _, zero in scales]),
            *pair(out),
            axis,
        )

    for dtype in ("int8", "uint8"):
        x, y = Input((2, 5, 6, 4), dtype), Input((2, 3, 6, 4), dtype)
        for what, scales in (
            ("equal", (same, same)),
            ("unequal", (other, third)),
            ("one equal", (same, other)),
            ("only zero points unequal", (third, third)),
        ):
            family.add(
                f"{dtype}, {what} scales",
                (x, y),
                lambda x, y, scales=scales: join((x, y), scales, same, 1),
            )
        z = Input((2, 5, 6, 1), dtype)
        family.add(
            f"{dtype}, three on the last axis",
            (x, z),
            lambda x, z: join((z, x, z), (other, same, third), same, -1),
        )
        constant = random("qnn concatenate", (2, 4, 6, 4), dtype)
        family.add(
            f"{dtype}, with a constant",
            x,
            lambda x, c=constant: join((relay.const(c), x), (other, same), same, 1),
        )
        family.add(f"{dtype}, one", x, lambda x: join((x,), (other,), same, 0))
    return family


# --- 16 bits -------------------------------------------------------------------------------------


def requantize_16_family() -> Family:
    family = Family()
    shape = (2, 5, 3, 7)

    def add(name: str, x: Input, *args: Any, **attrs: Any) -> None:
        family.add(name, x, lambda x: requantize(x, *args, **attrs))

    modes = [
        mode for mode in MODES if mode not in (("TONEAREST", "float32"), ("UPWARD", "float64"))
    ]
    for rounding, compute in modes:
        how, attrs = f"{rounding} {compute}", {"rounding": rounding, "compute_dtype": compute}
        for (name, ratio), zero in zip(
            itertools.islice(RATIOS.items(), 0, None, 2), itertools.cycle((0, 3, -32768))
        ):
            x = Input((16, 256), "int16")
            add(
                f"int16 to int16, ratio {name}, {how}", x, (ratio, 0), (1.0, zero), "int16", **attrs
            )
        for (of, to), zeros in zip(
            ((0.5, 0.5), (0.3, 0.002), (0.002, 0.3)), ((0, 0), (-7, 32767), (32767, 0)), strict=True
        ):
            x = Input((16, 256), "int16")
            out, dtype = ("uint8", "int8") if zeros[0] else ("int8", "uint8")
            add(f"int16 {of} to {out} {to}, {how}", x, (of, zeros[0]), (to, 3), out, **attrs)
            source, target = (of, ends(dtype)[0]), (to, zeros[1])
            name = f"{dtype} {of} to int16 {target}, {how}"
            add(name, Every((4, 64), dtype), source, target, "int16", **attrs)
        most = bound(compute, 2)
        x = Input(shape, "int32", -most, most)
        each = np.array([0.5, 0.003, 1.7, 1e-9, 0.25, 0.01, 1.9])
        add(f"int32 to int16, {how}", x, (0.001, 0), (1.0, -5), "int16", **attrs)
        for axis, size in ((1, 5), (3, 7)):
            scales = each[:size], 0
            name = f"int32 to int16 along axis {axis}, {how}"
            add(name, x, scales, (1.0, 0), "int16", axis=axis, **attrs)
            name = f"int16 to int8 along axis {axis}, {how}"
            add(name, Input(shape, "int16"), scales, (99.0, 4), axis=axis, **attrs)
    add("int16 to int32", Input(shape, "int16"), (0.7, 3), (0.01, -9), "int32")
    for rounding in ("UPWARD", "TONEAREST"):
        x = Input(shape, "int64", -(2**40), 2**40)
        add(
            f"int64 that wraps to int16 {rounding}",
            x,
            (1e-5, 0),
            (1.0, 0),
            "int16",
            rounding=rounding,
        )
        add(f"int64 to int8 {rounding}", x, (1e-7, 5), (1.0, 3), "int8", rounding=rounding)
        scales = each[:5] / 2**16, 0
        name = f"int64 to int16 along an axis {rounding}"
        add(name, x, scales, (1.0, 0), "int16", axis=1, rounding=rounding)
        attrs = {"rounding": rounding, "compute_dtype": "float64"}
        far = Input(shape, "int64", -(2**62), 2**62)
        add(f"int64 to int16 as float64 {rounding}", x, (1e-8, 0), (1.0, 3), "int16", **attrs)
        add(
            f"any int64 to int32 as float64 {rounding}", far, (1e-10, 0), (1.0, 0), "int32", **attrs
        )
        name = f"int64 to int8 along an axis as float64 {rounding}"
        scales = np.array([1e-8, 3e-9, 7e-11]), 0
        add(name, Input((2, 3, 40), "int64", -(2**34), 2**34), scales, (1.0, -5), axis=1, **attrs)
    family.add(
        "quantize to int16",
        Input((7, 41), "float32", floats=(*FLOATS, *halves_of(0.001))),
        lambda x: quantize(x, (0.001, 0), "int16"),
    )
    family.add(
        "quantize to int16 along an axis",
        Input((5, 40, 3), "float32", floats=(*FLOATS, *halves_of(0.01))),
        lambda x: quantize(x, each_scale(3), "int16"),
    )
    family.add("dequantize int16", Input((9, 300), "int16"), lambda x: dequantize(x, (0.1, 7)))
    family.add(
        "dequantize int16 along an axis",
        Input((9, 30, 3), "int16"),
        lambda x: dequantize(x, each_scale(3)),
    )
    return family


def binary_16_family() -> Family:
    family = Family()
    shape = (2, 5, 3, 40)
    scales = {
        "unequal": ((0.3, 0), (0.07, 0), (0.11, 0)),
        "equal": ((0.3, 0), (0.3, 0), (0.3, 0)),
        "zero points": ((0.3, 5), (0.07, -9), (0.11, 3)),
        "small to large": ((0.001, 0), (0.002, 0), (7.0, 0)),
        "a product that fits": ((0.001, 0), (0.002, 0), (0.07, 0)),
    }
    for name, op in BINARY.items():
        for what, (left, right, out) in scales.items():

            def apply(
                a: relay.Expr, b: relay.Expr, op: Any = op, of: Any = (left, right, out)
            ) -> relay.Expr:
                return op(a, b, *pair(of[0]), *pair(of[1]), *pair(of[2]))

            x, row = Input(shape, "int16"), Input((40,), "int16")
            family.add(f"{name} {what}", (x, x), apply)
            family.add(f"{name} {what}, broadcast", (x, row), apply)
        constant = relay.const(random(f"{name} of 16 bits", shape, "int16"))
        family.add(f"{name} of a constant", x, lambda a, b=constant, op=apply: op(a, b))
    return family


def concatenate_16_family() -> Family:
    family = Family()
    for what, scales in (
        ("equal", ((0.3, 0), (0.3, 0))),
        ("unequal", ((0.07, 0), (0.9, 3))),
        ("one equal", ((0.3, 0), (0.07, 0))),
    ):
        family.add(
            f"{what} scales",
            (Input((2, 5, 6, 4), "int16"), Input((2, 3, 6, 4), "int16")),
            lambda x, y, scales=scales: qnn.concatenate(
                relay.Tuple([x, y]),
                relay.Tuple([number(scale) for scale, _ in scales]),
                relay.Tuple([const(zero) for _, zero in scales]),
                *pair((0.3, 0)),
                1,
            ),
        )
    return family


def conv_16_family() -> Family:
    """CMSIS-NN's int16 by int8, with sums of 32 and of 64 bits; a TFLite file has the latter, and a
    bias of 64 bits. Of extremes the latter leave 32 bits, to which TVM cuts them."""
    family = Family()
    rows = {
        "1x1": CONVOLUTIONS["1x1 strided"],
        "3x2": CONVOLUTIONS["3x2 strided asymmetric pads"],
        "depthwise": DEPTHWISE["depthwise"],
        "depthwise multiplier 2": DEPTHWISE["depthwise multiplier 2"],
        "many products": ((1, 70, 4, 3), (5, 70, 3, 3), {"padding": (1, 1)}),
        "grouped": CONVOLUTIONS["grouped"],
    }
    for name, (data, shape, more) in rows.items():
        weight = random(name, shape, "int8")
        attrs = {"kernel_size": shape[2:], "channels": shape[0], **more}
        for layout, kernel in (("NCHW", "OIHW"), ("NHWC", "HWOI" if "depth" in name else "HWIO")):
            if (name, layout) == ("grouped", "NHWC"):
                continue  # TVM's CPU has no code for it
            x = Input(nchw_or_nhwc(layout, *data), "int16")
            for out in ("int64", *(("int32",) if name != "many products" else ())):

                def build(
                    x: relay.Expr, of: Any = (weight, layout, kernel), a: Any = (out, attrs)
                ) -> relay.Expr:
                    return convolution(x, *of, out_dtype=a[0], **a[1])

                def layer(
                    x: relay.Expr, make: Any = build, of: Any = (layout, out, attrs["channels"])
                ) -> relay.Expr:
                    layout, out, channels = of
                    axis = layout.index("C")
                    bias = const(random("bias 16", (channels,), "int16"), out)
                    scales = np.linspace(1e-5, 2e-4, channels), 0
                    biased = relay.nn.bias_add(make(x), bias, axis=axis)
                    return requantize(biased, scales, (1.0, 0), "int16", axis=axis)

                family.add(f"{name} {layout} {out}", x, build)
                family.add(f"{name} {layout} {out}, requantized", x, layer)
    first, second = random("first of 16", (40, 3, 3, 3)), random("second of 16", (6, 40, 1, 1))
    first[5:35] = 0

    def two_layers(x: relay.Expr) -> relay.Expr:
        attrs = {"kernel_size": (3, 3), "channels": 40, "padding": (1, 1)}
        sums = convolution(x, first, "NHWC", "HWIO", 5, **attrs)
        bias = relay.nn.bias_add(sums, const(np.arange(40) * 999), axis=3)
        middle = requantize(bias, (0.01, 0), (0.002, 0), "int16")
        attrs = {"kernel_size": (1, 1), "channels": 6, "out_dtype": "int64"}
        return requantize(convolution(middle, second, "NHWC", "HWIO", **attrs), (1e-5, 0), (1.0, 3))

    family.add("channels that are constant", Input((1, 6, 5, 3), "int8"), two_layers)
    return family


def dense_16_family() -> Family:
    family = Family()
    for rows, k, units in ((1, 64, 10), (3, 17, 5), (2, 900, 9)):
        weight = relay.const(random(f"dense of 16 bits {k}", (units, k), "int8"))
        for out in ("int64", *(("int32",) if k < 512 else ())):

            def build(x: relay.Expr, w: Any = weight, n: int = units, t: str = out) -> relay.Expr:
                zeros = const(0), const(0)
                return qnn.dense(x, w, *zeros, number(0.5), number(0.25), n, out_dtype=t)

            x = Input((rows, k), "int16")
            family.add(f"{rows}x{k} by {units} {out}", x, build)
            family.add(
                f"{rows}x{k} by {units} {out}, requantized",
                x,
                lambda x, f=build: requantize(f(x), (1e-5, 0), (0.9, 0), "int16"),
            )
            family.add(
                f"nn.dense {rows}x{k} by {units} {out}",
                x,
                lambda x, w=weight, t=out: relay.nn.dense(x, w, out_dtype=t),
            )
    return family


def pool_16_family() -> Family:
    """Averages are of int32: TVM's own code of int16 ones cannot run."""
    family = Family()
    pooling = relay.nn
    windows: dict[str, dict[str, Any]] = {
        "2x2": {"pool_size": (2, 2), "strides": (2, 2)},
        "3x3 padded": {"pool_size": (3, 3), "strides": (2, 1), "padding": (1, 1)},
        "border counted": {"pool_size": (3, 2), "padding": (1, 0), "count_include_pad": True},
    }

    def average(x: relay.Expr, pool: Callable[..., relay.Expr], **attrs: Any) -> relay.Expr:
        return relay.cast(pool(relay.cast(x, "int32"), **attrs), "int16")

    for layout, shape in (("NHWC", (2, 7, 9, 20)), ("NCHW", (2, 5, 7, 9))):
        x = Input(shape, "int16")
        for name, attrs in windows.items():
            of = {**attrs, "layout": layout}
            family.add(
                f"average {name} {layout}", x, lambda x, of=of: average(x, pooling.avg_pool2d, **of)
            )
            if "count_include_pad" not in attrs:
                family.add(f"max {name} {layout}", x, lambda x, of=of: pooling.max_pool2d(x, **of))
        for kind in ("avg", "max"):
            for which in ("global", "adaptive"):
                pool = getattr(pooling, f"{which}_{kind}_pool2d")
                of = {"layout": layout, **({"output_size": (3, 2)} if which == "adaptive" else {})}
                family.add(
                    f"{which} {kind} {layout}",
                    x,
                    (lambda x, of=of, pool=pool: average(x, pool, **of))
                    if kind == "avg"
                    else (lambda x, of=of, pool=pool: pool(x, **of)),
                )
    return family


# --- Floats at the edges -------------------------------------------------------------------------


def quantize(x: relay.Expr, to: Scale, dtype: str = "int8", axis: int = -1) -> relay.Expr:
    return qnn.quantize(x, *pair(to), axis=axis, out_dtype=dtype)


def dequantize(x: relay.Expr, of: Scale, axis: int = -1) -> relay.Expr:
    return qnn.dequantize(x, *pair(of), axis=axis)


def halves_of(scale: float) -> list[float]:
    """Floats where a quotient and a product by the reciprocal round to different integers."""
    return [(n + 0.5) * scale for n in range(-130, 260)]


def edge_family() -> Family:
    family = Family()
    for dtype in ("int8", "uint8"):
        for scale, zero in ((1.0, 0), (0.0625, ends(dtype)[0]), (0.1, ends(dtype)[1]), (7e-7, 5)):
            family.add(
                f"quantize to {dtype} by {scale} {zero}",
                Input((7, 41), "float32", floats=(*FLOATS, *halves_of(scale))),
                lambda x, of=(scale, zero), t=dtype: quantize(x, of, t),
            )
        for axis, size in ((1, 5), (-1, 3), (0, 2)):
            family.add(
                f"quantize to {dtype} along axis {axis}",
                Input((2, 5, 4, 3), "float32", floats=(*FLOATS, *halves_of(0.01))),
                lambda x, n=size, t=dtype, a=axis: quantize(x, (np.linspace(0.01, 3, n), 7), t, a),
            )
            family.add(
                f"quantize to {dtype} along axis {axis}, zero points too",
                Input((2, 5, 4, 3), "float32", floats=(*FLOATS, *halves_of(0.01))),
                lambda x, n=size, t=dtype, a=axis: quantize(x, each_scale(n), t, a),
            )
            family.add(
                f"relu of {dtype} along axis {axis}, zero points too",
                Input((2, 5, 4, 3), dtype),
                lambda x, n=size, t=dtype, a=axis: quantize(
                    relay.nn.relu(dequantize(x, each_scale(n), a)), each_scale(n, -1), t, a
                ),
            )
    for dtype in ("int8", "uint8", "int32"):
        data = Input((4, 64), "int32") if dtype == "int32" else Every((4, 64), dtype)
        for scale, zero in ((1.0, 0), (0.1, ends(dtype)[0] if dtype != "int32" else 0), (3e-9, 7)):
            family.add(
                f"dequantize {dtype} by {scale} {zero}",
                data,
                lambda x, of=(scale, zero): dequantize(x, of),
            )
        for axis, size in ((1, 5), (-1, 3), (0, 2)):
            family.add(
                f"dequantize {dtype} along axis {axis}",
                Input((2, 5, 4, 3), dtype, *((-(2**30), 2**30) if dtype == "int32" else ())),
                lambda x, n=size, a=axis: dequantize(x, (np.linspace(0.01, 3, n), 7), a),
            )
            family.add(
                f"dequantize {dtype} along axis {axis}, zero points too",
                Input((2, 5, 4, 3), dtype, *((-(2**30), 2**30) if dtype == "int32" else ())),
                lambda x, n=size, a=axis: dequantize(x, each_scale(n), a),
            )
    return family


def each_scale(count: int, step: int = 1) -> tuple[Array, Array]:
    """A scale and a zero point for each channel, the last first where ``step`` is -1."""
    zero_points = np.linspace(5, 120, count).astype("int32")
    return np.linspace(0.01, 3, count)[::step], zero_points[::step]


def softmax_family() -> Family:
    family = Family()
    for dtype in ("int8", "uint8"):
        for shape, axis in (((1, 10), -1), ((7, 33), 1), ((2, 5, 3), 1), ((3, 4, 5), 0)):
            for scale in (0.01, 0.17, 5.0):
                family.add(
                    f"softmax {dtype} {shape} axis {axis} scale {scale}",
                    Input(shape, dtype),
                    lambda x, a=axis, of=(scale, 3), t=dtype: quantize(
                        relay.nn.softmax(dequantize(x, of), a), (1 / 256, ends(t)[0]), t
                    ),
                )
                family.add(
                    f"log softmax {dtype} {shape} axis {axis} scale {scale}",
                    Input(shape, dtype),
                    lambda x, a=axis, of=(scale, 3), t=dtype: quantize(
                        relay.nn.log_softmax(dequantize(x, of), a), (of[0] / 2, ends(t)[1]), t
                    ),
                )
    return family


def below_zero(x: relay.Expr, alpha: float) -> relay.Expr:
    """What TVM's importers write for the negative side of an ELU."""
    return relay.multiply(number(-alpha), relay.nn.relu(relay.subtract(number(1), relay.exp(x))))


UNARY: dict[str, Callable[[relay.Expr], relay.Expr]] = {
    **{name: getattr(relay, name) for name in FUNCTIONS if name not in UNSPELLED},
    "relu": relay.nn.relu,
    "leaky_relu 0.1": lambda x: relay.nn.leaky_relu(x, 0.1),
    "leaky_relu -2.5": lambda x: relay.nn.leaky_relu(x, -2.5),
    "round": relay.round,
    "clip": lambda x: relay.clip(x, -0.7, 6.0),
    "divide": lambda x: relay.divide(x, number(3.3)),
    "divide by a negative": lambda x: relay.divide(x, number(-0.7)),
    "add": lambda x: relay.add(x, number(0.3)),
    "subtract": lambda x: relay.subtract(x, number(0.3)),
    "subtract from": lambda x: relay.subtract(number(1.0), x),
    "multiply": lambda x: relay.multiply(number(-1.3), x),
    "maximum": lambda x: relay.maximum(x, number(-0.3)),
    "minimum": lambda x: relay.minimum(x, number(0.3)),
    "prelu of one slope": lambda x: relay.nn.prelu(x, number([0.3] * 64), axis=1),
    "prelu": lambda x: relay.nn.prelu(x, number(np.linspace(-1, 2, 64)), axis=1),
    "hard sigmoid": lambda x: relay.clip(
        relay.add(relay.multiply(x, number(0.2)), number(0.5)), 0, 1
    ),
    "hard sigmoid of ONNX": lambda x: relay.maximum(
        number(0),
        relay.minimum(number(1), relay.add(relay.multiply(x, number(1 / 6)), number(0.5))),
    ),
    "hard swish": lambda x: relay.multiply(
        x, relay.multiply(relay.clip(relay.add(x, number(3)), 0, 6), number(1 / 6))
    ),
    "hard swish by division": lambda x: relay.multiply(
        x, relay.divide(relay.clip(relay.add(x, number(3)), 0, 6), number(6))
    ),
    "swish": lambda x: relay.multiply(x, relay.sigmoid(x)),
    "gelu": lambda x: relay.multiply(
        x,
        relay.multiply(
            number(0.5),
            relay.add(number(1), relay.erf(relay.multiply(x, number(2**-0.5)))),
        ),
    ),
    "gelu of ONNX": lambda x: relay.multiply(
        relay.multiply(number(0.5), x),
        relay.add(number(1), relay.erf(relay.divide(x, number(2**0.5)))),
    ),
    "gelu by tanh": lambda x: relay.multiply(
        relay.multiply(number(0.5), x),
        relay.add(
            number(1),
            relay.tanh(
                relay.multiply(
                    number(0.8),
                    relay.add(x, relay.multiply(number(0.045), relay.multiply(x, x * x))),
                )
            ),
        ),
    ),
    "elu": lambda x: relay.add(below_zero(x, 1.0), relay.nn.relu(x)),
    "selu": lambda x: relay.multiply(
        number(1.05), relay.add(below_zero(x, 1.67), relay.nn.relu(x))
    ),
    "celu": lambda x: relay.add(
        relay.maximum(number(0), x),
        relay.minimum(number(0), number(0.7) * (relay.exp(x / number(0.7)) - number(1))),
    ),
    "softsign": lambda x: relay.divide(x, relay.add(number(1), relay.abs(x))),
    "reciprocal": lambda x: relay.divide(number(1), x),
    "sigmoid by division": lambda x: relay.divide(
        number(1), relay.add(number(1), relay.exp(relay.negative(x)))
    ),
    "swish by division": lambda x: relay.divide(
        x, relay.add(number(1), relay.exp(relay.negative(x)))
    ),
    "largest of two": lambda x: relay.maximum(relay.exp(x), relay.subtract(number(3), x)),
    "smallest of two": lambda x: relay.minimum(relay.nn.relu(x), relay.exp(relay.erf(x))),
    "difference of two": lambda x: relay.subtract(relay.nn.relu(x), relay.exp(relay.erf(x))),
    "softplus": lambda x: relay.log(relay.add(number(1), relay.exp(x))),
    "nothing": lambda x: x,
}


def table_family() -> Family:
    """Functions of an integer of 8 or 16 bits, by all of its values.

    TVM's SimplifyExpr merges products by constants that follow one another, which are other floats
    then: a partition leaves nothing for it to merge.
    """
    family = Family(passes_off=("SimplifyExpr",))
    for name, function in UNARY.items():
        for dtype, of, to in (("int8", (0.05, 3), (0.02, -3)), ("uint8", (1.0, 0), (0.5, 255))):
            family.add(
                f"{name} of {dtype}",
                Every((4, 64), dtype),
                lambda x, f=function, of=of, to=to, t=dtype: quantize(f(dequantize(x, of)), to, t),
            )
        for dtype, zero in (("int8", -3), ("int16", 0)):
            family.add(
                f"{name} of int16 to {dtype}",
                Every((1024, 64), "int16"),
                lambda x, f=function, t=dtype, z=zero: quantize(
                    f(dequantize(x, (2e-4, 0))), ({"int8": 0.02, "int16": 1e-4}[t], z), t
                ),
            )
    family.add(
        "between int8 and uint8",
        Every((4, 64), "int8"),
        lambda x: quantize(relay.sigmoid(dequantize(x, (0.1, 3))), (1 / 256, 0), "uint8"),
    )
    family.add(
        "two in a row",
        Every((4, 64), "int8"),
        lambda x: quantize(
            relay.tanh(
                dequantize(
                    quantize(relay.sigmoid(dequantize(x, (0.1, 3))), (1 / 256, -128)),
                    (1 / 256, -128),
                )
            ),
            (1 / 128, 0),
        ),
    )
    family.add(
        "requantizations in a row",
        Every((4, 64), "uint8"),
        lambda x: requantize(requantize(x, (0.3, 7), (0.1, -3)), (0.2, 3), (0.5, 7), "uint8"),
    )
    return family


WEIGHTS = number(np.linspace(0, 1, 12).reshape(3, 4))


def float_sum_family() -> Family:
    """Sums of several branches in float32, rounded once."""
    family = Family()
    whole, part = (2, 5, 3, 4), (3, 1)
    scales = ((0.3, 5), (0.07, -9), (0.11, 3), (0.05, -100))

    def add(name: str, shapes: tuple[Any, ...], dtype: str, build: Any) -> None:
        def expr(*values: relay.Expr) -> relay.Expr:
            reals = [dequantize(v, of) for v, of in zip(values, scales, strict=False)]
            return quantize(build(*reals), (0.21, 7), dtype)

        family.add(f"{name} of {dtype}", tuple(Input(s, dtype) for s in shapes), expr)

    for dtype in ("int8", "uint8"):
        add("three", (whole, whole, whole), dtype, lambda a, b, c: a + b + c)
        add("four", (whole,) * 4, dtype, lambda a, b, c, d: relay.nn.relu(d + (c + (a + b))))
        add("broadcast", (part, whole, whole), dtype, lambda a, b, c: relay.clip(a + b + c, 0, 6))
        add("number", (whole, whole), dtype, lambda a, b: number(0.7) + (a + b))
        add("weights", (whole, whole), dtype, lambda a, b: a * WEIGHTS + b * (number(1) - WEIGHTS))
        add("product", (whole, part, whole), dtype, lambda a, b, c: a * b + c)
        add("quotient", (whole, whole), dtype, lambda a, b: a / (number(150) + b))
    return family


# --- Reduction and pooling -----------------------------------------------------------------------


def reduce_family() -> Family:
    family = Family()
    for op in (relay.sum, relay.mean):
        for attrs in (
            {"axis": (1, 2)},
            {"axis": (2, 3), "keepdims": True},
            {"axis": -1},
            {"axis": None},
            {"axis": None, "keepdims": True},
            {"axis": (0, -1), "exclude": True},
            {"axis": 1, "exclude": True, "keepdims": True},
            {"axis": (0,)},
            {"axis": (3, 1)},
        ):
            family.add(
                f"{op.__name__} {attrs}",
                Input((2, 5, 6, 3), "int32", -(2**20), 2**20),
                lambda x, op=op, attrs=attrs: op(x, **attrs),
            )
        for what, low, high in (("negative", -(2**20), -1), ("small", -3, 2)):
            family.add(
                f"{op.__name__} of {what} values",
                Input((4, 7, 5), "int32", low, high),
                lambda x, op=op: op(x, (1,)),
            )
        for dtype in ("int8", "uint8"):
            family.add(
                f"{op.__name__} of {dtype} made int32, requantized",
                Input((2, 7, 5, 3), dtype),
                lambda x, op=op: requantize(
                    op(relay.cast(x, "int32"), (1, 2), keepdims=True), (0.1, 3), (0.07, -5)
                ),
            )
        family.add(
            f"{op.__name__} over length 1",
            Input((3, 1, 4), "int32"),
            lambda x, op=op: op(x, (1,)),
        )
    return family


def pool_family() -> Family:
    family = Family()
    windows: dict[str, Any] = {
        "2x2": {"pool_size": (2, 2), "strides": (2, 2)},
        "3x2 padded": {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0, 1, 1)},
    }
    for layout in ("NCHW", "NHWC"):
        for dtype in ("int8", "uint8"):
            x = Input(nchw_or_nhwc(layout, 2, 5, 6, 7), dtype)
            for name, window in windows.items():
                attrs = {**window, "layout": layout}
                for border in (False, True):
                    family.add(
                        f"average {name} {dtype} {layout}" + (" with border" if border else ""),
                        x,
                        lambda x, a=attrs, t=dtype, b=border: relay.cast(
                            relay.nn.avg_pool2d(relay.cast(x, "int32"), count_include_pad=b, **a),
                            t,
                        ),
                    )
                family.add(
                    f"maximum {name} {dtype} {layout}",
                    x,
                    lambda x, a=attrs: relay.nn.max_pool2d(x, **a),
                )
            family.add(
                f"global average {dtype} {layout}",
                x,
                lambda x, la=layout: requantize(
                    relay.nn.global_avg_pool2d(relay.cast(x, "int32"), layout=la),
                    (0.1, 3),
                    (0.09, 5),
                ),
            )
    return family


# --- Chains --------------------------------------------------------------------------------------


def padded_convolution(
    x: relay.Expr, layout: str, kernel: str, value: int, zero_point: int, **attrs: Any
) -> relay.Expr:
    """TFLite's strided convolution: a border, then a convolution without."""
    widths = ((0, 0), (0, 1), (1, 2), (0, 0))
    widths = widths if layout == "NHWC" else (widths[0], widths[3], *widths[1:3])
    weight = random(f"padded {kernel}", (6, 3, 3, 2) if "groups" not in attrs else (3, 2, 3, 2))
    attrs = {"kernel_size": (3, 2), "channels": 6, "strides": (2, 2), **attrs}
    padded = relay.nn.pad(x, widths, value)
    return convolution(padded, weight, layout, kernel, zero_point, **attrs)


def chain_family() -> Family:
    family = Family()
    for layout, kernel, axis in (("NCHW", "OIHW", 1), ("NHWC", "HWIO", 3)):
        image = Input(nchw_or_nhwc(layout, 2, 3, 7, 6), "int8")

        def add(name: str, build: Any, of: Any = image, layout: str = layout) -> None:
            family.add(f"{name} {layout}", of, build)

        for value, zero_point in ((-5, -5), (-5, 7), (0, 0)):
            add(
                f"pad by {value} at zero point {zero_point}",
                lambda x, a=(layout, kernel, value, zero_point): padded_convolution(x, *a),
            )
        add(
            "pad and padding",
            lambda x, a=(layout, kernel, 9, 9): padded_convolution(x, *a, padding=(1, 0, 2, 1)),
        )
        add(
            "pad and depthwise",
            lambda x, a=(layout, "OIHW" if layout == "NCHW" else "HWOI", 9, 9): padded_convolution(
                x, *a, groups=3
            ),
        )
        bias = const(random("qnn bias", (6,), "int32") >> 12)
        scales = np.array([0.002, 0.01, 0.0007, 1e-9, 0.5, 0.0123])

        def layer(
            x: relay.Expr,
            a: Any = (layout, kernel, -5, -5),
            axis: int = axis,
            bias: Any = bias,
            scales: Any = scales,
            **attrs: Any,
        ) -> relay.Expr:
            y = relay.nn.bias_add(padded_convolution(x, *a), bias, axis)
            return requantize(y, (scales, 0), (0.6, 4), axis=axis, **attrs)

        for rounding, compute in MODES:
            attrs = {"rounding": rounding, "compute_dtype": compute}
            add(
                f"layer {rounding} {compute}",
                lambda x, layer=layer, attrs=attrs: relay.clip(layer(x, **attrs), 4, 100),
            )
        add(
            "residual of two layers",
            lambda x, layer=layer: relay.clip(
                qnn.add(
                    layer(x),
                    relay.nn.max_pool2d(layer(x), (1, 1)),
                    *pair((0.6, 4)),
                    *pair((0.6, 4)),
                    *pair((0.9, -100)),
                ),
                -100,
                127,
            ),
        )
        add(
            "float image to float result",
            lambda x, layer=layer: dequantize(layer(quantize(x, (0.1, -5))), (0.6, 4)),
            Input(image.shape, "float32", floats=FLOATS),
        )
    return family


OF_16_BITS: dict[str, Callable[[], Family]] = {
    "requantize 16": requantize_16_family,
    "binary 16": binary_16_family,
    "concatenate 16": concatenate_16_family,
    "conv 16": conv_16_family,
    "dense 16": dense_16_family,
    "pool 16": pool_16_family,
}
FAMILIES: dict[str, Callable[[], Family]] = {
    "qnn conv": conv_family,
    "qnn conv transpose": conv_transpose_family,
    "qnn dense": dense_family,
    "qnn matmul": matmul_family,
    "requantize": requantize_family,
    **OF_16_BITS,
    "qnn binary": binary_family,
    "qnn concatenate": concatenate_family,
    "qnn edge": edge_family,
    "softmax": softmax_family,
    "table": table_family,
    "float sum": float_sum_family,
    "reduce": reduce_family,
    "8-bit pool": pool_family,
    "qnn chain": chain_family,
}
SUITE = Suite(FAMILIES, TARGET)
PORTABLE = Suite(OF_16_BITS, TARGET, isa="scalar")
