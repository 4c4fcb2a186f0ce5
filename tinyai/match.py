"""A small pattern language over source expressions, and the matcher that fills its captures.

The doors compile the same patterns to their own matcher (Relay's ``dataflow_pattern``), which cuts
the composites out; this matcher finds the same calls again in neutral form, so that a check can
say which call failed and why. It has what Relay's has, plus names and chains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

    def unroll(self) -> Pattern:
        """The chain without repetition: base, or a step of (base, or a step of …)."""
        level = self.base
        for _ in range(self.most):
            level = OneOf((*(step(level) for step in self.steps), self.base))
        return level


def op(name: str, *args: Pattern, **attrs: Any) -> Operator:
    return Operator(name, args, MappingProxyType(attrs))


def match(pattern: Pattern, expr: Expr) -> tuple[Call, ...] | None:
    """The calls that ``pattern`` covers, arguments before their users; None where it fails."""
    found: dict[Call, None] = {}
    return tuple(found) if _match(pattern, expr, found) else None


def _match(pattern: Pattern, expr: Expr, found: dict[Call, None]) -> bool:
    match pattern:
        case Anything():
            return True
        case AnyConstant():
            return isinstance(expr, Constant)
        case AnyTuple():
            return isinstance(expr, Tuple)
        case OneOf(options):
            return any(_match_one(option, expr, found) for option in options)
        case Chain():
            return _match_chain(pattern, expr, found, pattern.most)
        case Operator():
            return isinstance(expr, Call) and _match_call(pattern, expr, found)
    raise TypeError(f"no pattern: {pattern!r}")


def _match_one(pattern: Pattern, expr: Expr, found: dict[Call, None]) -> bool:
    """Match, or leave ``found`` as it was."""
    trial = dict(found)
    if not _match(pattern, expr, trial):
        return False
    found.update(trial)
    return True


def _match_chain(chain: Chain, expr: Expr, found: dict[Call, None], most: int) -> bool:
    shorter = Chain(chain.base, chain.steps, most - 1)
    steps = chain.steps if most else ()
    return any(_match_one(step(shorter), expr, found) for step in steps) or _match_one(
        chain.base, expr, found
    )


def _match_call(pattern: Operator, call: Call, found: dict[Call, None]) -> bool:
    if call.op != pattern.op or len(call.args) != len(pattern.args):
        return False
    if any(call.attrs.get(name) != value for name, value in pattern.attrs.items()):
        return False
    orders = [pattern.args]
    orders += [pattern.args[::-1]] if call.op in COMMUTATIVE else []
    for order in orders:
        trial = dict(found)
        if all(_match(arg, expr, trial) for arg, expr in zip(order, call.args, strict=True)):
            found.update(trial)
            found[call] = None
            return True
    return False
