"""Random quantized layers, many in one program: what tests compare XNNPACK's delegate with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pairs = torch.ops.quantized_decomposed
Grid = tuple[float, int]
Rng = np.random.Generator


def through(x: Tensor, grid: Grid) -> Tensor:
    """A value on a grid."""
    limits = grid[0], grid[1], -128, 127, torch.int8
    return pairs.dequantize_per_tensor(pairs.quantize_per_tensor(x, *limits), *limits)


class Layer(nn.Module):
    """An operator between pairs, and weights of int8 where it has some."""

    def __init__(self, name: str, of: Callable[..., Tensor], ins: list[Grid]) -> None:
        super().__init__()
        self.name, self.of, self.ins = name, of, ins
        self.shapes: list[tuple[int, ...]] = []
        self.out: Grid = (1.0, 0)
        self.axis: int | None = None

    def with_weights(
        self, rng: Rng, shape: tuple[int, ...], outputs: int, axis: int | None, bias: bool
    ) -> Layer:
        """``axis`` counts the channels that have a scale each; without, there is one of all."""
        self.axis = axis
        values = rng.integers(-127, 128, shape).astype(np.int8)
        self.register_buffer("weight", torch.from_numpy(values))
        scales = np.exp(rng.uniform(-7, -3, shape[axis] if axis is not None else 1))
        self.one_scale = float(np.float32(scales[0]))
        self.register_buffer("scales", torch.from_numpy(scales.astype(np.float32)))
        self.register_buffer("zeros", torch.zeros(len(scales), dtype=torch.int64))
        steps = rng.normal(0, np.exp(rng.uniform(3, 13)), outputs)
        values = (steps * scales * self.ins[0][0]).astype(np.float32)
        self.register_buffer("bias", torch.from_numpy(values) if bias else None)
        return self

    def weights(self) -> tuple[Tensor, Tensor | None]:
        if self.axis is None:
            limits = self.one_scale, 0, -127, 127, torch.int8
            return pairs.dequantize_per_tensor(self.weight, *limits), self.bias
        limits = self.scales, self.zeros, self.axis, -127, 127, torch.int8
        return pairs.dequantize_per_channel(self.weight, *limits), self.bias

    def floats(self, *inputs: Tensor) -> Tensor:
        values = [through(x, grid) for x, grid in zip(inputs, self.ins, strict=True)]
        return self.of(*values, *(self.weights() if hasattr(self, "scales") else ()))

    def forward(self, *inputs: Tensor) -> Tensor:
        return through(self.floats(*inputs), self.out)


class Several(nn.Module):
    """Layers beside each other: the inputs of all, one after the other, and a result of each."""

    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        results, left = [], list(inputs)
        for layer in self.layers:
            results.append(layer(*left[: len(layer.ins)]))
            del left[: len(layer.ins)]
        return tuple(results)


def random_layers(rng: Rng, count: int) -> tuple[Several, tuple[Tensor, ...]]:
    """So many layers of random kinds, and inputs that reach beyond their grids."""
    layers = [KINDS[kind](rng) for kind in rng.integers(len(KINDS), size=count)]
    inputs: list[Tensor] = []
    for layer in layers:
        mine = [_values(rng, *each) for each in zip(layer.shapes, layer.ins, strict=True)]
        if layer.out == UNKNOWN:
            layer.out = _around(rng, layer.floats(*mine))
        inputs += mine
    return Several(layers).eval(), tuple(inputs)


UNKNOWN: Grid = (0.0, 0)
UNIT: Grid = (1 / 256, -128)


def _values(rng: Rng, shape: tuple[int, ...], grid: Grid) -> Tensor:
    scale, zero = grid
    return torch.from_numpy(((rng.integers(-140, 140, shape) - zero) * scale).astype(np.float32))


def _grid(rng: Rng) -> Grid:
    """Its scale is a float32, as observers have them."""
    return float(np.float32(np.exp(rng.uniform(-6, 1)))), int(rng.integers(-128, 128))


def _around(rng: Rng, values: Tensor) -> Grid:
    """A grid that holds most of the values, some of them beyond it."""
    low, high = float(values.min()), float(values.max())
    scale = max(high - low, 1e-3) / 255 * float(np.exp(rng.uniform(-0.7, 0.3)))
    return scale, int(np.clip(round(-128 - low / scale), -128, 127))


def _activation(rng: Rng) -> Callable[[Tensor], Tensor]:
    bound = float(np.exp(rng.uniform(-2, 4)))
    return [
        lambda x: x,
        torch.relu,
        lambda x: F.hardtanh(x, 0.0, bound),
    ][rng.integers(3)]


def _convolution(rng: Rng) -> Layer:
    act = _activation(rng)
    way = rng.integers(3)
    groups = 1 if way == 0 else int(rng.integers(1, 24))
    each = 1 if way == 1 else int(rng.integers(1, 24))
    outputs = groups * int(rng.integers(1, 3 if way == 1 else 24 // min(groups, 12) + 2))
    kernel = tuple(map(int, rng.integers(1, 6, 2)))
    stride, dilation = (tuple(map(int, rng.integers(1, 3, 2))) for _ in range(2))
    padding = tuple(int(rng.integers(0, size)) for size in kernel)
    size = [int(rng.integers((k - 1) * d + 1, 16)) for k, d in zip(kernel, dilation, strict=True)]

    def of(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return act(F.conv2d(x, weight, bias, stride, padding, dilation, groups))

    layer = Layer(f"convolution of {groups} groups, kernel {kernel}", of, [_grid(rng)])
    layer.shapes = [(int(rng.integers(1, 3)), groups * each, *size)]
    layer.out = UNKNOWN
    axis = 0 if rng.integers(2) else None
    return layer.with_weights(rng, (outputs, each, *kernel), outputs, axis, rng.integers(4) > 0)


def _transposed(rng: Rng) -> Layer:
    act = _activation(rng)
    channels, outputs = map(int, rng.integers(1, 32, 2))
    kernel = tuple(map(int, rng.integers(1, 5, 2)))
    stride = tuple(map(int, rng.integers(1, 4, 2)))
    padding = tuple(int(rng.integers(0, size)) for size in kernel)
    extra = tuple(int(rng.integers(0, size)) for size in stride)

    def of(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return act(F.conv_transpose2d(x, weight, bias, stride, padding, extra))

    layer = Layer(f"transposed convolution, kernel {kernel}, stride {stride}", of, [_grid(rng)])
    layer.shapes = [(1, channels, *map(int, rng.integers(4, 10, 2)))]
    layer.out = UNKNOWN
    axis = 1 if rng.integers(2) else None
    return layer.with_weights(rng, (channels, outputs, *kernel), outputs, axis, rng.integers(4) > 0)


def _linear(rng: Rng) -> Layer:
    act = _activation(rng)
    rows, width, outputs = map(int, rng.integers(1, 70, 3))

    def of(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return act(F.linear(x, weight, bias))

    layer = Layer(f"linear layer {width} to {outputs}", of, [_grid(rng)])
    layer.shapes = [(rows, width)]
    layer.out = UNKNOWN
    axis = 0 if rng.integers(2) else None
    return layer.with_weights(rng, (outputs, width), outputs, axis, rng.integers(4) > 0)


def _shape(rng: Rng, smallest: int = 3) -> tuple[int, ...]:
    return (*map(int, rng.integers(1, 9, 2)), *map(int, rng.integers(smallest, 12, 2)))


def _of_two(name: str, of: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Rng], Layer]:
    def make(rng: Rng) -> Layer:
        act = [lambda x: x, torch.relu][rng.integers(2)]
        left = _grid(rng)
        right = left[0] * float(np.exp(rng.uniform(-2, 2))), int(rng.integers(-128, 128))
        layer = Layer(name, lambda a, b: act(of(a, b)), [left, right])
        shape = _shape(rng)
        other = [shape, (1, shape[1], 1, 1), (1, 1, 1, 1)][rng.choice(3, p=(0.6, 0.3, 0.1))]
        layer.shapes, layer.out = [shape, other], UNKNOWN
        return layer

    return make


def _of_one(
    name: str, of: Callable[[Tensor], Tensor], out: Grid | None = UNKNOWN
) -> Callable[[Rng], Layer]:
    """``out`` is None where the result has the grid of the input."""

    def make(rng: Rng) -> Layer:
        layer = Layer(name, of, [_grid(rng)])
        layer.shapes, layer.out = [_shape(rng, 6)], layer.ins[0] if out is None else out
        return layer

    return make


def _max_pool(rng: Rng) -> Layer:
    kernel = tuple(map(int, rng.integers(1, 5, 2)))
    if kernel == (1, 1):
        kernel = (2, 1)
    stride = tuple(int(rng.integers(1, size + 1)) for size in kernel)  # XNNPACK takes no larger one
    padding = tuple(int(rng.integers(0, size // 2 + 1)) for size in kernel)
    return _of_one("max_pool2d", lambda x: F.max_pool2d(x, kernel, stride, padding), None)(rng)


def _concatenate(rng: Rng) -> Layer:
    grid, axis = _grid(rng), int(rng.integers(1, 4))
    layer = Layer("concatenate", lambda *parts: torch.cat(parts, axis), [])
    layer.ins = [grid] * int(rng.integers(2, 5))
    shape = _shape(rng)
    sizes = [[*shape] for _ in layer.ins]
    for each in sizes:
        each[axis] = int(rng.integers(1, 9))
    layer.shapes, layer.out = [tuple(each) for each in sizes], grid
    return layer


def _pad(rng: Rng) -> Layer:
    sizes = [*map(int, rng.integers(0, 4, 4))]
    return _of_one("pad", lambda x: F.pad(x, sizes), None)(rng)


def _permute(rng: Rng) -> Layer:
    order = [*map(int, rng.permutation(4))]
    return _of_one("permute", lambda x: x.permute(order), None)(rng)


def _hardtanh(rng: Rng) -> Layer:
    low, high = np.sort(rng.normal(0, 40, 2))
    made = _of_one("hardtanh", lambda x: x)(rng)
    low, high = float(low * made.ins[0][0]), float(high * made.ins[0][0])
    made.of = lambda x: F.hardtanh(x, low, high)
    made.out = made.ins[0] if rng.integers(2) else UNKNOWN
    return made


KINDS: list[Callable[[Rng], Layer]] = [
    _convolution,
    _convolution,
    _convolution,
    _transposed,
    _linear,
    _linear,
    _of_two("add", torch.add),
    _of_two("subtract", torch.sub),
    _of_two("multiply", torch.mul),
    _of_one("square", lambda x: x * x),
    _of_one("double", lambda x: x + x),
    _of_one("mean", lambda x: x.mean([2, 3], True)),
    _of_one("quantize again", lambda x: x),
    _of_one("relu", torch.relu),
    _hardtanh,
    _of_one("sigmoid", torch.sigmoid, UNIT),
    _of_one("tanh", torch.tanh, (1 / 128, 0)),
    _of_one("hardswish", F.hardswish),
    _max_pool,
    _concatenate,
    _pad,
    _permute,
]
