"""``rounding="torch"`` equals XNNPACK's delegate bit for bit, operator by operator; where XNNPACK
takes none, the eager graph within a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import Tensor, nn
from torch.export import ExportedProgram

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import by_xnnpack, eager, program_of, results_by_xnnpack
from tests.executorch.random_layers import UNIT, Grid, Layer, random_layers, through
from tinyai.executorch import graph_of
from tinyai.ir import Array
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

IMAGE = (6, 8, 10, 10)


class Between(nn.Module):
    """An operator between pairs; with weights and a bias if it has some."""

    def __init__(self, of: Callable[..., Tensor], ins: Sequence[Grid], out: Grid) -> None:
        super().__init__()
        self.of, self.ins, self.out = of, ins, out

    def forward(self, *inputs: Tensor) -> Tensor:
        values = [through(x, grid) for x, grid in zip(inputs, self.ins, strict=True)]
        return through(self.of(*values), self.out)


@dataclass(frozen=True)
class Case:
    """``out`` makes the result's grid of the inputs'; without, it is one of about the same size."""

    of: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...] = (IMAGE,)
    out: Callable[[list[Grid]], Grid] | None = None
    same: bool = False  # one grid for all inputs


def first(grids: list[Grid]) -> Grid:
    return grids[0]


def unit(_: list[Grid]) -> Grid:
    return UNIT


def product(grids: list[Grid]) -> Grid:
    return grids[0][0] * grids[1][0] * 90, 3


BY_XNNPACK = {
    "quantize": Case(lambda x: x, out=first),
    "add": Case(torch.add, (IMAGE, IMAGE)),
    "subtract": Case(torch.sub, (IMAGE, IMAGE)),
    "add and relu": Case(lambda a, b: torch.relu(a + b), (IMAGE, IMAGE)),
    "multiply": Case(torch.mul, (IMAGE, IMAGE), product),
    "mean": Case(lambda x: x.mean([2, 3], True)),
    "mean on one grid": Case(lambda x: x.mean([-1, -2], True), ((16, 8, 8, 8),), out=first),
    "relu": Case(torch.relu),
    "hardtanh": Case(lambda x: F.hardtanh(x, 0.0, 6.0)),
    "hardtanh on one grid": Case(lambda x: F.hardtanh(x, 0.0, 6.0), out=first),
    "concatenate": Case(lambda a, b: torch.cat([a, b], 1), (IMAGE, IMAGE), first, same=True),
    "max_pool2d": Case(lambda x: F.max_pool2d(x, 3, 2, 1), out=first),
    "sigmoid": Case(torch.sigmoid, out=unit),
    "tanh": Case(torch.tanh, out=lambda _: (1 / 128, 0)),
    "hardswish": Case(F.hardswish),
    "view": Case(lambda x: x.reshape(6, 8, -1), out=first),
    "permute": Case(lambda x: x.permute(0, 2, 3, 1), out=first),
    "pad": Case(lambda x: F.pad(x, (1, 2, 0, 1)), out=first),
}
BY_NOBODY = {
    "slice": Case(lambda x: x[:, 1::2, :, 3:-1], out=first),
    "multiply by a number": Case(lambda x: x * 2.5),
    "concatenate on several grids": Case(lambda a, b: torch.cat([a, b], 1), (IMAGE, IMAGE)),
    "mean without its dimensions": Case(lambda x: x.mean([2, 3])),
    "mean of rows": Case(lambda x: x.mean([3], True)),
    "hardsigmoid": Case(F.hardsigmoid, out=unit),
    "leaky_relu": Case(lambda x: F.leaky_relu(x, 0.1)),
    "gelu": Case(F.gelu),
    "silu": Case(F.silu),
    "softmax": Case(lambda x: F.softmax(x, -1), ((4, 30),), unit),
    "avg_pool2d": Case(lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "avg_pool2d without the border": Case(
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
    ),
    "adaptive_avg_pool2d": Case(lambda x: F.adaptive_avg_pool2d(x, 5)),
    "upsample": Case(lambda x: F.interpolate(x, scale_factor=2), out=first),
    "pixel_shuffle": Case(lambda x: F.pixel_shuffle(x, 2), out=first),
    "amax": Case(lambda x: x.amax((2, 3)), out=first),
    "split": Case(lambda x: torch.cat([each + each for each in x.split(4, 1)], 1)),
    "flip": Case(lambda x: x.flip(2, 3), out=first),
    "expand": Case(lambda x: x[:, :1].expand(6, 8, 10, 10), out=first),
    "repeat": Case(lambda x: x.repeat(1, 2, 1, 1), out=first),
    "prelu": Case(lambda x: F.prelu(x, torch.tensor([0.25]))),
    "log_softmax": Case(lambda x: F.log_softmax(x, -1), ((4, 30),), lambda _: (1 / 16, 127)),
    "amax of rows": Case(lambda x: x.amax((1, 3), keepdim=True), ((2, 2, 5, 2),), first),
    "avg_pool1d": Case(lambda x: F.avg_pool1d(x, 3, 2), ((4, 8, 20),)),
    "movedim": Case(lambda x: x.movedim(1, 3).mT, out=first),
    "matmul of many": Case(
        torch.matmul, ((2, 3, 7, 16), (2, 3, 16, 9)), lambda g: (g[0][0] * g[1][0] * 200, 0)
    ),
    "bmm": Case(torch.bmm, ((3, 7, 16), (3, 16, 9)), lambda g: (g[0][0] * g[1][0] * 200, 0)),
}


def drawn(case: Case, rng: np.random.Generator) -> tuple[ExportedProgram, tuple[Tensor, ...], Grid]:
    """A program with grids of any size, and inputs that reach beyond them."""

    def grid() -> Grid:
        return float(np.exp(rng.uniform(-6, 1))), int(rng.integers(-128, 128))

    ins = [grid()] * len(case.shapes) if case.same else [grid() for _ in case.shapes]
    about = ins[0][0] * float(np.exp(rng.uniform(-0.7, 0.7))) * len(ins) ** 0.5
    out = case.out(ins) if case.out else (about, int(rng.integers(-128, 128)))
    inputs = tuple(
        torch.from_numpy(((rng.integers(-140, 140, shape) - zero) * scale).astype(np.float32))
        for shape, (scale, zero) in zip(case.shapes, ins, strict=True)
    )
    return torch.export.export(Between(case.of, ins, out), inputs), inputs, out


def ours(program: ExportedProgram, inputs: tuple[Tensor, ...]) -> Array:
    """The reference's result, which the C has too."""
    graph = graph_of(program).graph
    arrays = [x.numpy() for x in inputs]
    (result,) = run_graph(graph, arrays)
    np.testing.assert_array_equal(Runner(graph, Target(isa="scalar"))(*arrays)[0], result)
    return result


