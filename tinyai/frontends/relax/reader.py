"""From Relax's bindings to expressions of the vocabulary.

``operators.py`` has a reader for each operator; here are the values that they read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import tvm
from tvm import relax

from tinyai.errors import TinyAIError
from tinyai.frontends.relax.versions import Constant, array_of, fixed, number_of
from tinyai.partition.reasons import OWN_FAULT
from tinyai.partition.trial import NO_FAULT, warn_of_fault
from tinyai.source import Call, Expr, Refusal, SourceType, Tuple, require
from tinyai.source import Constant as Known
from tinyai.vocabulary import call


def operator_of(value: relax.Expr) -> str:
    """What a binding calls: "relax.nn.conv2d", or the kind of its expression."""
    called = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return str(value.op.name) if called else type(value).__name__


def is_operator(value: relax.Expr) -> bool:
    """Whether it is a call of an operator that computes tensors of tensors, no call of a function
    by one."""
    others = ("relax.call_", "relax.invoke_", "relax.builtin.", "relax.vm.", "relax.memory.")
    name = operator_of(value)
    return name.startswith("relax.") and not name.startswith(others)


def called_function(value: relax.Expr) -> str:
    """The operator of a call of a TIR or packed function, and that function; of others nothing."""
    if not operator_of(value).startswith("relax.call_"):
        return ""
    function = value.args[0]
    name = getattr(function, "name_hint", None) or getattr(function, "global_symbol", "")
    return f"{operator_of(value)} of {name or 'a function'}"


def free_variables(expr: relax.Expr) -> Iterator[relax.Var]:
    """The variables that an expression reads, in order."""
    match expr:
        case relax.Var():
            yield expr
        case relax.Call():
            for each in expr.args:
                yield from free_variables(each)
        case relax.Tuple():
            for each in expr.fields:
                yield from free_variables(each)
        case relax.TupleGetItem():
            yield from free_variables(expr.tuple_value)


def source_types(of: Any) -> tuple[SourceType, ...]:
    """The tensors of a type, tuples flattened; a dimension that is no number is None."""
    if isinstance(of, relax.TupleType):
        return tuple(each for field in of.fields for each in source_types(field))
    if isinstance(of, relax.ShapeType) and of.ndim >= 0:
        return (SourceType((of.ndim,), "int64"),)
    if not isinstance(of, relax.TensorType):
        return (SourceType((None,), type(of).__name__),)
    if not isinstance(of.shape, relax.ShapeExpr):
        return (SourceType((None,) * max(of.ndim, 1), str(of.dtype)),)
    shape = map(fixed, of.shape.values)
    return (SourceType(tuple(shape), str(of.dtype)),)


@dataclass(frozen=True)
class Site:
    """A call as its reader sees it."""

    written: relax.Call
    name: str
    types: tuple[SourceType, ...]
    read: Callable[[relax.Expr], Expr]

    @property
    def type(self) -> SourceType:
        """Of the result, which is one tensor."""
        require(len(self.types) == 1, "result", f"a tuple of {len(self.types)}", "one tensor")
        return self.types[0]

    @property
    def attrs(self) -> Any:
        return self.written.attrs

    def __getitem__(self, place: int) -> Expr:
        """An operand."""
        return self.read(self.written.args[place])

    def known(self, place: int, what: str) -> Any:
        """The value of an operand that is a constant."""
        value = self[place]
        if not isinstance(value, Known):
            raise Refusal(what, "computed at run time", "a constant")
        return value.value

    def number(self, place: int, what: str) -> float:
        """An operand that is an immediate number."""
        value = number_of(self.written.args[place])
        if value is None:
            raise Refusal(what, "computed at run time", "a number")
        return value

    def numbers(self, place: int, what: str) -> list[int]:
        """An operand that is a tuple of immediate numbers."""
        found = [number_of(each) for each in self.written.args[place].fields]
        if None in found:
            raise Refusal(what, "computed at run time", "numbers")
        return [int(each) for each in found if each is not None]

    def tuple(self, *fields: Expr) -> Tuple:
        """The result of an operator that has several."""
        return Tuple(self.types, load=lambda: fields)

    def call(self, operator: str, *args: Expr, of: Any = None, **attrs: Any) -> Call:
        """A call of the vocabulary's operator with this one's type and name."""
        made = call(operator, of or self.type, *args, name=self.name, **attrs)
        return replace(made, spelling=operator_of(self.written))


Read: TypeAlias = "Callable[[Site], Expr]"


class Reading:
    """Expressions of bindings, each read once, in their order. ``refused`` says why a call has no
    expression of its own: it is one of an operator that nobody knows."""

    def __init__(self, readers: Mapping[str, Read]) -> None:
        self.readers = readers
        self.refused: dict[relax.Var, Refusal] = {}
        self._made: dict[relax.Expr, Expr] = {}

    def __call__(self, expr: relax.Expr) -> Expr:
        """The expression of a variable, a constant, or a tuple of them."""
        if expr not in self._made:
            self._made[expr] = self._leaf(expr)
        return self._made[expr]

    def _leaf(self, expr: relax.Expr) -> Expr:
        if isinstance(expr, Constant):
            return Known(source_types(expr.ty), load=lambda: array_of(expr))
        if isinstance(expr, relax.Tuple):
            fields = tuple(map(self, expr.fields))
            return Tuple(tuple(of for each in fields for of in each.types), load=lambda: fields)
        require(isinstance(expr, relax.Var), "operand", type(expr).__name__, "a tensor")
        return Expr(source_types(expr.ty))

    def bind(self, variable: relax.Var, value: relax.Expr, name: str) -> None:
        """Read what a variable is bound to."""
        self._made[variable] = self._read(variable, value, name)

    def _read(self, variable: relax.Var, value: relax.Expr, name: str) -> Expr:
        types = source_types(variable.ty)
        try:
            if is_operator(value):
                return self._call(Site(value, name, types, self))
            if isinstance(value, relax.TupleGetItem):
                whole = self(value.tuple_value)
                if isinstance(whole, Tuple | Call) and len(types) == 1:
                    return whole.fields[int(value.index)]
            elif isinstance(value, relax.Var | relax.Tuple | Constant):
                return self(value)
        except Refusal as refusal:
            self.refused[variable] = refusal
        except TinyAIError:
            raise
        except Exception as error:  # which nobody foresaw: the rest is read all the same
            found = f"{type(error).__name__}: {error}"
            warn_of_fault(operator_of(value), found)
            self.refused[variable] = Refusal(OWN_FAULT, found, NO_FAULT)
        if not is_operator(value):
            return Expr(types)
        args = tuple(self(each) for each in free_variables(value))
        return Call(types, op=operator_of(value), load_attrs=dict, load=lambda: args, name=name)

    def _call(self, site: Site) -> Expr:
        operator = operator_of(site.written)
        for each in (
            *site.types,
            *(of for v in free_variables(site.written) for of in self(v).types),
        ):
            require(None not in each.shape, "shape", each, "fixed dimensions")
        require(operator in self.readers, "operator", operator, "one that tinyai reads")
        return self.readers[operator](site)
