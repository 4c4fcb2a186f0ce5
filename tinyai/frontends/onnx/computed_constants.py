"""Floats that a model computes from constants alone, such as the first step of a recurrent layer,
whose state begins with zeros. ONNX Runtime computes them once."""

from __future__ import annotations

from tinyai.frontends.onnx.float_model import in_onnx_runtime
from tinyai.frontends.onnx.writer import written
from tinyai.frontends.source_model import SourceModel
from tinyai.source import Call, Constant, Expr, Tuple, Unread, children, post_order, rebuilt
from tinyai.vocabulary import constant


def with_constants_computed(model: SourceModel) -> SourceModel:
    """The model with constants in place of such floats; those that have another shape or order
    alone stay, as do weights that are quantized."""
    order = list(post_order(model.result))
    known: set[Expr] = set()
    computed: set[Expr] = set()  # by more than that
    for expr in order:
        below = children(expr)
        if isinstance(expr, Call):
            made = expr.op not in ("dequantize", "quantize") and len(expr.types) == 1
            if made and not isinstance(expr.origin, Unread) and known.issuperset(below):
                known.add(expr)
                if expr.op not in ("reshape", "transpose") or not computed.isdisjoint(below):
                    computed.add(expr)
        elif isinstance(expr, Constant) or (isinstance(expr, Tuple) and known.issuperset(below)):
            known.add(expr)
    read = {child for expr in order if expr not in known for child in children(expr)}
    wanted = [e for e in order if e in computed & read and e.type.dtype == "float32"]
    if not wanted:
        return model
    content = written(wanted, {}).SerializeToString()
    values = in_onnx_runtime(content, (), len(wanted)).run({})
    new: dict[Expr, Expr] = dict(zip(wanted, map(constant, values), strict=True))
    for expr in order:
        if expr not in new:
            new[expr] = rebuilt(expr, [new[child] for child in children(expr)])
    return model.with_outputs(new[end.expr] for end in model.outputs)
