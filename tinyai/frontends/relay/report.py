"""The rows of a report on a partitioned Relay module: what stays on the host, and the regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import tvm
from tvm import relay

from tinyai.backend import compile_once
from tinyai.frontends.relay.functions import has, region_target, regions_of
from tinyai.frontends.relay.hints import language
from tinyai.frontends.relay.seal import unseal
from tinyai.frontends.relay.source import Source, graph_from_region, post_order, rounding_of
from tinyai.frontends.relay.trial import code_of_trial, signature, unbuilt_of
from tinyai.own import OwnBackend
from tinyai.partition.own import reason_of_own
from tinyai.partition.reasons import Whole, maker_of
from tinyai.partition.rows import host_row, region_row, require_none_left
from tinyai.report import HostRow, RegionRow, Report
from tinyai.report.rows import NO_FLOW, Flow
from tinyai.source import Call, Constant, Expr, Rounding, tensors_of
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
    functions = {var.name_hint: func for var, func in inside.items()}
    host, flows = _host_rows(mod, functions, rounding, own)
    rows = tuple(
        replace(
            _own_row(func, own) if own else _region_row(func, limits or Target()),
            flow=flows.get(symbol, NO_FLOW),
        )
        for symbol, func in functions.items()
    )
    return Report(host, rows)


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
) -> tuple[tuple[HostRow, ...], dict[str, Flow]]:
    """The rows, and the flows of regions by their symbols."""
    notes: dict[Expr, str] = {}
    ends: dict[str, tuple[Sequence[Expr], Expr]] = {}
    results: list[Expr] = []
    calls: list[Call] = []
    for _, func in sorted(mod.functions.items(), key=lambda item: str(item[0].name_hint)):
        if not isinstance(func, relay.Function) or has(func, "Compiler"):
            continue
        source = _Dissolved(inside, notes, ends, compiler=own.name if own else COMPILER)
        results.append(source.result(func.body))
        calls += (call for each in _operators(func) if isinstance(call := source(each), Call))
    unbuilt = {call: each for each in unbuilt_of(mod) for call in each.calls}
    why = {call: unbuilt[signature(call)].reason for call in calls if signature(call) in unbuilt}
    whole = Whole.of(results, calls, notes, why, rounding, language())
    numbers: dict[Expr, int] = {}

    def flow(read: Iterable[Expr], made: Expr) -> Flow:
        values = (maker_of(tensor) for each in read for tensor in tensors_of(each))
        reads = (each for each in values if not isinstance(each, Constant))
        makes = map(maker_of, tensors_of(made))
        return Flow(
            *(tuple(numbers.setdefault(e, len(numbers)) for e in es) for es in (reads, makes))
        )

    rows = tuple(
        replace(
            host_row(call, whole, reason_of_own(own, call, whole) if own else None),
            flow=flow(call.args, call),
        )
        for call in calls
    )
    return rows, {symbol: flow(read, made) for symbol, (read, made) in ends.items()}


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

    ``notes`` collects the region's symbol of each call that a region holds, ``ends`` what a region
    reads and makes, by its symbol.
    """

    def __init__(
        self,
        inside: Mapping[str, relay.Function],
        notes: dict[Expr, str],
        ends: dict[str, tuple[Sequence[Expr], Expr]],
        symbol: str = "",
        bound: dict[relay.Expr, Expr] | None = None,
        compiler: str = COMPILER,
    ) -> None:
        super().__init__(bound)
        self._inside, self._notes, self._symbol = inside, notes, symbol
        self._ends, self._compiler = ends, compiler

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
                more = self._inside, self._notes, self._ends, symbol, bound, self._compiler
                result = _Dissolved(*more).result(func.body)
                if isinstance(expr.op, tvm.ir.GlobalVar):
                    self._ends[symbol] = (list(bound.values()), result)
                return result
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
