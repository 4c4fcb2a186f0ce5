"""Random small graphs, for properties that hold on every graph.

Shapes are few and most operators keep them, so that tensors of equal type abound: those are what
fusion, merging and sharing of memory act on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tinyai.ir import NARROW, Array, Builder, DType, Graph, Operand, Step, Type, broadcasts, verify
from tinyai.ops import (
    AdaptivePool2d,
    AvgPool2d,
    Concatenate,
    Conv2d,
    Dense,
    Elementwise,
    Interpolate,
    MaxPool2d,
    Pad,
    Reshape,
    Resize,
    Slice,
    Transpose,
    steps,
)
from tinyai.ops.steps.logic import COMPARISONS, LOGIC
from tinyai.ops.window import Window

SHAPE = (1, 2, 3, 2)
INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64)
BINARY = (
    steps.Add,
    steps.Subtract,
    steps.SubtractFrom,
    steps.Multiply,
    steps.Maximum,
    steps.Minimum,
)
LARGEST = 96  # elements of a tensor


def random_array(rng: np.random.Generator, of: Type) -> Array:
    """Values of the whole range of the type, a tenth of them its extremes; floats around 0."""
    if of.dtype.is_float:
        return rng.normal(0, 3, of.shape).astype(np.float32)
    low, high = of.dtype.range
    values = rng.integers(low, high, of.shape, of.dtype.numpy, endpoint=True)
    extremes = rng.choice(np.array([low, high], of.dtype.numpy), of.shape)
    return np.where(rng.random(of.shape) < 0.1, extremes, values)


def random_inputs(graph: Graph, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [random_array(rng, of) for of in graph.types(graph.inputs)]


@dataclass
class Maker:
    """Draws one node after the other; ``pool`` names the tensors that the next may read."""

    draw: st.DrawFn
    builder: Builder
    rng: np.random.Generator
    pool: list[str]

    def pick(self) -> str:
        """A tensor of the pool, the newest first where hypothesis shrinks."""
        return self.pool[-1 - self.draw(st.integers(0, len(self.pool) - 1))]

    def constant(self, of: Type) -> str:
        return self.builder.constant(random_array(self.rng, of))

    def operand(self, dtype: DType, shape: tuple[int, ...]) -> Operand:
        """A constant or a tensor of the pool, converted where its type is another."""
        fitting = [name for name in self.pool if broadcasts(self.builder.type(name).shape, shape)]
        choice = self.draw(st.integers(0, len(fitting)))
        if choice < len(fitting):
            name = fitting[-1 - choice]
            if self.builder.type(name).dtype == dtype:
                return Operand(name)
            return Operand(name, (steps.Cast(dtype),))
        narrow = [shape, shape[-1:], (), tuple(1 for _ in shape)]
        return Operand(self.constant(Type(self.draw(st.sampled_from(narrow)), dtype)))

    def step(self, dtype: DType, shape: tuple[int, ...]) -> Step:
        if dtype is DType.BOOL:
            return self.logic(shape)
        kinds = ["binary", "binary", "cast", "cast", "clip", "relu", "leaky_relu", "shift"]
        kinds += ["compare", "fill"]
        kinds += ["fixed_point_multiply"] if dtype in (DType.INT32, DType.INT64) else []
        match self.draw(st.sampled_from(kinds)):
            case "binary":
                return self.draw(st.sampled_from(BINARY))(operand=self.operand(dtype, shape))
            case "cast":
                to = st.sampled_from((DType.INT8, DType.INT32, DType.BOOL, *INTEGERS))
                return steps.Cast(self.draw(to))
            case "clip":
                return (
                    steps.Clip(*self.draw(st.sampled_from([(-100, 50), (0, 127), (-1, 1)])))
                    if (dtype.range[0] < 0)
                    else steps.Clip(3, 200)
                )
            case "compare":
                sign = self.draw(st.sampled_from([*COMPARISONS]))
                return steps.Compare(sign, operand=self.operand(dtype, shape))
            case "fill":
                return self.fill(shape)
            case "relu":
                return steps.Relu()
            case "leaky_relu":
                return steps.LeakyRelu(self.draw(st.sampled_from([0.1, 2.0])))
            case "shift":
                kind = self.draw(st.sampled_from((steps.RightShift, steps.LeftShift)))
                amount = np.full((), self.draw(st.integers(0, 7)), dtype.numpy)
                return kind(operand=Operand(self.builder.constant(amount)))
        return steps.FixedPointMultiply((1518500250,), (self.draw(st.integers(-4, 4)),))

    def fill(self, shape: tuple[int, ...]) -> Step:
        number, when = self.draw(st.integers(0, 1)), self.draw(st.booleans())
        return steps.Fill(number, when, operand=self.operand(DType.BOOL, shape))

    def logic(self, shape: tuple[int, ...]) -> Step:
        """A step on bools."""
        match self.draw(st.sampled_from(["cast", "logic", "not", "equal", "fill"])):
            case "logic":
                word = self.draw(st.sampled_from([*LOGIC]))
                return steps.Logic(word, operand=self.operand(DType.BOOL, shape))
            case "not":
                return steps.Not()
            case "equal":
                return steps.Compare("==", operand=self.operand(DType.BOOL, shape))
            case "fill":
                return self.fill(shape)
        return steps.Cast(self.draw(st.sampled_from(INTEGERS)))

    def steps(self, of: Type, most: int) -> tuple[Step, ...]:
        chain: list[Step] = []
        dtype = of.dtype
        for _ in range(self.draw(st.integers(0, most))):
            chain.append(self.step(dtype, of.shape))
            dtype = chain[-1].result(dtype)
        return tuple(chain)

    def add_node(self) -> None:
        x = self.pick()
        of = self.builder.type(x)
        makers = [_elementwise, _elementwise, _elementwise, _requantize, _reshape, _move]
        makers += [_conv2d, _conv2d] if len(of.shape) == 4 and of.dtype is DType.INT8 else []
        makers += [_dense] if len(of.shape) == 2 and of.dtype is DType.INT8 else []
        makers += [_pool] if len(of.shape) == 4 and of.dtype.is_integer else []
        self.pool.append(self.draw(st.sampled_from(makers))(self, x, of))


def _elementwise(make: Maker, x: str, of: Type) -> str:
    larger = [of.shape] + [
        shape
        for shape in (make.builder.type(name).shape for name in make.pool)
        if broadcasts(of.shape, shape)
    ]
    shape = make.draw(st.sampled_from(larger))
    epilogue = make.steps(Type(shape, of.dtype), 3)
    name = f"layer{len(make.builder.nodes)}"
    return make.builder.add(Elementwise(shape), [x], epilogue, (name,))


def _requantize(make: Maker, x: str, of: Type) -> str:
    """Through int8 and wide again, one node a step, as ``tvm.relay.quantize`` leaves a fork."""
    wide = make.draw(st.sampled_from((DType.INT32, DType.INT64)))
    return _chain(
        make, x, [steps.Cast(DType.INT8), steps.Cast(wide), *make.steps(Type(of.shape, wide), 1)]
    )


def _chain(make: Maker, x: str, chain: Sequence[Step]) -> str:
    for step in chain:
        x = make.builder.add(Elementwise(make.builder.type(x).shape), [x], (step,))
    return x


def _reshape(make: Maker, x: str, of: Type) -> str:
    count = of.elements
    shapes = [(count,), (1, count), (count, 1), (1, 1, count), of.shape, (1, *of.shape)]
    shapes += [SHAPE, (1, 3, 2, 2)] if count == math.prod(SHAPE) else []
    return make.builder.add(Reshape(make.draw(st.sampled_from(shapes))), [x])


def _move(make: Maker, x: str, of: Type) -> str:
    """Transpose, concatenate, slice, resize or pad, as far as the size allows."""
    rank = len(of.shape)
    if rank == 0:
        return make.builder.add(Reshape((1,)), [x])
    kinds = ["transpose", "slice"]
    kinds += ["concatenate", "pad"] if 2 * of.elements <= LARGEST else []
    kinds += ["resize"] if rank == 4 else []
    axis = make.draw(st.integers(0, rank - 1))
    match make.draw(st.sampled_from(kinds)):
        case "transpose":
            order = tuple(make.draw(st.permutations(range(rank))))
            return make.builder.add(Transpose(order), [x])
        case "resize":
            rows, columns = (tuple(reversed(range(size))) for size in of.shape[1:3])
            if of.dtype in NARROW and make.draw(st.booleans()):
                taps = [tuple((at, 0, 3, 1) for at in places) for places in (rows, columns)]
                return make.builder.add(Interpolate(*taps), [x])
            return make.builder.add(Resize(rows, columns), [x])
        case "concatenate":
            others = [name for name in make.pool if make.builder.type(name) == of]
            parts = [x, make.draw(st.sampled_from(others))]
            return make.builder.add(Concatenate(axis), parts)
        case "slice":
            begin, count = [0] * rank, list(of.shape)
            begin[axis] = make.draw(st.integers(0, of.shape[axis] - 1))
            count[axis] -= begin[axis]
            return make.builder.add(Slice(tuple(begin), (1,) * rank, tuple(count)), [x])
    widths = tuple((int(dim == axis), 0) for dim in range(rank))
    return make.builder.add(Pad(widths, 5 if of.dtype.is_integer else 1), [x])


def _conv2d(make: Maker, x: str, of: Type) -> str:
    """A convolution that keeps height and width, so that residual adds fit."""
    layout = make.draw(st.sampled_from(("NHWC", "NCHW")))
    channels = of.shape[layout.index("C")]
    depthwise = channels > 1 and make.draw(st.booleans())
    window = make.draw(
        st.sampled_from((Window((1, 1)), Window((3, 3), padding=(1, 1, 1, 1)), Window((1, 1))))
    )
    shape = (channels, *window.kernel, 1 if depthwise else channels)
    weight = make.constant(Type(shape, DType.INT8))
    op = Conv2d(window, channels if depthwise else 1, layout)
    return _with_epilogue(make, op, [x, weight])


def _dense(make: Maker, x: str, of: Type) -> str:
    weight = make.constant(Type((make.draw(st.sampled_from((1, 3))), of.shape[1]), DType.INT8))
    return _with_epilogue(make, Dense(), [x, weight])


def _pool(make: Maker, x: str, of: Type) -> str:
    window = make.draw(st.sampled_from((Window((3, 3), padding=(1, 1, 1, 1)), Window((1, 1)))))
    ops = [MaxPool2d(window), MaxPool2d(window, "NCHW"), AdaptivePool2d("max", (1, 1))]
    if of.dtype is DType.INT32:
        ops += [AvgPool2d(window), AdaptivePool2d("avg", (1, 1))]
    return _with_epilogue(make, make.draw(st.sampled_from(ops)), [x])


def _with_epilogue(make: Maker, op: Conv2d | Dense | MaxPool2d, inputs: list[str]) -> str:
    result = op.infer(*(make.builder.type(name) for name in inputs))
    name = f"layer{len(make.builder.nodes)}"
    return make.builder.add(op, inputs, make.steps(result, 2), (name,))


def _quantize(make: Maker, x: str) -> str:
    """The entry of a network, one node a step: float32 -> int8."""
    scale = steps.Multiply(operand=Operand(make.builder.constant(np.array(16, np.float32))))
    return _chain(make, x, [scale, steps.Round(), steps.Clip(-127, 127), steps.Cast(DType.INT8)])


def _dequantize(make: Maker, x: str) -> str:
    """The exit of a network: integer -> float32."""
    scale = steps.Multiply(operand=Operand(make.builder.constant(np.array(0.25, np.float32))))
    return _chain(make, x, [steps.Cast(DType.FLOAT32), scale])


@st.composite
def graphs(draw: st.DrawFn, most_nodes: int = 12) -> Graph:
    """A verified graph of one to ``most_nodes`` random nodes, any of whose results are outputs."""
    builder = Builder("random_graph")  # <stdlib.h> has a function random
    make = Maker(draw, builder, np.random.default_rng(draw(st.integers(0, 2**16))), [])
    for dtype in draw(st.lists(st.sampled_from((DType.INT8, DType.INT32)), min_size=1, max_size=2)):
        make.pool.append(builder.input(Type(SHAPE, dtype)))
    if draw(st.booleans()):
        make.pool.append(make.constant(Type(SHAPE, DType.INT8)))
    if draw(st.booleans()):
        make.pool.append(_quantize(make, builder.input(Type(SHAPE, DType.FLOAT32))))
    for _ in range(draw(st.integers(1, most_nodes))):
        make.add_node()
    if draw(st.booleans()):
        _dequantize(make, make.pick())
    made = [node.output for node in builder.nodes]
    outputs = draw(st.lists(st.sampled_from(made[::-1]), min_size=1, max_size=3, unique=True))
    return verify(builder.graph(outputs))
