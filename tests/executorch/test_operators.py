"""Operators of torch from a float module to a delegate: each is quantized, delegated, and within a
step of the eager graph."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import eager, edge_of, program_of
from tinyai.executorch import TinyAIPartitioner, TinyAIQuantizer, graph_of, quantization_config
from tinyai.reference import run_graph

Function = Callable[[Tensor], Tensor]
upsampled = functools.partial(F.interpolate, mode="bilinear")


class Of(nn.Module):
    def __init__(self, of: Function) -> None:
        super().__init__()
        self.of = of

    def forward(self, x: Tensor) -> Tensor:
        return self.of(x)


def attention(x: Tensor) -> Tensor:
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    scores = torch.softmax(heads @ heads.transpose(-1, -2) / 2, -1)
    return (scores @ heads).transpose(1, 2).flatten(2)


def gated(x: Tensor) -> Tensor:
    value, gate = x.chunk(2, 1)
    return value * torch.sigmoid(gate)


def parted(x: Tensor) -> Tensor:
    one, two, three = x.split([1, 4, 3], 1)
    return torch.cat([two, three, one], 1) + x


def normalizing(norm: nn.Module) -> nn.Module:
    """A batch norm that has seen data; one of its channels is dead."""
    with torch.no_grad():
        norm.running_mean.copy_(torch.tensor([0.5, -0.2, 0.0, 0.1]))
        norm.running_var.copy_(torch.tensor([0.3, 2.0, 1.0, 4.0]))
        if norm.affine:
            norm.weight.copy_(torch.tensor([1.5, -0.5, 0.0, 1e-7]))
            norm.bias.copy_(torch.tensor([0.1, -0.4, 0.7, -0.3]))
    return norm


def scaled(norm: nn.LayerNorm) -> nn.Module:
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-1, 2, 12))
        norm.bias.copy_(torch.linspace(1, -1, 12))
    return norm


WEIGHTS = torch.randn(8, 5, generator=torch.Generator().manual_seed(4))
CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "attention": (Of(attention), (3, 6, 8)),
    "chunk": (Of(gated), (3, 8, 5)),
    "split_with_sizes": (Of(parted), (3, 8, 5)),
    "unbind and stack": (Of(lambda x: torch.stack(x.unbind(1)[::-1], 2)), (3, 4, 5)),
    "matmul by weights": (Of(lambda x: torch.relu(x @ WEIGHTS)), (3, 4, 8)),
    "conv1d": (nn.Sequential(nn.Conv1d(4, 6, 3, padding="same"), nn.ReLU()), (2, 4, 12)),
    "volumes": (
        nn.Sequential(nn.Conv3d(4, 6, 3, (2, 1, 1), 1), nn.BatchNorm3d(6), nn.ReLU()),
        (2, 4, 5, 6, 4),
    ),
    "the largest of volumes": (
        nn.Sequential(nn.Conv3d(4, 4, (3, 1, 1), groups=4), nn.ReLU(), nn.MaxPool3d(2, padding=1)),
        (2, 4, 5, 6, 4),
    ),
    "transposed conv1d": (nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), (2, 4, 12)),
    "pooling in a row": (Of(lambda x: F.avg_pool1d(F.max_pool1d(x, 2), 2)), (2, 4, 12)),
    "adaptive pooling": (nn.AdaptiveAvgPool1d(4), (2, 4, 12)),
    "pad": (Of(lambda x: F.pad(torch.relu(x), (1, 2), value=0.5)), (2, 4, 12)),
    "sum": (Of(lambda x: torch.sum(torch.tanh(x), 1)), (2, 4, 12)),
    "amax": (Of(lambda x: torch.amax(x, 1)), (2, 4, 12)),
    "adaptive max pooling": (Of(lambda x: F.adaptive_max_pool2d(x, (2, 1))), (2, 3, 4, 6)),
    "the larger of two": (
        Of(lambda x: torch.maximum(x, 1 - x) + torch.minimum(x, x.tanh())),
        (2, 12),
    ),
    "log_softmax": (Of(lambda x: F.log_softmax(torch.tanh(x), -1)), (2, 12)),
    "layer norm": (nn.Sequential(nn.Tanh(), scaled(nn.LayerNorm(12))), (5, 12)),
    "layer norm of images": (nn.LayerNorm((4, 6), elementwise_affine=False), (2, 3, 4, 6)),
    "bounds": (Of(lambda x: torch.tanh(x).clamp_min(-0.5).clamp_max(0.3)), (2, 12)),
    "prelu": (nn.PReLU(), (2, 4, 12)),
    "shuffles": (Of(lambda x: F.pixel_unshuffle(F.channel_shuffle(x.tanh(), 2), 2)), (2, 4, 6, 6)),
    "batch norm": (nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6)), (2, 4, 12)),
    "batch norm alone": (nn.Sequential(normalizing(nn.BatchNorm2d(4)), nn.ReLU()), (2, 4, 5, 6)),
    "batch norm of rows": (normalizing(nn.BatchNorm1d(4)), (8, 4)),
    "batch norm of volumes": (normalizing(nn.BatchNorm3d(4, affine=False)), (2, 4, 3, 2, 5)),
    "bilinear upsampling": (Of(lambda x: upsampled(x.tanh(), size=(7, 9))), (2, 4, 3, 5)),
    "bilinear to the corners": (
        Of(lambda x: upsampled(x.tanh(), scale_factor=2, align_corners=True)),
        (2, 4, 1, 5),
    ),
    "bilinear downsampling": (Of(lambda x: upsampled(x.tanh(), scale_factor=0.4)), (2, 4, 9, 7)),
    "dropout in place": (nn.Sequential(nn.Tanh(), nn.Dropout(inplace=True)), (2, 12)),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_quantized_and_delegated_within_a_step_of_the_eager_graph(name: str) -> None:
    module, shape = CASES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        samples = [(torch.randn(shape),) for _ in range(3)]
        using = TinyAIQuantizer().set_global(quantization_config())
        exported = quantized(module.eval(), samples, using)
    assert using.left == (), using.left

    program = program_of(exported)
    ((x,), *_) = samples
    expected = eager(program, x)
    (found,) = run_graph(graph_of(program).graph, [x.numpy()])

    values = np.unique(np.concatenate([expected, found]))
    assert np.abs(found - expected).max() <= 1.01 * np.diff(values).min(initial=1)
    assert np.mean(found != expected) < 0.05, "ties"
    assert values.size > 5
    calls = (
        edge_of(exported, TinyAIPartitioner(strict=True, isa="scalar"))
        .exported_program()
        .graph.nodes
    )
    assert sum("call_delegate" in str(node.target) for node in calls) == 1


def test_a_batch_norm_of_a_computed_scale_is_refused() -> None:
    """It was read as one without a scale."""
    numbers = torch.zeros(4), torch.ones(4)
    module = Of(lambda x: F.batch_norm(x, *numbers, weight=x.abs().amax((0, 2))))
    using = TinyAIQuantizer().set_global(quantization_config())
    quantized(module.eval(), [(torch.randn(2, 4, 5),)], using)
    (left,) = (each for each in using.left if "batch_norm" in each.operator)
    assert "weight of aten.batch_norm: found computed at run time" in left.reason
