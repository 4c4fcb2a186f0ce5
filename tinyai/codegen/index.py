"""Element numbers as C expressions, with broadcasting resolved at code-generation time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tinyai.ir import strides


@dataclass(frozen=True)
class Axis:
    """A loop whose variable counts through one or more neighbouring dimensions."""

    var: str
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.sizes)


def element(
    shape: tuple[int, ...], axes: Sequence[Axis], stored: tuple[int, ...] | None = None
) -> str:
    """Number of the element that a tensor of ``shape`` has at the loops' position, where
    ``shape`` broadcasts to the dimensions of ``axes`` (right-aligned). ``stored`` are its strides
    where it is not dense. Raises ``ValueError`` where it does not broadcast."""
    sizes = tuple(size for axis in axes for size in axis.sizes)
    more = (1,) * (len(sizes) - len(shape))
    full = more + shape
    fits = [have in (1, size) for have, size in zip(full, sizes, strict=False)]
    if len(full) != len(sizes) or not all(fits):
        raise ValueError(f"loops over {sizes} for a tensor of shape {shape}")
    steps = more + (strides(shape) if stored is None else stored)
    terms: list[str] = []
    first = 0
    for axis in axes:
        dims = range(first, first + len(axis.sizes))
        first += len(axis.sizes)
        terms += _axis_terms(axis, full[dims.start : dims.stop], steps[dims.start : dims.stop])
    return " + ".join(terms) or "0"


def _axis_terms(axis: Axis, have: tuple[int, ...], steps: tuple[int, ...]) -> list[str]:
    several = [each for each in zip(have, steps, strict=True) if each[0] > 1]
    evenly = all(outer == size * inner for (_, outer), (size, inner) in pairwise(several))
    if have == axis.sizes and evenly:  # all elements are as far apart as the last ones
        return [_times(axis.var, steps[-1])] if axis.count > 1 else []
    terms = []
    behind = axis.count
    for size, want, step in zip(have, axis.sizes, steps, strict=True):
        behind //= want
        if size == 1:
            continue
        position = axis.var if behind == 1 else f"{axis.var} / {behind}"
        wraps = want * behind < axis.count
        position = f"({position}) % {want}" if wraps else position
        terms.append(_times(f"({position})" if wraps or behind > 1 else position, step))
    return terms


def _times(term: str, factor: int) -> str:
    return term if factor == 1 else f"{term} * {factor}"


def merge_dims(
    shape: tuple[int, ...],
    others: Sequence[tuple[int, ...]],
    stored: Sequence[tuple[int, ...]] = (),
) -> list[Axis]:
    """The fewest loops over ``shape`` in which every other shape is either whole or broadcast, and
    the elements of tensors of that shape with the strides ``stored`` are evenly apart."""
    rank = len(shape)
    padded = [(1,) * (rank - len(other)) + other for other in others]
    axes: list[tuple[tuple[bool, ...], list[int]]] = []
    for dim, size in enumerate(shape):
        whole = tuple(other[dim] == size for other in padded)
        even = all(steps[dim - 1] == steps[dim] * size for steps in stored)
        if axes and even and (size == 1 or axes[-1][0] == whole):
            axes[-1][1].append(size)
        elif axes and all(s == 1 for s in axes[-1][1]):
            axes[-1] = (whole, [*axes[-1][1], size])
        else:
            axes.append((whole, [size]))
    return [Axis(f"i{n}", tuple(sizes)) for n, (_, sizes) in enumerate(axes)]
