"""How Relax's operators are read: into the vocabulary, or a ``Refusal`` with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyai.frontends.moves import padded, sliced
from tinyai.frontends.relax.reader import Read, Site
from tinyai.source import Call, Constant, Expr, SourceType, Tuple, require
from tinyai.vocabulary import constant

READERS: dict[str, Read] = {}


def reads(*names: str) -> Callable[[Read], Read]:
    def noted(read: Read) -> Read:
        READERS.update({f"relax.{name}": read for name in names})
        return read

    return noted


def _named(site: Site) -> str:
    return str(site.written.op.name).rpartition(".")[2]


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in values)


def _dims(of: SourceType) -> tuple[int, ...]:
    """A shape, of which a reader sees fixed ones only."""
    return tuple(int(dim or 0) for dim in of.shape)


def _axis(site: Site, axis: Any, rank: int | None = None) -> int:
    """Counted from the front."""
    return int(axis) % (len(site[0].type.shape) if rank is None else rank)


# --- Quantization ---------------------------------------------------------------------------------


@reads("quantize", "dequantize")
def _quantization(site: Site) -> Expr:
    """A scale of one element is that of the whole tensor, whatever its rank."""
    scale, zero = (_scalar(site[place]) for place in (1, 2))
    return site.call(_named(site), site[0], scale, zero, axis=int(site.attrs.axis))


def _scalar(value: Expr) -> Expr:
    one = isinstance(value, Constant) and value.value.size == 1
    return constant(value.value.reshape(())) if isinstance(value, Constant) and one else value


# --- Convolutions, products, windows --------------------------------------------------------------


def _layouts(site: Site) -> dict[str, str]:
    attrs = site.attrs
    layout = str(getattr(attrs, "data_layout", "") or attrs.layout)
    out = str(attrs.out_layout)
    return {"layout": layout, "out_layout": "" if out == layout else out}


def _window(site: Site) -> dict[str, Any]:
    attrs = site.attrs
    sizes = {name: _ints(getattr(attrs, name)) for name in ("strides", "padding", "dilation")}
    return {**sizes, **_layouts(site)}


def _weighted(site: Site) -> dict[str, Any]:
    attrs = site.attrs
    return {**_window(site), "groups": int(attrs.groups), "weight_layout": str(attrs.kernel_layout)}


@reads("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _convolution(site: Site) -> Expr:
    return site.call(_named(site), site[0], site[1], **_weighted(site))


@reads("nn.conv2d_transpose")
def _transposed_convolution(site: Site) -> Expr:
    padding = _ints(site.attrs.output_padding)
    return site.call(
        "conv2d_transpose", site[0], site[1], **_weighted(site), output_padding=padding
    )


@reads("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool2d")
def _pooling(site: Site) -> Expr:
    attrs, name = site.attrs, _named(site)
    window = {**_window(site), "kernel": _ints(attrs.pool_size), "ceil_mode": bool(attrs.ceil_mode)}
    if name.startswith("avg"):
        window["count_include_pad"] = bool(attrs.count_include_pad)
    return site.call(name, site[0], **window)


@reads("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d")
def _adaptive_pooling(site: Site) -> Expr:
    attrs, layouts = site.attrs, _layouts(site)
    if _named(site).endswith("1d"):
        require(not layouts.pop("out_layout"), "layout", attrs.out_layout, "one before and after")
    size = attrs.output_size
    return site.call(
        _named(site), site[0], **layouts, output_size=None if size is None else _ints(size)
    )


@reads("matmul")
def _matmul(site: Site) -> Expr:
    """By columns of weights, or matrices by as many others."""
    left, right = site[0], site[1]
    require(
        len(left.type.shape) > 1 < len(right.type.shape),
        "shapes of a product",
        f"{left.type} by {right.type}",
        "matrices",
    )
    if len(right.type.shape) == 2:
        rows = replace(left.type, shape=(math.prod(_dims(left.type)[:-1]), left.type.shape[-1]))
        turned = replace(right.type, shape=right.type.shape[::-1])
        weight = site.call("transpose", right, of=turned, axes=(1, 0))
        flat = SourceType((rows.shape[0], turned.shape[0]), site.type.dtype)
        return _shaped(
            site, site.call("dense", _shaped(site, left, rows), weight, of=flat), site.type
        )
    same = left.type.shape[:-2] == right.type.shape[:-2]
    require(same, "shapes of a product", f"{left.type} by {right.type}", "as many matrices")
    many = {"transpose_a": False, "transpose_b": False}
    parts = (_shaped(site, each, _in_a_row(each.type)) for each in (left, right))
    return _shaped(
        site, site.call("batch_matmul", *parts, of=_in_a_row(site.type), **many), site.type
    )


def _in_a_row(of: SourceType) -> SourceType:
    return replace(of, shape=(math.prod(_dims(of)[:-2]), *of.shape[-2:]))


def _shaped(site: Site, value: Expr, of: SourceType) -> Expr:
    return value if value.type == of else site.call("reshape", value, of=of)


@reads("nn.batch_norm")
def _batch_norm(site: Site) -> Expr:
    """Of inference, as a factor and a term of each channel; the statistics as they came."""
    attrs, data = site.attrs, site[0]
    require(not attrs.training, "training", True, "False: statistics that are constants")
    names = ("gamma", "beta", "mean", "variance")
    gamma, beta, mean, variance = (site.known(1 + n, name) for n, name in enumerate(names))
    factor = (gamma if attrs.scale else 1) / np.sqrt(variance + np.float32(attrs.epsilon))
    term = (beta if attrs.center else 0) - mean * factor
    rank = len(data.type.shape)
    along = (-1, *[1] * (rank - 1 - _axis(site, attrs.axis)))
    factor, term = (constant(each.reshape(along), "float32") for each in (factor, term))
    scaled = site.call("multiply", data, factor, of=data.type)
    return site.tuple(site.call("add", scaled, term, of=data.type), site[3], site[4])


# --- Element by element ---------------------------------------------------------------------------


@reads("add", "subtract", "multiply", "divide", "maximum", "minimum", "left_shift", "right_shift")
def _binary(site: Site) -> Expr:
    left, right, name = site[0], site[1], _named(site)
    if name == "add" and isinstance(left, Constant) and isinstance(right, Constant):
        return constant(left.value + right.value)  # of indices
    return site.call(name, left, right)


@reads(
    *("nn.relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs", "erf", "negative"),
    *("floor", "ceil"),
)
def _unary(site: Site) -> Expr:
    return site.call(_named(site), site[0])


@reads("nn.silu")
def _silu(site: Site) -> Expr:
    return site.call("multiply", site[0], site.call("sigmoid", site[0]))


@reads("nn.gelu")
def _gelu(site: Site) -> Expr:
    data, half = site[0], constant(0.5, "float32")
    part = site.call("erf", site.call("multiply", data, constant(math.sqrt(0.5), "float32")))
    share = site.call("add", site.call("multiply", part, half), half)
    return site.call("multiply", data, share)


@reads("nn.leakyrelu")
def _leaky_relu(site: Site) -> Expr:
    return site.call("leaky_relu", site[0], alpha=float(site.attrs.alpha))


@reads("nn.prelu")
def _prelu(site: Site) -> Expr:
    return site.call("prelu", site[0], site[1], axis=_axis(site, site.attrs.axis))


@reads("clip")
def _clip(site: Site) -> Expr:
    low, high = (site.number(place, "bound of a clip") for place in (1, 2))
    return site.call("clip", site[0], low=low, high=high)


@reads("astype")
def _astype(site: Site) -> Expr:
    data, dtype = site[0], site.type.dtype
    if isinstance(data, Constant):
        return constant(data.value.astype(dtype))
    return site.call("cast", data, dtype=dtype)


@reads("nn.softmax", "nn.log_softmax")
def _softmax(site: Site) -> Expr:
    return site.call(_named(site), site[0], axis=_axis(site, site.attrs.axis))


# --- Reductions -----------------------------------------------------------------------------------


@reads("mean", "sum", "max", "min")
def _reduction(site: Site) -> Expr:
    rank, axis = len(site[0].type.shape), site.attrs.axis
    axes = range(rank) if axis is None else sorted(int(each) % rank for each in axis)
    keepdims = bool(site.attrs.keepdims)
    if (parts := _stacked(site[0], axes)) and not keepdims and _named(site) in ("max", "min"):
        one, *others = parts
        for other in others:
            one = site.call(f"{_named(site)}imum", one, other)
        return one
    return site.call(_named(site), site[0], axis=tuple(axes), keepdims=keepdims, exclude=False)


def _stacked(value: Expr, axes: Sequence[int]) -> Sequence[Expr]:
    """The values that are stacked along the one axis; importers write the largest of some so."""
    if not isinstance(value, Call) or value.op != "stack" or [*axes] != [value.attrs["axis"]]:
        return ()
    parts = value.args[0]
    return parts.fields if isinstance(parts, Tuple) else ()


# --- Shapes, indices and bounds that importers compute --------------------------------------------

_OF_CONSTANTS: dict[str, Callable[..., Any]] = {
    "less": np.less,
    "equal": np.equal,
    "where": np.where,
    "isnan": np.isnan,
}


@reads(*_OF_CONSTANTS)
def _of_constants(site: Site) -> Expr:
    values = (site.known(n, f"operand {n}") for n in range(len(site.written.args)))
    return constant(_OF_CONSTANTS[_named(site)](*values), site.type.dtype)


@reads("shape_of")
def _shape_of(site: Site) -> Expr:
    return constant(_dims(site[0].type), "int64")


@reads("shape_to_tensor")
def _shape(site: Site) -> Expr:
    return constant(site.known(0, "shape"), site.type.dtype)


# --- What moves values ----------------------------------------------------------------------------


def _moved(site: Site, operator: str, value: Callable[[Any], Any], **attrs: Any) -> Expr:
    """Of a constant the constant: quantization of weights is looked for behind it. What keeps the
    shape is the value."""
    data = site[0]
    if isinstance(data, Constant):
        return constant(np.ascontiguousarray(value(data.value)))
    return site.call(operator, data, **attrs)


@reads("reshape", "squeeze", "expand_dims", "flatten")
def _reshape(site: Site) -> Expr:
    return _moved(site, "reshape", lambda value: value.reshape(site.type.shape))


@reads("permute_dims")
def _permute(site: Site) -> Expr:
    axes, rank = site.attrs.axes, len(site[0].type.shape)
    order = tuple(range(rank))[::-1] if axes is None else tuple(int(axis) % rank for axis in axes)
    return _moved(site, "transpose", lambda value: value.transpose(order), axes=order)


@reads("broadcast_to")
def _broadcast(site: Site) -> Expr:
    return _moved(site, "broadcast_to", lambda value: np.broadcast_to(value, _dims(site.type)))


@reads("concat", "stack")
def _concatenate(site: Site) -> Expr:
    parts, axis = site[0], site.attrs.axis
    require(isinstance(parts, Tuple) and axis is not None, "parts", "no tuple", "a tuple, an axis")
    operator = "concatenate" if _named(site) == "concat" else "stack"
    return site.call(operator, parts, axis=_axis(site, axis, len(site.type.shape)))


@reads("split")
def _split(site: Site) -> Expr:
    return site.call("split", site[0], of=site.types, axis=_axis(site, site.attrs.axis))


@reads("flip")
def _flip(site: Site) -> Expr:
    return site.call("reverse", site[0], axis=_axis(site, site.attrs.axis))


@reads("tile")
def _tile(site: Site) -> Expr:
    return site.call("tile", site[0])


@reads("take")
def _take(site: Site) -> Expr:
    axis = site.attrs.axis
    place = None if axis is None else _axis(site, axis)
    mode, data, indices = str(getattr(site.attrs, "mode", "fast")), site[0], site[1]
    if isinstance(data, Constant) and isinstance(indices, Constant):
        values, places = data.value, indices.value
        count = values.size if place is None else values.shape[place]
        places = places % count if mode == "wrap" else places
        inside = bool(((places >= 0) & (places < count)).all())
        require(inside, "indices", places.tolist(), f"0 to {count - 1}")
        return constant(np.take(values, places, place))
    return site.call("take", data, indices, axis=place, batch_dims=0, mode=mode)


@reads("strided_slice")
def _strided_slice(site: Site) -> Expr:
    """Ends beyond a dimension are its own, as ``assume_inbound=False`` says."""
    require(not site.attrs.assume_inbound, "assume_inbound", True, False)
    shape = list(_dims(site[0].type))
    axes, starts, ends = (site.numbers(place, "a slice") for place in (1, 2, 3))
    steps = site.numbers(4, "a slice") if len(site.written.args) > 4 else [1] * len(axes)
    begin, strides = [0] * len(shape), [1] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        at = axis % len(shape)
        begin[at], _, strides[at] = slice(start, end, step).indices(shape[at])
    return sliced(site.call, site[0], begin, strides, _dims(site.type))


@reads("nn.dropout")
def _dropout(site: Site) -> Expr:
    """Of inference: the value. What asks for the mask stays on the host."""
    return site.tuple(site[0], Expr(site.types[1:]))


# What numpy calls the values that a border takes from inside.
_BORDERS = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@reads("nn.pad")
def _pad(site: Site) -> Expr:
    attrs, widths = site.attrs, _ints(site.attrs.pad_width)
    mode, pairs = str(attrs.pad_mode), list(zip(widths[::2], widths[1::2], strict=True))
    require(mode in _BORDERS, "mode", mode, ", ".join(_BORDERS))
    return padded(site.call, site[0], pairs, _BORDERS[mode], float(attrs.pad_value))


@reads("image.resize2d")
def _resize(site: Site) -> Expr:
    attrs, dtype = site.attrs, site[0].type.dtype
    require(site.type.dtype == dtype, "dtype", site.type.dtype, dtype)
    return site.call(
        "resize2d",
        site[0],
        layout=str(attrs.layout),
        method=str(attrs.method),
        coordinates=str(attrs.coordinate_transformation_mode),
        nearest_mode=str(attrs.rounding_method),
    )
