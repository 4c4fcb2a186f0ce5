"""Graphs of every operator's examples, with every kind of epilogue after them. Needs no TVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np

from tinyai.backend import pipeline
from tinyai.ir import Array, Builder, DType, Example, Graph, Op, Operand, Step, Type, verify
from tinyai.ops import (
    OPS,
    AdaptivePool2d,
    Concatenate,
    Conv2d,
    Dense,
    Elementwise,
    Interleave,
    MaxPool2d,
    Pad,
    Reshape,
    Slice,
    Transpose,
)
from tinyai.ops.steps import (
    Add,
    AddProduct,
    Cast,
    Clip,
    Compare,
    Divide,
    Fill,
    FixedPointMultiply,
    LeakyRelu,
    LeftShift,
    Logic,
    Lookup,
    Maximum,
    Minimum,
    Multiply,
    MultiplyAdd,
    Not,
    Prelu,
    RealMultiply,
    Relu,
    RightShift,
    Round,
    Subtract,
    SubtractFrom,
)
from tinyai.ops.steps.logic import LOGIC
from tinyai.ops.window import Window
from tinyai.passes import PIPELINE, merge_permutes, permute

# Inputs that kernels want to be constant.
WEIGHTS: dict[type[Op], tuple[int, ...]] = {Conv2d: (1,), Dense: (1,)}
MULTIPLIER = 1518500250  # 1/sqrt(2) as q31


@dataclass
class Site:
    """Where an epilogue is made: the graph so far, and the value that it begins with."""

    builder: Builder
    value: Type
    layout: str
    rng: np.random.Generator
    steps: list[Step] = field(default_factory=list)

    def constant(self, low: float, high: float, dtype: DType, *, channels: bool = True) -> Operand:
        """A constant a channel, or one number."""
        shape: tuple[int, ...] = ()
        if channels and self.value.shape:
            shape = (self.value.shape[-1],)
            shape = (self.value.shape[1], 1, 1) if self.layout == "NCHW" else shape
        if dtype.is_float:
            value = self.rng.uniform(low, high, shape).astype(np.float32)
        else:
            value = self.rng.integers(int(low), int(high), shape, dtype.numpy, endpoint=True)
        return Operand(self.builder.constant(np.asarray(value)))

    def tensor(self, shape: tuple[int, ...], dtype: DType, *steps: Step) -> Operand:
        return Operand(self.builder.input(Type(shape, dtype)), steps)

    def to(self, dtype: DType) -> tuple[Step, ...]:
        return () if self.value.dtype is dtype else (Cast(dtype),)

    @property
    def is_float(self) -> bool:
        return self.value.dtype.is_float


def _nothing(site: Site) -> Iterator[Step]:
    yield from ()


def _requantize(site: Site) -> Iterator[Step]:
    """What tvm.relay.quantize leaves after a convolution."""
    yield from site.to(DType.INT32)
    yield Add(operand=site.constant(-5000, 5000, DType.INT32))
    yield Relu()
    yield Add(operand=site.constant(64, 64, DType.INT32, channels=False))
    yield RightShift(operand=site.constant(7, 9, DType.INT32))
    yield Clip(-127, 127)
    yield Cast(DType.INT8)


def _arithmetic(site: Site) -> Iterator[Step]:
    """Steps that wrap, by numbers of the whole range."""
    low, high = DType.INT32.range
    yield from site.to(DType.INT32)
    yield Subtract(operand=site.constant(low, high, DType.INT32))
    yield Multiply(operand=site.constant(low, high, DType.INT32))
    yield SubtractFrom(operand=site.constant(low, low, DType.INT32, channels=False))
    yield LeftShift(operand=site.constant(0, 31, DType.INT32))
    yield Maximum(operand=site.constant(low, high, DType.INT32))
    yield Minimum(operand=site.constant(low, high, DType.INT32))
    yield LeakyRelu(-2.5)


def _small_types(site: Site) -> Iterator[Step]:
    """Arithmetic in types that C widens to int."""
    for dtype in (DType.INT16, DType.UINT8, DType.INT8):
        low, high = dtype.range
        yield Cast(dtype)
        yield Multiply(operand=site.constant(low, high, dtype))
        yield Subtract(operand=site.constant(low, low, dtype, channels=False))
        yield LeftShift(operand=site.constant(0, 7, dtype))
        yield RightShift(operand=site.constant(0, 3, dtype))
        yield Maximum(operand=site.constant(low, high, dtype))
        yield Clip(low, high - 1)
        yield LeakyRelu(3)


def _residual(site: Site) -> Iterator[Step]:
    """A second branch of the same shape, widened while it is read."""
    yield from site.to(DType.INT32)
    yield RightShift(operand=site.constant(5, 5, DType.INT32, channels=False))
    widen = (
        Cast(DType.INT32),
        LeftShift(operand=site.constant(2, 2, DType.INT32, channels=False)),
        Add(operand=site.constant(-9, 9, DType.INT32)),
    )
    yield Add(operand=site.tensor(site.value.shape, DType.INT8, *widen))
    yield Clip(-128, 127)
    yield Cast(DType.INT8)


def _broadcast(site: Site) -> Iterator[Step]:
    """Operands that broadcast in every way, one of them with an operand of its own."""
    shape = site.value.shape
    yield from site.to(DType.INT32)
    shapes = [shape, shape[-1:], (*shape[:-1], 1)[-max(len(shape), 1) :], (1,) * len(shape), ()]
    shapes += [tuple(d if i % 2 else 1 for i, d in enumerate(shape)), shape[1:]]
    for each in shapes:
        each = each if shape else ()
        inner = Multiply(operand=site.tensor(each, DType.INT16, Cast(DType.INT32)))
        yield Add(operand=site.tensor(each, DType.INT32, inner))


def _fixed_point(site: Site) -> Iterator[Step]:
    yield from site.to(DType.INT32)
    yield FixedPointMultiply((MULTIPLIER,), (2,))
    yield FixedPointMultiply((-MULTIPLIER,), (-3,))
    yield FixedPointMultiply((2**31 - 1,), (0,))


def _multiplied(site: Site, rounding: str) -> Iterator[Step]:
    """A bias and a fixed-point multiplication by numbers of each channel, below 1; "twice" rounds
    each channel twice."""
    shape = site.value.shape
    yield from site.to(DType.INT32)
    yield Add(operand=site.constant(-5000, 5000, DType.INT32))
    axis = (1 if site.layout == "NCHW" else len(shape) - 1) if shape else None
    count = shape[axis] if axis is not None else 1
    multipliers = tuple(2**30 + (77777777 * i) % 2**30 for i in range(count))
    shifts = tuple(-(i % 9) - (rounding == "twice") for i in range(count))
    yield FixedPointMultiply(multipliers, shifts, axis, rounding)


def _qnn(site: Site, dtype: DType = DType.INT8) -> Iterator[Step]:
    """What qnn.requantize leaves after a convolution: numbers of each channel, a zero point."""
    yield from _multiplied(site, "upward")
    low, high = dtype.range
    yield Add(operand=site.constant(low + 9, low + 9, DType.INT32, channels=False))
    yield Clip(low, high)
    yield Cast(dtype)


def _qnn_unsigned(site: Site) -> Iterator[Step]:
    """With bounds of its own, as of a relu6."""
    yield from _qnn(site, DType.UINT8)
    yield Clip(9, 200)


def _tflite(site: Site, low: int = -128) -> Iterator[Step]:
    """What TFLite's arithmetic leaves after a convolution: rounded twice, a zero point of -9."""
    yield from _multiplied(site, "twice")
    yield Add(operand=site.constant(-9, -9, DType.INT32, channels=False))
    yield Clip(low, 127)
    yield Cast(DType.INT8)


