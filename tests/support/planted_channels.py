"""Random quantized networks with channels that are constant, equal to another one, or read by
nobody, in front of every kind of reader and border, in the arithmetic of each framework."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tinyai.arithmetic.onnx import OnnxArithmetic
from tinyai.arithmetic.tflite import TfliteArithmetic
from tinyai.arithmetic.tvm import TvmArithmetic
from tinyai.builders import Arithmetic, Scale, Sides
from tinyai.ir import Array, Builder, DType, Graph, Type, verify
from tinyai.ops import (
    AdaptivePool2d,
    AvgPool2d,
    Concatenate,
    Conv2d,
    Dense,
    Elementwise,
    FloatAvgPool2d,
    MaxPool2d,
    Pad,
    Reshape,
    Resize,
    Slice,
    Sum,
    steps,
)
from tinyai.ops.scales import number
from tinyai.ops.window import Window

ARITHMETICS: dict[str, Arithmetic] = {
    "upward": TvmArithmetic(),
    "tonearest": TvmArithmetic("TONEAREST"),
    "tflite": TfliteArithmetic(),
    "onnx": OnnxArithmetic(),
}
HEIGHT, WIDTH = 7, 6


@dataclass
class Planter:
    """Draws layers one after the other, all quantized at random scales and zero points."""

    rng: np.random.Generator
    how: Arithmetic
    most: int  # channels of a layer
    builder: Builder = field(default_factory=lambda: Builder("planted"))
    scales: dict[str, Scale] = field(default_factory=dict)

    def chance(self, of: float) -> bool:
        return bool(self.rng.random() < of)

    def one_of(self, *values: object) -> object:
        return values[self.rng.integers(len(values))]

    def scale(self) -> Scale:
        zero = int(self.rng.choice([-128, -128, -3, 0, 17, 127]))
        return Scale(np.asarray(np.float32(np.exp(self.rng.uniform(-4, -2)))), zero)

    def input(self, *shape: int) -> str:
        name = self.builder.input(Type(shape, DType.INT8))
        self.scales[name] = self.scale()
        return name

    def channels(self, x: str) -> int:
        return self.builder.type(x).shape[-1]

    # --- Layers with weights -----------------------------------------------------------------

    def weights(self, *shape: int) -> Array:
        """With rows of zeros and equal rows, and columns of zeros."""
        weights = self.rng.integers(-128, 128, shape).astype(np.int8)
        if self.chance(0.6):
            weights //= 4  # equal channels can be added up
        weights[self.rng.random(shape[0]) < 0.25] = 0
        weights[..., self.rng.random(shape[-1]) < (0.2 if shape[-1] > 1 else 0)] = 0
        return weights

    def summed(self, x: str, op: Conv2d | Dense, weights: Array) -> str:
        """A layer with a bias and its requantization; some channels have equal numbers, some a
        bias that leaves one result only."""
        count = len(weights)
        source = self.scales[x]
        ratios = np.exp(self.rng.uniform(-8, -5, count)).astype(np.float32)
        bias = self.rng.integers(-30000, 30000, count)
        bias[self.rng.random(count) < 0.15] = -(2**28)
        bias[self.rng.random(count) < 0.1] = 2**28
        for to in np.flatnonzero(self.rng.random(count) < 0.25):
            like = int(self.rng.integers(count))
            weights[to], bias[to], ratios[to] = weights[like], bias[like], ratios[like]
        target = self.scale()
        axis = 3 if isinstance(op, Conv2d) else 1
        kind = "qnn.conv2d" if isinstance(op, Conv2d) else "qnn.dense"
        if isinstance(op, Dense) and isinstance(self.how, TfliteArithmetic):
            ratios[:] = ratios[0]  # as TFLite has it
        of_weights = ratios * np.float32(target.scale / source.scale)
        factors = (source.scale, of_weights)
        total = Scale(np.asarray(source.scale * of_weights, np.float32), 0, axis, factors, kind)
        add = steps.Add(operand=number(self.builder, bias, DType.INT32))
        chain = self.how.requantize(self.builder, total, target, DType.INT32, DType.INT8, axis + 1)
        inputs = [x, self.builder.constant(weights)]
        return self.named(self.builder.add(op, inputs, (add, *chain), quant=target.qparams), target)

    def named(self, name: str, scale: Scale) -> str:
        self.scales[name] = scale
        return name

    def window(self, x: str) -> Window:
        """Of every kind of border: none, on all sides, on some, more than the window sees."""
        _, height, width, _ = self.builder.type(x).shape
        kernel = (int(self.rng.integers(1, 4)), int(self.rng.integers(1, 4)))
        dilation = (int(self.one_of(1, 1, 2)), int(self.one_of(1, 1, 2)))
        strides = (int(self.one_of(1, 1, 2)), int(self.one_of(1, 1, 2)))
        padding = self.one_of((0, 0, 0, 0), (1, 1, 1, 1), (0, 0, 1, 1), (2, 1, 0, 3))
        window = Window(kernel, strides, dilation, padding)  # type: ignore[arg-type]
        fits = height + padding[0] + padding[2] >= window.extent[0]  # type: ignore[index]
        fits &= width + padding[1] + padding[3] >= window.extent[1]  # type: ignore[index]
        return window if fits else Window((1, 1))

    def conv(self, x: str) -> str:
        window = Window((1, 1)) if self.chance(0.4) else self.window(x)
        count = int(self.rng.integers(2, self.most + 1))
        op = Conv2d(window, zero_point=self.scales[x].zero_point)
        return self.summed(x, op, self.weights(count, *window.kernel, self.channels(x)))

    def transposed(self, x: str) -> str:
        window = Window((2, 2), padding=(1, 1, 1, 1), upsample=(2, 2))
        if max(self.builder.type(x).shape[1:3]) > HEIGHT:
            return self.conv(x)
        op = Conv2d(window, zero_point=self.scales[x].zero_point)
        return self.summed(x, op, self.weights(self.most, 2, 2, self.channels(x)))

    def depthwise(self, x: str) -> str:
        count, times = self.channels(x), int(self.one_of(1, 1, 1, 2))
        window = self.window(x)
        op = Conv2d(window, count, zero_point=self.scales[x].zero_point)
        return self.summed(x, op, self.weights(count * times, *window.kernel, 1))

    def grouped(self, x: str) -> str:
        count = self.channels(x)
        if count % 2:
            return self.conv(x)
        op = Conv2d(Window((1, 1)), 2, zero_point=self.scales[x].zero_point)
        return self.summed(x, op, self.weights(6, 1, 1, count // 2))

    def dense(self, x: str) -> str:
        op = Dense(self.scales[x].zero_point)
        count = int(self.rng.integers(2, self.most + 1))
        return self.summed(x, op, self.weights(count, self.channels(x)))

    # --- Layers without ----------------------------------------------------------------------

    def max_pool(self, x: str) -> str:
        return self.named(self.builder.add(MaxPool2d(self.window(x)), [x]), self.scales[x])

    def avg_pool(self, x: str) -> str:
        window = self.window(x)
        window = Window(window.kernel, window.strides, (1, 1), window.padding)
        scale = self.scales[x]
        zero = int(self.one_of(0, scale.zero_point))
        op = AvgPool2d(window, "NHWC", self.chance(0.5), self.chance(0.5), zero)
        return self.narrowed(op, x, zero)

    def float_pool(self, x: str) -> str:
        window = self.window(x)
        window = Window(window.kernel, window.strides, (1, 1), window.padding)
        target, scale = self.scale(), self.scales[x]
        args = (self.chance(0.5), self.chance(0.5), scale.zero_point, float(scale.scale))
        chain = OnnxArithmetic().quantize(self.builder, target, DType.INT8, 4)
        return self.named(
            self.builder.add(FloatAvgPool2d(window, "NHWC", *args), [x], chain), target
        )

    def global_pool(self, x: str) -> str:
        kind = str(self.one_of("avg", "max"))
        zero = self.scales[x].zero_point if kind == "avg" else 0
        op = AdaptivePool2d(kind, (1, 1), zero_point=zero)
        if kind == "max":
            return self.named(self.builder.add(op, [x]), self.scales[x])
        return self.narrowed(op, x, zero)

    def mean(self, x: str) -> str:
        _, height, width, _ = self.builder.type(x).shape
        shift = number(self.builder, max((height * width).bit_length() - 1, 1), DType.INT32)
        chain = (steps.RightShift(operand=shift), steps.Clip(-128, 127), steps.Cast(DType.INT8))
        name = self.builder.add(Sum((1, 2), keepdims=True), [x], chain)
        return self.named(name, self.scales[x])

    def narrowed(self, op: AvgPool2d | AdaptivePool2d, x: str, zero: int) -> str:
        """An average from int32 to int8 again, at the same scale."""
        chain = (steps.Add(operand=number(self.builder, zero, DType.INT32)),) if zero else ()
        chain += (steps.Clip(-128, 127), steps.Cast(DType.INT8))  # type: ignore[assignment]
        return self.named(self.builder.add(op, [x], chain), self.scales[x])

    def looked_up(self, x: str) -> str:
        """A function that is not monotonic, with few results or many."""
        results = self.rng.integers(-128, 128, 256) // int(self.one_of(1, 200)) * 3 % 127
        table = tuple(int(v) for v in results)
        shape = self.builder.type(x).shape
        chain = (steps.Lookup(table, DType.INT8),)
        return self.named(self.builder.add(Elementwise(shape), [x], chain), self.scale())

    def added(self, x: str, y: str) -> str:
        """A sum of two branches, of which one may be spread over the image or the channels."""
        shape = tuple(map(max, self.builder.type(x).shape, self.builder.type(y).shape))
        target = self.scale()
        shapes = self.builder.type(x).shape, self.builder.type(y).shape
        sides = Sides(self.scales[x], self.scales[y], y, shapes)
        chain = self.how.add(self.builder, sides, target, DType.INT8, steps.Add)
        return self.named(self.builder.add(Elementwise(shape), [x], chain), target)

    def joined(self, x: str, y: str) -> str:
        axis = int(self.rng.integers(1, 4)) if self.same(x, y) else 3
        parts = [x, y, x] if self.chance(0.2) else [x, y]
        if self.chance(0.3) and axis == 3:
            shape = (*self.builder.type(x).shape[:3], 2)
            values = self.rng.integers(-128, 128, shape).astype(np.int8)
            values[..., 0] = 5
            parts.append(self.builder.constant(values))
        return self.named(self.builder.add(Concatenate(axis), parts), self.scales[x])

    def sliced(self, x: str) -> str:
        shape = self.builder.type(x).shape
        begin = int(self.rng.integers(0, shape[3] // 2))
        stride = int(self.one_of(1, 1, 1, 2))
        count = (shape[3] - begin + stride - 1) // stride
        op = Slice((0, 0, 0, begin), (1, 1, 1, stride), (*shape[:3], count))
        return self.named(self.builder.add(op, [x]), self.scales[x])

    def resized(self, x: str) -> str:
        _, height, width, _ = self.builder.type(x).shape
        op = Resize(tuple(reversed(range(height))), tuple(range(0, width, 2)))
        return self.named(self.builder.add(op, [x]), self.scales[x])

    def padded(self, x: str) -> str:
        widths = ((0, 0), (1, 0), (0, 1), (0, int(self.chance(0.2))))
        value = int(self.one_of(self.scales[x].zero_point, 5))
        return self.named(self.builder.add(Pad(widths, value), [x]), self.scales[x])

    def same(self, x: str, y: str) -> bool:
        return self.builder.type(x) == self.builder.type(y)

    def flattened(self, x: str) -> str:
        of = self.builder.type(x)
        return self.named(self.builder.add(Reshape((1, of.elements)), [x]), self.scales[x])


def planted(seed: int, arithmetic: str, most: int = 9, layers: int = 9) -> Graph:
    """A network of so many layers of at most ``most`` channels (twice as many after some)."""
    p = Planter(np.random.default_rng(seed), ARITHMETICS[arithmetic], most)
    pool = [p.conv(p.input(1, HEIGHT, WIDTH, 3))]
    singles = [p.conv, p.conv, p.conv, p.depthwise, p.depthwise, p.grouped, p.transposed]
    singles += [p.max_pool, p.avg_pool, p.float_pool, p.mean, p.global_pool]
    singles += [p.looked_up, p.sliced, p.resized, p.padded]
    for _ in range(layers):
        x = pool[-1 - int(p.rng.integers(min(2, len(pool))))]
        pairs = [y for y in pool if _spreads(p, x, y)]
        if p.chance(0.35) and pairs:
            pool.append(p.added(x, pairs[int(p.rng.integers(len(pairs)))]))
            continue
        sides = [y for y in pool if p.builder.type(x).shape[:3] == p.builder.type(y).shape[:3]]
        if p.chance(0.15) and p.channels(x) <= 2 * most:
            pool.append(p.joined(x, sides[int(p.rng.integers(len(sides)))]))
            continue
        made = singles[int(p.rng.integers(len(singles)))](x)
        of = p.builder.type(made)
        pool.append(made if p.channels(made) <= 4 * most and of.elements < 20000 else p.conv(x))
    last = p.dense(p.flattened(pool[-1]))
    outputs = [p.dense(last), *([pool[len(pool) // 2]] if p.chance(0.2) else [])]
    return verify(p.builder.graph(outputs))


def _spreads(p: Planter, x: str, y: str) -> bool:
    pairs = zip(p.builder.type(x).shape, p.builder.type(y).shape, strict=True)
    return all(a == b or b == 1 for a, b in pairs)
