"""The rows of a report: what stayed on the host with its reason and its costs, and what a region
costs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tinyai.backend.anatomy import anatomy_of
from tinyai.backend.pipeline import Compiled
from tinyai.errors import BoundaryError
from tinyai.lowering import FLOATS
from tinyai.network import State
from tinyai.partition.reasons import Language, Whole, maker_of, read_tensors, reason_for
from tinyai.patterns import computes
from tinyai.report import HostRow, Reason, RegionRow, Report
from tinyai.source import Call, SourceType, tensors_of

# The clause of what a model of floats alone computes.
OF_FLOATS = "dtype of a float model"


def host_row(call: Call, whole: Whole, reason: Reason | None = None) -> HostRow:
    """The report's row of a call that stayed on the host, for ``reason`` where it is known."""
    reason = reason or reason_for(call, whole)
    return HostRow(
        name=call.name,
        operator=call.spelled,
        type=", ".join(map(str, call.types)),
        reason=reason,
        computes=computes(call.op),
        macs=whole.language.macs(call),
        boundary_bytes=boundary_bytes(call, whole),
        hint=whole.language.hint(reason),
    )


def float_row(call: Call, language: Language) -> HostRow:
    """The report's row of a call in a model of floats alone: no row of the patterns is nearer than
    another, so that none is looked for."""
    dtypes = ", ".join(dict.fromkeys(of.dtype for of in call.types))
    reason = Reason("none", "", 0, OF_FLOATS, dtypes, FLOATS)
    return HostRow(
        name=call.name,
        operator=call.spelled,
        type=", ".join(map(str, call.types)),
        reason=reason,
        computes=computes(call.op),
        macs=language.macs(call),
        boundary_bytes=0,
        hint="quantize the model first: tinyai quantize, --calibrate, or its framework's tools",
    )


def region_row(
    symbol: str,
    compiled: Compiled,
    operators: Mapping[str, int],
    composites: Mapping[str, int] = MappingProxyType({}),
    *,
    arena_limit: int = 0,
    weight_limit: int = 0,
    states: Sequence[State] = (),
) -> RegionRow:
    """The report's row of a region; ``operators`` and ``composites`` are counted by name,
    ``states`` are its last inputs."""
    return RegionRow(
        symbol=symbol,
        composites=tuple(sorted(composites.items())),
        operators=tuple(sorted(operators.items())),
        macs=compiled.graph.macs(),
        weight_bytes=compiled.source.weight_bytes,
        arena_bytes=compiled.plan.arena_bytes,
        arena_lower_bound=compiled.plan.lower_bound,
        layers=len(compiled.graph.nodes),
        arena_limit=arena_limit,
        weight_limit=weight_limit,
        dropped=compiled.graph.dropped,
        state_bytes=sum(state.port.type.bytes for state in states),
        anatomy=anatomy_of(compiled, len(states)),
    )


def require_none_left(report: Report, hint: str) -> None:
    """What ``strict`` asks for: ``BoundaryError`` where an operator that computes stays outside."""
    if report.computing:
        names = Counter(row.operator for row in report.computing)
        raise BoundaryError(
            "strict: operators that compute stay on the host",
            report=report,
            found=", ".join(f"{count} {name}" for name, count in sorted(names.items())),
            allowed="none",
            hint=hint,
        )


def bytes_of(of: SourceType) -> int | None:
    """Bytes of a tensor, rounded up to whole ones; None for a dynamic shape or an odd dtype."""
    bits = 8 if of.dtype == "bool" else int((re.search(r"\d+$", of.dtype) or ["0"])[0])
    dims = [dim for dim in of.shape if dim is not None]
    if len(dims) < len(of.shape) or not bits:
        return None
    return -(-math.prod(dims) * bits // 8)


def boundary_bytes(call: Call, whole: Whole) -> int | None:
    """Bytes that go from regions to ``call`` and from it to regions, each tensor once."""
    crossing = [t for t in dict.fromkeys(read_tensors(call)) if maker_of(t) in whole.regions]
    for tensor in tensors_of(call):
        if any(user in whole.regions for user in whole.users.get(tensor, ())):
            crossing.append(tensor)
    sizes = [bytes_of(of) for expr in crossing for of in expr.types]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