def tflite_relu(site: Site) -> Iterator[Step]:
    """With the bound of a ReLU, which is the zero point."""
    yield from _tflite(site, low=-9)


def _onnx(site: Site) -> Iterator[Step]:
    """What ONNX Runtime's arithmetic leaves after a convolution: floats, halves to even."""
    yield from site.to(DType.INT32)
    yield Add(operand=site.constant(-5000, 5000, DType.INT32))
    yield Cast(DType.FLOAT32)
    yield Multiply(operand=site.constant(1e-3, 0.5, DType.FLOAT32))
    yield Round("even")
    yield Add(operand=site.constant(7, 7, DType.FLOAT32, channels=False))
    yield Clip(0, 255)
    yield Cast(DType.UINT8)
    yield Clip(9, 250)


def tflite_sum(site: Site) -> Iterator[Step]:
    """What TFLite makes of a sum with an 8-bit tensor: 20 places up, rescaled, added, rescaled."""
    rng = site.rng

    def rescale() -> Iterator[Step]:
        yield Cast(DType.INT32)
        yield Subtract(operand=site.constant(-30, 30, DType.INT32, channels=False))
        yield LeftShift(operand=site.constant(20, 20, DType.INT32, channels=False))
        multiplier, shift = int(rng.integers(2**30, 2**31)), -int(rng.integers(0, 4))
        yield FixedPointMultiply((multiplier,), (shift,), None, "twice")

    yield from rescale()
    yield Add(operand=site.tensor(site.value.shape, DType.INT8, *rescale()))
    yield FixedPointMultiply((int(rng.integers(2**30, 2**31)),), (-18,), None, "twice")
    yield Add(operand=site.constant(-9, 9, DType.INT32, channels=False))
    yield Clip(-128 + 9 * int(rng.integers(2)), 127)
    yield Cast(DType.INT8)


