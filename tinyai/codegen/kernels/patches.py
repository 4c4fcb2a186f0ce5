"""Kernels of conv2d and dense of int16: the portable ones' patches and packed weights, whose
products are taken by a microkernel, and whose steps many lanes at a time."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from tinyai.codegen.ctree import Code, For
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.vectors import Vectors, write_lanes
from tinyai.codegen.kernels.conv2d import PATCH_KERNELS, Patches, is_depthwise, patches_of
from tinyai.codegen.kernels.image import output_axes
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.placed import stored_index
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.steps import Chain, Epilogue
from tinyai.ir import DType, Node
from tinyai.ops.window import NHWC


@dataclass(frozen=True)
class LanePatches(Patches):
    """Patches whose results take the steps in lanes of channels, where there is a form."""

    vectors: Vectors | None

    def results(self, epilogue: Epilogue) -> Code:
        g = self.g
        if self.vectors is None or g.layout != NHWC or g.groups > 1:
            return super().results(epilogue)
        axes = output_axes(g, self.op, "(q + p)", "c")
        chain = Chain(g.sums, epilogue.node.epilogue)
        at = stored_index(epilogue.graph.stored(epilogue.node.output), axes)
        acc = f"p * {g.group_out} + c"
        lanes = write_lanes(self.vectors, epilogue, chain, acc, at, axes)
        return For("p", 0, "count", lanes) if lanes else super().results(epilogue)


def _of_words(graph: Lowered, node: Node) -> bool:
    return graph.type(node.inputs[0]).dtype is DType.INT16


def _rejection(graph: Lowered, node: Node) -> str | None:
    g = Geometry.of(graph, node)
    for found, wanted in ((g.data, DType.INT16), (g.weight, DType.INT8), (g.sums, DType.INT32)):
        if found is not wanted:
            return f"{found} where it takes {wanted}"
    if node.inputs[1] not in graph.constants:
        return "weights that are not constant"
    return "one input channel a group" if is_depthwise(graph, node) else None


def _code(graph: Lowered, node: Node, epilogue: Epilogue, *, micro: Microkernels) -> Code:
    assert micro.dot is not None
    g = Geometry.of(graph, node)
    dot = micro.dot(epilogue, patches_of(g))
    return LanePatches(g, node.op, dot, micro.vectors).code(epilogue)


KERNELS = tuple(
    replace(
        row,
        name=f"{row.op.name}_patches_{micro.name}",
        isa=micro.name,
        rejection=_rejection,
        kind=_of_words,
        code=functools.partial(_code, micro=micro),
    )
    for micro in MICROKERNELS
    if micro.dot
    for row in PATCH_KERNELS
)
