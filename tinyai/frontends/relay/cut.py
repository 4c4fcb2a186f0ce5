"""Regions are cut out by TVM's three passes after the composites, and carry their compile specs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar

import tvm
from tvm import relay

from tinyai.backend import CompileSpec
from tinyai.frontends.relay.composites import with_composites
from tinyai.frontends.relay.functions import regions
from tinyai.frontends.relay.options import text_of_spec
from tinyai.frontends.relay.rewriting import inlined, symbols_of_others, with_symbols
from tinyai.frontends.relay.seal import unseal, unsealed
from tinyai.frontends.relay.source import Source
from tinyai.frontends.relay.spelling import NAMES, supported
from tinyai.lowering import refusal_of_operator
from tinyai.patterns import PATTERNS, PatternRow, computes
from tinyai.source import TVMS_OWN, Call, Rounding
from tinyai.target import COMPILER, SPECS


def cut_regions(
    mod: tvm.IRModule,
    mod_name: str = "default",
    patterns: tuple[PatternRow, ...] = PATTERNS,
    *,
    sealed: bool = False,
) -> tvm.IRModule:
    """TVM's four passes, under the composites of ``patterns`` and the operators' predicates. The
    types of ``mod`` are inferred, and so are those of the result. ``sealed``: its composites too.
    """
    mod = annotated_regions(with_composites(mod, patterns), mod_name)
    return mod if sealed else unseal(mod)


def annotated_regions(
    mod: tvm.IRModule, mod_name: str, rounding: Rounding = TVMS_OWN
) -> tvm.IRModule:
    """The regions of a module of composites, and of single operators between them."""
    register_operators()
    token = _ANNOTATED_FOR.set(rounding)
    try:
        return annotated_by(COMPILER, mod, mod_name)
    finally:
        _ANNOTATED_FOR.reset(token)


def annotated_by(compiler: str, mod: tvm.IRModule, mod_name: str) -> tvm.IRModule:
    """The regions of a compiler, in a module of its composites."""
    symbols = symbols_of_others(mod)
    passes = [
        relay.transform.AnnotateTarget([compiler]),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(mod_name),
    ]
    return with_symbols(tvm.transform.Sequential(passes)(mod), symbols)


# Whose arithmetic the predicates ask for: TVM has one for each operator, and calls it with an
# expression and nothing else.
_ANNOTATED_FOR: ContextVar[Rounding] = ContextVar("_ANNOTATED_FOR", default=TVMS_OWN)


def register_operators() -> None:
    """Tell AnnotateTarget about single operators, which it takes between composites."""
    key = f"target.{COMPILER}"
    for name in supported():
        operator = tvm.ir.Op.get(name)
        # has_attr tells whether any operator has it, get_attr fails where none has.
        if not operator.has_attr(key) or operator.get_attr(key) is None:
            tvm.ir.register_op_attr(name, key, _takes)


def _takes(expr: relay.Expr) -> bool:
    call = Source()(expr)
    return isinstance(call, Call) and refusal_of_operator(call, _ANNOTATED_FOR.get()) is None


def with_specs(
    mod: tvm.IRModule,
    found: Mapping[tvm.ir.GlobalVar, relay.Function],
    specs: Callable[[str], Sequence[CompileSpec]],
) -> tvm.IRModule:
    """``mod``, whose regions carry what ``specs`` says of each by its name."""
    for variable, func in found.items():
        said = {spec.key: text_of_spec(spec) for spec in specs(variable.name_hint)}
        mod.update_func(variable, func.with_attr(SPECS, json.dumps(said, sort_keys=True)))
    return mod


def inline_idle_regions(mod: tvm.IRModule) -> tvm.IRModule:
    """Regions that only cast, reshape or mark a place go back to the host."""
    idle = {v.name_hint: func for v, func in regions(mod).items() if not _computes(func)}
    return inlined(mod, idle, COMPILER) if idle else mod


def _computes(region: relay.Function) -> bool:
    found: list[bool] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            found.append(computes(NAMES.get(expr.op.name, expr.op.name)))
        elif isinstance(expr, relay.Function) and (hidden := unsealed(expr)) is not expr:
            found.append(_computes(hidden))

    relay.analysis.post_order_visit(region.body, visit)
    return any(found)
