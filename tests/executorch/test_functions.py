"""Functions of one value that no row knows: torch's own operator makes their tables."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from executorch.runtime import Runtime
from torch import Tensor, nn

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import edge_of
from tinyai.executorch import (
    TinyAIPartitioner,
    TinyAIQuantizer,
    load,
    quantization_config,
)

FUNCTIONS = {
    "elu": F.elu,
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "mish": F.mish,
    "softplus": F.softplus,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "tanhshrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.1, -1.0),
    "logsigmoid": F.logsigmoid,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sin": torch.sin,
    "cos": torch.cos,
    "round": torch.round,
    "trunc": torch.trunc,
    "sign": torch.sign,
    "square": torch.square,
    "a power": lambda x: (x.abs() + 0.1) ** 0.3,
    "a quotient": lambda x: 1 / (1 + x.abs()),
    "a remainder": lambda x: torch.remainder(x, 1.3),
    "several, by hand": lambda x: x * torch.tanh(F.softplus(x)),
    "a choice, by hand": lambda x: torch.where(x > 0.5, x, 0.1 * x),
}


class Each(nn.Module):
    """All of them, of as many inputs: what several read would be one input, with one grid."""

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        functions = FUNCTIONS.values()
        return tuple(of(x) for of, x in zip(functions, inputs, strict=True))


def converted(module: nn.Module, count: int) -> torch.export.ExportedProgram:
    samples = [
        tuple(
            4 * torch.randn(3, 40, generator=torch.Generator().manual_seed(9 * n + i))
            for i in range(count)
        )
        for n in range(2)
    ]
    using = TinyAIQuantizer().set_global(quantization_config())
    program = quantized(module.eval(), samples, using)
    assert using.left == (), using.left
    return program


def test_functions_are_quantized_and_delegated_as_tables_with_eager_torch_s_integers() -> None:
    load()
    program = converted(Each(), len(FUNCTIONS))
    inputs = [
        5 * torch.randn(3, 40, generator=torch.Generator().manual_seed(n))
        for n in range(len(FUNCTIONS))
    ]

    edge = edge_of(program, TinyAIPartitioner(strict=True))
    method = Runtime.get().load_program(edge.to_executorch().buffer).load_method("forward")
    found = method.execute(inputs)
    wanted = program.module()(*inputs)

    for name, ours, theirs in zip(FUNCTIONS, found, wanted, strict=True):
        assert torch.equal(ours, theirs), name
        assert theirs.unique().numel() > 2, name