def onnx_sum(site: Site) -> Iterator[Step]:
    """What ONNX Runtime makes of a sum with an 8-bit tensor: two fused multiply-adds."""
    inner = MultiplyAdd(
        float(np.float32(site.rng.uniform(0.2, 1.5))),
        operand=site.constant(-90, 90, DType.FLOAT32, channels=False),
    )
    other = site.tensor(site.value.shape, DType.UINT8, Cast(DType.FLOAT32), inner)
    yield Cast(DType.FLOAT32)
    yield MultiplyAdd(float(np.float32(site.rng.uniform(0.2, 1.5))), operand=other)
    yield Round("even")
    yield Clip(0, 255)
    yield Cast(DType.UINT8)


def tflite_branches(site: Site) -> Iterator[Step]:
    """TFLite's sum after its convolution."""
    yield from _tflite(site)
    yield from tflite_sum(replace(site, value=Type(site.value.shape, DType.INT8)))


def onnx_branches(site: Site) -> Iterator[Step]:
    """ONNX Runtime's sum after its convolution."""
    yield from _onnx(site)
    yield from onnx_sum(replace(site, value=Type(site.value.shape, DType.UINT8)))


def any_sum(site: Site) -> Iterator[Step]:
    """One of the sums, of 8-bit values as the frameworks make them."""
    yield Cast(DType.INT8)
    each = (_rescaled_sum, tflite_sum, onnx_sum)[int(site.rng.integers(3))]
    yield from each(replace(site, value=Type(site.value.shape, DType.INT8)))


def _rescaled_sum(site: Site) -> Iterator[Step]:
    """What qnn.add makes of an 8-bit value: both branches rescaled, then summed."""
    rng, types = site.rng, (DType.INT8, DType.UINT8)

    def rescale() -> Iterator[Step]:
        yield Subtract(operand=site.constant(-128, 255, DType.INT32, channels=False))
        yield FixedPointMultiply((int(rng.integers(2**30, 2**31)),), (int(rng.integers(-2, 3)),))

    yield from site.to(DType.INT32)
    yield from rescale()
    second = site.tensor(site.value.shape, types[rng.integers(2)], Cast(DType.INT32), *rescale())
    yield Add(operand=second)
    result = types[rng.integers(2)]
    low, high = result.range
    yield Add(operand=site.constant(low, high, DType.INT32, channels=False))
    cut = 9 * int(rng.integers(2))
    yield Clip(low + cut, high - cut)
    yield Cast(result)


def branches(site: Site) -> Iterator[Step]:
    """The same after a quantized convolution."""
    yield from _qnn(site)
    yield from _rescaled_sum(replace(site, value=Type(site.value.shape, DType.INT8)))


