"""What a caller passes to a model and gets from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model, under the source model's name. ``dtype`` is numpy's name.

    Where ``scale`` is known, the integers stand for real = scale * (q - zero_point). ``limits`` are
    the least and the largest integer of an input of indices; None where any is right.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None
    limits: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"
