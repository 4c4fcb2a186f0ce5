"""Transpositions move values while they are narrow."""

from __future__ import annotations

import numpy as np

from tests.support.pass_graphs import (
    CONV,
    INT8,
    NARROWED,
    SHAPE,
    TO_FLOAT,
    Small,
    add,
    assert_becomes,
)
from tinyai.ir import Operand, Type
from tinyai.ops import Transpose
from tinyai.ops.steps import Multiply
from tinyai.passes import narrow_transposes, optimize

TURN = Transpose((0, 3, 1, 2))


def dequantize(b: Small) -> Multiply:
    return Multiply(operand=Operand(b.constant(np.array(1 / 16, np.float32))))


def test_an_image_that_leaves_as_floats_is_turned_as_8_bits() -> None:
    b = Small()
    scale = dequantize(b)
    x = b.conv(b.input(Type(SHAPE, INT8)), *NARROWED, *TO_FLOAT, scale, source="exit")
    assert_becomes(
        narrow_transposes,
        b.graph([b.add(TURN, [x], (), ("turn",))]),
        f"""
        %t3: int8[1,2,2,2] = {CONV} [%in1, %c2] >> clip(-128, 127) >> cast(int8)  # exit
        %t5: int8[1,2,2,2] = transpose(axes=(0, 3, 1, 2)) [%t3]  # turn
        %t4: float32[1,2,2,2] = elementwise [%t5] >> cast(int32) >> cast(float32)\
 >> multiply(%c0)  # turn
        """,
    )


def test_numbers_of_channels_and_values_that_others_read_stay() -> None:
    b = Small()
    scale, channels = dequantize(b), b.constant(np.array([0.5, 2], np.float32))
    x = b.input(Type(SHAPE, INT8))
    by_channel = b.conv(x, *NARROWED, *TO_FLOAT, add(channels))
    shared = b.conv(x, *NARROWED, *TO_FLOAT, scale)
    graph = b.graph([b.add(TURN, [by_channel]), b.add(TURN, [shared]), shared])
    assert str(narrow_transposes(graph)) == str(graph)


def test_the_pipeline_turns_the_output_of_a_convolution_in_nchw_once_and_narrow() -> None:
    b = Small()
    x = b.add(TURN, [b.conv(b.input(Type(SHAPE, INT8)), *NARROWED, *TO_FLOAT, dequantize(b))])
    graph = optimize(b.graph([x]))
    turned = [graph.type(node.output) for node in graph.nodes if isinstance(node.op, Transpose)]
    assert turned == [Type(SHAPE, INT8)]