def _fixed_point_64(site: Site) -> Iterator[Step]:
    yield from site.to(DType.INT32)
    yield Cast(DType.INT64)
    yield Add(operand=site.constant(-(2**33), 2**33, DType.INT64))
    yield FixedPointMultiply((MULTIPLIER,), (-9,))
    yield Clip(-127, 127)
    yield Cast(DType.INT8)


def _per_channel(site: Site) -> Iterator[Step]:
    """Fixed-point multiplication along each axis, in every rounding."""
    shape = site.value.shape
    yield from site.to(DType.INT32)
    for number, rounding in enumerate(("upward", "tonearest", "twice")):
        yield FixedPointMultiply((MULTIPLIER,), (1,), None, rounding)
        if shape:
            axis = (len(shape) - 1 - number) % len(shape)
            multipliers = [MULTIPLIER * (-1) ** i - 77 * i for i in range(shape[axis])]
            shifts = [-31 + (13 * i) % 34 for i in range(shape[axis])]
            yield FixedPointMultiply(tuple(multipliers), tuple(shifts), axis, rounding)
    yield Divide(operand=site.constant(1, 9, DType.INT32))


def _reals(site: Site) -> Iterator[Step]:
    """Multiplication in double precision, along each axis too, in every rounding."""
    shape = site.value.shape
    yield from site.to(DType.INT32)
    for number, rounding in enumerate(("floor", "cut", "away")):
        yield RealMultiply((0.5,), None, rounding, number - 1, -(2**31), 2**31 - 1)
        if shape:
            axis = (len(shape) - 1 - number) % len(shape)
            numbers = tuple(0.9 * (-1) ** i + 0.125 * i for i in range(shape[axis]))
            yield RealMultiply(numbers, axis, rounding, 3 * number, -(2**15), 2**15 - 1)
    yield Cast(DType.INT64)
    yield RealMultiply((-1.5,), None, "floor", -7, -128, 100)


def _tables(site: Site) -> Iterator[Step]:
    for dtype, to in ((DType.INT8, DType.UINT8), (DType.UINT8, DType.INT8)):
        yield Cast(dtype)
        low, high = to.range
        yield Lookup(tuple(low + (37 * i + 5) % (high - low + 1) for i in range(256)), to)


def _floats(site: Site) -> Iterator[Step]:
    """Requantization in float32, and what lies between a dequantize and a quantize."""
    yield from site.to(DType.FLOAT32)
    yield Divide(operand=site.constant(0.1, 16, DType.FLOAT32))
    yield Prelu(operand=site.constant(-1, 1, DType.FLOAT32))
    yield MultiplyAdd(0.3, operand=site.constant(-2, 2, DType.FLOAT32))
    yield AddProduct(0.3, operand=site.constant(-2, 2, DType.FLOAT32))
    for mode in ("even", "floor", "cut"):
        yield Multiply(operand=site.constant(0.4, 2.5, DType.FLOAT32))
        yield Round(mode)


def _logic(site: Site) -> Iterator[Step]:
    """Comparisons, logic, and numbers where bools say so."""
    shape = site.value.shape
    over = Compare(">=", operand=site.constant(-50, 50, DType.INT8, channels=False))
    yield from site.to(DType.INT32)
    yield Fill(-7, operand=site.tensor(shape, DType.BOOL))
    yield Fill(9, when=False, operand=site.tensor(shape[-1:], DType.INT8, over))
    yield Compare("<", operand=site.constant(-5000, 5000, DType.INT32))
    for word in LOGIC:
        yield Logic(word, operand=site.tensor(shape, DType.BOOL, Not()))
    yield Cast(DType.FLOAT32)
    yield Cast(DType.BOOL)
    yield Compare("!=", operand=site.tensor(shape, DType.BOOL))
    yield Cast(DType.INT64)


def _exit(site: Site) -> Iterator[Step]:
    """Dequantization."""
    yield from site.to(DType.FLOAT32)
    yield Multiply(operand=site.constant(-1e-3, 1e-3, DType.FLOAT32))


