"""Transposed convolutions become plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.pass_graphs import INT8, Small, assert_same_meaning
from tinyai.ir import DType, Graph, Operand, Type, verify
from tinyai.ops import Concatenate, Conv2d, Reshape
from tinyai.ops.steps import Add, Cast, Clip, FixedPointMultiply
from tinyai.ops.window import Window
from tinyai.passes.separate_phases import separate_phases
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target


def transposed(
    kernel: tuple[int, int],
    spread: tuple[int, int],
    padding: tuple[int, int, int, int],
    *,
    image: tuple[int, int] = (3, 4),
    channels: int = 2,
    groups: int = 1,
    layout: str = "NHWC",
) -> Graph:
    """A transposed convolution with a bias for each channel, requantized to int8."""
    b, rng = Small(), np.random.default_rng(7)
    shape = (2, *image, 2) if layout == "NHWC" else (2, 2, *image)
    weight = b.constant(rng.integers(-128, 128, (channels, *kernel, 2 // groups)).astype(np.int8))
    bias = rng.integers(-999, 999, channels).astype(np.int32)
    bias = b.constant(bias if layout == "NHWC" else bias.reshape(channels, 1, 1))
    op = Conv2d(Window(kernel, padding=padding, upsample=spread), groups, layout, -5)
    axis = layout.index("C")
    numbers = tuple(2**30 + 2**20 * n for n in range(channels))
    scaled = FixedPointMultiply(numbers, tuple(-(n % 8) for n in range(channels)), axis=axis)
    steps = (Add(operand=Operand(bias)), scaled, Clip(-128, 127), Cast(DType.INT8))
    return verify(b.graph([b.add(op, [b.input(Type(shape, INT8)), weight], steps, ("up",))]))


def windows(graph: Graph) -> list[str]:
    return [str(node.op.window) for node in graph.nodes if isinstance(node.op, Conv2d)]


def test_a_kernel_as_wide_as_the_stride_is_a_pointwise_product_for_each_phase_of_the_rows() -> None:
    # A window of 2 by 2 at a stride of 2, as its framework pads it: nothing around.
    before = transposed((2, 2), (2, 2), (1, 1, 1, 1))
    after = verify(separate_phases(before))
    first, second, *_, last = after.nodes
    assert windows(after) == ["1x1", "1x1"]
    assert after.type(first.output).shape == (2, 3, 4, 2 * 2)
    kinds = [type(node.op) for node in after.nodes]
    assert kinds == [Conv2d, Conv2d, Reshape, Reshape, Concatenate, Reshape]
    assert (last.output, after.outputs) == (before.outputs[0], before.outputs)
    assert all(node.sources == ("up",) for node in after.nodes)
    assert after.macs() == before.macs()
    assert_same_meaning(before, after)
    assert first.inputs[0] == second.inputs[0] == before.inputs[0]


@pytest.mark.parametrize(
    ("kernel", "spread", "padding", "expected"),
    [
        ((3, 3), (2, 2), (1, 1, 2, 2), ["1x2 padding 0 0 0 1", "2x2 padding 0 0 1 1"]),
        ((3, 3), (2, 2), (2, 2, 1, 1), ["2x2 padding 1 1 0 0", "1x2 padding 0 1 0 0"]),
        ((4, 4), (2, 2), (2, 2, 2, 2), ["2x3 padding 1 1 0 1", "2x3 padding 0 1 1 1"]),
        ((5, 2), (1, 2), (2, 1, 2, 1), ["5x1 padding 2 0 2 0"]),
        ((2, 3), (2, 3), (1, 2, 1, 2), ["1x1", "1x1"]),
    ],
)
def test_phases_see_the_parts_of_the_kernel_that_meet_the_image(
    kernel: tuple[int, int],
    spread: tuple[int, int],
    padding: tuple[int, int, int, int],
    expected: list[str],
) -> None:
    before = transposed(kernel, spread, padding)
    after = verify(separate_phases(before))
    assert windows(after) == expected
    assert_same_meaning(before, after)


@pytest.mark.parametrize("seed", range(40))
def test_any_transposed_convolution_keeps_its_meaning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel = tuple(int(n) for n in rng.integers(1, 6, 2))
    spread = tuple(int(n) for n in rng.integers(1, 5, 2))
    image = tuple(int(n) for n in rng.integers(1, 6, 2))
    padding = tuple(int(n) for n in rng.integers(0, 6, 4))
    reach = [
        (n - 1) * s + 1 + before + after
        for n, s, before, after in zip(image, spread, padding[:2], padding[2:], strict=True)
    ]
    if any(size < k for size, k in zip(reach, kernel, strict=True)):
        kernel = (1, 1)
    before = transposed(kernel, spread, padding, image=image, channels=int(rng.integers(1, 4)))
    assert_same_meaning(before, verify(separate_phases(before)))


@pytest.mark.long
@pytest.mark.parametrize("isa", ["scalar", "auto"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("channels", [3, 40])
def test_code_equals_the_reference(isa: str, threads: int, channels: int) -> None:
    rng = np.random.default_rng(3)
    for kernel, padding in (((2, 2), (1, 1, 1, 1)), ((4, 4), (2, 2, 2, 2)), ((3, 3), (1, 1, 2, 2))):
        graph = transposed(kernel, (2, 2), padding, image=(9, 7), channels=channels)
        data = rng.integers(-128, 128, (2, 9, 7, 2)).astype(np.int8)
        found = Runner(graph, Target(isa=isa, threads=threads))(data)
        for one, other in zip(found, run_graph(graph, [data]), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("reason", "graph"),
    [
        ("a size that is no multiple of the stride", transposed((2, 2), (2, 2), (1, 1, 0, 1))),
        ("groups", transposed((2, 2), (2, 2), (1, 1, 1, 1), groups=2)),
        ("channels first", transposed((2, 2), (2, 2), (1, 1, 1, 1), layout="NCHW")),
        ("a window that begins inside", transposed((2, 1), (2, 1), (0, 0, 1, 0), image=(5, 8))),
        ("no stride", transposed((2, 2), (1, 1), (1, 1, 1, 1))),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_another_convolution_stays(reason: str, graph: Graph) -> None:
    assert str(separate_phases(graph)) == str(graph)


def test_a_step_that_reads_another_image_keeps_the_convolution_whole() -> None:
    b = Small()
    weight = b.constant(np.ones((1, 2, 2, 1), np.int8))
    op = Conv2d(Window((2, 2), padding=(1, 1, 1, 1), upsample=(2, 2)))
    other = b.input(Type((1, 4, 4, 1), DType.INT32))
    data = b.input(Type((1, 2, 2, 1), INT8))
    graph = b.graph([b.add(op, [data, weight], (Add(operand=Operand(other)),))])
    assert str(separate_phases(verify(graph))) == str(graph)
