"""Kernels of max, average, adaptive and global pooling."""

from __future__ import annotations

from tinyai.codegen.c import C_TYPES, literal
from tinyai.codegen.index import Axis, place
from tinyai.codegen.kernels.table import Kernel, Values, at_strides
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Node
from tinyai.ops import AdaptivePool2d, AvgPool2d, FloatAvgPool2d, MaxPool2d
from tinyai.ops.window import axes


def _values(graph: Lowered, node: Node, epilogue: Epilogue, *, layout: str, kind: str) -> Values:
    (data,) = graph.types(node.inputs)
    total = node.op.infer(data).dtype
    out = graph.stored(node.output)
    n, h, w, c = (data.shape[axis] for axis in axes(layout))
    oh, ow = (out.type.shape[axis] for axis in axes(layout)[1:3])
    loops = _loops(layout, n, oh, ow, c)
    steps = epilogue.write("acc", total, loops)
    return {
        "loops": loops,
        "h": h,
        "w": w,
        "oh": oh,
        "ow": ow,
        "kind": kind,
        "type": C_TYPES[data.dtype],
        "total": C_TYPES[total],
        "start": literal(data.dtype.range[0] if kind == "max" else 0, data.dtype),
        "taken": taken(graph, node, layout),
        "store": place(out, loops),
        "steps": steps,
        "result": epilogue.result,
    }


def taken(graph: Lowered, node: Node, layout: str) -> str:
    """Number of the element of the input at ``row`` and ``column`` of channel ``c``."""
    source = graph.stored(node.inputs[0])
    names = {"N": "n", "H": "row", "W": "column", "C": "c"}
    sizes = zip(layout, source.type.shape, strict=True)
    axes = [Axis(names[axis], (size,)) for axis, size in sizes]
    return place(source, axes)


def _loops(layout: str, n: int, oh: int, ow: int, c: int) -> list[Axis]:
    sizes = {"N": ("n", n), "H": ("y", oh), "W": ("x", ow), "C": ("c", c)}
    return [Axis(sizes[axis][0], (sizes[axis][1],)) for axis in layout]


def _window_values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    op = node.op
    assert isinstance(op, MaxPool2d | AvgPool2d)
    average = isinstance(op, AvgPool2d)
    values = _values(graph, node, epilogue, layout=op.layout, kind="avg" if average else "max")
    return {
        **values,
        "window": op.window,
        "zero_point": isinstance(op, AvgPool2d) and op.zero_point,
        "include": isinstance(op, AvgPool2d) and op.count_include_pad,
        "rounded": isinstance(op, AvgPool2d) and op.rounded,
    }


def _adaptive_values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    op = node.op
    assert isinstance(op, AdaptivePool2d)
    values = _values(graph, node, epilogue, layout=op.layout, kind=op.kind)
    settled = {"window": None, "include": False, "rounded": False}
    return {**values, **settled, "zero_point": op.zero_point}


def _float_values(graph: Lowered, node: Node, epilogue: Epilogue) -> Values:
    op = node.op
    assert isinstance(op, FloatAvgPool2d)
    values = _values(graph, node, epilogue, layout=op.layout, kind="avg")
    return {**values, "op": op, "scale": literal(op.scale, DType.FLOAT32)}


KERNELS = tuple(
    Kernel(
        name=f"{op.name}_scalar",
        op=op,
        template=template,
        values=values,
        takes=at_strides,
    )
    for op, template, values in (
        (MaxPool2d, "pool2d_scalar.c.j2", _window_values),
        (AvgPool2d, "pool2d_scalar.c.j2", _window_values),
        (FloatAvgPool2d, "float_pool2d_scalar.c.j2", _float_values),
        (AdaptivePool2d, "pool2d_scalar.c.j2", _adaptive_values),
    )
)
