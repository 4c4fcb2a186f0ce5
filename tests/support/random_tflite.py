"""Random .tflite files of int8 operators, written with the schema's package."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.oracle import Array

Rng = np.random.Generator
_TYPES = schema.TensorType
SOFTMAX, LOGISTIC, TANH = (1 / 256, -128), (1 / 256, -128), (1 / 128, 0)


@dataclass(frozen=True)
class Value:
    """A tensor of the file: its number, shape and quantization."""

    index: int
    shape: tuple[int, ...]
    scale: float
    zero: int

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Writer:
    """A file that grows. ``kinds`` are the operators that it has."""

    rng: Rng
    model: Any = field(default_factory=schema.ModelT)
    graph: Any = field(default_factory=schema.SubGraphT)
    kinds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model.version, self.model.buffers = 3, [schema.BufferT()]
        self.model.operatorCodes, self.model.subgraphs = [], [self.graph]
        self.graph.tensors, self.graph.operators = [], []
        self.graph.inputs, self.graph.outputs = [], []

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "INT8",
        data: Array | None = None,
        scales: Any = (),
        zeros: Any = (),
        axis: int = 0,
    ) -> int:
        tensor = schema.TensorT()
        tensor.shape, tensor.type = list(shape), getattr(_TYPES, dtype)
        tensor.name, tensor.buffer = f"t{len(self.graph.tensors)}", 0
        if data is not None:
            tensor.buffer = len(self.model.buffers)
            self.model.buffers.append(schema.BufferT())
            self.model.buffers[-1].data = np.frombuffer(data.tobytes(), np.uint8)
        if np.size(scales):
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = np.array(scales, np.float32).reshape(-1)
            tensor.quantization.zeroPoint = np.array(zeros, np.int64).reshape(-1)
            tensor.quantization.quantizedDimension = axis
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def numbers(self, values: Any, dtype: str = "int32") -> int:
        array = np.array(values, dtype)
        return self.tensor(array.shape, dtype.upper(), array)

    def value(self, shape: Sequence[int], scale: float = 0, zero: int | None = None) -> Value:
        scale = scale or float(np.exp(self.rng.uniform(-4, -1)))
        zero = int(self.rng.integers(-100, 100)) if zero is None else zero
        index = self.tensor(shape, "INT8", None, [scale], [zero])
        scale = float(np.float32(scale))
        return Value(index, tuple(map(int, shape)), scale, zero)

    def constant(self, shape: Sequence[int], scale: float = 0, zero: int | None = None) -> Value:
        data = self.rng.integers(-128, 128, shape).astype(np.int8)
        scale = scale or float(np.exp(self.rng.uniform(-4, -1)))
        zero = int(self.rng.integers(-100, 100)) if zero is None else zero
        return Value(self.tensor(shape, "INT8", data, [scale], [zero]), tuple(shape), scale, zero)

    def like(self, value: Value, shape: Sequence[int]) -> Value:
        return self.value(shape, value.scale, value.zero)

    def add(
        self,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        table: str = "",
        **fields: Any,
    ) -> None:
        number = getattr(schema.BuiltinOperator, kind)
        code, operator = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = number
        # Some files have the number in the new field alone.
        code.deprecatedBuiltinCode = min(number, 127) if self.rng.integers(4) else 0
        self.model.operatorCodes.append(code)
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if table:
            options = getattr(schema, f"{table}OptionsT")()
            for name, value in fields.items():
                assert hasattr(options, name), (table, name)
                setattr(options, name, value)
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{table}Options")
            operator.builtinOptions = options
        self.graph.operators.append(operator)
        self.kinds.append(kind)

    def content(self) -> bytes:
        builder = flatbuffers.Builder(4096)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    # --- What operators choose ---

    def activation(self) -> int:
        return int(self.rng.choice([0, 0, 0, 1, 2, 3]))

    def window(self, value: Value, most: int = 3) -> tuple[int, int, int, int]:
        """Height, width, and strides, which fit an image."""
        height, width = (int(self.rng.integers(1, min(most, n) + 1)) for n in value.shape[1:3])
        return height, width, *(int(n) for n in self.rng.integers(1, 3, 2))  # type: ignore[return-value]

    def axis(self, value: Value) -> int:
        return int(self.rng.integers(value.rank))


def _extent(size: int, taps: int, stride: int, padding: int) -> int:
    return -(-size // stride) if padding == 0 else (size - taps) // stride + 1


# Of which nothing was compared with LiteRT's integers: they are refused.
RARE = (
    "sum_of_several",
    "log_softmax",
)
ENDS = ("places",)  # of which the results are no values: nothing reads them
Make = Callable[[Writer, Value], Value | None]
OPERATORS: dict[str, Make] = {}


def makes(make: Make) -> Make:
    """An operator of the random files; it returns None for a value that it does not take."""
    OPERATORS[make.__name__] = make
    return make


def _image(value: Value) -> bool:
    return value.rank == 4 and min(value.shape) > 0


def _bias(w: Writer, count: int, scales: Any) -> int:
    data = w.rng.integers(-3000, 3000, count).astype(np.int32)
    return w.tensor([count], "INT32", data, scales, np.zeros(np.size(scales)))


def _weights(w: Writer, shape: Sequence[int], axis: int, apart: bool) -> tuple[int, Array]:
    data = w.rng.integers(-127, 128, shape).astype(np.int8)
    scales = np.exp(w.rng.uniform(-6, -4, shape[axis] if apart else 1)).astype(np.float32)
    zeros = np.zeros(scales.size)
    return w.tensor(shape, "INT8", data, scales, zeros, axis if apart else 0), scales


@makes
def conv2d(w: Writer, x: Value) -> Value | None:
    if not _image(x):
        return None
    height, width, down, right = w.window(x)
    padding, channels = int(w.rng.integers(2)), int(w.rng.integers(1, 12))
    dilation = [int(n) for n in w.rng.integers(1, 3, 2)] if down == right == 1 else [1, 1]
    taps = [(n - 1) * d + 1 for n, d in zip((height, width), dilation, strict=True)]
    if padding and any(t > n for t, n in zip(taps, x.shape[1:3], strict=True)):
        return None
    groups = 2 if x.shape[3] % 2 == 0 and w.rng.integers(6) == 0 else 1
    channels *= groups
    weights, scales = _weights(
        w, (channels, height, width, x.shape[3] // groups), 0, bool(w.rng.integers(4))
    )
    image = [
        _extent(n, t, s, padding) for n, t, s in zip(x.shape[1:3], taps, (down, right), strict=True)
    ]
    out = w.value((x.shape[0], *image, channels))
    inputs = [x.index, weights]
    if w.rng.integers(5):
        inputs.append(_bias(w, channels, scales * np.float32(x.scale)))
    w.add(
        "CONV_2D",
        inputs,
        [out.index],
        "Conv2D",
        padding=padding,
        strideH=down,
        strideW=right,
        dilationHFactor=dilation[0],
        dilationWFactor=dilation[1],
        fusedActivationFunction=w.activation(),
    )
    return out


@makes
def depthwise(w: Writer, x: Value) -> Value | None:
    if not _image(x):
        return None
    height, width, down, right = w.window(x)
    padding, times = int(w.rng.integers(2)), int(w.rng.choice([1, 1, 2]))
    channels = x.shape[3] * times
    weights, scales = _weights(w, (1, height, width, channels), 3, bool(w.rng.integers(4)))
    image = [
        _extent(n, t, s, padding)
        for n, t, s in zip(x.shape[1:3], (height, width), (down, right), strict=True)
    ]
    out = w.value((x.shape[0], *image, channels))
    bias = _bias(w, channels, scales * np.float32(x.scale))
    w.add(
        "DEPTHWISE_CONV_2D",
        [x.index, weights, bias],
        [out.index],
        "DepthwiseConv2D",
        padding=padding,
        strideH=down,
        strideW=right,
        depthMultiplier=times,
        dilationHFactor=1,
        dilationWFactor=1,
        fusedActivationFunction=w.activation(),
    )
    return out


def _batch_of(w: Writer, x: Value) -> tuple[int, int]:
    """The shape of a value as a tensor, and the batch in it."""
    shape, first = w.tensor([x.rank], "INT32"), w.tensor([], "INT32")
    w.add("SHAPE", [x.index], [shape], "Shape", outType=_TYPES.INT32)
    ends = [w.numbers([0]), w.numbers([1]), w.numbers([1])]
    w.add("STRIDED_SLICE", [shape, *ends], [first], "StridedSlice", shrinkAxisMask=1)
    return shape, first


@makes
def transposed(w: Writer, x: Value) -> Value | None:
    if not _image(x) or math.prod(x.shape) > 2000:
        return None
    height, width, down, right = w.window(x)
    padding, channels = int(w.rng.integers(2)), int(w.rng.integers(1, 8))
    weights, scales = _weights(w, (channels, height, width, x.shape[3]), 0, bool(w.rng.integers(4)))
    image = [
        n * s if padding == 0 else (n - 1) * s + t + int(w.rng.integers(2)) * (s > 1 and t >= s)
        for n, t, s in zip(x.shape[1:3], (height, width), (down, right), strict=True)
    ]
    shape = (x.shape[0], *image, channels)
    out = w.value(shape)
    inputs = [w.numbers(shape), weights, x.index]
    if w.rng.integers(3) == 0:  # of a batch that the file leaves open
        inputs[0] = w.tensor([4], "INT32")
        sizes = [_batch_of(w, x)[1], *(w.numbers(size) for size in shape[1:])]
        w.add("PACK", sizes, [inputs[0]], "Pack", axis=0, valuesCount=4)
    if w.rng.integers(2):
        inputs.append(_bias(w, channels, scales * np.float32(x.scale)))
    w.add(
        "TRANSPOSE_CONV",
        inputs,
        [out.index],
        "TransposeConv",
        padding=padding,
        strideH=down,
        strideW=right,
        fusedActivationFunction=w.activation(),
    )
    return out


@makes
def fully_connected(w: Writer, x: Value) -> Value | None:
    units, depth = int(w.rng.integers(1, 12)), x.shape[-1] if x.rank else 0
    keep = bool(w.rng.integers(2))
    if not x.rank or math.prod(x.shape) > 5000:
        return None
    if not keep and x.rank != 2:
        depth = math.prod(x.shape[1:]) if w.rng.integers(2) else depth
    weights, scales = _weights(w, (units, depth), 0, bool(w.rng.integers(2)))
    rows = math.prod(x.shape) // depth
    out = w.value((*x.shape[:-1], units) if keep else (rows, units))
    if scales.size == 1 and w.rng.integers(3) == 0:  # of a zero point, which dense layers may have
        weights = w.constant((units, depth), float(scales[0])).index
    inputs = [x.index, weights]
    inputs.append(_bias(w, units, scales * np.float32(x.scale)) if w.rng.integers(4) else -1)
    w.add(
        "FULLY_CONNECTED",
        inputs,
        [out.index],
        "FullyConnected",
        keepNumDims=keep,
        fusedActivationFunction=w.activation(),
    )
    return out


@makes
def pool(w: Writer, x: Value) -> Value | None:
    if not _image(x):
        return None
    height, width, down, right = w.window(x, 4)
    padding = int(w.rng.integers(2))
    image = [
        _extent(n, t, s, padding)
        for n, t, s in zip(x.shape[1:3], (height, width), (down, right), strict=True)
    ]
    out = w.like(x, (x.shape[0], *image, x.shape[3]))
    w.add(
        str(w.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"])),
        [x.index],
        [out.index],
        "Pool2D",
        padding=padding,
        strideH=down,
        strideW=right,
        filterHeight=height,
        filterWidth=width,
        fusedActivationFunction=w.activation(),
    )
    return out


@makes
def arithmetic(w: Writer, x: Value) -> Value | None:
    kind = str(w.rng.choice(["ADD", "SUB", "MUL"]))
    shapes = [x.shape, (*(1,) * (x.rank - 1), *x.shape[-1:]), (1,), x.shape[-1:], ()]
    other = w.constant(shapes[int(w.rng.integers(len(shapes)))])
    if w.rng.integers(3) == 0:
        other = x
    out = w.value(x.shape)
    pair = [x.index, other.index]
    table = kind.title()
    w.add(
        kind,
        pair[:: int(w.rng.choice([1, -1]))],
        [out.index],
        table,
        fusedActivationFunction=w.activation(),
    )
    return out


@makes
def sum_of_several(w: Writer, x: Value) -> Value | None:
    others = [w.constant(x.shape).index, x.index][: int(w.rng.integers(1, 3))]
    out = w.value(x.shape)
    w.add("ADD_N", [x.index, *others], [out.index])
    return out


@makes
def squared_difference(w: Writer, x: Value) -> Value | None:
    other = w.constant(x.shape if w.rng.integers(2) else x.shape[-1:])
    least = 4 * max(x.scale, other.scale) ** 2 / 2**14  # which the kernel demands
    out = w.value(x.shape, max(0, least * 1.01) * float(w.rng.choice([1, 10, 1000, 0])))
    inputs = [x.index, x.index if w.rng.integers(8) == 0 else other.index]
    w.add("SQUARED_DIFFERENCE", inputs[:: int(w.rng.choice([1, -1]))], [out.index])
    return out


@makes
def extremes(w: Writer, x: Value) -> Value | None:
    kind = str(w.rng.choice(["MAXIMUM", "MINIMUM"]))
    other = w.constant(x.shape if w.rng.integers(2) else (1,), x.scale, x.zero)
    out = w.like(x, x.shape)
    w.add(kind, [x.index, other.index], [out.index], "MaximumMinimum")
    return out


@makes
def concatenation(w: Writer, x: Value) -> Value | None:
    if not x.rank:
        return None
    axis = w.axis(x)
    other = w.constant(x.shape, x.scale, x.zero)
    shape = [n * 3 if d == axis else n for d, n in enumerate(x.shape)]
    out = w.like(x, shape)
    w.add(
        "CONCATENATION",
        [x.index, other.index, x.index],
        [out.index],
        "Concatenation",
        axis=axis - int(w.rng.choice([0, x.rank])),
        fusedActivationFunction=0,
    )
    return out


@makes
def split(w: Writer, x: Value) -> Value | None:
    axis = w.axis(x) if x.rank else 0
    if not x.rank or x.shape[axis] < 2:
        return None
    first = int(w.rng.integers(1, x.shape[axis]))
    sizes = [first, x.shape[axis] - first]
    if sizes[0] == sizes[1]:
        parts = [w.like(x, [n if d == axis else m for d, m in enumerate(x.shape)]) for n in sizes]
        indices = [part.index for part in parts]
        w.add("SPLIT", [w.numbers(axis), x.index], indices, "Split", numSplits=2)
        return parts[int(w.rng.integers(2))]
    parts = [w.like(x, [n if d == axis else m for d, m in enumerate(x.shape)]) for n in sizes]
    if w.rng.integers(2):
        sizes[int(w.rng.integers(2))] = -1
    inputs = [x.index, w.numbers(sizes), w.numbers(axis)]
    w.add("SPLIT_V", inputs, [part.index for part in parts], "SplitV", numSplits=2)
    return parts[int(w.rng.integers(2))]


@makes
def pack(w: Writer, x: Value) -> Value | None:
    if x.rank > 3:
        return None
    axis = int(w.rng.integers(x.rank + 1))
    out = w.like(x, (*x.shape[:axis], 2, *x.shape[axis:]))
    w.add("PACK", [x.index, x.index], [out.index], "Pack", axis=axis, valuesCount=2)
    return out


@makes
def unpack(w: Writer, x: Value) -> Value | None:
    axis = w.axis(x) if x.rank else 0
    if x.rank < 2 or x.shape[axis] > 5:
        return None
    shape = [n for d, n in enumerate(x.shape) if d != axis]
    parts = [w.like(x, shape) for _ in range(x.shape[axis])]
    w.add("UNPACK", [x.index], [p.index for p in parts], "Unpack", axis=axis, num=len(parts))
    return parts[int(w.rng.integers(len(parts)))]


@makes
def reshape(w: Writer, x: Value) -> Value | None:
    count = math.prod(x.shape)
    first = int(w.rng.choice([n for n in range(1, 9) if count % n == 0]))
    shape = (first, count // first)
    out = w.like(x, shape)
    asked = [first, -1] if w.rng.integers(2) else list(shape)
    w.add("RESHAPE", [x.index, w.numbers(asked)], [out.index], "Reshape", newShape=asked)
    return out


@makes
def dims(w: Writer, x: Value) -> Value | None:
    ones = [d for d, n in enumerate(x.shape) if n == 1]
    if ones and w.rng.integers(2):
        out = w.like(x, [n for d, n in enumerate(x.shape) if d != ones[0]])
        w.add("SQUEEZE", [x.index], [out.index], "Squeeze", squeezeDims=[ones[0]])
        return out
    if x.rank > 3:
        return None
    axis = int(w.rng.integers(x.rank + 1))
    out = w.like(x, (*x.shape[:axis], 1, *x.shape[axis:]))
    w.add("EXPAND_DIMS", [x.index, w.numbers(axis)], [out.index])
    return out


@makes
def pad(w: Writer, x: Value) -> Value | None:
    if not x.rank or x.rank > 4:
        return None
    kind = str(w.rng.choice(["PAD", "PADV2", "MIRROR_PAD"]))
    widths = w.rng.integers(0, 3, (x.rank, 2))
    fields: dict[str, Any] = {}
    if kind == "MIRROR_PAD":
        mode = int(w.rng.integers(2))
        widths = np.minimum(widths, np.array(x.shape)[:, None] - 1 + mode)
        fields = {"table": "MirrorPad", "mode": mode}
    out = w.like(x, [n + int(a + b) for n, (a, b) in zip(x.shape, widths, strict=True)])
    inputs = [x.index, w.numbers(widths)]
    if kind == "PADV2":
        inputs.append(w.constant((1,), x.scale, x.zero).index)
    w.add(kind, inputs, [out.index], **fields)
    return out


@makes
def transpose(w: Writer, x: Value) -> Value | None:
    if not x.rank:  # of which LiteRT's kernel leaves the result unset
        return None
    order = w.rng.permutation(x.rank)
    out = w.like(x, [x.shape[d] for d in order])
    w.add("TRANSPOSE", [x.index, w.numbers(order)], [out.index])
    return out


@makes
def part(w: Writer, x: Value) -> Value | None:
    if not x.rank or x.rank > 4:
        return None
    begin = [int(w.rng.integers(n)) for n in x.shape]
    size = [int(w.rng.integers(1, n - b + 1)) for n, b in zip(x.shape, begin, strict=True)]
    if w.rng.integers(2):
        out = w.like(x, size)
        open_end = [-1 if n == b + s else s for n, b, s in zip(x.shape, begin, size, strict=True)]
        w.add("SLICE", [x.index, w.numbers(begin), w.numbers(open_end)], [out.index])
        return out
    steps = [int(s) for s in w.rng.choice([1, 1, 1, 2, -1], x.rank)]
    end = [
        b + s if step > 0 else b - x.shape[d] - 1
        for d, (b, s, step) in enumerate(zip(begin, size, steps, strict=True))
    ]
    masks = [int(w.rng.integers(1 << x.rank)) * int(w.rng.integers(2)) for _ in range(2)]
    shrink = int(w.rng.integers(1 << x.rank)) * int(w.rng.integers(3) == 0)
    shape = []
    for d, n in enumerate(x.shape):
        low = None if masks[0] >> d & 1 else begin[d]
        high = None if masks[1] >> d & 1 else end[d]
        if shrink >> d & 1:
            steps[d] = 1
            continue
        if steps[d] < 0 and not masks[1] >> d & 1:
            high = end[d] = -n - 1
        shape.append(len(range(*slice(low, high, steps[d]).indices(n))))
    if 0 in shape:
        return None
    out = w.like(x, shape)
    w.add(
        "STRIDED_SLICE",
        [x.index, w.numbers(begin), w.numbers(end), w.numbers(steps)],
        [out.index],
        "StridedSlice",
        beginMask=masks[0],
        endMask=masks[1],
        shrinkAxisMask=shrink,
    )
    return out


@makes
def gather(w: Writer, x: Value) -> Value | None:
    if not x.rank or x.rank > 3:
        return None
    axis = w.axis(x)
    places = w.rng.integers(0, x.shape[axis], int(w.rng.integers(1, 6)))
    out = w.like(x, (*x.shape[:axis], len(places), *x.shape[axis + 1 :]))
    w.add("GATHER", [x.index, w.numbers(places)], [out.index], "Gather", axis=axis, batchDims=0)
    return out


@makes
def lookup(w: Writer, x: Value) -> Value | None:
    """Rows of a table by the places of the largest values."""
    if not x.rank or x.rank > 3:
        return None
    axis = w.axis(x)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    dtype = str(w.rng.choice(["INT32", "INT64"]))
    numbers = w.tensor(shape, dtype)
    kind = {"outputType": getattr(_TYPES, dtype)}
    w.add("ARG_MAX", [x.index, w.numbers(axis)], [numbers], "ArgMax", **kind)
    if dtype == "INT32" and w.rng.integers(3) == 0:
        numbers = _counted_from_the_end(w, numbers, shape, x.shape[axis])
    table = w.constant((x.shape[axis], int(w.rng.integers(2, 9))))
    out = w.like(table, (*shape, table.shape[1]))
    if len(shape) == 1 and dtype == "INT32" and w.rng.integers(2):
        w.add("EMBEDDING_LOOKUP", [numbers, table.index], [out.index])
    else:
        w.add("GATHER", [table.index, numbers], [out.index], "Gather", axis=0, batchDims=0)
    return out


def _counted_from_the_end(w: Writer, numbers: int, shape: Sequence[int], size: int) -> int:
    """As Keras looks numbers up that may be below 0."""
    if w.rng.integers(2):
        before, numbers = numbers, w.tensor(shape, "INT32")
        w.add("SUB", [before, w.numbers(size)], [numbers], "Sub")
    below = w.tensor(shape, "BOOL")
    wrapped, chosen = (w.tensor(shape, "INT32") for _ in range(2))
    w.add("LESS", [numbers, w.numbers(0)], [below], "Less")
    w.add("ADD", [numbers, w.numbers(size)], [wrapped], "Add")
    w.add("SELECT_V2", [below, wrapped, numbers], [chosen], "SelectV2")
    return chosen


@makes
def choice(w: Writer, x: Value) -> Value | None:
    """A value or another one, by where the largest values are."""
    if not 0 < x.rank < 5:
        return None
    axis, dtype = w.axis(x), str(w.rng.choice(["INT32", "INT64"]))
    shape = [*x.shape[:axis], *x.shape[axis + 1 :]]
    places, kept = w.tensor(shape, dtype), [1 if d == axis else n for d, n in enumerate(x.shape)]
    kind = {"outputType": getattr(_TYPES, dtype)}
    w.add("ARG_MAX", [x.index, w.numbers(axis)], [places], "ArgMax", **kind)
    numbers = w.tensor(kept, dtype)
    w.add("RESHAPE", [places, w.numbers(kept)], [numbers])
    if w.rng.integers(3) == 0:
        sums = w.tensor(kept, dtype)
        flags = {name: bool(w.rng.integers(2)) for name in ("exclusive", "reverse")}
        w.add("CUMSUM", [numbers, w.numbers(w.axis(x))], [sums], "Cumsum", **flags)
        numbers = sums
    compared = ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"]
    bools = []
    for _ in range(int(w.rng.integers(1, 3))):
        level = w.numbers(int(w.rng.integers(x.shape[axis] + 1)), dtype.lower())
        bools.append(w.tensor(kept, "BOOL"))
        table = str(w.rng.choice(compared))
        kind = re.sub("(?<=[a-z])(?=[A-Z])", "_", table).upper()
        w.add(kind, [numbers, level][:: int(w.rng.choice([1, -1]))], [bools[-1]], table)
    if len(bools) == 2:
        both, table = w.tensor(kept, "BOOL"), str(w.rng.choice(["And", "Or"]))
        w.add(f"LOGICAL_{table.upper()}", bools, [both], f"Logical{table}")
        bools = [both]
    if w.rng.integers(2):
        bools.append(w.tensor(kept, "BOOL"))
        w.add("LOGICAL_NOT", bools[:1], [bools[-1]], "LogicalNot")
    other, out = w.constant(x.shape, x.scale, x.zero), w.like(x, x.shape)
    pair = [x.index, other.index][:: int(w.rng.choice([1, -1]))]
    w.add("SELECT_V2", [bools[-1], *pair], [out.index], "SelectV2")
    return out


@makes
def tile(w: Writer, x: Value) -> Value | None:
    if not x.rank:
        return None
    times = w.rng.integers(1, 3, x.rank)
    out = w.like(x, [int(n * t) for n, t in zip(x.shape, times, strict=True)])
    w.add("TILE", [x.index, w.numbers(times)], [out.index])
    return out


@makes
def reverse(w: Writer, x: Value) -> Value | None:
    if not x.rank:
        return None
    out = w.like(x, x.shape)
    w.add("REVERSE_V2", [x.index, w.numbers([w.axis(x)])], [out.index])
    return out


@makes
def resize(w: Writer, x: Value) -> Value | None:
    if not _image(x):
        return None
    size = [int(n) for n in w.rng.integers(1, 12, 2)]
    if w.rng.integers(2):
        size = [2 * n for n in x.shape[1:3]]
    name = str(w.rng.choice(["Bilinear", "NearestNeighbor"]))
    kind = {"Bilinear": "RESIZE_BILINEAR", "NearestNeighbor": "RESIZE_NEAREST_NEIGHBOR"}[name]
    corners, centres = [(False, False), (True, False), (False, True)][int(w.rng.integers(3))]
    out = w.like(x, (x.shape[0], *size, x.shape[3]))
    w.add(
        kind,
        [x.index, w.numbers(size)],
        [out.index],
        f"Resize{name}",
        alignCorners=corners,
        halfPixelCenters=centres,
    )
    return out


@makes
def blocks(w: Writer, x: Value) -> Value | None:
    if not _image(x):
        return None
    n, h, width, c = x.shape
    if h % 2 == width % 2 == 0 and w.rng.integers(2):
        out = w.like(x, (n, h // 2, width // 2, 4 * c))
        w.add("SPACE_TO_DEPTH", [x.index], [out.index], "SpaceToDepth", blockSize=2)
        return out
    if c % 4:
        return None
    out = w.like(x, (n, 2 * h, 2 * width, c // 4))
    w.add("DEPTH_TO_SPACE", [x.index], [out.index], "DepthToSpace", blockSize=2)
    return out


@makes
def reduced(w: Writer, x: Value) -> Value | None:
    if not x.rank or x.rank > 4:
        return None
    kind = str(w.rng.choice(["MEAN", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM"]))
    count = int(w.rng.integers(1, x.rank + 1))
    axes = sorted(int(d) for d in w.rng.permutation(x.rank)[:count])
    keep = bool(w.rng.integers(2))
    shape = [1 if d in axes else n for d, n in enumerate(x.shape) if keep or d not in axes]
    out = w.value(shape) if kind in ("MEAN", "SUM") and w.rng.integers(3) else w.like(x, shape)
    given = [axis - x.rank * int(w.rng.integers(2)) for axis in axes]
    w.add(kind, [x.index, w.numbers(given)], [out.index], "Reducer", keepDims=keep)
    return out


@makes
def places(w: Writer, x: Value) -> Value | None:
    if not x.rank or x.rank > 4:
        return None
    kind, axis = str(w.rng.choice(["Max", "Min"])), w.axis(x)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    dtype = str(w.rng.choice(["INT32", "INT64"]))
    out = w.tensor(shape, dtype)
    given = w.numbers(axis - x.rank * int(w.rng.integers(2)))
    fields = {"outputType": getattr(_TYPES, dtype)}
    w.add(f"ARG_{kind.upper()}", [x.index, given], [out], f"Arg{kind}", **fields)
    return Value(out, shape, 0, 0)


@makes
def batches(w: Writer, x: Value) -> Value | None:
    """Images apart, and most often together again, as TensorFlow writes a dilated convolution."""
    if x.rank not in (3, 4):
        return None
    count = x.rank - 2
    block = [int(n) for n in w.rng.integers(1, 4, count)]
    around = w.rng.integers(0, 3, (count, 2))
    inner = [n + int(a.sum()) for n, a in zip(x.shape[1:-1], around, strict=True)]
    around[:, 1] += [-n % b for n, b in zip(inner, block, strict=True)]
    sizes = [n + int(a.sum()) for n, a in zip(x.shape[1:-1], around, strict=True)]
    small = [n // b for n, b in zip(sizes, block, strict=True)]
    apart = w.like(x, (x.shape[0] * math.prod(block), *small, x.shape[-1]))
    w.add("SPACE_TO_BATCH_ND", [x.index, w.numbers(block), w.numbers(around)], [apart.index])
    if w.rng.integers(4) == 0:
        return apart
    value = OPERATORS["conv2d"](w, apart) if w.rng.integers(2) else apart
    value = value or apart
    sizes = [n * b for n, b in zip(value.shape[1:-1], block, strict=True)]
    cut = np.array([[int(w.rng.integers(0, (n + 1) // 2)) for _ in range(2)] for n in sizes])
    left = [n - int(c.sum()) for n, c in zip(sizes, cut, strict=True)]
    together = w.like(value, (x.shape[0], *left, value.shape[-1]))
    w.add("BATCH_TO_SPACE_ND", [value.index, w.numbers(block), w.numbers(cut)], [together.index])
    if x.shape[0] == 1 and w.rng.integers(3) == 0:
        for each in (apart, value):
            _left_open(w, each, (1, *each.shape[1:]))
    return together


@makes
def softmax(w: Writer, x: Value) -> Value | None:
    if not x.rank or x.scale > 0.1:  # LiteRT's kernel aborts for large ones
        return None
    out = w.value(x.shape, *SOFTMAX)
    beta = float(w.rng.choice([1, 1, 0.5, 0.7]))
    w.add("SOFTMAX", [x.index], [out.index], "Softmax", beta=beta)
    return out


@makes
def l2_norm(w: Writer, x: Value) -> Value | None:
    if not x.rank:
        return None
    out = w.value(x.shape, *TANH)
    w.add("L2_NORMALIZATION", [x.index], [out.index], "L2Norm")
    return out


@makes
def log_softmax(w: Writer, x: Value) -> Value | None:
    if not x.rank:
        return None
    out = w.value(x.shape, 16 / 256, 127)
    w.add("LOG_SOFTMAX", [x.index], [out.index])
    return out


@makes
def function(w: Writer, x: Value) -> Value | None:
    kind = str(
        w.rng.choice(
            [
                *("LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU", "ELU", "GELU", "EXP", "ABS"),
                *("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "NEG", "SQUARE", "SQRT", "RSQRT"),
                *("LOG", "FLOOR", "CEIL", "SIN", "COS", "SIGN", "ROUND"),
            ]
        )
    )
    if kind == "RSQRT" and w.rng.integers(4):  # of integers above zero
        above = w.value(x.shape, zero=-128)
        w.add("QUANTIZE", [x.index], [above.index])
        x = above
    out = w.value(x.shape, *{"LOGISTIC": LOGISTIC, "TANH": TANH}.get(kind, ()))
    table, fields = "", {}
    if kind == "LEAKY_RELU":
        table, fields = "LeakyRelu", {"alpha": float(w.rng.uniform(-1, 2))}
    if kind == "GELU":
        table, fields = "Gelu", {"approximate": bool(w.rng.integers(2))}
    w.add(kind, [x.index], [out.index], table, **fields)
    return out


@makes
def prelu(w: Writer, x: Value) -> Value | None:
    if not x.rank:
        return None
    slope = w.constant((*(1,) * (x.rank - 2), *x.shape[-1:]) if x.rank > 1 else x.shape)
    out = w.value(x.shape)
    w.add("PRELU", [x.index, slope.index], [out.index])
    return out


@makes
def batch_matmul(w: Writer, x: Value) -> Value | None:
    if x.rank < 2 or math.prod(x.shape) > 2000:
        return None
    *batch, rows, depth = x.shape
    columns, turn = int(w.rng.integers(1, 6)), bool(w.rng.integers(2))
    left = bool(w.rng.integers(4) == 0)
    if left:
        rows, depth = depth, rows
    other = w.constant((*batch, *((columns, depth) if turn else (depth, columns))))
    if w.rng.integers(2) and rows == depth == columns:
        other = x
    out = w.value((*batch, rows, columns))
    pair = [x.index, other.index]
    w.add("BATCH_MATMUL", pair, [out.index], "BatchMatMul", adjX=left, adjY=turn)
    return out


@makes
def requantized(w: Writer, x: Value) -> Value | None:
    out = w.value(x.shape)
    w.add("QUANTIZE", [x.index], [out.index])
    return out


@makes
def floats(w: Writer, x: Value) -> Value | None:
    """Float operators between a DEQUANTIZE and a QUANTIZE of their own."""
    value = w.tensor(x.shape, "FLOAT32")
    w.add("DEQUANTIZE", [x.index], [value])
    kinds = [
        "RELU",
        "NEG",
        "ABS",
        "LOGISTIC",
        "TANH",
        "EXP",
        "ADD",
        "MUL",
        "PRELU",
        "SQRT",
        "",
        "RESHAPE",
    ]
    for kind in w.rng.choice(kinds, int(w.rng.integers(1, 3))):
        if not kind:
            continue
        made, inputs, table = w.tensor(x.shape, "FLOAT32"), [value], ""
        if kind in ("ADD", "MUL"):
            number = w.rng.normal(size=x.shape[-1:]).astype(np.float32)
            inputs, table = [value, w.tensor(number.shape, "FLOAT32", number)], kind.title()
        if kind == "PRELU" and x.rank:
            slope = w.rng.normal(size=x.shape[-1:]).astype(np.float32)
            inputs = [value, w.tensor(slope.shape, "FLOAT32", slope)]
        elif kind == "PRELU":
            continue
        if kind == "RESHAPE":
            inputs = [value, w.numbers(x.shape or np.zeros(0))]
        w.add(str(kind), inputs, [made], table)
        value = made
    out = w.value(x.shape) if w.rng.integers(3) else w.like(x, x.shape)
    w.add("QUANTIZE", [value], [out.index])
    return out


@makes
def shape_chain(w: Writer, x: Value) -> Value | None:
    """A reshape whose shape is computed from the value's."""
    if x.rank < 2:
        return None
    shape, first = _batch_of(w, x)
    count, rest = math.prod(x.shape[1:]), w.numbers(math.prod(x.shape[1:]))
    if w.rng.integers(2):  # as a dense layer of several dimensions asks for it
        product, rest = w.tensor([], "INT32"), w.tensor([], "INT32")
        w.add("REDUCE_PROD", [shape, w.numbers([0])], [product], "Reducer", keepDims=False)
        w.add("FLOOR_DIV", [product, first], [rest])
    asked = w.tensor([2], "INT32")
    w.add("PACK", [first, rest], [asked], "Pack", axis=0, valuesCount=2)
    out = w.like(x, (x.shape[0], count))
    w.add("RESHAPE", [x.index, asked], [out.index])
    return out


