"""Kernels of max, average, adaptive and global pooling."""

from __future__ import annotations

from tinyai.codegen.c import C_TYPES, literal
from tinyai.codegen.index import Axis
from tinyai.codegen.kernels.table import Kernel, Values
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Graph, Node
from tinyai.ops import AdaptivePool2d, AvgPool2d, MaxPool2d
from tinyai.ops.window import NHWC, axes


def _values(graph: Graph, node: Node, epilogue: Epilogue, *, layout: str, kind: str) -> Values:
    (data,) = graph.types(node.inputs)
    out = node.op.infer(data)
    n, h, w, c = (data.shape[axis] for axis in axes(layout))
    oh, ow = (out.shape[axis] for axis in axes(layout)[1:3])
    steps = epilogue.write("acc", out.dtype, _loops(layout, n, oh, ow, c))
    if layout == NHWC:
        taken = f"((n * {h} + row) * {w} + column) * {c} + c"
        store = f"((n * {oh} + y) * {ow} + x) * {c} + c"
    else:
        taken = f"((n * {c} + c) * {h} + row) * {w} + column"
        store = f"((n * {c} + c) * {oh} + y) * {ow} + x"
    return {
        "loops": _loops(layout, n, oh, ow, c),
        "h": h,
        "w": w,
        "oh": oh,
        "ow": ow,
        "kind": kind,
        "type": C_TYPES[data.dtype],
        "total": C_TYPES[out.dtype],
        "start": literal(data.dtype.range[0] if kind == "max" else 0, data.dtype),
        "taken": taken,
        "store": store,
        "steps": steps,
        "result": epilogue.result,
    }


def _loops(layout: str, n: int, oh: int, ow: int, c: int) -> list[Axis]:
    sizes = {"N": ("n", n), "H": ("y", oh), "W": ("x", ow), "C": ("c", c)}
    return [Axis(sizes[axis][0], (sizes[axis][1],)) for axis in layout]


def _window_values(graph: Graph, node: Node, epilogue: Epilogue) -> Values:
    op = node.op
    assert isinstance(op, MaxPool2d | AvgPool2d)
    average = isinstance(op, AvgPool2d)
    values = _values(graph, node, epilogue, layout=op.layout, kind="avg" if average else "max")
    return {
        **values,
        "window": op.window,
        "include": isinstance(op, AvgPool2d) and op.count_include_pad,
        "rounded": isinstance(op, AvgPool2d) and op.rounded,
    }


def _adaptive_values(graph: Graph, node: Node, epilogue: Epilogue) -> Values:
    op = node.op
    assert isinstance(op, AdaptivePool2d)
    values = _values(graph, node, epilogue, layout=op.layout, kind=op.kind)
    return {**values, "window": None, "include": False, "rounded": False}


KERNELS = tuple(
    Kernel(name=f"{op.name}_scalar", op=op, template="pool2d_scalar.c.j2", values=values)
    for op, values in (
        (MaxPool2d, _window_values),
        (AvgPool2d, _window_values),
        (AdaptivePool2d, _adaptive_values),
    )
)
