"""Steps that multiply by a scale and round: in fixed point, or in double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.ir import Array, DType, Step, Type
from tinyai.traits import Range


@dataclass(frozen=True)
class FixedPointMultiply(Step):
    """``value * multiplier * 2**(shift - 31)``, the result wrapped to int32.

    One multiplier and shift, or one for each element along ``axis`` of the node's output. The
    product is taken in 64 bits; a positive shift is applied to the value first. ``ties`` says where
    a half goes: "upward", or away from zero ("tonearest"); or "twice": rounded once at 2**31 and
    once more at the rest of the shift, halves away from zero (and a positive shift wraps in 32
    bits). TVM's ``q_multiply_shift`` wraps to int32 on int64
    values too.
    """

    name: ClassVar[str] = "fixed_point_multiply"
    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    axis: int | None = None
    ties: str = "upward"

    def result(self, dtype: DType) -> DType:
        if dtype not in (DType.INT32, DType.INT64):
            raise ValueError(f"{self.name} of {dtype}: int32 and int64 only")
        if len(self.multiplier) != len(self.shift):
            raise ValueError(f"{self.name}: one multiplier and one shift a channel")
        if self.axis is None and len(self.shift) != 1:
            raise ValueError(f"{self.name}: {len(self.shift)} numbers without an axis")
        for name, numbers, (low, high) in (
            ("multiplier", self.multiplier, DType.INT32.range),
            ("shift", self.shift, (-31, 30)),
        ):
            least, most = min(numbers, default=0), max(numbers, default=0)
            if least < low or most > high:
                found = f"{least} .. {most}, allowed {low} .. {high}"
                raise ValueError(f"{name} of {self.name} out of range: {found}")
        if self.ties not in ("upward", "tonearest", "twice"):
            raise ValueError(f"ties {self.ties}: upward, tonearest or twice only")
        return dtype

    def fits(self, shape: tuple[int, ...]) -> bool:
        return self.axis is None or (
            0 <= self.axis < len(shape) and shape[self.axis] == len(self.shift)
        )

    @property
    def along(self) -> int | None:
        return self.axis

    def with_elements(self, elements: Sequence[int], axis: int) -> Step:
        multiplier = tuple(self.multiplier[i] for i in elements)
        shift = tuple(self.shift[i] for i in elements)
        return replace(self, multiplier=multiplier, shift=shift, axis=axis)

    def apart(self) -> tuple[Step, Array]:
        numbers = np.array([self.multiplier, self.shift]).T
        return replace(self, multiplier=(), shift=()), numbers

    def commutes_with_widening(self) -> bool:
        return True

    def infer_range(self, of: Type, value: Range, operand: Range | None) -> Range:
        """The products of the ends; all of int32 where a product or its result may wrap."""
        if self.axis == len(of.shape) - 1:
            return replace(self, axis=1)._products(value)
        each = [one._products(value) for one in self._factors()]
        lows, highs = zip(*((one.low, one.high) for one in each), strict=True)
        return Range(np.min(lows, axis=0), np.max(highs, axis=0))

    def _factors(self) -> Iterator[FixedPointMultiply]:
        """A step for each pair of a multiplier and a shift."""
        for multiplier, shift in set(zip(self.multiplier, self.shift, strict=True)):
            yield replace(self, multiplier=(multiplier,), shift=(shift,), axis=None)

    def _products(self, value: Range) -> Range:
        ends = np.stack([value.low, value.high])
        size = abs(ends.astype(float)).max(axis=0)
        shift, multiplier = np.array(self.shift), abs(np.array(self.multiplier, float))
        shifted = size * 2.0 ** np.maximum(shift, 0)
        result = size * multiplier * 2.0 ** (shift - 31)
        fits = (shifted < 2.0**31) & (shifted * multiplier < 2.0**61) & (result < 2.0**31 - 2)
        results = self.reference(ends, None)
        low, high = DType.INT32.range
        return Range(
            np.where(fits, results.min(axis=0), low), np.where(fits, results.max(axis=0), high)
        )

    def largest(self, size: int, operand: int, constant: Array | None) -> int:
        factors = zip(self.multiplier, self.shift, strict=True)
        largest: int = max(-(-size * abs(m) * 2 ** (31 + s) >> 62) for m, s in factors)
        return largest + 1

    @property
    def left(self) -> tuple[int, ...]:
        """Places to shift left before the product."""
        return tuple(max(shift, 0) for shift in self.shift)

    @property
    def right(self) -> tuple[int, ...]:
        """Places to shift right after the product."""
        return tuple(31 + max(-shift, 0) for shift in self.shift)

    def reference(self, value: Array, operand: Array | None) -> Array:
        along = [-1 if dim == self.axis else 1 for dim in range(value.ndim)]
        multiplier, left, right = (
            np.array(numbers, np.int64).reshape(along)
            for numbers in (self.multiplier, self.left, self.right)
        )
        half = np.left_shift(np.int64(1), right - 1)
        with np.errstate(over="ignore"):
            wide = np.left_shift(value.astype(np.int64), left)
            if self.ties == "twice":
                wide = _twice_rounded(wide.astype(np.int32) * multiplier, right - 31)
            else:
                wide = wide * multiplier
                down = (wide < 0) if self.ties == "tonearest" else False
                wide = np.right_shift(wide + half - down, right)
        return wide.astype(np.int32).astype(value.dtype)

    def text(self, show: Callable[[str], str]) -> str:
        if self.axis is None:
            return super().text(show)
        return f"{self.name}({len(self.shift)} along axis {self.axis}, {self.ties})"


def _twice_rounded(product: Array, right: Array) -> Array:
    """A product over 2**31, then over 2**right; each rounded, halves away from zero."""
    nudge = np.where(product >= 0, 1 << 30, 1 - (1 << 30)).astype(np.int64)
    total = product + nudge
    high = np.where(total >= 0, total >> 31, -((-total) >> 31))
    mask = np.left_shift(np.int64(1), right) - 1
    threshold = (mask >> 1) + (high < 0)
    return np.asarray((high >> right) + ((high & mask) > threshold))


@dataclass(frozen=True)
class RealMultiply(Step):
    """``value * multiplier + offset`` in double precision, rounded, held within ``low`` and
    ``high``.

    One multiplier, or one for each element along ``axis`` of the node's output. ``mode``
    is one of ``Round``'s: "floor", "cut" or "away".
    """

    name: ClassVar[str] = "real_multiply"
    keeps_channels: ClassVar[bool] = True  # no range is known of it that would make one constant
    multiplier: tuple[float, ...]
    axis: int | None
    mode: str
    offset: int
    low: int
    high: int

    def result(self, dtype: DType) -> DType:
        if dtype not in (DType.INT32, DType.INT64):
            raise ValueError(f"{self.name} of {dtype}: int32 and int64 only")
        if self.axis is None and len(self.multiplier) != 1:
            raise ValueError(f"{self.name}: {len(self.multiplier)} numbers without an axis")
        if not np.isfinite(self.multiplier).all():
            raise ValueError(f"{self.name} by a number that is not finite")
        if self.mode not in ("floor", "cut", "away"):
            raise ValueError(f"round {self.mode}: floor, cut or away only")
        least, most = DType.INT32.range
        if not least <= self.low <= self.high <= most:
            raise ValueError(f"{self.name} within {self.low} .. {self.high}: bounds of int32")
        return DType.INT32

    def fits(self, shape: tuple[int, ...]) -> bool:
        return self.axis is None or (
            0 <= self.axis < len(shape) and shape[self.axis] == len(self.multiplier)
        )

    @property
    def along(self) -> int | None:
        return self.axis

    def with_elements(self, elements: Sequence[int], axis: int) -> Step:
        return replace(self, multiplier=tuple(self.multiplier[i] for i in elements), axis=axis)

    def reference(self, value: Array, operand: Array | None) -> Array:
        shape = (1,) * value.ndim
        if self.axis is not None:
            shape = (*shape[: self.axis], -1, *shape[self.axis + 1 :])
        x = value.astype(np.float64) * np.array(self.multiplier).reshape(shape) + self.offset
        match self.mode:
            case "floor":
                whole = np.floor(x + 0.5)
            case "cut":
                whole = np.trunc(x + np.where(x < 0, -0.5, 0.5))
            case _:
                whole = np.trunc(x)
                whole = whole + (x - whole >= 0.5) - (x - whole <= -0.5)
        return np.asarray(np.clip(whole, self.low, self.high).astype(np.int32))

    def text(self, show: Callable[[str], str]) -> str:
        if self.axis is None:
            return super().text(show)
        numbers = f"{len(self.multiplier)} along axis {self.axis}"
        bounds = f"{self.low} .. {self.high}"
        return f"{self.name}({numbers}, {self.mode}, + {self.offset}, {bounds})"
