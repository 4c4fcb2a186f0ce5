"""What moves values: other shapes, other places, parts and wholes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tinyai.frontends.executorch.operators.rows import rank_of, reads
from tinyai.frontends.executorch.reader import Site
from tinyai.frontends.moves import taken
from tinyai.ir import Array
from tinyai.source import Expr, SourceType, Tuple, require
from tinyai.vocabulary import constant

_COPIES = (
    *("clone", "alias", "alias_copy", "detach", "detach_copy", "lift_fresh_copy", "contiguous"),
    *("to", "_to_copy"),
)
_RESHAPES = (
    *("view", "view_copy", "_unsafe_view", "reshape", "view_as", "flatten", "unflatten"),
    *("unsqueeze", "unsqueeze_copy", "squeeze", "squeeze_copy", "_reshape_alias_copy"),
)


@reads(*_COPIES)
@reads("_to_dim_order_copy", "_clone_dim_order", namespace="dim_order_ops.")
def _same(site: Site) -> Expr:
    """Other memory, another order of dimensions in memory: the same values."""
    value = site.value("self")
    require(value.type == site.type, "type", value.type, f"{site.type}, as the result")
    return value


@reads("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def _dropout(site: Site) -> Expr:
    """In training too: a model that is quantized then has none in the end."""
    return site.value(next(iter(site.args)))  # which what works in place calls otherwise


@reads(*_RESHAPES)
def _reshape(site: Site) -> Expr:
    value = site.value("self")
    return value if value.type == site.type else site.call("reshape", value)


@reads(
    *("permute", "permute_copy", "transpose", "transpose_copy", "t", "t_copy", "swapaxes"),
    *("swapdims", "movedim", "moveaxis", "numpy_T", "mT"),
)
def _transpose(site: Site) -> Expr:
    """Dimensions in another order: torch tells which, of sizes that differ."""
    value, target = site.value("self"), site.node.target
    assert callable(target)
    told = torch.empty(tuple(range(1, 1 + len(value.type.shape))), device="meta")
    turned = target(told, *site.node.args[1:], **site.node.kwargs)
    return site.call("transpose", value, axes=tuple(size - 1 for size in turned.shape))


def _sliced(site: Site, dim: int, start: int, step: int, of: SourceType) -> Expr:
    begin, strides = [0] * len(of.shape), [1] * len(of.shape)
    begin[dim], strides[dim] = start, step
    attrs = {"begin": tuple(begin), "strides": tuple(strides), "axes": None, "slice_mode": "end"}
    return site.call("strided_slice", site.value("self"), of=of, **attrs)


def _dim(site: Site) -> tuple[int, int]:
    """The dimension that an operator works along, and its size."""
    shape = site.value("self").type.shape
    dim = int(site.args["dim"]) % len(shape)
    return dim, int(shape[dim] or 0)


def _start(start: Any, size: int) -> int:
    require(isinstance(start, int), "start", "computed at run time", "a known number")
    assert isinstance(start, int)
    return max(start + size, 0) if start < 0 else min(start, size)


@reads("slice", "slice_copy")
def _slice(site: Site) -> Expr:
    dim, size = _dim(site)
    step = site.args["step"]
    require(isinstance(step, int), "step", "computed at run time", "a known number")
    return _sliced(site, dim, _start(site.args["start"] or 0, size), step, site.type)


@reads("narrow")
def _narrow(site: Site) -> Expr:
    dim, size = _dim(site)
    return _sliced(site, dim, _start(site.args["start"], size), 1, site.type)


@reads("select", "select_copy")
def _select(site: Site) -> Expr:
    dim, size = _dim(site)
    of = site.value("self").type
    one = replace(of, shape=tuple(1 if d == dim else n for d, n in enumerate(of.shape)))
    return site.call("reshape", _sliced(site, dim, _start(site.args["index"], size), 1, one))


@reads(
    *("split", "split_copy", "split_with_sizes", "split_with_sizes_copy", "chunk"),
    *("unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "tensor_split"),
)
def _split(site: Site) -> Expr:
    """Its parts one by one: ``getitem`` takes them."""
    dim, _ = _dim(site)
    parts, start = [], 0
    for part in site.types:
        parts.append(_sliced(site, dim, start, 1, part))
        start += int(part.shape[dim] or 0)
    return _tuple_of(parts)


@reads("unbind", "unbind_copy")
def _unbind(site: Site) -> Expr:
    """As a split, without the dimension."""
    dim, _ = _dim(site)
    shape = list(site.value("self").type.shape)
    shape[dim] = 1
    parts = []
    for place, of in enumerate(site.types):
        one = _sliced(site, dim, place, 1, replace(of, shape=tuple(shape)))
        parts.append(site.call("reshape", one, of=of))
    return _tuple_of(parts)


def _tuple_of(parts: Sequence[Expr]) -> Tuple:
    return Tuple(tuple(each.type for each in parts), load=lambda: tuple(parts))


@reads("getitem", namespace="")
def _getitem(site: Site) -> Expr:
    whole, index = site.reading(site.node.args[0]), int(site.node.args[1])
    parts: tuple[Expr, ...] = whole.fields if isinstance(whole, Tuple) else ()
    require(index < len(parts), "part of a result", index, "of one that is read")
    return parts[index]


@reads("cat", "concat", "concatenate")
def _cat(site: Site) -> Expr:
    whole = _tuple_of(site.values("tensors"))
    return site.call("concatenate", whole, axis=int(site.args["dim"]) % rank_of(site))


@reads("stack")
def _stack(site: Site) -> Expr:
    """Along a dimension of one element that each part gets."""
    axis = int(site.args["dim"]) % rank_of(site)
    shape = tuple(1 if dim == axis else size for dim, size in enumerate(site.shape))
    of = replace(site.type, shape=shape)
    parts = [site.call("reshape", each, of=of) for each in site.values("tensors")]
    return site.call("concatenate", _tuple_of(parts), axis=axis)


@reads("constant_pad_nd", "pad")
def _pad(site: Site) -> Expr:
    given: Sequence[int] = site.args["pad"]
    mode = site.args.get("mode", "constant")
    require(mode == "constant", "mode of pad", mode, "constant")
    require(min(given, default=0) >= 0, "widths of pad", given, "none below 0")
    pairs = list(zip(given[::2], given[1::2], strict=True))[::-1]
    widths = (*((0, 0),) * (rank_of(site) - len(pairs)), *pairs)
    value = constant(float(site.args.get("value") or 0), "float32")
    return site.call("pad", site.value("self"), value, mode="constant", widths=widths)


@reads("expand", "expand_copy")
def _expand(site: Site) -> Expr:
    value = site.value("self")
    return value if value.type == site.type else site.call("broadcast_to", value)


@reads("repeat", "tile")
def _repeat(site: Site) -> Expr:
    return site.call("tile", site.value("self"))


@reads("flip")
def _flip(site: Site) -> Expr:
    value = site.value("self")
    for dim in site.args["dims"]:
        value = site.call("reverse", value, axis=int(dim) % rank_of(site))
    return value


@reads("upsample_nearest2d", whole=[torch.ops.aten.upsample_nearest2d.vec])
def _nearest(site: Site) -> Expr:
    value = site.reading(site.args.get("self", site.args.get("input")))
    require(rank_of(site) == 4, "dimensions of upsampling", rank_of(site), 4)
    sizes = [int(dim or 0) for dim in value.type.shape[2:]]
    whole = all(count % size == 0 for size, count in zip(sizes, site.shape[2:], strict=True))
    require(whole, "size of upsampling", site.shape[2:], f"multiples of {sizes}")
    attrs: dict[str, Any] = {"coordinates": "asymmetric", "nearest_mode": "floor"}
    return site.call("resize2d", value, layout="NCHW", method="nearest_neighbor", **attrs)


@reads("upsample_bilinear2d", whole=[torch.ops.aten.upsample_bilinear2d.vec], as_one="copy")
def _bilinear(site: Site) -> Expr:
    """Of four neighbours each, by their weights: a mean of what is there, in float arithmetic."""
    value = site.reading(site.args.get("self", site.args.get("input")))
    rows, columns = (_neighbours(site, value, axis) for axis in (2, 3))
    total: Expr | None = None
    for row, from_row in rows:
        for column, from_column in columns:
            pixels = taken(site.call, taken(site.call, value, row, 2), column, 3)
            weights = constant(np.outer(from_row, from_column), "float32")
            term = site.call("multiply", pixels, weights)
            total = term if total is None else site.call("add", total, term)
    assert total is not None
    return total


def _neighbours(site: Site, value: Expr, axis: int) -> list[tuple[Array, Array]]:
    """For each row or column of the result those before and after it, and their weights: torch
    tells, of images each of which has ones in one row or column."""
    target, (height, width) = site.node.target, value.type.shape[2:]
    assert callable(target)
    ones = torch.eye(size := value.type.shape[axis] or 0)
    ones = ones[:, :, None] if axis == 2 else ones[:, None]
    images = ones.expand(size, height, width).unsqueeze(0)
    shown = target(images, *site.node.args[1:], **site.node.kwargs)
    weights = shown[0].select(4 - axis, 0).numpy()
    before = np.minimum(np.argmax(weights != 0, 0), max(size - 2, 0))
    places = np.arange(weights.shape[1])
    return [(at, weights[at, places]) for at in (before, before + 1)[:size]]


@reads("pixel_shuffle", whole=[torch.ops.aten.pixel_shuffle.default])
def _pixel_shuffle(site: Site) -> Expr:
    require(rank_of(site) == 4, "dimensions of pixel_shuffle", rank_of(site), 4)
    block = int(site.args["upscale_factor"])
    return site.call(
        "depth_to_space", site.value("self"), block_size=block, layout="NCHW", mode="CRD"
    )


@reads("pixel_unshuffle")
def _pixel_unshuffle(site: Site) -> Expr:
    require(rank_of(site) == 4, "dimensions of pixel_unshuffle", rank_of(site), 4)
    batch, _, rows, columns = site.shape
    channels, block = site.value("self").type.shape[1], int(site.args["downscale_factor"])
    shape = (batch, channels, rows, block, columns, block)
    return _turned_in_parts(site, shape, (0, 1, 3, 5, 2, 4))


@reads("channel_shuffle")
def _channel_shuffle(site: Site) -> Expr:
    batch, channels, *image = site.shape
    groups = int(site.args["groups"])
    shape = (batch, groups, channels // groups, *image)
    return _turned_in_parts(site, shape, (0, 2, 1, *range(3, len(shape))))


def _turned_in_parts(site: Site, shape: tuple[int | None, ...], axes: tuple[int, ...]) -> Expr:
    """Of another shape, its dimensions in another order, and of the result's shape."""
    parts = site.call("reshape", site.value("self"), of=replace(site.type, shape=shape))
    of = replace(site.type, shape=tuple(shape[axis] for axis in axes))
    return site.call("reshape", site.call("transpose", parts, of=of, axes=axes))
