"""The table of torch's operators: how each is read into the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from tinyai.frontends.executorch.reader import Read, Site
from tinyai.source import Expr, Tuple, require


class ReaderRows(dict[str, Read]):
    """Readers by the names of operators. What works in place, ``aten.relu_``, is read as what does
    not, and what has no row by that of ``OTHER``."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or super().__contains__(str(name).rstrip("_"))

    def __missing__(self, name: str) -> Read:
        return self[name.rstrip("_") if name in self else OTHER]


READERS = ReaderRows()
# The name of the row for operators that have none.
OTHER = "*"
# Operators that are read, and whose parts in the core of ATen are not.
KEPT_WHOLE: list[torch._ops.OpOverload] = []


# What stands for an operator that is read as several calls, none of which does, by its reader.
AS_ONE: dict[Read, str] = {}


def reads(
    *names: str,
    namespace: str = "aten.",
    whole: Iterable[torch._ops.OpOverload] = (),
    as_one: str = "",
) -> Callable[[Read], Read]:
    """The decorated function reads the operators of these names, overloads left out: it makes an
    expression of the vocabulary, or refuses with the reason. ``whole`` are the overloads among them
    that the edge dialect is not to take apart. ``as_one`` is the operator that the quantizer takes
    for several calls: "function" or "copy" of the value that is read. Without it there has to be
    one call that computes, beside moves, biases and steps on its sums."""

    def add(read: Read) -> Read:
        AS_ONE.update({read: as_one} if as_one else {})
        READERS.update({f"{namespace}{name}": read for name in names})
        KEPT_WHOLE.extend(whole)
        return read

    return add


def ints(value: Any, count: int, *, default: int = 0) -> tuple[int, ...]:
    """``count`` whole numbers from one, as many, or none."""
    numbers = [value] if isinstance(value, int) else list(value) or [default]
    require(all(isinstance(n, int) for n in numbers), "numbers", numbers, "known ones")
    return tuple(numbers * count if len(numbers) == 1 else numbers)


def rank_of(site: Site) -> int:
    return len(site.type.shape)


def first_of(site: Site, value: Expr) -> Expr:
    """The first of several results, of which nobody reads the others."""
    return Tuple(site.types, load=lambda: (value, *[value] * (len(site.types) - 1)))


def require_float(site: Site) -> None:
    require(site.type.dtype == "float32", "dtype of the result", site.type.dtype, "float32")
