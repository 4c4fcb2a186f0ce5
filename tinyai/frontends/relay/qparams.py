"""What the integers of a value stand for, as the operators around it say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyai.ir import QParams
from tinyai.source import Call, Constant, Expr

# What hands on its first operand's values, or some of them.
MOVES = frozenset(
    ("reshape", "transpose", "layout_transform", "clip", "relu", "max_pool2d", "strided_slice")
)


def quant_of_input(expr: Expr, readers: Mapping[Expr, Sequence[Call]]) -> QParams | None:
    """The scale at which an operator reads a value; ``readers`` are those of each."""
    for reader in readers.get(expr, ()):
        if reader.op in MOVES:
            found = quant_of_input(reader, readers)
            if found is not None:
                return found
        # An operator that the vocabulary does not have names no operands.
        for operand, arg in zip(reader.operands, reader.args, strict=False):
            if arg is expr:
                sides = (operand, "input" if operand == "data" else operand)
                return next(filter(None, (_quant(reader, side) for side in sides)), None)
    return None


def quant_of_output(expr: Expr) -> QParams | None:
    """The scale at which a value is made; None where no operator says it."""
    while isinstance(expr, Call) and expr.op in MOVES:
        expr = expr.args[0]
    return _quant(expr, "output") if isinstance(expr, Call) else None


def _quant(call: Call, side: str) -> QParams | None:
    """What two constants of a call say, if they are one number each."""
    if f"{side}_scale" not in call.operands:
        return None
    scale, zero = call[f"{side}_scale"], call[f"{side}_zero_point"]
    if not (isinstance(scale, Constant) and isinstance(zero, Constant)):
        return None
    if scale.value.size != 1 or zero.value.size != 1:
        return None
    return QParams((float(scale.value.item()),), int(zero.value.item()))
