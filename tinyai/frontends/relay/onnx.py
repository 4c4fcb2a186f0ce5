"""ONNX by TVM's importer, with the type of every value that the file names."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay


def imported_onnx(
    model: Any, shapes: dict[str, Any], opset: int
) -> tuple[tvm.IRModule, dict[str, Any], dict[str, relay.Type]]:
    """Module, parameters, and the types of the results of nodes that the outputs depend on.

    As ``relay.frontend.from_onnx``, which forgets names of values, and warns of a file that
    ``spelled`` changed.
    """
    from tvm.relay.frontend.onnx import GraphProto

    with GraphProto(shapes, "float32", True, op_type_dict={}) as graph:
        mod, params = graph.from_onnx(model.graph, opset)
    main = mod["main"]
    values = {name: graph._nodes[name] for name in _needed(model.graph)}
    # One function of all values, so that passes see each once.
    every = relay.Function(main.params, relay.Tuple([main.body, *values.values()]))
    whole = relay.transform.DynamicToStatic()(tvm.IRModule.from_expr(every))
    # The importers leave contradictions between operators to whoever types the module first.
    every = relay.transform.InferType()(whole)["main"]
    types = [field.checked_type for field in every.body.fields[1:]]
    main = relay.Function(every.params, every.body.fields[0])
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(main))
    return mod, params, dict(zip(values, types, strict=True))


def _needed(graph: Any) -> list[str]:
    """Names of results of nodes that the outputs depend on, in order."""
    needed = {value.name for value in graph.output}
    names = []
    for node in reversed(graph.node):
        made = [name for name in node.output if name in needed]
        if made:
            names += made
            needed.update(node.input)
    return names[::-1]
