"""Regions are tried up to their C (``partition.trial``) before a partition is handed out: the
composites and operators that have none leave them, and the rest is partitioned anew.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

from tinyai.backend import Compiled, keep, kept
from tinyai.errors import TinyAIError
from tinyai.frontends.relay.functions import (
    deep_recursion,
    has,
    region_options,
    region_target,
    regions,
)
from tinyai.frontends.relay.rewriting import inlined
from tinyai.frontends.relay.seal import Composites, unsealed
from tinyai.frontends.relay.source import Source, graph_from_region, post_order, rounding_of
from tinyai.partition.trial import to_blame, tried, unbuilt
from tinyai.report import Reason
from tinyai.source import Call, Rounding
from tinyai.target import COMPILER

# The compiler of composites that wait for the host while the rest is partitioned.
HOST = f"{COMPILER}_host"
# What a module says of calls that are on the host because they have no C: TVM keeps values of its
# own alone, so it is text.
UNBUILT = f"{COMPILER}.unbuilt"
# What a region says of its trial. No option: these begin with the compiler and a dot.
TRIAL = f"{COMPILER}_trial"


@dataclass(frozen=True)
class Unbuilt:
    """Calls of a composite or a single operator without C, as ``signature`` tells them, and why."""

    calls: tuple[str, ...]
    reason: Reason


def signature(call: Call) -> str:
    """What a call is known by, however TVM's passes made it anew."""
    return f"{call.spelled} {call.name!r}: {', '.join(map(str, call.types))}"


def unbuilt_of(mod: tvm.IRModule) -> tuple[Unbuilt, ...]:
    """What ``with_unbuilt`` noted on a module."""
    noted = mod.attrs[UNBUILT] if mod.attrs is not None and UNBUILT in mod.attrs else "[]"
    return tuple(
        Unbuilt(tuple(each["calls"]), Reason(**each["reason"])) for each in json.loads(str(noted))
    )


def with_unbuilt(mod: tvm.IRModule, unbuilt: Sequence[Unbuilt]) -> tvm.IRModule:
    """``mod`` with a note of what is on the host because it has no C, for reports."""
    if not unbuilt:
        return mod
    noted = json.dumps([asdict(each) for each in unbuilt])
    return mod.with_attr(UNBUILT, tvm.runtime.String(noted))


# --- Trials -------------------------------------------------------------------------------------


def trial_of(func: relay.Function) -> Compiled | TinyAIError:
    """The C of a region, or why it has none."""
    return tried(lambda: graph_from_region(func), region_target(func))


def to_leave(func: relay.Function, whole: TinyAIError) -> list[tuple[relay.Call, Unbuilt]]:
    """The composites and operators that have to leave a region, which has no C because of
    ``whole``, and the reasons."""

    def failure(part: relay.Function) -> TinyAIError | None:
        result = trial_of(part)
        return result if isinstance(result, TinyAIError) else None

    def alone(item: relay.Call) -> TinyAIError | None:
        """Why a region of one composite or operator fails."""
        call, params = _apart(item)
        return failure(relay.Function(params, call, None, None, func.attrs))

    def first(items: Sequence[relay.Call]) -> TinyAIError | None:
        """Why one of the first of them fails, with all results that the others read."""
        read = {arg for item in items for arg in _read(item)}
        body = relay.Tuple([item for item in items if item not in read])
        params = relay.analysis.free_vars(body)
        return failure(relay.Function(params, body, None, None, func.attrs))

    items = [each for each in post_order(func.body) if isinstance(each, relay.Call)]
    failed = to_blame(
        items,
        whole,
        alone,
        first,
    )
    return [(item, _noted(item, error)) for item, error in failed]


def _read(expr: relay.Expr) -> Iterable[relay.Expr]:
    """The calls that a call reads, through tuples."""
    stack = list(expr.args)
    while stack:
        each = stack.pop()
        if isinstance(each, relay.Tuple):
            stack += each.fields
        elif isinstance(each, relay.TupleGetItem):
            stack.append(each.tuple_value)
        elif isinstance(each, relay.Call):
            yield each


def _noted(item: relay.Call, error: TinyAIError) -> Unbuilt:
    composite = isinstance(item.op, relay.Function)
    body = unsealed(item.op).body if composite else item
    source = Source()
    calls = [source(each) for each in post_order(body)] if composite else [source(item)]
    row = (
        str(item.op.attrs["Composite"]).removeprefix(f"{COMPILER}.") if composite else item.op.name
    )
    signatures = tuple(signature(call) for call in calls if isinstance(call, Call))
    kind = "composite" if composite else "operator"
    return Unbuilt(signatures, unbuilt(kind, row, len(signatures), error))