def _entry(site: Site) -> Iterator[Step]:
    """Quantization."""
    yield from site.to(DType.FLOAT32)
    yield Multiply(operand=site.constant(0.1, 16, DType.FLOAT32, channels=False))
    yield Round()
    yield Clip(-127, 127)
    yield Cast(DType.INT8)


def quotient(site: Site) -> Iterator[Step]:
    """Quantization as ONNX writes it."""
    to = (DType.INT8, DType.UINT8, DType.INT16)[site.rng.integers(3)]
    yield from site.to(DType.FLOAT32)
    yield Divide(operand=site.constant(0.01, 4, DType.FLOAT32, channels=False))
    yield Round(("away", "even", "floor", "cut")[site.rng.integers(4)])
    yield Add(operand=site.constant(*to.range, DType.FLOAT32, channels=False))
    yield Clip(to.range[0], to.range[1] - int(site.rng.integers(2)))
    yield Cast(to)


EPILOGUES: dict[str, Callable[[Site], Iterator[Step]]] = {
    "nothing": _nothing,
    "requantize": _requantize,
    "arithmetic": _arithmetic,
    "small types": _small_types,
    "residual": _residual,
    "rescaled sum": _rescaled_sum,
    "per channel": _per_channel,
    "reals": _reals,
    "tables": _tables,
    "floats": _floats,
    "broadcast": _broadcast,
    "qnn": _qnn,
    "qnn unsigned": _qnn_unsigned,
    "tflite": _tflite,
    "onnx": _onnx,
    "fixed point": _fixed_point,
    "fixed point 64": _fixed_point_64,
    "logic": _logic,
    "exit": _exit,
    "entry": _entry,
}
FOR_FLOATS = ("nothing", "exit", "entry")


def examples_graph(examples: Iterable[Example], epilogue: str) -> Graph:
    """One graph in which every example is a node and an output of its own, with the epilogue
    after it where the operator takes one. What takes none comes with "nothing" only."""
    builder = Builder(f"examples_{epilogue.replace(' ', '_')}")
    rng = np.random.default_rng(7)
    outputs: list[str] = []
    for op, types in examples:
        result = op.infer(*types)
        if epilogue != "nothing" and not op.takes_epilogue:
            continue
        if result.dtype.is_float and epilogue not in FOR_FLOATS:
            continue
        inputs = [
            builder.constant(random_array(rng, of))
            if position in WEIGHTS.get(type(op), ())
            else builder.input(of)
            for position, of in enumerate(types)
        ]
        site = Site(builder, result, getattr(op, "layout", "NHWC"), rng)
        outputs.append(builder.add(op, inputs, tuple(EPILOGUES[epilogue](site)), (f"{op.name}",)))
    return verify(builder.graph(outputs))


@contextmanager
def orders_as_given() -> Iterator[None]:
    """Within, the back end leaves every operator in its own layout and every transposition in its
    place, so that kernels meet what the examples say."""

    def optimize(graph: Graph) -> Graph:
        for run in PIPELINE:
            graph = graph if run in (permute, merge_permutes) else verify(run(graph))
        return graph

    with mock.patch.object(pipeline, "optimize", optimize):
        yield


def assert_transposed_at_the_ends(graph: Graph) -> None:
    """Every operator works in NHWC, and at most one transposition belongs to each input and output:
    it meets nothing else than elementwise nodes and reshapes on the way there."""
    assert {getattr(node.op, "layout", "NHWC") for node in graph.nodes} == {"NHWC"}
    moving = [node for node in graph.nodes if isinstance(node.op, Transpose | Interleave)]
    simple = {
        node.output: node for node in graph.nodes if isinstance(node.op, Elementwise | Reshape)
    }
    readers = {name: node for node in simple.values() for name in node.inputs}
    ends: set[str] = set()
    for node in moving:
        first, last = node.inputs[0], node.output
        while first in simple:
            first = simple[first].inputs[0]
        while last in readers and last not in graph.outputs:
            last = readers[last].output
        found = {first} & set(graph.inputs) or {last} & set(graph.outputs)
        assert found, f"inside: {node}"
        assert not found & ends, f"a second one: {node}"
        ends |= found


