"""QOperators as operators of floats between pairs, for importers that know no QOperators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyai.errors import ModelError
from tinyai.frontends.onnx.facts import CONTRIB, opset_of

# The first opset whose pairs are per channel.
OLDEST = 13


@dataclass(frozen=True)
class _Row:
    """The operator of floats, the places of its operands, each with its scale and zero point
    behind it, of the result's scale, and of a bias of int32 (-1 for none). ``dropped`` are
    attributes that the operator of floats does not have, with the values that mean nothing."""

    operator: str
    operands: tuple[int, ...]
    result: int
    bias: int = -1
    dropped: tuple[tuple[str, int], ...] = ()


_LAST = (("channels_last", 0),)
_ROWS: Mapping[tuple[str, str], _Row] = {
    ("", "QLinearConv"): _Row("Conv", (0, 3), 6, bias=8),
    ("", "QLinearMatMul"): _Row("MatMul", (0, 3), 6),
    (CONTRIB, "QGemm"): _Row("Gemm", (0, 3), 7, bias=6),
    (CONTRIB, "QLinearAdd"): _Row("Add", (0, 3), 6),
    (CONTRIB, "QLinearMul"): _Row("Mul", (0, 3), 6),
    (CONTRIB, "QLinearLeakyRelu"): _Row("LeakyRelu", (0,), 3),
    (CONTRIB, "QLinearSigmoid"): _Row("Sigmoid", (0,), 3),
    (CONTRIB, "QLinearSoftmax"): _Row("Softmax", (0,), 3, dropped=(("opset", 13),)),
    (CONTRIB, "QLinearAveragePool"): _Row("AveragePool", (0,), 3, dropped=_LAST),
    (CONTRIB, "QLinearGlobalAveragePool"): _Row("GlobalAveragePool", (0,), 3, dropped=_LAST),
}


def in_pairs(model: Any) -> Any:
    """A copy of an ``onnx.ModelProto`` in QDQ form: each QOperator is the operator of floats whose
    integers it computes, behind a DequantizeLinear of each operand, in front of a QuantizeLinear.

    Names of results are kept. Raises ``ModelError`` for a QOperator that has no such form here, for
    scales of a bias that are computed at run time, and for opsets below 13.
    """
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    if (opset := opset_of(made)) < OLDEST:
        _refuse(f"opset {opset}", f"{OLDEST} and newer", "onnx.version_converter.convert_version")
    known = {each.name: onnx.numpy_helper.to_array(each) for each in made.graph.initializer}
    nodes = [new for node in made.graph.node for new in _written(node, known, made.graph)]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def _written(node: Any, known: Mapping[str, Any], graph: Any) -> Iterator[Any]:
    if node.op_type == "QLinearConcat" and node.domain == CONTRIB:
        places = tuple(range(2, len(node.input), 3))
        yield from _between(node, _Row("Concat", places, 0), known, graph)
    elif (node.domain, node.op_type) in _ROWS:
        yield from _between(node, _ROWS[node.domain, node.op_type], known, graph)
    elif node.op_type.startswith(("QLinear", "QGemm", "QAttention")):
        allowed = ", ".join(sorted({"QLinearConcat", *(name for _, name in _ROWS)}))
        _refuse(f"operator {node.op_type} {node.name!r}", allowed)
    else:
        yield node


def _between(node: Any, row: _Row, known: Mapping[str, Any], graph: Any) -> Iterator[Any]:
    """The nodes in place of a QOperator."""
    from onnx import helper, numpy_helper

    result = node.output[0]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    for name, nothing in row.dropped:
        if (found := attributes.pop(name, nothing)) != nothing:
            _refuse(f"operator {node.op_type} {node.name!r}: {name} {found}", f"{name} {nothing}")
    floats = []
    for number, place in enumerate(row.operands):
        floats.append(f"{result}:operand {number}")
        axis = _axis(row.operator, attributes) if number else 1
        yield helper.make_node("DequantizeLinear", _three(node, place), floats[-1:], axis=axis)
    if 0 <= row.bias < len(node.input) and node.input[row.bias]:
        scales = [node.input[place + 1] for place in row.operands]
        if missing := [name for name in scales if name not in known]:
            _refuse(f"scale {missing[0]!r} of a bias, no initializer", "scales that are constants")
        step = np.float32(attributes.get("alpha", 1.0)) * known[scales[0]] * known[scales[1]]
        scale = f"{result}:scale of the bias"
        graph.initializer.append(numpy_helper.from_array(step.astype(np.float32), scale))
        floats.append(f"{result}:bias")
        operands = [node.input[row.bias], scale]
        yield helper.make_node("DequantizeLinear", operands, floats[-1:], axis=0)
        if "alpha" in attributes:
            attributes["beta"] = 1.0
    inner = f"{result}:floats"
    yield helper.make_node(row.operator, floats, [inner], name=node.name, **attributes)
    pair = [name for name in node.input[row.result : row.result + 2] if name]
    if not pair:
        _refuse(f"operator {node.op_type} {node.name!r}: a result of floats", "a quantized one")
    yield helper.make_node("QuantizeLinear", [inner, *pair], [result])


def _three(node: Any, place: int) -> list[str]:
    return [name for name in node.input[place : place + 3] if name]


def _axis(operator: str, attributes: Mapping[str, Any]) -> int:
    """Of the channels of results in weights; of two dimensions where they are a matrix."""
    return 0 if operator == "Conv" or attributes.get("transB", 0) else 1


def _refuse(found: str, allowed: str, hint: str = "") -> None:
    raise ModelError(
        "model in QOperator form",
        found=found,
        allowed=allowed,
        hint=hint or "quantize it with quant_format=QuantFormat.QDQ, or tinyai compile the file",
    )
