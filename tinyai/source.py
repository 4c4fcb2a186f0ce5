"""A source model's expressions in neutral form: what front ends read their graphs into.

A call is of an operator of our own vocabulary (``vocabulary.py``), whatever the source language
calls it and in which order that takes its arguments. Patterns match these values and operators are
lowered from them, so that neither needs TVM. A call's operands and attributes are read when they
are asked for: a check looks at a few calls of a large network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from tinyai.ir import Array, DType, Type

# The ``origin`` of a call that its framework computes in floats, whatever stands around it.
IN_FLOATS = "computed in floats"


@dataclass(frozen=True)
class SourceType:
    """Type in the source model: a dimension is None where it is dynamic; any dtype's name."""

    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join('?' if d is None else str(d) for d in self.shape)}]"


# The type of what nobody tells the type of.
UNKNOWN = SourceType((None,), "unknown")


@dataclass(frozen=True, eq=False)
class Expr:
    """Anything with a value: on its own a parameter or what lies outside of a match. ``origin`` is
    what a front end read it from, for its writer."""

    types: tuple[SourceType, ...]
    origin: object = field(default=None, kw_only=True, repr=False)

    @property
    def type(self) -> SourceType:
        """Type of an expression that is one tensor."""
        require(len(self.types) == 1, "result", f"a tuple of {len(self.types)}", "one tensor")
        return self.types[0]


@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """A constant tensor; ``value`` is read when it is needed."""

    load: Callable[[], Array] = field(kw_only=True)

    @cached_property
    def value(self) -> Array:
        return self.load()


@dataclass(frozen=True, eq=False)
class Tuple(Expr):
    load: Callable[[], tuple[Expr, ...]] = field(kw_only=True)

    @cached_property
    def fields(self) -> tuple[Expr, ...]:
        return self.load()


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """The operator ``op`` of the vocabulary on ``args``, which ``operands`` names in order.

    ``name`` is that of the source model's node, ``spelling`` what its language calls the operator,
    if that is something else: for messages. An operator that the vocabulary does not have goes by
    the source language's name, with the attributes as they are there.
    """

    op: str = field(kw_only=True)
    load_attrs: Callable[[], Mapping[str, Any]] = field(kw_only=True)
    load: Callable[[], tuple[Expr, ...]] = field(kw_only=True)
    operands: tuple[str, ...] = field(default=(), kw_only=True)
    name: str = field(default="", kw_only=True)
    spelling: str = field(default="", kw_only=True)

    def __getitem__(self, operand: str) -> Expr:
        return self.args[self.operands.index(operand)]

    @property
    def spelled(self) -> str:
        return self.spelling or self.op

    @cached_property
    def attrs(self) -> Mapping[str, Any]:
        return self.load_attrs()

    @cached_property
    def args(self) -> tuple[Expr, ...]:
        return self.load()

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The tensors of a result that is a tuple."""
        return tuple(Field((of,), call=self, index=i) for i, of in enumerate(self.types))


@dataclass(frozen=True, eq=False)
class Field(Expr):
    """One tensor of a call's result that is a tuple; made by ``Call.fields`` only."""

    call: Call = field(kw_only=True)
    index: int = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Opaque(Expr):
    """A value that is computed from ``args`` in a way that the vocabulary has no words for, such as
    a call of a function."""

    load: Callable[[], tuple[Expr, ...]] = field(kw_only=True)

    @cached_property
    def args(self) -> tuple[Expr, ...]:
        return self.load()


def children(expr: Expr) -> tuple[Expr, ...]:
    """What an expression is made from."""
    match expr:
        case Call() | Opaque():
            return expr.args
        case Tuple():
            return expr.fields
        case Field():
            return (expr.call,)
    return ()


def rebuilt(expr: Expr, new: Sequence[Expr]) -> Expr:
    """The same expression made from ``new``; the same object where these are its children."""
    if all(a is b for a, b in zip(new, children(expr), strict=True)):
        return expr
    made = tuple(new)
    match expr:
        case Call():
            return replace(expr, load_attrs=lambda: expr.attrs, load=lambda: made)
        case Tuple() | Opaque():
            return replace(expr, load=lambda: made)
        case Field(index=index):
            (call,) = made
            assert isinstance(call, Call)
            return call.fields[index]
    return expr


