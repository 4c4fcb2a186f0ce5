"""A dataflow block as ``tinyai.partition`` asks it: its items are variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tvm import relax

from tinyai.frontends.relax.operators import READERS
from tinyai.frontends.relax.reader import (
    Reading,
    called_function,
    free_variables,
    is_operator,
    operator_of,
    source_types,
)
from tinyai.frontends.relax.versions import Constant, name_of, typed
from tinyai.own import NO_BACKEND, OwnBackend
from tinyai.partition.model import ItemModel
from tinyai.partition.told import NOT_QUANTIZED
from tinyai.patterns import computes
from tinyai.report import Reason
from tinyai.source import Call, Expr, Refusal, Rounding
from tinyai.source import Constant as Known

PAIRS = ("relax.quantize", "relax.dequantize")


class RelaxBlock(Reading, ItemModel[relax.Var]):
    """The bindings of a dataflow block that ``results`` depend on. Each reader of a dequantize has
    one of its own, so that no float goes from region to region: ``copy_of`` says of which.
    ``names`` are those of a model file, ``own`` is a back end that goes before tinyai."""

    def __init__(
        self,
        bindings: Sequence[Any],
        results: Collection[relax.Var],
        rounding: Rounding,
        names: Mapping[relax.Var, str] | None = None,
        own: OwnBackend = NO_BACKEND,
    ) -> None:
        super().__init__(READERS)
        self.rounding, self.own = rounding, own
        bindings = _needed(_without_fields(bindings), results)
        self.copy_of: dict[relax.Var, relax.Var] = {}
        self.bindings = {each.var: each for each in self._one_reader_each(bindings, results)}
        self.seen_through: set[relax.Var] = set()
        self._names = _unique([*self.bindings], names or {}, self.copy_of)
        for variable, binding in self.bindings.items():
            self.bind(variable, self.value(variable), self._names[variable])
            if self._is_seen_through(variable, binding):
                self.seen_through.add(variable)
            if function := called_function(self.value(variable)):
                self.refused[variable] = Refusal("operator", function, "an operator of Relax's")
        made = [each for each in self.bindings if each not in self.seen_through]
        self._reads = {
            each: list(dict.fromkeys(free_variables(self.resolved(self.value(each)))))
            for each in made
        }
        outside = {each: None for read in self._reads.values() for each in read}
        self.order = [*(each for each in outside if each not in self._reads), *made]
        self.outputs = {
            each for result in results for each in free_variables(self.resolved(result))
        }
        self._users: dict[relax.Var, list[relax.Var]] = {each: [] for each in self.order}
        for reader, read in self._reads.items():
            for each in read:
                self._users[each].append(reader)

    def value(self, variable: relax.Var) -> relax.Expr:
        """What a variable of the block is bound to."""
        return self.bindings[variable].value

    def _one_reader_each(
        self, bindings: Sequence[Any], results: Collection[relax.Var]
    ) -> Iterator[Any]:
        shared = {b.var: b.value for b in bindings if operator_of(b.value) == "relax.dequantize"}
        used = set(results)
        new: list[Any] = []

        def own(variable: relax.Var) -> relax.Var:
            if variable not in shared or variable not in used:
                used.add(variable)
                return variable
            copy = relax.DataflowVar(name_of(variable), variable.ty)
            self.copy_of[copy] = variable
            value = shared[variable]
            again = typed(relax.Call(value.op, value.args, value.attrs), value.ty)
            new.append(relax.VarBinding(copy, again))
            return copy

        for binding in bindings:
            if is_operator(binding.value):
                binding = with_value(binding, substituted(binding.value, own))
            yield from (*new, binding)
            new.clear()

    def _is_seen_through(self, variable: relax.Var, binding: Any) -> bool:
        """Whether a binding computes nothing: another name, a tuple, a constant."""
        if not isinstance(binding, relax.VarBinding):
            return False
        plain = isinstance(binding.value, relax.Var | relax.Tuple | Constant)
        return plain or isinstance(self(variable), Known)

    def resolved(self, expr: relax.Expr) -> relax.Expr:
        """An expression with other names and tuples looked through, and constants for what is
        computed of them alone."""
        match expr:
            case relax.Var() if expr in self.seen_through:
                value, known = self.value(expr), self(expr)
                if is_operator(value) and isinstance(known, Known):
                    return relax.const(known.value, known.type.dtype)
                return self.resolved(value)
            case relax.TupleGetItem():
                whole = self.resolved(expr.tuple_value)
                return typed(relax.TupleGetItem(whole, expr.index), expr.ty)
            case relax.Tuple():
                fields = [self.resolved(each) for each in expr.fields]
                return typed(relax.Tuple(fields), expr.ty)
            case relax.Call():
                args = [self.resolved(each) for each in expr.args]
                return typed(relax.Call(expr.op, args, expr.attrs, expr.ty_args), expr.ty)
        return expr

    # --- What a division asks ---

    def reads(self, item: relax.Var) -> list[relax.Var]:
        return self._reads.get(item, [])

    def users(self, item: relax.Var) -> Collection[relax.Var]:
        return self._users[item]

    def name(self, item: relax.Var) -> str:
        return self._names.get(item) or name_of(item)

    def operator(self, item: relax.Var) -> str:
        if item not in self.bindings:
            return "input"
        return called_function(self.value(item)) or operator_of(self.value(item))

    def kind(self, item: relax.Var) -> str:
        value = self.value(item) if item in self.bindings else None
        if isinstance(value, relax.TupleGetItem):
            (whole,) = self.reads(item)
            is_made = whole in self.bindings and is_operator(self.value(whole))
            return "part" if is_made else "input"
        if value is None or not (is_operator(value) or called_function(value)):
            return "input"
        if operator_of(value) in PAIRS:
            return operator_of(value).removeprefix("relax.")
        made = self(item)
        return "computes" if not isinstance(made, Call) or computes(made.op) else ""

    def is_known(self, item: relax.Var) -> bool:
        return False  # what is a constant by now is no item

    def reason(self, item: relax.Var, refusal: Refusal) -> Reason:
        operator = self.operator(item)
        known = operator in READERS
        kind, row = ("operator", operator) if known else ("none", "")
        return Reason(kind, row, int(known), refusal.clause, refusal.found, refusal.allowed)

    def why_float(
        self, item: relax.Var, refusal: Refusal | None, inside: Collection[relax.Var]
    ) -> Refusal:
        if refusal is None:
            users = [user for user in self.users(item) if self.kind(user) != "quantize"]
            readers = sorted({self.operator(user) for user in users}) or [
                "an output of the function"
            ]
            found = f"read as float32 by {', '.join(readers)}"
            return Refusal(NOT_QUANTIZED, found, "a quantize after it, and no other reader")
        return refusal

    def from_outside(self, item: relax.Var) -> tuple[Expr | None, Expr]:
        types = source_types(item.ty)
        parameter = Expr(types)
        tensor = isinstance(item.ty, relax.TensorType) and None not in types[0].shape
        return (parameter if tensor else None), parameter


def _without_fields(bindings: Sequence[Any]) -> Iterator[Any]:
    """With other names in place of fields of a tuple that the block makes."""
    tuples: dict[relax.Expr, relax.Tuple] = {}
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            whole = tuples.get(value.tuple_value, value.tuple_value)
            if isinstance(whole, relax.Tuple):
                value = whole.fields[int(value.index)]
        if isinstance(whole := tuples.get(value, value), relax.Tuple):
            tuples[binding.var] = whole
        yield with_value(binding, value)


def _needed(bindings: Iterable[Any], results: Collection[relax.Var]) -> list[Any]:
    """Those that results depend on."""
    wanted, found = set(results), []
    for binding in reversed([*bindings]):
        if binding.var in wanted:
            found.append(binding)
            wanted.update(free_variables(binding.value))
    return found[::-1]


def _unique(
    variables: Sequence[relax.Var],
    names: Mapping[relax.Var, str],
    copy_of: Mapping[relax.Var, relax.Var],
) -> dict[relax.Var, str]:
    """A name for each variable; a copy has that of what it is one of."""
    found: dict[relax.Var, str] = {}
    counts: Counter[str] = Counter()
    for variable in variables:
        if variable in copy_of:
            continue
        name = names.get(variable) or name_of(variable)
        counts[name] += 1
        found[variable] = name if counts[name] == 1 else f"{name} ({counts[name]})"
    return found | {copy: found[of] for copy, of in copy_of.items() if of in found}


def with_value(binding: Any, value: relax.Expr) -> Any:
    """A binding of the same variable to another expression."""
    if value.same_as(binding.value):
        return binding
    if isinstance(binding, relax.VarBinding):
        return relax.VarBinding(binding.var, value)
    return relax.MatchCast(binding.var, value, binding.ty)


def substituted(expr: relax.Expr, new: Callable[[relax.Var], relax.Expr]) -> relax.Expr:
    """An expression with ``new`` of its variables; the same object where they are the same."""
    match expr:
        case relax.Var():
            return new(expr)
        case relax.Call():
            args = [substituted(each, new) for each in expr.args]
            if all(a.same_as(b) for a, b in zip(args, expr.args, strict=True)):
                return expr
            return typed(relax.Call(expr.op, args, expr.attrs, expr.ty_args), expr.ty)
        case relax.Tuple():
            fields = [substituted(each, new) for each in expr.fields]
            if all(a.same_as(b) for a, b in zip(fields, expr.fields, strict=True)):
                return expr
            return typed(relax.Tuple(fields), expr.ty)
        case relax.TupleGetItem():
            return typed(
                relax.TupleGetItem(substituted(expr.tuple_value, new), expr.index), expr.ty
            )
    return expr
