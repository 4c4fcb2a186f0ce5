"""What an .onnx file declares, held against itself before anyone trusts it: data against shapes,
names, the order of nodes, attributes against their operators."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tinyai.frontends.faults import Fault, check_shape, shown
from tinyai.frontends.onnx.facts import CONTRIB, bytes_of, check_value, opset_of, schema_of

# Inputs of a file by name with their dimensions, -1 an open one, None where it does not tell.
Inputs = dict[str, list[int] | None]
# Attributes that are counts of something.
_COUNTS = ("blocksize", "dilations", "group", "kernel_shape", "num_outputs", "strides")
DOMAINS = ("", "ai.onnx", CONTRIB)


def check_model(model: Any) -> Inputs:
    """The model's inputs.

    Raises ``Fault`` where the file contradicts itself.
    """
    if not model.graph.output:
        raise Fault("a model without outputs", "one and more")
    opsets = sorted({o.version for o in model.opset_import if o.domain in ("", "ai.onnx")})
    if len(opsets) > 1:
        raise Fault(f"opsets {shown(opsets)} of ONNX's own operators", "one")
    _check_graph(model.graph, set())
    _check_attributes(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    return {v.name: _dims(v) for v in model.graph.input if v.name not in constants}


def _dims(value: Any) -> list[int] | None:
    of = value.type.tensor_type
    if not of.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else -1 for dim in of.shape.dim]


def _check_graph(graph: Any, outer: set[str]) -> None:
    known = outer | {tensor.name for tensor in graph.initializer}
    known.update(tensor.values.name for tensor in graph.sparse_initializer)
    known.update(value.name for value in graph.input)
    _check_once(tensor.name for tensor in graph.initializer)
    _check_once(value.name for value in graph.input)
    for tensor in graph.initializer:
        _check_tensor(tensor, f"initializer {tensor.name!r}")
    for value in (*graph.input, *graph.output):
        check_value(value, "value")
    for number, node in enumerate(graph.node):
        what = f"node {number} ({node.op_type} {node.name!r})"
        for name in node.input:
            if name and name not in known:
                raise Fault(
                    f"{what} reads {name!r}, which nothing before it makes",
                    "inputs, initializers, and results of nodes before",
                )
        for attribute in node.attribute:
            for tensor in (attribute.t, *attribute.tensors):
                _check_tensor(tensor, f"a constant of {what}")
            for inner in (attribute.g, *attribute.graphs):
                _check_graph(inner, known)
        for name in filter(None, node.output):
            if name in known:
                raise Fault(f"{what} makes {name!r} anew", "one maker a value")
            known.add(name)
    lost = [value.name for value in graph.output if value.name not in known]
    if lost:
        raise Fault(f"output {lost[0]!r} of the model, which nothing makes", "a value of a node")


def _check_once(names: Iterable[str], what: str = "value") -> None:
    for name, count in Counter(names).items():
        if count > 1:  # readers would take one of them, without a word
            raise Fault(f"{what} {name!r}, {count} times", "each once")


def _check_tensor(tensor: Any, what: str) -> None:
    """As much data as the shape says; data in other files are onnx's to check."""
    import onnx

    shape = list(tensor.dims)
    if tensor.data_type == onnx.TensorProto.UNDEFINED and not shape:
        return  # an attribute that holds no tensor
    item = bytes_of(tensor.data_type)
    if not item:
        raise Fault(f"{what}: element type {tensor.data_type}", "a type of onnx.TensorProto")
    size = check_shape(what, shape, item)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or item < 1:
        return
    if tensor.HasField("raw_data"):
        found, unit = len(tensor.raw_data), "bytes"
    else:
        field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
        found, unit, size = len(getattr(tensor, field)), "numbers", math.prod(shape)
        if tensor.data_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
            size *= 2
    if found != size:
        raise Fault(f"{what}: {found} {unit} of data", f"{size} for its shape {shown(shape)}")


def check_external(model: Any, folder: Path) -> None:
    """Data in other files lie inside of the model's folder, as many bytes as the shapes say.

    Raises ``Fault`` where they do not.
    """
    import onnx

    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        said = {entry.key: entry.value for entry in tensor.external_data}
        what, location = f"initializer {tensor.name!r}", said.get("location", "")
        file = (folder / location).resolve()
        if not location or folder.resolve() not in file.parents or not file.is_file():
            raise Fault(
                f"{what} in the file {location!r}",
                "a file that is there, inside of the model's folder",
                "copy the model with all of its files",
            )
        offset, size = int(said.get("offset", 0)), file.stat().st_size
        length = int(said.get("length", max(size - offset, 0)))
        wanted = check_shape(what, list(tensor.dims), bytes_of(tensor.data_type))
        if offset < 0 or length != wanted or offset + length > size:
            found = f"{what}: {length} bytes from {offset} on, of a file of {size}"
            raise Fault(found, f"{wanted} bytes that are there")


def _check_attributes(model: Any) -> None:
    """Operators of domains that are known, ONNX's own with attributes that these have.

    TVM's importer tells operators apart by their names alone, and does not look at attributes that
    it does not expect.
    """
    opset, functions = opset_of(model), {(each.domain, each.name) for each in model.functions}
    for node in model.graph.node:
        what = f"operator {node.op_type} {node.name!r}"
        _check_once((attribute.name for attribute in node.attribute), f"{what} with the attribute")
        if (node.domain, node.op_type) in functions:
            raise Fault(
                f"{what}, a function of the file's own",
                "operators of ONNX",
                "onnx.inliner.inline_local_functions(model, convert_version=True) before",
            )
        for attribute in node.attribute:
            given = [*attribute.ints, *([attribute.i] if attribute.type == attribute.INT else [])]
            if attribute.name in _COUNTS and min(given, default=1) < 1:
                # By some of these onnx's own inference divides.
                raise Fault(f"{what} with {attribute.name} {given}", "1 and more")
        if node.domain not in DOMAINS:
            raise Fault(
                f"{what} of the domain {node.domain!r}",
                f"ONNX's own and those of {CONTRIB}",
                "export the model without operators of one's own",
            )
        schema = None if node.domain == CONTRIB else schema_of(node.op_type, opset)
        if schema is None:
            continue  # the importer says which operators it does not know
        allowed = schema.attributes
        unknown = [a.name for a in node.attribute if a.name not in allowed]
        if unknown:
            names = ", ".join(sorted(allowed)) or "no attributes"
            raise Fault(f"{what} with the attribute {unknown[0]!r}", f"of opset {opset}: {names}")
