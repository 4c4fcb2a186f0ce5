"""From an ONNX file to expressions of the vocabulary.

``operators/`` has a reader for each operator; here are the nodes that they read, the values that
depend on constants alone, and the walk over a file.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from tinyai.errors import TinyAIError
from tinyai.frontends.faults import Fault, check_shape
from tinyai.frontends.moves import reshaped, transposed
from tinyai.frontends.onnx.facts import (
    SMALL,
    Facts,
    Known,
    attribute_tensor,
    bytes_of_dtype,
    dtype_of,
    schema_of,
)
from tinyai.frontends.onnx.site import NodeView
from tinyai.frontends.onnx.unread import UnreadNode, names_read
from tinyai.frontends.source_model import unread
from tinyai.ir import Array
from tinyai.qdq.moves import MOVES
from tinyai.qdq.operands import View, is_call
from tinyai.source import (
    TVMS_OWN,
    UNKNOWN,
    Call,
    Constant,
    Expr,
    Refusal,
    SourceType,
    Tuple,
    require,
)
from tinyai.vocabulary import call, constant

# Elements of a constant that is computed here; what only moves values may be as large as these are.
MOST_FOLDED = 2**20
# Nodes that others of a file are spelled out by, all together.
MOST_PARTS = 20_000
# What stays in the expressions, whatever it reads: qdq looks for it.
_QUANTIZATION = ("QuantizeLinear", "DequantizeLinear")


@dataclass
class Site(NodeView):
    """A node as its reader sees it. What a reader looks at is noted, for nothing that a file says
    of an operator is ignored: ``require_all_read``."""

    reading: Reading
    defaults: Mapping[str, Any]
    read_attributes: set[str] = field(default_factory=set)
    read_operands: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        return str(self.node.name or next(filter(None, self.node.output), ""))

    def refuse(self, found: str, allowed: str, hint: str = "") -> NoReturn:
        raise Refusal(self.node.op_type, found, f"{allowed}; {hint}" if hint else allowed)

    # --- Attributes and operands ---

    def attr(self, name: str, default: Any = None) -> Any:
        """What the file says, else the default of the operator's schema, else ``default``."""
        self.read_attributes.add(name)
        own = self.defaults.get(name)
        return super().attr(name, default if own is None else own)

    def operand(self, place: int) -> str:
        self.read_operands.add(place)
        return super().operand(place)

    def has(self, place: int) -> bool:
        return bool(self.operand(place))

    def expr(self, place: int = 0) -> Expr:
        name = self.operand(place)
        require(bool(name), f"operand {place}", "none", "one")
        return self.reading.exprs[name]

    def exprs(self) -> tuple[Expr, ...]:
        return tuple(self.expr(place) for place in range(len(self.node.input)))

    def known(self, place: int) -> Array | None:
        """The value of an operand that depends on constants alone; None of any other."""
        name = self.operand(place)
        return self.reading.known(name) if name else None

    def value(self, place: int, what: str) -> Array:
        value = self.known(place)
        if value is None:
            how = "computed at run time" if self.has(place) else "none"
            raise Refusal(what, how, "a constant: fold constants before, with onnxslim")
        return value

    def real(self, place: int, what: str) -> Array:
        """The numbers of a constant operand, or of one that is dequantized."""
        name = self.operand(place)
        value = self.reading.real_value(name) if name else None
        return self.value(place, what) if value is None else value

    def require_all_read(self) -> None:
        """Refuse a node with an attribute that its reader did not look at, and that is not its
        default, or with such an operand."""
        import onnx

        for attribute in self.node.attribute:
            if attribute.name not in self.read_attributes:
                given = onnx.helper.get_attribute_value(attribute)
                given = given.decode() if isinstance(given, bytes) else given
                usual = self.defaults.get(attribute.name)
                require(given == usual, f"attribute {attribute.name}", given, usual)
        for place, name in enumerate(self.node.input):
            require(not name or place in self.read_operands, f"operand {place}", name, "none")

    # --- Results ---

    @cached_property
    def types(self) -> tuple[SourceType, ...]:
        """Of each result that has a name, by ONNX's own inference."""
        return self.reading.types_of(self.node)

    @property
    def type(self) -> SourceType:
        """Of the first result."""
        return self.types[0]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of the first result; refuses one that is not known."""
        sizes = tuple(dim for dim in self.type.shape if dim is not None)
        require(len(sizes) == len(self.type.shape), "shape", self.type, "fixed dimensions")
        return sizes

    def call(
        self,
        operator: str,
        *args: Expr,
        of: SourceType | tuple[SourceType, ...] | None = None,
        **attrs: Any,
    ) -> Call:
        """A call of the vocabulary's operator with this node's type and name."""
        made = call(operator, of or self.type, *args, name=self.name, **attrs)
        return replace(made, spelling=self.node.op_type)

    def reshaped(self, value: Expr, shape: Iterable[int | None]) -> Expr:
        return reshaped(self.call, value, shape)

    def transposed(self, value: Expr, axes: Iterable[int]) -> Expr:
        return transposed(self.call, value, axes)


@dataclass(frozen=True)
class Spelled:
    """The origin of a call of ``function``: the node, with the values of its further operands."""

    node: Any
    operands: Mapping[str, Array]


Read: TypeAlias = "Callable[[Site], Expr]"


@dataclass(frozen=True)
class Row:
    """How an operator is read. ``defaults`` are those of an operator without a schema in onnx;
    None: the schema's."""

    read: Read
    defaults: Mapping[str, Any] | None


