"""Random quantized networks in Relay: what importers and quantizers write, in small.

A seed is a graph, the same on every machine: ``random_graph(7)``. A graph is a list of nodes, and
any integer node can become an input of its own, so that a graph which fails can be cut down.
Values keep inside of what TVM defines: no int32 overflows, no window is empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relay

from tests.support.oracle import Array
from tinyai.frontends.relay.spelling import supported

Shape = tuple[int, ...]

LARGEST = 3000  # elements of a tensor
FLOAT32_EXACT = 2**24  # float32 holds the integers below
SAFE = 2**30  # no sum of two numbers below it overflows int32
NARROW = {"int8": (-128, 127), "uint8": (0, 255)}


@dataclass(frozen=True)
class Value:
    """What a node makes. ``bounds`` hold an int32's numbers; ``layout`` is an image's.

    ``scales`` has one number, or one for each index along ``axis``. ``ulps`` is how far a float may
    be from TVM's.
    """

    shape: Shape
    dtype: str
    scales: tuple[float, ...] = (1.0,)
    zero_point: int = 0
    layout: str = ""
    bounds: tuple[int, int] = (0, 0)
    axis: int = -1
    ulps: int = 0

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        return self.layout != ""

    @property
    def is_narrow(self) -> bool:
        return self.dtype in NARROW

    @property
    def range(self) -> tuple[int, int]:
        return NARROW.get(self.dtype, self.bounds)

    @property
    def largest(self) -> int:
        return max(abs(bound) for bound in self.range)

    @property
    def scale(self) -> float:
        return self.scales[0]

    def dim(self, letter: str) -> int:
        return self.shape[self.layout.index(letter)]

    def draw(self, rng: np.random.Generator) -> Array:
        """Numbers of the whole range, a tenth of them its ends; floats around 0."""
        if self.dtype == "float32":
            return rng.normal(0, 3, self.shape).astype(np.float32)
        low, high = self.range
        numbers = rng.integers(low, high, self.shape, self.dtype, endpoint=True)
        ends = rng.choice(np.array([low, high], self.dtype), self.shape)
        return np.asarray(np.where(rng.random(self.shape) < 0.1, ends, numbers))


@dataclass(frozen=True)
class Node:
    """``make`` writes the node's Relay from its arguments'; an input has none."""

    value: Value
    make: Callable[..., relay.Expr] | None = None
    args: tuple[int, ...] = ()


@dataclass(frozen=True)
class RandomGraph:
    """``outputs`` are nodes; one of them may stand there twice, or be read inside too."""

    seed: int
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def needed(self) -> list[int]:
        """The nodes that the outputs depend on, in order."""
        found: set[int] = set()
        stack = list(self.outputs)
        while stack:
            index = stack.pop()
            if index not in found:
                found.add(index)
                stack += self.nodes[index].args
        return sorted(found)

    def inputs(self) -> dict[str, Array]:
        """A value for each input, which keeps it when others are cut away."""
        return {
            f"g{self.seed}_{index}": self.nodes[index].value.draw(
                np.random.default_rng([self.seed, index])
            )
            for index in self.needed()
            if self.nodes[index].make is None
        }

    def function(self) -> relay.Function:
        made: dict[int, relay.Expr] = {}
        for index in self.needed():
            node = self.nodes[index]
            if node.make is None:
                of = relay.TensorType(node.value.shape, node.value.dtype)
                made[index] = relay.var(f"g{self.seed}_{index}", of)
            else:
                made[index] = node.make(*(made[arg] for arg in node.args))
        fields = [made[index] for index in self.outputs]
        params = [expr for expr in made.values() if isinstance(expr, relay.Var)]
        return relay.Function(params, fields[0] if len(fields) == 1 else relay.Tuple(fields))

    def module(self) -> tvm.IRModule:
        return relay.transform.InferType()(tvm.IRModule.from_expr(self.function()))

    def smaller(self) -> list[RandomGraph]:
        """What to try in search of a smaller graph that fails as well: one output only, or an
        output's argument for it; a node as an input, or as its own argument."""
        ends = list(dict.fromkeys(self.outputs)) if len(self.outputs) > 1 else []
        ends += [arg for output in self.outputs for arg in self.nodes[output].args]
        ends = [end for end in ends if self.nodes[end].make is not None]
        found = [
            replace(self, outputs=(end,))
            for end in ends
            if self.nodes[end].value.dtype != "float32" or end in self.outputs
        ]
        for index in reversed(self.needed()):
            node = self.nodes[index]
            if node.make is not None and node.value.dtype != "float32":
                found.append(self._with(index, Node(node.value)))
                found += [
                    self._with(index, self.nodes[arg])
                    for arg in node.args
                    if self.nodes[arg].make is not None
                    and (self.nodes[arg].value.shape, self.nodes[arg].value.dtype)
                    == (node.value.shape, node.value.dtype)
                ]
        return found

    def _with(self, index: int, node: Node) -> RandomGraph:
        return replace(self, nodes=(*self.nodes[:index], node, *self.nodes[index + 1 :]))

    def __str__(self) -> str:
        """A reproducer: Relay text, the constants that it leaves out, and the inputs."""
        arrays: list[str] = []

        def visit(expr: relay.Expr) -> None:
            if isinstance(expr, relay.Constant) and expr.data.shape:
                arrays.append(f"  {expr.data.dtype} {expr.data.numpy().tolist()}")

        mod = self.module()
        relay.analysis.post_order_visit(mod["main"], visit)
        inputs = (f"  {name} = {array.tolist()}" for name, array in self.inputs().items())
        text = mod.astext(show_meta_data=False)
        return "\n".join([text, "constants, in order:", *arrays, "inputs:", *inputs])


def const(value: Any, dtype: str = "int32") -> relay.Constant:
    return relay.const(np.asarray(value, dtype), dtype)


