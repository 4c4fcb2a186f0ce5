"""What is known of a model's values before its operators are read: shapes, dtypes, constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from tinyai.errors import OptionError
from tinyai.frontends.faults import Fault, check_shape
from tinyai.frontends.onnx.misfits import Operands, fits
from tinyai.ir import Array
from tinyai.safe_text import safe

CONTRIB = "com.microsoft"


@dataclass(frozen=True)
class QOperator:
    """An operator of integers that computes what an ``operator`` of floats does: the places of its
    operands, each with its scale and zero point behind it, of the result's scale, and of a bias of
    int32 (-1 for none). ``dropped`` are attributes that the operator of floats does not have, with
    the values that mean nothing."""

    operator: str
    operands: tuple[int, ...]
    result: int
    bias: int = -1
    dropped: tuple[tuple[str, int], ...] = ()


_LAST = (("channels_last", 0),)
QOPERATORS: Mapping[tuple[str, str], QOperator] = {
    ("", "QLinearConv"): QOperator("Conv", (0, 3), 6, bias=8),
    ("", "QLinearMatMul"): QOperator("MatMul", (0, 3), 6),
    (CONTRIB, "QGemm"): QOperator("Gemm", (0, 3), 7, bias=6),
    (CONTRIB, "QLinearAdd"): QOperator("Add", (0, 3), 6),
    (CONTRIB, "QLinearMul"): QOperator("Mul", (0, 3), 6),
    (CONTRIB, "QLinearLeakyRelu"): QOperator("LeakyRelu", (0,), 3),
    (CONTRIB, "QLinearSigmoid"): QOperator("Sigmoid", (0,), 3),
    (CONTRIB, "QLinearSoftmax"): QOperator("Softmax", (0,), 3, dropped=(("opset", 13),)),
    (CONTRIB, "QLinearAveragePool"): QOperator("AveragePool", (0,), 3, dropped=_LAST),
    (CONTRIB, "QLinearGlobalAveragePool"): QOperator("GlobalAveragePool", (0,), 3, dropped=_LAST),
    (CONTRIB, "QLinearConcat"): QOperator("Concat", (), 0),
}
NO_RULE = "tinyai.unknown"
# The operators of floats whose attributes say something of shapes.
_KEPT = {"AveragePool", "Concat", "Gemm"}
# The first opset whose rule counts axes below 0 from the end, as ONNX Runtime does in every opset:
# earlier rules ignore them.
_COUNT_AXES = {"Squeeze": 11, "Unsqueeze": 11}
# Operators without a rule, and one whose results have the same type.
_ALIKE = {"GreaterOrEqual": "Greater", "LessOrEqual": "Less"}


@dataclass(frozen=True)
class Known:
    """``shape`` is None where not even the rank is known, and has None for open dimensions."""

    shape: tuple[int | None, ...] | None
    dtype: str


@dataclass(frozen=True)
class Facts:
    """By name of a value. ``opset`` is that of ONNX's own operators."""

    opset: int
    values: Mapping[str, Known] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        return self.values[name].shape if name in self.values else None

    def plus(self, name: str, shape: tuple[int | None, ...]) -> Facts:
        """The same with the shape of one more value."""
        return replace(self, values={**self.values, name: Known(shape, "")})

    def after(self, node: Any) -> Facts:
        """The same with the shapes of a node's results, where its operands' say them."""
        return replace(self, values={**self.values, **self.results_of(node)})

    def results_of(self, node: Any) -> dict[str, Known]:
        """The results of a node, by ONNX's own rule for it; nothing where it has none, or where
        the operands are not known."""
        import onnx

        if [*graphs_in(node)]:
            found = self.hide_misfits(onnx.GraphProto(node=[node])).values
            return {name: found[name] for name in node.output if name in found}
        return self._by_rule(node) if self._is_shown(node) else {}

    def _by_rule(self, node: Any) -> dict[str, Known]:
        """The same, of a node that onnx's rules may see."""
        import onnx

        (copied,) = onnx.GraphProto(node=[node]).node
        _understand(copied)
        operands = [name for name in copied.input if name]
        opset = max(self.opset, _COUNT_AXES.get(copied.op_type, 0))
        try:
            schema = onnx.defs.get_schema(copied.op_type, opset, copied.domain)
            results = onnx.shape_inference.infer_node_outputs(
                schema,
                copied,
                {name: proto_of(self.values[name]) for name in operands},
                {
                    name: onnx.numpy_helper.from_array(value)
                    for name in operands
                    if (value := self.constants.get(name)) is not None and value.size <= SMALL
                },
                opset_imports=[onnx.helper.make_opsetid("", opset)],
            )
        except Exception:  # no rule, or operands that are not known
            return {}
        return {name: _known(kind.tensor_type) for name, kind in results.items()}

    def hide_misfits(self, graph: Any, *, inside: bool = False) -> Facts:
        """What is known after a graph. Nodes that onnx's rules must not see go to a domain that it
        has none of; those ``inside`` of another node do so unless it is known that they fit."""
        values, constants = dict(self.values), dict(self.constants)
        here = replace(self, values=values, constants=constants)
        for tensor in graph.initializer:
            values[tensor.name] = Known(tuple(tensor.dims), dtype_of(tensor.data_type))
        for value in graph.input:
            values.setdefault(value.name, _known(value.type.tensor_type))
        for node in graph.node:
            inner = [(each, here.hide_misfits(each, inside=True)) for each in graphs_in(node)]
            if not here._is_shown(node, inside=inside):
                node.domain = NO_RULE
            elif node.op_type == "If":
                values.update(_of_branches(node, inner))
            else:
                values.update(here._by_rule(node))
        return here

    def _is_shown(self, node: Any, *, inside: bool = False) -> bool:
        """Whether onnx's rules may see a node, but for graphs inside of it."""
        if node.domain not in ("", "ai.onnx"):
            return True
        shapes = {name: self.shape(name) for name in node.input}
        found = fits(Operands(node, shapes, self.constants))
        return found or (found is None and not inside)

    def declaration(self, name: str) -> Any:
        """A value as a graph declares it, with its type where it is known."""
        import onnx

        known = self.values.get(name, Known(None, ""))
        kind = proto_of(known) if known.shape is not None and known.dtype else None
        return onnx.ValueInfoProto(name=name, type=kind)

    def dtype(self, name: str) -> str:
        return self.values[name].dtype if name in self.values else ""

    def rank(self, name: str) -> int | None:
        shape = self.shape(name)
        return None if shape is None else len(shape)


