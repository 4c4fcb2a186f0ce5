"""A quantized model each of whose quantizations is switched on by an input: what each one costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tinyai.qdq.operands import Grid
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Point, Points
from tinyai.quantizer.write import Changes, Written
from tinyai.source import Call, Constant, Expr, SourceType
from tinyai.vocabulary import call as made

# A value that is quantized, or the operand of a call at a place, behind its own that of a new bias.
Key = Expr | tuple[Call, int]


@dataclass(frozen=True, eq=False)
class Switch:
    """An input that switches a quantization, with its values for off and on."""

    input: Expr
    off: Array
    on: Array = field(repr=False)


class Switched(Written):
    """``result`` is the model that is quantized where ``switches`` are on, else float."""

    def __init__(self, points: Points, grids: Mapping[int, Grid], changes: Changes) -> None:
        self.switches: dict[Key, Switch] = {}
        # A layer that is quantized alone makes up for no rounding of its input.
        super().__init__(points, grids, replace(changes, biases=changes.by_weights))

    def layers(self) -> list[tuple[Point, frozenset[Key]]]:
        """The points that are seen, each with its switch and those of its weights and bias."""
        found = []
        for point in self.points.points:
            own = {*self.points.opening(point.expr)}
            keys = {key for key in self.switches if isinstance(key, tuple) and key[0] in own}
            if point.observed:
                found.append((point, frozenset(keys | {point.expr})))
        return found

    def on(self, points: Points) -> frozenset[Key]:
        """The switches of what ``points``, which may be fewer, quantize; values of 16 bits beside
        such of 8 pass for floats."""
        dtype = points.config.dtype
        values = {each.expr for each in points.points if points.dtypes[each.grid] == dtype}
        return frozenset(
            key
            for key in self.switches
            if (key[0] in points.roles if isinstance(key, tuple) else key in values)
        )

    def _pair(self, value: Expr, at: Grid, name: str, expr: Expr) -> Expr:
        # Not by sums: a mask is infinite, or so large that nothing is left of what is added to it.
        on = self._switch(expr, np.array(False), np.array(True))
        return made("where", value.type, on, super()._pair(value, at, name, expr), value)

    def _with_constants(self, call: Call, new: list[Expr]) -> list[Expr]:
        for place, quantized in enumerate(super()._with_constants(call, list(new))):
            if quantized is not new[place] and isinstance(quantized, Call):
                value = self.points.view.constant(call.args[place])
                new[place] = self._switch((call, place), value, _value(quantized))
        return new

    def _bias(self, product: Expr) -> Expr:
        bias = super()._bias(product)
        assert isinstance(bias, Constant)
        assert isinstance(product, Call)
        off = np.zeros_like(bias.value)
        return self._switch((product, len(product.args)), off, bias.value)

    def _switch(self, key: Key, off: Array, on: Array) -> Expr:
        value = Expr((SourceType(off.shape, off.dtype.name),))
        self.switches[key] = Switch(value, off, on)
        return value


def _value(dequantized: Call) -> Array:
    """The value of a dequantize of constants."""
    steps, scale, zero = (each.value for each in dequantized.args if isinstance(each, Constant))
    axis, rank = dequantized.attrs["axis"], steps.ndim
    along = [-1 if d == axis % max(rank, 1) else 1 for d in range(rank)]
    scale, zero = (
        each.reshape(along) if each.size > 1 else each.reshape(()) for each in (scale, zero)
    )
    return np.asarray((steps.astype(np.float32) - zero) * scale, np.float32)
