"""What moves values: other shapes, other places, parts and wholes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tinyai.frontends.moves import counted_from_the_end, padded, sliced, split, taken
from tinyai.frontends.tflite.operators.rows import reads
from tinyai.frontends.tflite.operators.scaled import (
    Attributes,
    activated,
    axes_of,
    ints,
    pair,
)
from tinyai.frontends.tflite.reader import Read, Site
from tinyai.ir import Array
from tinyai.ops.interpolate import Taps
from tinyai.ops.resize import nearest
from tinyai.qdq.operands import tuple_of
from tinyai.source import Constant, Expr, require
from tinyai.vocabulary import constant


def _moved(read: Read) -> Read:
    """A reader of what leaves integers as they are."""

    def checked(site: Site) -> Expr | tuple[Expr, ...]:
        place = 1 if site.kind == "SPLIT" else 0  # behind the axis
        for output in site.outputs:
            replace(site, outputs=(output,)).require_same_scale(place)
        return read(site)

    return checked


@reads("RESHAPE", options="ReshapeOptions", inputs=range(1, 3))
@reads("SQUEEZE", options="SqueezeOptions")
@reads("EXPAND_DIMS", options="ExpandDimsOptions", inputs=2)
@_moved
def _reshape(site: Site) -> Expr:
    """The result's type says to what; the numbers of elements are equal, or a builder refuses."""
    if site.kind == "RESHAPE":
        site.options("NewShapeAsNumpy")
    if site.kind == "SQUEEZE":
        site.options("SqueezeDimsAsNumpy")
    return site.reshaped(site.value(0), site.shape)


@reads("SHAPE", options="ShapeOptions")
def _shape(site: Site) -> Expr:
    site.options("OutType")  # which the result says too
    return constant(site.tensor(0).shape, site.output.dtype)


@reads("TRANSPOSE", options="TransposeOptions", inputs=2)
@_moved
def _transpose(site: Site) -> Expr:
    axes, rank = ints(site.known(1, "order of axes")), len(site.tensor(0).shape)
    axes = [axis % rank if -rank <= axis < rank else axis for axis in axes]
    require(sorted(axes) == list(range(rank)), "order of axes", axes, f"each of {rank}")
    return site.call("transpose", site.value(0), axes=tuple(axes))


# --- Borders -------------------------------------------------------------------------------------


def _widths(site: Site) -> tuple[tuple[int, int], ...]:
    given, rank = ints(site.known(1, "widths")), len(site.tensor(0).shape)
    require(len(given) == 2 * rank, "widths", len(given), 2 * rank)
    require(min(given, default=0) >= 0, "widths", given, "0 and more")
    return tuple(zip(given[::2], given[1::2], strict=True))


@reads("PAD", options="PadOptions", inputs=2)
@reads("PADV2", options="PadV2Options", inputs=3)
@_moved
def _pad(site: Site) -> Expr:
    """By the float 0, or by a constant at the input's scale."""
    data, number = site.tensor(0), 0.0
    if site.has(2):
        site.require_same_scale(2)
        given = site.known(2, "value of the border")
        require(given.size == 1, "value of the border", given.size, "one number")
        number = given.reshape(-1)[0]
    elif data.is_quantized:
        number = data.zero_point
    border = constant(number, data.dtype)
    return site.call("pad", site.value(0), border, mode="constant", widths=_widths(site))


@reads("MIRROR_PAD", options="MirrorPadOptions", inputs=2)
@_moved
def _mirror_pad(site: Site) -> Expr:
    """Reflected at the outermost elements, or behind them."""
    mode = site.options("Mode")
    require(mode in (0, 1), "mode", mode, "REFLECT, SYMMETRIC")
    return padded(site.call, site.value(0), _widths(site), ("reflect", "symmetric")[mode])


# --- Parts ---------------------------------------------------------------------------------------


@reads("SLICE", options="SliceOptions", inputs=3)
@_moved
def _slice(site: Site) -> Expr:
    data = site.tensor(0).shape
    begin, sizes = ints(site.known(1, "begin")), ints(site.known(2, "size"))
    require(len(begin) == len(sizes) == len(data), "begin and size", (begin, sizes), len(data))
    known = [
        size if size >= 0 else whole - start
        for start, size, whole in zip(begin, sizes, data, strict=True)
    ]
    require(tuple(known) == site.shape, "size", known, list(site.shape))
    return sliced(site.call, site.value(0), begin, [1] * len(data), site.shape)


