"""The regions of a module, to be measured layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relay

from tinyai.errors import ModelError
from tinyai.frontends.relay.functions import region_target, regions
from tinyai.frontends.relay.modules import with_constants
from tinyai.frontends.relay.partition import partition_for_tinyai
from tinyai.frontends.relay.source import Source, graph_from_region, post_order, source_types
from tinyai.ir import Graph
from tinyai.runtime.layers import LayerTime, time_layers
from tinyai.runtime.toolchain import Toolchain
from tinyai.source import Call
from tinyai.target import Target


def bench_layers(
    mod: tvm.IRModule,
    params: dict[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    *,
    runs: int = 100,
    toolchain: Toolchain | None = None,
) -> dict[str, tuple[LayerTime, ...]]:
    """Times of the layers of each region of ``mod``, by the region's name; the host's operators are
    not run. ``options`` are those of ``partition_for_tinyai``. Raises what it and ``time_layers``
    raise."""
    found = region_graphs(mod, params, options)
    return {
        name: time_layers(graph, target, toolchain, runs=runs)
        for name, (graph, target) in found.items()
    }


def region_graphs(
    mod: tvm.IRModule,
    params: dict[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, tuple[Graph, Target]]:
    """The regions of ``mod`` as graphs, each with its target, by the region's name. Raises
    ``ModelError`` where there is none, and what ``partition_for_tinyai`` raises."""
    typed = with_constants(mod, params)
    partitioned = None
    if not float_calls(typed):
        partitioned = partition_for_tinyai(mod, params, **(options or {}))
    found = regions(partitioned) if partitioned else {}
    if not found:
        raise ModelError(
            "model to measure",
            found=contents(partitioned or typed),
            allowed="one of which tinyai takes a part",
            hint="python -m tinyai explain FILE tells why each operator stays on the host",
        )
    return {
        variable.name_hint: (graph_from_region(func), region_target(func))
        for variable, func in found.items()
    }


# What regions compute in.
_COMPUTED = {"int8", "uint8", "int16", "uint16", "int32"}


def float_calls(mod: tvm.IRModule) -> list[Call]:
    """The calls of a typed module that computes in floats alone, so that tinyai takes nothing of
    it: known at once, where the partition takes a minute. None of others."""
    source = Source()
    values = [source(expr) for expr in post_order(mod["main"].body) if isinstance(expr, relay.Call)]
    dtypes = {of.dtype for value in values for of in value.types}
    if dtypes & _COMPUTED or not any(dtype.startswith("float") for dtype in dtypes):
        return []
    return [value for value in values if isinstance(value, Call)]


def contents(mod: tvm.IRModule) -> str:
    """What a module is of which tinyai takes nothing: float, most often."""
    dtypes: set[str] = set()

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call | relay.Var | relay.Constant):
            dtypes.update(of.dtype for of in source_types(expr.checked_type))

    relay.analysis.post_order_visit(mod["main"], visit)
    if not dtypes & {"int8", "uint8"}:
        kinds = sorted(dtype for dtype in dtypes if dtype.startswith(("float", "bfloat")))
        return f"a float model: no value of 8 bits, but {', '.join(kinds) or 'other integers'}"
    return "no operator that tinyai takes"