def graphs_in(node: Any) -> Iterator[Any]:
    """The graphs that a node has as attributes."""
    for attribute in node.attribute:
        yield from ([attribute.g] if attribute.HasField("g") else [])
        yield from attribute.graphs


def _of_branches(node: Any, branches: Sequence[tuple[Any, Facts]]) -> dict[str, Known]:
    """The results of an If, as far as its branches agree."""
    found = {}
    for place, name in enumerate(node.output):
        ends = [graph.output[place : place + 1] for graph, _ in branches]
        known = [
            facts.values.get(end.name)
            for (_, facts), of in zip(branches, ends, strict=True)
            for end in of
        ]
        if name and len(known) == len(branches) and known[0] and len({*known}) == 1:
            found[name] = known[0]
    return found


def qoperator_of(node: Any) -> QOperator | None:
    """How a node computes with integers; None of any other node."""
    row = QOPERATORS.get((node.domain, node.op_type))
    if row is None or row.operands:
        return row
    return replace(row, operands=tuple(range(2, len(node.input), 3)))


def opset_of(model: Any) -> int:
    """Of ONNX's own operators."""
    return next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


def schema_of(operator: str, opset: int) -> Any:
    """The schema of one of ONNX's own operators; None where the opset does not have it."""
    import onnx

    try:
        return onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        return None


def declared(model: Any) -> Facts:
    """What is known before shapes are inferred."""
    import onnx

    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in _small(model)}
    return Facts(opset_of(model), {}, constants)


def facts_of(model: Any) -> Facts:
    """By ONNX's own inference of shapes.

    Raises ``Fault`` where a value has a shape above the limit.
    """
    import onnx

    known, understood = declared(model), _understood(model)
    known.hide_misfits(understood.graph)
    try:
        inferred = onnx.shape_inference.infer_shapes(understood, data_prop=True).graph
    except Exception:  # what it objects to is the importer's to judge; more than 2 GB it cannot
        return known
    values = {}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        check_value(value, "result")
        values[value.name] = _known(value.type.tensor_type)
    for tensor in inferred.initializer:
        values[tensor.name] = Known(tuple(tensor.dims), dtype_of(tensor.data_type))
    return replace(known, values=values)