@reads("STRIDED_SLICE", options="StridedSliceOptions", inputs=4)
@_moved
def _strided_slice(site: Site) -> Expr:
    """As Python slices, where bits of masks do not say otherwise."""
    data, rank = site.tensor(0).shape, len(site.tensor(0).shape)
    begin, end, strides = (
        ints(site.known(place, what)) for place, what in ((1, "begin"), (2, "end"), (3, "strides"))
    )
    fits = len(begin) == len(end) == len(strides) <= rank and 0 not in strides
    require(fits, "begin, end and strides", (begin, end, strides), f"{rank} of each, no stride 0")
    masks = [site.options(f"{name}Mask") for name in ("Begin", "End", "ShrinkAxis")]
    starts, shape = [], []
    for axis, (low, high, step) in enumerate(zip(begin, end, strides, strict=True)):
        open_low, open_high, one = (bool(mask >> axis & 1) for mask in masks)
        if one:
            low = 0 if open_low else low + data[axis] * (low < 0)
            require(0 <= low < data[axis], "begin", low, f"0 .. {data[axis] - 1}")
            low, high, step, open_low, open_high = low, low + 1, 1, False, False
        part = slice(None if open_low else low, None if open_high else high, step)
        start, stop, step = part.indices(data[axis])
        strides[axis] = step
        starts.append(start)
        shape.append(len(range(start, stop, step)))
    whole = tuple(data[len(begin) :])
    rest = rank - len(begin)
    ways = [*starts, *[0] * rest], [*strides, *[1] * rest], (*shape, *whole)
    value = sliced(site.call, site.value(0), *ways)
    left = [size for axis, size in enumerate(shape) if not masks[2] >> axis & 1]
    require((*left, *whole) == site.shape, "result", [*left, *whole], list(site.shape))
    return site.reshaped(value, site.shape)


@reads("SPLIT", options="SplitOptions", inputs=2)
@reads("SPLIT_V", options="SplitVOptions", inputs=3)
@_moved
def _split(site: Site) -> tuple[Expr, ...]:
    place = 1 if site.kind == "SPLIT" else 0
    count = site.options("NumSplits")
    require(count == len(site.outputs), "parts", count, len(site.outputs))
    value = site.value(place)
    (axis,) = axes_of(site.known(0 if place else 2, "axis"), len(value.type.shape))
    if site.has(2):
        sizes = ints(site.known(1, "sizes"))
        found = [each.shape[axis] for each in site.outputs]
        rest = sum(found) - sum(size for size in sizes if size >= 0)
        sizes = [rest if size < 0 else size for size in sizes]
        require(sizes == found, "sizes of the parts", sizes, found)
    return split(site.call, value, axis, [each.shape[axis] for each in site.outputs])


@reads("UNPACK", options="UnpackOptions")
@_moved
def _unpack(site: Site) -> tuple[Expr, ...]:
    value, rank = site.value(0), len(site.tensor(0).shape)
    (axis,) = axes_of(np.array(site.options("Axis")), rank)
    require(
        site.options("Num") == len(site.outputs), "parts", site.options("Num"), len(site.outputs)
    )
    parts = split(site.call, value, axis, [1] * len(site.outputs))
    return tuple(
        replace(site, outputs=(output,)).reshaped(part, output.shape)
        for part, output in zip(parts, site.outputs, strict=True)
    )


# --- Wholes --------------------------------------------------------------------------------------


def _all(site: Site) -> tuple[int, ...]:
    return tuple(range(len(site.inputs)))


@reads("PACK", options="PackOptions", inputs=range(1, 1000))
def _pack(site: Site) -> Expr:
    site.require_same_scale(*_all(site))
    (axis,) = axes_of(np.array(site.options("Axis")), len(site.shape))
    count = site.options("ValuesCount")
    require(count == len(site.inputs), "parts", count, len(site.inputs))
    shape = (*site.shape[:axis], 1, *site.shape[axis + 1 :])
    parts = [site.reshaped(site.value(place), shape) for place in _all(site)]
    return site.call("concatenate", tuple_of(*parts), axis=axis)


