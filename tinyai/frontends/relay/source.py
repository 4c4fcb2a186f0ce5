"""Relay expressions in neutral form, and the walk from a region's function to ``ir.Graph``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tvm
from tvm import relay

from tinyai.errors import owning_faults
from tinyai.frontends.relay.functions import region_options
from tinyai.frontends.relay.seal import unsealed
from tinyai.frontends.relay.spelling import read
from tinyai.ir import Graph
from tinyai.lowering import Composite, Walk, lower_or_name
from tinyai.match import match
from tinyai.patterns import PatternRow
from tinyai.source import (
    Call,
    Constant,
    Expr,
    Opaque,
    Rounding,
    SourceType,
    Tuple,
    ordered,
    tensors_of,
)
from tinyai.target import default_rounding


class Source:
    """Relay expressions as source expressions, one for one: the same node gives the same object.

    ``bound`` maps parameters to what is passed for them.
    """

    def __init__(self, bound: dict[relay.Expr, Expr] | None = None) -> None:
        self.made: dict[relay.Expr, Expr] = dict(bound or {})

    def __call__(self, expr: relay.Expr) -> Expr:
        if expr not in self.made:
            self.made[expr] = self._make(expr)
        return self.made[expr]

    def _make(self, expr: relay.Expr) -> Expr:
        if isinstance(expr, relay.Constant):
            data = expr.data  # knows its type without a call of TVM's
            return Constant((SourceType(data.shape, data.dtype),), load=data.numpy)
        types = tuple(source_types(expr.checked_type))
        if isinstance(expr, relay.Tuple):
            fields = lambda: tuple(self(field) for field in expr.fields)  # noqa: E731
            return Tuple(types, load=fields, origin=expr)
        if isinstance(expr, relay.TupleGetItem):
            value, fields = self(expr.tuple_value), expr.tuple_value.checked_type.fields
            # The fields of a tuple of tuples are not its tensors.
            nested = any(isinstance(field, relay.TupleType) for field in fields)
            if isinstance(value, Tuple | Call) and not nested:
                return value.fields[int(expr.index)]
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            return read(
                expr.op.name,
                types,
                lambda: attributes(expr.attrs),
                lambda: tuple(self(arg) for arg in expr.args),
                span_name(expr),
                expr,
            )
        if isinstance(expr, relay.Call):
            return Opaque(types, load=lambda: tuple(self(arg) for arg in expr.args), origin=expr)
        return Expr(types, origin=expr)


def source_types(of: relay.Type) -> Iterator[SourceType]:
    """The tensors of a Relay type, tuples flattened."""
    if isinstance(of, relay.TupleType):
        for field in of.fields:
            yield from source_types(field)
    elif isinstance(of, relay.TensorType):
        shape = tuple(
            int(dim) if isinstance(dim, tvm.tir.IntImm | int) else None for dim in of.shape
        )
        yield SourceType(shape, of.dtype)
    else:
        yield SourceType((), type(of).__name__)


def attributes(attrs: Any) -> dict[str, Any]:
    """A call's attributes as plain Python values."""
    if attrs is None:
        return {}
    if not hasattr(attrs, "keys"):
        # A few operators' attributes have no Python class, only fields.
        names = sorted(set(dir(attrs)) - set(dir(type(attrs))))
        return {name: _plain(getattr(attrs, name)) for name in names}
    return {name: _plain(attrs[name]) for name in _field_names(attrs)}


# Of each class of attributes: TVM takes longer to list the names than to give the values.
_FIELD_NAMES: dict[type, tuple[str, ...]] = {}


def _field_names(attrs: tvm.ir.Attrs) -> tuple[str, ...]:
    names = _FIELD_NAMES.get(type(attrs))
    if names is None:
        names = tuple(map(str, attrs.keys()))
        if not isinstance(attrs, tvm.ir.attrs.DictAttrs):
            _FIELD_NAMES[type(attrs)] = names
    return names