def constants(scale: Any, zero_point: Any = 0) -> tuple[relay.Constant, relay.Constant]:
    return const(scale, "float32"), const(zero_point)


# --- Drawing -------------------------------------------------------------------------------------


@dataclass
class Maker:
    """Adds node after node; ``pool`` are those that the next may read."""

    rng: np.random.Generator
    nodes: list[Node] = field(default_factory=list)
    pool: list[int] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def number(self, low: float, high: float) -> float:
        return float(np.float32(self.rng.uniform(low, high)))

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def scale(self) -> float:
        """Of data; at times a power of two."""
        return 2.0 ** self.integer(-7, -1) if self.chance(0.1) else self.number(0.004, 0.3)

    def zero_point(self, dtype: str) -> int:
        low, high = NARROW[dtype]
        return self.pick([0, low, self.integer(low, high), self.integer(low, high)])

    def add(self, value: Value, make: Callable[..., relay.Expr] | None, *args: int) -> int:
        assert value.size <= 20 * LARGEST, value
        self.nodes.append(Node(value, make, args))
        return len(self.nodes) - 1

    def of(self, index: int) -> Value:
        return self.nodes[index].value

    def input(self, value: Value) -> int:
        return self.add(value, None)

    def array(self, value: Value) -> relay.Constant:
        return relay.const(value.draw(self.rng), value.dtype)

    def narrow_like(self, value: Value, shape: Shape, dtype: str = "") -> Value:
        """Another 8-bit value, with scale and zero point of its own."""
        dtype = dtype or value.dtype
        return Value(shape, dtype, (self.scale(),), self.zero_point(dtype))

    def other(self, value: Value, fits: Callable[[Value], bool]) -> int:
        """An input like ``value``, or a node of the pool that fits."""
        fitting = [index for index in self.pool if fits(self.of(index))]
        if fitting and self.chance(0.7):
            return int(self.pick(fitting))
        return self.input(value)


def entry(m: Maker) -> int:
    """An input: 8 bits mostly, at times float32 that is quantized, or int32."""
    shape, layout = _entry_shape(m)
    dtype = m.pick(("int8", "int8", "uint8"))
    value = Value(shape, dtype, (m.scale(),), m.zero_point(dtype), layout)
    if m.chance(0.15):
        start = m.input(Value(shape, "float32"))
        return m.add(value, _quantize(value), start)
    if m.chance(0.15):
        bound = m.pick((200, 30_000, FLOAT32_EXACT - 1, 2**27))
        return m.input(replace(value, dtype="int32", bounds=(-bound, bound), zero_point=0))
    return m.input(value)


def _entry_shape(m: Maker) -> tuple[Shape, str]:
    if m.chance(0.2):
        return m.pick(((m.integer(1, 4), m.integer(1, 40)), (2, 3, m.integer(1, 9)))), ""
    layout = m.pick(("NCHW", "NHWC"))
    channels = m.pick((1, 2, 3, 4, 5, 6, 8, 12, 16, 19, 33))
    n, h, w = m.pick((1, 1, 2)), m.integer(1, 9), m.integer(1, 9)
    return ((n, channels, h, w) if layout == "NCHW" else (n, h, w, channels)), layout


# --- Scales --------------------------------------------------------------------------------------


def _quantize(to: Value) -> Callable[[relay.Expr], relay.Expr]:
    scale, zero = constants(to.scale, to.zero_point)
    return lambda x: relay.qnn.op.quantize(x, scale, zero, out_dtype=to.dtype)


def _dequantize(of: Value) -> Callable[[relay.Expr], relay.Expr]:
    scale, zero = constants(of.scale, of.zero_point)
    return lambda x: relay.qnn.op.dequantize(x, scale, zero)


def requantize(m: Maker, x: int, spread: float = 0.0) -> int:
    """Any integer to 8 bits. ``spread`` is how far its numbers mostly lie from the zero point."""
    of = m.of(x)
    dtype = m.pick(("int8", "uint8"))
    spread = spread or of.largest
    scale = max(of.scales) * spread / 127 * m.number(0.3, 1.6)
    if m.chance(0.1):
        scale = 2.0 ** round(math.log2(scale))
    scale = max(scale, max(of.scales) * (of.largest + 255) / SAFE)
    to = Value(of.shape, dtype, (float(np.float32(scale)),), m.zero_point(dtype), of.layout)
    return _requantize_to(m, x, to)


def _requantize_to(m: Maker, x: int, to: Value) -> int:
    of = m.of(x)
    modes = [("None", "None")] * 2
    modes += [(rounding, "int64") for rounding in ("UPWARD", "TONEAREST", "None")]
    if of.largest < FLOAT32_EXACT and to.is_narrow:
        modes += [(rounding, "float32") for rounding in ("UPWARD", "TONEAREST")]
    rounding, compute = m.pick(modes)
    scales = of.scales if len(of.scales) > 1 else of.scale
    before, after = constants(scales, of.zero_point), constants(to.scale, to.zero_point)
    attrs = {"rounding": rounding, "compute_dtype": compute, "out_dtype": to.dtype}
    axis = of.axis if len(of.scales) > 1 else -1
    return m.add(to, lambda x: relay.qnn.op.requantize(x, *before, *after, axis=axis, **attrs), x)


def requantize_alone(m: Maker, x: int) -> int:
    of = m.of(x)
    if of.is_narrow and m.chance(0.2):
        bounds = (-(2**13), 2**13)
        scale = float(np.float32(of.scale * m.number(0.2, 1.5)))
        to = Value(of.shape, "int32", (scale,), m.integer(-99, 99), of.layout, bounds)
        return _requantize_to(m, x, to)
    return requantize(m, x)


# --- Products ------------------------------------------------------------------------------------


