"""How kinds of steps answer for the ranges of their results."""

from __future__ import annotations

import numpy as np

from tinyai.ir import DType, Step, Type
from tinyai.traits import Range


def extremes(step: Step, value: Range, operand: Range | None) -> Range:
    """The range of a step that is monotonic in value and operand, rounding included, on both sides
    of 0: the least and the largest result at the ends of its arguments and at 0. Infinite bounds
    give infinite results or NaN, which no type holds."""
    values = (value.low, value.high, np.clip(np.zeros_like(value.low), value.low, value.high))
    others = (operand.low, operand.high) if operand else (None,)
    with np.errstate(all="ignore"):
        results = [step.reference(v, other) for v in values for other in others]
        return Range(np.min(results, axis=0), np.max(results, axis=0))


class Monotonic(Step):
    """A step that is monotonic in value and operand."""

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        return extremes(self, value, operand)


class SumStep(Step):
    """A monotonic step whose results are no larger than its value and its operand together."""

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        ends = (end for each in (value, operand) if each for end in (each.low, each.high))
        fits = (end.dtype.kind == "f" or np.all(abs(end.astype(float)) < 2.0**62) for end in ends)
        return extremes(self, value, operand) if all(fits) else None


class Product(Step):
    """A monotonic step whose own arithmetic may wrap in 64 bits."""

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range | None:
        return None if of.dtype is DType.INT64 else extremes(self, value, operand)
