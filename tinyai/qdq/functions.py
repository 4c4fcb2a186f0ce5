"""Float operators that stay between dequantize and quantize: functions of single values, which
become tables, softmax, and arithmetic on several values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tinyai.ops.functions import EXACT_FUNCTIONS
from tinyai.ops.normalize import NORMS
from tinyai.qdq.moves import MOVES
from tinyai.qdq.operands import View, again, dequantize, is_call, name_of
from tinyai.qdq.rules import again_on, put_behind
from tinyai.source import Call, Constant, Expr, require
from tinyai.vocabulary import call as made

ELEMENTWISE = (
    *("abs", "negative", "sign", "ceil", "floor", "round", "trunc", "clip", "maximum", "minimum"),
    *("add", "subtract", "multiply", "divide", "power", "sqrt", "rsqrt", "square"),
    *("exp", "log", "log2", "log10", "erf", "sin", "cos", "atan", "sigmoid", "tanh"),
    *("fast_exp", "fast_erf", "fast_tanh", "relu", "leaky_relu", "prelu", "function"),
)
SOFTMAX = ("softmax", "log_softmax", "fast_softmax")
# Functions of all values along an axis.
ALONG_AXIS = (*SOFTMAX, *NORMS)
# Of several quantized values, such as a sum of three branches: these have C for floats.
ARITHMETIC = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
    *("clip", "round", "relu", "leaky_relu", "prelu", "where"),
    *EXACT_FUNCTIONS,
)


def has_16_bits(calls: Iterable[Call]) -> bool:
    """Whether a function between int16 values can stay: softmax has integers for 8 bits alone."""
    return not any(is_call(each, *SOFTMAX) for each in calls)


@dataclass(frozen=True)
class MatchedFunction:
    """The float operators in front of a quantize that may stay, and its new expression."""

    calls: list[Call]
    expr: Expr


def function_of_values(view: View, call: Call) -> MatchedFunction:
    """A quantize of a function of single values, of a softmax or a layer norm, or of float
    arithmetic on several values, which stays float.

    Moves in front of it and after it go to the integers; then nothing but the function is between
    dequantize and quantize, and no other function reads its dequantized values. What several
    functions have in common each has for itself. Refuses any other operator there.
    """
    grid = view.grid(call)
    behind, root = _moves_behind(view, call.args[0])
    inside, leaves = _inside(view, root)
    if not all(is_call(each, *ARITHMETIC) for each in inside):
        # One that is dequantized for each of its readers is one.
        count = len({view.integers(leaf) for leaf in leaves})
        require(count == 1, "quantized inputs of the function", count, "one")
        single = (each for each in inside if not is_call(each, *NORMS))
        known = (arg for each in single for arg in each.args if isinstance(arg, Constant))
        shape = next((arg.type.shape for arg in known if view.uniform(arg) is None), ())
        require(not shape, "shape of the function's constant", shape, "one number")
    wide = "int16" in (grid.dtype, *(view.integers(leaf).dtype for leaf in leaves))
    require(not wide or has_16_bits(inside), "dtype of the function", "int16", "8 bits")
    own: set[Expr] = {*inside, *behind}
    alone = all(is_call(leaf, "dequantize") and view.within(leaf, own) for leaf in leaves)
    is_apart = all(view.is_inside(each, own) for each in inside if each is not root)
    if not behind and alone and is_apart:
        return MatchedFunction(inside, again_on(view, call, view.new[root]))
    new: dict[Expr, Expr] = {
        leaf: dequantize(view.integers(leaf), name_of(leaf)) for leaf in leaves
    }
    for each in inside:
        new[each] = _on_floats(view, each, new)
    return MatchedFunction(inside, put_behind(view, behind, again_on(view, call, new[root]), grid))


def _moves_behind(view: View, expr: Expr) -> tuple[list[Call], Expr]:
    behind = []
    while is_call(expr, *MOVES):
        view.alone(expr)
        behind.append(expr)
        expr = expr.args[0]
    return behind, expr


def _inside(view: View, root: Expr) -> tuple[list[Call], list[Expr]]:
    """The operators of a function of values, in order, and the quantized values that it is of.
    Constants of many numbers are neither."""
    inside: set[Call] = set()
    leaves: set[Expr] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        along_axis = ALONG_AXIS if expr is root else ()
        if is_call(expr, *ELEMENTWISE, "where", *along_axis):
            inside.add(expr)
            floats = (arg for arg in expr.args if arg.type.dtype == "float32")
            stack += [arg for arg in floats if view.uniform(arg) is None and arg not in inside]
        elif not isinstance(expr, Constant):
            view.integers(expr)
            leaves.add(expr)
    return sorted(inside, key=view.place), list(leaves)


def _on_floats(view: View, call: Call, new: dict[Expr, Expr]) -> Expr:
    """An operator of a function of values on other floats, constants as they are."""
    slope = view.uniform(call["slope"]) if is_call(call, "prelu") else None
    if slope is not None:  # which the shape of the values does not matter to
        return made("leaky_relu", call.type, new[call["data"]], name=call.name, alpha=slope)
    args = (new.get(arg, view.new[arg]) for arg in call.args)
    return again(call, *args, dtype=call.type.dtype)
