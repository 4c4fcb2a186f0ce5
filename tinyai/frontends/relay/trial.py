"""Regions are tried up to their C (``tinyai.partition.trial``) before a partition is handed out: the
composites and operators that have none leave them, and the rest is partitioned anew.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

from tinyai.errors import TinyAIError
from tinyai.frontends.relay.functions import has, region_target
from tinyai.frontends.relay.seal import unsealed
from tinyai.frontends.relay.source import Source, graph_from_region, post_order
from tinyai.partition.trial import to_blame, tried, unbuilt
from tinyai.report import Reason
from tinyai.source import Call
from tinyai.target import COMPILER

# The compiler of composites that wait for the host while the rest is partitioned.
HOST = f"{COMPILER}_host"
UNBUILT = f"{COMPILER}.unbuilt"


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


def failure(func: relay.Function) -> TinyAIError | None:
    """Why a region cannot be built; None where it can."""
    found = tried(lambda: graph_from_region(func), region_target(func))
    return found if isinstance(found, TinyAIError) else None


def unbuildable(func: relay.Function) -> list[tuple[relay.Call, Unbuilt]]:
    """The composites and operators of a region that have to leave it, none where it has C."""
    whole = failure(func)
    if whole is None:
        return []
    items = [each for each in post_order(func.body) if isinstance(each, relay.Call)]
    failed = to_blame(
        items,
        whole,
        lambda item: failure(_alone(item, func)),
        lambda some: failure(_first(some, func)),
    )
    return [(item, _noted(item, error)) for item, error in failed]


def _alone(item: relay.Call, func: relay.Function) -> relay.Function:
    """A region of one composite or operator."""
    call, params = _apart(item)
    return relay.Function(params, call, None, None, func.attrs)


def _first(items: Sequence[relay.Call], func: relay.Function) -> relay.Function:
    """A region of its first composites and operators, with all results that the others read."""
    read = {arg for item in items for arg in _read(item)}
    body = relay.Tuple([item for item in items if item not in read])
    return relay.Function(relay.analysis.free_vars(body), body, None, None, func.attrs)


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


# --- Back to a module without regions ------------------------------------------------------------


def without_regions(
    mod: tvm.IRModule,
    regions: Mapping[tvm.ir.GlobalVar, relay.Function],
    leaving: Collection[relay.Call],
) -> tvm.IRModule:
    """``mod`` with its ``regions`` dissolved, their composites left, to be partitioned anew.
    ``leaving`` are calls of regions that are to stay on the host: they become composites of
    another compiler, which ``dissolved`` takes away."""
    bodies = {v.name_hint: _Leaving(leaving).visit(func) for v, func in regions.items()}
    inlined = _Inlined(bodies)
    functions = {
        variable: inlined.visit(func) if isinstance(func, relay.Function) else func
        for variable, func in mod.functions.items()
        if variable not in regions
    }
    return relay.transform.InferType()(tvm.IRModule(functions, mod.type_definitions, mod.attrs))


def dissolved(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with the operators of the host's composites in their place."""
    inlined = _Inlined({})
    functions = {
        variable: inlined.visit(func) if isinstance(func, relay.Function) else func
        for variable, func in mod.functions.items()
    }
    return relay.transform.InferType()(tvm.IRModule(functions, mod.type_definitions, mod.attrs))


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


class _Inlined(ExprMutator):  # type: ignore[misc]
    """Calls of regions, and without regions of the host's composites, replaced by their bodies."""

    def __init__(self, bodies: Mapping[str, relay.Function]) -> None:
        super().__init__()
        self.bodies = bodies

    def visit_call(self, call: relay.Call) -> relay.Expr:
        body = self._body(call.op)
        if body is None:
            return super().visit_call(call)
        bound = dict(zip(body.params, map(self.visit, call.args), strict=True))
        return relay.bind(body.body, bound)

    def _body(self, op: Any) -> relay.Function | None:
        if isinstance(op, tvm.ir.GlobalVar):
            return self.bodies.get(op.name_hint)
        named = isinstance(op, relay.Function) and has(op, "Composite")
        waits = named and str(op.attrs["Composite"]).startswith(f"{HOST}.")
        return op if waits and not self.bodies else None

    def visit_tuple_getitem(self, op: relay.TupleGetItem) -> relay.Expr:
        made = super().visit_tuple_getitem(op)
        whole = made.tuple_value
        return whole.fields[made.index] if isinstance(whole, relay.Tuple) else made

    def visit_function(self, fn: relay.Function) -> relay.Function:
        if has(fn, "Composite"):
            return fn
        body = self.visit(fn.body)
        return relay.Function(list(fn.params), body, fn.ret_type, fn.type_params, fn.attrs, fn.span)


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
