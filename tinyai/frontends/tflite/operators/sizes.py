"""Sizes, counts and constants that are known before a file runs: what converters leave of shapes
whose batch is open."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinyai.frontends.tflite.operators.rows import reads
from tinyai.frontends.tflite.reader import Site
from tinyai.ir import Array
from tinyai.source import Expr, require
from tinyai.vocabulary import constant

# Elements of what a few numbers of a file ask for.
MOST = 2**22


def _plain(site: Site, value: Array) -> Expr:
    """A constant of the result's dtype, in which integers wrap around as TFLite's do."""
    dtype = site.output.dtype
    return constant(np.asarray(value).astype(dtype), dtype)


def _integers(site: Site) -> list[Array]:
    """All inputs, which have to be known integers."""
    require(site.output.dtype in ("int32", "int64"), "type", site.output.dtype, "int32 or int64")
    return [site.known(place, f"operand {place}") for place in range(len(site.inputs))]


@reads("RANK", options="RankOptions")
def _rank(site: Site) -> Expr:
    return _plain(site, np.array(len(site.tensor(0).shape)))


_DIVISIONS: dict[str, Callable[[Array, Array], Array]] = {
    "FLOOR_DIV": np.floor_divide,
    "FLOOR_MOD": np.mod,
}


@reads("FLOOR_DIV", options="FloorDivOptions", inputs=2)
@reads("FLOOR_MOD", options="FloorModOptions", inputs=2)
def _division(site: Site) -> Expr:
    site.require_broadcast()
    dividend, divisor = _integers(site)
    require(bool(divisor.all()), "divisor", 0, "another number")
    return _plain(site, _DIVISIONS[site.kind](dividend, divisor))


@reads("REDUCE_PROD", options="ReducerOptions", inputs=2)
def _product(site: Site) -> Expr:
    values, axes = _integers(site)
    keeps = bool(site.options("KeepDims"))
    rank = values.ndim
    found = [int(axis) for axis in axes.reshape(-1)]
    require(all(-rank <= axis < rank for axis in found), "axes", found, f"of {rank} dimensions")
    over = tuple({axis % rank for axis in found})
    return _plain(site, np.prod(values, axis=over, keepdims=keeps, dtype=np.int64))


@reads("RANGE", options="RangeOptions", inputs=3)
def _range(site: Site) -> Expr:
    first, end, step = (int(value.item()) for value in _integers(site) if value.size == 1)
    require(step != 0, "step", step, "another number")
    count = max(0, math.ceil((end - first) / step))
    require(count <= MOST, "elements", count, f"at most {MOST}")
    return _plain(site, first + step * np.arange(count))


@reads("FILL", options="FillOptions", inputs=2)
def _fill(site: Site) -> Expr:
    sizes = [int(size) for size in site.known(0, "shape").reshape(-1)]
    site.require_same_scale(1)
    return _repeated(site, sizes, site.known(1, "value"))


@reads("ZEROS_LIKE", options="ZerosLikeOptions")
def _zeros(site: Site) -> Expr:
    require(not site.is_quantized(), "type", site.output.dtype, "float32, as TFLite's kernel")
    return _repeated(site, list(site.tensor(0).shape), np.zeros((), site.output.dtype))


def _repeated(site: Site, sizes: list[int], value: Array) -> Expr:
    require(value.size == 1, "value", f"{value.size} numbers", "one")
    fits = all(size >= 0 for size in sizes) and math.prod(sizes) <= MOST
    require(fits, "shape", sizes, f"at most {MOST} elements")
    return _plain(site, np.full(sizes, value.item(), value.dtype))
