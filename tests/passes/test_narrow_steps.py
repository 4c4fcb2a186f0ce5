"""Steps work in 32 bits where 64 make no difference."""

from __future__ import annotations

import numpy as np

from tests.support.pass_graphs import INT32, Small, add, assert_becomes
from tinyai.ir import DType, Type
from tinyai.ops.steps import Cast, Clip, FixedPointMultiply, Relu
from tinyai.passes.narrow_steps import narrow_steps

WIDE = Cast(DType.INT64)
SCALE = FixedPointMultiply((2**30,), (-3,))


def test_a_widening_that_no_step_needs_goes_away() -> None:
    b = Small()
    x, y = b.input(Type((3,), INT32)), b.input(Type((3,), INT32))
    assert_becomes(
        narrow_steps,
        b.graph(
            [
                b.step(x, WIDE, SCALE, Clip(-127, 127), Cast(INT32), Cast(DType.INT8)),
                b.step(x, add(y, WIDE, Relu(), Cast(INT32))),
            ]
        ),
        """
        %t2: int8[3] = elementwise(shape=(3,)) [%in0] >> \
fixed_point_multiply((1073741824,), (-3,)) >> clip(-127, 127) >> cast(int32) >> cast(int8)
        %t3: int32[3] = elementwise(shape=(3,)) [%in0] >> add(%in1 >> relu() >> cast(int32))
        """,
    )


def test_a_widening_that_a_step_or_the_result_needs_stays() -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    wide = b.constant(np.array(2**40, np.int64))
    graph = b.graph(
        [
            b.step(x, WIDE, add(wide), Cast(INT32)),
            b.step(x, WIDE, Clip(-(2**40), 5), Cast(INT32)),
            b.step(x, WIDE),
        ]
    )
    assert narrow_steps(graph) == graph
