"""A small pattern language over source expressions, and the matcher that fills its captures.

Front ends compile the same patterns to their own matcher (Relay's ``dataflow_pattern``), which cuts
the composites out; this matcher finds the same calls again in neutral form, so that a check can
say which call failed and why. It has what Relay's has, plus names and chains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tinyai.source import Call, Constant, Expr, Tuple

COMMUTATIVE = frozenset({"add", "multiply"})


class Pattern:
    """One of the classes below."""


@dataclass(frozen=True)
class Anything(Pattern):
    """Any expression; it stays outside of the match."""


@dataclass(frozen=True)
class AnyConstant(Pattern):
    pass


@dataclass(frozen=True)
class AnyTuple(Pattern):
    """A tuple of any length whose fields stay outside of the match."""


@dataclass(frozen=True)
class Operator(Pattern):
    """A call of ``op`` whose arguments and attributes match. add and multiply commute."""

    op: str
    args: tuple[Pattern, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class OneOf(Pattern):
    """The first of the options that matches."""

    options: tuple[Pattern, ...]


@dataclass(frozen=True)
class Chain(Pattern):
    """``base`` under up to ``most`` steps, the longest first. A step wraps the pattern below."""

    base: Pattern
    steps: tuple[Callable[[Pattern], Pattern], ...]
    most: int

    def options(self) -> tuple[Pattern, ...]:
        """The ways to match here: each step over a chain that is shorter by one, then the base."""
        shorter = Chain(self.base, self.steps, self.most - 1)
        steps = self.steps if self.most else ()
        return (*(step(shorter) for step in steps), self.base)

    def unroll(self) -> Pattern:
        """The chain without repetition: base, or a step of (base, or a step of …)."""
        level = self.base
        for _ in range(self.most):
            level = OneOf((*(step(level) for step in self.steps), self.base))
        return level


@dataclass(frozen=True)
class Part(Pattern):
    """What ``pattern`` matches, under the name by which the builder of a composite asks for it. In
    a chain the innermost has it."""

    name: str
    pattern: Pattern


def part(name: str, pattern: Pattern | None = None) -> Part:
    """A named part of a composite; without a ``pattern`` any expression, which stays outside."""
    return Part(name, pattern or Anything())


def op(name: str, *args: Pattern, **attrs: Any) -> Operator:
    return Operator(name, args, MappingProxyType(attrs))


# The calls that are covered, and what has a name.
Found = dict[Call | str, Expr]


def match(pattern: Pattern, expr: Expr) -> tuple[Call, ...] | None:
    """The calls that ``pattern`` covers, arguments before their users; None where it fails."""
    found: Found = {}
    fits = _match(pattern, expr, found)
    return tuple(key for key in found if not isinstance(key, str)) if fits else None


def parts_of(pattern: Pattern, expr: Expr) -> dict[str, Expr]:
    """The named parts of ``expr``, which ``pattern`` matches."""
    found: Found = {}
    _match(pattern, expr, found)
    return {key: value for key, value in found.items() if isinstance(key, str)}


@dataclass(frozen=True)
class Miss:
    """How far a pattern got: the calls that fit, and what stands where it wants something else.

    ``argument`` names the one that does not fit, "" for the expression itself."""

    calls: tuple[Call, ...]
    found: str
    allowed: str
    argument: str = ""


Spelled = Callable[[str], str]


def nearest_miss(pattern: Pattern, expr: Expr, spelled: Spelled = str) -> Miss | None:
    """Where ``pattern`` fails on ``expr``, on the way that covers most; None where it matches.
    ``spelled`` is the source language's name of an operator."""
    match pattern:
        case OneOf(options):
            return _furthest([nearest_miss(option, expr, spelled) for option in options])
        case Chain():
            options = pattern.options()
            return _furthest([nearest_miss(option, expr, spelled) for option in options])
        case Part(_, inner):
            return nearest_miss(inner, expr, spelled)
        case Operator() if isinstance(expr, Call) and not _differs(pattern, expr):
            return _furthest([_miss_in_args(args, expr, spelled) for args in _orders(pattern)])
    fits = _match(pattern, expr, {})
    return None if fits else Miss((), _describe(pattern, expr), _wanted(pattern, spelled))


def _furthest(misses: Sequence[Miss | None]) -> Miss | None:
    """The first of those that got furthest, with all that would have done at that place."""
    failed = [miss for miss in misses if miss is not None]
    if len(failed) < len(misses) or not failed:
        return None
    best = max(failed, key=lambda miss: len(miss.calls))
    equal = [m.allowed for m in failed if (m.calls, m.found) == (best.calls, best.found)]
    return replace(best, allowed=" or ".join(dict.fromkeys(equal)))


