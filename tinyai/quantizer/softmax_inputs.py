"""Values that a softmax or a largest value alone reads, as far as it tells them apart.

What is far below the largest value of its row has no share, however far that is: a mask adds -1e4
or -3e38 to what is not to be seen. A range that held these would leave nothing for the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain

import numpy as np

from tinyai.qdq.moves import MOVES_ALONE
from tinyai.qdq.operands import Grid, is_call
from tinyai.quantizer.observers import itself
from tinyai.quantizer.params import MASKED, Array, configured_grid
from tinyai.quantizer.points import Points
from tinyai.source import Expr

# All values of a row that are raised have a share of less than this together: a quarter of a step.
_SHARE = 2.0**-10


def telling(values: Array, axis: int) -> Array:
    """Finite ``values`` whose softmax along ``axis`` is the same: what is too far below the largest
    of its row to have a share is raised to where it still has none."""
    return np.asarray(np.maximum(values, least_telling(values, axis)))


def least_telling(values: Array, axis: int) -> Array:
    """What ``telling`` raises the values of each row to."""
    largest = values.max(axis=axis, keepdims=True)
    largest = np.where(largest < MASKED, values.max(), largest)
    below = math.log(values.shape[axis]) - math.log(_SHARE)
    return np.asarray(largest - below, values.dtype)


def limit_of(points: Points, expr: Expr, grid: Grid | None = None) -> Callable[[Array], Array]:
    """What limits the values of a point to those that matter: those that a softmax alone reads to
    what it tells apart, and those of a mask that is added there to finite ones, or to the least of
    their ``grid``. Other processes may have it."""
    axis = points.softmax_axis(expr)
    if axis is not None:
        return partial(telling, axis=axis)
    if _is_padded_for_largest(points, expr):
        return _inner
    if additions_of(points, expr):
        least = _ends(grid)[0] if grid else np.finfo(np.float32).min
        return partial(np.maximum, np.float32(least))
    return itself


def _is_padded_for_largest(points: Points, expr: Expr) -> bool:
    """Whether there is a border of -inf or the like around a value, which poolings alone read that
    pick the largest: any of the value's own numbers hides it."""
    if not is_call(expr, "pad") or not points.view.is_constant(expr["value"]):
        return False
    largest = ("max_pool1d", "max_pool2d", "max_pool3d")
    hidden = bool((points.view.constant(expr["value"]) < MASKED).all())
    return hidden and all(is_call(user, *largest) for user in points.users[expr])


def _inner(values: Array) -> Array:
    """``values``, those that are hidden raised to the least of the others."""
    seen = values[values >= MASKED]
    return np.maximum(values, seen.min()) if seen.size else values


def additions_of(points: Points, expr: Expr) -> tuple[tuple[Expr, Expr], ...]:
    """The additions that alone read a value, perhaps moved, and whose sums a softmax alone reads;
    each with the operand that the value is there. None of any other value."""
    found: list[tuple[Expr, Expr]] = []
    for user in points.users[expr]:
        if is_call(user, "add") and points.softmax_axis(user) is not None:
            found.append((user, expr))
        elif is_call(user, *MOVES_ALONE) and (moved := additions_of(points, user)):
            found += moved
        else:
            return ()
    return tuple(found)


def with_masks_in_reach(
    points: Points, grids: Mapping[int, Grid], largest: Mapping[int, float]
) -> dict[int, Grid]:
    """The grids, where none of a mask reaches farther than it has to; ``largest`` values were seen
    on each."""
    found, members = dict(grids), defaultdict[int, list[Expr]](list)
    for point in points.points:
        members[point.grid].append(point.expr)
    for number, exprs in members.items():
        at, additions = grids.get(number), [additions_of(points, expr) for expr in exprs]
        if at is None or not all(additions):
            continue
        pairs = chain.from_iterable(additions)
        leasts = [least_addend(points, *pair, grids) for pair in pairs]
        known = [least for least in leasts if least is not None]
        low, _ = _ends(at)
        if known and len(known) == len(leasts) and low < min(known):
            config = points.config.of_dtype(at.dtype)
            found[number] = configured_grid(min(known), largest[number], config)
    return found


def least_addend(
    points: Points, addition: Expr, addend: Expr, grids: Mapping[int, Grid]
) -> float | None:
    """What takes any other value to the least one of the grid of an addition, whose result a
    softmax alone reads: less of ``addend`` makes no difference. None of any other operator."""
    if not is_call(addition, "add") or points.softmax_axis(addition) is None:
        return None
    other = next((each for each in addition.args if each is not addend), addend)
    of_sum, of_other = (
        None if number is None else grids.get(number)
        for number in map(points.grid_of, (addition, other))
    )
    if of_sum is None:
        return None
    least, most = _ends(of_sum)
    return least - (_ends(of_other)[1] if of_other else most)


def _ends(at: Grid) -> tuple[float, float]:
    limits = np.iinfo(at.dtype)
    low, high = ((end - at.zero_point) * at.scale for end in (limits.min, limits.max))
    return low, high
