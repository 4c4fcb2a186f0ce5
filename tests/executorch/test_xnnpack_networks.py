"""Graphs of XNNPACK's quantizer: tinyai's integers are those of XNNPACK's delegate, and where they
are not, the cause is XNNPACK's and named here."""

from __future__ import annotations

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
from torch.fx import Node

from benchmarks.torch_networks import NETWORKS, quantized
from tests.executorch.edge_programs import by_tinyai, by_xnnpack, eager, program_of


def by_its_quantizer(module: nn.Module, samples: list[tuple[Tensor, ...]]) -> ExportedProgram:
    config = get_symmetric_quantization_config(is_per_channel=True)
    return quantized(module.eval(), samples, XNNPACKQuantizer().set_global(config))


class Clamped(nn.Module):
    """A depthwise convolution and a ReLU6 with a grid each: the quantizer gives ``relu6`` the grid
    of what reads it, and has a pair between the two. (``nn.ReLU6`` is a hardtanh, which gets the
    grid of its input.)"""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.last = nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu6(self.first(x)))


def without_pairs_before_clamps(exported: ExportedProgram, sample: Tensor) -> ExportedProgram:
    """The program in which layers go to their clamps as floats."""
    module = exported.module()
    clamps = [node for node in module.graph.nodes if node.target is torch.ops.aten.relu6.default]
    assert clamps
    for clamp in clamps:
        dequantize = clamp.args[0]
        assert isinstance(dequantize, Node)
        quantize = dequantize.args[0]
        assert isinstance(quantize, Node)
        clamp.replace_input_with(dequantize, quantize.args[0])
    module.graph.eliminate_dead_code()
    module.recompile()
    return torch.export.export(module, (sample,))


def test_xnnpack_leaves_out_the_rounding_between_a_layer_and_its_clamp() -> None:
    """Its compiler gives the layer the clamp's bounds and the clamp's result, without a look at the
    two grids. tinyai rounds as the graph says; on the graph without that pair both are equal."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        samples = [(torch.randn(1, 16, 10, 10),) for _ in range(4)]
        exported = by_its_quantizer(Clamped(), samples)
    (sample,) = samples[0]
    theirs = by_xnnpack(exported)(sample)
    said = eager(program_of(exported), sample)

    assert np.mean(theirs != said) > 0.1
    assert np.mean(by_tinyai(exported)(sample) != said) < 0.01, "ties of float sums"
    folded = without_pairs_before_clamps(exported, sample)
    np.testing.assert_array_equal(by_tinyai(folded)(sample), theirs)


SLOW = ("mobilenet_v1", "mobilenet_v2", "resnet18", "unet")
EQUAL = [name for name in NETWORKS if name != "squeeze_excite"]  # of which XNNPACK leaves a part


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in EQUAL]
)
def test_a_network_of_xnnpack_s_quantizer_equals_xnnpack_s_delegate(name: str) -> None:
    network = NETWORKS[name]()
    exported = by_its_quantizer(network.module, network.samples(4, seed=5))
    ours, theirs = by_tinyai(exported), by_xnnpack(exported)
    for (sample,) in network.samples(4):
        expected = theirs(sample)
        np.testing.assert_array_equal(ours(sample), expected)
        assert np.unique(expected).size > 2
