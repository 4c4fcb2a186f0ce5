"""Factors and terms of channels go into the weights and the bias of the layer before them.

Batch norm comes from front ends as a product and a sum with constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tinyai.qdq.accumulators import PRODUCTS
from tinyai.qdq.moves import MOVES
from tinyai.qdq.operands import (
    Array,
    Fold,
    View,
    is_call,
    moved_axis,
    moved_constant,
    of,
    shape_of,
)
from tinyai.quantizer.nodes import parts_of_several
from tinyai.source import TVMS_OWN, Call, Constant, Expr, Refusal, children, rebuilt
from tinyai.vocabulary import call as made
from tinyai.vocabulary import constant

# What front ends write batch norm's factors with.
_IN_NUMPY: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in ("add", "subtract", "multiply", "divide")},
    **{name: getattr(np, name) for name in ("sqrt", "negative")},
    "rsqrt": lambda value: 1 / np.sqrt(value),
}
STEPS = ("multiply", "divide", "add", "subtract", "bias_add")


def users_of(order: Sequence[Expr]) -> dict[Expr, list[Expr | None]]:
    """The readers of each expression; None stands for the caller of the model."""
    users: dict[Expr, list[Expr | None]] = {expr: [] for expr in order}
    users[order[-1]].append(None)
    for expr in order:
        for child in dict.fromkeys(children(expr)):
            users[child].append(expr)
    return users


def output_channels(call: Call) -> int:
    """The axis of a product's result along which each index has weights of its own."""
    if "layout" in call.attrs:
        return int((call.attrs["out_layout"] or call.attrs["layout"]).index("C"))
    return len(shape_of(call)) - 1


def weight_channels(call: Call) -> int | None:
    """The axis of a product's weights that has the output channels, None where no single one has:
    products of batches, groups of a transposed convolution, a depthwise one with several results a
    channel."""
    if is_call(call, "batch_matmul"):
        return None
    axis = call.attrs["weight_layout"].index("O") if "weight_layout" in call.attrs else 0
    size = call["weight"].type.shape[axis]
    return axis if size == shape_of(call)[output_channels(call)] else None


def input_channels(layer: Call) -> int | None:
    """The axis of a layer's weights along which its input's channels are, None where there is none
    alone."""
    if is_call(layer, "dense"):
        return 1
    layout = layer.attrs["weight_layout"]
    if layer.attrs["groups"] == 1:
        return int(layout.index("I"))
    return int(layout.index("O")) if is_depthwise(layer) else None


def is_depthwise(layer: Call) -> bool:
    """Whether each channel of a convolution's input makes one of its result."""
    if not is_call(layer, "conv2d") or layer.attrs["groups"] == 1:
        return False
    attrs, shape = layer.attrs, layer["weight"].type.shape
    layout = attrs["weight_layout"]
    return bool(shape[layout.index("O")] == attrs["groups"] and shape[layout.index("I")] == 1)


class Constants(View):
    """A view that computes constants of some operators in numpy, which is faster than asking the
    front end."""

    def __init__(self, root: Expr, fold: Fold | None) -> None:
        super().__init__(root, MOVES, TVMS_OWN, fold)
        self._values: dict[Expr, Array] = {}

    def constant(self, expr: Expr) -> Array:
        if not is_call(expr, *_IN_NUMPY) or not self.is_constant(expr):
            return super().constant(expr)
        if expr not in self._values:
            with np.errstate(all="ignore"):  # what is not finite is not folded
                self._values[expr] = _IN_NUMPY[expr.op](*map(self.constant, expr.args))
        return self._values[expr]


@dataclass(frozen=True)
class _Line:
    """``scale * sum + shift``, a number each for a channel."""

    scale: Array
    shift: Array

    def after(self, step: Call, number: Array, first: bool) -> _Line:
        """The line and then ``step`` by ``number``, which is the step's ``first`` operand."""
        match step.op:
            case "multiply":
                return _Line(self.scale * number, self.shift * number)
            case "divide":
                return _Line(self.scale / number, self.shift / number)
            case "subtract" if first:
                return _Line(-self.scale, number - self.shift)
            case "subtract":
                return _Line(self.scale, self.shift - number)
        return _Line(self.scale, self.shift + number)