@pytest.mark.parametrize("name", BY_XNNPACK)
def test_an_operator_equals_xnnpacks_bit_for_bit(name: str) -> None:
    exported, inputs, _ = drawn(BY_XNNPACK[name], np.random.default_rng(len(name)))
    expected = by_xnnpack(exported)(*inputs)
    np.testing.assert_array_equal(ours(program_of(exported), inputs), expected)
    assert np.unique(expected).size > 2


@pytest.mark.parametrize("name", BY_NOBODY)
def test_an_operator_that_xnnpack_leaves_out_is_within_a_step_of_the_eager_graph(name: str) -> None:
    exported, inputs, (scale, _) = drawn(BY_NOBODY[name], np.random.default_rng(len(name)))
    program = program_of(exported)
    expected = eager(program, *inputs)
    steps = np.rint((ours(program, inputs) - expected) / np.float32(scale))
    assert np.abs(steps).max() <= 1
    assert np.mean(steps != 0) < 0.02, "ties"
    assert np.unique(expected).size > 1


@pytest.mark.parametrize(
    ("window", "zeros"), [((5, 11), (0, 7)), ((11, 11), (3, 20)), ((41, 1), (-13, -11))]
)
def test_a_mean_equals_xnnpacks_where_it_is_halfway_between_steps(
    window: tuple[int, int], zeros: tuple[int, int]
) -> None:
    """All sums about zero, with scales by which every second one is at a tie, nearly."""
    count, step = int(np.prod(window)), 2.0**-7
    ins, out = (float(np.float32(count * step / 2)), zeros[0]), (step, zeros[1])
    sums = np.arange(-150, 151)
    steps = np.full((1, sums.size, count), zeros[0]) + np.floor_divide(sums, count)[:, None]
    steps += np.arange(count) < np.remainder(sums, count)[:, None]
    values = ((steps - zeros[0]) * ins[0]).reshape(1, sums.size, *window)
    inputs = (torch.from_numpy(values.astype(np.float32)),)
    exported = torch.export.export(Between(lambda x: x.mean([2, 3], True), [ins], out), inputs)

    expected = by_xnnpack(exported)(*inputs)
    np.testing.assert_array_equal(ours(program_of(exported), inputs), expected)
    assert np.unique(expected).size > 100


