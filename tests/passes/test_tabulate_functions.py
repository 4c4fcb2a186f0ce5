"""Functions of one 8-bit value become tables."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.pass_graphs import (
    INT8,
    INT32,
    NARROWED,
    SHAPE,
    TO_FLOAT,
    Small,
    add,
    assert_same_meaning,
    lookups,
)
from tinyai.ir import Graph, Operand, Step, Type, every_step, verify
from tinyai.ops.steps import (
    Add,
    Cast,
    Clip,
    Function,
    Lookup,
    Multiply,
    Relu,
    RightShift,
    Round,
)
from tinyai.passes import (
    optimize,
    tabulate_functions,
)


def sigmoid_nodes(b: Small, x: str, *behind: Step, product: bool = False) -> str:
    """What builders make of dequantize, sigmoid or swish, and quantize."""
    y = b.step(x, *TO_FLOAT, Multiply(operand=Operand(b.constant(np.array(1 / 16, np.float32)))))
    z = b.step(y, Function("sigmoid"))
    z = b.step(y, Multiply(operand=Operand(z))) if product else z
    by = Multiply(operand=Operand(b.constant(np.array(16, np.float32))))
    return b.step(z, *behind, by, Round(), *NARROWED)


def functions(graph: Graph) -> list[Step]:
    steps = [step for node in graph.nodes for step in every_step(node.epilogue)]
    return [step for step in steps if isinstance(step, Function)]


@pytest.mark.parametrize("product", [False, True])
def test_a_function_of_an_operand_becomes_a_table(product: bool) -> None:
    """The second side of a sum, or a gate."""
    b = Small()
    x, y = b.input(Type((1, 4), INT8)), b.input(Type((3, 4), INT32))
    gate = sigmoid_nodes(b, x, product=product)
    graph = verify(b.graph([b.step(y, Add(operand=Operand(gate, (Cast(INT32),))))]))
    after = optimize(graph)
    (node,) = after.nodes
    assert node.inputs == (y,)
    assert "lookup(256 values of int8) >> cast(int32)" in str(after)
    assert functions(after) == []
    assert_same_meaning(graph, after)


@pytest.mark.parametrize(("numbers", "left"), [([[0.5] * 4] * 2, 0), ([0.5, 0.25, 0.5, 0.5], 1)])
def test_a_constant_of_the_same_number_many_times_is_one_number(
    numbers: list[object], left: int
) -> None:
    b = Small()
    x = b.input(Type((3, 2, 4), INT8))
    by = b.constant(np.array(numbers, np.float32))
    graph = verify(b.graph([sigmoid_nodes(b, x, Multiply(operand=Operand(by)))]))
    after = tabulate_functions(graph)
    assert len(lookups(after)) == 1 - left
    assert_same_meaning(graph, after)


@pytest.mark.parametrize("products", [(True, True), (False, True), (False, False)])
def test_a_function_whose_float_two_results_share_becomes_two_tables(
    products: tuple[bool, bool],
) -> None:
    """Equal nodes have become one by then; their readers quantize to different scales."""
    b = Small()
    x = b.conv(b.input(Type(SHAPE, INT8)), *NARROWED)
    found = [
        sigmoid_nodes(b, x, *behind, product=product)
        for product, behind in zip(products, ((), (Relu(), Clip(0, 0.4))), strict=True)
    ]
    graph = verify(b.graph(found))
    after = optimize(graph)
    assert functions(after) == []
    assert len(lookups(after)) == 2
    assert_same_meaning(graph, after)


def test_ways_of_8_bits_that_come_together_again_become_one_table() -> None:
    """x · sigmoid(x) of QDQ networks, whose second factor is stored as 8 bits."""
    b = Small()
    x = b.conv(b.input(Type(SHAPE, INT8)), *NARROWED)
    gate = sigmoid_nodes(b, x)
    wide = b.step(x, Cast(INT32), Multiply(operand=Operand(gate, (Cast(INT32),))))
    y = b.step(wide, RightShift(operand=Operand(b.number(7))), *NARROWED)
    graph = verify(b.graph([y]))
    after = optimize(graph)
    assert [node.op.name for node in after.nodes] == ["conv2d", "elementwise"]
    (table,) = after.nodes[1].epilogue
    assert isinstance(table, Lookup)
    assert_same_meaning(graph, after)


def test_ways_from_two_tensors_stay_two() -> None:
    b = Small()
    x = b.conv(b.input(Type(SHAPE, INT8)), *NARROWED)
    gate = sigmoid_nodes(b, b.conv(b.input(Type(SHAPE, INT8)), *NARROWED))
    y = b.step(x, Cast(INT32), Multiply(operand=Operand(gate, (Cast(INT32),))), *NARROWED)
    graph = verify(b.graph([y]))
    after = optimize(graph)
    assert len(lookups(after)) == 1
    assert_same_meaning(graph, after)


def test_a_function_behind_numbers_a_channel_stays() -> None:
    b = Small()
    x = b.input(Type((4,), INT8))
    each = b.constant(np.arange(4, dtype=np.float32))
    y = b.step(b.step(x, *TO_FLOAT, add(each)), Function("tanh"), Round(), *NARROWED)
    graph = verify(b.graph([y]))
    assert str(tabulate_functions(graph)) == str(graph)
