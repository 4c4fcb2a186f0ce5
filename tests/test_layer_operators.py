"""Convolution, dense and pooling equal TVM's CPU result bit for bit: in numpy, and as compiled C.
(``test_qnn_operators.py`` has those of QNN; ``cases.py`` runs the cases.)"""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relay

from tests.cases import (
    CONVOLUTIONS,
    DEPTHWISE,
    DRAWS,
    INTEGERS,
    Family,
    Input,
    Suite,
    assert_same,
    nchw_or_nhwc,
    random,
)
from tests.example_graphs import orders_as_given
from tinyai.ir import Array, Builder, DType, Graph, Type
from tinyai.ops import AdaptivePool2d, AvgPool2d, Conv2d, MaxPool2d
from tinyai.ops.window import Window
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


SUITE = Suite(
    {
        "conv": conv_family,
        "dense": dense_family,
        "pool": pool_family,
        "adaptive": adaptive_family,
    }
)

test_reference_and_compiled_code_equal_tvm = SUITE.test()


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


@settings(max_examples=25, deadline=None, derandomize=True)
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
