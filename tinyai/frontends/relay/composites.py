"""The rows of ``tinyai.patterns`` as composites of TVM's MergeComposite."""

from __future__ import annotations

import functools
from collections import UserList
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import tvm
from tvm import relay
from tvm.relay import dataflow_pattern as dfp

from tinyai.frontends.relay.seal import seal
from tinyai.frontends.relay.source import Source, attributes
from tinyai.frontends.relay.spelling import UNSPELLED, spelled
from tinyai.lowering import refusal_of_composite
from tinyai.match import (
    AnyConstant,
    Anything,
    AnyTuple,
    Chain,
    OneOf,
    Operator,
    Part,
    Pattern,
    narrowed,
    operators,
)
from tinyai.patterns import PATTERNS, PatternRow
from tinyai.source import TVMS_OWN, Rounding
from tinyai.target import COMPILER

Composite = tuple[str, dfp.DFPattern, Callable[[relay.Expr], bool]]

CONVOLUTIONS = {"conv2d", "quantized_conv2d", "quantized_conv2d_transpose"}


def with_composites(
    mod: tvm.IRModule,
    patterns: tuple[PatternRow, ...] = PATTERNS,
    rounding: Rounding = TVMS_OWN,
) -> tvm.IRModule:
    """The composites of a module whose types are inferred, sealed."""
    mod = relay.transform.FoldConstant()(mod)
    for rows in _up_to_convolutions(patterns):
        table = pattern_table(_for_module(rows, mod), rounding)
        mod = relay.transform.MergeComposite(table)(mod)
        # A composite was checked as a whole: nothing below has to look into one.
        mod = seal(mod)
    return mod


def composites_of(
    mod: tvm.IRModule, patterns: tuple[PatternRow, ...], *, compiler: str
) -> tvm.IRModule:
    """The composites of a module whose types are inferred, for another compiler."""
    mod = relay.transform.FoldConstant()(mod)
    table = pattern_table(_for_module(patterns, mod), compiler=compiler)
    return relay.transform.MergeComposite(table)(mod)


def _up_to_convolutions(rows: tuple[PatternRow, ...]) -> list[tuple[PatternRow, ...]]:
    """``rows`` up to the last of convolutions, whose types take so long to infer, and the rest."""
    places = [i for i, row in enumerate(rows, 1) if operators(row.pattern) & CONVOLUTIONS]
    cut = max(places, default=0)
    return [part for part in (rows[:cut], rows[cut:]) if part]


def _for_module(rows: tuple[PatternRow, ...], mod: tvm.IRModule) -> tuple[PatternRow, ...]:
    """``rows`` without what no operator of ``mod`` can match.

    For each pattern MergeComposite types the whole module anew. And where a call is matched it
    looks at attributes last: a chain is walked once for each dtype that a cast might have, at each
    of its casts again.
    """
    calls: dict[str, list[relay.Call]] = {}

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            calls.setdefault(expr.op.name, []).append(expr)

    for func in mod.functions.values():
        if isinstance(func, relay.Function):
            relay.analysis.post_order_visit(func, visit)

    @functools.cache
    def attributes_of(name: str) -> list[dict[str, Any]]:
        return [attributes(call.attrs) for call in calls[name]]

    def occurs(operator: Operator) -> bool:
        name, asked = spelled(operator.op), operator.attrs.items()
        if name not in calls:
            return False
        return not asked or any(asked <= has.items() for has in attributes_of(name))

    found = ((row, narrowed(row.pattern, occurs)) for row in rows)
    return tuple(replace(row, pattern=pattern) for row, pattern in found if pattern)


def pattern_table(
    rows: tuple[PatternRow, ...] = PATTERNS,
    rounding: Rounding = TVMS_OWN,
    compiler: str = COMPILER,
) -> list[Composite]:
    """The composites as TVM's MergeComposite takes them: name, pattern, check. Those of an operator
    that Relay has no name for are not in them."""

    def check(row: PatternRow, root: relay.Expr) -> bool:
        return refusal_of_composite(row, Source()(root), rounding) is None

    return [
        (f"{compiler}.{row.name}", compile_pattern(row.pattern), functools.partial(check, row))
        for row in rows
        if narrowed(row.pattern, _has_name)
    ]


class RegisteredTable(UserList[Composite]):
    """The composites as TVM's registry keeps them: made when they are first asked for, for that
    takes seconds, and most who import tinyai never ask."""

    def __init__(self, composites: Iterable[Composite] | None = None) -> None:
        if composites is not None:
            self.data = list(composites)

    @functools.cached_property
    def data(self) -> list[Composite]:  # type: ignore[override]
        return pattern_table()


def _has_name(operator: Operator) -> bool:
    return operator.op not in UNSPELLED


@functools.lru_cache
def compile_pattern(pattern: Pattern) -> dfp.DFPattern:
    """A pattern of ``tinyai.match`` in Relay's pattern language.

    The levels of a chain are shared, or the result would grow exponentially. A leaf is made anew
    for each place: in Relay one pattern object stands for one expression.
    """
    levels: dict[int, dfp.DFPattern] = {}
    kept: list[Pattern] = []  # an id stays unique while its pattern lives

    def build(each: Pattern) -> dfp.DFPattern:
        match each:
            case Anything():
                return dfp.wildcard()
            case AnyConstant():
                return dfp.is_constant()
            case AnyTuple():
                return dfp.is_tuple(None)
            case Part(_, inner):
                return build(inner)
            case Chain():
                return build(each.unroll())
            case OneOf(options):
                if id(each) not in levels:
                    kept.append(each)
                    known = (o for o in options if not isinstance(o, Operator) or _has_name(o))
                    levels[id(each)] = functools.reduce(lambda a, b: a | b, map(build, known))
                return levels[id(each)]
            case Operator(name, args, attrs):
                call = dfp.is_op(spelled(name))(*map(build, args))
                return call.has_attr(dict(attrs)) if attrs else call
        raise TypeError(f"no pattern: {each!r}")

    return build(pattern)
