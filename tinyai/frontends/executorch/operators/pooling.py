"""Poolings, means and sums."""

from __future__ import annotations

from typing import Any

import torch

from tinyai.frontends.executorch.operators.rows import (
    first_of,
    ints,
    rank_of,
    reads,
    require_float,
)
from tinyai.frontends.executorch.reader import Read, Site
from tinyai.source import Expr, SourceType, require


def _pooling(site: Site, dims: int, of: SourceType | None = None) -> dict[str, Any]:
    rank = len((of or site.type).shape)
    require(rank == dims + 2, "dimensions of pooling", rank, dims + 2)
    kernel = ints(site.args["kernel_size"], dims)
    return {
        "kernel": kernel,
        "strides": ints(site.args["stride"], dims) if site.args["stride"] else kernel,
        "padding": ints(site.args["padding"], dims) * 2,
        "dilation": ints(site.args.get("dilation", 1), dims),
        "ceil_mode": bool(site.args["ceil_mode"]),
        "layout": _layout(dims),
        "out_layout": "",
    }


def _layout(dims: int) -> str:
    return "NC" + "DHW"[-dims:]


@reads("max_pool1d")
def _max_pool1d(site: Site) -> Expr:
    return site.call("max_pool1d", site.value("self"), **_pooling(site, 1))


@reads("max_pool2d")
def _max_pool2d(site: Site) -> Expr:
    return site.call("max_pool2d", site.value("self"), **_pooling(site, 2))


@reads("max_pool3d")
def _max_pool3d(site: Site) -> Expr:
    return site.call("max_pool3d", site.value("self"), **_pooling(site, 3))


@reads("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool_with_indices(site: Site) -> Expr:
    of = _values_alone(site)
    dims = len(of.shape) - 2
    value = site.call(f"max_pool{dims}d", site.value("self"), of=of, **_pooling(site, dims, of))
    return first_of(site, value)


@reads("adaptive_max_pool1d", "adaptive_max_pool2d")
def _adaptive_max_pool(site: Site) -> Expr:
    of = _values_alone(site)
    operator, windows = f"max_pool{len(of.shape) - 2}d", _adaptive_windows(site, of)
    return first_of(site, site.call(operator, site.value("self"), of=of, **windows))


def _values_alone(site: Site) -> SourceType:
    """The type of the largest values, where nobody reads their places: that is another operator."""
    places = [user for user in site.node.users if user.args[1:] != (0,) and user.users]
    require(not places, "places of the largest values", "used", "values alone")
    return site.types[0]


@reads("avg_pool1d")
def _avg_pool1d(site: Site) -> Expr:
    return _avg_pool(site, 1)


@reads("avg_pool2d")
def _avg_pool2d(site: Site) -> Expr:
    divisor = site.args["divisor_override"]
    require(divisor is None, "divisor_override", divisor, None)
    return _avg_pool(site, 2)


def _avg_pool(site: Site, dims: int) -> Expr:
    attrs = _pooling(site, dims)
    include = bool(site.args["count_include_pad"]) and any(attrs["padding"])
    # torch leaves the rows beyond the border out of the count, which nobody else does.
    fits = not (attrs["ceil_mode"] and include)
    require(fits, "ceil_mode with count_include_pad", True, "one of the two")
    operator = f"avg_pool{dims}d"
    return site.call(operator, site.value("self"), **attrs, count_include_pad=include)


@reads(
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"),
    whole=[torch.ops.aten.adaptive_avg_pool2d.default],
)
def _adaptive_avg_pool(site: Site) -> Expr:
    data, dims = site.value("self"), rank_of(site) - 2
    windows = _adaptive_windows(site, site.type)
    if set(site.shape[2:]) == {1}:
        axis = tuple(range(2, dims + 2))
        return site.call("mean", data, axis=axis, keepdims=True, exclude=False)
    return site.call(f"avg_pool{dims}d", data, **windows, count_include_pad=False)


def _adaptive_windows(site: Site, of: SourceType) -> dict[str, Any]:
    """Of a pooling that makes images of the type ``of``: all alike, and side by side."""
    dims = len(of.shape) - 2
    require(dims in (1, 2), "dimensions of pooling", len(of.shape), "3 or 4")
    pairs = [
        (int(size or 0), int(count or 1))
        for size, count in zip(site.value("self").type.shape[2:], of.shape[2:], strict=True)
    ]
    sizes, counts = zip(*pairs, strict=True)
    whole = all(size % count == 0 for size, count in pairs)
    require(whole, "output size of adaptive pooling", counts, f"divisors of {list(sizes)}")
    kernel = tuple(size // count for size, count in pairs)
    return {
        "kernel": kernel,
        "strides": kernel,
        "padding": (0, 0) * dims,
        "dilation": (1,) * dims,
        "ceil_mode": False,
        "layout": _layout(dims),
        "out_layout": "",
    }


def _reduction(operator: str) -> Read:
    def read(site: Site) -> Expr:
        require_float(site)
        rank = len(site.value("self").type.shape)
        axis = _axes(site.args.get("dim"), rank)
        keep = bool(site.args.get("keepdim", False))
        return site.call(operator, site.value("self"), axis=axis, keepdims=keep, exclude=False)

    return read


for _name in ("mean", "sum"):
    reads(_name)(_reduction(_name))


@reads("amax")
def _amax(site: Site) -> Expr:
    data = site.value("self")
    axes, keep = _axes(site.args["dim"], len(data.type.shape)), bool(site.args["keepdim"])
    return site.call("max", data, axis=axes, keepdims=keep, exclude=False)


def _axes(given: Any, rank: int) -> tuple[int, ...]:
    """Dimensions in order; all where none is given."""
    dims = [given] if isinstance(given, int) else list(given or range(rank))
    return tuple(sorted(dim % rank for dim in dims))