LAYERS = {
    "convolution": (nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU()), (4, 3, 20, 20)),
    "depthwise": (nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.ReLU6()), (4, 16, 12, 12)),
    "grouped": (nn.Conv2d(16, 32, 3, padding=2, dilation=2, groups=4), (4, 16, 10, 10)),
    "transposed": (nn.ConvTranspose2d(32, 8, 3, 2, 1, 1), (4, 32, 10, 10)),
    "linear": (nn.Sequential(nn.Linear(24, 10), nn.ReLU(), nn.Linear(10, 9)), (64, 24)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_xnnpacks_quantizer_equals_xnnpacks_delegate(name: str) -> None:
    module, shape = LAYERS[name]
    samples = [(torch.randn(shape, generator=torch.Generator().manual_seed(n)),) for n in range(3)]
    config = get_symmetric_quantization_config(is_per_channel=name != "grouped")
    exported = quantized(module.eval(), samples, XNNPACKQuantizer().set_global(config))
    expected = by_xnnpack(exported)(*samples[0])
    np.testing.assert_array_equal(ours(program_of(exported), samples[0]), expected)
    assert np.unique(expected).size > 2


@pytest.mark.parametrize("seed", range(3))
def test_random_layers_equal_xnnpacks_delegate(seed: int) -> None:
    """Of random shapes, strides, groups and scales; 12 in one program, which is lowered once."""
    module, inputs = random_layers(np.random.default_rng(seed), 12)
    exported = torch.export.export(module, inputs)
    expected = results_by_xnnpack(exported)(*inputs)
    found = run_graph(graph_of(program_of(exported)).graph, [x.numpy() for x in inputs])
    for layer, mine, theirs in zip(module.layers, found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=str(layer.name))
    assert sum(np.unique(each).size > 2 for each in expected) > 9


@pytest.mark.parametrize("axis", [None, 0], ids=["one scale", "scales of channels"])
def test_a_large_bias_is_rounded_as_xnnpacks_delegate_does_it(axis: int | None) -> None:
    """By float32 inverses of scales: the sums below cancel the bias but for the last bits."""
    rng, width, outputs = np.random.default_rng(5), 16, 1024
    layer = Layer("linear", F.linear, [(float(np.float32(0.031)), 0)])
    layer.with_weights(rng, (outputs, width), outputs, axis, bias=True)
    layer.weight.fill_(127)
    layer.scales.fill_(layer.one_scale)
    scale = layer.ins[0][0] * layer.one_scale
    layer.out = scale, 0
    steps = rng.uniform(-100, 100, outputs) - width * 127 * 127
    layer.bias = torch.from_numpy((steps * scale).astype(np.float32))
    inputs = (torch.full((1, width), 127 * layer.ins[0][0]),)

    exported = torch.export.export(layer, inputs)
    expected = by_xnnpack(exported)(*inputs)
    np.testing.assert_array_equal(ours(program_of(exported), inputs), expected)
    nearest = np.rint(layer.bias.numpy().astype(np.float64) / scale) + width * 127 * 127
    assert np.mean(np.rint(expected[0] / scale) != nearest) > 0.001
