"""What nobody reads goes away."""

from __future__ import annotations

from tests.support.pass_graphs import (
    INT32,
    Small,
    add,
    assert_becomes,
)
from tinyai.ir import Type
from tinyai.ops.steps import Relu
from tinyai.passes import remove_unused


def test_what_no_output_reads_goes_and_inputs_stay() -> None:
    b = Small()
    x, unread = b.input(Type((3,), INT32)), b.input(Type((3,), INT32))
    b.step(b.step(x, add(b.number([4, 5, 6]))), Relu())
    inner = b.number([1, 2, 3])
    y = b.step(x, add(x, add(inner)))
    after = assert_becomes(
        remove_unused,
        b.graph([y]),
        "%t6: int32[3] = elementwise(shape=(3,)) [%in0] >> add(%in0 >> add(%c5))",
    )
    assert set(after.tensors) == {x, unread, inner, y}
    assert set(after.constants) == {inner}
    assert after.inputs == (x, unread)
