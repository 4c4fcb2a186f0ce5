"""The elementwise steps that an epilogue is made of, with their meaning in numpy.

Integers wrap as two's complement, shifts are arithmetic, as in TVM's generated code. Every kind is
one class, and ``STEP_KINDS`` has them all by name; ``tinyai/codegen/steps.py`` holds the C
expression of each.
"""

from __future__ import annotations

from tinyai.ir import Step
from tinyai.ops.steps.binary import (
    Add,
    AddProduct,
    Binary,
    Divide,
    LeftShift,
    Maximum,
    Minimum,
    Multiply,
    MultiplyAdd,
    Prelu,
    RightShift,
    Subtract,
    SubtractFrom,
)
from tinyai.ops.steps.logic import Compare, Fill, Logic, Not
from tinyai.ops.steps.requantize import FixedPointMultiply, RealMultiply
from tinyai.ops.steps.tables import ALL_FUNCTIONS, Function, GivenFunction, Lookup
from tinyai.ops.steps.unary import Cast, Clip, LeakyRelu, Relu, Round

__all__ = [
    "ALL_FUNCTIONS",
    "STEP_KINDS",
    "Add",
    "AddProduct",
    "Binary",
    "Cast",
    "Clip",
    "Compare",
    "Divide",
    "Fill",
    "FixedPointMultiply",
    "Function",
    "GivenFunction",
    "LeakyRelu",
    "LeftShift",
    "Logic",
    "Lookup",
    "Maximum",
    "Minimum",
    "Multiply",
    "MultiplyAdd",
    "Not",
    "Prelu",
    "RealMultiply",
    "Relu",
    "RightShift",
    "Round",
    "Subtract",
    "SubtractFrom",
]

# The classes here that have a name of their own.
STEP_KINDS: dict[str, type[Step]] = {
    kind.name: kind
    for kind in [*vars().values()]
    if isinstance(kind, type) and issubclass(kind, Step) and "name" in vars(kind)
}
