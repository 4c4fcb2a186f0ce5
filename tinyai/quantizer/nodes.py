"""What of a model is one node of its file: nothing is rounded inside of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyai.qdq.limits import EXTREMES
from tinyai.qdq.operands import View, is_call
from tinyai.source import Call, Expr

_SEVERAL = ("add", *EXTREMES)


def parts_of_nodes(view: View, users: Mapping[Expr, Sequence[Expr | None]]) -> frozenset[Expr]:
    """What is inside of a sum, or of the largest or smallest, of several values: all but the last
    operator of such a node.

    One value and numbers are no such node: that is a function, bounds, or a layer's bias.
    """
    parts: set[Expr] = set()
    for last in view.order:
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
