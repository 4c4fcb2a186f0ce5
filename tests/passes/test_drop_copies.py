"""Nodes that copy go away."""

from __future__ import annotations

from tests.support.pass_graphs import (
    INT32,
    SHAPE,
    Small,
    add,
    assert_becomes,
)
from tinyai.ir import Type
from tinyai.ops.steps import Relu
from tinyai.passes import drop_copies


def test_readers_of_a_copy_read_what_was_copied() -> None:
    b = Small()
    x, y = b.input(Type((3,), INT32)), b.input(Type((3,), INT32))
    copy = b.step(b.step(x))
    assert_becomes(
        drop_copies,
        b.graph([b.step(copy, Relu()), b.step(y, add(y, add(copy)))]),
        """
        %t4: int32[3] = elementwise(shape=(3,)) [%in0] >> relu()
        %t5: int32[3] = elementwise(shape=(3,)) [%in1] >> add(%in1 >> add(%in0))
        """,
    )


def test_a_copy_that_broadcasts_or_makes_an_output_stays() -> None:
    b = Small()
    x = b.input(Type((2,), INT32))
    graph = b.graph([b.step(b.spread(x, SHAPE), Relu()), b.step(x)])
    assert str(drop_copies(graph)) == str(graph)