def _left_open(w: Writer, value: Value, shape: Sequence[int]) -> None:
    """The file has 1 for what its converter did not know."""
    tensor = w.graph.tensors[value.index]
    tensor.shape = [*shape]
    tensor.shapeSignature = np.array([-1 if size == 1 else size for size in shape], np.int32)


@makes
def dense_of_an_open_batch(w: Writer, x: Value) -> Value | None:
    """As Keras writes a dense layer on more than two dimensions."""
    if x.rank < 3 or math.prod(x.shape) > 5000:
        return None
    *rows, depth = x.shape
    shape, several, last = (w.tensor([n], "INT32") for n in (x.rank, len(rows), 1))
    w.add("SHAPE", [x.index], [shape], "Shape", outType=_TYPES.INT32)
    products = []
    for sizes, places in ((several, range(len(rows))), (last, [len(rows)])):
        numbers = w.numbers([*places])
        w.add("GATHER", [shape, numbers], [sizes], "Gather", axis=0, batchDims=0)
        products.append(w.tensor([], "INT32"))
        inputs = [sizes, w.numbers([0])]
        w.add("REDUCE_PROD", inputs, [products[-1]], "Reducer", keepDims=False)
    asked, back = w.tensor([2], "INT32"), w.tensor([x.rank], "INT32")
    w.add("PACK", products, [asked], "Pack", axis=0, valuesCount=2)
    flat = w.like(x, (math.prod(rows), depth))
    w.add("RESHAPE", [x.index, asked], [flat.index])
    y = fully_connected(w, flat)
    assert y is not None
    between = [flat, y]
    if w.rng.integers(2):
        between.append(w.like(y, y.shape))
        w.add("RELU", [y.index], [between[-1].index])
    for each in between:
        _left_open(w, each, (1, 1 if each is flat else each.shape[1]))
    w.add("CONCATENATION", [several, w.numbers([y.shape[1]])], [back], "Concatenation", axis=0)
    out = w.like(between[-1], (*rows, y.shape[1]))
    w.add("RESHAPE", [between[-1].index, back], [out.index])
    return out


