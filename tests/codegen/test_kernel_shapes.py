"""SIMD kernels around the edges of their tiles: random shapes, types, zero points and epilogues,
each node equal to the numpy reference bit for bit."""

from __future__ import annotations

import pytest

from tests.support.example_graphs import random_inputs
from tests.support.kernel_shapes import SIMD, assert_equal, force_kernel, served_graph
from tests.support.machines import require_isa, runner
from tinyai.codegen.kernels import Kernel
from tinyai.reference import run_graph
from tinyai.target import Target

FILES = [pytest.param(0), *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))]


@pytest.mark.parametrize("number", FILES)
@pytest.mark.parametrize("kernel", SIMD, ids=lambda kernel: kernel.name)
def test_a_simd_kernel_equals_the_reference_around_the_edges_of_its_tiles(
    kernel: Kernel, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_isa(kernel.isa)
    graph = served_graph(kernel, number)
    target = Target(isa=kernel.isa)
    force_kernel(monkeypatch, kernel)
    run = runner(graph, target)
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        results = zip(graph.nodes, run(*inputs), run_graph(graph, inputs), strict=True)
        for node, found, expected in results:
            assert_equal(found, expected, (node.op, graph.types(node.inputs)))