@reads("CONCATENATION", options="ConcatenationOptions", inputs=range(1, 1000))
def _concatenation(site: Site) -> Expr:
    """TFLite takes parts of int8 at the scale of the whole alone."""
    (axis,) = axes_of(np.array(site.options("Axis")), len(site.shape))
    shapes = [site.tensor(place).shape for place in _all(site)]
    rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    fits = rest == {(*site.shape[:axis], *site.shape[axis + 1 :])}
    require(fits, "shapes of the parts", shapes, f"those of {site.shape} but for the axis")
    whole = tuple_of(*(site.value(place) for place in _all(site)))
    if site.output.dtype not in ("uint8", "int16"):
        site.require_same_scale(*_all(site))
    if not site.output.is_quantized:
        return activated(site, site.call("concatenate", whole, axis=axis))
    scales, zeros = zip(*(pair(site.tensor(place)) for place in _all(site)), strict=True)
    parts = whole, tuple_of(*scales), tuple_of(*zeros), *pair(site.output)
    return activated(site, site.call("quantized_concatenate", *parts, axis=axis))


@reads("GATHER", options="GatherOptions", inputs=2)
@_moved
def _gather(site: Site) -> Expr:
    """Rows by their numbers."""
    data, batch = site.tensor(0).shape, site.options("BatchDims")
    (axis,) = axes_of(np.array(site.options("Axis")), len(data))
    require(batch == 0, "batch_dims", batch, 0)
    whole = (*data[:axis], *site.tensor(1).shape, *data[axis + 1 :])
    require(whole == site.shape, "result", list(whole), list(site.shape))
    indices = site.value(1)
    if not isinstance(indices, Constant):
        return _picked(site, site.value(0), indices, axis)
    places = indices.value
    fits = places.size > 0 and places.min() >= 0 and places.max() < data[axis]
    require(bool(fits), "indices", ints(places)[:9], f"0 .. {data[axis] - 1}")
    value = taken(site.call, site.value(0), places.reshape(-1), axis)
    return site.reshaped(value, site.shape)


def _picked(site: Site, data: Expr, indices: Expr, axis: int) -> Expr:
    own = counted_from_the_end(indices, int(data.type.shape[axis] or 0))
    mode = "fast" if own is None else "raise"
    return site.call("take", data, own or indices, axis=axis, batch_dims=0, mode=mode)


@reads("EMBEDDING_LOOKUP", inputs=2)
def _embedding_lookup(site: Site) -> Expr:
    """Rows of the second input by the numbers in the first."""
    replace(site, inputs=site.inputs[::-1]).require_same_scale()
    return _picked(site, site.value(1), site.value(0), 0)


@reads("TILE", options="TileOptions", inputs=2)
@_moved
def _tile(site: Site) -> Expr:
    times, data = ints(site.known(1, "repetitions")), site.tensor(0).shape
    whole = [size * count for size, count in zip(data, times, strict=False)]
    require(
        len(times) == len(data) and tuple(whole) == site.shape, "repetitions", times, site.shape
    )
    return site.call("tile", site.value(0))


@reads("REVERSE_V2", options="ReverseV2Options", inputs=2)
@_moved
def _reverse(site: Site) -> Expr:
    value = site.value(0)
    for axis in axes_of(site.known(1, "axes"), len(site.shape)):
        value = site.call("reverse", value, axis=axis)
    return value


@reads("BROADCAST_TO", options="BroadcastToOptions", inputs=2)
@_moved
def _broadcast_to(site: Site) -> Expr:
    shape = ints(site.known(1, "shape"))
    require(tuple(shape) == site.shape, "shape", shape, list(site.shape))
    return site.call("broadcast_to", site.value(0))


