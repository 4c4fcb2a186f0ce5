"""The neutral graph between front ends and the back end: typed, frozen, verified.

A ``Graph`` is a list of nodes in the order of execution. A node applies one operator (``Op``, see
``tinyai.ops``) and then an *epilogue*: a straight line of elementwise steps, such as the
rounding constant, shift, clip and cast of a requantization, that run on each result before it is
stored. Tensors are named; a name is defined once. Nothing here knows TVM.
"""

from __future__ import annotations

from tinyai.ir.builder import Builder
from tinyai.ir.graph import (
    Graph,
    Node,
    format_node,
    print_graph,
    rename_reads,
    rewritten,
    unused_name,
)
from tinyai.ir.operators import Example, Move, Op
from tinyai.ir.steps import (
    Operand,
    Step,
    every_step,
    format_steps,
    operand_tensors,
    operands,
    rename_steps,
    step_types,
)
from tinyai.ir.types import NARROW, Array, DType, QParams, Stored, Tensor, Type, strides
from tinyai.ir.verifier import broadcasts, verify

__all__ = [
    "NARROW",
    "Array",
    "Builder",
    "DType",
    "Example",
    "Graph",
    "Move",
    "Node",
    "Op",
    "Operand",
    "QParams",
    "Step",
    "Stored",
    "Tensor",
    "Type",
    "broadcasts",
    "every_step",
    "format_node",
    "format_steps",
    "operand_tensors",
    "operands",
    "print_graph",
    "rename_reads",
    "rename_steps",
    "rewritten",
    "step_types",
    "strides",
    "unused_name",
    "verify",
]
