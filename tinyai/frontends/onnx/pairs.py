"""QOperators as operators of floats between pairs, for importers that know no QOperators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tinyai.errors import ModelError
from tinyai.frontends.onnx.facts import QOPERATORS, QOperator, opset_of, qoperator_of

# The first opset whose pairs are per channel.
OLDEST = 13


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
    row = qoperator_of(node)
    if row is not None:
        yield from _between(node, row, known, graph)
    elif node.op_type.startswith(("QLinear", "QGemm", "QAttention")):
        allowed = ", ".join(sorted(name for _, name in QOPERATORS))
        _refuse(f"operator {node.op_type} {node.name!r}", allowed)
    else:
        yield node


def _between(node: Any, row: QOperator, known: Mapping[str, Any], graph: Any) -> Iterator[Any]:
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
