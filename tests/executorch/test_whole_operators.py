"""Operators that are read whole: whole where they are delegated, and taken apart where not."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import by_runtime, delegates
from tinyai.executorch import TinyAIPartitioner

SAMPLES = [(torch.randn(4, 8, generator=torch.Generator().manual_seed(n)),) for n in range(2)]
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "selu": F.selu,
    "celu": F.celu,
    "log_sigmoid": F.logsigmoid,
    "threshold": lambda x: F.threshold(x, 0.1, -0.2),
}


class ReadAsFloatToo(nn.Module):
    """Functions of a layer's result that the next layer reads as integers, and a sum as floats."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.ModuleList(nn.Linear(8, 8) for _ in FUNCTIONS)
        self.after = nn.ModuleList(nn.Linear(8, 8) for _ in FUNCTIONS)

    def forward(self, x: Tensor) -> list[Tensor]:
        layers = zip(self.before, FUNCTIONS.values(), self.after, strict=True)
        values = [(function(before(x)), after) for before, function, after in layers]
        return [result for value, after in values for result in (after(value), value.cumsum(1))]


def test_functions_that_float_operators_read_too_are_taken_apart_and_the_program_runs() -> None:
    """XNNPACK's quantizer has no pair after them. Whole, they would be errors of ExecuTorch's."""
    using = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        program = quantized(ReadAsFloatToo().eval(), SAMPLES, using)

    edge = to_edge_transform_and_lower(program, partitioner=[TinyAIPartitioner(isa="scalar")])

    assert set(delegates(edge)) == {"TinyAIExecuTorchBackend"}
    calls = [str(n.target) for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    assert not any(f"aten.{name}." in target for name in FUNCTIONS for target in calls)
    pairs = zip(by_runtime(edge)(*SAMPLES[0]), program.module()(*SAMPLES[0]), strict=True)
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, rtol=0, atol=0.05)  # a step, of 8 values


def test_a_function_of_bfloat16_is_left_with_all_others_of_its_program() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Hardswish()).to(torch.bfloat16).eval()
    inputs = (SAMPLES[0][0].bfloat16(),)
    program = torch.export.export(module, inputs)

    edge = to_edge_transform_and_lower(program, partitioner=[TinyAIPartitioner()])

    assert delegates(edge) == []
    assert edge.to_executorch().buffer
