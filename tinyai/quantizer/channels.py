"""Channels of values that can only be scaled together, and layers that can take the factors.

Where operators ``f`` with ``f(s * x) == s * f(x)`` for every ``s > 0`` lead from a layer to the
next, a channel may be divided by ``s`` in the first layer's weights and bias, and multiplied by it
in the second's weights. ``Channels`` numbers the channels of every value so that what must have one
factor has one number: operands of a sum have the same numbers, a concatenation has those of its
parts one after the other, a flattened image each one as often as it has pixels. Channels that
nothing can make up for, such as those of the model's inputs and outputs and of a sigmoid's operand,
have the number 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tinyai.qdq.operands import is_call, shape_of
from tinyai.quantizer.folding import input_channels, output_channels, weight_channels
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Points
from tinyai.quantizer.roles import Role
from tinyai.source import Call, Expr, Tuple, children

# Of a positive factor of a channel these make the same factor of the result.
HOMOGENEOUS = (
    *("relu", "leaky_relu", "prelu", "max_pool2d", "avg_pool2d", "copy"),
    *("global_avg_pool2d", "global_max_pool2d", "resize2d", "upsampling"),
)


class Channels:
    """``numbers`` are those of the channels of each value that has them, ``axes`` say along which
    axis these channels are; ``count`` is one more than the largest number.

    A bound that holds 0, such as that of relu6, may be in between although it is not homogeneous:
    with factors of at most 1 it cuts nothing that the value's range holds.
    """

    def __init__(self, points: Points) -> None:
        self._points, self._view = points, points.view
        self.numbers: dict[Expr, Array] = {}
        self.axes: dict[Expr, int] = {}
        self._parents = [0]
        for expr in points.order:
            self._visit(expr)
        root = points.order[-1]
        self._fix(root.fields if isinstance(root, Tuple) else (root,))
        fixed = points.fixed.keys() | points.shares.keys()
        self._fix(point.expr for point in points.points if point.grid in fixed)
        roots = np.array([self._root(number) for number in range(len(self._parents))])
        self.numbers = {expr: roots[numbers] for expr, numbers in self.numbers.items()}
        self.count = len(roots)

    def is_layer(self, expr: Expr) -> bool:
        """Whether an expression is a layer whose weights can take factors."""
        if not is_call(expr, "conv2d", "dense") or self._points.roles.get(expr) is not Role.PRODUCT:
            return False
        known = self._view.is_constant(expr["weight"]) and not is_call(expr["weight"], "dequantize")
        return known and weight_channels(expr) is not None

    # --- unions ---

    def _new(self, count: int) -> Array:
        first = len(self._parents)
        self._parents += range(first, first + count)
        return np.arange(first, first + count)

    def _root(self, number: int) -> int:
        parents = self._parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    def _join(self, one: Array, other: Array) -> None:
        """The least number stands for all, so that what is joined with 0 is 0."""
        for pair in np.unique(np.stack([one.reshape(-1), other.reshape(-1)], 1), axis=0).tolist():
            low, high = sorted(map(self._root, pair))
            self._parents[high] = low

    def _fix(self, exprs: Iterable[Expr]) -> None:
        for expr in exprs:
            if isinstance(expr, Tuple):
                self._fix(expr.fields)
            elif expr in self.numbers:
                self._join(self.numbers[expr], np.zeros_like(self.numbers[expr]))

    # --- operators ---

    def _visit(self, expr: Expr) -> None:
        if isinstance(expr, Tuple) or self._view.is_constant(expr):
            return
        if self.is_layer(expr):
            assert isinstance(expr, Call)
            axis = input_channels(expr)
            data = expr["data"]
            convolves = is_call(expr, "conv2d")
            wanted = expr.attrs["layout"].index("C") if convolves else len(shape_of(data)) - 1
            if axis is None or self.axes.get(data) != wanted:
                self._fix([data])
            axis = output_channels(expr)
            self.numbers[expr], self.axes[expr] = self._new(shape_of(expr)[axis]), axis
            return
        found = self._handed_on(expr) if isinstance(expr, Call) else None
        if found is None:
            self._fix(children(expr))
        else:
            self.numbers[expr], self.axes[expr] = found

    def _handed_on(self, call: Call) -> tuple[Array, int] | None:
        """The numbers and the axis of the channels of what hands them on; None of others."""
        data = [*self._points.operands(call)]
        if not data or len(call.types) != 1 or call.type.dtype != "float32":
            return None
        if None in call.type.shape:
            return None
        if is_call(call, "multiply") and len(data) == 2:  # by a gate
            data.sort(key=lambda each: shape_of(each) != shape_of(call) or each not in self.numbers)
            self._fix(data[1:])
        elif not all(each in self.numbers for each in data):
            return None
        if data[0] not in self.numbers:
            return None
        numbers, axis = self.numbers[data[0]], self.axes[data[0]]
        axes = {self.axes.get(each) for each in data}
        if is_call(call, "add", "subtract") and len(data) == 2:
            if axes != {axis} or any(shape_of(each) != shape_of(call) for each in data):
                return None
            self._join(numbers, self.numbers[data[1]])
        elif is_call(call, "concatenate"):
            if axes != {axis} or call.attrs["axis"] % len(call.type.shape) != axis:
                return None
            numbers = np.concatenate([self.numbers[each] for each in data])
            if len(numbers) != shape_of(call)[axis]:  # a constant is joined too
                return None
        elif is_call(call, "multiply"):
            if len(data) != 2 or shape_of(data[0]) != shape_of(call):
                return None
        elif len(data) == 1:
            return self._of_one(call, data[0], numbers, axis)
        else:
            return None
        return numbers, axis

    def _of_one(
        self, call: Call, data: Expr, numbers: Array, axis: int
    ) -> tuple[Array, int] | None:
        before, after = shape_of(data), shape_of(call)
        if is_call(call, "bias_add", "add"):
            return (numbers, axis) if self._is_bias(call, axis) else None
        if is_call(call, *HOMOGENEOUS):
            return (numbers, axis) if before[axis] == after[axis] else None
        if is_call(call, "clip"):
            return (numbers, axis) if call.attrs["low"] <= 0 <= call.attrs["high"] else None
        if is_call(call, "pad") and self._view.uniform(call["value"]) == 0:
            low, high = call.attrs["widths"][axis]
            return np.concatenate([self._new(low), numbers, self._new(high)]), axis
        if is_call(call, "mean") and len(before) == len(after) and before[axis] == after[axis]:
            return numbers, axis
        if is_call(call, "transpose"):
            axes = call.attrs["axes"] or range(len(before))[::-1]
            return numbers, [each % len(before) for each in axes].index(axis)
        if is_call(call, "reshape") and len(after) == 2 and after[0] == 1:
            along = numbers.reshape([-1 if d == axis else 1 for d in range(len(before))])
            return np.broadcast_to(along, before).reshape(-1), 1
        return None

    def _is_bias(self, call: Call, axis: int) -> bool:
        """Whether a call adds a constant, one number a channel, to the sums of a layer."""
        if self._points.roles.get(call) is not Role.STEP:
            return False
        if is_call(call, "bias_add"):
            return int(call.attrs["axis"]) % len(call.type.shape) == axis
        (known,) = (arg for arg in call.args if self._view.is_constant(arg))
        after = shape_of(call)
        shape = (1,) * (len(after) - len(shape_of(known))) + shape_of(known)
        return shape == tuple(n if d == axis else 1 for d, n in enumerate(after))


def along(numbers: Array, rank: int, axis: int) -> Array:
    """Numbers of channels in the form that multiplies a tensor."""
    return numbers.reshape([-1 if d == axis else 1 for d in range(rank)])
