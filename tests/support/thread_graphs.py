"""Graphs that threads share, and a call of them by hand."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from tests.support.example_graphs import NETWORKS, Network, Qnn
from tinyai.codegen.c_source import CSource
from tinyai.ir import Array, Builder, DType, Graph, Operand, Type
from tinyai.ops import (
    AdaptivePool2d,
    BatchMatmul,
    Dense,
    Normalize,
    Reshape,
    TableSoftmax,
    Transpose,
)
from tinyai.ops.softmax import onnx_powers
from tinyai.ops.steps import Add, Cast, Clip, Multiply, RightShift
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


def attention() -> Graph:
    """Heads as many as threads share whole, and one whose rows they share: products of values,
    softmax and norms between them."""
    b = Builder("attention")
    shift = Operand(b.constant(np.array(9, np.int32)))
    to_int8 = (RightShift(operand=shift), Clip(-128, 127), Cast(DType.INT8))
    to_share = (Clip(-128, 127), Cast(DType.INT8))
    outputs = []
    for heads in (1, 6):
        x = b.input(Type((heads, 13, 24), DType.INT8))
        scores = b.add(BatchMatmul(3, -5), [x, x], to_int8, ("scores",))
        less = (Add(operand=Operand(b.constant(np.array(-128, np.float32)))),)
        softmax = TableSoftmax(2, onnx_powers(0.1, 13), 256.0)
        shares = b.add(softmax, [scores], (*less, *to_share), ("shares",))
        turned = b.add(Transpose((0, 2, 1)), [x])
        sums = b.add(BatchMatmul(-128, 0), [shares, turned], to_int8, ("sums",))
        times = (Multiply(operand=Operand(b.constant(np.array(40, np.float32)))), *to_share)
        outputs.append(b.add(Normalize(2, 0.01), [sums], times, ("norm",)))
    return b.graph(outputs)


GRAPHS = {**NETWORKS, "attention": attention, "deep": deep_network, "few rows": network_of_few_rows}


def called(
    library: ctypes.CDLL, source: CSource, graph: Graph, inputs: Sequence[Array]
) -> list[bytes]:
    """The outputs of the plain entry."""
    outputs = [np.empty(of.shape, of.dtype.numpy) for of in graph.types(graph.outputs)]
    arena = aligned_bytes(source.arena_bytes)
    entry = getattr(library, source.symbol)
    entry(pointers(inputs), pointers(outputs), ctypes.c_void_p(arena.ctypes.data))
    return [each.tobytes() for each in outputs]
