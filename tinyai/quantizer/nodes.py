"""What of a model is taken as one: nothing is rounded inside of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tinyai.qdq.limits import EXTREMES
from tinyai.qdq.operands import View, is_call
from tinyai.source import Call, Constant, Expr

_SEVERAL = ("add", *EXTREMES)


def parts_of_several(view: View, users: Mapping[Expr, Sequence[Expr | None]]) -> frozenset[Expr]:
    """What is inside of operators that are taken as one, all but the last of them: of a node of the
    file that is the sum, or the largest or smallest, of several values; and of a root of a sum of
    squares, as the magnitude of complex numbers is.

    One value and numbers are no such node: that is a function, bounds, or a layer's bias.
    """
    parts: set[Expr] = set()
    for last in view.order:
        parts.update(_magnitude(last, users))
        parts.update(_products(last, users))
        if not is_call(last, *_SEVERAL) or not last.name or _outer(last, users) is not None:
            continue
        chain = [last]
        while is_call(inner := chain[-1].args[0], last.op) and _outer(inner, users) is chain[-1]:
            chain.append(inner)
        operands = {arg for call in chain for arg in call.args} - {*chain}
        numbers = {each for each in operands if view.uniform(each) is not None}
        if len(operands - numbers) > 1:
            parts.update(chain[1:])
    return frozenset(parts)


def _outer(call: Call, users: Mapping[Expr, Sequence[Expr | None]]) -> Call | None:
    """The operator of the same node that alone reads what ``call`` makes."""
    (user, *others) = users[call] or [None]
    if others or not is_call(user, call.op) or user.name != call.name:
        return None
    return user if user.args[0] is call else None


def _magnitude(root: Expr, users: Mapping[Expr, Sequence[Expr | None]]) -> Iterator[Call]:
    """The sums and the squares in front of a root; none where they are of one value, or others read
    them as well. The squares of small values would be 0 in 8 bits."""
    inside: list[Call] = []
    values: set[Expr] = set()
    pending = [root["data"]] if is_call(root, "sqrt") else []
    while pending:
        expr = pending.pop()
        if not isinstance(expr, Call) or len({*users[expr]}) > 1:
            return
        inside.append(expr)
        if is_call(expr, "add"):
            pending += [arg for arg in expr.args if not isinstance(arg, Constant)]
        elif is_call(expr, "square") or (is_call(expr, "multiply") and len({*expr.args}) == 1):
            values.add(expr.args[0])
        else:
            return
    if len(values) > 1:
        yield from inside


def _products(total: Expr, users: Mapping[Expr, Sequence[Expr | None]]) -> tuple[Expr, ...]:
    """The two products of values in front of a sum, as what a gate keeps and adds; none where
    others read one, or one is of a constant."""
    if not is_call(total, "add"):
        return ()
    for each in total.args:
        if not is_call(each, "multiply") or len({*users[each], *each.args}) != 3:
            return ()
        if any(isinstance(arg, Constant) for arg in each.args):
            return ()
    return total.args
