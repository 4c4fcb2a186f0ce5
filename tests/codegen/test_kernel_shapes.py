"""SIMD kernels around the edges of their tiles: random shapes, types, zero points and epilogues,
each node equal to the numpy reference bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.c_checks import WARNINGS, assert_warning_free, missing
from tests.support.example_graphs import random_inputs
from tests.support.kernel_shapes import A_FILE, SIMD, assert_equal, force_kernel, served_graph
from tests.support.machines import CROSS, is_foreign, require_isa, runner
from tinyai.backend import compile_graph
from tinyai.codegen.kernels import Kernel
from tinyai.codegen.kernels.depthwise import Depthwise
from tinyai.codegen.lowered import Lowered
from tinyai.ir import Builder, DType, Graph, Step, Type
from tinyai.ops import Conv2d
from tinyai.ops.steps import Cast, Clip, FixedPointMultiply
from tinyai.ops.window import Window
from tinyai.reference import run_graph
from tinyai.target import Target

QUICK = 30  # nodes in a file of the quick tests
FILES = [pytest.param(0), *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))]


@pytest.mark.parametrize("number", FILES)
@pytest.mark.parametrize("kernel", SIMD, ids=lambda kernel: kernel.name)
def test_a_simd_kernel_equals_the_reference_around_the_edges_of_its_tiles(
    kernel: Kernel, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_isa(kernel.isa)
    graph = served_graph(kernel, number, A_FILE if number else QUICK)
    target = Target(isa=kernel.isa)
    force_kernel(monkeypatch, kernel)
    run = runner(graph, target, *WARNINGS, quickly=True)
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        results = zip(graph.nodes, run(*inputs), run_graph(graph, inputs), strict=True)
        for node, found, expected in results:
            assert_equal(found, expected, (node.op, graph.types(node.inputs)))


@pytest.mark.long
@pytest.mark.parametrize("number", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kernel", SIMD, ids=lambda kernel: kernel.name)
def test_the_c_of_a_simd_kernel_has_nothing_unused(
    kernel: Kernel, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is unused for some shapes is not for others: those above are compiled without a warning
    where they can run, these everywhere."""
    target, compiler = Target(isa=kernel.isa), "gcc"
    if is_foreign(kernel.isa):
        compiler, _ = CROSS[target.architecture]
    if why := missing(compiler):
        pytest.skip(why)
    force_kernel(monkeypatch, kernel)
    compiled = compile_graph(served_graph(kernel, number, QUICK), target, abi="plain")
    assert_warning_free(compiled.source.text, compiler, parsed_alone=True)


def long_windows() -> Graph:
    """Convolutions whose windows end before, at and after 512 bytes and twice as many, in one row
    and in several, with 1 to 13 outputs and weights at the ends of their type."""
    builder, rng = Builder("region"), np.random.default_rng(0)
    results = []
    points = [(1, channels) for channels in (500, 508, 512, 513, 516, 1024, 1030)]
    for number, (side, channels) in enumerate((*points, (3, 44), (3, 60), (3, 57), (3, 172))):
        for dtype in (DType.INT8, DType.UINT8):
            outputs = 1 + (5 * number + (dtype is DType.UINT8)) % 13
            x = builder.input(Type((1, side, side + outputs - 1, channels), dtype))
            weight = rng.choice(np.array([-128, -127, 127], np.int8), (20, side, side, channels))
            weight[0], weight[1] = -128, 127
            op = Conv2d(Window((side, side)), zero_point=dtype.range[number % 2])
            results.append(builder.add(op, [x, builder.constant(weight)]))
    return builder.graph(results)


@pytest.mark.parametrize("isa", sorted({kernel.isa for kernel in SIMD}))
def test_products_of_the_largest_values_equal_the_reference(isa: str) -> None:
    require_isa(isa)
    graph = long_windows()
    run = runner(graph, Target(isa=isa), quickly=True)
    types = graph.types(graph.inputs)
    ends = [
        [np.full(of.shape, of.dtype.range[end], of.dtype.numpy) for of in types] for end in (0, 1)
    ]
    for inputs in (*ends, random_inputs(graph, 0)):
        for node, *pair in zip(graph.nodes, run(*inputs), run_graph(graph, inputs), strict=True):
            assert_equal(pair[0], pair[1], graph.types(node.inputs))


def every_other_pixel() -> Graph:
    """Depthwise convolutions of few channels and of a stride of 2: images with and without a
    border, some of whose last pixels no window sees."""
    builder, rng = Builder("region"), np.random.default_rng(0)
    results = []
    windows = (
        Window((3, 3), (2, 2), padding=(1, 1, 1, 1)),
        Window((3, 3), (1, 2)),
        Window((5, 4), (2, 2), padding=(2, 1, 2, 2)),
        Window((1, 2), (3, 2), (1, 3)),
        Window((3, 3), (2, 2), (2, 2), (2, 2, 2, 2)),
    )
    for channels in (2, 4, 8, 12, 16, 32):
        for number, window in enumerate(windows):
            dtype = (DType.INT8, DType.UINT8)[number % 2]
            width = int(rng.integers(8, 80))
            x = builder.input(Type((1 + number % 2, 9, width, channels), dtype))
            weight = rng.integers(-128, 128, (channels, *window.kernel, 1), np.int8)
            op = Conv2d(window, channels, zero_point=dtype.range[0] + 3)
            results.append(builder.add(op, [x, builder.constant(weight)], requantized(channels)))
    return builder.graph(results)


def requantized(channels: int) -> tuple[Step, ...]:
    multipliers = tuple(2**30 + 12345 * channel for channel in range(channels))
    return FixedPointMultiply(multipliers, (-6,) * channels, 3), Clip(-128, 127), Cast(DType.INT8)


@pytest.mark.parametrize("isa", sorted({k.isa for k in SIMD if "depthwise" in k.name}))
def test_outputs_that_see_every_other_pixel_fill_the_lanes(isa: str) -> None:
    require_isa(isa)
    graph = every_other_pixel()
    run = runner(graph, Target(isa=isa), quickly=True)
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        for node, *pair in zip(graph.nodes, run(*inputs), run_graph(graph, inputs), strict=True):
            assert_equal(pair[0], pair[1], (node.op, graph.types(node.inputs)))
    kernel = next(k for k in SIMD if k.isa == isa and "depthwise" in k.name)
    prepared = [kernel.prepare(Lowered.of(graph), node) for node in graph.nodes]
    found = {each.s.skipped for each in prepared if isinstance(each, Depthwise)}
    assert found >= ({0} if isa == "generic" else {0, 4, 8})
