"""Channels between two layers get ranges that are more alike, and the network stays the same.

Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (2019): where
one layer's results reach the next through operators ``f`` with ``f(s * x) == s * f(x)`` for every
``s > 0``, a channel's weights and bias in the first are divided by ``s``, and those in the second
multiplied by it. With ``s = sqrt(a / b)`` for a range ``a`` of the channel in the first layer and
its largest weight ``b`` in the second both become ``sqrt(a * b)``; sweeps go on until nothing
changes. A bound such as that of relu6 is no such ``f``: pairs with one between them stay as they
are, and so do weights that are integers already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.qdq.operands import Fold, is_call, shape_of
from tinyai.quantizer.channels import HOMOGENEOUS
from tinyai.quantizer.folding import (
    Constants,
    input_channels,
    output_channels,
    users_of,
    weight_channels,
)
from tinyai.quantizer.params import Array
from tinyai.source import Call, Expr, children, rebuilt
from tinyai.vocabulary import constant

SWEEPS = 40
SETTLED = 1e-3
# Channels whose weights are this small beside the layer's largest are left: they are as good as
# dead, and made alike their values would be huge.
_LEAST = 1e-3


@dataclass(frozen=True, eq=False)
class LayerPair:
    """A layer, what is added to its sums, and the layer that alone reads the result; ``before`` and
    ``after`` are the axes of the channels between them in their weights."""

    first: Call
    biases: tuple[Call, ...]
    second: Call
    before: int
    after: int


class Equalizer:
    """``pairs`` of a model; ``result`` is the equalized one, ``new`` what became of each
    expression."""

    def __init__(self, root: Expr, fold: Fold | None = None) -> None:
        self._view = Constants(root, fold)
        self._users = users_of(self._view.order)
        self.pairs = [pair for expr in self._view.order for pair in self._pair(expr)]
        self._weights = {
            layer: self._view.constant(layer["weight"]).astype(np.float64)
            for pair in self.pairs
            for layer in (pair.first, pair.second)
        }
        self._factors = {pair: np.ones(self._channels(pair)) for pair in self.pairs}
        self._sweep()
        self.new = self._rebuilt()
        self.result = self.new[root]

    # --- pairs ---

    def _pair(self, expr: Expr) -> Iterator[LayerPair]:
        if not self._is_layer(expr):
            return
        assert isinstance(expr, Call)
        before = weight_channels(expr)
        biases: list[Call] = []
        at: Expr = expr
        while before is not None and len(users := self._users[at]) == 1:
            (user,) = users
            if user is None or not isinstance(user, Call):
                return
            if self._is_layer(user) and user["data"] is at:
                after = input_channels(user)
                if after is not None and self._sizes_fit(expr, before, user, after):
                    yield LayerPair(expr, tuple(biases), user, before, after)
                return
            if self._is_bias(user, expr):
                biases.append(user)
            elif not self._is_homogeneous(user):
                return
            at = user

    def _is_layer(self, expr: Expr) -> bool:
        if not is_call(expr, "conv2d", "dense") or not self._view.is_constant(expr["weight"]):
            return False
        return expr.type.dtype == "float32" and not is_call(expr["weight"], "dequantize")

    def _sizes_fit(self, first: Call, before: int, second: Call, after: int) -> bool:
        same = first["weight"].type.shape[before] == second["weight"].type.shape[after]
        layouts = [each.attrs.get("layout") for each in (first, second)]
        return same and layouts[0] == layouts[1]

    def _is_bias(self, call: Call, layer: Call) -> bool:
        """Whether a call adds a constant, one number a channel of ``layer``."""
        if not is_call(call, "add", "bias_add"):
            return False
        known = [arg for arg in call.args if self._view.is_constant(arg)]
        rank, axis = len(shape_of(call)), output_channels(layer)
        if len(known) != 1 or call.type != layer.type:
            return False
        if is_call(call, "bias_add"):
            return int(call.attrs["axis"]) % rank == axis
        shape = (1,) * (rank - len(shape_of(known[0]))) + shape_of(known[0])
        return shape == tuple(n if d == axis else 1 for d, n in enumerate(shape_of(call)))

    def _is_homogeneous(self, call: Call) -> bool:
        if is_call(call, "pad"):
            return self._view.uniform(call["value"]) == 0
        return is_call(call, *HOMOGENEOUS)

    # --- factors ---

    def _channels(self, pair: LayerPair) -> int:
        return int(self._weights[pair.first].shape[pair.before])

    def _sweep(self) -> None:
        for _ in range(SWEEPS):
            most = max((self._equalize(pair) for pair in self.pairs), default=0.0)
            if most < SETTLED:
                return

    def _equalize(self, pair: LayerPair) -> float:
        """Divides and multiplies the weights of all pairs once; returns the largest change of a
        factor."""
        first, second = self._weights[pair.first], self._weights[pair.second]
        one, other = _largest(first, pair.before), _largest(second, pair.after)
        live = (one > _LEAST * one.max()) & (other > _LEAST * other.max())
        factor = np.sqrt(np.where(live, one, 1) / np.where(live, other, 1))
        self._weights[pair.first] = first / _along(factor, first, pair.before)
        self._weights[pair.second] = second * _along(factor, second, pair.after)
        self._factors[pair] *= factor
        return float(np.abs(np.log(factor)).max(initial=0.0))

    # --- the result ---

    def _rebuilt(self) -> dict[Expr, Expr]:
        values = {layer: (layer["weight"], value) for layer, value in self._weights.items()}
        for pair in self.pairs:
            for call in pair.biases:
                known = next(arg for arg in call.args if self._view.is_constant(arg))
                value = self._view.constant(known)
                values[call] = known, value / self._factors[pair].reshape(value.shape)
        new: dict[Expr, Expr] = {}
        for expr in self._view.order:
            made: Sequence[Expr] = [new[child] for child in children(expr)]
            if expr in values:
                old, value = values[expr]
                changed = constant(value.astype(np.float32))
                made = [
                    changed if c is old else n for c, n in zip(children(expr), made, strict=True)
                ]
            new[expr] = rebuilt(expr, made)
        return new


def _largest(weights: Array, axis: int) -> Array:
    along = tuple(d for d in range(weights.ndim) if d != axis)
    return np.asarray(np.abs(weights).max(axis=along))


def _along(factor: Array, weights: Array, axis: int) -> Array:
    return factor.reshape([-1 if d == axis else 1 for d in range(weights.ndim)])
