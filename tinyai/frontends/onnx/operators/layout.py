"""What moves values: other shapes, other places, parts and wholes, images of another size."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tinyai.frontends.moves import counted_from_the_end, padded, sliced, split, taken
from tinyai.frontends.onnx import resizing
from tinyai.frontends.onnx.operators.rows import reads
from tinyai.frontends.onnx.reader import Site, fixed_sizes
from tinyai.ir import Array
from tinyai.qdq.operands import is_call, tuple_of
from tinyai.source import Expr, children, require
from tinyai.vocabulary import constant


@reads("Identity")
def _same(site: Site) -> Expr:
    return site.expr(0)


@reads("Dropout")
def _dropout(site: Site) -> Expr:
    """Of inference: nothing. Its share and its seed are of training."""
    site.attr("ratio")
    site.attr("seed")
    site.operand(1)
    training = bool(site.value(2, "training_mode")) if site.has(2) else False
    require(not training, "training_mode", training, False)
    return site.expr(0)


@reads("Cast")
def _cast(site: Site) -> Expr:
    site.attr("to")
    site.attr("saturate")  # of floats of 8 bits
    value, dtype = site.expr(0), site.type.dtype
    if value.type.dtype == dtype:
        return value
    return site.call("cast", value, of=replace(value.type, dtype=dtype), dtype=dtype)


@reads("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(site: Site) -> Expr:
    """To the shape that ONNX's own inference finds by the operands and attributes."""
    for name in ("axes", "allowzero"):
        site.attr(name)
    axis, rank = int(site.attr("axis", 0)), len(site.expr(0).type.shape)
    require(-rank <= axis <= rank, "axis", axis, f"one of {rank} dimensions")
    if site.has(1):
        site.value(1, "shape" if site.node.op_type == "Reshape" else "axes")
    return site.call("reshape", site.expr(0), of=replace(site.expr(0).type, shape=site.shape))


@reads("Transpose")
def _transpose(site: Site) -> Expr:
    value = site.expr(0)
    rank = len(value.type.shape)
    axes = tuple(int(axis) for axis in site.attr("perm") or reversed(range(rank)))
    require(sorted(axes) == list(range(rank)), "perm", axes, f"each of {rank} dimensions")
    return site.transposed(value, axes)


# --- Parts ---------------------------------------------------------------------------------------


def _axis(site: Site, rank: int) -> int:
    axis = int(site.attr("axis"))
    require(-rank <= axis < rank, "axis", axis, f"one of {rank} dimensions")
    return axis % rank


@reads("Slice")
def _slice(site: Site) -> Expr:
    value = site.expr(0)
    shape = list(fixed_sizes(value))
    rank = len(shape)
    starts, ends = site.numbers(1, "starts"), site.numbers(2, "ends")
    axes = site.numbers(3, "axes") if site.has(3) else list(range(len(starts)))
    steps = site.numbers(4, "steps") if site.has(4) else [1] * len(starts)
    fits = all(-rank <= axis < rank for axis in axes) and 0 not in steps
    fits = fits and len({axis % max(rank, 1) for axis in axes}) == len(axes)
    require(fits, "axes and steps", (axes, steps), f"of {rank} dimensions, by no 0")
    begin, strides = [0] * rank, [1] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = shape[axis]
        begin[axis], shape[axis] = _extent(start, end, step, size)
        strides[axis] = step
    return sliced(site.call, value, begin, strides, shape)


