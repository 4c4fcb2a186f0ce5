"""Kernels of conv2d and dense."""

from __future__ import annotations

import math

import numpy as np

from tinyai.codegen.c import C_TYPES
from tinyai.codegen.helpers import dot_patches
from tinyai.codegen.index import place
from tinyai.codegen.kernels.geometry import VECTOR, Geometry, output_axes
from tinyai.codegen.kernels.table import Kernel, Values, result_at_strides
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Array, DType, Node
from tinyai.ops import Conv2d, Dense
from tinyai.ops.window import NHWC, Window

# Patches that share one pass over the weights: four accumulators a channel fit the registers.
PATCHES = 4


def _patch_pack(graph: Lowered, node: Node, weight: Array) -> Array:
    """[out, kernel…, in] -> [out, k], rows padded with zeros to ``VECTOR``."""
    rows = weight.reshape(weight.shape[0], -1)
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % VECTOR)))


def _patch_scratch(graph: Lowered, node: Node, threads: int) -> int:
    g = Geometry.of(graph, node)
    return PATCHES * (g.k * DType.INT16.bytes + g.group_out * g.sums.bytes)


def _patch_values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    g = Geometry.of(graph, node)
    dot = epilogue.need(dot_patches(C_TYPES[g.weight], C_TYPES[g.sums]))
    pixel, channel = "(q + p)", "c" if g.groups == 1 else f"(g * {g.group_out} + c)"
    axes = output_axes(g, node.op, pixel, channel)
    out = graph.stored(node.output)
    steps = epilogue.write(f"acc[p * {g.group_out} + c]", g.sums, axes)
    return {
        "g": g,
        "dot": dot,
        "data": C_TYPES[g.data],
        "sums": C_TYPES[g.sums],
        "less": _less(g.zero_point),
        "patches": PATCHES,
        "strides": g.data_strides,
        "tail": g.k - g.group_in * math.prod(g.window.kernel),
        "spread": g.window.upsample != (1, 1),
        "direct": g.window == Window((1, 1)) and g.groups == 1,
        "channels_inside": g.layout == NHWC,
        "store": place(out, axes),
        "steps": steps,
        "result": epilogue.result,
    }


def _takes(graph: Lowered, node: Node, name: str) -> bool:
    """Results whose pixels are all as far apart as neighbours are."""
    if not result_at_strides(graph, node, name):
        return False
    g = Geometry.of(graph, node)
    if isinstance(node.op, Dense):
        return True
    places = dict(zip(g.layout, graph.stored(node.output).strides, strict=True))
    return g.oh == 1 or places["H"] == g.ow * places["W"]


def _less(zero_point: int) -> str:
    """What takes the zero point off a value: " - 5", " + 128", or nothing."""
    return f" {'-' if zero_point > 0 else '+'} {abs(zero_point)}" if zero_point else ""


def _is_depthwise(graph: Lowered, node: Node) -> bool:
    g = Geometry.of(graph, node)
    return g.group_in == 1 < g.groups


def _depthwise_demands(graph: Lowered, node: Node) -> str | None:
    if not _is_depthwise(graph, node):
        return "more than one input channel a group"
    return "spread data" if Geometry.of(graph, node).window.upsample != (1, 1) else None


def _depthwise_pack(graph: Lowered, node: Node, weight: Array) -> Array:
    """[out, kernel…, 1] -> [kernel…, out]: channels are neighbours, as in NHWC."""
    return np.ascontiguousarray(weight[..., 0].transpose(1, 2, 0))


def _depthwise_values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    g = Geometry.of(graph, node)
    inner = "c" if g.layout == NHWC else "x"
    axes = g.output_axes(f"(y * {g.ow} + x)", "c")
    out = graph.stored(node.output)
    steps = epilogue.write(f"acc[{inner}]", g.sums, axes)
    channel = "c" if g.group_out == 1 else f"c / {g.group_out}"
    return {
        "g": g,
        "data": C_TYPES[g.data],
        "weight": C_TYPES[g.weight],
        "sums": C_TYPES[g.sums],
        "less": _less(g.zero_point),
        "channel": channel,
        "strides": g.data_strides,
        "channels_inside": g.layout == NHWC,
        "store": place(out, axes),
        "steps": steps,
        "result": epilogue.result,
    }


def _depthwise_scratch(graph: Lowered, node: Node, threads: int) -> int:
    g = Geometry.of(graph, node)
    return (g.oc if g.layout == NHWC else g.ow) * g.sums.bytes


KERNELS = (
    Kernel(
        name="conv2d_depthwise_scalar",
        op=Conv2d,
        template="conv2d_depthwise_scalar.c.j2",
        demands=_depthwise_demands,
        kind=_is_depthwise,
        values=_depthwise_values,
        takes=_takes,
        scratch=_depthwise_scratch,
        pack={1: _depthwise_pack},
    ),
    Kernel(
        name="conv2d_patches_scalar",
        op=Conv2d,
        template="conv2d_patches_scalar.c.j2",
        values=_patch_values,
        takes=_takes,
        scratch=_patch_scratch,
        pack={1: _patch_pack},
    ),
    Kernel(
        name="dense_patches_scalar",
        op=Dense,
        template="conv2d_patches_scalar.c.j2",
        values=_patch_values,
        takes=_takes,
        scratch=_patch_scratch,
        pack={1: _patch_pack},
    ),
)
