"""A model with quantize and dequantize around its quantized operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinyai.qdq.limits import EXTREMES
from tinyai.qdq.operands import Grid, Integers, dequantize, is_call, name_of, quantize, shape_of
from tinyai.quantizer.folding import output_channels, weight_channels
from tinyai.quantizer.params import Array, configured_grid, quantized_weights, weight_scales
from tinyai.quantizer.points import Points
from tinyai.quantizer.roles import Role
from tinyai.quantizer.softmax_inputs import least_addend
from tinyai.source import Call, Constant, Expr, Tuple, children, rebuilt
from tinyai.vocabulary import call as made
from tinyai.vocabulary import constant


@dataclass(frozen=True, eq=False)
class Changes:
    """Changes of constants: int8 ``steps`` of products' weights that are not the nearest, and
    ``biases`` to add to their sums, one number an output. Of these ``by_weights`` is what makes up
    for the weights alone."""

    steps: Mapping[Expr, Array] = field(default_factory=dict)
    biases: Mapping[Expr, Array] = field(default_factory=dict)
    by_weights: Mapping[Expr, Array] = field(default_factory=dict)


class Written:
    """``result`` is the quantized model, ``values`` are the points' values in it. What became of an
    expression before its pair, if it has one, is among the ``unpaired``."""

    def __init__(
        self, points: Points, grids: Mapping[int, Grid], changes: Changes | None = None
    ) -> None:
        self.points, self.grids = points, {**grids, **points.fixed}
        self._changes = changes or Changes()
        self._at = {point.expr: point for point in points.points}
        # What an operator that stays float reads, and what a quantized one does.
        self._floats: dict[Expr, Expr] = {}
        self._pairs: dict[Expr, Expr] = {}
        self.unpaired: dict[Expr, Expr] = {}
        for expr in points.order:
            self._write(expr)
        self.result = self._floats[points.order[-1]]
        self.values = tuple(self._pairs[point.expr] for point in points.points)

    def _write(self, expr: Expr) -> None:
        taken = self.is_taken(expr)
        new = [(self._pairs if taken else self._floats)[child] for child in children(expr)]
        if taken and isinstance(expr, Call):
            new = self._with_constants(expr, new)
        elif taken and isinstance(expr, Tuple):
            new = self._with_constant_parts(expr, new)
        value = rebuilt(expr, new)
        if expr in self._changes.biases:
            value = self._with_bias(value, self._bias(expr))
        value = _with_one_bias(value)
        self._floats[expr] = self._pairs[expr] = self.unpaired[expr] = value
        if expr in self._at:
            point = self._at[expr]
            at, name = self.grids[point.grid], name_of(expr)
            self._pairs[expr] = self._pair(value, at, name, expr)
            if taken:
                self._floats[expr] = self._pairs[expr]

    def _pair(self, value: Expr, at: Grid, name: str, expr: Expr) -> Expr:
        """The expression that quantized operators read for ``expr``, which was written as
        ``value``."""
        return _dequantized(quantize(value, at, name), at, name)

    def is_taken(self, expr: Expr) -> bool:
        """Whether an expression reads quantized values."""
        if isinstance(expr, Tuple):
            users = self.points.users[expr]
            return bool(users) and all(u is not None and self.is_taken(u) for u in users)
        roles = self.points.roles
        if is_call(expr, "split"):
            return any(field in roles for field in expr.fields)
        return roles.get(expr) not in (None, Role.SOURCE)

    def _with_constants(self, call: Call, new: list[Expr]) -> list[Expr]:
        view, role = self.points.view, self.points.roles.get(call)
        for place, arg in enumerate(call.args):
            if not view.is_constant(arg) or is_call(arg, "dequantize"):
                continue
            if role is Role.PRODUCT and arg is call["weight"]:
                new[place] = self._weights(call)
            elif role is Role.PRODUCT and arg is call["data"]:
                new[place] = self._constant(view.constant(arg), call)
            elif role is Role.RULE and is_call(call, *_BINARY):
                new[place] = self._constant_operand(arg, call)
            elif self.points.is_lookup(call) and arg is call["data"]:
                new[place] = self._constant(view.constant(arg), call)
        return new

    def _constant_operand(self, arg: Expr, call: Call) -> Expr:
        """Of a node of several values, whose first ones may all be constants."""
        if arg in self.points.parts:
            return rebuilt(arg, [self._constant_operand(each, call) for each in children(arg)])
        values = self.points.view.constant(arg)
        least = least_addend(self.points, call, arg, self.grids)
        values = values if least is None else np.maximum(values, least)
        return self._constant(values, call)

    def _with_constant_parts(self, parts: Tuple, new: list[Expr]) -> list[Expr]:
        """Parts of a concatenation."""
        (call,) = {user for user in self.points.users[parts] if isinstance(user, Call)}
        view = self.points.view
        return [
            self._constant(view.constant(old), call)
            if view.is_constant(old) and not is_call(old, "dequantize")
            else made
            for old, made in zip(parts.fields, new, strict=True)
        ]

    def _weights(self, call: Call) -> Expr:
        points = self.points
        weights = points.view.constant(call["weight"])
        axis = weight_channels(call) if points.config.per_channel else None
        scales = scales_of(points, call, self.grids)
        steps = self._changes.steps.get(call)
        if steps is None:
            steps = quantized_weights(weights, scales, axis, points.config.largest_weight)
        return made(
            "dequantize",
            call["weight"].type,
            constant(steps),
            constant(scales if axis is not None else scales[0]),
            constant(np.zeros(len(scales) if axis is not None else (), np.int32)),
            name=call.name,
            axis=-1 if axis is None else axis,
        )

    def _bias(self, product: Expr) -> Expr:
        """What is added to the sums of ``product``, whose biases change."""
        return constant(self._changes.biases[product].astype(np.float32))

    @staticmethod
    def _with_bias(sums: Expr, bias: Expr) -> Expr:
        assert isinstance(sums, Call)
        axis = output_channels(sums)
        return made("bias_add", sums.type, sums, bias, name=sums.name, axis=axis)

    def _constant(self, values: Array, call: Call) -> Expr:
        """A constant operand of a sum or product of tensors or matrices, on a grid of its own."""
        config, dtype = self.points.config, self.points.dtype_beside(call)
        at = configured_grid(float(values.min()), float(values.max()), config.of_dtype(dtype))
        return _dequantized(constant(at.quantize(values)), at, call.name)


def _with_one_bias(value: Expr) -> Expr:
    """Two biases of a product as one, so that they are rounded once: a bias of as many numbers, or
    of one, after the other or behind a reshape that keeps the channels last."""
    if not is_call(value, "bias_add", "add"):
        return value
    other = next((each for each in value.args if isinstance(each, Constant)), None)
    below = next(each for each in value.args if each is not other)
    inner = below["data"] if is_call(below, "reshape") else below
    if other is None or not is_call(inner, "bias_add") or below.type.shape != value.type.shape:
        return value
    own, shape, last = inner["bias"], inner.type.shape, len(value.type.shape) - 1
    if not isinstance(own, Constant):
        return value
    axis = inner.attrs["axis"] % len(shape)
    stays_last = axis == len(shape) - 1 and shape[-1] == value.type.shape[-1]
    channels = last if below is not inner and stays_last else axis
    numbers = other.value.reshape(-1)
    if numbers.size > 1 and (
        _channels_of(value, other) != channels or numbers.size != own.value.size
    ):
        return value
    both = constant(own.value + numbers)
    total = made("bias_add", inner.type, inner["data"], both, name=value.name, axis=axis)
    return total if below is inner else rebuilt(below, [total])


def _channels_of(addition: Call, number: Constant) -> int | None:
    """The one dimension along which an addition's numbers differ, None where there is none."""
    rank, shape = len(addition.type.shape), number.value.shape
    if is_call(addition, "bias_add"):
        return int(addition.attrs["axis"] % rank)
    along = [rank - len(shape) + axis for axis, size in enumerate(shape) if size > 1]
    return along[0] if len(along) == 1 else None


