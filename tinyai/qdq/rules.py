"""How each float operator between quantized values is written with integers.

``RULES`` has a row for each operator that computes: it makes integers on the grid of the
quantization after it. Sums of products come from ``accumulators.py``, averages from
``averages.py``. Operators of ``moves.py`` and ``limits.py`` follow any rule on integers, for they
commute with rounding. Every rule refuses what it cannot do with a reason
(``tinyai.source.Refusal``).
"""

from __future__ import annotations

from dataclasses import replace

from tinyai.qdq.accumulators import PRODUCTS, STEPS, accumulator, is_accumulator
from tinyai.qdq.averages import AVERAGE_RULES, AVERAGES, average_of_floats
from tinyai.qdq.limits import EXTREMES, LIMITS, bounds, clipped, is_bounded, limit_place
from tinyai.qdq.moves import MOVES
from tinyai.qdq.operands import (
    Grid,
    Integers,
    Rule,
    View,
    again,
    is_call,
    name_of,
    operator_name,
    quantize,
    requantize,
    retyped,
    scale_and_zero,
    tuple_of,
    with_dtype,
)
from tinyai.source import Call, Expr, Field, Refusal, Tuple, require
from tinyai.vocabulary import call as made


def _sums_rule(view: View, call: Call, grid: Grid) -> Expr:
    sums = accumulator(view, call)
    value = requantize(sums, grid, call.name)
    return value if sums.reshaping is None else sums.reshaping.undone(value, call.name)


def _binary(quantized: str) -> Rule:
    """The rule of a sum, difference or product of two tensors. After a product of matrices, a
    constant joins the sums instead."""

    def rule(view: View, call: Call, grid: Grid) -> Expr:
        if call.op in STEPS and is_accumulator(view, call):
            return _sums_rule(view, call, grid)
        view.alone(call)
        operands: list[Integers] = []
        for arg in call.args:
            value = view.integers(arg)
            require(value.dtype != "int32", "dtype of an operand", "int32", "int8 or uint8")
            operands.append(value)
        # All have one dtype; an int16 among them makes them int16 until the result is there.
        wide = any(each.dtype == "int16" for each in operands)
        own = replace(grid, dtype="int16") if wide else grid
        operands = [with_dtype(each, own.dtype, call.name) for each in operands]
        exprs = [each.expr for each in operands]
        quantization = [part for each in operands for part in scale_and_zero(each.grid)]
        operands_of = (*exprs, *quantization, *scale_and_zero(own))
        result = made(quantized, retyped(call, own.dtype), *operands_of, name=call.name)
        return requantize(_on_grid(result, own), grid, call.name)

    return rule


def _extreme(view: View, call: Call, grid: Grid) -> Expr:
    """The larger or smaller of two values on the grid of the result: integers are in the order of
    the floats that they stand for."""
    view.alone(call)
    operands = [view.integers(arg) for arg in call.args]
    for each in operands:
        on_it = not each.per_channel and each.grid == grid
        require(on_it, f"scale of what {call.spelled} reads", "another one", "its result's")
    return again(call, *(each.expr for each in operands), dtype=grid.dtype)


def _concatenate(view: View, call: Call, grid: Grid) -> Expr:
    view.alone(call)
    whole = call["parts"]
    if not isinstance(whole, Tuple):
        raise Refusal("input", operator_name(whole), "a tuple")
    view.alone(whole)
    parts = [_as_part(view.integers(field), grid, call.name) for field in whole.fields]
    scales, zeros = zip(*(scale_and_zero(part.grid) for part in parts), strict=True)
    return made(
        "quantized_concatenate",
        retyped(call, grid.dtype),
        tuple_of(*(part.expr for part in parts)),
        tuple_of(*scales),
        tuple_of(*zeros),
        *scale_and_zero(grid),
        name=call.name,
        axis=int(call.attrs["axis"]),
    )


def _as_part(value: Integers, grid: Grid, name: str) -> Integers:
    """A part of a concatenation, converted to the dtype of the whole."""
    if "int16" in (value.dtype, grid.dtype) and value.dtype != grid.dtype:
        return _on_grid(requantize(value, grid, name), grid)
    return with_dtype(value, grid.dtype, name)


def _on_grid(value: Expr, grid: Grid) -> Integers:
    return Integers(value, (grid.scale,), (grid.zero_point,))


RULES: dict[str, Rule] = {
    **dict.fromkeys((*PRODUCTS, "bias_add"), _sums_rule),
    "divide": _sums_rule,
    "add": _binary("quantized_add"),
    "subtract": _binary("quantized_subtract"),
    "multiply": _binary("quantized_multiply"),
    **dict.fromkeys(EXTREMES, _extreme),
    "concatenate": _concatenate,
    **AVERAGE_RULES,
}


def quantized(view: View, call: Call) -> Expr:
    """The integers that a quantize makes, without floats.

    Moves and limits are taken off from the end, the operator before them gets its rule, and they
    follow again on integers. After a float parameter of the model, only they do.
    """
    grid = view.grid(call)
    behind, core = _peel(view, call.args[0])
    if view.as_written and is_call(core, *RULES):
        raise Refusal("operator of floats", core.spelled, "one that moves or bounds values")
    if is_call(core, *AVERAGES) and view.arithmetic.averages_in_float:
        value = average_of_floats(
            view, core, grid, [each for each in behind if is_call(each, *LIMITS)]
        )
    elif is_call(core, *RULES):
        value = RULES[core.op](view, core, grid)
    elif type(core) is Expr and behind:
        value = again_on(view, call, view.new[core])
    else:
        known = is_call(core, "dequantize", *MOVES) or isinstance(core, Field)
        require(known, "operator", operator_name(core), "one with a rule for integers")
        last = core if not is_call(core, "dequantize") else behind[-1] if behind else call
        integers = view.integers(core)
        kept = not view.as_written or (not integers.per_channel and integers.grid == grid)
        require(kept, "scale of floats that are moved", "another one", "the same before and after")
        value = requantize(integers, grid, name_of(last))
    return put_behind(view, behind, value, grid)


def _peel(view: View, expr: Expr) -> tuple[list[Call], Expr]:
    """Moves and limits from the end, last first, and what is before them.

    Moves of a quantized value stay with it: they run before its requantization.
    """
    behind: list[Call] = []
    while is_call(expr, *MOVES, *LIMITS) and not _is_quantized(view, expr):
        if is_call(expr, *LIMITS):
            if not is_bounded(view, expr):
                break
            bounds(view, expr)
        view.alone(expr)
        behind.append(expr)
        place = 1 - limit_place(view, expr) if is_call(expr, *EXTREMES) else 0
        expr = expr.args[place]
    return behind, expr


def _is_quantized(view: View, expr: Expr) -> bool:
    try:
        view.integers(expr)
    except Refusal:
        return False
    return True


def put_behind(view: View, behind: list[Call], value: Expr, grid: Grid) -> Expr:
    for call in reversed(behind):
        if is_call(call, *LIMITS):
            value = clipped(value, grid, *bounds(view, call), call.name)
        else:
            value = view.move(call, value, grid)
    return value


def again_on(view: View, call: Call, value: Expr) -> Call:
    """The quantize ``call`` of another value; ``call`` itself where the value is its own."""
    if value is call["data"]:
        return call
    return quantize(value, view.grid(call), call.name)