def with_values(expr: Expr, values: dict[Expr, Expr]) -> Expr:
    """The expression where those of ``values`` have theirs, which gets what is made on the way:
    so a part of a model is cut out at its borders."""
    for each in ordered(expr, lambda below: () if below in values else children(below)):
        if each not in values:
            values[each] = rebuilt(each, [values[child] for child in children(each)])
    return values[expr]


Node = TypeVar("Node", bound=Hashable)


def ordered(root: Node, children: Callable[[Node], Sequence[Node]]) -> Iterator[Node]:
    """Everything that ``root`` depends on, children first."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(child, False) for child in reversed(children(node)) if child not in seen]


def post_order(root: Expr) -> Iterator[Expr]:
    """Every expression that ``root`` depends on, arguments first."""
    return ordered(root, children)


def tensors_of(expr: Expr) -> Iterator[Expr]:
    """The tensors of an expression, in order: itself, or the fields of a tuple."""
    stack = [expr]
    while stack:
        each = stack.pop()
        if isinstance(each, Tuple) or (isinstance(each, Call) and len(each.types) > 1):
            stack += reversed(each.fields)
        else:
            yield each


class Refusal(ValueError):
    """Why an operator stays on the host: the clause that failed, what was found and is allowed.

    ``call`` is the call that failed, where a check walked over calls (see ``blaming``).
    """

    def __init__(self, clause: str, found: object, allowed: object) -> None:
        self.clause, self.found, self.allowed = clause, str(found), str(allowed)
        self.call: Call | None = None
        super().__init__(f"{clause}: found {found}, allowed {allowed}")


@dataclass(frozen=True)
class Unread:
    """The origin of a call that a reader did not read, with the reason."""

    refusal: Refusal


@contextlib.contextmanager
def blaming(call: Call) -> Iterator[None]:
    """A ``Refusal`` that is raised inside of this context says that it is about ``call``."""
    try:
        yield
    except Refusal as refusal:
        refusal.call = refusal.call or call
        raise


def require(condition: bool, clause: str, found: object, allowed: object) -> None:
    """Raise ``Refusal`` unless ``condition`` holds. Builders state their conditions with it."""
    if not condition:
        raise Refusal(clause, found, allowed)


def fixed_type(of: SourceType, what: str = "type") -> Type:
    """The type for ``ir``; refuses a dynamic shape, an empty tensor or an unknown dtype."""
    require(None not in of.shape, f"{what}: shape", of, "fixed dimensions")
    require(0 not in of.shape, f"{what}: shape", of, "at least one element")
    require(of.dtype in set(DType), f"{what}: dtype", of.dtype, ", ".join(DType))
    return Type(tuple(d for d in of.shape if d is not None), DType(of.dtype))


@dataclass(frozen=True)
class Rounding:
    """Whose arithmetic a requantization is. ``mode`` "tflite", "onnx" and "torch" compute as
    those frameworks' own kernels do. "upward" is TVM's, and the other fields are for an operator
    that says nothing of its own: ``ties`` UPWARD or TONEAREST (its attribute ``rounding``),
    ``compute_dtype`` int64, float32 or float64."""

    mode: str = "upward"
    ties: str = "UPWARD"
    compute_dtype: str = "int64"


TVMS_OWN = Rounding()


def constant_of(call: Call, operand: str, what: str) -> Array:
    """Value of a constant operand; refuses one that is computed at run time."""
    argument = call[operand]
    if not isinstance(argument, Constant):
        by = f"{argument.spelled}, " if isinstance(argument, Call) else ""
        raise Refusal(what, f"{by}computed at run time", "a constant")
    return argument.value


def one_number(call: Call, operand: str, what: str) -> Any:
    """A constant operand that is one number."""
    value = constant_of(call, operand, what)
    require(value.size == 1, what, f"{value.size} numbers", "one number")
    return value.reshape(-1)[0]


def sources(call: Call) -> tuple[str, ...]:
    return (call.name,) if call.name else ()
