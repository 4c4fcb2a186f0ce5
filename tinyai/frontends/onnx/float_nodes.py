"""The nodes that compute each operator of the vocabulary in floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tinyai.errors import OptionError
from tinyai.frontends.onnx.reader import Spelled
from tinyai.ir import Array
from tinyai.ops.resize import nearest
from tinyai.qdq.operands import operator_name
from tinyai.safe_text import safe
from tinyai.source import Call, Constant, SourceType, Unread


class FloatNodes:
    """Nodes and constants of a graph, each under a name of its own."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, outputs: Sequence[str] = (), **attrs: Any) -> str:
        """A node's first result, after the node was added."""
        outputs = outputs or [f"value{len(self.nodes)}"]
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attrs))
        return outputs[0]

    def constant(self, value: Any, dtype: str | None = None) -> str:
        name = f"constant{len(self.constants)}"
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def shape(self, of: SourceType) -> str:
        return self.constant(of.shape, "int64")

    def ordered(self, value: str, axes: str, wanted: str) -> str:
        """A value whose axes are ``axes``, such as NHWC, in another order."""
        order = [axes.index(axis) for axis in wanted]
        return value if axes == wanted else self.add("Transpose", value, perm=order)

    def along(self, vector: str, call: Call) -> str:
        """A vector that broadcasts along an axis of a call's result."""
        rank, axis = len(call.type.shape), call.attrs["axis"]
        sizes = [-1 if place == axis % rank else 1 for place in range(rank)]
        return self.add("Reshape", vector, self.constant(sizes, "int64"))


def element_type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def not_written(call: Call, reason: str = "") -> OptionError:
    if isinstance(call.origin, Unread) and not reason:
        refusal = call.origin.refusal
        reason = f", of which tinyai reads no {refusal.clause} {refusal.found}"
    return OptionError(
        "operator of a float model",
        found=safe(f"{operator_name(call)} {call.name!r}{reason}", 240),
        allowed="operators that tinyai reads, and all others of an .onnx file",
        hint="quantize an .onnx file of the model: ONNX Runtime runs what tinyai does not read",
    )


# Of the nodes so far, the call and the names of its operands.
Write = Callable[..., str]


def _as(kind: str) -> Write:
    """An operator without attributes, or whose result's type says them."""
    return lambda w, call, *args: w.add(kind, *args)


def _to_shape(kind: str) -> Write:
    return lambda w, call, data: w.add(kind, data, w.shape(call.type))


def _with_axis(kind: str) -> Write:
    return lambda w, call, *args: w.add(kind, *args, axis=call.attrs["axis"])


def _images(kind: str, axes: str = "HW") -> Callable[[Callable[[Call], dict[str, Any]]], Write]:
    """An operator of images alone, by its attributes."""

    def by(attributes: Callable[[Call], dict[str, Any]]) -> Write:
        def write(w: FloatNodes, call: Call, data: str) -> str:
            layout = call.attrs["layout"]
            first = w.ordered(data, layout, f"NC{axes}")
            made = w.add(kind, first, **attributes(call))
            return w.ordered(made, f"NC{axes}", call.attrs.get("out_layout") or layout)

        return write

    return by


