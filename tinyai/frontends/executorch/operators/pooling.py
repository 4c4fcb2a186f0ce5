"""Poolings, means and sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from tinyai.frontends.executorch.operators.rows import ints, rank_of, reads, require_float
from tinyai.frontends.executorch.reader import Read, Site
from tinyai.source import Expr, SourceType, require


def _pooling(site: Site, of: SourceType | None = None) -> dict[str, Any]:
    rank = len((of or site.type).shape)
    require(rank == 4, "dimensions of pooling", rank, 4)
    kernel = ints(site.args["kernel_size"], 2)
    return {
        "kernel": kernel,
        "strides": ints(site.args["stride"], 2) if site.args["stride"] else kernel,
        "padding": ints(site.args["padding"], 2) * 2,
        "dilation": ints(site.args.get("dilation", 1), 2),
        "ceil_mode": bool(site.args["ceil_mode"]),
        "layout": "NCHW",
        "out_layout": "",
    }


@reads("max_pool2d")
def _max_pool2d(site: Site) -> Expr:
    return site.call("max_pool2d", site.value("self"), **_pooling(site))


@reads("max_pool2d_with_indices")
def _max_pool2d_with_indices(site: Site) -> Expr:
    """Its values alone: who reads the places has another operator."""
    places = [user for user in site.node.users if user.args[1:] != (0,)]
    require(not places, "places of the largest values", "used", "values alone")
    of = site.types[0]
    return site.call("max_pool2d", site.value("self"), of=of, **_pooling(site, of))


@reads("avg_pool2d")
def _avg_pool2d(site: Site) -> Expr:
    attrs, divisor = _pooling(site), site.args["divisor_override"]
    require(divisor is None, "divisor_override", divisor, None)
    include = bool(site.args["count_include_pad"]) and any(attrs["padding"])
    # torch leaves the rows beyond the border out of the count, which nobody else does.
    fits = not (attrs["ceil_mode"] and include)
    require(fits, "ceil_mode with count_include_pad", True, "one of the two")
    return site.call("avg_pool2d", site.value("self"), **attrs, count_include_pad=include)


@reads(
    "adaptive_avg_pool2d",
    "_adaptive_avg_pool2d",
    whole=[torch.ops.aten.adaptive_avg_pool2d.default],
)
def _adaptive_avg_pool2d(site: Site) -> Expr:
    data = site.value("self")
    require(rank_of(site) == 4, "dimensions of pooling", rank_of(site), 4)
    sizes = [int(dim or 0) for dim in data.type.shape[2:]]
    whole = all(size % count == 0 for size, count in zip(sizes, site.shape[2:], strict=True))
    require(whole, "output size of adaptive pooling", site.shape[2:], f"divisors of {sizes}")
    kernel = tuple(size // count for size, count in zip(sizes, site.shape[2:], strict=True))
    if site.shape[2:] == (1, 1):
        return site.call("mean", data, axis=(2, 3), keepdims=True, exclude=False)
    return site.call(
        "avg_pool2d",
        data,
        kernel=kernel,
        strides=kernel,
        padding=(0, 0, 0, 0),
        dilation=(1, 1),
        ceil_mode=False,
        layout="NCHW",
        out_layout="",
        count_include_pad=False,
    )


def _reduction(operator: str) -> Read:
    def read(site: Site) -> Expr:
        require_float(site)
        rank = len(site.value("self").type.shape)
        given = site.args.get("dim")
        dims = [given] if isinstance(given, int) else list(given or range(rank))
        axis = tuple(sorted(dim % rank for dim in dims))
        keep = bool(site.args.get("keepdim", False))
        return site.call(operator, site.value("self"), axis=axis, keepdims=keep, exclude=False)

    return read


for _name in ("mean", "sum"):
    reads(_name)(_reduction(_name))


@reads("amax")
def _amax(site: Site) -> Expr:
    """Over whole images, as a pooling."""
    data, dim = site.value("self"), site.args["dim"]
    rank = len(data.type.shape)
    axis = tuple(sorted(int(each) % rank for each in dim)) if isinstance(dim, Sequence) else dim
    require((rank, axis) == (4, (2, 3)), "dimensions of amax", axis, "(2, 3) of four")
    of = replace(data.type, shape=(*data.type.shape[:2], 1, 1))
    pooled = site.call("global_max_pool2d", data, of=of, layout="NCHW", out_layout="")
    return pooled if of == site.type else site.call("reshape", pooled)
