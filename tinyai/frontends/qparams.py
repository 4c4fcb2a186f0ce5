"""What the integers of a value stand for, as the operators around it say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tinyai.ir import QParams
from tinyai.qdq.operands import tuple_of
from tinyai.source import Call, Constant, Expr, children, post_order

# What hands on its first operand's values, or some of them.
MOVES = frozenset(
    ("reshape", "transpose", "layout_transform", "clip", "relu", "max_pool2d", "strided_slice")
)


def readers_of(results: Iterable[Expr]) -> Mapping[Expr, Sequence[Call]]:
    """The calls that read each value which ``results`` depend on."""
    readers: dict[Expr, list[Call]] = {}
    for expr in post_order(tuple_of(*results)):
        for arg in children(expr) if isinstance(expr, Call) else ():
            readers.setdefault(arg, []).append(expr)  # type: ignore[arg-type]
    return readers


def quant_of_input(expr: Expr, readers: Mapping[Expr, Sequence[Call]]) -> QParams | None:
    """The scale at which the first operator that has one reads a value."""
    for reader in readers.get(expr, ()):
        quant = quant_of_input(reader, readers) if reader.op in MOVES else None
        # An operator that the vocabulary does not have names no operands.
        for operand, arg in zip(reader.operands, reader.args, strict=False):
            if arg is expr and quant is None:
                quant = quant_at(reader, operand)
                if operand == "data":
                    quant = quant or quant_at(reader, "input")
        if quant is not None:
            return quant
    return None


def quant_of_output(expr: Expr) -> QParams | None:
    """The scale at which a value is made; None where no operator says it."""
    while isinstance(expr, Call) and expr.op in MOVES:
        expr = expr.args[0]
    return quant_at(expr, "output") if isinstance(expr, Call) else None


def quant_at(call: Call, side: str) -> QParams | None:
    """The scale and zero point of one side of a call, such as "input", if they are one number
    each."""
    if f"{side}_scale" not in call.operands:
        return None
    scale, zero = call[f"{side}_scale"], call[f"{side}_zero_point"]
    if not (isinstance(scale, Constant) and isinstance(zero, Constant)):
        return None
    if scale.value.size != 1 or zero.value.size != 1:
        return None
    return QParams((float(scale.value.item()),), int(zero.value.item()))