@reads("DEPTH_TO_SPACE", options="DepthToSpaceOptions")
@reads("SPACE_TO_DEPTH", options="SpaceToDepthOptions")
@_moved
def _depth_to_space(site: Site) -> Expr:
    attrs = {"block_size": site.options("BlockSize"), "layout": "NHWC"}
    require(attrs["block_size"] > 0 and len(site.shape) == 4, "block size", attrs, "1 and more")
    if site.kind == "DEPTH_TO_SPACE":
        attrs["mode"] = "DCR"
    return site.call(site.kind.lower(), site.value(0), **attrs)


def _blocks(site: Site, rank: int) -> tuple[list[int], Array]:
    """The sizes of blocks along the dimensions behind the first, and what is added or cut off
    around each."""
    sizes, around = ints(site.known(1, "block size")), site.known(2, "widths")
    fits = 0 < len(sizes) < rank and min(sizes) > 0 and around.shape == (len(sizes), 2)
    require(fits and around.min() >= 0, "blocks", (sizes, around.tolist()), "as many as dimensions")
    return sizes, around


@reads("SPACE_TO_BATCH_ND", options="SpaceToBatchNDOptions", inputs=3)
@_moved
def _space_to_batch(site: Site) -> Expr:
    """Images with a border, of which each takes the elements at one place of all blocks."""
    data = site.tensor(0)
    sizes, around = _blocks(site, len(data.shape))
    rest = len(data.shape) - 1 - len(sizes)
    widths = ((0, 0), *map(tuple, around.tolist()), *[(0, 0)] * rest)
    whole = tuple(size + sum(width) for size, width in zip(data.shape, widths, strict=True))
    value = padded(site.call, site.value(0), widths, "constant", data.zero_point)
    inner = whole[1 : len(sizes) + 1]
    fits = all(size % block == 0 for size, block in zip(inner, sizes, strict=True))
    require(fits, "size of images", inner, f"multiples of {sizes}")
    pairs = [n for size, block in zip(inner, sizes, strict=True) for n in (size // block, block)]
    value = site.reshaped(value, (whole[0], *pairs, *whole[len(sizes) + 1 :]))
    places = range(2, 2 * len(sizes) + 1, 2)
    order = (
        *places,
        0,
        *(place - 1 for place in places),
        *range(2 * len(sizes) + 1, 2 * len(sizes) + 1 + rest),
    )
    return site.reshaped(site.transposed(value, order), site.shape)


@reads("BATCH_TO_SPACE_ND", options="BatchToSpaceNDOptions", inputs=3)
@_moved
def _batch_to_space(site: Site) -> Expr:
    """The inverse: what was put apart goes together, and borders are cut off."""
    shape = site.tensor(0).shape
    sizes, around = _blocks(site, len(shape))
    blocks = math.prod(sizes)
    require(shape[0] % blocks == 0, "images", shape[0], f"a multiple of {blocks}")
    count, rest = len(sizes), shape[len(sizes) + 1 :]
    value = site.reshaped(site.value(0), (*sizes, shape[0] // blocks, *shape[1:]))
    pairs = (axis for place in range(count) for axis in (count + 1 + place, place))
    value = site.transposed(
        value, (count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(rest)))
    )
    inner = [size * block for size, block in zip(shape[1:], sizes, strict=False)]
    value = site.reshaped(value, (shape[0] // blocks, *inner, *rest))
    begin = (0, *around[:, 0].tolist(), *[0] * len(rest))
    left = tuple(size - int(cut.sum()) for size, cut in zip(inner, around, strict=True))
    found = (shape[0] // blocks, *left, *rest)
    require(found == site.shape, "result", found, site.shape)
    return sliced(site.call, value, begin, (1,) * len(found), found)


# --- Images of another size ----------------------------------------------------------------------


def _resized(site: Site) -> tuple[tuple[int, int], bool, bool]:
    """The size of the input, and whether corners are aligned or pixels have centres."""
    data, size = site.tensor(0).shape, tuple(ints(site.known(1, "size")))
    require(len(data) == 4 and size == site.shape[1:3], "size", size, site.shape[1:3])
    corners, centres = site.options("AlignCorners"), site.options("HalfPixelCenters")
    require(not (corners and centres), "corners and centres", "both", "one of them")
    return (data[1], data[2]), corners, centres


def _nearest_places(size: int, count: int, corners: bool, centres: bool) -> tuple[int, ...]:
    """In float32, as TFLite's kernel has it."""
    scale = np.float32(size) / np.float32(count)
    if corners and count > 1:
        scale = np.float32(size - 1) / np.float32(count - 1)
    at = (np.arange(count, dtype=np.float32) + np.float32(0.5 * centres)) * scale
    places = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
    return tuple(int(place) for place in np.clip(places, 0, size - 1))


@reads("RESIZE_NEAREST_NEIGHBOR", options="ResizeNearestNeighborOptions", inputs=2)
@_moved
def _resize_nearest(site: Site) -> Expr:
    sizes, corners, centres = _resized(site)
    both = [
        _nearest_places(size, count, corners, centres)
        for size, count in zip(sizes, site.shape[1:3], strict=True)
    ]
    mode = "align_corners" if corners else "tf_half_pixel_for_nn" if centres else "asymmetric"
    rounding = "round" if corners else "floor"
    ones = 1 in site.shape[1:3] and corners
    if not ones and both == [
        nearest(size, count, mode, rounding)
        for size, count in zip(sizes, site.shape[1:3], strict=True)
    ]:
        attrs: Attributes = {"coordinates": mode, "nearest_mode": rounding, "layout": "NHWC"}
        return site.call("resize2d", site.value(0), method="nearest_neighbor", **attrs)
    return rows_and_columns(site, site.value(0), *map(np.array, both))


def rows_and_columns(site: Site, image: Expr, rows: Array, columns: Array) -> Expr:
    """Rows and columns of an image by their numbers."""
    batch, height, width, channels = (dim or 0 for dim in image.type.shape)
    image = _lines(site, image, (batch, height, width * channels), rows)
    image = _lines(site, image, (batch * len(rows), width, channels), columns)
    return site.reshaped(image, (batch, len(rows), len(columns), channels))


def _lines(site: Site, value: Expr, shape: tuple[int, int, int], places: Array) -> Expr:
    """In another shape the lines of these numbers along the middle."""
    before, count, inner = shape
    return taken(site.call, site.reshaped(value, (before, count, 1, inner)), places, 1)


@reads("RESIZE_BILINEAR", options="ResizeBilinearOptions", inputs=2)
def _resize_bilinear(site: Site) -> Expr:
    sizes, corners, centres = _resized(site)
    require(site.output.dtype in ("int8", "float32"), "type", site.output.dtype, "int8, float32")
    taps_of = _taps if site.is_quantized() else _float_taps
    if site.is_quantized():
        site.require_same_scale()
    rows, columns = (
        taps_of(size, count, corners, centres)
        for size, count in zip(sizes, site.shape[1:3], strict=True)
    )
    return site.call("interpolate2d", site.value(0), rows=rows, columns=columns, layout="NHWC")


def _float_taps(size: int, count: int, corners: bool, centres: bool) -> Taps:
    """With weights of float32, as TFLite's kernel has it."""
    scale = np.float32(size) / np.float32(count)
    if corners and count > 1:
        scale = np.float32(size - 1) / np.float32(count - 1)
    shift = np.float32(0.5 * centres)
    taps = []
    for at in (np.arange(count, dtype=np.float32) + shift) * scale - shift:
        before, after = max(math.floor(at), 0), min(math.ceil(at), size - 1)
        rest = float(at) - before if before < after else 0.0
        taps.append((min(before, size - 1), after, 1.0 - rest, rest))
    return tuple(taps)


def _taps(size: int, count: int, corners: bool, centres: bool) -> Taps:
    """With weights of 10 bits, as TFLite's kernel has it."""
    scale = ((size << 10) + count // 2) // count
    if corners and count > 1:
        scale = (((size - 1) << 10) + (count - 1) // 2) // (count - 1)
    places = [place * scale + centres * ((scale >> 1) - (1 << 9)) for place in range(count)]
    within = places[-1] >> 10 < size
    require(within, "size", f"{count} of {size}, where TFLite reads beyond the image", "another")
    taps = []
    for place in places:
        before, after = max(place >> 10, 0), min(-(-place >> 10), size - 1)
        rest = place - (before << 10) if before < after else 0
        taps.append((before, max(after, 0), 1024 - rest, rest))
    return tuple(taps)
