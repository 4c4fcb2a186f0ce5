"""A model of an older opset as one of a newer: by onnx's converter, and what that leaves out."""

from __future__ import annotations

from itertools import count, islice
from typing import Any

from tinyai.frontends.faults import Fault
from tinyai.frontends.onnx.facts import NO_RULE, Facts, declared, facts_of, schema_of, show
from tinyai.frontends.onnx.functions import graphs_of, nodes_of
from tinyai.frontends.onnx.unread import names_made
from tinyai.safe_text import safe

OWN = ("", "ai.onnx")
NEWER = "export the model with a newer opset"
# Whose attribute ``axis`` says, before opset 7, which dimensions a second operand has.
_WITH_AXIS = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Greater", "Less", "Equal")


def converted(model: Any, opset: int, wanted: int) -> Any:
    """The model of an ``opset`` as one of the opset ``wanted``. Raises ``Fault`` where onnx has no
    rule for that."""
    for node in nodes_of(model.graph):
        if node.domain in OWN and schema_of(node.op_type, wanted) is None:
            found = f"{safe(node.op_type, 60)}, an operator that opset {wanted} does not have"
            raise Fault(found, "operators of both opsets", NEWER)
    if opset < 6 < wanted:  # from which on onnx knows the shapes of all that it converts
        model = _by_onnx(model, opset, 6)
        for attribute in (each for node in nodes_of(model.graph) for each in node.attribute):
            if len(attribute.t.int64_data) > 1 and not attribute.t.dims:  # a Reshape's shape
                attribute.t.dims.append(len(attribute.t.int64_data))
    if opset < 7 <= wanted:
        _align_operands(model)
    model = _by_onnx(model, opset, wanted)
    if opset < 11 <= wanted:
        _keep_resizes(model)
    if opset < 13 <= wanted:
        _keep_hardmaxes(model)
    return model


def _by_onnx(model: Any, opset: int, wanted: int) -> Any:
    """By onnx's converter, which does not see what its rules of shapes must not see."""
    import onnx
    from onnx.version_converter import convert_version

    declared(model).hide_misfits(model.graph)
    model.opset_import.append(onnx.helper.make_opsetid(NO_RULE, 1))
    try:
        newer = convert_version(model, wanted)
        show(newer.graph)
    except Exception as error:  # onnx raises errors of many kinds
        found = f"opset {opset}, which onnx does not convert to {wanted}: {error}"
        raise Fault(found, f"{wanted} and later", NEWER) from None
    kept = [each for each in newer.opset_import if each.domain != NO_RULE]
    del newer.opset_import[:]
    newer.opset_import.extend(kept)
    return newer


def _align_operands(model: Any) -> None:
    """Before opset 7 ``axis`` tells which dimensions a second operand has, and slopes are of
    channels. Since then they are the last ones, and the converter does not add those behind."""
    from onnx import helper

    facts, taken = facts_of(model), _names(model)
    for graph in graphs_of(model.graph):
        made: list[Any] = []
        for node in graph.node:
            if behind := _missing(node, facts):
                (wide,) = _new_names(node.output[0], 1, taken)
                made.append(helper.make_node("Unsqueeze", [node.input[1]], [wide], axes=behind))
                node.input[1] = wide
            made.append(node)
        _put(graph, made)


def _missing(node: Any, facts: Facts) -> range:
    """The dimensions that a node's second operand lacks behind its own; ``axis`` is taken away."""
    told = [each for each in node.attribute if each.name == "axis"]
    is_slope = node.op_type == "PRelu"
    if node.domain not in OWN or not (is_slope or (told and node.op_type in _WITH_AXIS)):
        return range(0)
    first, second = map(facts.rank, node.input)
    if first is None or second is None:
        found = f"{node.op_type} {safe(node.name, 60)!r} of operands of unknown rank"
        raise Fault(found, "known shapes", NEWER)
    if is_slope:
        return range(0) if facts.shape(node.input[1]) == (1,) else range(second, first - 1)
    node.attribute.remove(told[0])
    return range(second, first - told[0].i % max(first, 1))


def _keep_resizes(model: Any) -> None:
    """Before opset 11 a place of the result lies at itself divided by the scale in the image, and
    the nearest neighbour is the one before it, the one behind it where an image shrinks. The
    converter lets nodes have the defaults of opset 11, which say otherwise."""
    from onnx import numpy_helper
    from onnx.helper import make_attribute

    nodes = [*nodes_of(model.graph)]
    constants = {n.output[0]: n.attribute[0].t for n in nodes if n.op_type == "Constant"}
    for graph in graphs_of(model.graph):
        constants |= {each.name: each for each in graph.initializer}
    for node in nodes:
        if node.op_type == "Resize" and node.domain in OWN:
            scales = constants.get(node.input[2])
            shrinks = scales is not None and (numpy_helper.to_array(scales) <= 1).all()
            told = {each.name for each in node.attribute}
            for name, value in (
                ("coordinate_transformation_mode", "asymmetric"),
                ("nearest_mode", "ceil" if shrinks else "floor"),
            ):
                if name not in told:
                    node.attribute.append(make_attribute(name, value))


def _keep_hardmaxes(model: Any) -> None:
    """Before opset 13 a Hardmax takes all dimensions from its axis on for one, and the converter
    leaves that out: here each is of a matrix, of which both rules say the same."""
    from onnx import helper

    taken = _names(model)
    for graph in graphs_of(model.graph):
        made: list[Any] = []
        for node in graph.node:
            if node.op_type != "Hardmax" or node.domain not in OWN:
                made.append(node)
                continue
            (data,), (result,) = node.input, node.output
            axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
            shape, flat, hard = _new_names(result, 3, taken)
            made += [
                helper.make_node("Shape", [data], [shape]),
                helper.make_node("Flatten", [data], [flat], axis=axis),
                helper.make_node("Hardmax", [flat], [hard], node.name),
                helper.make_node("Reshape", [hard, shape], [result]),
            ]
        _put(graph, made)


def _names(model: Any) -> set[str]:
    return {name for graph in graphs_of(model.graph) for name in names_made(graph)}


def _new_names(result: str, number: int, taken: set[str]) -> list[str]:
    names = (f"{result}/{place}" for place in count())
    return [*islice((each for each in names if each not in taken), number)]


def _put(graph: Any, nodes: list[Any]) -> None:
    """In place of a graph's own nodes, which may be among them."""
    new = type(graph)(node=nodes)
    del graph.node[:]
    graph.node.extend(new.node)
