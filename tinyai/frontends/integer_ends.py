"""A model whose ends are integers: without what quantizes its float inputs and dequantizes its
float outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tinyai.errors import OptionError
from tinyai.frontends.qparams import quant_at
from tinyai.frontends.source_model import End, SourceModel
from tinyai.ir import NARROW
from tinyai.qdq.moves import MOVES_ALONE
from tinyai.qdq.operands import is_call, tuple_of
from tinyai.safe_text import safe
from tinyai.source import Call, Expr, children, post_order, rebuilt


def with_integer_ends(model: SourceModel) -> SourceModel:
    """The model without what quantizes its float inputs and dequantizes its float outputs; states
    stay as they are."""
    states = len(model.initial)
    order = list(post_order(model.result))
    inputs: list[End] = []
    instead: dict[Expr, Expr] = {}
    for end in model.inputs[: len(model.inputs) - states]:
        readers = [each for each in order if end.expr in children(each)]
        integer = _integer_input(end, readers)
        if integer is not end:
            instead |= dict.fromkeys(readers, integer.expr)
        inputs.append(integer)
    inputs += model.inputs[len(inputs) :]
    own_outputs = model.outputs[: len(model.outputs) - states]
    outputs = [_integer_output(end, end.expr) for end in own_outputs]
    outputs += model.outputs[len(outputs) :]
    made = replace(model, inputs=tuple(inputs), outputs=tuple(outputs))
    return made.with_outputs(_substituted(outputs, instead))


def _no_integers(what: str, found: str, hint: str = "") -> OptionError:
    return OptionError(
        "ends='int8'",
        found=f"{what}: {found}",
        allowed="a model whose float inputs are quantized and whose float outputs are dequantized, "
        "each by one scale, and nothing else",
        hint=f"ends='model'{hint}",
    )


def _integer_input(end: End, readers: Sequence[Expr]) -> End:
    """The input itself where it is none of floats, else what its quantize makes."""
    if not end.expr.type.dtype.startswith("float"):
        return end
    what = f"input {safe(end.name, 60)!r}"
    others = [each for each in readers if not is_call(each, "quantize")]
    if others or not readers:
        by = others[0].spelled if others and isinstance(others[0], Call) else "an output"
        raise _no_integers(what, f"read by {by}" if others else "idle")
    quants = {quant_at(each, "output") for each in readers if isinstance(each, Call)}
    types = {each.type for each in readers}
    (quant, *more), (of, *_) = quants, types
    if quant is None or more or len(types) > 1 or of.dtype not in NARROW:
        raise _no_integers(what, f"{len(quants)} scales, {', '.join(sorted(map(str, types)))}")
    return End(end.name, Expr((of,)), quant)


def _integer_output(end: End, value: Expr) -> End:
    """The output itself where it is none of floats, else what is dequantized."""
    if not value.type.dtype.startswith("float"):
        return end
    if is_call(value, "reshape"):
        inner = _integer_output(end, value["data"])
        of = replace(value.type, dtype=inner.expr.type.dtype)
        moved = replace(value, types=(of,), load=lambda: (inner.expr,))
        return replace(inner, expr=moved)
    if not is_call(value, "dequantize"):
        by = value.spelled if isinstance(value, Call) else "no operator"
        one_scale = "; quantized with separate_results=False, parts of a result have one scale"
        is_moved = isinstance(value, Call) and value.op in MOVES_ALONE
        raise _no_integers(
            f"output {safe(end.name, 60)!r}", f"made by {by}", one_scale if is_moved else ""
        )
    quant, data = quant_at(value, "input"), value["data"]
    if quant is None or data.type.dtype not in NARROW:
        raise _no_integers(f"output {safe(end.name, 60)!r}", f"dequantized from {data.type.dtype}")
    return End(end.name, data, quant)


def _substituted(outputs: Sequence[End], instead: Mapping[Expr, Expr]) -> tuple[Expr, ...]:
    """The outputs' expressions with others in place of some."""
    new: dict[Expr, Expr] = dict(instead)
    for expr in post_order(tuple_of(*(end.expr for end in outputs))):
        if expr not in new:
            new[expr] = rebuilt(expr, [new[child] for child in children(expr)])
    return tuple(new[end.expr] for end in outputs)
