"""Convolution, dense and pooling equal TVM's CPU result bit for bit: in numpy, and as compiled C.
(``test_qnn_operators.py`` has those of QNN; ``support/cases.py`` runs the cases.)"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import DRAWS, Input, assert_same, nchw_or_nhwc
from tests.support.example_graphs import orders_as_given
from tests.support.families.layers import SUITE
from tests.support.machines import runnable_isas
from tinyai.ir import Builder, DType, Graph, Type
from tinyai.ops import AdaptivePool2d, AvgPool2d, Conv2d, MaxPool2d
from tinyai.ops.window import Window
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

test_reference_and_compiled_code_equal_tvm = pytest.mark.long(SUITE.test())


def test_an_average_of_no_elements_is_zero() -> None:
    """With ``ceil_mode`` a window may begin beyond the border: TVM divides by zero there."""
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
@given(random_layers(), st.sampled_from(runnable_isas()))
def test_compiled_layers_of_any_shape_equal_the_reference(graph: Graph, isa: str) -> None:
    rng = np.random.default_rng(1)
    inputs = [
        Input(of.shape, str(of.dtype)).draw(kind, rng)
        for of, kind in zip(graph.types(graph.inputs), itertools.cycle(DRAWS), strict=False)
    ]
    with orders_as_given():
        runner = Runner(graph, Target(isa=isa))
    for found, expected in zip(runner(*inputs), run_graph(graph, inputs), strict=True):
        assert_same(found, expected, str(graph))
