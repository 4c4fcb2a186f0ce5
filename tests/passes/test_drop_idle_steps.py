"""Steps that change nothing go away."""

from __future__ import annotations

import numpy as np

from tests.support.pass_graphs import (
    FLOAT32,
    INT32,
    Small,
    add,
    assert_becomes,
)
from tinyai.ir import DType, Operand, Type
from tinyai.ops.steps import (
    Cast,
    Clip,
    Relu,
    Subtract,
)
from tinyai.passes import drop_idle_steps


def test_steps_that_change_no_value_go_away() -> None:
    b = Small()
    x, y = b.input(Type((3,), DType.UINT8)), b.input(Type((3,), DType.UINT8))
    zero = b.constant(np.zeros((), np.int32))
    assert_becomes(
        drop_idle_steps,
        b.graph(
            [
                b.step(
                    x,
                    Cast(INT32),
                    Subtract(operand=Operand(zero)),
                    add(y, Cast(INT32), Cast(INT32), add(zero), Relu()),
                    Clip(0, 255),
                    Cast(DType.UINT8),
                    Clip(0, 255),
                )
            ]
        ),
        """
        %t3: uint8[3] = elementwise(shape=(3,)) [%in0] >> cast(int32) >> \
add(%in1 >> cast(int32) >> relu()) >> clip(0, 255) >> cast(uint8)
        """,
    )


def test_steps_that_change_a_value_or_a_float_stay() -> None:
    b = Small()
    x, f = b.input(Type((3,), INT32)), b.input(Type((3,), FLOAT32))
    row = b.constant(np.array([0, 0, 1], np.int32))
    nothing = b.constant(np.zeros((), np.float32))
    graph = b.graph(
        [
            b.step(x, add(row), Clip(0, 255), Cast(DType.UINT8), Clip(0, 254)),
            b.step(f, add(nothing), Clip(-1e30, 1e30)),
        ]
    )
    assert str(drop_idle_steps(graph)) == str(graph)
