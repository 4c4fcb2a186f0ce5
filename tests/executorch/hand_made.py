"""Programs whose delegates compute graphs that were made by hand: what the native part does is
tested apart from what the front end reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from unittest import mock

import numpy as np
import torch
from executorch.exir import ExecutorchProgramManager, to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from torch import Tensor, nn
from torch.export import ExportedProgram, export

from tests.support import two_quantizers
from tests.support.example_graphs import Network
from tinyai.backend import pipeline, tinyai_backend
from tinyai.frontends.executorch import backend
from tinyai.frontends.executorch.edge import EdgeGraph, EdgePort, ends_of, handles_of
from tinyai.ir import Array, Builder, DType, Graph, Type
from tinyai.own import OwnBackend
from tinyai.reference import run_graph
from tinyai.target import Target

SHAPE = (1, 8, 8, 16)
NAMES = ("first", "second", "third")


class Clamp(torch.nn.Module):
    """What the runtime sees of a graph: integers in, as many out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x, -100, 100)


class TwoClamps(torch.nn.Module):
    """Two delegates, and an operator between them that stays outside."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(torch.neg(torch.clamp(x, -100, 100)), -99, 99)


class Clamps(Partitioner):
    """Each clamp is a partition."""

    def __init__(self, **options: str) -> None:
        specs = [CompileSpec(name, value.encode()) for name, value in options.items()]
        self.delegation = DelegationSpec(backend.TinyAIExecuTorchBackend.__name__, specs)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        for node in exported_program.graph.nodes:
            if node.op == "call_function" and "clamp" in str(node.target):
                node.meta["delegation_tag"] = f"tag{len(tags)}"
                tags[f"tag{len(tags)}"] = self.delegation
        tag_constant_data(exported_program)
        return PartitionResult(exported_program, tags)


def image_graph(shape: tuple[int, ...] = SHAPE, seed: int = 0, source: str = "") -> Graph:
    """Three convolutions, int8 to int8, whose weights depend on the seed alone."""
    builder = Builder("image")
    net = Network(builder, "NHWC", np.random.default_rng(seed))
    x = builder.input(Type(shape, DType.INT8))
    for name in NAMES:
        x = net.conv(x, shape[-1], 3, source or name)
    return builder.graph([x])


def expected(graph: Graph, x: Array) -> Array:
    (result,) = run_graph(graph, [x])
    return result


def sample(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


def port_of(node: torch.fx.Node) -> EdgePort:
    value = node.meta["val"]
    dtype = str(value.dtype).removeprefix("torch.")
    return EdgePort(node.name, dtype, tuple(value.shape), tuple(value.dim_order()))


def lowered(
    methods: Mapping[str, tuple[torch.nn.Module, tuple[int, ...]]],
    graph_of: Callable[..., Graph],
    **options: str,
) -> ExecutorchProgramManager:
    """Methods of modules, for inputs of shapes; ``graph_of`` is called with each partition."""
    programs = {
        name: export(module, (torch.zeros(shape, dtype=torch.int8),))
        for name, (module, shape) in methods.items()
    }

    def read(program: ExportedProgram, target: Target, name: str, _: OwnBackend) -> EdgeGraph:
        graph = replace(graph_of(program, target), name=name)
        ends = [[port_of(node) for node in nodes] for nodes in ends_of(program)]
        return EdgeGraph(graph, tuple(ends[0]), tuple(ends[1]), handles_of(program))

    with (
        mock.patch.object(backend, "graph_of", read),
        # Graphs of tests have too little work for two threads.
        mock.patch.object(pipeline, "with_useful_threads", lambda graph, target: target),
        mock.patch.object(tinyai_backend, "with_useful_threads", lambda graph, target: target),
    ):
        edge = to_edge_transform_and_lower(programs, partitioner=[Clamps(**options)])
    return edge.to_executorch()


def one_method(**options: str) -> ExecutorchProgramManager:
    return lowered({"forward": (Clamp(), SHAPE)}, lambda *_: image_graph(), **options)


class InTwoQuantizers(nn.Module):
    """The network of ``tests/support/two_quantizers.py``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.dense = nn.Linear(4, 5)
        with torch.no_grad():
            for name, values in two_quantizers.WEIGHTS.items():
                layer = getattr(self, name)
                for parameter, value in zip((layer.weight, layer.bias), values, strict=True):
                    parameter.copy_(torch.from_numpy(value))

    def forward(self, x: Tensor) -> Tensor:
        first = torch.relu(self.conv(x))
        both = first + nn.functional.hardswish(self.depthwise(first))
        mean: Tensor = self.dense(both.mean((2, 3)))
        return mean
