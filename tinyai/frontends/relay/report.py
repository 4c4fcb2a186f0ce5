"""The rows of a report on a partitioned Relay module: what stays on the host, and the regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import tvm
from tvm import relay

from tinyai.backend import compile_once
from tinyai.frontends.own import reason_of_own
from tinyai.frontends.relay.functions import has, region_target, regions_of
from tinyai.frontends.relay.hints import language
from tinyai.frontends.relay.seal import unseal
from tinyai.frontends.relay.source import Source, graph_from_region, post_order, rounding_of
from tinyai.frontends.relay.trial import code_of_trial, signature, unbuilt_of
from tinyai.own import OwnBackend
from tinyai.partition.reasons import Whole
from tinyai.partition.rows import host_row, region_row, require_none_left
from tinyai.report import HostRow, RegionRow, Report
from tinyai.source import Call, Expr, Rounding
from tinyai.target import COMPILER, Target


def report_of(
    partitioned: tvm.IRModule,
    mode: str = "upward",
    *,
    limits: Target | None = None,
    own: OwnBackend | None = None,
) -> Report:
    """The report of a module that is partitioned already, for the rounding ``mode`` where it has no
    region to say it, and the ``limits`` of a target where the regions have none. ``own`` is the
    back end that it is about, if not tinyai."""
    mod = unseal(partitioned)
    inside = regions_of(mod, own.name if own else COMPILER)
    first = next(iter(inside.values()), None)
    rounding = rounding_of(first)
    rounding = rounding if first is not None else replace(rounding, mode=mode)
    rows = tuple(
        _own_row(func, own) if own else _region_row(func, limits or Target())
        for func in inside.values()
    )
    return Report(_host_rows(mod, {v.name_hint: f for v, f in inside.items()}, rounding, own), rows)


def check_boundary(partitioned: tvm.IRModule, mode: str) -> None:
    """Raise ``BoundaryError`` where an operator that computes stays on the host; ``mode`` as in
    ``report_of``."""
    require_none_left(
        report_of(partitioned, mode), "what the report says of each, or partition without strict"
    )


# --- Host --------------------------------------------------------------------------------------


def _host_rows(
    mod: tvm.IRModule,
    inside: Mapping[str, relay.Function],
    rounding: Rounding,
    own: OwnBackend | None,
) -> tuple[HostRow, ...]:
    notes: dict[Expr, str] = {}
    results: list[Expr] = []
    calls: list[Call] = []
    for _, func in sorted(mod.functions.items(), key=lambda item: str(item[0].name_hint)):
        if not isinstance(func, relay.Function) or has(func, "Compiler"):
            continue
        source = _Dissolved(inside, notes, compiler=own.name if own else COMPILER)
        results.append(source.result(func.body))
        calls += (call for each in _operators(func) if isinstance(call := source(each), Call))
    unbuilt = {call: each for each in unbuilt_of(mod) for call in each.calls}
    why = {call: unbuilt[signature(call)].reason for call in calls if signature(call) in unbuilt}
    whole = Whole.of(results, calls, notes, why, rounding, language())
    return tuple(
        host_row(call, whole, reason_of_own(own, call, whole) if own else None) for call in calls
    )


def _operators(func: relay.Function) -> list[relay.Call]:
    """The calls of operators in a function, arguments first, closures and branches included; what
    composites and regions of other compilers hold is not the host's."""
    found: dict[relay.Call, None] = {}

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            found[expr] = None
        elif isinstance(expr, relay.Function) and (has(expr, "Composite") or has(expr, "Compiler")):
            relay.analysis.post_order_visit(expr.body, lambda inner: found.pop(inner, None))

    relay.analysis.post_order_visit(func.body, visit)
    return list(found)


class _Dissolved(Source):
    """Source expressions of a partitioned function as if there were no regions and composites.

    ``notes`` collects the region's symbol of each call that a region holds.
    """

    def __init__(
        self,
        inside: Mapping[str, relay.Function],
        notes: dict[Expr, str],
        symbol: str = "",
        bound: dict[relay.Expr, Expr] | None = None,
        compiler: str = COMPILER,
    ) -> None:
        super().__init__(bound)
        self._inside, self._notes, self._symbol = inside, notes, symbol
        self._compiler = compiler

    def result(self, root: relay.Expr) -> Expr:
        """``root`` as a source expression; what it depends on comes first, to recurse no deeper."""
        for expr in post_order(root):
            self(expr)
        return self(root)

    def _make(self, expr: relay.Expr) -> Expr:
        if isinstance(expr, relay.Call) and not isinstance(expr.op, tvm.ir.Op):
            symbol, func = self._callee(expr.op)
            if func is not None:
                bound = dict(zip(func.params, map(self, expr.args), strict=True))
                inner = _Dissolved(self._inside, self._notes, symbol, bound, self._compiler)
                return inner.result(func.body)
        made = super()._make(expr)
        if self._symbol and isinstance(made, Call):
            self._notes[made] = self._symbol
        return made

    def _callee(self, op: relay.Expr) -> tuple[str, relay.Function | None]:
        """The function that is called, and the region's symbol; None where it stays opaque."""
        if isinstance(op, tvm.ir.GlobalVar):
            return op.name_hint, self._inside.get(op.name_hint)
        composite = isinstance(op, relay.Function) and has(op, "Composite")
        ours = composite and str(op.attrs["Composite"]).startswith(f"{self._compiler}.")
        return self._symbol, op if ours else None


# --- Regions -----------------------------------------------------------------------------------


def _region_row(func: relay.Function, limits: Target) -> RegionRow:
    target = region_target(func)
    compiled = code_of_trial(func) or compile_once(graph_from_region(func), target)
    composites, operators = _contents(func)
    return region_row(
        compiled.graph.name,
        compiled,
        operators,
        composites,
        arena_limit=target.arena_limit or limits.arena_limit,
        weight_limit=target.weight_limit or limits.weight_limit,
    )


def _own_row(func: relay.Function, own: OwnBackend) -> RegionRow:
    """What is known of a region before its back end has it: nothing of an arena."""
    graph = own.passed(graph_from_region(func, own.patterns))
    composites, operators = _contents(func)
    weights = sum(value.nbytes for value in graph.constants.values())
    counts = tuple(sorted(composites.items())), tuple(sorted(operators.items()))
    return RegionRow(graph.name, *counts, graph.macs(), weights, 0, 0, len(graph.nodes))


def _contents(func: relay.Function) -> tuple[Counter[str], Counter[str]]:
    """The composites of a region and the single operators beside them, counted by name."""
    composites: Counter[str] = Counter()

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Function) and has(expr, "Composite"):
            composites[str(expr.attrs["Composite"]).partition(".")[2]] += 1

    relay.analysis.post_order_visit(func.body, visit)
    return composites, Counter(call.op.name for call in _operators(func))
