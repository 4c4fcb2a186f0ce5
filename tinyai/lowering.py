"""From calls of the vocabulary to ``ir.Graph``, and whether a call is taken.

There is no second list of conditions: a check is the builder itself, tried on the side. What is
taken can be built.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tinyai.arithmetic import arithmetic_of
from tinyai.builders import Arithmetic, Lowering
from tinyai.errors import UnsupportedError, UsageWarning
from tinyai.ir import Builder, Graph, Node, every_step
from tinyai.match import match, parts_of
from tinyai.ops import Elementwise, operator_row, steps
from tinyai.passes import optimize
from tinyai.patterns import PatternRow, refusal_of_unknown
from tinyai.source import (
    TVMS_OWN,
    Call,
    Constant,
    Expr,
    Refusal,
    Rounding,
    blaming,
    children,
    fixed_type,
    post_order,
    rebuilt,
    require,
    tensors_of,
)

NOTHING_NEW: Mapping[Expr, Expr] = MappingProxyType({})
# What the partition takes of floats.
FLOATS = "integers; float32 only where a region begins or ends"


def lower_call(call: Call, lowering: Lowering) -> dict[Expr, str]:
    """Build the nodes of one call. Raises ``Refusal``.

    Returns the tensors of the call and of its fields; a tuple stands for the first of them.
    """
    row = operator_row(call.op)
    expected = [fixed_type(of, "result") for of in call.types]
    if isinstance(call, Composite):
        made: str | tuple[str, ...] = call.build(call.parts, lowering)
    elif row is not None:
        made = row.lower(call, lowering)
    else:
        raise refusal_of_unknown(call)
    names = (made,) if isinstance(made, str) else made
    allowed = "one tensor" if isinstance(made, str) else f"a tuple of {len(made)}"
    require(len(names) == len(expected), "result", f"a tuple of {len(expected)}", allowed)
    for name, of in zip(names, expected, strict=True):
        found = lowering.builder.type(name)
        require(found == of, f"type of {call.spelled}", found, f"{of}, as the source says")
    return {call: names[0], **dict(zip(call.fields, names, strict=True))}


@dataclass(frozen=True, eq=False)
class Composite(Call):
    """All that a pattern with a builder covers, as one call, whose operands are the named parts
    that lie outside. ``inside`` are the other ones, for their attributes."""

    inside: Mapping[str, Expr] = field(kw_only=True)
    build: Callable[[Mapping[str, Expr], Lowering], str] = field(kw_only=True)

    @property
    def parts(self) -> dict[str, Expr]:
        return {**self.inside, **dict(zip(self.operands, self.args, strict=True))}

    @classmethod
    def of(
        cls, row: PatternRow, calls: Sequence[Call], new: Mapping[Expr, Expr] = NOTHING_NEW
    ) -> Composite:
        """``calls`` as a row with a builder matches them, the last one reading all others; ``new``
        stands for what they read."""
        assert row.build is not None
        root = calls[-1]
        parts = parts_of(row.pattern, root)
        outside = {name: new.get(e, e) for name, e in parts.items() if e not in calls}
        return cls(
            root.types,
            origin=root.origin,
            op=f"composite {row.name}",  # no name of the vocabulary's
            load_attrs=dict,
            load=lambda: tuple(outside.values()),
            operands=tuple(outside),
            name=root.name,
            spelling=row.name,
            inside={name: e for name, e in parts.items() if e in calls},
            build=row.build,
        )


def composed(result: Expr, rows: Sequence[PatternRow], rounding: Rounding = TVMS_OWN) -> Expr:
    """``result``, in which a ``Composite`` stands for all that a row with a builder covers, where
    that is taken and nothing else reads what is inside; the first row that fits has it. Warns of
    what a builder refused and no other row took."""
    if not any(row.build for row in rows):
        return result
    order = list(post_order(result))
    readers: dict[Expr, set[Expr]] = {each: {result} for each in tensors_of(result)}
    for expr in order:
        for child in children(expr):
            readers.setdefault(child, set()).add(expr)
    covered: dict[Call, tuple[PatternRow, tuple[Call, ...]]] = {}
    inside: set[Call] = set()
    refused: dict[Call, UsageWarning] = {}
    for row in rows:
        for root in reversed(order) if row.build else ():
            calls = match(row.pattern, root) if isinstance(root, Call) else None
            if not calls or inside & set(calls):
                continue
            if not all(readers[each] <= set(calls) for each in calls if each is not root):
                continue
            refusal = refusal_of_composite(row, root, rounding)
            if refusal is not None:
                refused[calls[-1]] = _not_made(row, calls[-1], refusal)
                continue
            covered[calls[-1]] = row, calls
            inside |= set(calls)
    for root, warning in refused.items():
        if root not in inside:
            warnings.warn(warning, stacklevel=2)
    new: dict[Expr, Expr] = {}
    for expr in order:
        if isinstance(expr, Call) and expr in covered:
            row, calls = covered[expr]
            new[expr] = Composite.of(row, calls, new)
        else:
            new[expr] = rebuilt(expr, [new[child] for child in children(expr)])
    return new[result]


def _not_made(row: PatternRow, root: Call, refusal: Refusal) -> UsageWarning:
    return UsageWarning(
        f"the composite {row.name} is not made at {root.name or root.spelled}: {refusal.clause}",
        found=refusal.found,
        allowed=refusal.allowed,
        hint="its operators are computed without it; nothing, where that is meant",
    )


class Walk:
    """Lowers calls into one graph, each after those that it reads; ``tensors`` holds what each
    expression became."""

    def __init__(self, name: str, rounding: Rounding) -> None:
        self.builder, self.arithmetic = Builder(name), arithmetic_of(rounding)
        self.tensors: dict[Expr, str] = {}

    def input(self, expr: Expr, what: str = "input") -> None:
        self.tensors[expr] = self.builder.input(fixed_type(expr.type, what))

    def tensor(self, expr: Expr) -> str:
        if expr not in self.tensors and isinstance(expr, Constant):
            fixed_type(expr.type, "constant")
            self.tensors[expr] = self.builder.constant(expr.value)
        return self.tensors[expr]

    def lower(self, call: Call) -> None:
        """Raises ``Refusal``."""
        self.tensors |= lower_call(call, Lowering(self.builder, self.tensor, self.arithmetic))

    def graph(self, results: Iterable[Expr]) -> Graph:
        """A result that no node makes, or that is one already, is copied."""
        made = {node.output for node in self.builder.nodes}
        names: list[str] = []
        for name in map(self.tensor, results):
            if name not in made or name in names:
                name = self.builder.add(Elementwise(self.builder.type(name).shape), [name])
            names.append(name)
        return self.builder.graph(names)


def graph_of(name: str, inputs: Sequence[Expr], result: Expr, rounding: Rounding) -> Graph:
    """The graph of a model, or of a part that a front end cuts out: of ``result``, a tensor or a
    tuple, by ``inputs``, its parameters.

    Raises ``UnsupportedError``, which names the operator, where a builder refuses a call.
    """
    walk = Walk(name, rounding)
    for expr in inputs:
        walk.input(expr)
    for expr in post_order(result):
        if isinstance(expr, Call):
            lower_or_name(walk, expr, "leave it out: refusal_of_operator says what is taken")
    return walk.graph(tensors_of(result))


def lower_or_name(walk: Walk, call: Call, hint: str) -> None:
    """Lower a call; ``UnsupportedError`` where its builder refuses it."""
    try:
        walk.lower(call)
    except Refusal as refusal:
        operator, region = f"operator {call.spelled} {call.name!r}", walk.builder.name
        raise UnsupportedError(
            f"{operator} in region {region}: {refusal.clause}",
            found=refusal.found,
            allowed=refusal.allowed,
            hint=hint,
        ) from None


# --- Whether a call is taken -------------------------------------------------------------------


def refusal_of_composite(
    row: PatternRow, root: Expr, rounding: Rounding = TVMS_OWN
) -> Refusal | None:
    """Why the composite of ``row`` that ends in ``root`` stays out; None where it is taken."""
    calls = match(row.pattern, root)
    if calls is None:
        return Refusal("pattern", "another graph", f"the pattern {row.name}")
    if row.build is not None:
        calls = (Composite.of(row, calls),)
    return _refusal(calls, rounding, floats=row.floats)


def refusal_of_operator(call: Call, rounding: Rounding = TVMS_OWN) -> Refusal | None:
    """Why a single operator stays out; None where it is taken. Floats stay out."""
    return _refusal((call,), rounding, floats=False)


def _refusal(calls: Collection[Call], rounding: Rounding, *, floats: bool) -> Refusal | None:
    try:
        for call in calls:
            with blaming(call):
                for of in call.types:
                    require(
                        floats or not of.dtype.startswith("float"),
                        f"dtype of {call.spelled}",
                        of.dtype,
                        FLOATS,
                    )
        how = arithmetic_of(rounding)
        if how.needs_requantized_means:
            require_requantized_means(calls, how)
        _try_lowering(calls, rounding)
    except Refusal as refusal:
        return refusal
    return None


def require_requantized_means(calls: Collection[Call], how: Arithmetic) -> None:
    """Where a mean divides and rescales at once there is none without its requantization.

    This alone is not left to a builder, for it is about who reads the result.
    """
    rescaled = {call["data"] for call in calls if call.op == "requantize"}
    for call in calls:
        with blaming(call):
            found = "one without a requantization of its own"
            fits = call.op != "mean" or call in rescaled
            require(fits, f"{how.whose} arithmetic of mean", found, "mean, then requantize")


class _TrialWalk(Walk):
    """What lies outside becomes an input."""

    def tensor(self, expr: Expr) -> str:
        if expr not in self.tensors:
            of = fixed_type(expr.type, "argument")
            if isinstance(expr, Constant):
                self.tensors[expr] = self.builder.constant(expr.value)
            else:
                self.tensors[expr] = self.builder.input(of)
        return self.tensors[expr]


def _try_lowering(calls: Collection[Call], rounding: Rounding) -> None:
    """Lower ``calls`` into a graph that is thrown away; what lies outside becomes its inputs."""
    trial = _TrialWalk("trial", rounding)
    for call in calls:
        with blaming(call):
            trial.lower(call)
    builder = trial.builder
    if any(map(has_function, builder.nodes)):
        left = optimize(builder.graph([builder.nodes[-1].output]))
        require(
            not any(map(has_function, left.nodes)),
            "function",
            "of more than one value of 8 bits",
            "one of an int8 or uint8 tensor, with scales and constants of one number each",
        )


def has_function(node: Node) -> bool:
    """Whether a step is left that has no C, and has to become part of a table."""
    return any(
        isinstance(step, steps.Function) and not step.has_code for step in every_step(node.epilogue)
    )