def _convolution(kind: str, axes: str = "HW", order: str = "OI") -> Write:
    def write(w: FloatNodes, call: Call, data: str, weight: str) -> str:
        attrs, groups = call.attrs, call.attrs["groups"]
        layout, result = attrs["layout"], attrs["out_layout"] or attrs["layout"]
        sizes = dict(zip(attrs["weight_layout"], call["weight"].type.shape, strict=True))
        weight = w.ordered(weight, attrs["weight_layout"], f"{order}{axes}")
        depth = call["data"].type.shape[layout.index("C")]
        if kind == "Conv" and sizes["I"] * groups != depth:  # O is the channel, I its results
            shape = (sizes["O"] * sizes["I"], depth // groups, *(sizes[axis] for axis in axes))
            weight = w.add("Reshape", weight, w.constant(shape, "int64"))
        more = {"output_padding": attrs["output_padding"]} if "output_padding" in attrs else {}
        made = w.add(
            kind,
            w.ordered(data, layout, f"NC{axes}"),
            weight,
            strides=attrs["strides"],
            pads=attrs["padding"],
            dilations=attrs["dilation"],
            group=groups,
            **more,
        )
        return w.ordered(made, f"NC{axes}", result)

    return write


def _window(call: Call) -> dict[str, Any]:
    attrs = call.attrs
    counted = {"count_include_pad": int(attrs["count_include_pad"])} if "avg" in call.op else {}
    return {
        "kernel_shape": attrs["kernel"],
        "strides": attrs["strides"],
        "pads": attrs["padding"],
        "dilations": attrs["dilation"],
        "ceil_mode": int(attrs["ceil_mode"]),
        **counted,
    }


def _reduction(kind: str) -> Write:
    def write(w: FloatNodes, call: Call, data: str) -> str:
        axis, rank = call.attrs["axis"], len(call["data"].type.shape)
        axes = {*range(rank)} if axis is None else {n % rank for n in np.atleast_1d(axis).tolist()}
        axes = {*range(rank)} - axes if call.attrs["exclude"] else axes
        along = w.constant(sorted(axes), "int64")
        keep = int(call.attrs["keepdims"])
        return w.add(kind, data, along, keepdims=keep, noop_with_empty_axes=1)

    return write


def _batch_matmul(w: FloatNodes, call: Call, left: str, right: str) -> str:
    operands = (
        w.add("Transpose", name, perm=[0, 2, 1]) if call.attrs[f"transpose_{which}"] else name
        for which, name in (("a", left), ("b", right))
    )
    return w.add("MatMul", *operands)


def _clip(w: FloatNodes, call: Call, data: str) -> str:
    dtype = call.type.dtype
    return w.add("Clip", data, *(w.constant(call.attrs[end], dtype) for end in ("low", "high")))


def _transpose(w: FloatNodes, call: Call, data: str) -> str:
    axes, before = call.attrs["axes"], call["data"]
    if isinstance(before, Constant):
        # ONNX Runtime 1.31 loses the input of a Gemm of weights that another transposes too.
        return w.constant(before.value.transpose(axes))
    return w.add("Transpose", data, **({} if axes is None else {"perm": axes}))


def _layer_norm(w: FloatNodes, call: Call, data: str, gamma: str, beta: str) -> str:
    """Of the last dimension alone: another one changes places with it."""
    dims = list(range(len(call.type.shape)))
    axis, last = dims[call.attrs["axis"]], dims[-1]
    dims[axis], dims[last] = last, axis
    swapped = data if axis == last else w.add("Transpose", data, perm=dims)
    ones = w.constant(np.ones(call.type.shape[axis], np.float32))
    epsilon = call.attrs["epsilon"]
    made = w.add("LayerNormalization", swapped, ones, axis=-1, epsilon=epsilon)
    made = made if axis == last else w.add("Transpose", made, perm=dims)
    return w.add("Add", w.add("Mul", made, gamma), beta)


def _rms_norm(w: FloatNodes, call: Call, data: str, gamma: str, beta: str) -> str:
    axes, squares = w.constant([call.attrs["axis"]], "int64"), w.add("Mul", data, data)
    epsilon = w.constant(call.attrs["epsilon"], "float32")
    root = w.add("Sqrt", w.add("Add", w.add("ReduceMean", squares, axes), epsilon))
    return w.add("Add", w.add("Mul", w.add("Div", data, root), gamma), beta)


def _slice(w: FloatNodes, call: Call, data: str) -> str:
    attrs, shape, sizes = call.attrs, call.type.shape, call["data"].type.shape
    axes = attrs["axes"] or range(len(shape))
    steps = attrs["strides"] if attrs["slice_mode"] == "end" else [1] * len(axes)
    pairs = zip(attrs["begin"], axes, strict=True)
    begin = [first + sizes[axis] if first < 0 else first for first, axis in pairs]
    return _sliced(w, data, begin, steps, [shape[axis] for axis in axes], axes)


def _sliced(w: FloatNodes, data: str, begin: Any, steps: Any, counts: Any, axes: Any) -> str:
    ends = [
        # An end below 0 would be counted from the back.
        first + count * step if first + count * step >= 0 else np.iinfo(np.int64).min
        for first, count, step in zip(begin, counts, steps, strict=True)
    ]
    numbers = (w.constant(list(each), "int64") for each in (begin, ends, axes, steps))
    return w.add("Slice", data, *numbers)


def _reverse(w: FloatNodes, call: Call, data: str) -> str:
    axis = call.attrs["axis"]
    size = call.type.shape[axis]
    assert size is not None
    return _sliced(w, data, [size - 1], [-1], [size], [axis])


def _tile(w: FloatNodes, call: Call, data: str) -> str:
    sizes = (np.array(each.type.shape, np.int64) for each in (call, call["data"]))
    return w.add("Tile", data, w.constant(np.floor_divide(*sizes)))


def _pad(w: FloatNodes, call: Call, data: str, value: str) -> str:
    before, after = zip(*call.attrs["widths"], strict=True)
    return w.add("Pad", data, w.constant([*before, *after], "int64"), value)


def _take(w: FloatNodes, call: Call, data: str, indices: str) -> str:
    axis, mode = call.attrs["axis"], call.attrs["mode"]
    shape, dtype = [dim or 0 for dim in call["data"].type.shape], call["indices"].type.dtype
    size = math.prod(shape) if axis is None else shape[axis]
    if axis is None:
        data, axis = w.add("Reshape", data, w.constant([-1], "int64")), 0
    if mode == "clip":
        ends = (w.constant(each, dtype) for each in (0, size - 1))
        indices = w.add("Clip", indices, *ends)
    elif mode == "wrap":
        indices = w.add("Mod", indices, w.constant(size, dtype))
    return w.add("Gather", data, indices, axis=axis)


def _cumsum(w: FloatNodes, call: Call, data: str) -> str:
    axis, *flags = (int(call.attrs[name]) for name in ("axis", "exclusive", "reverse"))
    return w.add("CumSum", data, w.constant(axis, "int64"), exclusive=flags[0], reverse=flags[1])


def _resize(w: FloatNodes, call: Call, data: str) -> str:
    """By numbers of rows and columns."""
    for axis in map(call.attrs["layout"].index, "HW"):
        size, count = call["data"].type.shape[axis], call.type.shape[axis]
        assert size is not None
        assert count is not None
        places = nearest(size, count, call.attrs["coordinates"], call.attrs["nearest_mode"])
        data = w.add("Gather", data, w.constant(places, "int64"), axis=axis)
    return data


def _interpolate(w: FloatNodes, call: Call, data: str) -> str:
    """By neighbours and their weights, first of rows, then of columns."""
    rank = len(call.type.shape)
    for axis, taps in (("H", call.attrs["rows"]), ("W", call.attrs["columns"])):
        at = call.attrs["layout"].index(axis)
        first, last, *weights = np.array(taps, np.float64).T
        spread = (-1, *(1,) * (rank - at - 1))
        parts = []
        for places, weight in zip((first, last), weights, strict=True):
            part = w.add("Gather", data, w.constant(places, "int64"), axis=at)
            share = (weight / np.add(*weights)).reshape(spread)
            parts.append(w.add("Mul", part, w.constant(share, "float32")))
        data = w.add("Add", *parts)
    return data


def _index(kind: str) -> Write:
    def write(w: FloatNodes, call: Call, data: str) -> str:
        (axis,) = np.atleast_1d(call.attrs["axis"])
        last = int(call.attrs["select_last_index"])
        keep = int(call.attrs["keepdims"])
        made = w.add(kind, data, axis=int(axis), keepdims=keep, select_last_index=last)
        return w.add("Cast", made, to=element_type(call.type.dtype))

    return write


def _blocks(call: Call) -> dict[str, Any]:
    mode = {"mode": call.attrs["mode"]} if "mode" in call.attrs else {}
    return {"blocksize": call.attrs["block_size"], **mode}


def _quantization(w: FloatNodes, call: Call, side: str, dtype: str) -> list[str]:
    """Scale and zero point, each one number without dimensions or a vector."""
    both: list[tuple[Array, str]] = []
    for name, of in ((f"{side}_scale", "float32"), (f"{side}_zero_point", dtype)):
        operand = call[name]
        assert isinstance(operand, Constant)
        both.append((operand.value, of))
    count = max(value.size for value, _ in both)
    return [
        w.constant(
            np.broadcast_to(value.reshape(-1), count) if count > 1 else value.reshape(()), of
        )
        for value, of in both
    ]


def _quantize(w: FloatNodes, call: Call, data: str, *_: str) -> str:
    pair = _quantization(w, call, "output", call.type.dtype)
    return w.add("QuantizeLinear", data, *pair, axis=call.attrs["axis"])


def _dequantize(w: FloatNodes, call: Call, data: str, *_: str) -> str:
    pair = _quantization(w, call, "input", call["data"].type.dtype)
    return w.add("DequantizeLinear", data, *pair, axis=call.attrs["axis"])


# What TFLite's reader names by what it computes.
_LABELS: dict[str, tuple[str, dict[str, Any]]] = {
    "elu(x)": ("Elu", {}),
    "gelu(x)": ("Gelu", {}),
    "gelu_by_tanh(x)": ("Gelu", {"approximate": "tanh"}),
    "exp(x)": ("Exp", {}),
    "log(x)": ("Log", {}),
    **{f"{kind.lower()}(x)": (kind, {}) for kind in ("Cos", "Round", "Sign", "Sin")},
}


def _function(w: FloatNodes, call: Call, data: str) -> str:
    """A node of the file again, or what TFLite's reader names."""
    if isinstance(call.origin, Spelled):
        node, operands = call.origin.node, call.origin.operands
        inputs = (w.constant(operands[name]) for name in node.input[1:] if name in operands)
        attrs = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        return w.add(node.op_type, data, *inputs, **attrs)
    if call.attrs["label"] not in _LABELS:
        raise not_written(call)
    kind, attrs = _LABELS[call.attrs["label"]]
    return w.add(kind, data, **attrs)


WRITTEN: dict[str, Write] = {
    "conv1d": _convolution("Conv", "W"),
    "conv2d": _convolution("Conv"),
    "conv3d": _convolution("Conv", "DHW"),
    "conv2d_transpose": _convolution("ConvTranspose", order="IO"),
    "conv3d_transpose": _convolution("ConvTranspose", "DHW", "IO"),
    "dense": lambda w, call, data, weight: w.add("Gemm", data, weight, transB=1),
    "batch_matmul": _batch_matmul,
    **{
        name: _as(kind)
        for name, kind in (
            *(("add", "Add"), ("subtract", "Sub"), ("multiply", "Mul"), ("divide", "Div")),
            *(("maximum", "Max"), ("minimum", "Min"), ("relu", "Relu"), ("sigmoid", "Sigmoid")),
            *(("tanh", "Tanh"), ("exp", "Exp"), ("log", "Log"), ("sqrt", "Sqrt"), ("abs", "Abs")),
            *(("floor", "Floor"), ("ceil", "Ceil"), ("erf", "Erf"), ("negative", "Neg")),
            *(("copy", "Identity"), ("where", "Where"), ("equal", "Equal")),
            *(("less", "Less"), ("less_equal", "LessOrEqual"), ("greater", "Greater")),
            *(("greater_equal", "GreaterOrEqual"), ("logical_and", "And"), ("logical_or", "Or")),
            *(("logical_xor", "Xor"), ("logical_not", "Not")),
        )
    },
    "not_equal": lambda w, call, *args: w.add("Not", w.add("Equal", *args)),
    "square": lambda w, call, data: w.add("Mul", data, data),
    "rsqrt": lambda w, call, data: w.add("Reciprocal", w.add("Sqrt", data)),
    "bias_add": lambda w, call, data, bias: w.add("Add", data, w.along(bias, call)),
    "leaky_relu": lambda w, call, data: w.add("LeakyRelu", data, alpha=call.attrs["alpha"]),
    "prelu": lambda w, call, data, slope: w.add("PRelu", data, w.along(slope, call)),
    "clip": _clip,
    "function": _function,
    "softmax": _with_axis("Softmax"),
    "log_softmax": _with_axis("LogSoftmax"),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "max_pool1d": _images("MaxPool", "W")(_window),
    "max_pool3d": _images("MaxPool", "DHW")(_window),
    "max_pool2d": _images("MaxPool")(_window),
    "avg_pool1d": _images("AveragePool", "W")(_window),
    "avg_pool2d": _images("AveragePool")(_window),
    "global_max_pool2d": _images("GlobalMaxPool")(lambda call: {}),
    "global_avg_pool2d": _images("GlobalAveragePool")(lambda call: {}),
    **{name: _reduction(f"Reduce{name.title()}") for name in ("sum", "mean", "max", "min", "l2")},
    "cast": lambda w, call, data: w.add("Cast", data, to=element_type(call.type.dtype)),
    "reshape": _to_shape("Reshape"),
    "broadcast_to": _to_shape("Expand"),
    "transpose": _transpose,
    "concatenate": _with_axis("Concat"),
    "strided_slice": _slice,
    "layout_transform": lambda w, call, data: w.ordered(
        data, call.attrs["source"], call.attrs["target"]
    ),
    "reverse": _reverse,
    "tile": _tile,
    "pad": _pad,
    "take": _take,
    "cumulative_sum": _cumsum,
    "resize2d": _resize,
    "interpolate2d": _interpolate,
    "argmax": _index("ArgMax"),
    "argmin": _index("ArgMin"),
    "depth_to_space": _images("DepthToSpace")(_blocks),
    "space_to_depth": _images("SpaceToDepth")(_blocks),
    "quantize": _quantize,
    "dequantize": _dequantize,
}
