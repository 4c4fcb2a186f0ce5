"""Pads go into the windows of their readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.pass_graphs import (
    INT8,
    Small,
    assert_same_meaning,
)
from tinyai.ir import Type, verify
from tinyai.ops import Conv2d, Pad
from tinyai.ops.steps import Relu
from tinyai.ops.window import Window
from tinyai.passes import fold_pads

IMAGE = Type((1, 3, 4, 2), INT8)


def padded(
    b: Small, widths: Sequence[tuple[int, int]], value: int, layout: str = "NHWC", **window: Any
) -> tuple[str, str]:
    """A border of ``value`` and the 1×1 convolution, at zero point -5, that reads it."""
    pad = b.add(Pad(tuple(widths), value), [b.input(IMAGE)], (), ("pad",))
    channels = IMAGE.shape["NHWC".index("C")] if layout == "NHWC" else IMAGE.shape[1]
    weight = b.constant(np.arange(2 * channels, dtype=np.int8).reshape(2, 1, 1, channels))
    op = Conv2d(Window((1, 1), **window), 1, layout, -5)
    return pad, b.add(op, [pad, weight], (), ("conv",))


@pytest.mark.parametrize(
    ("layout", "widths"),
    [
        ("NHWC", [(0, 0), (1, 2), (3, 4), (0, 0)]),
        ("NCHW", [(0, 0), (0, 0), (1, 2), (3, 4)]),
    ],
)
def test_a_border_of_zero_points_becomes_padding_of_the_convolution(
    layout: str, widths: list[tuple[int, int]]
) -> None:
    b = Small()
    before = b.graph([padded(b, widths, -5, layout, padding=(5, 6, 7, 8))[1]])
    after = verify(fold_pads(verify(before)))
    (node,) = after.nodes
    assert isinstance(node.op, Conv2d)
    assert node.op.window.padding == (6, 9, 9, 12)
    assert node.op.zero_point == -5
    assert node.inputs[0] == before.inputs[0]
    assert node.sources == ("pad", "conv")
    assert_same_meaning(before, after)


@pytest.mark.parametrize(
    ("widths", "value", "window"),
    [
        ([(0, 0), (1, 1), (1, 1), (0, 0)], 0, {}),  # another value
        ([(1, 0), (1, 1), (1, 1), (0, 0)], -5, {}),  # of the batch
        ([(0, 0), (1, 1), (1, 1), (0, 1)], -5, {}),  # of channels
        ([(0, 0), (1, 1), (1, 1), (0, 0)], -5, {"upsample": (2, 2)}),  # in front of spread data
    ],
)
def test_any_other_border_stays(
    widths: list[tuple[int, int]], value: int, window: dict[str, Any]
) -> None:
    b = Small()
    pad = b.add(Pad(tuple(widths), value), [b.input(IMAGE)])
    channels = b.type(pad).shape[3]
    weight = b.constant(np.ones((2, 1, 1, channels), np.int8))
    op = Conv2d(Window((1, 1), **window), zero_point=-5)
    graph = verify(b.graph([b.add(op, [pad, weight])]))
    assert str(fold_pads(graph)) == str(graph)


def test_a_border_that_something_else_reads_stays() -> None:
    b = Small()
    pad, y = padded(b, [(0, 0), (1, 1), (1, 1), (0, 0)], -5)
    graph = b.graph([y, b.step(pad, Relu())])
    assert str(fold_pads(graph)) == str(graph)
