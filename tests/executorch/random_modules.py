"""Random float modules: whatever people write between two layers, and what they write by mistake.

``OPERATORS`` has a function for each way to go on from a value, by kinds. It draws every attribute,
and returns a step or None where the shape does not fit. A module grows on a sample, so that no
shape need be inferred, and values stay of a size that quantizes well. There are no batch norms:
with one anywhere, torchao's conversion takes minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.random_stretches import Site

Function = Callable[..., Tensor]
Operator = Callable[["Branch", Tensor], Function | None]
OPERATORS: dict[str, list[Operator]] = {}
MOST, RANKS = 900, range(1, 6)
# How often each kind is drawn.
SHARES = {"sums": 5, "numbers": 5, "values": 3, "functions": 3, "moves": 4, "reductions": 2}


def operator(kind: str) -> Callable[[Operator], Operator]:
    def add(function: Operator) -> Operator:
        OPERATORS.setdefault(kind, []).append(function)
        return function

    return add


class Branch(nn.Module):
    """A module of one input. ``steps`` are functions and the places of the values that they read;
    the last value is the result, and sometimes one before it is too."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.site = Site(self.rng, ())
        self.layers = nn.ModuleList()
        self.steps: list[tuple[Function, tuple[int, ...]]] = []
        self.results: tuple[int, ...] = ()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values = [x]
        for function, places in self.steps:
            values.append(function(*(values[place] for place in places)))
        return tuple(values[place] for place in self.results)

    # --- Choices, of the seed ---

    def integer(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def tensor(self, *shape: int, spread: float = 1.0) -> Tensor:
        return torch.from_numpy(self.rng.normal(0, spread, shape).astype(np.float32))

    def layer(self, module: nn.Module) -> nn.Module:
        """With weights of the seed that keep values of about the same size."""
        with torch.no_grad():
            for parameter in module.parameters():
                spread = 1 if parameter.dim() < 2 else parameter[0].numel() ** -0.5
                parameter.copy_(self.tensor(*parameter.shape, spread=spread))
        self.layers.append(module)
        return module.eval()


def random_branch(seed: int) -> tuple[Branch, tuple[int, ...]]:
    """A module of two to six operators, and its input's shape."""
    branch = Branch(seed)
    one, integer = branch.site.one, branch.integer
    shape = one(
        *((integer(2, 6), integer(6, 24)), (integer(1, 3), 2 * integer(2, 4), integer(5, 12))),
        *((integer(1, 2), 2 * integer(1, 4), integer(4, 8), integer(4, 8)),) * 2,
    )
    values = [branch.tensor(*shape, spread=2.0)]
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    while len(branch.steps) < 2 or (len(branch.steps) < 6 and branch.site.chance(0.75)):
        operators = OPERATORS[one(*kinds)]
        # Mostly from the last value, sometimes from one before it.
        place = len(values) - 1 if branch.site.chance(0.85) else integer(0, len(values) - 1)
        function = one(*operators)(branch, values[place])
        if function is None:
            continue
        fitting = [n for n, each in enumerate(values) if each.shape == values[place].shape]
        count = getattr(function, "operands", 1)
        places = (place, *(one(*fitting) for _ in range(count - 1)))
        with torch.no_grad():
            value = function(*(values[each] for each in places))
        if _fits(value):
            branch.steps.append((function, places))
            values.append(value)
    last = len(values) - 1
    branch.results = (last, last - 1) if branch.site.chance(0.15) else (last,)
    return branch, tuple(shape)


def _fits(value: Tensor) -> bool:
    sane = value.numel() and bool(value.isfinite().all()) and float(value.abs().max()) < 500
    return bool(sane) and value.dim() in RANKS and value.numel() <= MOST and _spread(value) > 0.05


def _spread(value: Tensor) -> float:
    return float(value.max() - value.min())


class Branches(nn.Module):
    """Modules beside each other: an input of each, and the results of all."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        pairs = zip(self.branches, inputs, strict=True)
        return tuple(result for branch, x in pairs for result in branch(x))


def random_branches(seeds: Sequence[int]) -> tuple[Branches, list[tuple[Tensor, ...]]]:
    """Modules of seeds, and three samples: the last is beyond the others here and there."""
    made = [random_branch(seed) for seed in seeds]
    samples = []
    for number, spread in enumerate((1.0, 1.0, 1.1)):
        rng = np.random.default_rng([number, *seeds])
        values = [rng.normal(0, 2 * spread, shape).astype(np.float32) for _, shape in made]
        samples.append(tuple(map(torch.from_numpy, values)))
    return Branches([branch for branch, _ in made]).eval(), samples


# --- Sums ----------------------------------------------------------------------------------------


def _padding_mode(b: Branch, padding: Sequence[int], size: Sequence[int]) -> str:
    around = all(p < s for p, s in zip(padding, size, strict=True))
    return b.site.one("zeros", "zeros", *(("reflect", "replicate", "circular") if around else ()))


@operator("sums")
def convolution(b: Branch, x: Tensor) -> Function | None:
    dims = x.dim() - 2
    if dims not in (1, 2):
        return None
    one, channels, size = b.site.one, x.shape[1], x.shape[2:]
    groups = one(1, 1, channels, 2 if channels % 2 == 0 else 1)
    kernel = tuple(b.integer(1, min(3, s)) for s in size)
    dilation = tuple(one(1, 1, 2) for _ in size)
    stride = tuple(one(1, 1, 2, 3) for _ in size)
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    padding = tuple(b.integer(0, e - 1) for e in extent)
    mode = _padding_mode(b, padding, size)
    if any(e > s + 2 * p for e, s, p in zip(extent, size, padding, strict=True)):
        return None
    kind = nn.Conv1d if dims == 1 else nn.Conv2d
    options = {"bias": b.site.chance(0.7), "padding_mode": mode}
    outputs = groups * b.integer(1, max(1, 6 // groups))
    return b.layer(kind(channels, outputs, kernel, stride, padding, dilation, groups, **options))


@operator("sums")
def transposed_convolution(b: Branch, x: Tensor) -> Function | None:
    dims = x.dim() - 2
    if dims not in (1, 2):
        return None
    stride = tuple(b.integer(1, 3) for _ in range(dims))
    kernel = tuple(b.integer(1, 3) for _ in range(dims))
    padding = tuple(b.integer(0, k - 1) for k in kernel)
    extra = tuple(b.integer(0, s - 1) for s in stride)
    groups = b.site.one(1, 1, 1, 2 if x.shape[1] % 2 == 0 else 1)
    kind = nn.ConvTranspose1d if dims == 1 else nn.ConvTranspose2d
    outputs = groups * b.integer(1, 3)
    layer = kind(x.shape[1], outputs, kernel, stride, padding, extra, groups, b.site.chance(0.7))
    return b.layer(layer)


@operator("sums")
def linear(b: Branch, x: Tensor) -> Function | None:
    return b.layer(nn.Linear(x.shape[-1], b.integer(1, 12), bias=b.site.chance(0.7)))


@operator("sums")
def product_by_weights(b: Branch, x: Tensor) -> Function | None:
    if x.dim() < 2:
        return None
    weight = b.tensor(x.shape[-1], b.integer(1, 8), spread=x.shape[-1] ** -0.5)
    return lambda x: x @ weight


@operator("sums")
def product_of_values(b: Branch, x: Tensor) -> Function | None:
    if x.dim() < 2:
        return None
    return _of(2, b.site.one(lambda x, y: x @ y.mT, lambda x, y: x.transpose(-1, -2) @ y))


@operator("sums")
def attention(b: Branch, x: Tensor) -> Function | None:
    if x.dim() < 2:
        return None
    factor = b.site.factor()
    return _of(3, lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * factor, -1) @ v)


# --- Numbers and constants -----------------------------------------------------------------------


def _of(count: int, function: Function) -> Function:
    """A function of several values of one shape."""

    def of_several(*values: Tensor) -> Tensor:
        return function(*values)

    of_several.operands = count  # type: ignore[attr-defined]
    return of_several


@operator("numbers")
def times_a_number(b: Branch, x: Tensor) -> Function | None:
    number = b.site.factor() * b.site.one(1, 1, 1, -1)
    return b.site.one(lambda x: x * number, lambda x: number * x, lambda x: x / number)


@operator("numbers")
def plus_a_number(b: Branch, x: Tensor) -> Function | None:
    number = float(b.rng.normal(0, 2))
    return b.site.one(lambda x: x + number, lambda x: x - number, lambda x: number - x)


@operator("numbers")
def bounded(b: Branch, x: Tensor) -> Function | None:
    low, high = sorted(float(n) for n in b.rng.normal(0, float(x.abs().max()), 2))
    bound = torch.tensor(low)
    return b.site.one(
        lambda x: x.clamp(low, high),
        lambda x: x.clamp_min(low),
        lambda x: torch.clamp(x, max=high),
        lambda x: torch.maximum(x, bound),
        lambda x: torch.minimum(x, -bound),
        lambda x: F.hardtanh(x, low, high),
    )


@operator("numbers")
def with_constants(b: Branch, x: Tensor) -> Function | None:
    """A constant for each element, row or channel."""
    shape = [n if b.site.chance(0.6) else 1 for n in x.shape]
    constant = b.tensor(*shape[b.integer(0, len(shape) - 1) :])
    return b.site.one(
        lambda x: x + constant,
        lambda x: constant - x,
        lambda x: x * constant,
        lambda x: x / (constant.abs() + 0.3),
        lambda x: torch.maximum(x, constant),
        lambda x: torch.minimum(constant, x),
    )


# --- Several values ------------------------------------------------------------------------------


@operator("values")
def of_two_values(b: Branch, x: Tensor) -> Function | None:
    factor = b.site.factor()
    return _of(
        2,
        b.site.one(
            lambda x, y: x + y,
            lambda x, y: x - y,
            lambda x, y: torch.add(x, y, alpha=factor),
            lambda x, y: x * y,
            lambda x, y: x * torch.sigmoid(y),
            torch.maximum,
            torch.minimum,
            lambda x, y: torch.relu(x + y),
            lambda x, y: (x + y) * factor,
        ),
    )


@operator("values")
def broadcast(b: Branch, x: Tensor) -> Function | None:
    """With a mean of another value, along an axis."""
    axis, of = b.site.axis(x.dim()), b.site.one(torch.add, torch.sub, torch.mul, torch.maximum)
    return _of(2, lambda x, y: of(x, y.mean(axis, keepdim=True)))


@operator("values")
def joined(b: Branch, x: Tensor) -> Function | None:
    axis, number = b.site.axis(x.dim()), b.site.factor()
    return _of(
        2,
        b.site.one(
            lambda x, y: torch.cat([x, y], axis),
            lambda x, y: torch.cat([x * number, y, x], axis),
            lambda x, y: torch.stack([x, y], axis),
        ),
    )


# --- Functions -----------------------------------------------------------------------------------

# All continuous: at a step that float64 rounds to the other side a function may not jump.
FUNCTIONS: list[Function] = [
    *(F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.gelu, F.silu, F.mish, F.softplus),
    *(F.hardswish, F.hardsigmoid, F.logsigmoid, torch.sigmoid, torch.tanh, torch.erf, torch.abs),
    *(torch.neg, torch.square, torch.sin, torch.cos, F.softshrink, F.tanhshrink),
    lambda x: F.gelu(x, approximate="tanh"),
    lambda x: F.celu(x, 0.7),
    lambda x: F.leaky_relu(x, 0.3),
    lambda x: torch.exp(-x.abs()),
    lambda x: torch.sqrt(x.abs() + 0.1),
    lambda x: torch.rsqrt(x.abs() + 0.5),
    lambda x: torch.log(x.abs() + 0.5),
    lambda x: 1 / (1 + x.abs()),
    lambda x: x * torch.sigmoid(1.7 * x),
    lambda x: torch.where(x > 0, x, 0.2 * x),
    lambda x: x * F.relu6(x + 3) / 6,
]


@operator("functions")
def function(b: Branch, x: Tensor) -> Function | None:
    return b.site.one(*FUNCTIONS)


@operator("functions")
def prelu(b: Branch, x: Tensor) -> Function | None:
    if x.dim() < 2:
        return None
    weight = b.tensor(b.site.one(1, x.shape[1]), spread=0.4)
    return lambda x: F.prelu(x, weight)


@operator("functions")
def softmax(b: Branch, x: Tensor) -> Function | None:
    axis = b.site.axis(x.dim())
    if x.shape[axis] < 2:
        return None
    return b.site.one(lambda x: torch.softmax(x, axis), lambda x: F.log_softmax(x, axis))


@operator("functions")
def layer_norm(b: Branch, x: Tensor) -> Function | None:
    sizes = tuple(x.shape[-b.site.one(1, 1, 2) :])
    if math.prod(sizes) < 4:
        return None
    weight = b.tensor(*sizes) if b.site.chance(0.7) else None
    bias = b.tensor(*sizes) if b.site.chance(0.7) else None
    return lambda x: F.layer_norm(x, sizes, weight, bias)


# --- Moves ---------------------------------------------------------------------------------------


@operator("moves")
def permuted(b: Branch, x: Tensor) -> Function | None:
    if x.dim() < 2:
        return None
    order = [int(n) for n in b.rng.permutation(x.dim())]
    one, other = b.site.axis(x.dim()), b.site.axis(x.dim())
    return b.site.one(
        lambda x: x.permute(order),
        lambda x: x.transpose(one, other),
        lambda x: x.mT,
        lambda x: x.movedim(one, other),
    )


@operator("moves")
def reshaped(b: Branch, x: Tensor) -> Function | None:
    axis = b.site.axis(x.dim())
    even = x.shape[axis] % 2 == 0
    return b.site.one(
        lambda x: x.flatten(min(1, x.dim() - 1)),
        lambda x: x.reshape(-1, x.shape[-1]),
        lambda x: x.unsqueeze(axis),
        lambda x: x.squeeze(axis),
        *([lambda x: x.unflatten(axis, (2, -1)), lambda x: x.unflatten(axis, (-1, 2))] * even),
    )


@operator("moves")
def part(b: Branch, x: Tensor) -> Function | None:
    axis = b.site.axis(x.dim())
    size = x.shape[axis]
    if size < 3:
        return None
    start, step = b.integer(1, size - 1), b.site.one(1, 2, 3)
    rows = x.shape[0] > 1
    return b.site.one(
        lambda x: x.narrow(axis, start - 1, size - start),
        lambda x: x.select(axis, -1),
        lambda x: x[..., ::step],
        lambda x: x[..., -start:],
        lambda x: x.chunk(2, axis)[1],
        lambda x: x.split([1, size - 1], axis)[1],
        lambda x: x.unbind(axis)[0],
        lambda x: torch.cat(x.split([size - 1, 1], axis)[::-1], axis),
        *([lambda x: x[1:]] * rows),
    )


@operator("moves")
def gated(b: Branch, x: Tensor) -> Function | None:
    axis = b.site.axis(x.dim())
    if x.shape[axis] % 2:
        return None

    def gate(x: Tensor) -> Tensor:
        value, by = x.chunk(2, axis)
        return value * torch.sigmoid(by)

    return gate


@operator("moves")
def repeated(b: Branch, x: Tensor) -> Function | None:
    axis = b.site.axis(x.dim())
    times = [b.integer(1, 2) for _ in x.shape]
    return b.site.one(
        lambda x: x.flip(axis),
        lambda x: x.repeat(times),
        lambda x: x.roll(1, axis),
        lambda x: x.unsqueeze(0).expand(2, *x.shape),
    )


@operator("moves")
def padded(b: Branch, x: Tensor) -> Function | None:
    sizes = [b.integer(0, 2) for _ in range(2 * b.integer(1, min(2, x.dim())))]
    value = float(b.rng.normal()) if b.site.chance(0.3) else 0.0
    inner = [*x.shape[-1 : -1 - len(sizes) // 2 : -1]]
    fits = x.dim() == len(sizes) // 2 + 2 and min(inner) > 2
    modes = ["reflect", "replicate", "circular"] if fits else []
    return b.site.one(
        lambda x: F.pad(x, sizes, value=value), *(_pad(sizes, mode) for mode in modes)
    )


def _pad(sizes: list[int], mode: str) -> Function:
    return lambda x: F.pad(x, sizes, mode=mode)


@operator("moves")
def of_images(b: Branch, x: Tensor) -> Function | None:
    if x.dim() != 4:
        return None
    scale, size = b.integer(1, 2), [b.integer(2, 7) for _ in "HW"]
    corners = b.site.chance(0.5)
    even = x.shape[1] % 2 == 0
    return b.site.one(
        lambda x: F.interpolate(x, scale_factor=scale),
        lambda x: F.interpolate(x, size=size, mode="bilinear", align_corners=corners),
        *([lambda x: F.channel_shuffle(x, 2)] * even),
        *([lambda x: F.pixel_shuffle(x, 2)] * (x.shape[1] % 4 == 0)),
        *([lambda x: F.pixel_unshuffle(x, 2)] * (x.shape[2] % 2 == 0 == x.shape[3] % 2)),
    )


# --- Poolings and reductions ---------------------------------------------------------------------


@operator("reductions")
def pooled(b: Branch, x: Tensor) -> Function | None:
    dims = x.dim() - 2
    if dims not in (1, 2):
        return None
    kernel = [b.integer(1, min(3, s)) for s in x.shape[2:]]
    stride = [b.integer(1, 3) for _ in kernel]
    padding = [b.integer(0, k // 2) for k in kernel]
    up, counted = b.site.chance(0.4), b.site.chance(0.5)
    if dims == 1:
        return b.site.one(
            lambda x: F.avg_pool1d(x, kernel, stride, padding, up, counted),
            lambda x: F.max_pool1d(x, kernel, stride, padding, ceil_mode=up),
        )
    divisor = b.site.one(None, None, None, 3)
    return b.site.one(
        *[lambda x: F.avg_pool2d(x, kernel, stride, padding, up, counted, divisor)] * 2,
        lambda x: F.max_pool2d(x, kernel, stride, padding, ceil_mode=up),
        lambda x: F.adaptive_avg_pool2d(x, [max(1, s // 2) for s in x.shape[2:]]),
    )


@operator("reductions")
def reduced(b: Branch, x: Tensor) -> Function | None:
    axes = [int(n) - b.site.one(0, x.dim()) for n in b.rng.permutation(x.dim())]
    axes, keep = axes[: b.integer(1, 2)], b.site.chance(0.5)
    return b.site.one(
        lambda x: x.mean(axes, keepdim=keep),
        lambda x: x.mean(axes, keepdim=keep),
        lambda x: x.sum(axes, keepdim=keep),
        lambda x: x.amax(axes, keepdim=keep),
        lambda x: x.amin(axes, keepdim=keep),
    )
