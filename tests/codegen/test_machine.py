"""A machine of another kind than those that tinyai writes C for: that it is said what it is, is
enough to cut up layers for its registers, and to pack weights in its order."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tinyai.codegen import kernels
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.portable.generic import VARIANT as GENERIC
from tinyai.codegen.isa.variant import IsaVariant
from tinyai.codegen.kernels import KERNELS, Kernel, choose
from tinyai.codegen.kernels.tile import Tiled
from tinyai.codegen.lowered import Lowered, verify_lowered
from tinyai.codegen.schedules import with_schedules
from tinyai.codegen.shapes.machine import VECTORS, Machine
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.ir import Array, Builder, DType, Graph, Type, verify
from tinyai.ops import Conv2d, Dense
from tinyai.ops.window import Window

# Eight registers, each of 16 rows of 64 bytes: sums of 16 outputs by 16 channels, 64 bytes of the
# windows of 16 outputs, or as many weights of 16 channels.
SQUARES = Machine(
    registers=8,
    rows=16,
    depth=64,
    widths=(1, 2, 3),
    heights=(48, 32, 16),
    columns=0,
    unrolled=0,
    unrolled_narrow=0,
    slot=16.0,
    latency=52.0,
)


def no_code(*_: Any, **__: Any) -> str:
    raise AssertionError


MICRO = Microkernels("squares", no_code, no_code, machine=SQUARES)
VARIANT = IsaVariant("squares", ("squares",), unsigned=True)
ROWS = tuple(
    Kernel(f"{op.name}_squares", op, functools.partial(Tiled.of, micro=MICRO), isa="squares")
    for op in (Conv2d, Dense)
)


def layer(channels: int, out: int, size: int, window: int, groups: int = 1) -> Graph:
    """A convolution, or a dense layer of ``size`` rows where the window is 0."""
    b, rng = Builder("layer"), np.random.default_rng(out)

    def weights(*shape: int) -> str:
        return b.constant(rng.integers(-128, 128, shape).astype(np.int8))

    if not window:
        x = b.input(Type((size, channels), DType.UINT8))
        return verify(b.graph([b.add(Dense(), [x, weights(out, channels)])]))
    x = b.input(Type((1, size, size, channels), DType.UINT8))
    op = Conv2d(Window((window, window), padding=(window // 2,) * 4), groups)
    return verify(b.graph([b.add(op, [x, weights(out, window, window, channels // groups)])]))


LAYERS = {
    "a convolution": layer(32, 80, 12, 3),
    "pixels": layer(100, 200, 9, 1),
    "groups": layer(48, 96, 7, 3, groups=2),
    "few channels": layer(3, 8, 16, 5),
    "rows": layer(300, 50, 33, 0),
    "one row": layer(64, 16, 1, 0),
}


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "KERNELS", (*ROWS, *KERNELS))


def scheduled(graph: Graph) -> Lowered:
    """The layer in a file with a variant for vectors too."""
    isas = (VARIANT, GENERIC)
    dense = Lowered.of(graph, {isa: {} for isa in isas})
    (node,) = graph.nodes
    chosen = {isa: {node.output: choose(dense, node, isa)} for isa in isas}
    return verify_lowered(with_schedules(Lowered.of(graph, chosen), {}))


def of(graph: Lowered, isa: IsaVariant) -> tuple[Tiled, Tiling]:
    """The layer's kernel, and how it is cut up."""
    kernel = graph.variants[isa][graph.nodes[0].output].prepared
    assert isinstance(kernel, Tiled)
    return kernel, kernel.tiling(graph)


def registers(t: Tiling, outputs: int, blocks: int) -> int:
    """Of sums, of a block's weights each, and of the values that meet them."""
    return -(-outputs // t.machine.rows) * blocks + blocks + 1


def windows(t: Tiling, data: Array) -> Array:
    """[groups, outputs, bytes of a window], each row of it filled up to whole products."""
    g = t.g
    image = data.reshape(g.h, g.w, g.groups, g.group_in)
    top, left, bottom, right = g.window.padding
    image = np.pad(image, ((top, bottom), (left, right), (0, 0), (0, 0)))
    (rows, columns), (down, along) = g.window.kernel, g.window.strides
    rooms = [
        image[y * down : y * down + rows, x * along : x * along + columns]
        for y in range(g.oh)
        for x in range(g.ow)
    ]
    seen = np.stack(rooms).transpose(3, 0, 1, 2, 4)  # group, output, row, column, channel
    parts = seen.reshape(g.groups, t.outputs, rows * t.columns, -1)
    filled = np.pad(parts, ((0, 0), (0, 0), (0, 0), (0, t.bytes - parts.shape[-1])))
    return filled.reshape(g.groups, t.outputs, t.k)


def computed(t: Tiling, packed: Array, data: Array) -> Array:
    """What the machine computes of packed weights: a product of registers after the other."""
    seen, at = windows(t, data), 0
    sums = np.zeros((t.g.groups, t.outputs, t.channels), np.int64)
    for group in range(t.g.groups):
        for panel in t.panels:
            size = t.k * 16 * panel.blocks
            weights = packed[at : at + size].reshape(-1, panel.blocks, 16, 16, 4).astype(np.int64)
            at += size
            for first in range(0, t.outputs, panel.outputs):
                last = min(first + panel.outputs, t.outputs)
                assert registers(t, last - first, panel.blocks) <= 8
                values = seen[group, first:last].reshape(last - first, -1, 16, 4)
                tile = np.einsum("osri,sbrci->obc", values, weights).reshape(last - first, -1)
                sums[group, first:last, panel.channel : panel.channel + tile.shape[1]] = tile
    assert at == packed.size
    return sums[..., : t.g.group_out].transpose(1, 0, 2)


@pytest.mark.parametrize("name", LAYERS)
def test_weights_are_packed_as_products_of_two_dimensions_read_them(name: str) -> None:
    graph = scheduled(LAYERS[name])
    (node,), (weight,) = graph.nodes, graph.constants.values()
    kernel, t = of(graph, VARIANT)
    data = np.random.default_rng(1).integers(0, 256, graph.type(graph.inputs[0]).shape)
    expected = node.op.reference(data.astype(np.uint8), weight)
    found = computed(t, kernel.weights(graph), data)
    if t.g.oc > weight.shape[0]:  # outputs that are computed as one
        found = found.reshape(-1, weight.shape[0])
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


@pytest.mark.parametrize("name", LAYERS)
def test_every_candidate_fits_the_registers(name: str) -> None:
    graph = scheduled(LAYERS[name])
    kernel, _ = of(graph, VARIANT)
    schedules = list(kernel.candidates(graph))
    assert schedules
    for schedule in schedules:
        assert kernel.schedule_rejection(graph, schedule) is None
        t = replace(kernel, schedule=schedule).tiling(graph)
        assert all(registers(t, each.outputs, each.blocks) <= 8 for each in t.panels)


def test_each_variant_is_cut_up_for_its_machine() -> None:
    graph = verify_lowered(scheduled(LAYERS["a convolution"]))
    squares, vectors = of(graph, VARIANT)[1], of(graph, GENERIC)[1]
    assert (squares.machine, vectors.machine) == (SQUARES, VECTORS)
    assert max(panel.outputs for panel in squares.panels) > 16
    assert max(panel.outputs for panel in vectors.panels) <= 16
    assert "cut into" in str(graph)