# --- The C of a trial, taken without reading the region again ------------------------------------


@dataclass(frozen=True)
class _Region:
    """What a trial compiled: all that the C of a region depends on."""

    func: relay.Function  # without attributes, its composites unsealed
    symbol: str
    options: Mapping[str, str]
    rounding: Rounding

    @classmethod
    def of(cls, func: relay.Function) -> _Region:
        with deep_recursion():
            body = Composites(_bare).visit(func.body)
        symbol = str(func.attrs["global_symbol"])
        return cls(
            relay.Function(func.params, body), symbol, region_options(func), rounding_of(func)
        )

    def is_same(self, other: _Region) -> bool:
        """Compared to the last weight."""
        words = [(each.symbol, each.options, each.rounding) for each in (self, other)]
        return words[0] == words[1] and bool(tvm.ir.structural_equal(self.func, other.func))


def _bare(composite: relay.Function) -> relay.Function:
    """A composite's body, sealed or not, without what relay.build notes of it (hash, layouts)."""
    inner = unsealed(composite)
    return relay.Function(inner.params, inner.body)


def with_trials(mod: tvm.IRModule, trials: Mapping[str, Compiled]) -> tvm.IRModule:
    """``mod``, whose regions say which trial has their C: ``trials`` by their names. A file of
    schedules may change until the C is asked for, so a region that has one says nothing."""
    for variable, func in regions(mod).items():
        compiled = trials[variable.name_hint]
        if not region_target(func).tuning:
            keep(replace(compiled, origin=_Region.of(func)))
            mod.update_func(variable, func.with_attr(TRIAL, str(compiled.key)))
    return mod


def code_of_trial(func: relay.Function, *, last: bool = False) -> Compiled | None:
    """The C of a region's trial; None where the region is not what was tried, or nothing is
    remembered. ``last`` as in ``compile_once``."""
    compiled = kept(str(func.attrs[TRIAL])) if has(func, TRIAL) else None
    origin = compiled.origin if compiled else None
    if compiled is None or not isinstance(origin, _Region) or not origin.is_same(_Region.of(func)):
        return None
    return kept(str(compiled.key), last=last)


# --- Back to a module without regions ------------------------------------------------------------


def without_regions(
    mod: tvm.IRModule,
    regions: Mapping[tvm.ir.GlobalVar, relay.Function],
    leaving: Collection[relay.Call],
) -> tvm.IRModule:
    """``mod`` with its ``regions`` dissolved, their composites left, to be partitioned anew.
    ``leaving`` are calls of regions that are to stay on the host: they become composites of
    another compiler, ``HOST``."""
    bodies = {v.name_hint: _Leaving(leaving).visit(func) for v, func in regions.items()}
    return inlined(mod, bodies)


class _Leaving(ExprMutator):  # type: ignore[misc]
    """Calls that become composites of the host."""

    def __init__(self, leaving: Collection[relay.Call]) -> None:
        super().__init__()
        self.leaving = leaving

    def visit_call(self, call: relay.Call) -> relay.Expr:
        made = super().visit_call(call)
        if call not in self.leaving:
            return made
        if isinstance(call.op, relay.Function):
            inner, args = unsealed(call.op), made.args
            func = relay.Function(inner.params, inner.body, inner.ret_type)
        else:
            (apart, params), args = _apart(call), _leaves(made)
            func = relay.Function(params, apart, call.checked_type)
        return relay.Call(func.with_attr("Composite", f"{HOST}.part"), args, span=call.span)

    def visit_function(self, fn: relay.Function) -> relay.Function:
        if has(fn, "Composite"):
            return fn
        return relay.Function(list(fn.params), self.visit(fn.body), fn.ret_type, None, fn.attrs)


def _leaves(call: relay.Call) -> list[relay.Expr]:
    """What a call reads, tuples looked into, without constants."""
    flat = (f for a in call.args for f in (a.fields if isinstance(a, relay.Tuple) else [a]))
    return [leaf for leaf in flat if not isinstance(leaf, relay.Constant)]


def _apart(call: relay.Call) -> tuple[relay.Call, list[relay.Var]]:
    """A call on parameters of its own, one for each of its leaves."""
    params = [relay.Var(f"p{i}", leaf.checked_type) for i, leaf in enumerate(_leaves(call))]
    rest = iter(params)

    def argument(arg: relay.Expr) -> relay.Expr:
        if isinstance(arg, relay.Tuple):
            return relay.Tuple([argument(field) for field in arg.fields])
        return arg if isinstance(arg, relay.Constant) else next(rest)

    args = [argument(arg) for arg in call.args]
    return relay.Call(call.op, args, call.attrs, call.type_args, call.span), params
