"""Element numbers as C expressions, with broadcasting resolved at code-generation time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A loop whose variable counts through one or more neighbouring dimensions."""

    var: str
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.sizes)


def strides(shape: Sequence[int]) -> list[int]:
    """Elements between neighbours of each dimension of a dense tensor."""
    result = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        result[dim] = result[dim + 1] * shape[dim + 1]
    return result


def element(shape: tuple[int, ...], axes: Sequence[Axis]) -> str:
    """Number of the element that a tensor of ``shape`` has at the loops' position, where
    ``shape`` broadcasts to the dimensions of ``axes`` (right-aligned)."""
    rank = sum(len(axis.sizes) for axis in axes)
    full = (1,) * (rank - len(shape)) + shape
    steps = strides(full)
    terms: list[str] = []
    first = 0
    for axis in axes:
        dims = range(first, first + len(axis.sizes))
        first += len(axis.sizes)
        terms += _axis_terms(axis, [full[d] for d in dims], [steps[d] for d in dims])
    return " + ".join(terms) or "0"


def _axis_terms(axis: Axis, have: list[int], steps: list[int]) -> list[str]:
    if tuple(have) == axis.sizes:
        return [_times(axis.var, steps[-1])] if axis.count > 1 else []
    terms = []
    behind = axis.count
    for size, want, step in zip(have, axis.sizes, steps, strict=True):
        behind //= want
        if size == 1:
            continue
        position = axis.var if behind == 1 else f"{axis.var} / {behind}"
        position = f"({position}) % {want}" if want * behind < axis.count else position
        terms.append(_times(f"({position})" if " " in position else position, step))
    return terms


def _times(term: str, factor: int) -> str:
    return term if factor == 1 else f"{term} * {factor}"


def merge_dims(shape: tuple[int, ...], others: Sequence[tuple[int, ...]]) -> list[Axis]:
    """The fewest loops over ``shape`` in which every other shape is either whole or broadcast."""
    rank = len(shape)
    padded = [(1,) * (rank - len(other)) + other for other in others]
    axes: list[tuple[tuple[bool, ...], list[int]]] = []
    for dim, size in enumerate(shape):
        whole = tuple(other[dim] == size for other in padded)
        if axes and (size == 1 or axes[-1][0] == whole):
            axes[-1][1].append(size)
        elif axes and all(s == 1 for s in axes[-1][1]):
            axes[-1] = (whole, [*axes[-1][1], size])
        else:
            axes.append((whole, [size]))
    return [Axis(f"i{n}", tuple(sizes)) for n, (_, sizes) in enumerate(axes)]
