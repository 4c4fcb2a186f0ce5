"""Which values of residual layers have 16 bits where others have 8 (``residual="int16"``).

What goes on beside the layers of a transformer, and is added to again and again, has a few channels
that are a hundred times as large as the others: of 8 bits these leave nothing for the rest. A norm
makes all alike, so that what products read of it needs 8 bits only. Bondarenko et al.,
"Understanding and Overcoming the Challenges of Efficient Transformer Quantization" (2021), keep the
same sums in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinyai.ops.normalize import NORMS
from tinyai.qdq.operands import is_call
from tinyai.quantizer.roles import Role, Roles
from tinyai.source import Expr

# One value in another shape or order, or a part of it.
_MOVES = ("reshape", "transpose", "strided_slice", "take", "copy")


def residual_values(roles: Roles, values: Sequence[Expr]) -> Iterator[Expr]:
    """Of the ``values`` that become integers: sums of two that norms or further sums read, and no
    other operator; and what products add to such sums alone. No product reads them."""
    sums = set()
    for each in values:
        readers = [*_readers(roles, each)] if _is_sum(roles, each) else []
        if readers and all(is_call(r, *NORMS) or _is_sum(roles, r) for r in readers):
            sums.add(each)
    yield from sums
    for each in values:
        of_product = roles.roles.get(roles.opening(each)[0]) is Role.PRODUCT
        if of_product and (added := {*_readers(roles, each)}) and added <= sums:
            yield each


def _is_sum(roles: Roles, expr: Expr) -> bool:
    return is_call(expr, "add") and roles.roles.get(expr) is Role.RULE


def _readers(roles: Roles, expr: Expr) -> Iterator[Expr]:
    """What computes with a value, and not only moves it; the value itself for a result."""
    for user in roles.users[expr]:
        if user is not None and is_call(user, *_MOVES):
            yield from _readers(roles, user)
        else:
            yield expr if user is None else user
