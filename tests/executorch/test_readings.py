"""A program is read, prepared and lowered once for each thing that is made of it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import delegates, edge_of
from tests.support.faults import NO_KERNEL, broken, raises
from tinyai.backend import pipeline
from tinyai.executorch import TinyAIPartitioner, TinyAIQuantizer, quantization_config
from tinyai.frontends.executorch.reader import Reading, operator_of
from tinyai.ir import Graph
from tinyai.ops import MaxPool2d
from tinyai.source import Expr
from tinyai.target import Target

# Of what stays whole (a program of ATen), of the partition, and of the delegates.
READINGS = 3


class Network(nn.Module):
    """Two convolutions, a maximum between them, and a linear layer, which may stay whole."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.last = nn.Linear(36, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.first(x)), 2)
        return self.last(torch.flatten(torch.relu(self.second(x)), 1))


def exported() -> ExportedProgram:
    torch.manual_seed(3)
    samples = [(torch.randn(1, 2, 6, 6),) for _ in range(2)]
    quantizer = TinyAIQuantizer().set_global(quantization_config())
    return quantized(Network().eval(), samples, quantizer)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Node, str]]:
    """The nodes whose readers ran, and what they called then."""
    seen: list[tuple[Node, str]] = []
    call = Reading._call

    def counted(reading: Reading, node: Node) -> Expr:
        seen.append((node, operator_of(node)))
        return call(reading, node)

    monkeypatch.setattr(Reading, "_call", counted)
    return seen


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The graphs on which the passes ran, where nothing was compiled before."""
    seen: list[str] = []
    prepare = pipeline.prepare

    def counted(graph: Graph, target: Target) -> Graph:
        seen.append(graph.name)
        return prepare(graph, target)

    monkeypatch.setattr(pipeline, "_KEPT", type(pipeline._KEPT)())
    monkeypatch.setattr(pipeline, "prepare", counted)
    return seen


@pytest.mark.parametrize("without", [(), ("aten.max_pool2d_with_indices",)], ids=["one", "two"])
def test_each_operator_is_read_once_for_each_thing_that_is_made(
    without: tuple[str, ...], read: list[tuple[Node, str]], prepared: list[str]
) -> None:
    program = exported()
    read.clear()
    edge = edge_of(program, TinyAIPartitioner(operators_not_to_delegate=without))
    parts = 1 + len(without)
    assert delegates(edge) == ["TinyAIExecuTorchBackend"] * parts
    assert max(Counter(read).values()) == 1
    counts = Counter(name for _, name in read)
    assert counts["aten.convolution"] == READINGS * 2
    assert counts["aten.linear"] == READINGS
    assert counts["aten.max_pool2d_with_indices"] == READINGS - len(without)
    assert len(prepared) == parts


def test_what_leaves_a_group_is_no_reason_to_read_the_program_again(
    read: list[tuple[Node, str]],
) -> None:
    program = exported()
    read.clear()
    with broken(raises(NO_KERNEL, MaxPool2d)):
        edge_of(program, TinyAIPartitioner())
    assert max(Counter(read).values()) == 1
    assert Counter(name for _, name in read)["aten.convolution"] == READINGS * 2


def test_the_quantizer_reads_a_model_once(read: list[tuple[Node, str]]) -> None:
    exported()
    assert max(Counter(read).values()) == 1
    assert Counter(name for _, name in read)["aten.conv2d"] == 2