# What tools call dimensions that may differ.
_UNNAMED = ("", "?", "None")


def set_shapes(model: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    """Inputs have these dimensions, and so has each other one whose dimension has the same name. -1
    stands for an open one here, and in the file, where some tools write it.

    Raises ``OptionError`` where one name would have two sizes.
    """
    sizes: dict[str, int] = {}
    dims_of = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
    for name, shape in shapes.items():
        for dim, size in zip(dims_of.get(name, ()), shape, strict=False):
            named = dim.dim_param not in _UNNAMED
            if named and size > 0 and sizes.setdefault(dim.dim_param, size) != size:
                raise OptionError(
                    "input shapes",
                    found=f"{size} and {sizes[dim.dim_param]} for the dimension {dim.dim_param!r}",
                    allowed="one size for all dimensions of a name",
                )
            dim.dim_value = size
    for dim in chain(*dims_of.values()):
        if dim.dim_param in sizes:
            dim.dim_value = sizes[dim.dim_param]
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value == -1:
                dim.dim_param = "?"
    if shapes:  # what the file says of other values may be of the shapes that it was made for
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")


def set_values(model: Any, values: Mapping[str, float]) -> None:
    """Inputs become constants that hold one value everywhere.

    Raises ``OptionError`` for a name that no input has, and for a value that its dtype does not
    hold or whose shape is open; ``Fault`` where it is larger than allowed.
    """
    import onnx

    known = {value.name: value for value in model.graph.input}
    for name, value in values.items():
        if name not in known:
            raise _value_error(name, value, f"inputs of the model: {', '.join(known)}")
        of = known[name].type.tensor_type
        shape, dtype = [dim.dim_value for dim in of.shape.dim], dtype_of(of.elem_type)
        if dtype not in _NUMBERS or min(shape, default=1) < 1:
            raise _value_error(name, value, "a tensor of fixed dimensions, of numbers")
        low, high = _NUMBERS[dtype]
        if not low <= value <= high or (dtype[0] in "bui" and value != int(value)):
            raise _value_error(name, value, f"a number of its type, {dtype}")
        check_shape(f"input {name!r}", shape, bytes_of_dtype(dtype))
        model.graph.input.remove(known[name])
        constant = onnx.numpy_helper.from_array(np.full(shape, value, dtype), name)
        model.graph.initializer.append(constant)


# The smallest and the largest number of each dtype that an input with one value may have.
_NUMBERS = {
    "bool": (0, 1),
    **{
        name: (float(np.finfo(name).min), float(np.finfo(name).max))
        for name in ("float16", "float32", "float64")
    },
    **{
        name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
        for bits in (8, 16, 32, 64)
        for name in (f"int{bits}", f"uint{bits}")
    },
}


def _value_error(name: str, value: float, allowed: str) -> OptionError:
    found = safe(f"{name}={value}")
    return OptionError("value of an input", found=found, allowed=safe(allowed, 240))


SMALL = 4096  # elements: of axes, shapes, bounds, indices


def _small(model: Any) -> list[Any]:
    """Constants in the file itself that may say how an operator works."""
    import onnx

    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                made = attribute_tensor(attribute)
                if made is not None:
                    made.name = node.output[0]
                    tensors.append(made)
    inside = (t for t in tensors if t.data_location != onnx.TensorProto.EXTERNAL)
    return [t for t in inside if np.prod(t.dims, dtype=float) <= SMALL and t.data_type != 8]


def attribute_tensor(attribute: Any) -> Any:
    """What an attribute of a Constant holds, as a tensor; None where it is no numbers."""
    import onnx

    match attribute.name:
        case "value":
            copied = onnx.TensorProto()
            copied.CopyFrom(attribute.t)
            return copied
        case "value_float" | "value_floats":
            numbers = attribute.f if attribute.name == "value_float" else attribute.floats
            return onnx.numpy_helper.from_array(np.asarray(numbers, np.float32))
        case "value_int" | "value_ints":
            numbers = attribute.i if attribute.name == "value_int" else attribute.ints
            return onnx.numpy_helper.from_array(np.asarray(numbers, np.int64))
    return None


def _understood(model: Any) -> Any:
    """The model with operators that ONNX's inference has a rule for, and a right one."""
    import onnx

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    copied.opset_import.append(onnx.helper.make_opsetid(NO_RULE, 1))
    for node in copied.graph.node:
        if opset_of(model) < _COUNT_AXES.get(node.op_type, 0) and _has_axis_from_the_end(node):
            node.domain = NO_RULE
        _understand(node)
    return copied


def show(graph: Any) -> None:
    """The nodes that were hidden from onnx's rules, as they were."""
    for node in graph.node:
        if node.domain == NO_RULE:
            node.domain = ""
        for inner in graphs_in(node):
            show(inner)


def _has_axis_from_the_end(node: Any) -> bool:
    return any(axis < 0 for a in node.attribute if a.name == "axes" for axis in a.ints)


def _understand(node: Any) -> None:
    if not node.domain:
        node.op_type = _ALIKE.get(node.op_type, node.op_type)
    attributes = {a.name: a for a in node.attribute}
    # Inference of onnx 1.18 keeps a last window that begins behind the data, and forgets sizes.
    ceil = "ceil_mode" in attributes and attributes["ceil_mode"].i
    padded = "auto_pad" in attributes and attributes["auto_pad"].s != b"NOTSET"
    auto = "dilations" in attributes and padded
    last = "channels_last" in attributes and attributes["channels_last"].i
    if ceil or auto or last or "output_shape" in attributes:
        node.domain = NO_RULE
    elif node.domain == CONTRIB and (row := qoperator_of(node)) is not None:
        inputs = [name for place, name in enumerate(node.input) if place in row.operands]
        kept = [a for a in node.attribute if row.operator in _KEPT and a.name != "channels_last"]
        node.op_type, node.domain = row.operator, ""
        del node.input[:], node.attribute[:]
        node.input.extend(inputs)
        node.attribute.extend(kept)


def _known(of: Any) -> Known:
    shape = None
    if of.HasField("shape"):
        shape = tuple(
            d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None
            for d in of.shape.dim
        )
    return Known(shape, dtype_of(of.elem_type))


# Names of numpy's where TensorProto's are others.
_DTYPES = {"float": "float32", "double": "float64", "undefined": ""}


def dtype_of(kind: int) -> str:
    """numpy's name of one of TensorProto's types, "" for an unknown one; types that numpy does not
    have go by ONNX's name."""
    import onnx

    if kind not in onnx.TensorProto.DataType.values():
        return ""
    name = str(onnx.TensorProto.DataType.Name(kind)).lower()
    return _DTYPES.get(name, name)


def proto_of(known: Known) -> Any:
    import onnx

    return onnx.helper.make_tensor_type_proto(_kind_of(known.dtype), known.shape)


def _kind_of(dtype: str) -> int:
    import onnx

    name = next((theirs for theirs, ours in _DTYPES.items() if ours == dtype), dtype)
    return int(onnx.TensorProto.DataType.Value(name.upper()))


def check_value(value: Any, what: str) -> None:
    dims = value.type.tensor_type.shape.dim
    # -1 is how some tools write an open dimension.
    shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in dims]
    kind = value.type.tensor_type.elem_type
    known = [1 if dim == -1 else dim for dim in shape]
    check_shape(f"{what} {value.name!r}", known, bytes_of(kind) if kind else 0)


# Of bfloat16 and what is smaller, by TensorProto's numbers: numpy has no such types, older versions
# of onnx do not name all of them, and tell of float32 in their place.
_BITS = {16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2}


def bytes_of(kind: int) -> float:
    """Bytes of an element of one of TensorProto's types, 0 for others."""
    import onnx

    if kind not in onnx.TensorProto.DataType.values() or kind == onnx.TensorProto.UNDEFINED:
        return 0
    if kind in _BITS:
        return _BITS[kind] / 8
    return int(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)


def constant_of(facts: Facts, name: str, what: str) -> Array:
    """Raises ``Fault`` where a value has to be a constant and is none."""
    if name not in facts.constants:
        raise Fault(
            f"{what} {name!r}, computed at run time",
            "a constant",
            "fold constants before: onnxslim, or the exporter's constant folding",
        )
    return facts.constants[name]


def bytes_of_dtype(name: str) -> float:
    """The same by ``dtype_of``'s names."""
    return bytes_of(_kind_of(name)) if name != "unknown" else 0
