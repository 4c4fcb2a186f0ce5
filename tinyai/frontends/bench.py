"""How long the regions of a module take, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm

from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay_source import graph_from_region
from tinyai.runtime.layers import LayerTime, time_layers
from tinyai.runtime.toolchain import Toolchain
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
    partitioned = partition_for_tinyai(mod, params, **(options or {}))
    return {
        variable.name_hint: time_layers(
            graph_from_region(func), _target(func), toolchain, runs=runs
        )
        for variable, func in regions(partitioned).items()
    }


def _target(func: Any) -> Target:
    names = list(func.attrs.keys())
    return Target.from_attributes({str(name): str(func.attrs[name]) for name in names})
