"""Kernels of conv2d and dense of int16: the portable ones' patches and packed weights, whose
products are taken by a microkernel, and whose steps many lanes at a time."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tinyai.codegen.ctree import Code, For
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import Microkernels
from tinyai.codegen.isa.vectors import write_lanes
from tinyai.codegen.kernels.conv2d import Patches, is_depthwise
from tinyai.codegen.kernels.image import output_axes
from tinyai.codegen.lowered import Kernel, Lowered
from tinyai.codegen.placed import stored_index
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.steps import Epilogue, StepChain
from tinyai.ir import DType, Node
from tinyai.ops import Conv2d, Dense
from tinyai.ops.window import NHWC


@dataclass(frozen=True)
class LanePatches(Patches):
    """Patches whose products are a microkernel's, and whose results take the steps in lanes of
    channels, where there is a form."""

    micro: Microkernels

    def dot(self, epilogue: Epilogue) -> str:
        assert self.micro.dot is not None
        return self.micro.dot(epilogue, self.count, self.g.sums is DType.INT64)

    def results(self, epilogue: Epilogue) -> Code:
        g, vectors = self.g, self.micro.vectors
        if vectors is None or g.layout != NHWC or g.groups > 1:
            return super().results(epilogue)
        axes = output_axes(g, self.node.op, "(q + p)", "c")
        chain = StepChain(g.sums, self.node.epilogue)
        at = stored_index(epilogue.graph.stored(self.node.output), axes)
        acc = f"p * {g.group_out} + c"
        lanes = write_lanes(vectors, epilogue, chain, acc, at, axes)
        return For("p", 0, "count", lanes) if lanes else super().results(epilogue)


def _of_words(graph: Lowered, node: Node) -> bool:
    return graph.type(node.inputs[0]).dtype is DType.INT16


def _prepared(graph: Lowered, node: Node, *, micro: Microkernels) -> LanePatches | str:
    g = Geometry.of(graph, node)
    for found, wanted in ((g.data, DType.INT16), (g.weight, DType.INT8)):
        if found is not wanted:
            return f"{found} where it takes {wanted}"
    if node.inputs[1] not in graph.constants:
        return "weights that are not constant"
    if is_depthwise(graph, node):
        return "one input channel a group"
    return LanePatches(node, g, micro)


KERNELS = tuple(
    Kernel(
        name=f"{op.name}_patches_{micro.name}",
        op=op,
        isa=micro.name,
        prepare=functools.partial(_prepared, micro=micro),
        kind=_of_words,
    )
    for micro in MICROKERNELS
    if micro.dot
    for op in (Conv2d, Dense)
)
