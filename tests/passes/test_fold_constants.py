"""What depends on constants only is computed when code is generated."""

from __future__ import annotations

import numpy as np

from tests.support.pass_graphs import (
    INT32,
    Small,
    add,
    assert_becomes,
)
from tinyai.ir import Type
from tinyai.ops.steps import (
    Cast,
    Relu,
)
from tinyai.passes import fold_constants


def test_what_depends_on_constants_only_is_computed() -> None:
    b = Small()
    x = b.input(Type((3,), INT32))
    c = b.constant(np.array([100, -100, 7], np.int8))
    wide = b.step(c, Cast(INT32))
    doubled = b.step(wide, add(wide))
    graph = b.graph([b.step(x, add(doubled))])
    after = assert_becomes(
        fold_constants, graph, "%t4: int32[3] = elementwise(shape=(3,)) [%in0] >> add(%t3)"
    )
    np.testing.assert_array_equal(after.constants[doubled], np.array([200, -200, 14], np.int32))
    assert not after.constants[doubled].flags.writeable


def test_an_output_of_constants_is_still_written_at_run_time() -> None:
    b = Small()
    c = b.number([1, 2, 3])
    graph = b.graph([b.step(c, Relu())])
    assert_becomes(fold_constants, graph, "%t1: int32[3] = elementwise(shape=(3,)) [%c0] >> relu()")


def test_a_constant_with_an_operand_that_is_none_is_not_folded() -> None:
    b = Small()
    x, c = b.input(Type((3,), INT32)), b.number([1, 2, 3])
    graph = b.graph([b.step(b.step(c, add(x)), Relu())])
    assert len(fold_constants(graph).nodes) == 2