def _miss_in_args(patterns: tuple[Pattern, ...], call: Call, spelled: Spelled) -> Miss | None:
    covered: tuple[Call, ...] = (call,)
    for number, (pattern, arg) in enumerate(zip(patterns, call.args, strict=True), 1):
        miss = nearest_miss(pattern, arg, spelled)
        if miss is not None:
            argument = miss.argument or f"argument {number} of {call.spelled}"
            return replace(miss, calls=(*covered, *miss.calls), argument=argument)
        covered += match(pattern, arg) or ()
    return None


def _describe(pattern: Pattern, expr: Expr) -> str:
    if isinstance(expr, Constant):
        return "a constant"
    if isinstance(expr, Tuple):
        return "a tuple"
    if not isinstance(expr, Call):
        return "a value computed at run time"
    if isinstance(pattern, Operator) and expr.op == pattern.op:
        attrs = ", ".join(f"{name}={expr.attrs.get(name)}" for name in pattern.attrs)
        return f"{expr.spelled}({attrs or f'{len(expr.args)} arguments'})"
    run_time = "" if isinstance(pattern, Operator) else ", computed at run time"
    return f"{expr.spelled}{run_time}"


def _wanted(pattern: Pattern, spelled: Spelled) -> str:
    match pattern:
        case AnyConstant():
            return "a constant"
        case AnyTuple():
            return "a tuple"
        case Operator(name, _, attrs) if attrs:
            return f"{spelled(name)}({', '.join(f'{key}={value}' for key, value in attrs.items())})"
        case Operator(name):
            return spelled(name)
    raise TypeError(f"no pattern: {pattern!r}")


def operators(pattern: Pattern) -> frozenset[str]:
    """Names of the operators that a pattern mentions."""
    match pattern:
        case Operator(name, args):
            return frozenset({name}).union(*map(operators, args))
        case Part(_, inner):
            return operators(inner)
        case OneOf(options):
            return frozenset().union(*map(operators, options))
        case Chain(base, steps):
            return operators(base).union(*(operators(step(Anything())) for step in steps))
    return frozenset()


def narrowed(pattern: Pattern, occurs: Callable[[Operator], bool]) -> Pattern | None:
    """``pattern`` without what cannot match where only operators that ``occurs`` says are there;
    None where nothing is left. On such expressions it matches the same."""
    match pattern:
        case Operator(name, args, attrs):
            left = [narrowed(arg, occurs) for arg in args]
            fits = occurs(pattern) and None not in left
            return Operator(name, tuple(filter(None, left)), attrs) if fits else None
        case Part(name, inner):
            left_over = narrowed(inner, occurs)
            return Part(name, left_over) if left_over else None
        case OneOf(options):
            some = tuple(filter(None, (narrowed(option, occurs) for option in options)))
            return OneOf(some) if some else None
        case Chain(base, steps, most):
            below = narrowed(base, occurs)
            steps = tuple(step for step in steps if narrowed(step(Anything()), occurs))
            return Chain(below, steps, most) if below else None
    return pattern


def _match(pattern: Pattern, expr: Expr, found: Found) -> bool:
    match pattern:
        case Anything():
            return True
        case Part(name, inner):
            found[name] = expr
            return _match(inner, expr, found)
        case AnyConstant():
            return isinstance(expr, Constant)
        case AnyTuple():
            return isinstance(expr, Tuple)
        case OneOf(options):
            return any(_match_one(option, expr, found) for option in options)
        case Chain():
            return any(_match_one(option, expr, found) for option in pattern.options())
        case Operator():
            return isinstance(expr, Call) and _match_call(pattern, expr, found)
    raise TypeError(f"no pattern: {pattern!r}")


def _match_one(pattern: Pattern, expr: Expr, found: Found) -> bool:
    """Match, or leave ``found`` as it was."""
    trial = dict(found)
    if not _match(pattern, expr, trial):
        return False
    found.update(trial)
    return True


def _match_call(pattern: Operator, call: Call, found: Found) -> bool:
    if _differs(pattern, call):
        return False
    for order in _orders(pattern):
        trial = dict(found)
        if all(_match(arg, expr, trial) for arg, expr in zip(order, call.args, strict=True)):
            found.update(trial)
            found[call] = call
            return True
    return False


def _differs(pattern: Operator, call: Call) -> bool:
    """Whether the call itself does not fit, whatever its arguments are."""
    return (
        call.op != pattern.op
        or len(call.args) != len(pattern.args)
        or any(call.attrs.get(name) != value for name, value in pattern.attrs.items())
    )


def _orders(pattern: Operator) -> list[tuple[Pattern, ...]]:
    """The arguments in the orders that are tried."""
    return [pattern.args, pattern.args[::-1]] if pattern.op in COMMUTATIVE else [pattern.args]
