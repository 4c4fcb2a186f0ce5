"""A layer, a factor, a quantize: tinyai's stretch, before XNNPACK's partitioner gets to see it."""

from __future__ import annotations

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import by_runtime, delegates
from tinyai.executorch import TinyAIPartitioner, TinyAIQuantizer

SHAPES = ((8, 16), (8, 16), (16, 8), (4, 8, 16), (4, 16, 8), *((2, 8, 16),) * 3)


class Factors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        a, b, c, d, q, k, v = values
        attention = torch.softmax(q @ k.transpose(-1, -2) * 0.3, -1) @ v
        return self.linear(x) * 2.0, (a @ b) / 8, (c @ d) / 8, attention


def test_a_factor_after_a_layer_is_tinyais_and_means_what_the_eager_graph_does() -> None:
    """XNNPACK's delegate loses the factor of a layer: alone it is wrong by more than 100 steps."""
    generator = torch.Generator().manual_seed(4)
    samples = [tuple(torch.randn(s, generator=generator) for s in SHAPES) for _ in range(4)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        program = quantized(Factors().eval(), samples, TinyAIQuantizer())
    ends = program.graph.output_node().args[0]

    edge = to_edge_transform_and_lower(
        program, partitioner=[TinyAIPartitioner(strict=True), XnnpackPartitioner()]
    )

    assert delegates(edge) == ["TinyAIExecuTorchBackend"]
    results = zip(ends, by_runtime(edge)(*samples[0]), program.module()(*samples[0]), strict=True)
    for end, found, wanted in results:
        steps = (found - wanted).abs() / end.args[1]
        assert steps.max() <= 1.01, end
        assert found.unique().numel() > 20
