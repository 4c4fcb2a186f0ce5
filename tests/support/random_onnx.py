"""Random ONNX files of a few operators, with every attribute varied: in QDQ form, and QOperators.

``OPERATORS`` has a function for each way to go on from a value, as ``random_stretches`` has for
the vocabulary. What an operator makes is asked of ONNX Runtime as the model grows; what it does not
take is left out. So the models are such as its users can run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from tests.support.random_stretches import is_telling
from tinyai.checking.onnxruntime import exact_session
from tinyai.ir import Array

OPSETS = (10, 11, 12, 13, 14, 16, 17, 18, 19)
CONTRIB = "com.microsoft"
MOST = 800  # elements of a value
TRIES = 200


@dataclass(frozen=True)
class Value:
    """``name`` is of floats, or of integers where ``scale`` is set."""

    name: str
    array: Array
    scale: float = 0.0
    zero: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass
class Site:
    """A model that grows."""

    rng: np.random.Generator
    opset: int
    dtype: str
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)
    # The largest steps of inputs and of weights; whether a bias of floats is rounded to theirs.
    steps: dict[str, float] = field(default_factory=lambda: {"x": 0.0, "w": 0.0})
    has_bias: bool = False
    # Whether a pair follows each operator, as tools write files; then a bias is int32, in the steps
    # of its sums, which the scales of dequantized values tell.
    in_pairs: bool = False
    scales: dict[str, Array] = field(default_factory=dict)
    names: int = 0

    # --- Choices ---

    def one(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def axis(self, rank: int) -> int:
        return int(self.rng.integers(-rank, rank))

    def axes(self, rank: int, most: int = 2) -> list[int]:
        chosen = self.rng.permutation(rank)[: int(self.rng.integers(1, min(most, rank) + 1))]
        return [int(a) - rank * self.chance(0.5) for a in chosen]

    def factor(self) -> float:
        return float(np.float32(2.0 ** self.rng.uniform(-3, 3)))

    # --- Values ---

    def name(self, use: str) -> str:
        self.names += 1
        return f"{use}_{self.names}"

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = self.name("c")
        array = np.asarray(array, dtype)
        if self.chance(0.2):
            value = numpy_helper.from_array(array)
            self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=value))
            self.known[name] = array
        else:
            self.constants[name] = array
        return name

    known: dict[str, Array] = field(default_factory=dict)
    # Of a model in pairs: its quantized values, and the grid of the last one.
    results: list[Value] = field(default_factory=list)
    last: tuple[float, int] = (1.0, 0)

    def add(
        self, op: str, *inputs: Value | str, outputs: int = 1, domain: str = "", **attrs: Any
    ) -> list[Value]:
        """An operator's results; raises where ONNX Runtime has none."""
        names = [each if isinstance(each, str) else each.name for each in inputs]
        while names and not names[-1]:
            names.pop()
        made = [self.name(op.lower()) for _ in range(outputs)]
        attrs = {name: value for name, value in attrs.items() if value is not None}
        node = helper.make_node(op, names, made, name=self.name(op), domain=domain, **attrs)
        feeds = {each.name: each.array for each in inputs if isinstance(each, Value)}
        others = {n: v for n, v in {**self.known, **self.constants}.items() if n in names}
        arrays = run(self.proto([node], feeds, made, others), feeds)
        self.nodes.append(node)
        return [Value(name, array) for name, array in zip(made, arrays, strict=True)]

    def call(self, op: str, *inputs: Value | str, **attrs: Any) -> Value:
        return self.add(op, *inputs, **attrs)[0]

    def proto(
        self,
        nodes: Sequence[NodeProto],
        inputs: dict[str, Array],
        outputs: Sequence[str],
        constants: dict[str, Array],
        types: dict[str, Any] | None = None,
    ) -> ModelProto:
        def info(name: str, array: Array | None) -> Any:
            if array is None:
                return ValueInfoProto(name=name)  # ONNX Runtime says what it is
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            return helper.make_tensor_value_info(name, kind, array.shape)

        graph = helper.make_graph(
            list(nodes),
            "random",
            [info(name, array) for name, array in inputs.items()],
            [info(name, (types or {}).get(name)) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=9)

    # --- Integers ---

    def integers(self, shape: Sequence[int], dtype: str = "") -> Array:
        limits = np.iinfo(dtype or self.dtype)
        return self.rng.integers(
            limits.min, limits.max, tuple(shape), dtype or self.dtype, endpoint=True
        )

    def grid(self, span: float, low: float | None = None) -> tuple[float, int]:
        limits = np.iinfo(self.dtype)
        scale = np.float32(span / 255 * self.rng.uniform(0.8, 1.3) + 1e-6)
        zero = limits.min + 128 if low is None else limits.min - low / scale
        return float(scale), int(np.clip(np.rint(zero), limits.min, limits.max))

    def input(self, shape: Sequence[int]) -> Value:
        """Integers from outside, with their scale."""
        name, array = self.name("x"), self.integers(shape)
        self.inputs[name] = array
        scale, zero = self.grid(2.0 ** self.rng.uniform(-1, 3))
        self.steps["x"] = max(self.steps["x"], scale)
        return Value(name, array, scale, zero)

    def pair(self, scale: float, zero: int) -> tuple[str, str]:
        """Names of constants; of rank 1 some times, and the zero point left out where it may."""
        shape = self.one((), (), (1,)) if not self.in_pairs or self.chance(0.1) else ()
        as_scale = self.constant(np.full(shape, scale))
        return as_scale, self.constant(np.full(shape, zero), self.dtype)

    def dequantized(self, value: Value) -> Value:
        scale, zero = self.pair(value.scale, value.zero)
        absent = value.zero == 0 and self.chance(0.5)
        made = self.call("DequantizeLinear", value, scale, "" if absent else zero)
        self.scales[made.name] = np.float32(value.scale)
        return made

    def floats(self, shape: Sequence[int]) -> Value:
        return self.dequantized(self.input(shape))

    def weights(self, shape: Sequence[int], axis: int | None) -> Value:
        """Quantized constants, with scales along ``axis`` (opset 13 and later) or one."""
        stored = self.integers(shape, "int8")
        name = self.name("w")
        self.constants[name] = stored
        many = axis is not None and self.opset >= 13 and self.chance(0.6)
        count = (shape[axis],) if many and axis is not None else ()
        scales = 2.0 ** self.rng.uniform(-9, -6, count)
        self.steps["w"] = max(self.steps["w"], float(np.max(scales)))
        scale = self.constant(scales)
        zero = self.constant(np.zeros(count), np.int8)
        where = {"axis": axis - len(shape) * self.chance(0.3)} if many and axis is not None else {}
        absent = self.chance(0.3)
        made = self.call(
            "DequantizeLinear", Value(name, stored), scale, "" if absent else zero, **where
        )
        self.scales[made.name] = np.asarray(scales, np.float32)
        return made


def run(proto: ModelProto, inputs: dict[str, Array], *, plain: bool = True) -> list[Array]:
    """ONNX Runtime's results, with or without its own changes to the graph."""
    content = proto.SerializeToString()
    if plain:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    else:
        session = exact_session(content, keeps_int8=False)
    return [np.asarray(each) for each in session.run(None, inputs)]


Operator = Callable[[Site, Value], Value]
OPERATORS: dict[str, Operator] = {}
QOPERATORS: dict[str, Operator] = {}


def operator(function: Operator) -> Operator:
    OPERATORS[function.__name__] = function
    return function


def qoperator(function: Operator) -> Operator:
    QOPERATORS[function.__name__] = function
    return function


class Unfit(Exception):
    """An operator does not go with a value."""


def need(fits: bool) -> None:
    if not fits:
        raise Unfit


# --- Layers --------------------------------------------------------------------------------------


def window(site: Site, size: Sequence[int], *, dilated: bool = True) -> dict[str, Any]:
    """Attributes of a window, defaults left out some times."""
    kernel = [int(site.rng.integers(1, min(3, s) + 1)) for s in size]
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    if site.chance(0.6):
        attrs["strides"] = [site.one(1, 2, 3) for _ in size]
    if dilated and site.chance(0.3):
        attrs["dilations"] = [site.one(1, 2) for _ in size]
    how = site.one("none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID")
    if how == "pads":
        attrs["pads"] = [int(site.rng.integers(0, k)) for k in kernel * 2]
    elif how != "none":
        attrs["auto_pad"] = how
    # Of a window that is wider than all, ONNX Runtime has a result, and TVM fails.
    pads, dilations = (
        attrs.get("pads", [0] * 2 * len(size)),
        attrs.get("dilations", [1] * len(size)),
    )
    for n, (k, d) in enumerate(zip(kernel, dilations, strict=True)):
        need((k - 1) * d < size[n] + pads[n] + pads[n + len(size)])
    return attrs


def _images(x: Value, most: int = 2) -> Sequence[int]:
    """Sizes of images, which have so many dimensions at ``most``."""
    need(1 <= x.rank - 2 <= most)
    return x.shape[2:]


def _bias(site: Site, count: int, x: Value, weight: Value) -> list[Value | str]:
    if site.chance(0.5):
        return []
    if site.in_pairs:
        step = np.asarray(site.scales[x.name] * site.scales[weight.name], np.float32)
        stored = site.name("b")
        site.constants[stored] = np.rint(site.rng.normal(0, 0.5, count) / step).astype(np.int32)
        where = {"axis": 0} if step.ndim else {}
        value = Value(stored, site.constants[stored])
        return [site.call("DequantizeLinear", value, site.constant(step), **where)]
    site.has_bias = True
    return [site.constant(site.rng.normal(0, 0.5, count))]


@operator
def conv(site: Site, x: Value) -> Value:
    size, channels = _images(x, 3), x.shape[1]
    attrs = window(site, size)
    kernel = attrs["kernel_shape"]
    if site.chance(0.4):
        del attrs["kernel_shape"]
    group = site.one(1, 1, channels)
    out = group * int(site.rng.integers(1, 5))
    weight = site.weights((out, channels // group, *kernel), 0)
    if group > 1:
        attrs["group"] = group
    return site.call("Conv", x, weight, *_bias(site, out, x, weight), **attrs)


@operator
def conv_transpose(site: Site, x: Value) -> Value:
    size, channels = _images(x), x.shape[1]
    attrs = window(site, size, dilated=False)
    kernel = attrs["kernel_shape"]
    strides = attrs.get("strides", [1] * len(size))
    if "auto_pad" not in attrs and site.chance(0.3):
        attrs["output_padding"] = [int(site.rng.integers(0, s)) for s in strides]
    if site.chance(0.2) and "output_padding" not in attrs:
        attrs.pop("pads", None)
        whole = [(n - 1) * s + k for n, s, k in zip(size, strides, kernel, strict=True)]
        attrs["output_shape"] = [max(w - int(site.rng.integers(0, 2)), 1) for w in whole]
    out = int(site.rng.integers(1, 5))
    weight = site.weights((channels, out, *kernel), 1)
    return site.call("ConvTranspose", x, weight, *_bias(site, out, x, weight), **attrs)


@operator
def matmul(site: Site, x: Value) -> Value:
    need(x.rank >= 2)
    columns = int(site.rng.integers(1, 12))
    match site.one("weights", "weights", "values", "left", "batched"):
        case "weights":
            return site.call("MatMul", x, site.weights((x.shape[-1], columns), 1))
        case "left":
            return site.call("MatMul", site.weights((columns, x.shape[-2]), None), x)
        case "batched":
            return site.call("MatMul", x, site.weights((*x.shape[:-2], x.shape[-1], columns), None))
    return site.call("MatMul", x, site.floats((*x.shape[:-2], x.shape[-1], columns)))


@operator
def gemm(site: Site, x: Value) -> Value:
    need(x.rank == 2)
    turned_a, turned_b = site.chance(0.3), site.chance(0.5)
    inner, columns = x.shape[0 if turned_a else 1], int(site.rng.integers(1, 12))
    shape = (columns, inner) if turned_b else (inner, columns)
    attrs: dict[str, Any] = {"transA": int(turned_a), "transB": int(turned_b)}
    attrs = {name: value for name, value in attrs.items() if value or site.chance(0.5)}
    if site.chance(0.4):
        attrs["alpha"] = site.factor()
    if site.chance(0.4):
        attrs["beta"] = site.factor()
    weight = site.weights(shape, 0 if turned_b else 1)
    return site.call("Gemm", x, weight, *_bias(site, columns, x, weight), **attrs)


@operator
def pool(site: Site, x: Value) -> Value:
    size, op = _images(x, 3), "MaxPool" if x.rank == 5 else site.one("MaxPool", "AveragePool")
    attrs = window(site, size, dilated=op == "MaxPool" or site.opset >= 19)
    if site.chance(0.4):
        attrs["ceil_mode"] = site.one(0, 1)
    if op == "AveragePool" and site.chance(0.5):
        attrs["count_include_pad"] = site.one(0, 1)
    if op == "MaxPool" and site.chance(0.1):
        attrs["storage_order"] = site.one(0, 1)
    return site.call(op, x, **attrs)


@operator
def global_pool(site: Site, x: Value) -> Value:
    need(x.rank in (3, 4))
    return site.call(site.one("GlobalAveragePool", "GlobalMaxPool"), x)


@operator
def reduction(site: Site, x: Value) -> Value:
    op = site.one("ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
    attrs: dict[str, Any] = {} if site.chance(0.3) else {"keepdims": site.one(0, 1)}
    as_input = site.opset >= 18 or (op == "ReduceSum" and site.opset >= 13)
    axes = None if site.chance(0.1) else site.axes(x.rank, 3)
    if as_input and site.chance(0.2):
        attrs["noop_with_empty_axes"] = site.one(0, 1)
    if not as_input:
        return site.call(op, x, axes=axes, **attrs)
    operands = [] if axes is None else [site.constant(axes, np.int64)]
    return site.call(op, x, *operands, **attrs)


@operator
def batch_norm(site: Site, x: Value) -> Value:
    need(x.rank >= 2)
    count = x.shape[1]
    operands: list[Value | str] = [
        site.constant(site.rng.uniform(*limits, count))
        for limits in ((0.3, 2), (-1, 1), (-1, 1), (0.3, 2))
    ]
    if site.chance(0.4):  # as ONNX Runtime's quantizer writes it without its preprocessing
        operands[0] = site.weights((count,), None)
    attrs = {"epsilon": 1e-3} if site.chance(0.5) else {}
    return site.call("BatchNormalization", x, *operands, **attrs)


# --- Values --------------------------------------------------------------------------------------


@operator
def arithmetic(site: Site, x: Value) -> Value:
    op = site.one("Add", "Sub", "Mul", "Div")
    kept = [1 if site.chance(0.5) else size for size in x.shape]
    shape = tuple(kept[int(site.rng.integers(len(kept))) :])
    match site.one("number", "number", "constant", "values"):
        case "number":
            other: Value | str = site.constant(np.full(site.one((), (1,)), site.factor()))
        case "constant":
            other = site.constant(site.rng.uniform(0.2, 2, shape))
        case _:
            other = site.floats(x.shape if site.chance(0.6) else shape)
            if op == "Div":  # by nothing near 0
                need(site.opset >= 13)
                other = site.call("Max", other, site.constant(np.full((), 0.5)))
    return site.call(op, *((x, other) if op == "Div" or site.chance(0.5) else (other, x)))


@operator
def several(site: Site, x: Value) -> Value:
    """A sum, or the largest or smallest, of one value or more and constants."""
    kept = [1 if site.chance(0.5) else size for size in x.shape]
    shape = tuple(kept[int(site.rng.integers(len(kept))) :])
    others: list[Value | str] = [x]
    for _ in range(site.one(1, 1, 2)):
        match site.one("number", "constant", "values", "values", "itself"):
            case "number":
                others.append(site.constant(np.full(site.one((), (1,)), site.factor())))
            case "constant":
                others.append(site.constant(site.rng.uniform(-2, 2, shape)))
            case "values":
                others.append(site.floats(x.shape if site.chance(0.6) else shape))
            case _:
                others.append(x)
    order = site.rng.permutation(len(others))
    return site.call(site.one("Sum", "Max", "Min"), *(others[place] for place in order))


@operator
def bound(site: Site, x: Value) -> Value:
    low, high = sorted(float(v) for v in site.rng.choice(x.array.reshape(-1), 2))
    match site.one("Clip", "Clip", "Max", "Min", "Relu"):
        case "Relu":
            return site.call("Relu", x)
        case "Clip":
            which = site.one("both", "low", "high", "none")
            least = low if which in ("both", "low") else None
            most = high if which in ("both", "high") else None
            if site.opset < 11:
                return site.call("Clip", x, min=least, max=most)
            names = ["" if end is None else site.constant(end) for end in (least, most)]
            return site.call("Clip", x, *names)
        case op:
            shape = site.one((), (1,), (1,) * x.rank, (2, *x.shape))
            other = site.constant(np.full(shape, low))
            return site.call(op, *((x, other) if site.chance(0.5) else (other, x)))


@operator
def function(site: Site, x: Value) -> Value:
    alpha = {"alpha": float(np.float32(site.rng.uniform(0.05, 0.9)))} if site.chance(0.5) else {}
    op = site.one("LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Elu", "Erf", "HardSwish", "PRelu")
    if site.chance(0.2):
        op = site.one("Softplus", "Softsign", "Sin", "Cos", "Atan", "Asinh", "Sinh", "Cosh")
    if op == "HardSwish":
        need(site.opset >= 14)
    if op == "PRelu":
        shape = site.one((1,), (x.shape[1],) + (1,) * (x.rank - 2)) if x.rank > 1 else (1,)
        return site.call(op, x, site.constant(site.rng.uniform(0.05, 0.9, shape)))
    if op == "HardSigmoid" and site.chance(0.5):
        alpha["beta"] = 0.3
    return site.call(op, x, **(alpha if op in ("LeakyRelu", "HardSigmoid", "Elu") else {}))


@operator
def gate(site: Site, x: Value) -> Value:
    """Two functions that begin alike, as in a recurrent cell, each times a value of its own."""
    share = site.call(site.one("Sigmoid", "Tanh"), x)
    number, one = site.constant(np.float32(site.rng.uniform(0.3, 2))), site.constant(np.float32(1))
    others = [site.floats(x.shape) for _ in range(2)]
    kept = site.call("Mul", site.call("Mul", share, number), others[0])
    return site.call("Add", kept, site.call("Mul", site.call("Sub", one, share), others[1]))


@operator
def softmax(site: Site, x: Value) -> Value:
    attrs = {"axis": site.axis(x.rank)} if site.chance(0.8) else {}
    made = site.call(site.one("Softmax", "Softmax", "LogSoftmax"), x, **attrs)
    if site.chance(0.2):  # torch's guard
        return site.call("Where", site.call("IsNaN", made), site.constant(0.0), made)
    return made


@operator
def layer_norm(site: Site, x: Value) -> Value:
    """Of the last dimensions, with numbers for each of their places or some that broadcast."""
    axis = site.axis(x.rank) if site.chance(0.8) else -1
    normed = x.shape[axis % x.rank :]
    need(site.opset >= 17 and math.prod(normed) >= 4)
    shape = site.one(normed, normed, normed, normed[-1:], (1,) * len(normed))
    numbers = [site.constant(site.rng.normal(0.5, 1, shape))]
    if site.chance(0.7):
        numbers.append(site.constant(site.rng.normal(0, 1, normed)))
    named = {} if axis == -1 and site.chance(0.5) else {"axis": axis}
    epsilon = {"epsilon": site.one(1e-6, 0.1)} if site.chance(0.5) else {}
    return site.call("LayerNormalization", x, *numbers, **named, **epsilon)


@operator
def spelled_norm(site: Site, x: Value) -> Value:
    """A norm by its parts, as exporters write it in opsets that have no such operator."""
    axis = site.axis(x.rank)
    need(site.opset < 18 and x.shape[axis] >= 4)

    def mean(value: Value) -> Value:
        return site.call("ReduceMean", value, axes=[axis])

    if site.chance(0.2):
        length = site.call("ReduceL2", x, axes=[axis])
        need(bool(length.array.min() > 0.01))
        return site.call("Div", x, site.call("Max", length, site.constant(1e-9)))
    deviations = site.call("Sub", x, mean(x)) if site.chance(0.5) else x
    two = site.constant(2.0)
    squares = site.call(*site.one(("Pow", deviations, two), ("Mul", deviations, deviations)))
    epsilon = site.constant(site.one(1e-6, 0.1))
    root = site.call("Sqrt", site.call("Add", mean(squares), epsilon))
    match site.one("quotient", "reciprocal", "one"):
        case "quotient":
            made = site.call("Div", deviations, root)
        case "reciprocal":
            made = site.call("Mul", deviations, site.call("Reciprocal", root))
        case _:
            one = site.call("Div", site.constant(1.0), root)
            made = site.call("Mul", one, deviations)
    along = [x.shape[axis] if dim == axis % x.rank else 1 for dim in range(x.rank)]
    if site.chance(0.8):
        made = site.call("Mul", made, site.constant(site.rng.normal(0.5, 1, along)))
    if site.chance(0.6):
        made = site.call("Add", site.constant(site.rng.normal(0, 1, along)), made)
    return made


@operator
def magnitude(site: Site, x: Value) -> Value:
    """The root of the sum of two squares, or the sum of two products."""
    other = site.floats(x.shape)
    if site.chance(0.5):
        two = site.constant(2.0)
        return site.call(
            "Sqrt", site.call("Add", site.call("Pow", x, two), site.call("Mul", other, other))
        )
    products = (site.call("Mul", each, site.floats(x.shape)) for each in (x, other))
    return site.call("Add", *products)


@operator
def group_norm(site: Site, x: Value) -> Value:
    """From opset 21 on with numbers for each channel, before with some for each group."""
    need(x.rank >= 3 and site.opset >= 18 and math.prod(x.shape[2:]) >= 4)
    groups = site.one(*(n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0))
    count = x.shape[1] if site.opset >= 21 else groups
    scale, bias = (site.constant(site.rng.normal(m, 1, count)) for m in (0.5, 0))
    epsilon = {"epsilon": site.one(1e-6, 0.1)} if site.chance(0.5) else {}
    return site.call("GroupNormalization", x, scale, bias, num_groups=groups, **epsilon)


@operator
def lp_norm(site: Site, x: Value) -> Value:
    axis = site.axis(x.rank)
    need(x.shape[axis] >= 3 and bool(np.abs(x.array).max(axis=axis).min() > 1e-3))
    return site.call("LpNormalization", x, axis=axis, p=2)


@operator
def instance_norm(site: Site, x: Value) -> Value:
    need(x.rank >= 3 and math.prod(x.shape[2:]) >= 4)
    count = x.shape[1]
    scale, bias = (site.constant(site.rng.normal(m, 1, count)) for m in (0.5, 0))
    epsilon = {"epsilon": site.one(1e-6, 0.1)} if site.chance(0.5) else {}
    return site.call("InstanceNormalization", x, scale, bias, **epsilon)


# --- Moves ---------------------------------------------------------------------------------------


@operator
def reshape(site: Site, x: Value) -> Value:
    match site.one("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"):
        case "Reshape":
            first = [0, -1] if x.rank > 1 else [-1]
            shape = site.one([-1], [1, -1], first, [*x.shape, 1])
            return site.call("Reshape", x, site.constant(shape, np.int64))
        case "Flatten":
            attrs = {"axis": site.axis(x.rank)} if site.chance(0.7) else {}
            return site.call("Flatten", x, **attrs)
        case "Transpose":
            perm = [int(a) for a in site.rng.permutation(x.rank)]
            return site.call("Transpose", x, perm=perm if site.chance(0.8) else None)
        case op:
            if op == "Squeeze":
                ones = [a for a, size in enumerate(x.shape) if size == 1]
                axes = [a - x.rank * site.chance(0.5) for a in ones]
                need(bool(axes))
            else:
                more = site.one(1, 1, 2)
                rank = x.rank + more
                need(rank <= 5)
                axes = [int(a) - rank * site.chance(0.5) for a in site.rng.permutation(rank)[:more]]
            if site.opset < 13:
                return site.call(op, x, axes=axes)
            return site.call(op, x, site.constant(axes, np.int64))


@operator
def slices(site: Site, x: Value) -> Value:
    axes = site.axes(x.rank)
    starts, ends, strides = [], [], []
    for axis in axes:
        size = x.shape[axis]
        step = site.one(1, 1, 2, -1)
        first, last = sorted(int(i) for i in site.rng.integers(0, size + 1, 2))
        if step < 0:
            starts.append(site.one(size - 1, -1))
            ends.append(site.one(-size - 1, -(2**31)))
        else:
            starts.append(first - size * site.chance(0.3))
            ends.append(site.one(last, 2**31 - 1, size + 3))
        strides.append(step)
    names = [site.constant(each, np.int64) for each in (starts, ends, axes, strides)]
    if all(s == 1 for s in strides) and site.chance(0.5):
        names.pop()
    return site.call("Slice", x, *names)


@operator
def split(site: Site, x: Value) -> Value:
    axis = site.axis(x.rank)
    size = x.shape[axis]
    need(size > 1)
    if site.opset >= 18 and site.chance(0.5):
        count = site.one(2, 3) if size > 2 else 2
        return site.add("Split", x, outputs=count, axis=axis, num_outputs=count)[0]
    first = int(site.rng.integers(1, size))
    parts = [first, size - first]
    if site.opset < 13:
        return site.add("Split", x, outputs=2, axis=axis, split=parts)[site.one(0, 1)]
    return site.add("Split", x, site.constant(parts, np.int64), outputs=2, axis=axis)[
        site.one(0, 1)
    ]


@operator
def concat(site: Site, x: Value) -> Value:
    others = [site.floats(x.shape) for _ in range(site.one(1, 2))]
    return site.call("Concat", x, *others, axis=site.axis(x.rank))


@operator
def pad(site: Site, x: Value) -> Value:
    attrs: dict[str, Any] = {}
    if site.chance(0.4):
        attrs["mode"] = site.one("constant", "constant", "edge", "reflect")
    axes = site.axes(x.rank) if site.opset >= 18 and site.chance(0.5) else None
    count = x.rank if axes is None else len(axes)
    pads = [int(p) for p in site.rng.integers(-1 if site.chance(0.2) else 0, 3, 2 * count)]
    if site.opset < 11:
        return site.call("Pad", x, pads=pads, **attrs)
    value = site.constant(np.float32(site.rng.normal())) if site.chance(0.5) else ""
    last = "" if axes is None else site.constant(axes, np.int64)
    return site.call("Pad", x, site.constant(pads, np.int64), value, last, **attrs)


@operator
def gather(site: Site, x: Value) -> Value:
    axis = site.axis(x.rank)
    size = x.shape[axis]
    indices = site.rng.integers(-size if site.opset >= 11 else 0, size, site.one((3,), (2, 2), ()))
    attrs = {"axis": axis} if axis or site.chance(0.5) else {}
    return site.call("Gather", x, site.constant(indices, np.int64), **attrs)


@operator
def embedding(site: Site, x: Value) -> Value:
    """Rows of a table, or of the value, by numbers from outside."""
    rows = int(site.rng.integers(2, 30))
    dtype = site.one(np.int32, np.int64)
    table = site.weights((rows, x.shape[-1]), None) if site.chance(0.7) else x
    axis = 0 if site.chance(0.7) else site.axis(table.rank)
    size = table.shape[axis]
    lowest = -size if site.opset >= 11 and site.chance(0.3) else 0
    ids = _given(site, site.rng.integers(lowest, size, site.one((3,), (1, 4))), dtype)
    if site.chance(0.3):
        ids = site.call("Cast", ids, to=site.one(6, 7))  # int32, int64
    rows_of = site.call("Gather", table, ids, axis=axis)
    need(rows_of.shape[-1:] == x.shape[-1:])
    return rows_of


@operator
def choice(site: Site, x: Value) -> Value:
    """A value or another one, or a number, by what is so."""
    condition = _condition(site, x)
    level = float(site.one(*x.array.reshape(-1)))
    other: Value | str = site.floats(x.shape) if site.chance(0.4) else site.constant(level)
    if isinstance(other, str) and site.chance(0.2):
        return site.call("Where", condition, other, site.constant(level + site.factor()))
    return site.call("Where", condition, *((x, other) if site.chance(0.5) else (other, x)))


def _condition(site: Site, x: Value) -> Value:
    """Bools that broadcast to a value, of integers or bools from outside."""
    dtype = site.one(np.bool_, np.int32, np.int64)
    shape = [site.one(size, size, 1) for size in x.shape][int(site.rng.integers(x.rank)) :]
    made = _given(
        site,
        site.rng.integers(0, 2, shape) if dtype is np.bool_ else site.rng.integers(-3, 4, shape),
        dtype,
    )
    if site.chance(0.2):
        places = site.rng.integers(0, shape[0], (*shape[:1], 1))
        made = site.call("GatherND", made, site.constant(places, np.int64))
    if dtype is not np.bool_ and site.chance(0.3):
        flags = {name: site.one(0, 1) for name in ("exclusive", "reverse") if site.chance(0.5)}
        axis = site.constant(site.axis(len(shape)), site.one(np.int32, np.int64))
        made = site.call("CumSum", made, axis, **flags)
    if dtype is not np.bool_ and site.chance(0.4):
        made = site.call("Cast", made, to=site.one(9, 6, 7))  # bool, int32, int64
    if made.array.dtype != np.bool_:
        number = site.constant(site.rng.integers(-2, 3), made.array.dtype)
        op = site.one("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
        made = site.call(op, *((made, number) if site.chance(0.6) else (number, made)))
    if site.chance(0.3):
        made = site.call("Not", made)
    if site.chance(0.4):
        other = _given(site, site.rng.integers(0, 2, x.shape), np.bool_)
        made = site.call(site.one("And", "Or", "Xor"), made, other)
    return made


def _given(site: Site, array: Any, dtype: Any) -> Value:
    """An input of integers or bools, as it is."""
    name = site.name("given")
    site.inputs[name] = np.asarray(array).astype(dtype)
    return Value(name, site.inputs[name])


@operator
def repeated(site: Site, x: Value) -> Value:
    if site.chance(0.5):
        return site.call("Tile", x, site.constant([site.one(1, 1, 2) for _ in x.shape], np.int64))
    shape = [site.one(size, 1) for size in x.shape]
    shape = [2, *shape] if site.chance(0.3) else shape[int(site.rng.integers(x.rank)) :]
    return site.call("Expand", x, site.constant(shape, np.int64))


@operator
def blocks(site: Site, x: Value) -> Value:
    need(x.rank == 4)
    if x.shape[1] % 4 == 0 and site.chance(0.7):
        mode = {"mode": site.one("DCR", "CRD")} if site.opset >= 11 and site.chance(0.6) else {}
        return site.call("DepthToSpace", x, blocksize=2, **mode)
    need(x.shape[2] % 2 == 0 == x.shape[3] % 2)
    return site.call("SpaceToDepth", x, blocksize=2)


@operator
def resize(site: Site, x: Value) -> Value:
    need(x.rank == 4)
    attrs: dict[str, Any] = {}
    if site.chance(0.8):
        attrs["mode"] = site.one("nearest", "nearest", "linear")
    scales = [1.0, 1.0, *(float(site.one(2, 2, 0.5, 1.5, 3, 0.7)) for _ in "HW")]
    if site.opset < 11:
        return site.call("Resize", x, site.constant(scales), **attrs)
    if site.chance(0.8):
        attrs["coordinate_transformation_mode"] = site.one(
            *("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        )
    if site.chance(0.7):
        attrs["nearest_mode"] = site.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    none = site.constant([]) if site.opset < 13 else ""
    if site.opset >= 18 and site.chance(0.3):
        attrs["axes"] = [2, -1]
        scales = scales[2:]
    if site.chance(0.5):
        return site.call("Resize", x, none, site.constant(scales), **attrs)
    size = [int(n * s) for n, s in zip(x.shape[-len(scales) :], scales, strict=True)]
    empty = site.constant([]) if site.opset < 13 else ""
    return site.call("Resize", x, none, empty, site.constant(size, np.int64), **attrs)


@operator
def same(site: Site, x: Value) -> Value:
    return site.call(site.one("Identity", "Dropout"), x)


# --- QOperators ----------------------------------------------------------------------------------


def _stored(site: Site, op: str, real: Array, *inputs: Value | str, **attrs: Any) -> Value:
    """The result of an operator on integers, of which ``real`` are about the numbers."""
    return _at(site, op, *site.grid(float(np.ptp(real)), float(real.min())), *inputs, **attrs)


def _at(site: Site, op: str, scale: float, zero: int, *inputs: Value | str, **attrs: Any) -> Value:
    pair = site.constant(scale), site.constant(zero, site.dtype)
    last = attrs.pop("last", None)
    first = attrs.pop("first", False)
    operands = (*pair, *inputs) if first else (*inputs, *pair)
    domain = "" if op in ("QLinearConv", "QLinearMatMul") else CONTRIB
    if last is not None:
        operands = (*operands, last)
    made = site.call(op, *operands, domain=domain, **attrs)
    return Value(made.name, made.array, scale, zero)


def real_of(value: Value) -> Array:
    return (value.array.astype(np.float64) - value.zero) * value.scale


def with_scale(site: Site, value: Value) -> tuple[Value | str, str, str]:
    return value, site.constant(value.scale), site.constant(value.zero, site.dtype)


def fixed(site: Site, shape: Sequence[int]) -> tuple[str, str, str, float]:
    """int8 or uint8 constants with a scale and a zero point."""
    stored = site.integers(shape)
    scale = float(np.float32(2.0 ** site.rng.uniform(-9, -6)))
    middle = 128 if site.dtype == "uint8" else 0
    names = site.constant(stored, site.dtype), site.constant(scale)
    return (*names, site.constant(middle, site.dtype), scale)


@qoperator
def qlinear_conv(site: Site, x: Value) -> Value:
    size, channels = _images(x, 3), x.shape[1]
    attrs = window(site, size)
    group = site.one(1, 1, channels)
    out = group * int(site.rng.integers(1, 4))
    *weight, scale = fixed(site, (out, channels // group, *attrs["kernel_shape"]))
    kernel = int(np.prod(attrs["kernel_shape"])) * channels // group
    spread = x.scale * scale * 128 * 90 * kernel**0.5
    bias = site.constant(site.integers((out,), "int16"), np.int32) if site.chance(0.5) else None
    y = (2 * spread / 255, int(np.iinfo(site.dtype).min + 128))
    return _at(
        site, "QLinearConv", *y, *with_scale(site, x), *weight, last=bias, group=group, **attrs
    )


@qoperator
def qlinear_matmul(site: Site, x: Value) -> Value:
    need(x.rank >= 2)
    *weight, scale = fixed(site, (x.shape[-1], int(site.rng.integers(2, 12))))
    spread = x.scale * scale * 128 * 90 * x.shape[-1] ** 0.5
    y = (2 * spread / 255, int(np.iinfo(site.dtype).min + 128))
    return _at(site, "QLinearMatMul", *y, *with_scale(site, x), *weight)


@qoperator
def qgemm(site: Site, x: Value) -> Value:
    need(x.rank == 2)
    turned_a, turned_b = site.chance(0.3), site.chance(0.5)
    inner, columns = x.shape[0 if turned_a else 1], int(site.rng.integers(2, 12))
    *weight, scale = fixed(site, (columns, inner) if turned_b else (inner, columns))
    alpha = site.factor() if site.chance(0.5) else 1.0
    attrs: dict[str, Any] = {"transA": int(turned_a), "transB": int(turned_b)}
    if alpha != 1 or site.chance(0.5):
        attrs["alpha"] = alpha
    spread = x.scale * scale * 128 * 90 * inner**0.5 * alpha
    y = (2 * spread / 255, int(np.iinfo(site.dtype).min + 128))
    bias = site.constant(site.integers((columns,), "int16"), np.int32) if site.chance(0.5) else ""
    return _at(site, "QGemm", *y, *with_scale(site, x), *weight, bias, **attrs)


@qoperator
def qlinear_binary(site: Site, x: Value) -> Value:
    op = site.one("QLinearAdd", "QLinearMul")
    kept = [1 if site.chance(0.3) else size for size in x.shape]
    other = site.input(x.shape if site.chance(0.6) else kept[int(site.rng.integers(len(kept))) :])
    pair = (x, other) if site.chance(0.5) else (other, x)
    combined = np.add if op == "QLinearAdd" else np.multiply
    real = combined(*map(real_of, pair))
    return _stored(site, op, real, *with_scale(site, pair[0]), *with_scale(site, pair[1]))


@qoperator
def qlinear_function(site: Site, x: Value) -> Value:
    op = site.one("QLinearLeakyRelu", "QLinearLeakyRelu", "QLinearSigmoid")
    real = real_of(x)
    if op == "QLinearSigmoid":
        return _stored(site, op, 1 / (1 + np.exp(-real)), *with_scale(site, x))
    attrs = {"alpha": 0.2} if site.chance(0.5) else {}
    slope = attrs.get("alpha", 0.01)
    return _stored(site, op, np.where(real > 0, real, slope * real), *with_scale(site, x), **attrs)


@qoperator
def qlinear_softmax(site: Site, x: Value) -> Value:
    attrs = {"opset": site.one(10, 12, 13), "axis": site.axis(x.rank)}
    if site.chance(0.2):
        del attrs["axis"]
    zero = int(np.iinfo(site.dtype).min)
    return _at(site, "QLinearSoftmax", 1 / 256, zero, *with_scale(site, x), **attrs)


@qoperator
def qlinear_pool(site: Site, x: Value) -> Value:
    need(x.rank == 4)
    last = site.chance(0.3)
    attrs: dict[str, Any] = {"channels_last": int(last)} if last or site.chance(0.3) else {}
    real = real_of(x)
    if site.chance(0.4):
        return _stored(site, "QLinearGlobalAveragePool", real / 4, *with_scale(site, x), **attrs)
    attrs |= window(site, x.shape[1:3] if last else x.shape[2:], dilated=False)
    if site.chance(0.3):
        attrs["ceil_mode"] = site.one(0, 1)
    if site.chance(0.4):
        attrs["count_include_pad"] = site.one(0, 1)
    return _stored(site, "QLinearAveragePool", real, *with_scale(site, x), **attrs)


@qoperator
def qlinear_concat(site: Site, x: Value) -> Value:
    other = site.input(x.shape)
    real = np.concatenate([real_of(x).reshape(-1), real_of(other).reshape(-1)])
    triples = (*with_scale(site, x), *with_scale(site, other))
    return _stored(site, "QLinearConcat", real, *triples, first=True, axis=site.axis(x.rank))


# --- Models --------------------------------------------------------------------------------------

SIZES = (
    ((2, 6), (8, 24)),
    ((1, 2), (3, 8), (5, 12)),
    ((1, 2), (2, 6), (4, 9), (4, 9)),
    ((1, 2), (4, 8), (4, 9), (4, 9)),
    ((1, 2), (2, 5), (2, 4), (3, 6), (3, 6)),
)


@dataclass(frozen=True)
class OnnxModel:
    """``integers`` is the model with a quantized result; ``floats`` ends in front of its last
    quantize, and is None for QOperators, which have no floats. ``scale`` and ``zero`` are the
    result's; ``bias_step`` is the step that a bias is rounded to."""

    integers: ModelProto
    floats: ModelProto | None
    inputs: dict[str, Array]
    operators: tuple[str, ...]
    scale: float
    zero: int
    bias_step: float


def random_onnx(seed: int) -> OnnxModel:
    """A model of one to four operators, or of one or two QOperators."""
    rng = np.random.default_rng(seed)
    for _ in range(TRIES):
        site = Site(rng, int(rng.choice(OPSETS)), str(rng.choice(["int8", "uint8"])))
        sizes = SIZES[int(rng.integers(len(SIZES)))]
        shape = [int(rng.integers(least, most + 1)) for least, most in sizes]
        made = (_of_integers if seed % 4 == 0 else _of_floats)(site, shape, seed)
        if made is not None:
            return made
    raise AssertionError(f"no model of seed {seed}")


def _as_it_is(site: Site, y: Value) -> Value:
    return y


def grown(
    site: Site,
    x: Value,
    names: Sequence[str],
    table: dict[str, Operator],
    after: Operator = _as_it_is,
) -> Value:
    for name in names:
        before = len(site.nodes)
        try:
            y = table[name](site, x)
        except Unfit:
            continue
        except Exception as error:  # of onnxruntime, onnx or numpy: such a node there is not
            if type(error).__module__.startswith("tests"):
                raise
            del site.nodes[before:]
            continue
        if 0 < y.array.size <= MOST and np.isfinite(y.array).all():
            x = after(site, y)
    return x


def _of_floats(site: Site, shape: Sequence[int], seed: int) -> OnnxModel | None:
    names = list(OPERATORS)
    chosen = [names[seed % len(names)], *site.rng.choice(names, site.one(0, 0, 1, 2, 3))]
    start = site.floats(shape)
    end = grown(site, start, chosen, OPERATORS)
    if end is start or not is_telling(end.array.astype(np.float64)):
        return None
    scale, zero = site.grid(float(np.ptp(end.array)), float(end.array.min()))
    floats = site.proto(site.nodes, site.inputs, [end.name], site.constants, {end.name: end.array})
    return _model(site, [_quantized(site, end, scale, zero)], floats)


def _quantized(site: Site, y: Value, scale: float, zero: int) -> Value:
    absent = zero == 0 and site.dtype == "uint8" and site.chance(0.5)
    pair = site.pair(scale, zero)
    made = site.call("QuantizeLinear", y, pair[0], "" if absent else pair[1])
    return Value(made.name, made.array, scale, zero)


def _of_integers(site: Site, shape: Sequence[int], seed: int) -> OnnxModel | None:
    names = list(QOPERATORS)
    chosen = [names[seed // 4 % len(names)], *site.rng.choice(names, site.one(0, 0, 1))]
    start = site.input(shape)
    end = grown(site, start, chosen, QOPERATORS)
    if end is start or np.unique(end.array).size < 20:
        return None
    return _model(site, [end], None)


def random_pairs(seed: int) -> OnnxModel:
    """A model of one to four operators with a pair behind each, as tools write files. All quantized
    values are results, in order."""
    rng = np.random.default_rng([seed, 1])
    names = list(OPERATORS)
    for _ in range(TRIES):
        dtype = str(rng.choice(["int8", "uint8"]))
        site = Site(rng, int(rng.choice(OPSETS)), dtype, in_pairs=True)
        sizes = SIZES[int(rng.integers(len(SIZES)))]
        start = site.input([int(rng.integers(least, most + 1)) for least, most in sizes])
        chosen = [names[seed % len(names)], *rng.choice(names, site.one(0, 1, 2, 3))]
        site.last = (start.scale, start.zero)
        grown(site, site.dequantized(start), chosen, OPERATORS, _paired)
        if site.results and np.unique(site.results[-1].array).size >= 20:
            site.nodes.pop()  # dequantizes the last result
            made = _model(site, site.results, None)
            if made is not None:
                return made
    raise AssertionError(f"no model of seed {seed}")


def random_float_ends(seed: int) -> OnnxModel:
    """A model that only moves what it dequantizes."""
    rng = np.random.default_rng([seed, 2])
    moves = ("reshape", "slices", "split", "concat", "repeated", "blocks")
    for _ in range(TRIES):
        site = Site(rng, int(rng.choice(OPSETS)), str(rng.choice(["int8", "uint8"])))
        sizes = SIZES[int(rng.integers(len(SIZES)))]
        start = site.floats([int(rng.integers(least, most + 1)) for least, most in sizes])
        chosen = [moves[seed % len(moves)], *rng.choice(moves, site.one(0, 1, 2, 3))]
        end = grown(site, start, chosen, OPERATORS)
        made = _model(site, [end], None) if end is not start else None
        if made is not None:
            return made
    raise AssertionError(f"no model of seed {seed}")


def _paired(site: Site, y: Value) -> Value:
    """Quantized at a grid of its own or at that of the value before, as it is of what only moves,
    and dequantized."""
    grid = site.grid(float(np.ptp(y.array)), float(y.array.min()))
    site.last = site.one(grid, grid, site.last)
    site.results.append(_quantized(site, y, *site.last))
    return site.dequantized(site.results[-1])


def _model(site: Site, results: Sequence[Value], floats: ModelProto | None) -> OnnxModel | None:
    types = {y.name: y.array for y in results}
    proto = site.proto(site.nodes, site.inputs, list(types), site.constants, types)
    used = {name for node in proto.graph.node for name in node.input}
    inputs = {name: array for name, array in site.inputs.items() if name in used}
    for each in (proto, *([floats] if floats else [])):
        kept = [value for value in each.graph.input if value.name in inputs]
        del each.graph.input[:]
        each.graph.input.extend(kept)
    try:
        run(proto, inputs)
    except Exception:  # what is inferred of the whole is not what each operator made
        return None
    edges = ("DequantizeLinear", "QuantizeLinear", "Constant")
    operators = tuple(n.op_type for n in proto.graph.node if n.op_type not in edges)
    bias_step = site.steps["x"] * site.steps["w"] * site.has_bias
    last = results[-1]
    return OnnxModel(proto, floats, inputs, operators, last.scale, last.zero, bias_step)


def write(file: Path, model: OnnxModel, *, is_open: bool) -> str:
    """The shapes to ask for: of a model that ``is_open`` the file leaves the batch to its users."""
    proto = ModelProto()
    proto.CopyFrom(model.integers)
    if is_open:
        for number, value in enumerate(proto.graph.input):
            batch = value.type.tensor_type.shape.dim[0]
            if number % 2:
                batch.dim_value = -1
            else:
                # One name has one size.
                batch.dim_param = f"batch_of_{model.inputs[value.name].shape[0]}"
        proto.graph.output[0].type.tensor_type.ClearField("shape")
    file.write_bytes(proto.SerializeToString())
    shapes = {name: ",".join(map(str, array.shape)) for name, array in model.inputs.items()}
    return " ".join(f"{name}:[{shape}]" for name, shape in shapes.items()) if is_open else ""