def all_examples() -> list[Example]:
    return [example for op in OPS for example in op.examples()]


def step_kinds(graph: Graph) -> set[str]:
    """Names of the steps that a graph has, those of operands among them."""

    def walk(steps: Iterable[Step]) -> Iterator[str]:
        for step in steps:
            yield step.name
            yield from walk(step.operand.steps) if step.operand else ()

    return {name for node in graph.nodes for name in walk(node.epilogue)}


# --- Networks ------------------------------------------------------------------------------------


@dataclass
class Network:
    """Layers as tvm.relay.quantize leaves them, in one layout."""

    builder: Builder
    layout: str
    rng: np.random.Generator

    def shape(self, n: int, h: int, w: int, c: int) -> tuple[int, ...]:
        return (n, h, w, c) if self.layout == "NHWC" else (n, c, h, w)

    def channels(self, tensor: str) -> int:
        return self.builder.type(tensor).shape[self.layout.index("C")]

    def number(self, value: int) -> Operand:
        return Operand(self.builder.constant(np.array(value, np.int32)))

    def requantize(self, shift: int) -> tuple[Step, ...]:
        rounding = Add(operand=self.number(1 << (shift - 1)))
        shifted = RightShift(operand=self.number(shift))
        return rounding, shifted, Clip(-127, 127), Cast(DType.INT8)

    def rectify(self, shift: int) -> tuple[Step, ...]:
        return Relu(), *self.requantize(shift)

    def conv(
        self, data: str, out: int, size: int, name: str, *, groups: int = 1, stride: int = 1
    ) -> str:
        border = size // 2
        window = Window((size, size), (stride, stride), padding=(border,) * 4)
        weight = self.rng.integers(
            -127, 128, (out, size, size, self.channels(data) // groups), np.int8
        )
        bias = self.rng.integers(-999, 1000, (out,) if self.layout == "NHWC" else (out, 1, 1))
        return self.builder.add(
            Conv2d(window, groups, self.layout),
            [data, self.builder.constant(weight)],
            (
                Add(operand=Operand(self.builder.constant(bias.astype(np.int32)))),
                *self.rectify(8),
            ),
            (name,),
        )

    def residual(self, branch: str, shortcut: str) -> str:
        """A sum of int8 branches, as nodes that fusion has still to merge."""
        add, shape = self.builder.add, self.builder.type(branch).shape
        wide = add(Elementwise(shape), [branch], (Cast(DType.INT32),))
        shifted = LeftShift(operand=self.number(1))
        other = add(Elementwise(shape), [shortcut], (Cast(DType.INT32), shifted))
        total = add(Elementwise(shape), [wide], (Add(operand=Operand(other)),), ("residual",))
        return add(Elementwise(shape), [total], self.requantize(2))


class Qnn(Network):
    """Layers that requantize in registers."""

    def requantize(self, shift: int) -> tuple[Step, ...]:
        return FixedPointMultiply((MULTIPLIER,), (-shift,)), Clip(-128, 127), Cast(DType.INT8)

    def rectify(self, shift: int) -> tuple[Step, ...]:
        return FixedPointMultiply((MULTIPLIER,), (-shift,)), Clip(0, 127), Cast(DType.INT8)


def small_network(layout: str = "NHWC", name: str = "small_network") -> Graph:
    """Quantization, convolution, residual add, pooling, dequantization: one page of C."""
    b = Builder(name)
    net = Network(b, layout, np.random.default_rng(3))
    image = b.input(Type(net.shape(1, 4, 4, 2), DType.FLOAT32))
    scale = Operand(b.constant(np.array(16, np.float32)))
    steps = (Multiply(operand=scale), Round(), Clip(-127, 127), Cast(DType.INT8))
    x = b.add(Elementwise(b.type(image).shape), [image], steps, ("image",))
    y = net.residual(net.conv(x, 2, 3, "conv"), x)
    y = b.add(MaxPool2d(Window((2, 2), (2, 2)), layout), [y], sources=("pool",))
    step = Operand(b.constant(np.array(0.0625, np.float32)))
    steps = (Cast(DType.FLOAT32), Multiply(operand=step))
    return b.graph([b.add(Elementwise(b.type(y).shape), [y], steps, ("result",))])


def tiled_network(name: str = "tiled_network") -> Graph:
    """Two convolutions whose tiles are chosen, and between them a depthwise one."""
    net = Network(Builder(name), "NHWC", np.random.default_rng(5))
    x = net.builder.input(Type((1, 5, 5, 8), DType.INT8))
    x = net.conv(x, 40, 1, "wide")
    x = net.conv(x, 40, 3, "deep", groups=40)
    return net.builder.graph([net.conv(x, 24, 3, "last")])


def branching_network(layout: str) -> Graph:
    """Depthwise, grouped and strided convolutions, forks, every kind of movement, dense; two inputs
    and two outputs."""
    b = Builder(f"branching_network_{layout}")
    net = Network(b, layout, np.random.default_rng(4))
    image = b.input(Type(net.shape(2, 9, 7, 3), DType.INT8))
    offsets = b.input(Type((1,), DType.INT32))
    stem = net.conv(image, 8, 3, "stem", stride=2)
    deep = net.conv(stem, 8, 3, "deep", groups=8)
    wide = net.conv(net.conv(deep, 8, 1, "point"), 8, 3, "grouped", groups=2)
    total = net.residual(wide, stem)
    pooled = b.add(MaxPool2d(Window((3, 3), padding=(1, 1, 1, 1)), layout), [total])
    axis = layout.index("C")
    joined = b.add(Concatenate(axis), [total, pooled, stem])
    widths = tuple((0, 0) if a in "NC" else (1, 0) for a in layout)
    padded = b.add(Pad(widths, -3), [joined])
    shape = b.type(padded).shape
    begin = tuple(1 if a in "HW" else 0 for a in layout)
    cut = tuple(d - x for d, x in zip(shape, begin, strict=True))
    sliced = b.add(Slice(begin, (1,) * 4, cut), [padded])
    turned = b.add(Transpose((0, 3, 1, 2) if layout == "NHWC" else (0, 2, 3, 1)), [sliced])
    total = b.add(
        Elementwise(cut), [sliced], (Cast(DType.INT32), Add(operand=Operand(offsets)), Relu())
    )
    mean = b.add(AdaptivePool2d("avg", (1, 1), layout), [total], net.requantize(1))
    flat = b.add(Reshape((2, cut[axis])), [mean])
    weight = net.rng.integers(-127, 128, (5, cut[axis]), np.int8)
    logits = b.add(Dense(), [flat, b.constant(weight)], (Cast(DType.FLOAT32),), ("dense",))
    return b.graph([logits, turned])


NETWORKS: dict[str, Callable[[], Graph]] = {
    "small NHWC": small_network,
    "small NCHW": lambda: small_network("NCHW", "small_network_nchw"),
    "branching NHWC": lambda: branching_network("NHWC"),
    "branching NCHW": lambda: branching_network("NCHW"),
}


# --- Values --------------------------------------------------------------------------------------

EDGE_FLOATS = np.array(
    [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        -2.5,
        127.5,
        1e-45,
        3e9,
        -3e9,
        3.4028235e38,
        np.inf,
        -np.inf,
        np.nan,
    ],
    np.float32,
)


def random_array(rng: np.random.Generator, of: Type) -> Array:
    """Values of the whole range of the type, a quarter of them edges."""
    if of.dtype.is_float:
        values = rng.normal(0, 5, of.shape).astype(np.float32)
        edges = EDGE_FLOATS
    else:
        low, high = of.dtype.range
        values = np.asarray(rng.integers(low, high, of.shape, of.dtype.numpy, endpoint=True))
        edges = np.array([low, low + 1, 0, 1, high - 1, high], of.dtype.numpy)
    return np.asarray(np.where(rng.random(of.shape) < 0.25, rng.choice(edges, of.shape), values))


def random_inputs(graph: Graph, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [random_array(rng, of) for of in graph.types(graph.inputs)]