@makes
def numbered(w: Writer, x: Value) -> Value | None:
    """Every other row, by numbers that are computed."""
    if not x.rank:
        return None
    rank, numbers = w.tensor([], "INT32"), w.tensor([(x.shape[0] + 1) // 2], "INT32")
    step = w.tensor([], "INT32")
    w.add("RANK", [x.index], [rank], "Rank")
    w.add("FLOOR_MOD", [w.numbers(2 * x.rank + 2), w.numbers(x.rank)], [step])
    if x.rank < 3:  # of which the remainder of two is none
        step = w.numbers(2)
    w.add("RANGE", [w.numbers(0), w.numbers(x.shape[0]), step], [numbers], "Range")
    out = w.like(x, ((x.shape[0] + 1) // 2, *x.shape[1:]))
    w.add("GATHER", [x.index, numbers], [out.index], "Gather", axis=0, batchDims=0)
    return out


@makes
def filled(w: Writer, x: Value) -> Value | None:
    """A sum with one number, or with zeros, that is spread to the value's shape."""
    spread, out = w.like(x, x.shape), w.value(x.shape)
    if w.rng.integers(4):
        one = w.constant((), x.scale, x.zero)
        w.add("FILL", [w.numbers(x.shape), one.index], [spread.index], "Fill")
    else:
        w.add("ZEROS_LIKE", [x.index], [spread.index], "ZerosLike")
    w.add("ADD", [x.index, spread.index], [out.index], "Add")
    return out


def unsigned(w: Writer) -> Writer:
    """The file, whose tensors of int8 become uint8 of the same meaning, with one scale each."""
    for tensor in w.graph.tensors:
        of = tensor.quantization
        if of is None:
            continue
        of.scale, of.zeroPoint = of.scale[:1], of.zeroPoint[:1]
        if tensor.type == _TYPES.INT8:
            tensor.type, of.zeroPoint = _TYPES.UINT8, of.zeroPoint + 128
            buffer = w.model.buffers[tensor.buffer]
            if buffer.data is not None:
                buffer.data = buffer.data ^ np.uint8(128)
    return w


def of_floats(w: Writer) -> Writer:
    """The file, whose tensors of int8 and their biases become the floats that they stand for."""
    for tensor in w.graph.tensors:
        of = tensor.quantization
        if of is None:
            continue
        buffer = w.model.buffers[tensor.buffer]
        if buffer.data is not None:
            stored = buffer.data.view(np.int8 if tensor.type == _TYPES.INT8 else np.int32)
            along = [-1 if d == of.quantizedDimension else 1 for d in range(len(tensor.shape))]
            scale, zero = (
                each.reshape(along) if each.size > 1 else each for each in (of.scale, of.zeroPoint)
            )
            floats = (stored.reshape(tensor.shape) - zero) * scale
            buffer.data = np.frombuffer(floats.astype(np.float32).tobytes(), np.uint8)
        tensor.type, tensor.quantization = _TYPES.FLOAT32, None
    return w


def random_file(seed: int, only: str = "", most: int = 5, without: Collection[str] = ()) -> Writer:
    """A file of up to ``most`` operators, the same each time; with an operator ``only`` of one."""
    rng = np.random.default_rng([30, seed])
    w = Writer(rng)
    shapes = [(1, 8, 6, 4), (1, 5, 7, 3), (2, 6, 6, 8), (1, 4, 4, 16), (3, 10), (1, 12, 6), (1, 9)]
    weights = np.array([4, 4, 2, 2, 1, 1, 1]) / 15
    x = w.value(shapes[int(rng.choice(len(shapes), p=weights))])
    w.graph.inputs = [x.index]
    value, left = x, 1 if only else int(rng.integers(1, most + 1))
    for _ in range(40):
        name = only or str(rng.choice([each for each in OPERATORS if each not in without]))
        if not only and name in RARE and rng.integers(8):
            continue
        mark = len(w.graph.operators)
        result = OPERATORS[name](w, value)
        if result is None or math.prod(result.shape) > 20_000:
            del w.graph.operators[mark:], w.kinds[mark:]
            continue
        value, left = result, 0 if name in ENDS else left - 1
        if not left:
            break
    w.graph.outputs = [value.index]
    return w