def _plain(value: Any) -> Any:
    if isinstance(value, tvm.ir.Array | tuple | list):
        return tuple(_plain(item) for item in value)
    if isinstance(value, tvm.tir.IntImm):
        return int(value)
    if isinstance(value, tvm.tir.FloatImm):
        return float(value)
    return str(value) if isinstance(value, tvm.runtime.String) else value


def span_name(expr: relay.Expr) -> str:
    """Name of the source model's node that an expression came from, "" where none is known."""
    span = expr.span
    if span is None:
        return ""
    # To ask a span for a field that it lacks is slow: TVM raises an error with a backtrace.
    spans = span.spans if type(span).__name__ == "SequentialSpan" else [span]
    names = (str(each.source_name.name) for each in spans)
    return "/".join(dict.fromkeys(filter(None, names)))


def graph_from_region(func: relay.Function, patterns: Sequence[PatternRow] = ()) -> Graph:
    """The graph of a region, under the name of the function's ``global_symbol``. Composites of
    ``patterns`` with builders are lowered as one.

    Raises ``UnsupportedError``, which names the operator, where a builder refuses a call;
    ``DefectError`` where it fails.
    """
    with owning_faults(f"the graph of {func.attrs['global_symbol']}"):
        return _graph(func, rounding_of(func), patterns)


def rounding_of(func: relay.Function | None) -> Rounding:
    """What a region's attribute asks for, and what ``requantize_config`` says in the build at work
    for the operators that leave it open; UPWARD and int64 where that says nothing."""
    options = region_options(func) if func is not None else {}
    mode = options.get("rounding") or default_rounding(func)
    config = relay.qnn.op.qnn.current_requantize_config()
    return Rounding(mode, str(config.rounding or "UPWARD"), str(config.compute_dtype or "int64"))


def _graph(func: relay.Function, rounding: Rounding, patterns: Sequence[PatternRow] = ()) -> Graph:
    symbol = str(func.attrs["global_symbol"])
    module = tvm.IRModule({tvm.ir.GlobalVar(symbol): func})
    func = relay.transform.InferType()(module)[symbol]
    walk, source = _Walk(symbol, rounding), Source()
    walk.rows = {row.name: row for row in patterns if row.build is not None}
    for param in func.params:
        walk.input(source(param))
    return walk.graph(tensors_of(walk.expression(func.body, source)))


_HINT = "partition with partition_for_tinyai, which leaves it on the host"


class _Walk(Walk):
    """Composites are lowered where they stand."""

    rows: Mapping[str, PatternRow] = MappingProxyType({})

    def expression(self, root: relay.Expr, source: Source) -> Expr:
        """Lower all that ``root`` depends on; ``root`` as a source expression."""
        for expr in post_order(root):
            if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function):
                self._composite(expr, source)
            elif isinstance(expr, relay.Call):
                call = source(expr)
                assert isinstance(call, Call)
                lower_or_name(self, call, _HINT)
        return source(root)

    def _composite(self, call: relay.Call, source: Source) -> None:
        """The body of a composite, its parameters bound to the arguments."""
        composite = unsealed(call.op)
        inner = Source(dict(zip(composite.params, map(source, call.args), strict=True)))
        row = self.rows.get(str(composite.attrs["Composite"]).partition(".")[2])
        if row is None:
            result = self.expression(composite.body, inner)
        else:
            result = Composite.of(row, match(row.pattern, inner(composite.body)) or ())
            lower_or_name(self, result, _HINT)
        self.tensors[source(call)] = self.tensor(result)


def post_order(root: relay.Expr) -> Iterator[relay.Expr]:
    """Every expression that ``root`` depends on, arguments first, functions not entered."""
    return ordered(root, children)


def children(expr: relay.Expr) -> list[relay.Expr]:
    """What an expression is made from, functions not entered."""
    if isinstance(expr, relay.Call):
        return list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    return [expr.tuple_value] if isinstance(expr, relay.TupleGetItem) else []
