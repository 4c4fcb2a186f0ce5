"""What the vocabulary's float operators mean, in float64 and in plain numpy.

Nothing of ``tinyai/ops`` is used, so that a fault of a reference shows. ``MEANING`` has a function
for each operator: of its attributes and of its operands' values. Among the attributes are the
result's ``shape``, and ``parts``, those of all tensors of the result, which are a call's types.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyai.ir import Array
from tinyai.source import Call, Constant, Expr, Field, Tuple, children, ordered

Attributes = Mapping[str, Any]
Meaning = Callable[..., Any]


# --- Layouts -------------------------------------------------------------------------------------


def to_order(value: Array, order: str, wanted: str) -> Array:
    return value.transpose([order.index(axis) for axis in wanted])


def _as_images(value: Array, layout: str) -> Array:
    """As NCHW; without a height it is 1."""
    flat = "H" not in layout
    value = to_order(value, layout, "NCW" if flat else "NCHW")
    return value[:, :, None] if flat else value


def _from_images(value: Array, layout: str) -> Array:
    flat = "H" not in layout
    return to_order(value[:, :, 0] if flat else value, "NCW" if flat else "NCHW", layout)


def _two(numbers: Sequence[int], fill: int) -> tuple[int, ...]:
    """Numbers of rows and columns; (before, after) of one dimension become four."""
    numbers = tuple(int(n) for n in numbers)
    half = len(numbers) // 2
    if len(numbers) in (1, 2) and fill == 1 and len(numbers) == 1:
        return (1, *numbers)
    if fill == 0 and len(numbers) == 2:
        return (0, numbers[0], 0, numbers[half])
    return numbers


# --- Convolutions and products -------------------------------------------------------------------


def _windows(image: Array, kernel: Sequence[int], attrs: Attributes) -> Array:
    """[n, c, rows, columns, kernel rows, kernel columns] of an image that has its border."""
    strides, dilation = _two(attrs["strides"], 1), _two(attrs["dilation"], 1)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(image, extent, axis=(2, 3))
    views = views[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]
    return np.asarray(views)


def _weights(weight: Array, order: str, wanted: str) -> Array:
    if "H" not in order:
        weight, order = weight[..., None], order + "H"
    return to_order(weight, order, wanted)


def _conv(attrs: Attributes, data: Array, weight: Array) -> Array:
    images = _as_images(data, attrs["layout"])
    kernels, groups = _weights(weight, attrs["weight_layout"], "OIHW"), int(attrs["groups"])
    if groups == images.shape[1] > 1 and kernels.shape[0] == groups:
        # Depthwise, of which I may say how many results a channel has.
        kernels = kernels.reshape(-1, 1, *kernels.shape[2:])
    top, left, bottom, right = _two(attrs["padding"], 0)
    images = np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, right)))
    views = _windows(images, kernels.shape[2:], attrs)
    n, channels, rows, columns = views.shape[:4]
    views = views.reshape(n, groups, channels // groups, *views.shape[2:])
    kernels = kernels.reshape(groups, -1, *kernels.shape[1:])
    result = np.einsum("ngchwij,gocij->ngohw", views, kernels)
    return _from_images(result.reshape(n, -1, rows, columns), attrs["layout"])


def _in_volumes(attrs: Attributes, data: Array, kernel: Sequence[int], border: float) -> Array:
    """[n, c, depth, height, width, *kernel] of [n, c, depth, height, width]."""
    before, after = np.reshape(attrs["padding"], (2, 3))
    edges = ((0, 0), (0, 0), *zip(before, after, strict=True))
    data = np.pad(data, edges, constant_values=border)
    extent = (np.array(kernel) - 1) * attrs["dilation"] + 1
    views = np.lib.stride_tricks.sliding_window_view(data, tuple(extent), axis=(2, 3, 4))
    places, taps = (
        tuple(slice(None, None, apart) for apart in attrs[name]) for name in ("strides", "dilation")
    )
    return np.asarray(views[:, :, *places, *taps])


def _max_pool_of_volumes(attrs: Attributes, data: Array) -> Array:
    views = _in_volumes(attrs, data, attrs["kernel"], -math.inf)
    return np.asarray(views.max(axis=(5, 6, 7)))


def _conv_of_volumes(attrs: Attributes, data: Array, weight: Array) -> Array:
    views = _in_volumes(attrs, data, weight.shape[2:], 0.0)
    groups = int(attrs["groups"])
    views = views.reshape(len(views), groups, -1, *views.shape[2:])
    kernels = weight.reshape(groups, -1, *weight.shape[1:])
    result = np.einsum("ngcdhwijk,gocijk->ngodhw", views, kernels)
    return np.asarray(result.reshape(len(views), len(weight), *result.shape[3:]))


def _conv_transpose_of_volumes(attrs: Attributes, data: Array, weight: Array) -> Array:
    """Each input adds its product with the kernel to the result."""
    sizes, kernel = np.array(data.shape[2:]), weight.shape[2:]
    strides, apart = np.array(attrs["strides"]), np.array(attrs["dilation"])
    extent = (np.array(kernel) - 1) * apart + 1
    whole = (sizes - 1) * strides + extent + attrs["output_padding"]
    result = np.zeros((len(data), weight.shape[1], *whole))
    for tap in np.ndindex(kernel):
        first = np.array(tap) * apart
        places = tuple(map(slice, first, first + (sizes - 1) * strides + 1, strides))
        result[:, :, *places] += np.einsum("ncdhw,co->nodhw", data, weight[:, :, *tap])
    before, after = np.reshape(attrs["padding"], (2, 3))
    return result[:, :, *map(slice, before, whole - after)]


def _conv_transpose(attrs: Attributes, data: Array, weight: Array) -> Array:
    """Each input adds its product with the kernel to the result."""
    images, groups = _as_images(data, attrs["layout"]), int(attrs["groups"])
    kernels = _weights(weight, attrs["weight_layout"], "IOHW")
    (n, channels, height, width), (_, outer, rows, columns) = images.shape, kernels.shape
    down, across = attrs["strides"]
    apart = attrs["dilation"]
    more = attrs["output_padding"]
    whole = np.zeros(
        (
            n,
            groups * outer,
            (height - 1) * down + (rows - 1) * apart[0] + 1 + more[0],
            (width - 1) * across + (columns - 1) * apart[1] + 1 + more[1],
        )
    )
    images = images.reshape(n, groups, channels // groups, height, width)
    kernels = kernels.reshape(groups, channels // groups, outer, rows, columns)
    for i, j in itertools.product(range(rows), range(columns)):
        part = np.einsum("ngchw,gco->ngohw", images, kernels[..., i, j])
        part = part.reshape(n, -1, height, width)
        y, x = i * apart[0], j * apart[1]
        ends = y + (height - 1) * down + 1, x + (width - 1) * across + 1
        whole[:, :, y : ends[0] : down, x : ends[1] : across] += part
    top, left, bottom, right = attrs["padding"]
    cut = whole[:, :, top : whole.shape[2] - bottom, left : whole.shape[3] - right]
    return _from_images(cut, attrs["layout"])


def _batch_matmul(attrs: Attributes, left: Array, right: Array) -> Array:
    left = left.swapaxes(1, 2) if attrs["transpose_a"] else left
    right = right.swapaxes(1, 2) if attrs["transpose_b"] else right
    return np.asarray(left @ right)


# --- Pooling and reductions ----------------------------------------------------------------------


def _pooled(attrs: Attributes, data: Array, fill: float) -> tuple[Array, Array, Array]:
    """Windows of the data, of ones where it is data, and of ones where it or its border is."""
    images = _as_images(data, attrs["layout"])
    kernel, strides, dilation = (_two(attrs[k], 1) for k in ("kernel", "strides", "dilation"))
    top, left, bottom, right = _two(attrs["padding"], 0)
    beyond = [0, 0]
    if attrs["ceil_mode"]:  # the last window may reach over the border
        for d, (size, edge) in enumerate(
            zip(images.shape[2:], ((top, bottom), (left, right)), strict=True)
        ):
            free = size + sum(edge) - (kernel[d] - 1) * dilation[d] - 1
            beyond[d] = -(-free // strides[d]) * strides[d] - free
    edges = ((0, 0), (0, 0), (top, bottom), (left, right))
    behind = ((0, 0), (0, 0), (0, beyond[0]), (0, beyond[1]))
    ones = np.ones_like(images)
    wide = (
        np.pad(np.pad(images, edges, constant_values=fill), behind, constant_values=fill),
        np.pad(np.pad(ones, edges), behind),
        np.pad(np.pad(ones, edges, constant_values=1), behind),
    )
    first, second, third = (_windows(image, kernel, attrs) for image in wide)
    return first, second, third


def _max_pool(attrs: Attributes, data: Array) -> Array:
    values, _, _ = _pooled(attrs, data, -math.inf)
    return _cut(attrs, _from_images(values.max(axis=(4, 5)), attrs["layout"]))


def _avg_pool(attrs: Attributes, data: Array) -> Array:
    values, real, counted = _pooled(attrs, data, 0.0)
    counts = (counted if attrs["count_include_pad"] else real).sum(axis=(4, 5))
    means = values.sum(axis=(4, 5)) / np.maximum(counts, 1)
    return _cut(attrs, _from_images(means, attrs["layout"]))


def _cut(attrs: Attributes, value: Array) -> Array:
    """As large as the result is, where that is known: torch has no window that begins in the
    border at the end."""
    return value[tuple(map(slice, attrs.get("shape", value.shape)))]


def _whole(reduce: Callable[..., Array]) -> Meaning:
    """A pooling over whole images."""

    def meaning(attrs: Attributes, data: Array) -> Array:
        layout = attrs["layout"]
        along = tuple(layout.index(axis) for axis in "HW" if axis in layout)
        return reduce(data, axis=along, keepdims=True)

    return meaning


def _reduction(reduce: Callable[..., Array]) -> Meaning:
    def meaning(attrs: Attributes, data: Array) -> Array:
        axis = attrs["axis"]
        named = range(data.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        along = {each % data.ndim for each in named}
        if attrs["exclude"]:
            along = set(range(data.ndim)) - along
        return np.asarray(reduce(data, axis=tuple(along), keepdims=bool(attrs["keepdims"])))

    return meaning


# --- Moves ---------------------------------------------------------------------------------------


def _strided_slice(attrs: Attributes, data: Array) -> Array:
    """As many as the result has."""
    for place, axis in enumerate(attrs["axes"] or range(len(attrs["begin"]))):
        first = attrs["begin"][place] % data.shape[axis]
        step = 1 if attrs["slice_mode"] == "size" else attrs["strides"][place]
        data = np.take(data, first + step * np.arange(attrs["shape"][axis]), axis=axis)
    return data


def _depth_to_space(attrs: Attributes, data: Array) -> Array:
    images, block = _as_images(data, attrs["layout"]), int(attrs["block_size"])
    n, channels, rows, columns = images.shape
    if attrs["mode"] == "DCR":
        parts = images.reshape(n, block, block, channels // block**2, rows, columns)
        parts = parts.transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = images.reshape(n, channels // block**2, block, block, rows, columns)
        parts = parts.transpose(0, 1, 4, 2, 5, 3)
    return _from_images(parts.reshape(n, -1, rows * block, columns * block), attrs["layout"])


def _space_to_depth(attrs: Attributes, data: Array) -> Array:
    images, block = _as_images(data, attrs["layout"]), int(attrs["block_size"])
    n, channels, rows, columns = images.shape
    parts = images.reshape(n, channels, rows // block, block, columns // block, block)
    parts = parts.transpose(0, 3, 5, 1, 2, 4)
    shape = n, channels * block**2, rows // block, columns // block
    return _from_images(parts.reshape(shape), attrs["layout"])


def _split(attrs: Attributes, data: Array) -> tuple[Array, ...]:
    sizes = [shape[attrs["axis"]] for shape in attrs["parts"]]
    return tuple(np.split(data, np.cumsum(sizes)[:-1], axis=attrs["axis"]))


def _take(attrs: Attributes, data: Array, indices: Array) -> Array:
    axis = attrs["axis"]
    size = data.size if axis is None else data.shape[axis]
    whole = indices.astype(np.int64)
    if attrs["mode"] == "wrap":
        whole = np.mod(whole, size)
    elif attrs["mode"] == "clip":
        whole = np.clip(whole, 0, size - 1)
    return np.take(data, whole, axis=axis)


def _pad(attrs: Attributes, data: Array, value: Array) -> Array:
    return np.pad(data, attrs["widths"], constant_values=float(value))


# --- Functions -----------------------------------------------------------------------------------


def _softmax(attrs: Attributes, data: Array) -> Array:
    powers = np.exp(data - data.max(axis=attrs["axis"], keepdims=True))
    return np.asarray(powers / powers.sum(axis=attrs["axis"], keepdims=True))


def _layer_norm(attrs: Attributes, data: Array, gamma: Array, beta: Array) -> Array:
    mean, variance = (f(data, axis=attrs["axis"], keepdims=True) for f in (np.mean, np.var))
    normed = (data - mean) / np.sqrt(variance + attrs["epsilon"])
    return np.asarray(normed * gamma + beta)


def _rms_norm(attrs: Attributes, data: Array, gamma: Array, beta: Array) -> Array:
    squares = np.mean(data**2, axis=attrs["axis"], keepdims=True)
    return np.asarray(data / np.sqrt(squares + attrs["epsilon"]) * gamma + beta)


def _prelu(attrs: Attributes, data: Array, slope: Array) -> Array:
    axis = attrs["axis"] % data.ndim
    spread = slope.reshape(-1, *(1,) * (data.ndim - axis - 1))
    return np.where(data > 0, data, data * spread)


def _bias_add(attrs: Attributes, data: Array, bias: Array) -> Array:
    return data + bias.reshape(-1, *(1,) * (data.ndim - attrs["axis"] % data.ndim - 1))


def _cumulative_sum(attrs: Attributes, data: Array) -> Array:
    """Each place of its own, by what it adds up."""
    axis = attrs["axis"] % data.ndim
    if attrs["reverse"]:
        forward = {**attrs, "reverse": False}
        return np.flip(_cumulative_sum(forward, np.flip(data, axis)), axis)
    last = [at + (not attrs["exclusive"]) for at in range(data.shape[axis])]
    sums = [data.take(range(end), axis).sum(axis, dtype=data.dtype) for end in last]
    return np.stack(sums, axis)


def _of_values(function: Callable[..., Any]) -> Meaning:
    """An operator without attributes."""
    return lambda attrs, *values: function(*values)


MEANING: dict[str, Meaning] = {
    **dict.fromkeys(("conv1d", "conv2d"), _conv),
    "conv3d": _conv_of_volumes,
    "max_pool3d": _max_pool_of_volumes,
    "conv2d_transpose": _conv_transpose,
    "conv3d_transpose": _conv_transpose_of_volumes,
    "dense": _of_values(lambda data, weight: data @ weight.T),
    "batch_matmul": _batch_matmul,
    "bias_add": _bias_add,
    "add": _of_values(np.add),
    "subtract": _of_values(np.subtract),
    "multiply": _of_values(np.multiply),
    "divide": _of_values(np.divide),
    "maximum": _of_values(np.maximum),
    "minimum": _of_values(np.minimum),
    "relu": _of_values(lambda x: np.maximum(x, 0)),
    "leaky_relu": lambda attrs, x: np.where(x > 0, x, x * attrs["alpha"]),
    "prelu": _prelu,
    "clip": lambda attrs, x: np.clip(x, attrs["low"], attrs["high"]),
    "abs": _of_values(np.abs),
    "negative": _of_values(np.negative),
    "exp": _of_values(np.exp),
    "log": _of_values(np.log),
    "sqrt": _of_values(np.sqrt),
    "square": _of_values(np.square),
    "rsqrt": _of_values(lambda x: 1 / np.sqrt(x)),
    "erf": _of_values(np.vectorize(math.erf, otypes=[np.float64])),
    "sigmoid": _of_values(lambda x: 1 / (1 + np.exp(-x))),
    "tanh": _of_values(np.tanh),
    "floor": _of_values(np.floor),
    "ceil": _of_values(np.ceil),
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "log_softmax": lambda attrs, x: np.log(_softmax(attrs, x)),
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), _avg_pool),
    **dict.fromkeys(("global_max_pool2d", "adaptive_max_pool1d"), _whole(np.max)),
    **dict.fromkeys(("global_avg_pool2d", "adaptive_avg_pool1d"), _whole(np.mean)),
    "mean": _reduction(np.mean),
    "sum": _reduction(np.sum),
    "l2": _reduction(lambda data, **axes: np.sqrt(np.sum(data**2, **axes))),
    "max": _reduction(np.max),
    "min": _reduction(np.min),
    "concatenate": lambda attrs, parts: np.concatenate(parts, axis=attrs["axis"]),
    "split": _split,
    "reshape": lambda attrs, x: x.reshape(attrs["shape"]),
    "transpose": lambda attrs, x: x.transpose(attrs["axes"]),
    "strided_slice": _strided_slice,
    "reverse": lambda attrs, x: np.flip(x, attrs["axis"]),
    "repeat": lambda attrs, x: np.repeat(x, attrs["repeats"], attrs["axis"]),
    "tile": lambda attrs, x: np.tile(x, np.divide(attrs["shape"], x.shape).astype(int)),
    "broadcast_to": lambda attrs, x: np.broadcast_to(x, attrs["shape"]),
    "copy": lambda attrs, x: x,
    "take": _take,
    "cast": lambda attrs, x: x.astype(bool if attrs["dtype"] == "bool" else np.float64),
    "cumulative_sum": _cumulative_sum,
    "equal": _of_values(np.equal),
    "not_equal": _of_values(np.not_equal),
    "less": _of_values(np.less),
    "less_equal": _of_values(np.less_equal),
    "greater": _of_values(np.greater),
    "greater_equal": _of_values(np.greater_equal),
    "logical_and": _of_values(np.logical_and),
    "logical_or": _of_values(np.logical_or),
    "logical_xor": _of_values(np.logical_xor),
    "logical_not": _of_values(np.logical_not),
    "where": _of_values(np.where),
    "pad": _pad,
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
    "layout_transform": lambda attrs, x: to_order(x, attrs["source"], attrs["target"]),
}


def dequantized(call: Call, integers: Array, scale: Array, zero_point: Array) -> Array:
    """``(integers - zero_point) * scale``, one of each or some along the axis."""
    axis = call.attrs["axis"] % max(integers.ndim, 1)
    spread = (-1, *(1,) * (integers.ndim - axis - 1))
    scale, zero_point = (v.reshape(spread) if v.ndim else v for v in (scale, zero_point))
    return np.asarray((integers.astype(np.float64) - zero_point) * scale)


def evaluated(root: Expr, known: Mapping[Expr, Array]) -> dict[Expr, Any]:
    """The value of everything that ``root`` depends on, down to ``known`` values and constants.

    A quantize is known or not needed: a stretch ends there.
    """
    values: dict[Expr, Any] = dict(known)

    def below(expr: Expr) -> Sequence[Expr]:
        return () if expr in known else children(expr)

    for expr in ordered(root, below):
        if expr not in values:
            values[expr] = _evaluated(expr, [values[child] for child in children(expr)])
    return values


def _evaluated(expr: Expr, operands: list[Any]) -> Any:
    match expr:
        case Constant():
            value = expr.value
            return value.astype(np.float64) if value.dtype.kind == "f" else value
        case Tuple():
            return tuple(operands)
        case Field(index=index):
            return operands[0][index]
        case Call(op="dequantize"):
            return dequantized(expr, *operands)
        case Call():
            types = {"shape": expr.types[0].shape, "parts": [of.shape for of in expr.types]}
            return MEANING[expr.op]({**expr.attrs, **types}, *operands)
    raise TypeError(f"no meaning is known of {expr!r}")