def _of_integers(expr: Expr) -> Expr:
    """What dequantizes moved integers, for a move of a constant that is dequantized; ``expr``
    itself where it is none, or the move mixes channels of which each has a scale."""
    moves = ("reshape", "transpose", "broadcast_to")
    if not is_call(expr, *moves) or not is_call(expr["data"], "dequantize"):
        return expr
    stored = expr["data"]
    values, scale, zero = stored.args
    if not (isinstance(values, Constant) and isinstance(scale, Constant)):
        return expr
    axis = stored.attrs["axis"]
    if scale.value.size > 1:
        try:
            axis = moved_axis(expr, values.value.shape, axis % values.value.ndim)
        except Refusal:
            return expr
    moved = constant(moved_constant(expr, values.value), values.type.dtype)
    return made("dequantize", expr.type, moved, scale, zero, name=stored.name, axis=axis)


def _of_columns(expr: Expr) -> Expr:
    """A product of matrices whose integers have a scale for each number that is summed over, with
    the floats that they stand for: no sum of integers has those scales."""
    if not is_call(expr, "dense", "batch_matmul") or not is_call(expr["weight"], "dequantize"):
        return expr
    stored = expr["weight"]
    known = [each.value for each in stored.args if isinstance(each, Constant)]
    rank = len(stored.type.shape)
    if len(known) < 3 or known[1].size == 1 or stored.attrs["axis"] % rank != rank - 1:
        return expr
    steps, scales, zeros = known
    floats = ((steps.astype(np.float64) - zeros) * scales).astype(np.float32)
    return rebuilt(expr, [expr["data"], constant(floats)])


