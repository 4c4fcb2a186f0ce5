"""What is true or not: comparisons of integers, logic of bools, the choice between two values."""

from __future__ import annotations

from functools import partial

import numpy as np

from tinyai.builders import Lower, Lowering, OperatorRow
from tinyai.ir import DType, Operand
from tinyai.ops import steps
from tinyai.ops.elementwise import apply, lower_binary, require_known_floats
from tinyai.source import Call, Constant, require


def lower_compare(sign: str, turned: str) -> Lower:
    """equal, less and the like, of integers, and of floats that are dequantized here; ``turned`` is
    the sign of swapped operands."""
    step, swapped = (partial(steps.Compare, each) for each in (sign, turned))
    lower_any = lower_binary(step, swapped, tuple(DType))

    def lower(call: Call, lowering: Lowering) -> str | tuple[str, ...]:
        require_known_floats(call, lowering)
        return lower_any(call, lowering)

    return lower


def lower_logic(word: str) -> Lower:
    """logical_and, logical_or, logical_xor: of bools."""
    step = partial(steps.Logic, word)
    return lower_binary(step, step, (DType.BOOL,))


def lower_not(call: Call, lowering: Lowering) -> str:
    """logical_not: of bools."""
    dtype = lowering.type(call["data"]).dtype
    require(dtype is DType.BOOL, f"dtype of {call.spelled}", dtype, DType.BOOL)
    return apply(call, lowering, call["data"], steps.Not())


def lower_where(call: Call, lowering: Lowering) -> str:
    """where: a value with a number in some places; of two values each with 0 in the other's, and
    both together."""
    condition, data, other = call["condition"], call["data"], call["other"]
    types = [lowering.type(each) for each in (condition, data, other)]
    fits = types[0].dtype is DType.BOOL and types[1].dtype is types[2].dtype
    found = ", ".join(str(each.dtype) for each in types)
    require(fits, f"dtypes of {call.spelled}", found, "bool, and two of one dtype")
    bools = lowering.tensor(condition)
    for value, filled, when in ((other, data, True), (data, other, False)):
        numbers = filled.value.reshape(-1) if isinstance(filled, Constant) else np.zeros(0)
        if numbers.size and np.all(numbers == numbers[0]):
            fill = steps.Fill(numbers[0].item(), when, operand=Operand(bools))
            return apply(call, lowering, value, fill)
    with_zeros = steps.Fill(0, when=False, operand=Operand(bools))
    behind = Operand(lowering.tensor(other), (steps.Fill(0, operand=Operand(bools)),))
    is_bool = types[1].dtype is DType.BOOL
    both = steps.Logic("or", operand=behind) if is_bool else steps.Add(operand=behind)
    return apply(call, lowering, data, with_zeros, both)


OPERATORS = {
    "equal": OperatorRow(lower_compare("==", "=="), "left right"),
    "not_equal": OperatorRow(lower_compare("!=", "!="), "left right"),
    "less": OperatorRow(lower_compare("<", ">"), "left right"),
    "less_equal": OperatorRow(lower_compare("<=", ">="), "left right"),
    "greater": OperatorRow(lower_compare(">", "<"), "left right"),
    "greater_equal": OperatorRow(lower_compare(">=", "<="), "left right"),
    "logical_and": OperatorRow(lower_logic("and"), "left right"),
    "logical_or": OperatorRow(lower_logic("or"), "left right"),
    "logical_xor": OperatorRow(lower_logic("xor"), "left right"),
    "logical_not": OperatorRow(lower_not),
    "where": OperatorRow(lower_where, "condition data other"),
}
