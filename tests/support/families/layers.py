"""Convolution, dense and pooling of Relay (``qnn.py`` has those of QNN)."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
from tvm import relay

from tests.support.cases import (
    CONVOLUTIONS,
    DEPTHWISE,
    INTEGERS,
    Family,
    Input,
    Suite,
    nchw_or_nhwc,
    random,
)
from tinyai.ir import Array

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


def extreme_family() -> Family:
    family = Family()
    operators = ("max", "min", "argmax", "argmin")
    shape = (2, 5, 4, 7)
    for (name, dtype), axes in itertools.product(
        itertools.product(operators, ("int8", "uint8")), ((1,), (3,), (0,), (1, 2), (0, 3), None)
    ):
        is_place = name.startswith("arg")
        if is_place and (axes is None or len(axes) > 1):
            continue
        for keep in (False, True):
            family.add(
                f"{name} {dtype} over {axes}" + " kept" * keep,
                Input(shape, dtype, 100, 106) if is_place else Input(shape, dtype),
                lambda x, f=name, a=axes, k=keep: getattr(relay, f)(x, axis=a, keepdims=k),
            )
    for name in ("argmax", "argmin"):
        family.add(
            f"{name} of the last",
            Input(shape, "int8", 3, 6),
            lambda x, f=name: getattr(relay, f)(x, axis=1, select_last_index=True),
        )
    return family


SUITE = Suite(
    {
        "conv": conv_family,
        "dense": dense_family,
        "pool": pool_family,
        "adaptive": adaptive_family,
        "extreme": extreme_family,
    }
)
