"""The reason for every boundary: what of a Relay module stays on the host, and why."""

from __future__ import annotations

import os
from typing import Any

import tvm

from tinyai.errors import OptionError
from tinyai.frontends.relay.options import of_target
from tinyai.frontends.relay.own import is_cut_for, regions_for
from tinyai.frontends.relay.partition import partition_for_tinyai
from tinyai.frontends.relay.report import report_of
from tinyai.ops import operators_added
from tinyai.own import backend_of
from tinyai.report import Report
from tinyai.target import Target


def explain(
    mod: tvm.IRModule | str | os.PathLike[str],
    params: dict[str, Any] | None = None,
    *,
    backend: str = "",
    **options: object,
) -> Report:
    """Report of ``mod``: each operator that stays on the host with the reason, and the regions.

    ``mod`` is a module from an importer or a quantizer, or the result of ``partition_for_tinyai``;
    ``params`` and ``options`` are those of ``partition_for_tinyai``. Regions are compiled to C to
    know their sizes; what is above ``arena_limit`` or ``weight_limit`` is marked (``exceeds``) and
    no error. ``backend`` is one of one's own (``tinyai.register_backend``): what it leaves of
    ``mod``, and why; it has no other options. The argument is not changed.

    Raises what ``partition_for_tinyai`` raises, and ``UnsupportedError`` or ``DefectError`` where a
    region that the user made himself cannot be built.
    """
    if backend:
        own = backend_of(backend)
        if options:
            found = ", ".join(options)
            raise OptionError(f"options beside back end {backend}", found=found, allowed="none")
        parts = mod if is_cut_for(own, mod) else regions_for(own, mod, params)
        with operators_added(own.operators):
            return report_of(parts, own=own)
    target = Target.from_options(of_target(options)).for_model(mod)
    partitioned = partition_for_tinyai(mod, params, **options)  # type: ignore[arg-type]
    return report_of(partitioned, target.rounding, limits=target)