Rows: TypeAlias = Mapping[tuple[str, str], Row]  # by domain and name
# The nodes that do what one node does; the names are those of the file's values.
Spelling: TypeAlias = "Callable[[Site, Iterable[str]], list[Any]]"
Spellings: TypeAlias = Mapping[tuple[str, str], Spelling]  # by domain and name
NO_SPELLINGS: Spellings = MappingProxyType({})


def fixed_sizes(expr: Expr) -> tuple[int, ...]:
    """The dimensions of a value; refuses open ones."""
    sizes = tuple(dim for dim in expr.type.shape if dim is not None)
    require(len(sizes) == len(expr.type.shape), "shape of an operand", expr.type, "a fixed one")
    return sizes


def broadcast(site: Site, *values: Expr) -> tuple[int, ...]:
    """The shape of values that broadcast to one another."""
    try:
        return np.broadcast_shapes(*map(fixed_sizes, values))
    except ValueError:
        site.refuse(" and ".join(str(each.type) for each in values), "shapes that broadcast")


class Reading:
    """Expressions of a file's values by name, each read once.

    ``inputs`` are the parameters. A node that no reader takes is a call that ``unread`` made.
    ``spellings`` make several nodes of one, which ``spelled`` has by the first name
    that it makes.
    Raises ``Fault`` where a value is larger than allowed.
    """

    def __init__(
        self, model: Any, rows: Rows, opset: int, spellings: Spellings = NO_SPELLINGS
    ) -> None:
        self.rows, self._spellings = rows, spellings
        self.spelled: dict[str, list[Any]] = {}
        self._parts = 0
        self._values: dict[str, Known] = {}
        self._constants: dict[str, Array] = {}
        self.facts = Facts(opset, self._values, self._constants)
        self.exprs: dict[str, Expr] = {}
        self.inputs: dict[str, Expr] = {}
        for sparse in model.graph.sparse_initializer:
            raise Fault(f"sparse initializer {sparse.values.name!r}", "dense constants")
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._defaults: dict[tuple[str, str], Mapping[str, Any]] = {}
        for name, tensor in self._tensors.items():
            kind = SourceType(tuple(tensor.dims), dtype_of(tensor.data_type))
            self._put(name, Constant((kind,), load=partial(array_of, tensor)))
            if math.prod(tensor.dims) <= SMALL:
                self.known(name)
        for value in model.graph.input:
            if value.name not in self._tensors:
                self.inputs[value.name] = self._put(value.name, Expr((_type_of(value),)))
        nodes, self.used = needed_of(model.graph)
        for node in nodes:
            self._read(node)

    def _put(self, name: str, expr: Expr) -> Expr:
        of = expr.types[0]
        if of != UNKNOWN:
            self._values[name] = Known(of.shape, of.dtype)
        self.exprs[name] = expr
        return expr

    # --- Constants ---

    def known(self, name: str) -> Array | None:
        """The value of what depends on constants alone, without quantization."""
        if name not in self._constants and name in self._tensors:
            self._constants[name] = array_of(self._tensors[name])
        return self._constants.get(name)

    def real_value(self, name: str) -> Array | None:
        """The numbers of a constant, or of one that is dequantized; None of any other value."""
        value, expr = self.known(name), self.exprs[name]
        if value is None and is_call(expr, "dequantize") and isinstance(expr["data"], Constant):
            view = View(expr, MOVES, TVMS_OWN, None)
            value = view.constant(expr).astype(np.float32)
        return value

    def _folded(self, node: Any) -> list[Array] | None:
        """The results of a node whose operands are constants, or that asks for a shape alone."""
        if node.op_type == "Constant":
            (attribute,) = node.attribute
            tensor = attribute_tensor(attribute)
            require(tensor is not None, "constant", attribute.name, "numbers")
            return [array_of(tensor)]
        shape = self.facts.shape(node.input[0]) if node.input else None
        if node.op_type in ("Shape", "Size") and shape is not None and None not in shape:
            sizes = np.array(shape, np.int64)
            limits = {a.name: a.i for a in node.attribute}
            if node.op_type == "Size":
                return [np.array(math.prod(sizes.tolist()), np.int64)]
            return [sizes[limits.get("start", 0) : limits.get("end", len(sizes))]]
        if node.domain or node.op_type in _QUANTIZATION or _has_own_will(node):
            return None
        operands = {name: self.known(name) for name in node.input if name}
        if not operands or any(value is None for value in operands.values()):
            return None
        types = self.types_of(node)
        if any(None in of.shape for of in types) or "" in node.output:
            return None
        largest = max(value.size for value in operands.values() if value is not None)
        made = sum(math.prod(dim or 0 for dim in of.shape) for of in types)
        if made > max(largest, MOST_FOLDED):
            return None
        try:
            results = evaluated(node, operands, self.facts.opset)
        except Exception as error:  # of what its reference does not compute, or not of such values
            found = f"{type(error).__name__}: {error}"
            raise Refusal("constant", found, "what ONNX's reference computes") from error
        for value, of in zip(results, types, strict=True):
            same = (value.shape, value.dtype.name) == (of.shape, of.dtype)
            require(same, "constant", f"{value.dtype.name}{value.shape}", f"{of}, as ONNX says")
        return results

    # --- Nodes ---

    def types_of(self, node: Any) -> tuple[SourceType, ...]:
        """The types of a node's results by ONNX's inference; ``UNKNOWN`` for one that it does not
        tell."""
        found = self.facts.results_of(node)
        known = (found.get(name, Known(None, "")) for name in node.output)
        return tuple(UNKNOWN if k.shape is None else SourceType(k.shape, k.dtype) for k in known)

    def _spelled_out(self, node: Any) -> list[Any]:
        """The nodes that a node becomes, if it becomes others."""
        spelling = self._spellings.get(_key_of(node))
        if spelling is None:
            return []
        self._require_known_operands(node)
        return spelling(self._site(node), [*self.exprs, *self.used])

    def _read(self, node: Any) -> None:
        try:
            if parts := self._spelled_out(node):
                self._parts += len(parts)
                require(
                    self._parts <= MOST_PARTS, "spelled out", f"{self._parts} nodes", MOST_PARTS
                )
                self.used.update(name for part in parts for name in names_read(part))
                for part in parts:
                    self._read(part)
                first = [next(filter(None, part.output), "") for part in parts]
                nested = [self.spelled.get(n, [p]) for n, p in zip(first, parts, strict=True)]
                self.spelled[next(filter(None, node.output))] = [*chain(*nested)]
                return
            folded = self._folded(node)
            results: list[Expr] = [*map(constant, folded)] if folded else self._results(node)
            self._constants.update(zip(node.output, folded or (), strict=False))
        except Refusal as refusal:
            types = self.types_of(node)
            args = tuple(self.exprs[name] for name in names_read(node))
            name = node.name or next(filter(None, node.output), "")
            why = UnreadNode(refusal, node, self.facts.opset)
            stand_in = unread(node.op_type, types, args, why, name)
            results = [stand_in] if len(types) == 1 else list(stand_in.fields)
        except (TinyAIError, Fault):
            raise
        except Exception as error:  # of numpy or onnx, at what a file says
            what = f"operator {node.op_type} {node.name or node.output[0]!r}"
            raise Fault(
                f"{what}: {type(error).__name__}: {error}", "one that can be read"
            ) from error
        for name, expr in zip(node.output, results, strict=False):
            if name:
                of = self._put(name, expr).types[0]
                fixed = [dim for dim in of.shape if dim is not None]
                check_shape(f"result {name!r}", fixed, bytes_of_dtype(of.dtype))

    def _require_known_operands(self, node: Any) -> None:
        unknown = [name for name in node.input if name and self.exprs[name].types[0] == UNKNOWN]
        require(not unknown, "operand", UNKNOWN, "one that an operator makes that is read")

    def _results(self, node: Any) -> list[Expr]:
        row = self.rows.get(_key_of(node))
        if row is None:
            raise Refusal("operator", node.op_type, "one of those that tinyai ops lists")
        self._require_known_operands(node)
        site = self._site(node, row.defaults)
        result = row.read(site)
        site.require_all_read()
        results = list(result.fields) if isinstance(result, Tuple) else [result]
        return results + [_unused(site, name) for name in node.output[len(results) :]]

    def _site(self, node: Any, defaults: Mapping[str, Any] | None = None) -> Site:
        defaults = defaults if defaults is not None else self._schema_of(node)
        return Site(node, self.facts, self, defaults)

    def _schema_of(self, node: Any) -> Mapping[str, Any]:
        """The attributes of an operator with their defaults, None where they have none."""
        key = _key_of(node)
        if key not in self._defaults:
            schema = None if key[0] else schema_of(node.op_type, self.facts.opset)
            if schema is None and key in self._spellings:
                return {}  # ONNX Runtime's own
            # That of opset 18 is called deprecated, for the one of 21 has other numbers.
            replaced = node.op_type == "GroupNormalization"
            if schema is None or (schema.deprecated and not replaced):
                raise Refusal("operator", f"{node.op_type} in opset {self.facts.opset}", "none")
            self._defaults[key] = {
                name: _default(attribute) for name, attribute in schema.attributes.items()
            }
        return self._defaults[key]


