"""Operators that ONNX defines by others: each becomes the nodes of its definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tinyai.frontends.onnx.facts import Known, proto_of, schema_of
from tinyai.frontends.onnx.nodes import Nodes
from tinyai.frontends.onnx.reader import Site, fixed_sizes
from tinyai.frontends.onnx.unread import renamed
from tinyai.source import require

DEFINED = (
    *("CastLike", "CenterCropPad", "MeanVarianceNormalization", "RotaryEmbedding"),
    *("ReduceL1", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)

# The first opset in which the largest value along axes has these as an operand.
_WITH_AXES = 18


def by_definition(site: Site, names: Iterable[str]) -> list[Any]:
    """The nodes that ONNX's schema defines an operator by; ``names`` are those of the file's
    values. Raises ``Refusal`` where it has no definition in this opset, or for such operands."""
    body = _definition(site)
    node, inner = site.node, f"{Nodes.inside_of(site.name, names).name}/"
    new = {name: inner + name for each in body.node for name in each.output if name}
    for formal, actual in (*_bound(body.input, node.input), *_bound(body.output, node.output)):
        new[formal] = actual or (inner + formal if formal in body.output else "")
    given = {each.name: each for each in (*body.attribute_proto, *node.attribute)}
    schema = schema_of(node.op_type, site.facts.opset)
    usual = {name: each.default_value for name, each in schema.attributes.items()}
    return [_with_attributes(renamed(each, new, inner), {**usual, **given}) for each in body.node]


def _bound(formal: Any, actual: Any) -> Iterator[tuple[str, str]]:
    """Names of a definition with those of the node; what the node leaves out has none."""
    for place, name in enumerate(formal):
        yield name, actual[place] if place < len(actual) else ""


def _definition(site: Site) -> Any:
    import onnx

    schema, facts = schema_of(site.node.op_type, site.facts.opset), site.facts.values
    body, content, forgotten = onnx.FunctionProto(), b"", set[str]()
    if schema is not None and schema.has_function:
        since = _newest(schema.function_opset_versions, site.facts.opset)
        made = schema.get_function_with_opset_version(since)
        content = made if isinstance(made, bytes) else made.SerializeToString()
        forgotten = {*schema.attributes}
    elif schema is not None and schema.has_context_dependent_function:
        since = _newest(schema.context_dependent_function_opset_versions, site.facts.opset)
        operands = [facts.get(name, Known(None, "")) for name in site.node.input]
        types = [proto_of(each).SerializeToString() if each.dtype else b"" for each in operands]
        node = site.node.SerializeToString()
        content = schema.get_context_dependent_function_with_opset_version(since, node, types)
    require(
        bool(content), "operator", f"{site.node.op_type} in opset {site.facts.opset}", "one read"
    )
    body.ParseFromString(content)
    # Old definitions forget some attributes; those that depend on the node have them inside.
    forgotten -= {each.ref_attr_name for node in body.node for each in node.attribute}
    for name in sorted(forgotten):
        given, usual = site.attr(name), site.defaults.get(name)
        require(given == usual, f"attribute {name}", given, f"{usual}: ONNX's definition has none")
    return body


def _newest(versions: Iterable[int], opset: int) -> int:
    """The version of a definition that holds in an opset."""
    return max((each for each in versions if each <= opset), default=opset)


def _with_attributes(node: Any, given: dict[str, Any]) -> Any:
    """A node of a definition, with the attributes that it takes from the operator's own."""
    kept = []
    for attribute in node.attribute:
        asked = attribute.ref_attr_name
        if not asked:
            kept.append(attribute)
        elif asked in given and given[asked].type:
            of = type(attribute)()
            of.CopyFrom(given[asked])
            of.name = attribute.name
            kept.append(of)
    made = type(node)()
    made.CopyFrom(node)
    made.name = next(filter(None, node.output), "")
    del made.attribute[:]
    made.attribute.extend(kept)
    return made


def only_share(site: Site, names: Iterable[str]) -> list[Any]:
    """A softmax of one value, which is 1, as bounds; no nodes of any other."""
    (data,), (result,) = site.node.input, site.node.output
    shape = site.facts.shape(data)
    if not shape or shape[int(site.attr("axis", -1))] != 1:
        return []
    parts = Nodes.inside_of(site.name, names)
    one = parts.constant("one", 1)
    parts.add("Clip", result, data, one, one)
    return parts.made


def log_of_powers(site: Site, names: Iterable[str]) -> list[Any]:
    """ReduceLogSumExp, with the largest value taken off before and added behind: no power is more
    than 1. ONNX's definition has none of this, and is in float64."""
    (data, *_), (result,), keep = site.node.input, site.node.output, site.attr("keepdims")
    rank = len(fixed_sizes(site.expr(0)))
    given = site.numbers(1, "axes") if site.has(1) else site.attr("axes")
    if not given and site.attr("noop_with_empty_axes", 0):
        return []
    axes, parts = list(given or range(rank)), Nodes.inside_of(site.name, names)
    along = parts.constant("axes", axes, np.int64)
    if site.facts.opset < _WITH_AXES:
        largest = parts.value("ReduceMax", "largest", data, axes=axes)
    else:
        largest = parts.value("ReduceMax", "largest", data, along)
    powers = parts.value("Exp", "powers", parts.value("Sub", "rest", data, largest))
    log = parts.value("Log", "log", parts.value("ReduceSum", "sums", powers, along))
    if keep:
        parts.add("Add", result, log, largest)
    else:
        parts.add("Squeeze", result, parts.value("Add", "total", log, largest), along)
    return parts.made


def spell_out_lengths(graph: Any) -> None:
    """ReduceL2 becomes the root of a sum of squares, but for that by which its own data is divided:
    a norm, which is one operator."""
    divided = {node.input[0] for node in graph.node if node.op_type == "Div"}
    names, nodes = {name for node in graph.node for name in node.output}, list[Any]()
    for node in graph.node:
        if node.op_type != "ReduceL2" or node.domain or node.input[0] in divided:
            nodes.append(node)
            continue
        (length,) = node.output
        parts = Nodes.inside_of(node.name or length, names)
        node.op_type = "ReduceSumSquare"
        node.name = node.output[0] = f"{parts.name}/squares"
        parts.add("Sqrt", length, node.output[0])
        nodes += [node, *parts.made]
    made = type(graph)(node=nodes)
    del graph.node[:]
    graph.node.extend(made.node)


# What is spelled out where a file is quantized.
OF_FLOATS = {"Softmax": only_share, "ReduceLogSumExp": log_of_powers}
