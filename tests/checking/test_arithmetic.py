"""The arithmetic of one element: it leads to the reference's value, for every operator and step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.example_graphs import (
    EPILOGUES,
    NETWORKS,
    all_examples,
    examples_graph,
    random_inputs,
)
from tinyai.checking.arithmetic import arithmetic
from tinyai.ir import Builder, DType, Graph, Type
from tinyai.ops import Dense
from tinyai.ops.steps import Cast, Clip, FixedPointMultiply
from tinyai.passes import optimize
from tinyai.reference import run_node


def assert_leads_to_the_reference(graph: Graph) -> None:
    inputs = random_inputs(graph, 2)
    values = {**graph.constants, **dict(zip(graph.inputs, inputs, strict=True))}
    rng = np.random.default_rng(0)
    for node in graph.nodes:
        result = run_node(node, values)
        index = tuple(int(rng.integers(size)) for size in result.shape)
        lines = arithmetic(graph, node, values, index)
        found, expected = lines[-1].value, result[index].item()
        assert found == expected or (found != found and expected != expected), (node, lines)
        values[node.output] = result


@pytest.mark.parametrize("name", NETWORKS)
def test_the_last_line_is_the_layers_result(name: str) -> None:
    graph = NETWORKS[name]()
    assert_leads_to_the_reference(graph)
    assert_leads_to_the_reference(optimize(graph))


def test_a_sum_of_products_is_told_in_its_parts() -> None:
    """data × weight, less the zero point's share, is what the operator computes."""
    b = Builder("dense")
    x = b.input(Type((1, 3), DType.INT8))
    weight = b.constant(np.array([[1, 2, 3], [4, 5, -6]], np.int8))
    scale = FixedPointMultiply((1 << 30, 1 << 29), (0, 1), 1)
    graph = b.graph([b.add(Dense(-10), [x, weight], (scale, Clip(-20, 20), Cast(DType.INT8)))])
    values = {**graph.constants, x: np.array([[7, -8, 9]], np.int8)}
    lines = arithmetic(graph, graph.nodes[0], values, (0, 1))
    assert [(line.says, line.value) for line in lines] == [
        ("dense: sum of 3 products of data and weight", -66),
        ("less zero point -10 times sum of weights 3", -36),
        (f"fixed point multiply multiplier {1 << 29} shift 1 ties upward", -18),
        ("clip low -20 high 20", -18),
        ("cast to int8", -18),
    ]


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_every_operator_and_step_has_its_arithmetic(epilogue: str) -> None:
    assert_leads_to_the_reference(examples_graph(all_examples(), epilogue))