def _key_of(node: Any) -> tuple[str, str]:
    """Its domain and its name."""
    return "" if node.domain == "ai.onnx" else str(node.domain), str(node.op_type)


def _unused(site: Site, name: str) -> Expr:
    """A result that the reader does not make, and that nobody may read."""
    used = name in site.reading.used
    require(not used, "a further result", name, "none that is used")
    return Expr((UNKNOWN,))


def _default(attribute: Any) -> Any:
    import onnx

    value = attribute.default_value
    if value.type == onnx.AttributeProto.UNDEFINED:
        return None
    given = onnx.helper.get_attribute_value(value)
    return given.decode() if isinstance(given, bytes) else given


# What makes something else each time, and what onnx's reference counts through to any attribute.
_HAS_OWN_WILL = ("Random", "Bernoulli", "Multinomial", "Dropout", "TfIdfVectorizer")


def _has_own_will(node: Any) -> bool:
    """Whether a node is of these, or holds a graph."""
    graphs = any(a.HasField("g") or a.graphs for a in node.attribute)
    return graphs or node.op_type.startswith(_HAS_OWN_WILL)


def needed_of(graph: Any) -> tuple[list[Any], set[str]]:
    """The nodes that the outputs depend on, in order, and the names of what these read."""
    needed = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            nodes.append(node)
            needed.update(names_read(node))
    return nodes[::-1], needed


