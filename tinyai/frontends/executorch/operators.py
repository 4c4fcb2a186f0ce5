"""How operators of the edge dialect are read: into the vocabulary, or a ``Refusal`` with the
reason. Names are those of ATen without the overload.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tinyai.frontends.executorch.reader import Site, arguments_of, operator_of
from tinyai.qdq.operands import NARROW
from tinyai.source import Expr, SourceType, Tuple, require
from tinyai.vocabulary import constant

Read = Callable[[Site], Expr]


# --- Quantization --------------------------------------------------------------------------------


def _dtype(site: Site) -> str:
    return str(site.args["dtype"]).removeprefix("torch.")


def _require_limits(site: Site) -> None:
    """A quantization ends where its dtype ends."""
    dtype = _dtype(site)
    require(dtype in (*NARROW, "int16"), "dtype of the quantization", dtype, ", ".join(NARROW))
    info = np.iinfo(dtype)
    found = site.args["quant_min"], site.args["quant_max"]
    require(found == (info.min, info.max), "limits", found, (info.min, info.max))


def _scale_and_zero(site: Site) -> tuple[Expr, Expr]:
    pair = site.args["scale"], site.args["zero_point"]
    numbers = all(isinstance(each, int | float) for each in pair)
    require(numbers, "scale", "computed at run time", "a constant")
    return constant(pair[0], "float32"), constant(int(pair[1]), "int32")


def _quantize(site: Site) -> Expr:
    _require_limits(site)
    return site.call("quantize", site.value("input"), *_scale_and_zero(site), axis=-1)


def _dequantize(site: Site) -> Expr:
    return site.call("dequantize", site.value("input"), *_scale_and_zero(site), axis=-1)


def _dequantize_per_channel(site: Site) -> Expr:
    zeros = site.value("zero_points") if site.args["zero_points"] is not None else constant(0)
    axis = int(site.args["axis"])
    return site.call("dequantize", site.value("input"), site.value("scales"), zeros, axis=axis)


# --- Products ------------------------------------------------------------------------------------


def _ints(value: Any, count: int, *, default: int = 0) -> tuple[int, ...]:
    """``count`` whole numbers from one, as many, or none."""
    numbers = [value] if isinstance(value, int) else list(value) or [default]
    require(all(isinstance(n, int) for n in numbers), "numbers", numbers, "known ones")
    return tuple(numbers * count if len(numbers) == 1 else numbers)


def _convolution(site: Site) -> Expr:
    rank = len(site.shape) - 2
    require(rank in (1, 2), "dimensions of a convolution", rank, "1 or 2")
    strides, padding, dilation = (
        _ints(site.args[name], rank) for name in ("stride", "padding", "dilation")
    )
    transposed, spatial = bool(site.args["transposed"]), "HW"[-rank:]
    require(not transposed or rank == 2, "dimensions of a transposed convolution", rank, 2)
    attrs: dict[str, Any] = {
        "strides": strides,
        "padding": padding * 2,
        "dilation": dilation,
        "groups": int(site.args["groups"]),
        "layout": f"NC{spatial}",
        "weight_layout": f"{'IO' if transposed else 'OI'}{spatial}",
        "out_layout": "",
    }
    operator = "conv1d" if rank == 1 else "conv2d"
    if transposed:
        operator, attrs["output_padding"] = (
            "conv2d_transpose",
            _ints(site.args["output_padding"], rank),
        )
    made = site.call(operator, site.value("input"), site.value("weight"), **attrs)
    return _biased(site, made, 1)


def _biased(site: Site, value: Expr, axis: int) -> Expr:
    if site.args["bias"] is None:
        return value
    return site.call("bias_add", value, site.value("bias"), of=value.type, axis=axis)


def _linear(site: Site) -> Expr:
    data, weight = site.value("input"), site.value("weight")
    units = weight.type.shape[0]
    rows = SourceType((math.prod(site.shape[:-1]), data.type.shape[-1]), data.type.dtype)
    if data.type != rows:
        data = site.call("reshape", data, of=rows)
    flat = SourceType((rows.shape[0], units), "float32")
    value = _biased(site, site.call("dense", data, weight, of=flat), 1)
    return value if flat == site.type else site.call("reshape", value)


def _addmm(site: Site) -> Expr:
    plain = site.args["beta"] == 1 == site.args["alpha"]
    require(plain, "factors of addmm", (site.args["beta"], site.args["alpha"]), "1 and 1")
    bias, product = site.value("self"), _dense(site, "mat1", "mat2")
    if len(bias.type.shape) == 1 and bias.type.shape == product.type.shape[-1:]:
        return site.call("bias_add", product, bias, axis=1)
    return site.call("add", product, bias)


def _mm(site: Site) -> Expr:
    return _dense(site, "self", "mat2")


def _dense(site: Site, left: str, right: str) -> Expr:
    """Rows by columns, where the vocabulary has rows by rows."""
    other = site.value(right)
    turned = replace(other.type, shape=other.type.shape[::-1])
    weight = site.call("transpose", other, of=turned, axes=(1, 0))
    return site.call("dense", site.value(left), weight)


def _bmm(site: Site) -> Expr:
    operands = site.value("self"), site.value("mat2")
    return site.call("batch_matmul", *operands, transpose_a=False, transpose_b=False)


# --- Element by element --------------------------------------------------------------------------


def _operand(site: Site, name: str) -> Expr:
    """An operand, numbers as float32, and constants no larger than they have to be."""
    given = site.args[name]
    if isinstance(given, bool | int | float):
        return constant(given, "float32")
    return site.value(name)


def _binary(operator: str) -> Read:
    def read(site: Site) -> Expr:
        require(site.type.dtype == "float32", "dtype of the result", site.type.dtype, "float32")
        alpha = site.args.get("alpha", 1)
        require(alpha == 1, "alpha", alpha, 1)
        mode = site.args.get("rounding_mode")
        require(mode is None, "rounding_mode", mode, None)
        return site.call(operator, _operand(site, "self"), _operand(site, "other"))

    return read


def _unary(operator: str) -> Read:
    def read(site: Site) -> Expr:
        require(site.type.dtype == "float32", "dtype of the result", site.type.dtype, "float32")
        return site.call(operator, site.value("self"))

    return read


def _bounded(site: Site, low: Any, high: Any) -> Expr:
    numbers = all(each is None or isinstance(each, int | float) for each in (low, high))
    require(numbers, "bounds", (low, high), "numbers")
    value = site.value("self")
    if low is not None and high is not None:
        return site.call("clip", value, low=float(low), high=float(high))
    for bound, operator in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            value = site.call(operator, value, constant(bound, "float32"))
    return value


def _clamp(site: Site) -> Expr:
    return _bounded(site, site.args["min"], site.args["max"])


def _hardtanh(site: Site) -> Expr:
    return _bounded(site, site.args["min_val"], site.args["max_val"])


def _leaky_relu(site: Site) -> Expr:
    return site.call("leaky_relu", site.value("self"), alpha=float(site.args["negative_slope"]))


def _prelu(site: Site) -> Expr:
    return site.call("prelu", site.value("self"), site.value("weight"), axis=min(1, _rank(site)))


def _gelu(site: Site) -> Expr:
    """x * (1 + erf(x / sqrt 2)) / 2."""
    found = site.args["approximate"]
    require(found == "none", "approximation of gelu", found, "none")
    value = site.value("self")
    inner = site.call("multiply", value, constant(math.sqrt(0.5), "float32"))
    one = site.call("add", site.call("erf", inner), constant(1, "float32"))
    return site.call("multiply", site.call("multiply", value, constant(0.5, "float32")), one)


def _gate(site: Site) -> Expr:
    """relu6(x + 3) / 6."""
    moved = site.call("add", site.value("self"), constant(3, "float32"))
    bounded = site.call("clip", moved, low=0.0, high=6.0)
    return site.call("multiply", bounded, constant(1 / 6, "float32"))


def _hardswish(site: Site) -> Expr:
    return site.call("multiply", site.value("self"), _gate(site))


def _silu(site: Site) -> Expr:
    value = site.value("self")
    return site.call("multiply", value, site.call("sigmoid", value))


def _softmax(operator: str) -> Read:
    return lambda site: site.call(operator, site.value("self"), axis=int(site.args["dim"]))


# --- Pooling -------------------------------------------------------------------------------------


def _pooling(site: Site, of: SourceType | None = None) -> dict[str, Any]:
    rank = len((of or site.type).shape)
    require(rank == 4, "dimensions of pooling", rank, 4)
    kernel = _ints(site.args["kernel_size"], 2)
    return {
        "kernel": kernel,
        "strides": _ints(site.args["stride"], 2) if site.args["stride"] else kernel,
        "padding": _ints(site.args["padding"], 2) * 2,
        "dilation": _ints(site.args.get("dilation", 1), 2),
        "ceil_mode": bool(site.args["ceil_mode"]),
        "layout": "NCHW",
        "out_layout": "",
    }


def _max_pool2d(site: Site) -> Expr:
    return site.call("max_pool2d", site.value("self"), **_pooling(site))


def _max_pool2d_with_indices(site: Site) -> Expr:
    """Its values alone: who reads the places has another operator."""
    places = [user for user in site.node.users if user.args[1:] != (0,)]
    require(not places, "places of the largest values", "used", "values alone")
    value = site.node.meta["val"][0]
    of = SourceType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return site.call("max_pool2d", site.value("self"), of=of, **_pooling(site, of))


def _avg_pool2d(site: Site) -> Expr:
    attrs, divisor = _pooling(site), site.args["divisor_override"]
    require(divisor is None, "divisor_override", divisor, None)
    include = bool(site.args["count_include_pad"]) and any(attrs["padding"])
    # torch leaves the rows beyond the border out of the count, which nobody else does.
    fits = not (attrs["ceil_mode"] and include)
    require(fits, "ceil_mode with count_include_pad", True, "one of the two")
    return site.call("avg_pool2d", site.value("self"), **attrs, count_include_pad=include)


def _adaptive_avg_pool2d(site: Site) -> Expr:
    data = site.value("self")
    require(len(site.shape) == 4, "dimensions of pooling", len(site.shape), 4)
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
        require(site.type.dtype == "float32", "dtype of the result", site.type.dtype, "float32")
        rank = len(site.value("self").type.shape)
        given = site.args.get("dim")
        dims = [given] if isinstance(given, int) else list(given or range(rank))
        axis = tuple(sorted(dim % rank for dim in dims))
        keep = bool(site.args.get("keepdim", False))
        return site.call(operator, site.value("self"), axis=axis, keepdims=keep, exclude=False)

    return read


def _largest(site: Site) -> Expr:
    """Over whole images, as a pooling."""
    data, dim = site.value("self"), site.args["dim"]
    rank = len(data.type.shape)
    axis = tuple(sorted(int(each) % rank for each in dim)) if isinstance(dim, Sequence) else dim
    require((rank, axis) == (4, (2, 3)), "dimensions of amax", axis, "(2, 3) of four")
    of = replace(data.type, shape=(*data.type.shape[:2], 1, 1))
    pooled = site.call("global_max_pool2d", data, of=of, layout="NCHW", out_layout="")
    return pooled if of == site.type else site.call("reshape", pooled)


# --- Moves ---------------------------------------------------------------------------------------


def _rank(site: Site) -> int:
    return len(site.shape)


def _same(site: Site) -> Expr:
    """Other memory, another order of dimensions in memory: the same values."""
    value = site.value("self")
    require(value.type == site.type, "type", value.type, f"{site.type}, as the result")
    return value


def _reshape(site: Site) -> Expr:
    value = site.value("self")
    return value if value.type == site.type else site.call("reshape", value)


def _permute(site: Site) -> Expr:
    axes = tuple(int(dim) % _rank(site) for dim in site.args["dims"])
    return site.call("transpose", site.value("self"), axes=axes)


def _transpose(site: Site) -> Expr:
    axes = list(range(_rank(site)))
    if axes:
        first, second = (int(site.args[name]) % len(axes) for name in ("dim0", "dim1"))
        axes[first], axes[second] = axes[second], axes[first]
    return site.call("transpose", site.value("self"), axes=tuple(axes))


def _t(site: Site) -> Expr:
    return site.call("transpose", site.value("self"), axes=tuple(reversed(range(_rank(site)))))


def _sliced(site: Site, dim: int, start: int, step: int, of: SourceType) -> Expr:
    begin, strides = [0] * len(of.shape), [1] * len(of.shape)
    begin[dim], strides[dim] = start, step
    attrs = {"begin": tuple(begin), "strides": tuple(strides), "axes": None, "slice_mode": "end"}
    return site.call("strided_slice", site.value("self"), of=of, **attrs)


def _start(start: int, size: int) -> int:
    return max(start + size, 0) if start < 0 else min(start, size)


def _slice(site: Site) -> Expr:
    shape = site.value("self").type.shape
    dim = int(site.args["dim"]) % len(shape)
    start, step = site.args["start"] or 0, site.args["step"]
    known = isinstance(start, int) and isinstance(step, int)
    require(known, "slice", "computed at run time", "known numbers")
    return _sliced(site, dim, _start(start, int(shape[dim] or 0)), step, site.type)


def _select(site: Site) -> Expr:
    of = site.value("self").type
    dim = int(site.args["dim"]) % len(of.shape)
    one = tuple(1 if d == dim else size for d, size in enumerate(of.shape))
    index = site.args["index"]
    require(isinstance(index, int), "index", "computed at run time", "a known number")
    start = _start(index, int(of.shape[dim] or 0))
    return site.call("reshape", _sliced(site, dim, start, 1, replace(of, shape=one)))


def _split(site: Site) -> Expr:
    """Its parts one by one: ``getitem`` takes them."""
    of = site.value("self").type
    dim = int(site.args["dim"]) % len(of.shape)
    parts, start = [], 0
    for value in site.node.meta["val"]:
        part = replace(of, shape=tuple(value.shape))
        parts.append(_sliced(site, dim, start, 1, part))
        start += int(value.shape[dim])
    return Tuple(tuple(each.type for each in parts), load=lambda: tuple(parts))


def _getitem(site: Site) -> Expr:
    whole, index = site.reading(site.node.args[0]), site.node.args[1]
    if isinstance(whole, Tuple):
        part: Expr = whole.fields[index]
        return part
    require(len(whole.types) == 1 and index == 0, "part of a result", index, "of one that is read")
    return whole


def _cat(site: Site) -> Expr:
    parts = site.values("tensors")
    whole = Tuple(tuple(part.type for part in parts), load=lambda: parts)
    return site.call("concatenate", whole, axis=int(site.args["dim"]) % _rank(site))


def _pad(site: Site) -> Expr:
    given: Sequence[int] = site.args["pad"]
    pairs = list(zip(given[::2], given[1::2], strict=True))[::-1]
    widths = (*((0, 0),) * (_rank(site) - len(pairs)), *pairs)
    value = constant(float(site.args.get("value") or 0), "float32")
    return site.call("pad", site.value("self"), value, mode="constant", widths=widths)


def _expand(site: Site) -> Expr:
    value = site.value("self")
    return value if value.type == site.type else site.call("broadcast_to", value)


def _repeat(site: Site) -> Expr:
    return site.call("tile", site.value("self"))


def _flip(site: Site) -> Expr:
    value = site.value("self")
    for dim in site.args["dims"]:
        value = site.call("reverse", value, axis=int(dim) % _rank(site))
    return value


def _nearest(site: Site) -> Expr:
    data = site.args.get("self", site.args.get("input"))
    value = site.reading(data)
    require(_rank(site) == 4, "dimensions of upsampling", _rank(site), 4)
    sizes = [int(dim or 0) for dim in value.type.shape[2:]]
    whole = all(count % size == 0 for size, count in zip(sizes, site.shape[2:], strict=True))
    require(whole, "size of upsampling", site.shape[2:], f"multiples of {sizes}")
    attrs: dict[str, Any] = {"coordinates": "asymmetric", "nearest_mode": "floor"}
    return site.call("resize2d", value, layout="NCHW", method="nearest_neighbor", **attrs)


def _pixel_shuffle(site: Site) -> Expr:
    require(_rank(site) == 4, "dimensions of pixel_shuffle", _rank(site), 4)
    block = int(site.args["upscale_factor"])
    return site.call(
        "depth_to_space", site.value("self"), block_size=block, layout="NCHW", mode="CRD"
    )


# --- The table -----------------------------------------------------------------------------------

_COPIES = ("clone", "alias", "alias_copy", "detach_copy", "lift_fresh_copy", "contiguous")
_RESHAPES = (
    *("view", "view_copy", "_unsafe_view", "reshape", "flatten", "unsqueeze", "unsqueeze_copy"),
    *("squeeze", "squeeze_copy", "_reshape_alias_copy"),
)
_ATEN: dict[str, Read] = {
    "convolution": _convolution,
    "linear": _linear,
    "addmm": _addmm,
    "mm": _mm,
    "bmm": _bmm,
    "add": _binary("add"),
    "sub": _binary("subtract"),
    "mul": _binary("multiply"),
    "div": _binary("divide"),
    "maximum": _binary("maximum"),
    "minimum": _binary("minimum"),
    **{name: _unary(name) for name in ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt")},
    **{name: _unary(name) for name in ("abs", "floor", "ceil", "erf")},
    "neg": _unary("negative"),
    "clamp": _clamp,
    "hardtanh": _hardtanh,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "_prelu_kernel": _prelu,
    "gelu": _gelu,
    "hardsigmoid": _gate,
    "hardswish": _hardswish,
    "silu": _silu,
    "_softmax": _softmax("softmax"),
    "softmax": _softmax("softmax"),
    "_log_softmax": _softmax("log_softmax"),
    "log_softmax": _softmax("log_softmax"),
    "max_pool2d": _max_pool2d,
    "max_pool2d_with_indices": _max_pool2d_with_indices,
    "avg_pool2d": _avg_pool2d,
    "_adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "mean": _reduction("mean"),
    "sum": _reduction("sum"),
    "amax": _largest,
    **dict.fromkeys(_COPIES, _same),
    **dict.fromkeys(_RESHAPES, _reshape),
    **dict.fromkeys(("permute", "permute_copy"), _permute),
    **dict.fromkeys(("transpose", "transpose_copy"), _transpose),
    **dict.fromkeys(("t", "t_copy"), _t),
    **dict.fromkeys(("slice", "slice_copy"), _slice),
    **dict.fromkeys(("select", "select_copy"), _select),
    **dict.fromkeys(("split_with_sizes", "split_with_sizes_copy", "split_copy"), _split),
    "cat": _cat,
    "constant_pad_nd": _pad,
    "pad": _pad,
    **dict.fromkeys(("expand", "expand_copy"), _expand),
    "repeat": _repeat,
    "flip": _flip,
    "upsample_nearest2d": _nearest,
    "pixel_shuffle": _pixel_shuffle,
}
READERS: dict[str, Read] = {
    **{f"aten.{name}": read for name, read in _ATEN.items()},
    "quantized_decomposed.quantize_per_tensor": _quantize,
    "quantized_decomposed.dequantize_per_tensor": _dequantize,
    "quantized_decomposed.dequantize_per_channel": _dequantize_per_channel,
    "dim_order_ops._to_dim_order_copy": _same,
    "dim_order_ops._clone_dim_order": _same,
    "getitem": _getitem,
}
# Operators of ATen that have a reader, and whose parts in the core of ATen have none.
KEPT_WHOLE: tuple[torch._ops.OpOverload, ...] = (
    torch.ops.aten.upsample_nearest2d.vec,
    torch.ops.aten.pixel_shuffle.default,
    torch.ops.aten.hardswish.default,
    torch.ops.aten.hardsigmoid.default,
    torch.ops.aten.linear.default,
    torch.ops.aten.silu.default,
    torch.ops.aten.adaptive_avg_pool2d.default,
    torch.ops.aten.prelu.default,
)

__all__ = ["KEPT_WHOLE", "READERS", "arguments_of", "operator_of"]