def _window(m: Maker, size: tuple[int, int], most: int = 3) -> dict[str, Any]:
    """Kernel, strides, dilation and pads that leave a result of at least one pixel."""
    kernel = (m.integer(1, most), m.integer(1, most))
    dilation = (m.integer(1, 2), m.integer(1, 2)) if m.chance(0.25) else (1, 1)
    strides = (m.integer(1, 3), m.integer(1, 3)) if m.chance(0.4) else (1, 1)
    pads = [m.integer(0, 2) if m.chance(0.5) else 0 for _ in range(4)]
    if m.chance(0.3):
        pads = [kernel[0] // 2, kernel[1] // 2] * 2
    for axis in (0, 1):
        extent = (kernel[axis] - 1) * dilation[axis] + 1
        pads[axis] += max(0, extent - size[axis] - pads[axis] - pads[axis + 2])
    return {"kernel": kernel, "strides": strides, "dilation": dilation, "padding": tuple(pads)}


def _size(of: Value) -> tuple[int, int]:
    return of.dim("H"), of.dim("W")


def _in_layout(layout: str, n: int, c: int, h: int, w: int) -> Shape:
    return tuple({"N": n, "C": c, "H": h, "W": w}[letter] for letter in layout)


def _weights(m: Maker, shape: Shape) -> tuple[relay.Constant, int]:
    """8-bit weights and their zero point."""
    dtype = m.pick(("int8", "int8", "int8", "uint8"))
    zero = m.zero_point(dtype) if m.chance(0.3) or dtype == "uint8" else 0
    return m.array(Value(shape, dtype)), zero


def _scales_of_weights(m: Maker, channels: int) -> tuple[float, ...]:
    if m.chance(0.5) and channels > 1:
        return tuple(m.number(0.0005, 0.02) for _ in range(channels))
    return (m.number(0.0005, 0.02),)


def _scale_argument(scales: tuple[float, ...], per_channel: bool = True) -> relay.Constant:
    """The weights' scale as the operator takes it. Its type wants another number of scales than
    channels for groups of several inputs; the requantization after it has them all the same."""
    return const(scales if per_channel and len(scales) > 1 else scales[0], "float32")


def _products(of: Value, scales: tuple[float, ...], count: int) -> dict[str, Any]:
    """How large sums of so many products are, and their scale."""
    largest = max(abs(bound - of.zero_point) for bound in of.range) * 255 * count
    return {
        "scales": tuple(float(np.float32(of.scale * scale)) for scale in scales),
        "bounds": (-largest, largest),
        "dtype": "int32",
        "zero_point": 0,
    }


def _after_products(m: Maker, x: int, count: int) -> int:
    """bias_add, requantize and clip, as far as they are there."""
    of = m.of(x)
    if m.chance(0.2):
        m.pool.append(x)
    if m.chance(0.7):
        most = of.bounds[1] // 4
        bias = m.array(Value((of.shape[of.axis],), "int32", bounds=(-most, most)))
        bounds = (of.bounds[0] - most, of.bounds[1] + most)
        x = m.add(replace(of, bounds=bounds), lambda x: relay.nn.bias_add(x, bias, axis=of.axis), x)
    if m.chance(0.1) and len(of.scales) == 1:
        x = relu(m, x)
    if m.chance(0.1) and len(of.scales) == 1:
        return x
    x = requantize(m, x, math.sqrt(count) * 150 * 80)
    return clip(m, x) if m.chance(0.4) else x


def conv2d(m: Maker, x: int) -> int:
    of = m.of(x)
    if m.chance(0.15):
        x = pad_image(m, x)
        of = m.of(x)
    channels = of.dim("C")
    kind = m.pick(("regular", "regular", "depthwise", "grouped"))
    window = _window(m, _size(of), m.pick((1, 3, 3, 5)))
    kernel = window.pop("kernel")
    groups, inner, out = _groups(m, channels, kind)
    if kind == "depthwise" and channels > 1:
        shape: Shape = (channels, out // channels, *kernel)
        order, count = ("OIHW" if of.layout == "NCHW" else "HWOI"), math.prod(kernel)
    else:
        shape = (out, inner, *kernel)
        order, count = ("OIHW" if of.layout == "NCHW" else "HWIO"), inner * math.prod(kernel)
    weight, zero = _weights(m, tuple(dict(zip("OIHW", shape, strict=True))[a] for a in order))
    attrs = {
        "channels": out,
        "kernel_size": kernel,
        "groups": groups,
        "data_layout": of.layout,
        "kernel_layout": order,
        "out_dtype": "int32",
        **window,
    }
    scales = _scales_of_weights(m, out)
    value = replace(of, shape=(), axis=of.layout.index("C"), **_products(of, scales, count))
    value = replace(value, shape=_conv_shape(of, out, kernel, **window))
    if of.dtype == weight.data.dtype == "int8" and m.chance(0.2):
        y = m.add(value, lambda x: relay.nn.conv2d(x, weight, **attrs), x)
        return _after_products(m, y, count)
    scale = _scale_argument(scales, groups == 1 or kind == "depthwise")
    numbers = const(of.zero_point), const(zero), const(of.scale, "float32"), scale
    y = m.add(value, lambda x: relay.qnn.op.conv2d(x, weight, *numbers, **attrs), x)
    return _after_products(m, y, count)


def _groups(m: Maker, channels: int, kind: str) -> tuple[int, int, int]:
    """Groups, input channels of a group, output channels."""
    if kind == "depthwise" and channels > 1:
        return channels, 1, channels * m.pick((1, 1, 2, 3))
    divisors = [d for d in range(2, channels) if channels % d == 0]
    groups = m.pick(divisors) if kind == "grouped" and divisors else 1
    return groups, channels // groups, groups * m.integer(1, 9 if groups == 1 else 3)


def _conv_shape(
    of: Value,
    out: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    padding: Shape,
) -> Shape:
    size = [
        (of.dim("HW"[i]) + padding[i] + padding[i + 2] - (kernel[i] - 1) * dilation[i] - 1)
        // strides[i]
        + 1
        for i in (0, 1)
    ]
    return _in_layout(of.layout, of.dim("N"), out, *size)


def conv2d_transpose(m: Maker, x: int) -> int:
    of = m.of(x)
    channels = of.dim("C")
    divisors = [d for d in range(1, channels + 1) if channels % d == 0]
    groups = m.pick(divisors) if m.chance(0.3) else 1
    out = groups * m.integer(1, 4)
    kernel = (m.integer(1, 4), m.integer(1, 4))
    strides = (m.integer(1, 3), m.integer(1, 3))
    size, pads = _size(of), [0] * 4
    for i in (0, 1):
        room = (size[i] - 1) * strides[i] + kernel[i] - 1
        pads[i] = m.integer(0, min(kernel[i] - 1, room))
        pads[i + 2] = m.integer(0, min(kernel[i] - 1, room - pads[i]))
    more = tuple(m.integer(0, strides[i] - 1) if m.chance(0.4) else 0 for i in (0, 1))
    result = [
        (size[i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + 2] + more[i] for i in (0, 1)
    ]
    weight, zero = _weights(m, (channels, out // groups, *kernel))
    scales = _scales_of_weights(m, out)
    count = channels // groups * math.prod(kernel)
    shape = _in_layout("NCHW", of.dim("N"), out, *result)
    value = replace(of, shape=shape, axis=1, **_products(of, scales, count))
    numbers = const(of.zero_point), const(zero), const(of.scale, "float32")
    scale = _scale_argument(scales, groups == 1)
    attrs = {
        "strides": strides,
        "padding": tuple(pads),
        "output_padding": more,
        "groups": groups,
        "channels": out,
        "kernel_size": kernel,
    }
    y = m.add(
        value, lambda x: relay.qnn.op.conv2d_transpose(x, weight, *numbers, scale, **attrs), x
    )
    return _after_products(m, y, count)


def dense(m: Maker, x: int) -> int:
    of = m.of(x)
    units, count = m.integer(1, 20), of.shape[1]
    scales = _scales_of_weights(m, units)
    weight, zero = _weights(m, (units, count))
    value = replace(
        of, shape=(of.shape[0], units), axis=1, layout="", **_products(of, scales, count)
    )
    if of.dtype == weight.data.dtype == "int8" and m.chance(0.2):
        y = m.add(value, lambda x: relay.nn.dense(x, weight, units=units, out_dtype="int32"), x)
        return _after_products(m, y, count)
    scale = _scale_argument(scales)
    numbers = const(of.zero_point), const(zero), const(of.scale, "float32"), scale
    y = m.add(value, lambda x: relay.qnn.op.dense(x, weight, *numbers, units), x)
    return _after_products(m, y, count)


# --- Two values ----------------------------------------------------------------------------------


def _broadcast(m: Maker, shape: Shape) -> Shape:
    """A shape that broadcasts to ``shape``."""
    kept = shape[m.integer(0, len(shape)) :] if m.chance(0.4) else shape
    return tuple(1 if m.chance(0.25) else size for size in kept)


def _joint_shape(a: Shape, b: Shape) -> Shape | None:
    try:
        return tuple(np.broadcast_shapes(a, b))
    except ValueError:
        return None


def _second(m: Maker, x: int) -> tuple[int, ...] | relay.Constant:
    """A second operand: nothing more than ``x``, another value, or a constant."""
    of = m.of(x)
    kind = m.pick(("pool", "pool", "pool", "input", "constant", "same"))
    if kind == "same":
        return (x,)
    shape = _broadcast(m, of.shape)
    like = m.narrow_like(of, shape) if of.is_narrow else replace(of, shape=shape, layout="")
    if kind == "constant":
        return m.array(like)

    def fits(other: Value) -> bool:
        joint = _joint_shape(of.shape, other.shape)
        small = joint is not None and math.prod(joint) <= LARGEST
        return other.dtype == of.dtype and small and len(other.scales) == 1

    return (m.other(like, fits) if kind == "pool" else m.input(like),)


def qnn_binary(m: Maker, x: int) -> int:
    of = m.of(x)
    name = m.pick(("add", "add", "add", "subtract", "mul"))
    second = _second(m, x)
    constant = isinstance(second, relay.Constant)
    like = m.narrow_like(of, tuple(map(int, second.data.shape))) if constant else m.of(second[0])
    shape = _joint_shape(of.shape, like.shape)
    assert shape is not None
    spread = of.scale * like.scale * 90 if name == "mul" else max(of.scale, like.scale)
    scale = float(np.float32(spread * m.number(0.4, 2.5)))
    to = Value(shape, of.dtype, (scale,), m.zero_point(of.dtype))
    to = replace(to, layout=of.layout if shape == of.shape else "")
    swap = m.chance(0.4)
    sides = [constants(v.scale, v.zero_point) for v in ((like, of) if swap else (of, like))]
    numbers = [number for pair in (*sides, constants(scale, to.zero_point)) for number in pair]
    function = getattr(relay.qnn.op, name)

    def make(a: relay.Expr, b: Any = second) -> relay.Expr:
        return function(*((b, a) if swap else (a, b)), *numbers)

    return m.add(to, make, x, *(() if constant else second))


def int32_binary(m: Maker, x: int) -> int:
    """add, subtract, maximum, minimum or multiply of two int32, as far as they cannot overflow."""
    of = m.of(x)
    second = _second(m, x)
    constant = isinstance(second, relay.Constant)
    shape = tuple(map(int, second.data.shape)) if constant else m.of(second[0]).shape
    other = replace(of, shape=shape) if constant else m.of(second[0])
    names = ["maximum", "minimum"]
    names += ["add", "subtract"] if of.largest + other.largest < SAFE else []
    names += ["multiply"] if of.largest * other.largest < SAFE else []
    name = m.pick(names)
    bound = max(of.largest, other.largest)
    bound = of.largest + other.largest if name in ("add", "subtract") else bound
    bound = of.largest * other.largest if name == "multiply" else bound
    joint = _joint_shape(of.shape, shape)
    assert joint is not None
    swap, function = m.chance(0.4), getattr(relay, name)
    layout = of.layout if joint == of.shape else ""
    value = replace(of, shape=joint, bounds=(-bound, bound), layout=layout, zero_point=0)

    def make(a: relay.Expr, b: Any = second) -> relay.Expr:
        return function(*((b, a) if swap else (a, b)))

    return m.add(value, make, x, *(() if constant else second))


def limit(m: Maker, x: int) -> int:
    """maximum or minimum with a number."""
    of = m.of(x)
    function = m.pick((relay.maximum, relay.minimum))
    number = const(m.integer(*of.range), of.dtype)
    swap = m.chance(0.3)
    return m.add(of, lambda x: function(number, x) if swap else function(x, number), x)


def concatenate(m: Maker, x: int) -> int:
    of = m.of(x)
    axis = m.integer(0, len(of.shape) - 1)
    around = of.shape[:axis], of.shape[axis + 1 :]

    def fits(other: Value) -> bool:
        found = other.shape[:axis], other.shape[axis + 1 :]
        same = other.dtype == of.dtype and len(other.shape) == len(of.shape) and found == around
        return same and other.size <= LARGEST and len(other.scales) == 1

    parts = [x]
    for _ in range(m.integer(0 if of.is_narrow else 1, 2)):
        shape = (*around[0], m.integer(1, 4), *around[1])
        like = m.narrow_like(of, shape) if of.is_narrow else replace(of, shape=shape)
        parts.insert(m.integer(0, len(parts)), m.other(like, fits))
    values = [m.of(part) for part in parts]
    shape = (*around[0], sum(value.shape[axis] for value in values), *around[1])
    bound = max(value.largest for value in values)
    to = replace(of, shape=shape, bounds=(-bound, bound))
    if not of.is_narrow or m.chance(0.3):
        fixed = m.array(of) if m.chance(0.2) else None
        if fixed is not None:
            shape = (*around[0], shape[axis] + of.shape[axis], *around[1])
            to = replace(to, shape=shape)
        more = () if fixed is None else (fixed,)
        return m.add(to, lambda *xs: relay.concatenate([*xs, *more], axis), *parts)
    return _qnn_concatenate(m, parts, to, axis)


def _qnn_concatenate(m: Maker, parts: list[int], to: Value, axis: int) -> int:
    values = [m.of(part) for part in parts]
    scale = float(np.float32(max(value.scale for value in values) * m.number(0.6, 1.5)))
    to = replace(to, scales=(scale,), zero_point=m.zero_point(to.dtype))
    if m.chance(0.3):
        to = replace(to, scales=values[0].scales, zero_point=values[0].zero_point)
    scales = relay.Tuple([const(value.scale, "float32") for value in values])
    zeros = relay.Tuple([const(value.zero_point) for value in values])
    target = constants(to.scale, to.zero_point)

    def make(*xs: relay.Expr) -> relay.Expr:
        return relay.qnn.op.concatenate(relay.Tuple(xs), scales, zeros, *target, axis=axis)

    return m.add(to, make, *parts)


# --- Pooling and sums ----------------------------------------------------------------------------


def _wide(m: Maker, x: int) -> int:
    of = m.of(x)
    if not of.is_narrow:
        return x
    return m.add(replace(of, dtype="int32", bounds=of.range), lambda x: relay.cast(x, "int32"), x)


def _back(m: Maker, x: int, dtype: str) -> int:
    """An average in int32 to 8 bits: by a cast or at another scale, or not at all."""
    of = m.of(x)
    if dtype == "int32" or m.chance(0.1):
        return x
    low, high = NARROW[dtype]
    fits = low <= of.bounds[0] and of.bounds[1] <= high
    if fits and m.chance(0.6):
        to = replace(of, dtype=dtype, bounds=(0, 0))
        return m.add(to, lambda x: relay.cast(x, dtype), x)
    return requantize(m, x)


def max_pool2d(m: Maker, x: int) -> int:
    of = m.of(x)
    window = _window(m, _size(of))
    kernel = window.pop("kernel")
    shape = _conv_shape(of, of.dim("C"), kernel, **window)
    attrs = {"layout": of.layout, **window}
    return m.add(replace(of, shape=shape), lambda x: relay.nn.max_pool2d(x, kernel, **attrs), x)


def avg_pool2d(m: Maker, x: int) -> int:
    dtype = m.of(x).dtype
    x = _wide(m, x)
    of = m.of(x)
    window = _window(m, _size(of)) | {"dilation": (1, 1)}
    kernel = tuple(min(a, b) for a, b in zip(window.pop("kernel"), _size(of), strict=True))
    # A window that holds nothing but border would be divided by no elements.
    pads = tuple(min(p, kernel[i % 2] - 1) for i, p in enumerate(window["padding"]))
    window["padding"] = pads
    shape = _conv_shape(of, of.dim("C"), kernel, **window)
    attrs = {"layout": of.layout, "count_include_pad": m.chance(0.5), **window}
    low, high = of.bounds
    value = replace(of, shape=shape, bounds=(min(low, 0), max(high, 0)))
    y = m.add(value, lambda x: relay.nn.avg_pool2d(x, kernel, **attrs), x)
    return _back(m, y, dtype)


def whole_pool2d(m: Maker, x: int) -> int:
    """global or adaptive, maximum or average."""
    dtype = m.of(x).dtype
    kind = m.pick(("max", "avg"))
    x = _wide(m, x) if kind == "avg" else x
    of = m.of(x)
    if m.chance(0.6):
        size: tuple[int, int] = (1, 1)
        function, args = getattr(relay.nn, f"global_{kind}_pool2d"), ()
    else:
        size = (m.integer(1, of.dim("H")), m.integer(1, of.dim("W")))
        function, args = getattr(relay.nn, f"adaptive_{kind}_pool2d"), (size,)
    shape = _in_layout(of.layout, of.dim("N"), of.dim("C"), *size)
    y = m.add(replace(of, shape=shape), lambda x: function(x, *args, layout=of.layout), x)
    return _back(m, y, dtype) if kind == "avg" else y


def reduction(m: Maker, x: int) -> int:
    dtype = m.of(x).dtype
    x = _wide(m, x)
    of = m.of(x)
    rank = len(of.shape)
    axes = sorted(m.rng.choice(rank, m.integer(1, rank), replace=False).tolist())
    keepdims = m.chance(0.6) or len(axes) == rank
    kept = [1 if d in axes else s for d, s in enumerate(of.shape) if keepdims or d not in axes]
    count = math.prod(of.shape[axis] for axis in axes)
    name = "sum" if of.largest * count < SAFE and m.chance(0.5) else "mean"
    grown = count if name == "sum" else 1
    value = replace(
        of,
        shape=tuple(kept),
        bounds=(min(0, of.bounds[0] * grown), max(0, of.bounds[1] * grown)),
        zero_point=of.zero_point * grown,
        layout=of.layout if keepdims else "",
    )
    exclude = m.chance(0.2) and len(axes) < rank
    named = [d for d in range(rank) if d not in axes] if exclude else axes
    function = getattr(relay, name)
    y = m.add(value, lambda x: function(x, named, keepdims, exclude), x)
    return _back(m, y, dtype)


def _summable(of: Value) -> bool:
    return of.largest * of.size < SAFE


# --- Moves ---------------------------------------------------------------------------------------


def reshape(m: Maker, x: int) -> int:
    of = m.of(x)
    batch, rest = of.shape[0], of.size // of.shape[0]
    kind = m.pick(("flatten", "vector", "expand", "squeeze", "split"))
    if kind == "expand":
        axis = m.integer(0, len(of.shape)) if len(of.shape) < 5 else 0
        shape = (*of.shape[:axis], 1, *of.shape[axis:])
        return m.add(replace(of, shape=shape, layout=""), lambda x: relay.expand_dims(x, axis), x)
    if kind == "squeeze" and 1 in of.shape and of.size > 1:
        shape = tuple(size for size in of.shape if size != 1)
        return m.add(replace(of, shape=shape, layout=""), relay.squeeze, x)
    if kind == "split":
        divisor = m.pick([d for d in range(1, rest + 1) if rest % d == 0])
        shape = (batch, divisor, rest // divisor)
        if m.chance(0.5):
            return m.add(
                replace(of, shape=(*shape, 1), layout="NCHW"),
                lambda x: relay.reshape(x, (*shape, 1)),
                x,
            )
    else:
        shape = (batch, rest) if kind == "flatten" else (of.size,)
    if shape == (batch, rest) and m.chance(0.3) and len(of.shape) > 1:
        return m.add(replace(of, shape=shape, layout=""), relay.nn.batch_flatten, x)
    value = replace(of, shape=shape, layout="")
    return m.add(value, lambda x: relay.reshape(x, shape), x)


def transpose(m: Maker, x: int) -> int:
    of = m.of(x)
    if of.is_image and m.chance(0.6):
        to = "NHWC" if of.layout == "NCHW" else "NCHW"
        axes = [of.layout.index(letter) for letter in to]
        shape = tuple(of.shape[axis] for axis in axes)
        value = replace(of, shape=shape, layout=to)
        if m.chance(0.4):
            return m.add(value, lambda x: relay.layout_transform(x, of.layout, to), x)
        return m.add(value, lambda x: relay.transpose(x, axes), x)
    axes = m.rng.permutation(len(of.shape)).tolist()
    shape = tuple(of.shape[axis] for axis in axes)
    return m.add(replace(of, shape=shape, layout=""), lambda x: relay.transpose(x, axes), x)


def strided_slice(m: Maker, x: int) -> int:
    of = m.of(x)
    begin, end, strides, shape = [], [], [], []
    for size in of.shape:
        first = m.integer(0, size - 1) if m.chance(0.5) else 0
        stride = m.pick((1, 1, 2, 3))
        last = m.integer(first + 1, size) if m.chance(0.5) else size
        if m.chance(0.15):
            begin, end, strides = [*begin, size - 1], [*end, -size - 1], [*strides, -1]
            shape.append(size)
        else:
            begin, end, strides = [*begin, first], [*end, last], [*strides, stride]
            shape.append(-(-(last - first) // stride))
    value = replace(of, shape=tuple(shape))
    return m.add(value, lambda x: relay.strided_slice(x, begin, end, strides), x)


def split(m: Maker, x: int) -> int:
    """Two parts, which are both there for others."""
    of = m.of(x)
    axis = m.pick([d for d, size in enumerate(of.shape) if size > 1])
    at = m.integer(1, of.shape[axis] - 1)
    results = []
    node = len(m.nodes)
    for part, size in enumerate((at, of.shape[axis] - at)):
        shape = (*of.shape[:axis], size, *of.shape[axis + 1 :])
        cut = _Shared(lambda x: relay.split(x, [at], axis).astuple())
        cut = m.nodes[node].make.cut if part else cut  # type: ignore[union-attr]
        results.append(m.add(replace(of, shape=shape), _Part(cut, part), x))
    m.pool.append(results[0])
    return results[1]


@dataclass
class _Shared:
    """One call for all parts of it: the same argument gives the same call."""

    function: Callable[[relay.Expr], relay.Expr]
    last: tuple[relay.Expr, relay.Expr] | None = None

    def __call__(self, x: relay.Expr) -> relay.Expr:
        if self.last is None or not self.last[0].same_as(x):
            self.last = x, self.function(x)
        return self.last[1]


@dataclass(frozen=True)
class _Part:
    cut: _Shared
    part: int

    def __call__(self, x: relay.Expr) -> relay.Expr:
        return relay.TupleGetItem(self.cut(x), self.part)


def pad(m: Maker, x: int) -> int:
    of = m.of(x)
    widths = [(m.integer(0, 2), m.integer(0, 2)) if m.chance(0.4) else (0, 0) for _ in of.shape]
    return _padded(m, x, widths, m.integer(*of.range))


def _padded(m: Maker, x: int, widths: list[tuple[int, int]], number: int) -> int:
    of = m.of(x)
    shape = tuple(size + sum(width) for size, width in zip(of.shape, widths, strict=True))
    pad_value = const(number, of.dtype)
    value = replace(of, shape=shape)
    return m.add(value, lambda x: relay.nn.pad(x, widths, pad_value), x)


def pad_image(m: Maker, x: int) -> int:
    """As importers put it in front of a convolution."""
    of = m.of(x)
    widths = [(m.integer(0, 2), m.integer(0, 2)) if a in "HW" else (0, 0) for a in of.layout]
    return _padded(m, x, widths, of.zero_point)


def resize2d(m: Maker, x: int) -> int:
    of = m.of(x)
    size = tuple(side * m.integer(1, 3) for side in _size(of))
    shape = _in_layout(of.layout, of.dim("N"), of.dim("C"), *size)
    attrs = {
        "layout": of.layout,
        "method": "nearest_neighbor",
        "coordinate_transformation_mode": "asymmetric",
        "rounding_method": "floor",
    }
    return m.add(replace(of, shape=shape), lambda x: relay.image.resize2d(x, size=size, **attrs), x)


def depth_to_space(m: Maker, x: int) -> int:
    of = m.of(x)
    n, c, h, w = (of.dim(letter) for letter in "NCHW")
    shape = _in_layout(of.layout, n, c // 4, 2 * h, 2 * w)
    mode = m.pick(("DCR", "CRD"))
    return m.add(
        replace(of, shape=shape), lambda x: relay.nn.depth_to_space(x, 2, of.layout, mode), x
    )


# --- One value -----------------------------------------------------------------------------------


def clip(m: Maker, x: int) -> int:
    of = m.of(x)
    low, high = sorted(m.integer(max(a, -(2**20)), min(b, 2**20)) for a, b in (of.range,) * 2)
    value = of if of.is_narrow else replace(of, bounds=(low, high))
    return m.add(value, lambda x: relay.clip(x, low, high), x)


def relu(m: Maker, x: int) -> int:
    of = m.of(x)
    value = of if of.is_narrow else replace(of, bounds=(0, max(0, of.bounds[1])))
    return m.add(value, relay.nn.relu, x)


def leaky_relu(m: Maker, x: int) -> int:
    alpha = m.number(0.01, 0.9)
    return m.add(m.of(x), lambda x: relay.nn.leaky_relu(x, alpha), x)


def shift_chain(m: Maker, x: int) -> int:
    """What tvm.relay.quantize writes: multiply, add, right_shift, clip, cast."""
    x = _wide(m, x)
    of = m.of(x)
    most = of.largest
    if most < 2**20 and m.chance(0.4):
        factor, most = m.integer(-9, 9), most * 9
        x = m.add(
            replace(of, bounds=(-most, most), zero_point=0),
            lambda x: relay.multiply(x, const(factor)),
            x,
        )
    shift = max(1, round(math.log2(most + 1)) - m.integer(5, 8))
    if m.chance(0.3):
        multiplier = m.integer(2**30 + 1, 2**31 - 1)
        y = m.add(
            replace(of, bounds=(-most, most), zero_point=0),
            lambda x: relay.fixed_point_multiply(x, multiplier, -shift),
            x,
        )
    else:
        added = m.add(
            replace(of, bounds=(-most - 2**shift, most + 2**shift), zero_point=0),
            lambda x: relay.add(x, const(1 << (shift - 1))),
            x,
        )
        shifted = replace(of, bounds=(-most, most), zero_point=0)
        y = m.add(shifted, lambda x: relay.right_shift(x, const(shift)), added)
    limited = replace(m.of(y), bounds=(-127, 127))
    y = m.add(limited, lambda x: relay.clip(x, -127, 127), y)
    return m.add(replace(limited, dtype="int8"), lambda x: relay.cast(x, "int8"), y)


def widened(m: Maker, x: int) -> int:
    return _wide(m, x)


FloatFunction = Callable[[relay.Expr], relay.Expr]


def _float_function(m: Maker, of: Value, first: bool) -> FloatFunction:
    products = (hard_swish, lambda x: relay.multiply(x, relay.sigmoid(x)))
    slope = m.number(0.05, 0.5)
    axis = of.layout.index("C") if of.is_image else len(of.shape) - 1
    slopes = [slope] * of.shape[axis] if m.chance(0.7) else m.rng.normal(0, 1, of.shape[axis])
    number = const(m.number(-2, 2) or 1.0, "float32")
    return m.pick(
        (
            relay.sigmoid,
            relay.tanh,
            lambda x: relay.nn.leaky_relu(x, slope),
            lambda x: relay.nn.prelu(x, const(slopes, "float32"), axis),
            *(products if first else ()),
            lambda x: relay.add(x, number),
            lambda x: relay.multiply(x, number),
            lambda x: relay.clip(x, -1.0, 2.5),
            relay.nn.relu,
        )
    )


def hard_swish(x: relay.Expr) -> relay.Expr:
    three, six = const(3, "float32"), const(6, "float32")
    return relay.multiply(x, relay.divide(relay.clip(relay.add(x, three), 0.0, 6.0), six))


def function(m: Maker, x: int) -> int:
    """A float32 function between dequantize and quantize. A product reads the dequantized value
    twice, so that it has to come first."""
    of = m.of(x)
    value = replace(of, dtype="float32", scales=(1.0,), zero_point=0)
    y = m.add(value, _dequantize(of), x)
    for place in range(m.pick((1, 1, 1, 2))):
        y = m.add(value, _float_function(m, of, place == 0), y)
    dtype = m.pick(("int8", "uint8"))
    to = Value(of.shape, dtype, (m.scale() / 4,), m.zero_point(dtype), of.layout)
    return m.add(to, _quantize(to), y)


def softmax(m: Maker, x: int) -> int:
    of = m.of(x)
    axis = m.pick((-1, -1, m.integer(0, len(of.shape) - 1)))
    value = replace(of, dtype="float32", scales=(1.0,), zero_point=0)
    y = m.add(value, _dequantize(of), x)
    y = m.add(value, lambda x: relay.nn.softmax(x, axis), y)
    dtype = m.pick(("int8", "uint8"))
    to = Value(of.shape, dtype, (1 / 256,), NARROW[dtype][0], of.layout)
    return m.add(to, _quantize(to), y)


def stop_fusion(m: Maker, x: int) -> int:
    return m.add(m.of(x), relay.annotation.stop_fusion, x)


def with_dead_value(m: Maker, x: int) -> int:
    """The first of two values; nobody reads the other one."""
    other = m.pick(m.pool)
    return m.add(m.of(x), lambda x, y: relay.TupleGetItem(relay.Tuple([x, y]), 0), x, other)


# --- Graphs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """An operator that may come next. ``fits`` says on which values; ``weight`` how often."""

    make: Callable[[Maker, int], int]
    fits: Callable[[Value], bool]
    weight: int = 2
    operator: str = ""  # one that tinyai may not have yet


def narrow(of: Value) -> bool:
    return of.is_narrow


def narrow_image(of: Value) -> bool:
    return of.is_narrow and of.is_image


def image(of: Value) -> bool:
    return of.is_image and len(of.scales) == 1


def single_scale(of: Value) -> bool:
    return len(of.scales) == 1


KINDS = (
    Kind(conv2d, narrow_image, 12),
    Kind(conv2d_transpose, lambda of: narrow_image(of) and of.layout == "NCHW", 3),
    Kind(dense, lambda of: of.is_narrow and len(of.shape) == 2, 12),
    Kind(requantize_alone, lambda of: True, 3),
    Kind(qnn_binary, narrow, 6),
    Kind(int32_binary, lambda of: of.dtype == "int32" and single_scale(of), 6),
    Kind(limit, single_scale),
    Kind(concatenate, single_scale, 3),
    Kind(max_pool2d, image, 3),
    Kind(avg_pool2d, lambda of: image(of) and _summable(of), 3),
    Kind(whole_pool2d, lambda of: image(of) and _summable(of), 3),
    Kind(reduction, lambda of: single_scale(of) and _summable(of), 3),
    Kind(reshape, single_scale, 3),
    Kind(transpose, single_scale),
    Kind(strided_slice, single_scale),
    Kind(split, lambda of: single_scale(of) and of.size > 1, 2, "split"),
    Kind(pad, lambda of: single_scale(of) and 0 not in of.shape),
    Kind(resize2d, lambda of: narrow_image(of) and image(of), 2, "image.resize2d"),
    Kind(depth_to_space, lambda of: image(of) and of.dim("C") % 4 == 0, 2, "nn.depth_to_space"),
    Kind(clip, single_scale),
    Kind(relu, single_scale),
    Kind(leaky_relu, lambda of: single_scale(of) and of.largest < FLOAT32_EXACT, 1),
    Kind(shift_chain, lambda of: single_scale(of) and of.largest < 2**28, 3),
    Kind(widened, narrow, 1),
    Kind(function, narrow, 4),
    Kind(softmax, narrow, 2),
    Kind(stop_fusion, lambda of: True, 2),
    Kind(with_dead_value, lambda of: True, 1),
)
LIVE = tuple(kind for kind in KINDS if not kind.operator or kind.operator in supported())


def random_graph(seed: int, most: int = 12) -> RandomGraph:
    """One to ``most`` operators after one or two inputs."""
    m = Maker(np.random.default_rng(seed))
    m.pool += [entry(m) for _ in range(m.pick((1, 1, 2)))]
    for _ in range(m.integer(1, most if m.chance(0.3) else 3)):
        # The newest mostly, so that graphs get deep.
        x = m.pool[-1] if m.chance(0.7) else m.pick(m.pool)
        of = m.of(x)
        kinds = [
            kind
            for kind in LIVE
            if kind.fits(of) and (of.size <= LARGEST or kind.make is strided_slice)
        ]
        if kinds:
            weights = np.array([kind.weight for kind in kinds], float)
            kind = kinds[int(m.rng.choice(len(kinds), p=weights / weights.sum()))]
            m.pool.append(kind.make(m, x))
    outputs = _outputs(m)
    return RandomGraph(seed, tuple(m.nodes), outputs)


def _outputs(m: Maker) -> tuple[int, ...]:
    """The last value, at times dequantized, and at times others."""
    computed = [index for index in m.pool if m.nodes[index].make is not None]
    if not computed:
        computed = [stop_fusion(m, relu(m, m.pool[-1]))]
    outputs = [computed[-1]]
    for _ in range(m.pick((0, 0, 1, 2))):
        outputs.insert(m.integer(0, len(outputs)), m.pick(computed))
    of = m.of(computed[-1])
    if len(of.scales) == 1 and m.chance(0.25):
        outputs[outputs.index(computed[-1])] = _float_exit(m, computed[-1])
    return tuple(outputs)


def _float_exit(m: Maker, x: int) -> int:
    """Dequantized; at times a softmax after it, which is the host's."""
    of = m.of(x)
    y = m.add(replace(of, dtype="float32"), _dequantize(of), x)
    if m.chance(0.8):
        return y
    return m.add(replace(m.of(y), ulps=2), relay.nn.softmax, y)