def _type_of(value: Any) -> SourceType:
    """Type of an input. Raises ``Fault`` for one that is not a tensor of fixed dimensions."""
    of = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not of.HasField("shape"):
        raise Fault(f"input {value.name!r} without a shape", "a tensor with a shape")
    sizes = [dim.dim_value if dim.dim_value > 0 else None for dim in of.shape.dim]
    if None in sizes:
        named = [
            dim.dim_param or "?" if dim.dim_value <= 0 else str(dim.dim_value)
            for dim in of.shape.dim
        ]
        asked = "x".join(str(size or 1) for size in sizes)
        raise Fault(
            f"input {value.name!r} of shape [{', '.join(named)}]",
            "fixed dimensions",
            f"--input-shapes {value.name}:{asked}, in Python input_shapes=, with your sizes",
        )
    return SourceType(tuple(sizes), dtype_of(of.elem_type))


def array_of(tensor: Any) -> Array:
    """The numbers of a tensor; those of four bits as int8 or uint8."""
    import onnx

    values = np.asarray(onnx.numpy_helper.to_array(tensor))
    dtype = dtype_of(tensor.data_type)
    return values.astype(dtype.replace("4", "8")) if dtype in ("int4", "uint4") else values


def evaluated(node: Any, operands: Mapping[str, Array | None], opset: int) -> list[Array]:
    """A node's results, of operands by name, by ONNX's reference implementation."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    helper = onnx.helper
    if node.op_type == "GatherElements":  # the reference fails where data is larger than indices
        axes = [each.i for each in node.attribute if each.name == "axis"] or [0]
        data, indices = (operands[name] for name in node.input)
        return [_gathered_elements(data, indices, axes[0])]
    first, last = (
        [onnx.ValueInfoProto(name=name) for name in names if name]
        for names in (operands, node.output)
    )
    graph = helper.make_graph([node], "constant", first, last)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the reference asks of numpy is not the user's
        return [np.asarray(each) for each in ReferenceEvaluator(model).run(None, dict(operands))]


def _gathered_elements(data: Any, indices: Any, axis: int) -> Array:
    """Of each index the element at its place of all axes but this one."""
    axis %= data.ndim
    whole = tuple(slice(None if dim == axis else size) for dim, size in enumerate(indices.shape))
    size = data.shape[axis]
    if ((indices < -size) | (indices >= size)).any():
        raise IndexError(f"indices outside of {size} places")
    return np.asarray(np.take_along_axis(data[whole], indices % size, axis))
