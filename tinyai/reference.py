"""The meaning of a graph in plain numpy: what emitted code must equal bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tinyai.errors import OptionError
from tinyai.ir import Array, Graph, Node, Step


def run_node(node: Node, values: Mapping[str, Array]) -> Array:
    """The result of one node; ``values`` holds every tensor that it reads."""
    result = node.op.reference(*(values[name] for name in node.inputs))
    return np.ascontiguousarray(run_steps(node.epilogue, result, values)).reshape(result.shape)


def run_steps(steps: Sequence[Step], value: Array, values: Mapping[str, Array]) -> Array:
    """``value`` after the steps, in its own shape."""
    for step in steps:
        operand = None
        if step.operand is not None:
            tensor = np.broadcast_to(values[step.operand.tensor], value.shape)
            operand = run_steps(step.operand.steps, tensor, values)
        value = step.reference(value, operand)
    return value


def run_graph(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of the graph. Raises ``OptionError`` where an input's type is not the graph's."""
    if len(inputs) != len(graph.inputs):
        raise OptionError(
            f"inputs of {graph.name}", found=len(inputs), allowed=f"{len(graph.inputs)} arrays"
        )
    values: dict[str, Array] = dict(graph.constants)
    for name, array in zip(graph.inputs, inputs, strict=True):
        expected = graph.type(name)
        if (array.shape, array.dtype) != (expected.shape, expected.dtype.numpy):
            raise OptionError(
                f"input %{name} of {graph.name}",
                found=f"{array.dtype}{list(array.shape)}",
                allowed=expected,
            )
        values[name] = array
    for node in graph.nodes:
        values[node.output] = run_node(node, values)
    return [values[name] for name in graph.outputs]
