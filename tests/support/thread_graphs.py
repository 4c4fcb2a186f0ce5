"""Graphs that threads share, and a call of them by hand."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from tests.support.example_graphs import NETWORKS, Network, Qnn
from tinyai.codegen.c_source import CSource
from tinyai.ir import Array, Builder, DType, Graph, Type
from tinyai.ops import AdaptivePool2d, Dense, Reshape
from tinyai.ops.steps import Cast
from tinyai.runtime.runner import aligned_bytes, pointers

# A call waits for every thread of its pool, however long that takes on a busy machine.
PATIENT = "-DTINYAI_PATIENCE=10000000000"


def deep_network() -> Graph:
    """Every way to share a layer by two: rows, blocks of channels, outputs, panels (of many outputs
    and of one), channels of a pooling; with sums that stay in registers and others."""
    b = Builder("deep_network")
    net, qnn = (kind(b, "NHWC", np.random.default_rng(8)) for kind in (Network, Qnn))
    x = net.conv(b.input(Type((2, 19, 19, 3), DType.INT8)), 16, 3, "outputs", stride=2)
    x = net.conv(x, 16, 3, "rows", groups=16)
    x = qnn.conv(x, 16, 3, "more rows", groups=16)
    x = qnn.conv(x, 256, 3, "more outputs", stride=2)
    x = qnn.conv(x, 256, 3, "blocks", groups=256)
    x = qnn.conv(x, 256, 1, "panels")
    x = net.conv(x, 256, 1, "more panels")
    mean = b.add(AdaptivePool2d("max", (1, 1), "NHWC"), [x])
    flat = b.add(Reshape((2, 256)), [mean])
    weight = b.constant(net.rng.integers(-127, 128, (300, 256), np.int8))
    return b.graph([b.add(Dense(), [flat, weight], (Cast(DType.FLOAT32),), ("one output",))])


def network_of_few_rows() -> Graph:
    """Images of one row and of two with borders: the inputs are copied, the others made so."""
    b = Builder("network_of_few_rows")
    qnn = Qnn(b, "NHWC", np.random.default_rng(9))
    outputs = []
    for rows in (1, 2):
        x = qnn.conv(b.input(Type((1, rows, 9, 8), DType.INT8)), 16, 3, "copied")
        outputs.append(qnn.conv(qnn.conv(x, 16, 3, "made"), 16, 3, "rows", groups=16))
    return b.graph(outputs)


GRAPHS = {**NETWORKS, "deep": deep_network, "few rows": network_of_few_rows}


def called(
    library: ctypes.CDLL, source: CSource, graph: Graph, inputs: Sequence[Array]
) -> list[bytes]:
    """The outputs of the plain entry."""
    outputs = [np.empty(of.shape, of.dtype.numpy) for of in graph.types(graph.outputs)]
    arena = aligned_bytes(source.arena_bytes)
    entry = getattr(library, source.symbol)
    entry(pointers(inputs), pointers(outputs), ctypes.c_void_p(arena.ctypes.data))
    return [each.tobytes() for each in outputs]
