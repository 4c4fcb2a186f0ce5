"""The rows of a report: what stayed on the host with its reason, and regions with their costs."""

from __future__ import annotations

from dataclasses import dataclass, field

from tinyai.dropped import NOTHING, Dropped
from tinyai.report.anatomy import Anatomy


@dataclass(frozen=True)
class Flow:
    """The values that a part of a model ``reads`` and ``makes``, by numbers of the report's own:
    of a region as many as its graph has inputs and outputs, in their order."""

    reads: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()

    def __add__(self, other: Flow) -> Flow:
        """That of two parts that are shown as one."""
        return Flow(self.reads + other.reads, self.makes + other.makes)


NO_FLOW = Flow()


@dataclass(frozen=True)
class Reason:
    """Which row of ``tinyai/patterns.py`` came nearest, and which of its conditions failed.

    ``row_kind`` is "composite" or "operator", or "none" where no row knows the operator; then
    ``row`` is "". ``calls`` is how many operators of the model the row fits, this one included.
    ``clause`` is the condition that failed, ``found`` and ``allowed`` are its two sides; ``at`` is
    the operator that it is about, where that is another one of the composite.
    """

    row_kind: str
    row: str
    calls: int
    clause: str
    found: str
    allowed: str
    at: str = ""


@dataclass(frozen=True)
class HostRow:
    """An operator that stayed on the host.

    ``name`` is the source model's ("" where none is known), ``type`` the result's. ``computes`` is
    False for operators that only cast, reshape or mark a place. ``macs`` are multiply-accumulates
    of one run, None where they are not defined or not known (no product of matrices, a dynamic
    shape). ``boundary_bytes`` go from regions to this operator and from it to regions in one run,
    None where a shape is dynamic. ``hint`` says what to change. ``flow`` is for the page alone.
    """

    name: str
    operator: str
    type: str
    reason: Reason
    computes: bool
    macs: int | None
    boundary_bytes: int | None
    hint: str
    flow: Flow = field(default=NO_FLOW, compare=False, repr=False)


@dataclass(frozen=True)
class RegionRow:
    """A region, as it is compiled under its options; sizes in bytes.

    ``composites`` and ``operators`` count the composites, and the single operators beside them, by
    name, sorted. ``weight_bytes`` are those of the emitted C. ``arena_lower_bound`` is the largest
    sum of what lives at once: no plan is smaller. ``layers`` are the steps of the emitted code.
    ``arena_limit`` and ``weight_limit`` are the target's, 0 for none.
    ``dropped`` is what the source model has and the C does without. ``state_bytes`` are those of
    the values that are kept from one call to the next, apart from the arena. ``anatomy`` and
    ``flow`` are for the page alone; no anatomy where the region's layers are not known.
    """

    symbol: str
    composites: tuple[tuple[str, int], ...]
    operators: tuple[tuple[str, int], ...]
    macs: int
    weight_bytes: int
    arena_bytes: int
    arena_lower_bound: int
    layers: int
    arena_limit: int = 0
    weight_limit: int = 0
    dropped: Dropped = NOTHING
    state_bytes: int = 0
    anatomy: Anatomy | None = field(default=None, compare=False, repr=False)
    flow: Flow = field(default=NO_FLOW, compare=False, repr=False)

    @property
    def exceeds(self) -> tuple[str, ...]:
        """The limits that the region is above: it cannot be built under them."""
        sizes = {"arena_limit": self.arena_bytes, "weight_limit": self.weight_bytes}
        return tuple(name for name, size in sizes.items() if 0 < getattr(self, name) < size)
