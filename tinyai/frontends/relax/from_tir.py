"""Functions of TIR that are operators of Relax.

TVM's ONNX importer writes Pad, Tile and Clip as ``call_tir``. What such a function computes is
asked of TVM: it is the operator whose own lowering is the same function, by TVM's comparison of
structures. Its name tells nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import relax, topi

from tinyai.frontends.relax.reader import operator_of, source_types
from tinyai.frontends.relax.versions import typed

# TVM's lowering of an operator, its arguments behind the operands, and the operator.
_Candidate: TypeAlias = "tuple[Callable[..., Any], Sequence[Any], relax.Expr]"


def read_back(value: relax.Expr, mod: tvm.IRModule) -> relax.Expr:
    """The operator that a ``call_tir`` computes; the expression itself where it is no other."""
    if operator_of(value) != "relax.call_tir" or len(value.args) != 2:
        return value
    try:
        found = _operator(mod[value.args[0]], list(value.args[1].fields), value.ty)
    except Exception:  # of functions of other forms, which have other parts
        return value
    return value if found is None else typed(found, value.ty)


def _operator(function: Any, data: Sequence[relax.Expr], of: Any) -> relax.Expr | None:
    shapes = [each.shape for ty in (*(field.ty for field in data), of) for each in source_types(ty)]
    if len(shapes) not in (2, 3) or any(None in shape for shape in shapes):
        return None
    params = [relax.Var(f"p{number}", each.ty) for number, each in enumerate(data)]
    for lowering, arguments, same in _candidates(function, data, shapes):
        builder = relax.BlockBuilder()
        with contextlib.suppress(Exception):  # arguments that do not fit are errors of many kinds
            builder.call_te(lowering, *params, *arguments)
            (lowered,) = builder.get().functions.values()
            if tvm_ffi.structural_equal(lowered, function):
                return same
    return None


def _candidates(function: Any, data: Sequence[Any], shapes: Sequence[Any]) -> Iterator[_Candidate]:
    """What a function may be: by the shapes of its operands and of its result, and by how it makes
    its first elements."""
    first, shape, result = data[0], shapes[0], shapes[-1]
    store = function.body
    while not hasattr(store, "indices"):
        store = store.block if hasattr(store, "block") else store.body
    value = store.value  # and what it is made of at once
    operands = (getattr(value, name) for name in ("a", "b") if hasattr(value, name))
    parts = [value, *getattr(value, "args", ()), *operands]
    numbers = [each.value for each in parts if type(each).__name__ in ("FloatImm", "IntImm")]
    others: list[tuple[tuple[Any, ...], Any]] = [((), each) for each in data[1:]]
    if not others:
        others = [((each,), relax.const(each, str(first.ty.dtype))) for each in numbers]
        ones = [1] * (len(result) - len(shape))
        repeats = [size // max(of, 1) for size, of in zip(result, (*ones, *shape), strict=True)]
        yield topi.tile, (repeats,), relax.op.tile(first, repeats)
    for arguments, other in others:
        yield topi.maximum, arguments, relax.op.maximum(first, other)
        yield topi.minimum, arguments, relax.op.minimum(first, other)
    for load in parts:
        if len(data) > 1 or len(getattr(load, "indices", ())) != len(result):
            continue
        axes = zip(load.indices, store.indices, result, strict=True)
        places = [
            [_number(index, {at: place}) for place in range(size)] for index, at, size in axes
        ]
        for lowering, mode, before, rest in _borders(places, shape, numbers):
            after = [b - a - n for a, b, n in zip(shape, result, before, strict=True)]
            widths = [width for pair in zip(before, after, strict=True) for width in pair]
            value = rest[0] if mode == "constant" else 0.0
            yield lowering, (before, after, *rest), relax.op.nn.pad(first, widths, mode, value)


def _borders(
    places: Sequence[Sequence[int]], shape: Sequence[int], numbers: Sequence[float]
) -> Iterator[tuple[Callable[..., Any], str, list[int], tuple[Any, ...]]]:
    """The lowerings of paddings with widths before, as the ``places`` tell from which elements are
    taken along each axis."""
    firsts = [each[0] for each in places]
    for number in numbers:
        yield topi.nn.pad, "constant", [-each for each in firsts], (number,)
    yield topi.nn.mirror_pad, "reflect", firsts, ("REFLECT",)
    around = [-each % size for each, size in zip(firsts, shape, strict=True)]
    yield topi.nn.circular_pad, "circular", around, ()
    same = [len([*itertools.takewhile(lambda n: n == 0, each)]) for each in places]
    yield topi.nn.replicate_pad, "replicate", [max(count - 1, 0) for count in same], ()


_NUMBERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorMod": operator.mod,
    "Min": min,
    "Max": max,
    "LT": operator.lt,
    "LE": operator.le,
    "And": operator.and_,
}


def _number(expr: Any, at: Mapping[Any, int]) -> Any:
    """The value of an index where one of its variables has a value and others are 0."""
    kind = type(expr).__name__
    if kind == "Var":
        return at.get(expr, 0)
    if kind in _NUMBERS:
        return _NUMBERS[kind](_number(expr.a, at), _number(expr.b, at))
    if kind == "Call" and str(expr.op.name).endswith("if_then_else"):
        condition, *ways = expr.args
        return _number(ways[not _number(condition, at)], at)
    return expr.value  # of an immediate; what has none is none of the candidates
