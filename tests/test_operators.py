"""Every operator of nn and plain Relay equals TVM's CPU result bit for bit: in numpy, and as
compiled C. (``test_qnn_operators.py`` has those of QNN; ``cases.py`` runs the cases.)"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relay

from tests.cases import (
    CONVOLUTIONS,
    DEPTHWISE,
    DRAWS,
    FLOATS,
    INTEGERS,
    Family,
    Input,
    Suite,
    assert_same,
    const,
    graph_of,
    nchw_or_nhwc,
    random,
)
from tests.example_graphs import orders_as_given
from tinyai.errors import UnsupportedError
from tinyai.frontends.relay_source import Source
from tinyai.ir import Array, Builder, DType, Graph, Type
from tinyai.ops import AdaptivePool2d, AvgPool2d, Conv2d, MaxPool2d
from tinyai.ops.window import Window
from tinyai.patterns import refusal_of_operator
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner

# --- Convolution and dense -----------------------------------------------------------------------


def convolution(
    data: relay.Expr, weight_oihw: Array, layout: str, kernel_layout: str, **attrs: Any
) -> relay.Expr:
    weight = weight_oihw.transpose(["OIHW".index(axis) for axis in kernel_layout])
    return relay.nn.conv2d(
        data,
        relay.const(np.ascontiguousarray(weight)),
        data_layout=layout,
        kernel_layout=kernel_layout,
        out_dtype="int32",
        **attrs,
    )


def conv_family() -> Family:
    family = Family()

    def add(name: str, layout: str, kernel: str, row: Any, oracle_kernel: str = "") -> None:
        data, weights, attrs = row
        shape = data if layout == "NCHW" else tuple(data[i] for i in (0, 2, 3, 1))
        weight = random(name, weights)
        if name == "1x1 batch 3":
            weight[:] = -128
        attrs = {"kernel_size": weights[2:], "channels": weights[0], **attrs}

        def build(kernel_layout: str, x: relay.Expr) -> relay.Expr:
            return convolution(x, weight, layout, kernel_layout, **attrs)

        family.add(
            f"{name} {layout} {kernel}",
            Input(shape, "int8"),
            functools.partial(build, kernel),
            functools.partial(build, oracle_kernel) if oracle_kernel else None,
        )

    for name, row in CONVOLUTIONS.items():
        add(name, "NCHW", "OIHW", row)
        add(name, "NHWC", "HWIO", row)
    for name, row in DEPTHWISE.items():
        add(name, "NCHW", "OIHW", row)
        add(name, "NHWC", "HWOI", row)
    # One input channel a group, written as a grouped convolution: O is the output channel.
    grouped = ((1, 5, 6, 6), (10, 1, 3, 3), {"groups": 5, "padding": (1, 1)})
    add("multiplier 2 as groups", "NCHW", "OIHW", grouped)
    add("multiplier 2 as groups", "NHWC", "HWIO", grouped)
    # Orders that TVM's CPU has no code for: the same weights in an order that it knows.
    row = CONVOLUTIONS["3x2 strided asymmetric pads"]
    for kernel in ("HWIO", "OHWI", "HWOI", "IOHW"):
        add("regular", "NCHW", kernel, row, "OIHW")
    for kernel in ("OIHW", "OHWI", "HWOI"):
        add("regular", "NHWC", kernel, row, "HWIO")
    add("depthwise in OHWI", "NCHW", "OHWI", DEPTHWISE["depthwise multiplier 2"], "OIHW")
    add("depthwise in HWIO", "NHWC", "HWIO", DEPTHWISE["depthwise multiplier 2"], "HWOI")
    weight = random("no attributes", (4, 3, 3, 3))
    family.add(
        "without kernel_size and channels",
        Input((1, 3, 6, 6), "int8"),
        lambda x: convolution(x, weight, "NCHW", "OIHW", padding=1, strides=2),
        lambda x: convolution(
            x, weight, "NCHW", "OIHW", padding=1, strides=2, kernel_size=(3, 3), channels=4
        ),
    )
    return family


def dense_family() -> Family:
    family = Family()
    for rows, k, units in ((1, 1, 1), (1, 64, 10), (3, 17, 5), (8, 130, 33)):
        weight = random(f"dense {k}", (units, k))
        family.add(
            f"dense {rows}x{k} by {units}",
            Input((rows, k), "int8"),
            lambda x, w=weight: relay.nn.dense(x, relay.const(w), out_dtype="int32"),
        )
    lowest = np.full((5, 300), -128, np.int8)
    family.add(
        "dense of the lowest values, units given",
        Input((2, 300), "int8", -128, -127),
        lambda x: relay.nn.dense(x, relay.const(lowest), units=5, out_dtype="int32"),
    )
    return family


# --- Pooling -------------------------------------------------------------------------------------

WINDOWS: dict[str, dict[str, Any]] = {
    "2x2": {"pool_size": (2, 2), "strides": (2, 2)},
    "3x3 padded": {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)},
    "3x2 asymmetric": {"pool_size": (3, 2), "strides": (1, 2), "padding": (0, 1, 1, 0)},
    "5x3 wide border": {"pool_size": (5, 3), "strides": (3, 2), "padding": (3, 2, 4, 1)},
    "ceil": {"pool_size": (3, 3), "strides": (2, 2), "ceil_mode": True},
    "ceil padded": {
        "pool_size": (3, 2),
        "strides": (2, 3),
        "padding": (1, 0, 1, 1),
        "ceil_mode": True,
    },
    "ceil wide stride": {"pool_size": (2, 2), "strides": (3, 4), "ceil_mode": True},
    "ceil windows outside": {"pool_size": (1, 1), "strides": (4, 5), "ceil_mode": True},
}
# A window without any element: TVM divides by zero and the process ends; ours gives 0.
NO_ORACLE = ("ceil wide stride", "with border")


def pool_family() -> Family:
    family = Family()
    for layout in ("NCHW", "NHWC"):
        shape = nchw_or_nhwc(layout, 2, 5, 6, 9)
        for name, window in WINDOWS.items():
            attrs = {**window, "layout": layout}
            for dtype in ("int8", "int32"):
                family.add(
                    f"max {name} {layout} {dtype}",
                    Input(shape, dtype),
                    lambda x, a=attrs: relay.nn.max_pool2d(x, **a),
                )
            for include, border in ((False, "without border"), (True, "with border")):
                if (name, border) == NO_ORACLE:
                    continue
                family.add(
                    f"avg {name} {layout} {border}",
                    Input(shape, "int32", -(2**24), 2**24),
                    lambda x, a=attrs, i=include: relay.nn.avg_pool2d(x, count_include_pad=i, **a),
                )
        for dilation in ((2, 3), (1, 2)):
            family.add(
                f"max dilated {dilation} {layout}",
                Input(shape, "int8"),
                lambda x, d=dilation, la=layout: relay.nn.max_pool2d(
                    x, (2, 3), dilation=d, layout=la, padding=(1, 1)
                ),
            )
        for dtype in INTEGERS:
            family.add(
                f"max of {dtype} {layout}",
                Input(shape, dtype),
                lambda x, la=layout: relay.nn.max_pool2d(x, (3, 3), padding=(1, 1), layout=la),
            )
        family.add(
            f"avg that wraps {layout}",
            Input(shape, "int32"),
            lambda x, la=layout: relay.nn.avg_pool2d(x, (3, 3), layout=la),
        )
    return family


def adaptive_family() -> Family:
    family = Family()
    for layout in ("NCHW", "NHWC"):
        shape = nchw_or_nhwc(layout, 2, 5, 7, 8)
        average = Input(shape, "int32", -(2**24), 2**24)
        for size in ((1, 1), (3, 2), (7, 7), (4,), (9, 10), None):
            family.add(
                f"adaptive avg {size} {layout}",
                average,
                lambda x, s=size, la=layout: relay.nn.adaptive_avg_pool2d(x, s, layout=la),
            )
            family.add(
                f"adaptive max {size} {layout}",
                Input(shape, "int8"),
                lambda x, s=size, la=layout: relay.nn.adaptive_max_pool2d(x, s, layout=la),
            )
        family.add(
            f"global avg {layout}",
            average,
            lambda x, la=layout: relay.nn.global_avg_pool2d(x, layout=la),
        )
        family.add(
            f"global avg that wraps {layout}",
            Input(shape, "int32"),
            lambda x, la=layout: relay.nn.global_avg_pool2d(x, layout=la),
        )
        for dtype in ("int8", "int32"):
            family.add(
                f"global max {dtype} {layout}",
                Input(shape, dtype),
                lambda x, la=layout: relay.nn.global_max_pool2d(x, layout=la),
            )
    return family


# --- Elementwise ---------------------------------------------------------------------------------

BINARY = {
    "add": relay.add,
    "subtract": relay.subtract,
    "multiply": relay.multiply,
    "maximum": relay.maximum,
    "minimum": relay.minimum,
}


def binary_family() -> Family:
    """One operator a case, so that nothing but its own wrapping is at work."""
    family = Family()
    shape = (2, 5, 3, 4)
    for name, op in BINARY.items():
        for dtype in INTEGERS:
            scalar = random(f"{name} {dtype}", (), dtype)
            family.add(
                f"{name} {dtype} and scalar",
                Input(shape, dtype),
                lambda x, op=op, s=scalar, t=dtype: op(x, const(s, t)),
            )
        channels = random(name, (5, 1, 1), "int32")
        last = random(name, (4,), "int32")
        rows = random(name, (5, 3, 1), "int32")
        full = random(name, (2, 5, 3, 4), "int32")
        big = random(name, (2, 2, 5, 3, 4), "int32")
        x = Input(shape, "int32")
        for what, value in (
            ("channels of NCHW", channels),
            ("last axis", last),
            ("two axes", rows),
            ("whole tensor", full),
            ("larger constant", big),
        ):
            family.add(f"{name} tensor, {what}", x, lambda x, op=op, v=value: op(x, relay.const(v)))
            family.add(f"{name} {what}, tensor", x, lambda x, op=op, v=value: op(relay.const(v), x))
        for what, other in (
            ("same shape", shape),
            ("scalar", ()),
            ("vector", (4,)),
            ("channels", (5, 1, 1)),
            ("larger", (3, 2, 5, 3, 4)),
            ("outer", (2, 1, 3, 1)),
        ):
            pair = (x, Input(other, "int32"))
            family.add(f"{name} of tensor and {what}", pair, lambda a, b, op=op: op(a, b))
            family.add(f"{name} of {what} and tensor", pair, lambda a, b, op=op: op(b, a))
        outer = (Input((3, 1), "int32"), Input((1, 4), "int32"))
        family.add(f"{name} of column and row", outer, lambda a, b, op=op: op(a, b))
        family.add(f"{name} of a tensor and itself", x, lambda a, op=op: op(a, a))
        scalars = (Input((), "int32"), Input((), "int32"))
        family.add(f"{name} of scalars", scalars, lambda a, b, op=op: op(a, b))
    return family


def shift_family() -> Family:
    family = Family()
    for dtype in INTEGERS:
        bits = np.iinfo(dtype).bits
        for name, op in (("right", relay.right_shift), ("left", relay.left_shift)):
            for amount in sorted({0, 1, bits // 2, bits - 1}):
                family.add(
                    f"{name} shift of {dtype} by {amount}",
                    Input((3, 4), dtype),
                    lambda x, op=op, a=amount, t=dtype: op(x, const(a, t)),
                )
    amounts = np.array([0, 1, 7, 30, 31])
    for name, op in (("right", relay.right_shift), ("left", relay.left_shift)):
        family.add(
            f"{name} shift per channel of NCHW",
            Input((2, 5, 3, 4), "int32"),
            lambda x, op=op: op(x, const(amounts.reshape(5, 1, 1))),
        )
        family.add(
            f"{name} shift per channel of NHWC",
            Input((2, 3, 4, 5), "int32"),
            lambda x, op=op: op(x, const(amounts)),
        )
        family.add(
            f"{name} shift by amounts of a larger shape",
            Input((3, 5), "int32"),
            lambda x, op=op: op(x, const(np.broadcast_to(amounts, (2, 3, 5)))),
        )
    return family


def unary_family() -> Family:
    family = Family()
    for dtype in INTEGERS:
        family.add(f"relu {dtype}", Input((3, 5, 4), dtype), relay.nn.relu)
    for dtype in ("int8", "int16", "int32", "int64"):
        for alpha in (0.1, 0.99, 1.0, 1.5, -0.5, -2, 100.9, -127.5):
            family.add(
                f"leaky relu {dtype} alpha {alpha}",
                Input((3, 5, 4), dtype),
                lambda x, a=alpha: relay.nn.leaky_relu(x, a),
            )
    for alpha in (0.1, 1.5, 2.0):
        family.add(
            f"leaky relu uint8 alpha {alpha}",
            Input((3, 5, 4), "uint8"),
            lambda x, a=alpha: relay.nn.leaky_relu(x, a),
        )
    for dtype, low, high in (
        ("int8", -127, 127),
        ("int8", -128, 127),
        ("int8", 0, 6),
        ("int8", 5, 5),
        ("uint8", 0, 255),
        ("uint8", 3, 200),
        ("int16", -300, 299),
        ("int32", 0, 192),
        ("int32", -(2**31), 2**31 - 1),
        ("int64", -(2**40), 2**40),
    ):
        family.add(
            f"clip {dtype} {low} {high}",
            Input((3, 5, 4), dtype),
            lambda x, lo=low, hi=high: relay.clip(x, lo, hi),
        )
    for source, target in itertools.permutations(INTEGERS, 2):
        family.add(
            f"cast {source} to {target}",
            Input((4, 9), source),
            lambda x, t=target: relay.cast(x, t),
        )
    family.add("cast int8 to int8", Input((2, 3), "int8"), lambda x: relay.cast(x, "int8"))
    family.add(
        "stop_fusion between adds",
        Input((3, 4), "int32"),
        lambda x: relay.add(relay.annotation.stop_fusion(relay.add(x, const(3))), const(-5)),
    )
    for multiplier in (1, 2**30 + 1, 2**31 - 1, 1518500250, -(2**31), -1518500250, 0):
        for shift in (-30, -7, 0, 1, 5):
            bound = 2**31 - 1 if shift <= 0 else 2 ** (31 - shift) - 1
            family.add(
                f"fixed point int32 by {multiplier} shift {shift}",
                Input((3, 7), "int32", -bound - 1, bound),
                lambda x, m=multiplier, s=shift: relay.fixed_point_multiply(x, m, s),
            )
            # TVM's own result is int32 on int64 values too: it runs only in front of a cast.
            family.add(
                f"fixed point int64 by {multiplier} shift {shift}",
                Input((3, 7), "int64", -bound - 1, bound),
                lambda x, m=multiplier, s=shift: relay.cast(
                    relay.fixed_point_multiply(x, m, s), "int32"
                ),
            )
    for shift in (-30, -8, -1, 0, 2, 5):
        family.add(
            f"fixed point by a half shift {shift}",
            Input((3, 7), "int32", -(2**30), 2**30),
            lambda x, s=shift: relay.fixed_point_multiply(x, 2**30, s),
        )
    family.add("relu of a scalar", Input((), "int8"), relay.nn.relu)
    family.add("cast of a scalar", Input((), "int32"), lambda x: relay.cast(x, "int8"))
    return family


def bias_family() -> Family:
    family = Family()
    for shape, axis in (
        ((2, 5, 3, 4), 1),
        ((2, 3, 4, 5), 3),
        ((2, 3, 4, 5), -1),
        ((7, 5), 1),
        ((5, 7), 0),
    ):
        for dtype in ("int32", "int16"):
            bias = random(f"bias {axis}", (5,), dtype)
            family.add(
                f"bias_add {dtype} axis {axis} of rank {len(shape)}",
                Input(shape, dtype),
                lambda x, b=bias, a=axis: relay.nn.bias_add(x, relay.const(b), a),
            )
    family.add(
        "bias_add of a run-time vector",
        (Input((2, 5, 3, 4), "int32"), Input((5,), "int32")),
        lambda x, b: relay.nn.bias_add(x, b, 1),
    )
    family.add(
        "bias_add of a vector along the last axis",
        (Input((2, 3, 5), "int8"), Input((5,), "int8")),
        lambda x, b: relay.nn.bias_add(x, b, -1),
    )
    return family


# --- Moving values -------------------------------------------------------------------------------


def move_family() -> Family:
    family = Family()
    x = Input((2, 5, 6, 7), "int8")

    def add(name: str, build: Callable[..., relay.Expr], of: Any = x) -> None:
        family.add(name, of, build)

    widths = ((0, 0), (1, 2), (0, 3), (0, 0))
    for dtype, value in (("int8", 0), ("int8", -128), ("uint8", 255), ("int32", 70000)):
        add(
            f"pad {dtype} by {value}",
            lambda x, v=value: relay.nn.pad(x, widths, v),
            Input((2, 5, 6, 7), dtype),
        )
    add("pad by a constant of its type", lambda x: relay.nn.pad(x, widths, const(9, "int8")))
    add("pad a vector in front", lambda x: relay.nn.pad(x, ((2, 0),), 1), Input((3,), "int64"))
    add("pad by nothing", lambda x: relay.nn.pad(x, ((0, 0),) * 4, 1))

    for name, indices, attrs in (
        ("in order", [0, 1, 3], {"axis": 1}),
        ("one index", 2, {"axis": -1}),
        ("shuffled", [0, 3, 1, 4, 2, 2, 2], {"axis": 1}),
        ("backwards, in two dimensions", [[4, 3], [2, 1]], {"axis": 1}),
        ("beyond the ends", [-1, 9, 1], {"axis": 1}),
        ("round and round", [-1, 9, 1], {"axis": 1, "mode": "wrap"}),
        ("of all elements", [5, 7, 9, 0], {}),
        ("fast", [1, 0], {"axis": 0, "mode": "fast"}),
    ):
        add(
            f"take {name}",
            lambda x, i=indices, a=attrs: relay.take(x, const(np.array(i), "int32"), **a),
        )

    def part(name: str, *args: Any, **attrs: Any) -> None:
        add(f"slice {name}", lambda x: relay.strided_slice(x, *args, **attrs))

    part("first axes", [0, 1], [2, 4])
    part("negative begin and end", [0, -4, -3], [2, -1, -1])
    part("beyond the end", [1, 2], [100, 100])
    part("strided", [0, 1, 0, 1], [2, 5, 6, 7], [1, 2, 3, 4])
    part("one stride for three begins", [0, 1, 1], [2, 4, 5], [2])
    part("backwards", [1, 4, 5, 6], [-3, -6, -7, -8], [-1, -2, -1, -3])
    part("backwards from the end", [1, -1], [-3, -100], [-1, -2])
    part("backwards from beyond", [1, 50, 9], [-10, 0, 1], [-1, -3, -2])
    part("of axes", [1, 2], [4, 7], [2, 1], axes=[1, 3])
    part("of axes in another order", [2, 1], [7, 4], [3, 1], axes=[3, 0])
    part("by size", [0, 1, 2], [1, 3, 4], slice_mode="size")
    part("by size to the end", [0, -3, 1], [-1, -1, 2], slice_mode="size")
    part("of everything", [0], [2])

    y = Input((2, 3, 6, 7), "int8")
    z = Input((2, 5, 6, 1), "int8")
    constant = random("concatenate", (2, 4, 6, 7))
    join = relay.concatenate
    add("concatenate two", lambda x, y: join([x, y], 1), (x, y))
    add("concatenate three on the last axis", lambda x, z: join([z, x, z], -1), (x, z))
    add("concatenate one", lambda x: join([x], 2))
    add("concatenate a tensor and itself", lambda x: join([x, x], 0))
    add("concatenate with a constant", lambda x: join([x, relay.const(constant)], 1))
    add("concatenate a constant first", lambda x: join([relay.const(constant), x], axis=-3))
    wide = Input((3, 2), "int64")
    add("concatenate int64", lambda a: join([a, a], 1), wide)

    for axes in (None, (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 2, 3), (0, -1, 1, 2)):
        add(f"transpose {axes}", lambda x, a=axes: relay.transpose(x, a))
    add("transpose int32", lambda x: relay.transpose(x), Input((3, 4, 5), "int32"))
    add("transpose to itself", lambda x: relay.transpose(x, (0, 1, 2, 3)))
    for source, target in (("NCHW", "NHWC"), ("NHWC", "NCHW"), ("NCHW", "CHWN")):
        add(
            f"layout_transform {source} to {target}",
            lambda x, s=source, t=target: relay.layout_transform(x, s, t),
        )
    ones = Input((1, 5, 1, 7, 1), "int32")
    add("squeeze all", relay.squeeze, ones)
    add("squeeze axes", lambda x: relay.squeeze(x, [0, -1]), ones)
    add("expand_dims", lambda x: relay.expand_dims(x, 1, 2))
    add("expand_dims at the end", lambda x: relay.expand_dims(x, -1))
    for shape in ((-1, 7), (0, -1), (2, 30, 7), (0, 0, -1), (-2,), (-3, -2), (-4, 1, 2, -2)):
        add(f"reshape {shape}", lambda x, s=shape: relay.reshape(x, s))
    add("batch_flatten", relay.nn.batch_flatten)
    add(
        "reshape of a computed value",
        lambda x: relay.reshape(relay.add(x, const(1, "int8")), (-1,)),
    )
    return family


def split_family() -> Family:
    """Splits, and what is made of reshapes, transposes and copies."""
    family = Family()
    x = Input((2, 5, 6, 8), "int8")

    def add(name: str, build: Callable[..., relay.Expr], of: Any = x) -> None:
        family.add(name, of, build)

    def split(name: str, sections: Any, axis: int, order: tuple[int, ...], of: Any = x) -> None:
        """The fields of a split, as many as ``order`` names, joined in its order."""

        def build(x: relay.Expr) -> relay.Expr:
            parts = relay.split(x, sections, axis)
            return relay.concatenate([parts[i] for i in order], axis)

        add(f"split {name}", build, of)

    split("in two", 2, 3, (1, 0))
    split("in four, backwards", 4, -1, (3, 2, 1, 0))
    split("in one", 1, 0, (0, 0))
    split("at indices", (1, 4), 1, (2, 0, 1))
    split("at one index of a negative axis", (2,), -2, (1, 0))
    split("with dead fields", 3, 2, (2,))
    split("with a field read twice", 2, 0, (1, 1, 0))
    for dtype in INTEGERS[1:]:
        split(dtype, 2, 1, (1, 0), Input((3, 4), dtype))
    add("split of a split", lambda x: relay.split(relay.split(x, 2, 3)[1], 2, 2)[0])
    add(
        "sum of a split's fields",
        lambda x: relay.add(*(relay.split(x, 2, 1)[i] for i in (1, 0))),
        Input((3, 4), "int32"),
    )

    y = Input((2, 5, 6, 8), "int8")
    constant = random("stack", (2, 5, 6, 8))
    for axis in (0, 2, -1):
        add(f"stack on {axis}", lambda x, y, a=axis: relay.stack([x, y, x], a), (x, y))
    add("stack one", lambda x: relay.stack([x], 1))
    add("stack scalars", lambda a, b: relay.stack([a, b], 0), (Input((), "int32"),) * 2)
    add("stack with a constant", lambda x: relay.stack([relay.const(constant), x], 1))
    for axis in (0, 2, -1):
        add(f"reverse {axis}", lambda x, a=axis: relay.reverse(x, a))
    add("copy", relay.copy)
    for shape in ((2, 5, 6, 8), (3, 2, 5, 6, 8)):
        add(f"broadcast_to {shape}", lambda x, s=shape: relay.broadcast_to(x, s))
    row = Input((3, 1, 4), "int16")
    add("broadcast_to of ones", lambda x: relay.broadcast_to(x, (2, 3, 5, 4)), row)
    add("broadcast_to of a scalar", lambda x: relay.broadcast_to(x, (2, 3)), Input((), "int64"))
    for reps in ((2,), (1, 1), (3, 1, 2), (2, 1, 1, 2, 3)):
        add(f"tile {reps}", lambda x, r=reps: relay.tile(x, r), row)
    for copies, axis in ((2, 0), (3, -1), (1, 1), (4, 1)):
        add(f"repeat {copies} on {axis}", lambda x, c=copies, a=axis: relay.repeat(x, c, a), row)

    for layout in ("NCHW", "NHWC"):
        for block, channels in ((2, 12), (3, 9), (1, 3)):
            of = Input(nchw_or_nhwc(layout, 2, channels, 2, 5), "int8")
            for mode in ("DCR", "CRD"):
                add(
                    f"depth_to_space {mode} {block} {layout}",
                    lambda x, a=(block, layout, mode): relay.nn.depth_to_space(x, *a),
                    of,
                )
            add(
                f"space_to_depth {block} {layout}",
                lambda x, a=(block, layout): relay.nn.space_to_depth(x, *a),
                Input(nchw_or_nhwc(layout, 2, 3, 2 * block, 3 * block), "uint8"),
            )
    return family


RESIZES = ((7, 14), (5, 15), (14, 7), (5, 8), (11, 4), (4, 6), (6, 4), (10, 25), (1, 3), (9, 2))
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
COORDINATES = (
    "half_pixel",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
)


def resize_family() -> Family:
    family = Family()

    def add(layout: str, sizes: Any, mode: str, rounding: str, dtype: str = "int8") -> None:
        (height, to_height), (width, to_width) = sizes
        family.add(
            f"resize {height}x{width} to {to_height}x{to_width} {mode} {rounding} {layout} {dtype}",
            Input(nchw_or_nhwc(layout, 1, 2, height, width), dtype),
            lambda x: relay.image.resize2d(
                x,
                (to_height, to_width),
                layout=layout,
                method="nearest_neighbor",
                coordinate_transformation_mode=mode,
                rounding_method=rounding,
            ),
        )

    for mode, rounding in itertools.product(COORDINATES, ROUNDINGS):
        for number, sizes in enumerate(zip(RESIZES[::2], RESIZES[1::2], strict=True)):
            add(("NHWC", "NCHW")[number % 2], sizes, mode, rounding)
    for dtype in ("uint8", "int16"):
        add("NHWC", ((3, 6), (4, 12)), "half_pixel", "", dtype)
    add("NCHW", ((3, 3), (4, 4)), "asymmetric", "floor")
    add("NCHW", ((5, 1), (4, 1)), "half_pixel", "ceil")
    for layout in ("NCHW", "NHWC"):
        of = Input(nchw_or_nhwc(layout, 2, 3, 4, 5), "int8")
        for scales in ((2, 2), (3, 1), (1.5, 2.4)):
            for aligned in (False, True):
                attrs = {"layout": layout, "align_corners": aligned}
                family.add(
                    f"upsampling {scales} {layout}{' aligned' if aligned else ''}",
                    of,
                    lambda x, s=scales, a=attrs: relay.nn.upsampling(x, *s, **a),
                )
    return family


# --- Edges of a region ---------------------------------------------------------------------------


def quantize(x: relay.Expr, scale: Any, low: float, high: float, dtype: str) -> relay.Expr:
    scaled = relay.multiply(x, const(scale, "float32"))
    return relay.cast(relay.clip(relay.round(scaled), low, high), dtype)


def edge_family() -> Family:
    family = Family()
    x = Input((7, 41), "float32", floats=FLOATS)
    for scale in (1.0, 16.0, -0.37, 1e-30):
        for low, high, dtype in (
            (-127, 127, "int8"),
            (-128, 127, "int8"),
            (0, 255, "uint8"),
            (-32768, 32767, "int16"),
        ):
            family.add(
                f"quantize by {scale} to {dtype} {low} {high}",
                x,
                lambda x, a=(scale, low, high, dtype): quantize(x, *a),
            )
    family.add(
        "quantize by a scale a channel",
        x,
        lambda x: quantize(x, np.linspace(0.1, 40, 41), -127, 127, "int8"),
    )
    family.add(
        "quantize behind a float pad",
        Input((1, 4, 5, 3), "float32", floats=FLOATS),
        lambda x: quantize(
            relay.nn.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)), 0.75), 16.0, -127, 127, "int8"
        ),
    )
    for dtype in INTEGERS:
        family.add(
            f"dequantize {dtype}",
            Input((5, 41), dtype),
            lambda x: relay.multiply(relay.cast(x, "float32"), const(0.0078125 / 3, "float32")),
        )
    family.add(
        "dequantize by a scale a channel",
        Input((2, 3, 5), "int32"),
        lambda x: relay.multiply(
            relay.cast(x, "float32"), const([0.1, -0.3, 1e-9, 7, 0], "float32")
        ),
    )
    return family


# --- Chains --------------------------------------------------------------------------------------


def requantize(x: relay.Expr, rounding: Any, shift: Any, dtype: str = "int8") -> relay.Expr:
    x = relay.right_shift(relay.add(x, const(rounding)), const(shift))
    return relay.cast(relay.clip(x, -127, 127), dtype)


def chain_family() -> Family:
    """What tvm.relay.quantize writes, in bounds in which no sum overflows."""
    family = Family()
    image = Input((2, 5, 6, 7), "int8")
    weight = random("chain", (4, 5, 3, 3))
    shifts = np.array([6, 7, 8, 9]).reshape(4, 1, 1)

    def conv(x: relay.Expr) -> relay.Expr:
        attrs = {"padding": (1, 1), "kernel_size": (3, 3), "channels": 4}
        return convolution(x, weight, "NCHW", "OIHW", **attrs)

    family.add("conv requantize", image, lambda x: requantize(conv(x), 64, 7))
    family.add(
        "conv bias_add relu requantize",
        image,
        lambda x: requantize(
            relay.nn.relu(relay.nn.bias_add(conv(x), const([9, -7000, 5, 800]))), 64, 7
        ),
    )
    family.add(
        "conv multiply add per channel",
        image,
        lambda x: requantize(
            relay.add(
                relay.multiply(requantize(conv(x), 64, 7, "int32"), const([[[3]], [[-7]]] * 2)),
                const([[[1]], [[200]], [[-9]], [[0]]]),
            ),
            1 << (shifts - 1),
            shifts,
        ),
    )
    family.add(
        "conv leaky relu",
        image,
        lambda x: requantize(relay.nn.leaky_relu(conv(x), 0.1), 64, 7),
    )
    family.add(
        "conv int64 fixed point",
        image,
        lambda x: relay.cast(
            relay.clip(
                relay.fixed_point_multiply(relay.cast(conv(x), "int64"), 1518500250, -6), -127, 127
            ),
            "int8",
        ),
    )

    def residual(x: relay.Expr, y: relay.Expr) -> relay.Expr:
        left = relay.left_shift(relay.cast(requantize(conv(x), 64, 7), "int32"), const(2))
        right = relay.multiply(relay.cast(y, "int32"), const(3))
        return requantize(relay.add(left, right), 2, 2)

    family.add("conv residual", (image, Input((2, 4, 6, 7), "int8")), residual)
    family.add(
        "difference of a branch and a convolution",
        (image, Input((2, 4, 6, 7), "int8")),
        lambda x, y: requantize(relay.subtract(relay.cast(y, "int32"), conv(x)), 64, 7),
    )

    def fork(x: relay.Expr) -> relay.Expr:
        first = requantize(conv(x), 64, 7)
        wide = relay.cast(first, "int32")
        pooled = relay.nn.max_pool2d(first, (3, 3), padding=(1, 1))
        joined = relay.concatenate([first, pooled], 1)
        summed = requantize(relay.add(wide, relay.cast(pooled, "int32")), 1, 1)
        return relay.concatenate([joined, summed], 1)

    family.add("fork into pool, add and concatenate", image, fork)
    family.add(
        "average in int32, then float",
        image,
        lambda x: relay.multiply(
            relay.cast(
                relay.nn.global_avg_pool2d(relay.cast(requantize(conv(x), 64, 7), "int32")),
                "float32",
            ),
            const(0.0625, "float32"),
        ),
    )
    family.add(
        "float image to float result",
        Input((1, 5, 6, 7), "float32", floats=FLOATS),
        lambda x: relay.multiply(
            relay.cast(requantize(conv(quantize(x, 16.0, -127, 127, "int8")), 64, 7), "float32"),
            const(0.1, "float32"),
        ),
    )
    return family


FAMILIES: dict[str, Callable[[], Family]] = {
    "conv": conv_family,
    "dense": dense_family,
    "pool": pool_family,
    "adaptive": adaptive_family,
    "binary": binary_family,
    "shift": shift_family,
    "unary": unary_family,
    "bias": bias_family,
    "move": move_family,
    "split": split_family,
    "resize": resize_family,
    "edge": edge_family,
    "chain": chain_family,
}


SUITE = Suite(FAMILIES)


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize(("name", "case"), SUITE.params)
def test_reference_and_compiled_code_equal_tvm(name: str, case: str, kind: str) -> None:
    SUITE.assert_equal(name, case, kind)


def test_an_average_of_no_elements_is_zero() -> None:
    """With ``ceil_mode`` a window may begin behind the border: TVM divides by zero there."""
    builder = Builder("empty_window")
    x = builder.input(Type((1, 6, 9, 1), DType.INT32))
    window = Window((2, 2), (3, 4), ceil_mode=True)
    graph = builder.graph([builder.add(AvgPool2d(window, "NHWC", True), [x])])
    inputs = [np.full((1, 6, 9, 1), 8, np.int32)]
    expected = np.full((1, 3, 3, 1), 8, np.int32)
    expected[:, 2] = 0
    assert_same(run_graph(graph, inputs)[0], expected, "numpy reference")
    assert_same(Runner(graph)(*inputs)[0], expected, "compiled C")


# --- What stays on the host ----------------------------------------------------------------------


def variable(*shape: Any, dtype: str = "int8", name: str = "x") -> relay.Var:
    return relay.var(name, shape=shape, dtype=dtype)


def zeros(*shape: int, dtype: str = "int8") -> relay.Constant:
    return relay.const(np.zeros(shape, dtype))


def conv2d(data: relay.Expr, weight: relay.Expr, **attrs: Any) -> relay.Call:
    attrs = {"kernel_size": (3, 3), "channels": 4, "out_dtype": "int32", **attrs}
    return relay.nn.conv2d(data, weight, **attrs)


ANY = relay.Any()
X = variable(1, 3, 8, 8)
X32 = variable(1, 3, 8, 8, dtype="int32")
FLOAT = variable(1, 3, 8, 8, dtype="float32")
WEIGHT = zeros(4, 3, 3, 3)

REFUSALS: dict[str, tuple[Callable[[], relay.Expr], str]] = {
    # name: expression, clause
    "float convolution": (
        lambda: conv2d(FLOAT, zeros(4, 3, 3, 3, dtype="float32"), out_dtype="float32"),
        "dtype of nn.conv2d",
    ),
    "uint8 convolution": (
        lambda: conv2d(variable(1, 3, 8, 8, dtype="uint8"), zeros(4, 3, 3, 3, dtype="uint8")),
        "dtypes of data and weights",
    ),
    "uint8 data by int8 weights": (
        lambda: conv2d(variable(1, 3, 8, 8, dtype="uint8"), WEIGHT),
        "dtypes of data and weights",
    ),
    "weights computed at run time": (
        lambda: conv2d(X, variable(4, 3, 3, 3, name="w")),
        "weights",
    ),
    "int16 accumulator": (lambda: conv2d(X, WEIGHT, out_dtype="int16"), "dtype of the result"),
    "dynamic batch": (lambda: conv2d(variable(ANY, 3, 8, 8), WEIGHT), "result: shape"),
    "empty batch": (lambda: conv2d(variable(0, 3, 8, 8), WEIGHT), "result: shape"),
    "blocked data": (
        lambda: conv2d(variable(1, 3, 8, 8, 4), zeros(4, 12, 3, 3), data_layout="NCHW4c"),
        "data layout",
    ),
    "blocked weights": (
        lambda: conv2d(X, zeros(1, 3, 3, 3, 4), kernel_layout="OIHW4o"),
        "kernel layout",
    ),
    "convolution into another layout": (
        lambda: conv2d(X, WEIGHT, out_layout="NHWC"),
        "output layout",
    ),
    "convolution without a result": (
        lambda: conv2d(variable(1, 3, 2, 2), WEIGHT),
        "result: shape",
    ),
    "window much larger than the image": (
        lambda: conv2d(variable(1, 3, 2, 2), zeros(4, 3, 5, 5), kernel_size=(5, 5)),
        "window",
    ),
    "negative padding": (lambda: conv2d(X, WEIGHT, padding=(-1, -1)), "padding"),
    "accumulator that may overflow": (
        lambda: conv2d(variable(1, 2**17, 1, 1), zeros(4, 2**17, 1, 1), kernel_size=(1, 1)),
        "products of one output",
    ),
    "dense that may overflow": (
        lambda: relay.nn.dense(variable(1, 2**17), zeros(2, 2**17), out_dtype="int32"),
        "k",
    ),
    "dense by weights computed at run time": (
        lambda: relay.nn.dense(variable(2, 3), variable(4, 3, name="w"), out_dtype="int32"),
        "weights",
    ),
    "dense of rank 3": (
        lambda: relay.nn.dense(variable(1, 2, 3), zeros(4, 3), out_dtype="int32"),
        "shape of the data",
    ),
    "dense of uint8": (
        lambda: relay.nn.dense(variable(2, 3, dtype="uint8"), zeros(4, 3), out_dtype="int32"),
        "dtypes of data and weights",
    ),
    "dense into int16": (
        lambda: relay.nn.dense(variable(2, 3), zeros(4, 3), out_dtype="int16"),
        "dtype of the result",
    ),
    "float pooling": (lambda: relay.nn.max_pool2d(FLOAT), "dtype of nn.max_pool2d"),
    "blocked pooling": (
        lambda: relay.nn.max_pool2d(variable(1, 3, 8, 8, 4), layout="NCHW4c"),
        "layout",
    ),
    "pooling in NWHC": (lambda: relay.nn.max_pool2d(X, layout="NWHC"), "layout"),
    "pooling into another layout": (
        lambda: relay.nn.max_pool2d(X, out_layout="NHWC"),
        "output layout",
    ),
    "pool much larger than the image": (lambda: relay.nn.max_pool2d(X, (10, 10)), "window"),
    "average of int8": (lambda: relay.nn.avg_pool2d(X, (2, 2)), "dtype of an average"),
    "global average of int8": (lambda: relay.nn.global_avg_pool2d(X), "dtype of an average"),
    "dilated average": (
        lambda: relay.nn.avg_pool2d(X32, (2, 2), dilation=(2, 2)),
        "dilation of an average",
    ),
    "dynamic image": (
        lambda: relay.nn.avg_pool2d(variable(1, 3, ANY, ANY, dtype="int32"), (2, 2)),
        "result: shape",
    ),
    "cast of a float without a clip": (lambda: relay.cast(FLOAT, "int8"), "cast of a float"),
    "cast to float alone": (lambda: relay.cast(X, "float32"), "dtype of cast"),
    "cast to float16": (lambda: relay.cast(X, "float16"), "dtype of cast"),
    "cast to bool": (lambda: relay.cast(X, "bool"), "result: dtype"),
    "cast to uint16": (lambda: relay.cast(X, "uint16"), "result: dtype"),
    "shift by as many bits as there are": (
        lambda: relay.right_shift(X32, const(32)),
        "shift amount",
    ),
    "shift by a negative amount": (lambda: relay.left_shift(X32, const(-1)), "shift amount"),
    "one channel's shift too far": (
        lambda: relay.right_shift(X32, const([[[1]], [[40]], [[2]]])),
        "shift amount",
    ),
    "shift by amounts computed at run time": (
        lambda: relay.right_shift(X32, variable(1, dtype="int32", name="s")),
        "shift amount",
    ),
    "multiplier of a half in int64": (
        lambda: relay.fixed_point_multiply(variable(3, dtype="int64"), 2**30, -1),
        "multiplier of an int64",
    ),
    "multiplier of a half, shifted left": (
        lambda: relay.fixed_point_multiply(X32, 2**30, 1),
        "shift of the multiplier 2**30",
    ),
    "fixed point shift beyond 30": (
        lambda: relay.fixed_point_multiply(X32, 2**30 + 1, 31),
        "shift",
    ),
    "fixed point of int8": (lambda: relay.fixed_point_multiply(X, 2**30 + 1, 1), "dtype"),
    "float arithmetic": (lambda: relay.add(FLOAT, const(1, "float32")), "dtype of add"),
    "dynamic addition": (
        lambda: relay.add(variable(ANY, 3, dtype="int32"), const(1)),
        "result: shape",
    ),
    "unknown integer type": (
        lambda: relay.add(variable(3, dtype="uint16"), variable(3, dtype="uint16", name="y")),
        "result: dtype",
    ),
    "rounding an integer": (lambda: relay.round(X), "dtype"),
    "clip by a fraction": (lambda: relay.clip(X, 0.5, 6), "bounds of clip"),
    "clip beyond the type": (lambda: relay.clip(X, -200, 6), "bounds of clip"),
    "clip to infinity": (lambda: relay.clip(X, -float("inf"), 6), "bounds of clip"),
    "clip by a NaN": (lambda: relay.clip(X32, float("nan"), 6), "bounds of clip"),
    "clip upside down": (lambda: relay.clip(X, 6, 2), "bounds of clip"),
    "steep leaky relu": (lambda: relay.nn.leaky_relu(X, 200), "alpha"),
    "pad by reflection": (
        lambda: relay.nn.pad(variable(4, 3), ((1, 1), (1, 1)), pad_mode="reflect"),
        "mode",
    ),
    "pad by a negative width": (
        lambda: relay.nn.pad(variable(4, 3), ((-1, 1), (1, 1))),
        "pad width",
    ),
    "pad value beyond the type": (
        lambda: relay.nn.pad(variable(4, 3), ((1, 1), (1, 1)), 300),
        "pad value",
    ),
    "pad value computed at run time": (
        lambda: relay.nn.pad(variable(4, 3), ((1, 1), (1, 1)), variable(name="p")),
        "pad value",
    ),
    "empty slice": (lambda: relay.strided_slice(variable(4, 3), [2], [2]), "result: shape"),
    "concatenation of a tuple made elsewhere": (
        lambda: relay.op._make.concatenate(
            relay.Var("t", relay.TupleType([relay.TensorType((2, 3), "int8")] * 2)), 0
        ),
        "argument",
    ),
    "concatenation with an empty tensor": (
        lambda: relay.concatenate([variable(0, 3), variable(2, 3, name="y")], 0),
        "argument: shape",
    ),
    "layout_transform into blocks": (
        lambda: relay.layout_transform(variable(1, 8, 4, 4), "NCHW", "NCHW4c"),
        "layouts",
    ),
    "dynamic reshape": (lambda: relay.reshape(variable(ANY, 3), (-1,)), "result: shape"),
    "an operator without a row": (lambda: relay.bitwise_and(X, X), "operator"),
    "dynamic split": (lambda: relay.split(variable(ANY, 4), 2, 1).astuple(), "result: shape"),
    "a split of floats": (lambda: relay.split(FLOAT, 2, 2).astuple(), "dtype of split"),
    "bilinear resize": (lambda: relay.image.resize2d(X, (4, 4), method="linear"), "method"),
    "resize of int32": (
        lambda: relay.image.resize2d(X32, (4, 4), method="nearest_neighbor"),
        "dtype of image.resize2d",
    ),
    "resize of a part": (
        lambda: relay.image.resize2d(
            X,
            (4, 4),
            roi=(0.0, 0.0, 1.0, 1.0),
            method="nearest_neighbor",
            coordinate_transformation_mode="tf_crop_and_resize",
        ),
        "coordinates",
    ),
    "resize into another type": (
        lambda: relay.image.resize2d(X, (4, 4), method="nearest_neighbor", out_dtype="int16"),
        "type of image.resize2d",
    ),
    "resize of blocks": (
        lambda: relay.image.resize2d(
            variable(1, 3, 8, 8, 4), (4, 4), layout="NCHW4c", method="nearest_neighbor"
        ),
        "layout",
    ),
    "bilinear upsampling": (lambda: relay.nn.upsampling(X, 2, 2, method="bilinear"), "method"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_tinyai_cannot_do_is_refused_with_the_clause_that_failed(name: str) -> None:
    build, clause = REFUSALS[name]
    expr = build()
    func = relay.Function(relay.analysis.free_vars(expr), expr)
    typed = relay.transform.InferType()(tvm.IRModule.from_expr(func))["main"].body
    refusal = refusal_of_operator(Source()(typed))
    assert refusal is not None
    assert refusal.clause == clause
    assert refusal.found
    assert refusal.allowed


def test_a_cast_of_a_float_is_taken_behind_a_clip_to_its_range_only() -> None:
    def graph(low: float, high: float, dtype: str) -> Graph:
        x = variable(3, dtype="float32")
        func = relay.Function([x], relay.cast(relay.clip(x, low, high), dtype))
        return graph_of(func, "region")

    assert len(graph(-128, 127, "int8").nodes) == 2
    for low, high, dtype in ((-129, 127, "int8"), (0, 128, "int8"), (-1, 1, "uint8")):
        with pytest.raises(UnsupportedError, match="cast of a float"):
            graph(low, high, dtype)
    with pytest.raises(UnsupportedError, match="at most 16 bits"):
        graph(-10, 10, "int32")


# --- Any shape -----------------------------------------------------------------------------------


@st.composite
def windows(draw: st.DrawFn, *, ceil_mode: bool = False) -> Window:
    def pair(high: int, low: int = 1) -> st.SearchStrategy[tuple[int, int]]:
        return st.tuples(st.integers(low, high), st.integers(low, high))

    top, left = draw(pair(3, 0))
    bottom, right = draw(pair(3, 0))
    return Window(
        draw(pair(4)),
        draw(pair(3)),
        draw(pair(3)),
        (top, left, bottom, right),
        ceil_mode and draw(st.booleans()),
    )


SIDES = st.integers(10, 13)  # the largest window reaches over ten


@st.composite
def random_layers(draw: st.DrawFn) -> Graph:
    """Four layers that share nothing: two convolutions, a pooling window, an adaptive pooling."""
    builder = Builder("random_layers")
    seed = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    outputs = []

    def data(channels: int, dtype: DType) -> tuple[str, str]:
        layout = draw(st.sampled_from(("NHWC", "NCHW")))
        shape = nchw_or_nhwc(layout, draw(st.integers(1, 2)), channels, draw(SIDES), draw(SIDES))
        return builder.input(Type(shape, dtype)), layout

    groups = draw(st.integers(1, 4))
    for channels, count, out in (
        (groups * draw(st.integers(1, 9)), groups, groups * draw(st.integers(1, 9))),
        (groups, groups, groups * draw(st.integers(1, 3))),
    ):
        window = draw(windows())
        x, layout = data(channels, DType.INT8)
        weight = seed.integers(-128, 128, (out, *window.kernel, channels // count), np.int8)
        op = Conv2d(window, count, layout)
        outputs.append(builder.add(op, [x, builder.constant(weight)]))

    kind = draw(st.sampled_from(("max", "avg")))
    x, layout = data(draw(st.integers(1, 5)), DType.INT32 if kind == "avg" else DType.INT8)
    window = draw(windows(ceil_mode=True))
    if kind == "avg":
        window = replace(window, dilation=(1, 1))
        outputs.append(builder.add(AvgPool2d(window, layout, draw(st.booleans())), [x]))
    else:
        outputs.append(builder.add(MaxPool2d(window, layout), [x]))
    output = (draw(st.integers(1, 14)), draw(st.integers(1, 14)))
    outputs.append(builder.add(AdaptivePool2d(kind, output, layout), [x]))
    return builder.graph(outputs)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(random_layers())
def test_compiled_layers_of_any_shape_equal_the_reference(graph: Graph) -> None:
    rng = np.random.default_rng(1)
    inputs = [
        Input(of.shape, str(of.dtype)).draw(kind, rng)
        for of, kind in zip(graph.types(graph.inputs), itertools.cycle(DRAWS), strict=False)
    ]
    with orders_as_given():
        runner = Runner(graph)
    for found, expected in zip(runner(*inputs), run_graph(graph, inputs), strict=True):
        assert_same(found, expected, str(graph))