def _extent(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """Where a slice begins, and how many elements it has, as ONNX bounds its ends."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, last = (each + size if each < 0 else each for each in (start, end))
    first = min(max(first, 0), high)
    last = min(max(last, low), size)
    return first, max(-((first - last) // step), 0)


@reads("Split")
def _split(site: Site) -> Expr:
    value, count = site.expr(0), len(site.node.output)
    shape = fixed_sizes(value)
    axis = _axis(site, len(shape))
    size, asked = shape[axis], site.attr("num_outputs")
    require(asked in (None, count), "num_outputs", asked, f"{count}, as there are")
    parts = [int(part) for part in site.attr("split") or ()]
    if site.has(1):
        parts = site.numbers(1, "split")
    elif not parts:
        part = -(-size // count)
        parts = [part] * (count - 1) + [size - part * (count - 1)]
        even = site.facts.opset >= 18 or len(set(parts)) == 1
        require(even, "size of a split", size, f"a multiple of {count}")
    fits = len(parts) == count and min(parts) >= 0 and sum(parts) == size
    require(fits, "sizes of a split", parts, f"{count} that are {size} together")
    some = iter(split(site.call, value, axis, [part for part in parts if part]))
    nothing = np.zeros((*shape[:axis], 0, *shape[axis + 1 :]), value.type.dtype)
    return tuple_of(*(next(some) if part else constant(nothing) for part in parts))


@reads("Concat")
def _concat(site: Site) -> Expr:
    parts = [each for each in site.exprs() if 0 not in each.type.shape] or site.exprs()
    sizes = [fixed_sizes(part) for part in parts]
    axis = _axis(site, len(sizes[0]))
    rest = {(*each[:axis], *each[axis + 1 :]) for each in sizes}
    require(len(rest) == 1, "shapes of the parts", sizes, "the same but for the axis")
    shape = (*sizes[0][:axis], sum(each[axis] for each in sizes), *sizes[0][axis + 1 :])
    return site.call(
        "concatenate", tuple_of(*parts), of=replace(parts[0].type, shape=shape), axis=axis
    )


@reads("Gather")
def _gather(site: Site) -> Expr:
    """By indices that may count from the end."""
    value = site.expr(0)
    return _picked(site, value, _axis(site, len(fixed_sizes(value))))


def _picked(site: Site, value: Expr, axis: int) -> Expr:
    """By the indices of the second operand, constant or not."""
    size, indices = fixed_sizes(value)[axis], site.known(1)
    if indices is None:
        return _picked_at(site, value, axis, site.expr(1))
    indices = indices.astype(np.int64)
    _require_inside(indices, size)
    return taken(site.call, value, np.where(indices < 0, indices + size, indices), axis)


def _picked_at(site: Site, value: Expr, axis: int, indices: Expr) -> Expr:
    """By indices of run time."""
    own = counted_from_the_end(indices, fixed_sizes(value)[axis]) or indices
    return site.call("take", value, own, axis=axis, batch_dims=0, mode="raise")


def _last_one(site: Site, value: Expr, place: int) -> Expr:
    """The element of this place of the last dimension: of the part that holds it."""
    *shape, count = fixed_sizes(value)
    if is_call(value, "concatenate") and value.attrs["axis"] == len(shape):
        for part in children(value.args[0]):
            if place < (size := fixed_sizes(part)[-1]):
                return _last_one(site, part, place)
            place -= size
    if count > 1:
        begin, steps = [0] * len(shape) + [place], [1] * (len(shape) + 1)
        value = sliced(site.call, value, begin, steps, (*shape, 1))
    return site.reshaped(value, shape)


def _require_inside(indices: Array, size: int) -> None:
    inside = bool(((indices >= -size) & (indices < size)).all())
    require(inside, "indices", indices.reshape(-1)[:8], f"within {size} places")


@reads("GatherElements")
def _gather_elements(site: Site) -> Expr:
    """By constant indices, or along the one dimension that has several places."""
    value, indices = site.expr(0), site.known(1)
    sizes = fixed_sizes(value)
    axis = _axis(site, len(sizes))
    rest = [size for dim, size in enumerate(sizes) if dim != axis]
    if indices is None or set(rest) <= {1}:
        allowed = f"1 but for the axis {axis}, or constant indices"
        require(set(rest) <= {1}, "shape of the data", value.type, allowed)
        return _picked(site, site.reshaped(value, (sizes[axis],)), 0)
    shape, size = indices.shape, sizes[axis]
    fits = len(shape) == len(sizes) and indices.size > 0
    fits = fits and all(n <= sizes[dim] for dim, n in enumerate(shape) if dim != axis)
    require(fits, "shape of the indices", shape, f"within {sizes} but for the axis {axis}")
    _require_inside(indices, size)
    # The first dimensions along which every place is the same are as one.
    is_repeated = [bool((indices == indices.take([0], dim)).all()) for dim in range(axis)]
    same = 0
    while same < axis and shape[same] == sizes[same] and is_repeated[same]:
        same += 1
    at: list[Any] = [*np.indices(shape[same:], sparse=True)]
    at[axis - same] = indices[(0,) * same] % size
    numbers = np.ravel_multi_index(tuple(np.broadcast_arrays(*at)), sizes[same:])
    flat = site.reshaped(value, (math.prod(sizes[:same]), math.prod(sizes[same:])))
    return site.reshaped(taken(site.call, flat, numbers.reshape(-1), 1), shape)


@reads("GatherND")
def _gather_nd(site: Site) -> Expr:
    """By places of the first dimensions together, constant or along the one that has several."""
    value, places = site.expr(0), site.known(1)
    batches = site.attr("batch_dims", 0)
    require(batches == 0, "batch_dims", batches, 0)
    sizes, count = fixed_sizes(value), fixed_sizes(site.expr(1))[-1]
    first, rest = sizes[:count], sizes[count:]
    if places is None:
        wide = [dim for dim, size in enumerate(first) if size > 1] or [0]
        allowed = f"1 but for one of the first {count}, or constant indices"
        require(len(wide) == 1, "shape of the data", value.type, allowed)
        value = site.reshaped(value, (first[wide[0]], *rest))
        return _picked_at(site, value, 0, _last_one(site, site.expr(1), wide[0]))
    places = places.astype(np.int64)
    inside = bool(np.all((places >= np.negative(first)) & (places < first)))
    require(inside, "indices", places.reshape(-1, count)[:4], f"within {first}")
    numbers = np.ravel_multi_index(tuple(np.moveaxis(places % first, -1, 0)), first)
    return taken(site.call, site.reshaped(value, (math.prod(first), *rest)), numbers, 0)


@reads("CumSum")
def _cumsum(site: Site) -> Expr:
    value = site.expr(0)
    axis, rank = int(site.value(1, "axis").reshape(())), len(value.type.shape)
    require(-rank <= axis < rank, "axis", axis, f"one of {rank} dimensions")
    attrs = {name: bool(site.attr(name)) for name in ("exclusive", "reverse")}
    return site.call("cumulative_sum", value, of=value.type, axis=axis % rank, **attrs)


# --- More of the same ----------------------------------------------------------------------------


@reads("Pad")
def _pad(site: Site) -> Expr:
    value, mode = site.expr(0), str(site.attr("mode"))
    modes = ("constant", "edge", "reflect", "wrap")
    require(mode in modes, "mode", mode, ", ".join(modes))
    rank = len(fixed_sizes(value))
    pads = [int(pad) for pad in site.attr("pads") or ()] or site.numbers(1, "pads")
    axes = site.numbers(3, "axes") if site.has(3) else list(range(rank))
    fits = len(pads) == 2 * len(axes) and all(-rank <= axis < rank for axis in axes)
    require(fits, "pads and axes", (pads, axes), f"two for each of {rank} dimensions")
    widths = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        widths[axis] = pads[place], pads[place + len(axes)]
    number: Any = 0
    if mode != "constant":
        site.operand(2)
    elif site.has(2):
        number = site.value(2, "padding").reshape(())
    else:
        number = site.attr("value", 0)
    return padded(site.call, value, widths, mode, number)


@reads("Expand")
def _expand(site: Site) -> Expr:
    value = site.expr(0)
    site.value(1, "shape")
    of = replace(value.type, shape=site.shape)
    return value if of == value.type else site.call("broadcast_to", value, of=of)


@reads("Tile")
def _tile(site: Site) -> Expr:
    site.value(1, "repeats")
    return site.call("tile", site.expr(0), of=replace(site.expr(0).type, shape=site.shape))


# --- Images --------------------------------------------------------------------------------------


@reads("DepthToSpace")
def _depth_to_space(site: Site) -> Expr:
    block, mode = int(site.attr("blocksize")), str(site.attr("mode", "DCR"))
    of, attrs = replace(site.expr(0).type, shape=site.shape), {"block_size": block, "mode": mode}
    return site.call("depth_to_space", site.expr(0), of=of, layout="NCHW", **attrs)


@reads("SpaceToDepth")
def _space_to_depth(site: Site) -> Expr:
    block, of = int(site.attr("blocksize")), replace(site.expr(0).type, shape=site.shape)
    mode = site.attr("mode", "DCR")
    require(mode == "DCR", "mode", mode, "DCR")
    return site.call("space_to_depth", site.expr(0), of=of, block_size=block, layout="NCHW")


@reads("Resize")
def _resize(site: Site) -> Expr:
    value, plan = site.expr(0), resizing.plan_of(site)
    for name in ("coordinate_transformation_mode", "nearest_mode"):
        site.attr(name)
    for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value"):
        site.attr(name)  # of other modes
    if site.facts.opset >= 11:
        site.operand(1)  # of a mode that is refused
    if plan.mode == "linear":
        image = len(plan.sizes) == 4 and plan.sizes[:2] == plan.input_sizes[:2]
        require(
            image, "linear resizing", plan.sizes, "of height and width alone, in four dimensions"
        )
        of = replace(value.type, shape=plan.sizes)
        taps = {"rows": plan.taps(2), "columns": plan.taps(3)}
        return site.call("interpolate2d", value, of=of, layout="NCHW", **taps)
    require(plan.mode == "nearest", "mode", plan.mode, "nearest, linear")
    if plan.is_read_right and len(plan.sizes) == 4:
        of = replace(value.type, shape=plan.sizes)
        old = site.facts.opset < 11
        return site.call(
            "resize2d",
            value,
            of=of,
            layout="NCHW",
            method="nearest_neighbor",
            coordinates="asymmetric" if old else str(site.attr("coordinate_transformation_mode")),
            nearest_mode="" if old else str(site.attr("nearest_mode")),
        )
    for axis, places in enumerate(plan.indices):
        if places != tuple(range(plan.input_sizes[axis])):
            value = taken(site.call, value, np.array(places), axis)
    return value