def scales_of(points: Points, product: Call, grids: Mapping[int, Grid]) -> Array:
    """The scales of a product's weights."""
    config = points.config
    return weight_scales(
        points.view.constant(product["weight"]),
        weight_channels(product) if config.per_channel else None,
        largest=config.largest_weight,
        bias=_largest_biases(points, product),
        input_scale=_input_scale(points, product["data"], grids),
        power_of_two=config.power_of_two,
    )


def _largest_biases(points: Points, product: Call) -> Array | None:
    """The largest number that is added to a product's sums, or that of each channel, in units of
    the sums before anything multiplied them; None where there is none."""
    channels = shape_of(product)[output_channels(product)]
    largest, factors = np.zeros(1), np.ones(1)
    expr: Expr = product
    while len(users := points.users[expr]) == 1 and users[0] is not None:
        (expr,) = users  # type: ignore[assignment]
        if points.roles.get(expr) is not Role.STEP or not isinstance(expr, Call):
            break
        known = [points.view.constant(e) for e in expr.args if points.view.is_constant(e)]
        if not known:
            continue
        numbers = np.abs(known[0].astype(np.float64)).reshape(-1)
        if is_call(expr, "add", "bias_add"):
            numbers = numbers if numbers.size == channels else numbers.max(keepdims=True)
            own = np.divide(
                numbers, factors, out=np.zeros(len(numbers * factors)), where=factors > 0
            )
            largest = np.maximum(largest, own)
        else:
            numbers = numbers if numbers.size == channels else numbers.min(keepdims=True)
            factors = factors * numbers if is_call(expr, "multiply") else factors / numbers
    return largest if largest.any() else None


def _input_scale(points: Points, data: Expr, grids: Mapping[int, Grid]) -> float:
    """The scale of a product's data; 1 where it is not known yet."""
    number = points.grid_of(data)
    if number is not None:
        return grids[number].scale
    if is_call(data, "dequantize") and points.view.is_constant(data["input_scale"]):
        return float(points.view.constant(data["input_scale"]).reshape(-1)[0])
    return 1.0


_BINARY = ("add", "subtract", "multiply", *EXTREMES)


def _dequantized(integers: Expr, at: Grid, name: str) -> Call:
    return dequantize(Integers(integers, (at.scale,), (at.zero_point,)), name)


def with_results(root: Expr, others: Sequence[Expr]) -> Expr:
    """``root``, or the tensors of a tuple, and then ``others``."""
    if not others:
        return root
    own = root.fields if isinstance(root, Tuple) else (root,)
    fields = (*own, *others)
    return Tuple(tuple(each.type for each in fields), load=lambda: fields)
