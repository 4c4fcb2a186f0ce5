"""``operators_not_to_delegate``: every name that a user would try, and what is said of the rest."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops as exir_ops
from torch import Tensor, nn
from torch.export import ExportedProgram

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import program_of
from tinyai.errors import UsageWarning
from tinyai.executorch import TinyAIPartitioner, TinyAIQuantizer, explain, quantization_config
from tinyai.frontends.executorch.barred import checked_names, names_of
from tinyai.frontends.executorch.reader import operator_of

aten = torch.ops.aten


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(F.relu6(self.conv(x)))
        return F.softmax(F.mish(x) @ x.mT, -1)


@functools.cache
def program() -> ExportedProgram:
    samples = [
        (torch.randn(2, 3, 10, 10, generator=torch.Generator().manual_seed(n)),) for n in range(2)
    ]
    using = TinyAIQuantizer().set_global(quantization_config())
    return quantized(Several().eval(), samples, using)


@pytest.mark.parametrize(
    ("spelling", "left"),
    [
        ("aten.linear", "aten.addmm.default"),
        (aten.addmm.default, "aten.addmm.default"),
        ("aten.relu6.default", "aten.hardtanh.default"),
        ("aten.mish", "aten.log1p.default"),
    ],
)
def test_an_operator_is_left_whatever_the_edge_dialect_makes_of_it(
    spelling: Any, left: str
) -> None:
    partitioner = TinyAIPartitioner(operators_not_to_delegate=[spelling], isa="scalar")

    graph = to_edge_transform_and_lower(program(), partitioner=[partitioner]).exported_program()

    calls = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert sum(f" {left}>" in call for call in calls) == 1
    assert 1 <= sum("call_delegate" in call for call in calls) <= 2


def test_operators_have_the_names_of_the_model_and_of_the_edge_dialect() -> None:
    nodes = {operator_of(node): node for node in program_of(program()).graph.nodes}
    for name, others in {
        "aten.convolution": ("aten.conv2d", "aten.conv2d.default"),
        "aten.hardtanh": ("aten.relu6", "aten.relu6.default"),
        "aten._softmax": ("aten.softmax", "aten.softmax.int"),
        "aten.bmm": ("aten.matmul", "aten.matmul.default"),
        "aten.linear": ("aten.addmm", "aten.mm.default"),
    }.items():
        assert names_of(nodes[name]) >= {name, f"{name}.default", *others}, name
    pair = nodes["quantized_decomposed.quantize_per_tensor"]
    assert all(name.startswith("quantized_decomposed.") for name in names_of(pair))


@pytest.mark.parametrize(
    "spelling",
    [
        *("aten.linear.default", "aten::linear.default", "torch.ops.aten.linear.default"),
        *(aten.linear.default, exir_ops.edge.aten.linear.default),
    ],
    ids=str,
)
def test_an_operator_may_be_given_as_text_or_as_torch_has_it(spelling: Any) -> None:
    assert checked_names([spelling]) == {"aten.linear.default"}
    assert checked_names([aten.linear]) == {"aten.linear"}


def test_a_name_that_a_program_does_not_have_is_told_with_those_like_it() -> None:
    with pytest.warns(UsageWarning, match=r"found: +aten\.cumsum"):
        TinyAIPartitioner(operators_not_to_delegate=["aten.cumsum"]).partition(
            program_of(program())
        )
    with pytest.warns(UsageWarning, match=r"(?s)found: +aten\.conv1d\b.*try:"):
        explain(program(), operators_not_to_delegate=["aten.conv1d", "aten.conv2d"])