class Folding:
    """``result`` is the model with every chain of such steps folded; what has none is as it was,
    but moves of integers that the model has already: these are moved themselves.
    ``new`` is what became of each expression; ``image_channels`` are the dimensions that may be
    channels of images."""

    def __init__(
        self, root: Expr, fold: Fold | None = None, image_channels: Sequence[int] = (1, 3)
    ) -> None:
        self._image_channels = image_channels
        self._view = Constants(root, fold)
        self._users = users_of(self._view.order)
        self._parts = parts_of_several(self._view, self._users)
        # By the last step of a chain: all of it, with what it begins with.
        chains = {chain[-1]: chain for chain in map(self._chain, self._view.order) if chain[1:]}
        self.new: dict[Expr, Expr] = {}
        for expr in self._view.order:
            new = _of_columns(rebuilt(expr, [self.new[each] for each in children(expr)]))
            self.new[expr] = _of_integers(self._stored(expr) or new)
            if expr in chains:
                self.new[expr] = self._folded(chains[expr], self.new)
        self.result = self.new[root]

    def _stored(self, expr: Expr) -> Expr | None:
        """The integers of a constant that is quantized, as exporters write weights."""
        if not is_call(expr, "quantize") or not self._view.is_constant(expr):
            return None
        try:
            return constant(self._view.constant(expr), expr.type.dtype)
        except Refusal:  # such as one with a scale for each channel
            return None

    def _chain(self, base: Expr) -> list[Expr]:
        """``base`` and the steps after it that fold."""
        chain, axis = [base], self._axis(base)
        while axis is not None and len(users := self._users[chain[-1]]) == 1:
            (user,) = users
            if user is None or not is_call(user, *STEPS) or self._number(user, axis) is None:
                break
            if user in self._parts:
                break
            chain.append(user)
        return chain if self._worth(chain) else [base]

    def _product(self, base: Expr) -> Call | None:
        """The product that ``base`` is, or whose rows it only counts in another way: matrices of a
        batch are multiplied as one."""
        product = base
        if is_call(base, "reshape") and self._users[base["data"]] == [base]:
            product = base["data"]
            if not is_call(product, "dense") or product.type.shape[-1] != base.type.shape[-1]:
                return None
        return product if is_call(product, *PRODUCTS) else None

    def _axis(self, base: Expr) -> int | None:
        """The axis along which constants belong to channels; None where nothing folds."""
        if self._view.is_constant(base) or len(base.types) != 1 or base.type.dtype != "float32":
            return None
        product, rank = self._product(base), len(base.type.shape)
        if product is not None:
            known = self._view.is_constant(product["weight"]) and None not in product.type.shape
            if not known or weight_channels(product) is None:
                return None
            return output_channels(product) if product is base else rank - 1
        if is_call(base, *STEPS) or None in base.type.shape or rank not in (3, 4):
            return None
        # No weights: the factors become those of a convolution of one tap a channel.
        for user in self._users[base]:
            for axis in self._image_channels if rank == 4 else (1,):
                if user is not None and is_call(user, "multiply", "divide"):
                    number = self._number(user, axis)
                    if number is not None and number.size > 1:
                        return axis
        return None

    def _worth(self, chain: list[Expr]) -> bool:
        if self._product(chain[0]) is None:
            return len(chain) > 1
        factors = [each for each in chain[1:] if is_call(each, "multiply", "divide")]
        return bool(factors) or len(chain) > 2

    def _number(self, step: Call, axis: int) -> Array | None:
        """The constant of a step, one number or one for each channel, if that is what it has."""
        places = [place for place, arg in enumerate(step.args) if self._view.is_constant(arg)]
        if len(places) != 1 or (step.op == "divide" and places == [0]):
            return None
        try:
            value = self._view.constant(step.args[places[0]]).astype(np.float64)
            shape = shape_of(step)
        except Refusal:
            return None
        if is_call(step, "bias_add"):
            fits = step.attrs["axis"] % len(shape) == axis
        else:
            along = [len(shape) - value.ndim + d for d, n in enumerate(value.shape) if n > 1]
            fits = along in ([], [axis])
        kept = shape == step.args[1 - places[0]].type.shape
        return value.reshape(-1) if fits and kept and np.isfinite(value).all() else None

    def _folded(self, chain: list[Expr], new: dict[Expr, Expr]) -> Expr:
        base, *steps = chain
        axis = self._axis(base)
        assert axis is not None
        channels = base.type.shape[axis]
        assert channels is not None
        line = _Line(np.ones(channels), np.zeros(channels))
        for step in steps:
            assert isinstance(step, Call)
            number = self._number(step, axis)
            assert number is not None
            line = line.after(step, number, self._view.is_constant(step.args[0]))
        scaled = self._scaled(base, line.scale, axis, new)
        names = (each.name for each in chain if isinstance(each, Call) and each.name)
        shift = constant(line.shift.astype(np.float32))
        return made("bias_add", scaled.type, scaled, shift, name=next(names, ""), axis=axis)

    def _scaled(self, base: Expr, scale: Array, axis: int, new: dict[Expr, Expr]) -> Expr:
        product = self._product(base)
        if product is None:
            return _depthwise(base, new[base], scale, axis)
        weights, along = self._view.constant(product["weight"]), weight_channels(product)
        shape = [-1 if d == along else 1 for d in range(weights.ndim)]
        scaled = constant((weights * scale.reshape(shape)).astype(np.float32))
        made = rebuilt(product, [new[product["data"]], scaled])
        return made if product is base else rebuilt(base, [made])


def _depthwise(base: Expr, data: Expr, scale: Array, axis: int) -> Call:
    """A convolution of one tap a channel."""
    channels, space = len(scale), len(shape_of(base)) - 2
    ones, size = (1,) * space, "HW"[2 - space :]
    return made(
        f"conv{space}d",
        of(shape_of(base), "float32"),
        data,
        constant(scale.astype(np.float32).reshape((-1, 1, *ones) if axis == 1 else (*ones, -1, 1))),
        strides=ones,
        padding=(0, 0) * space,
        dilation=ones,
        groups=channels,
        layout=f"NC{size}" if axis == 1 else f"N{size}C",
        weight_layout=f"OI{size}" if axis == 1 else f"{size}OI",
        out_layout="",
    )
