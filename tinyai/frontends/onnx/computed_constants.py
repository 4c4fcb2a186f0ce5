"""Floats that a model computes from constants alone, such as the first step of a recurrent layer,
whose state begins with zeros. ONNX Runtime computes them once."""

from __future__ import annotations

from tinyai.frontends.onnx.float_model import in_onnx_runtime
from tinyai.frontends.onnx.writer import written
from tinyai.frontends.source_model import SourceModel
from tinyai.qdq.moves import MOVES_ALONE
from tinyai.source import Call, Constant, Expr, Tuple, Unread, children, post_order, rebuilt
from tinyai.vocabulary import constant


def with_constants_computed(model: SourceModel) -> SourceModel:
    """The model with constants in place of such floats; those that are only moved stay, as do
    weights that are quantized."""
    order = list(post_order(model.result))
    known: set[Expr] = set()
    for expr in order:
        if isinstance(expr, Constant) or (_is_computed(expr) and known.issuperset(children(expr))):
            known.add(expr)
    rest = [expr for expr in order if expr not in known]
    read = {child for expr in rest for child in children(expr)}
    wanted = [e for e in order if e in known & read and _computes(e)]
    if not wanted:
        return model
    content = written(wanted, {}).SerializeToString()
    values = in_onnx_runtime(content, (), len(wanted)).run({})
    new: dict[Expr, Expr] = dict(zip(wanted, map(constant, values), strict=True))
    for expr in order:
        if expr not in new:
            new[expr] = rebuilt(expr, [new[child] for child in children(expr)])
    return model.with_outputs(new[end.expr] for end in model.outputs)


def _is_computed(expr: Expr) -> bool:
    if isinstance(expr, Tuple):
        return True
    if not isinstance(expr, Call) or isinstance(expr.origin, Unread):
        return False
    return expr.op not in ("dequantize", "quantize") and len(expr.types) == 1


def _computes(expr: Expr) -> bool:
    """Whether more than moves makes a float."""
    if not isinstance(expr, Call) or expr.type.dtype != "float32":
        return False
    return any(isinstance(e, Call) and e.op not in MOVES_ALONE for e in post_order(expr))
