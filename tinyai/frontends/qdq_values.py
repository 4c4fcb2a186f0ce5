"""Quantized values of a Relay function, as the rules of ``qdq_rules`` ask for them.

A float32 value between a ``qnn.dequantize`` and a ``qnn.quantize`` is known as *integers*: an
integer expression with scales and zero points; the float is ``(integer - zero point) * scale``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relay

from tinyai.frontends.relay_source import attributes, children, post_order
from tinyai.ops.scales import require_positive
from tinyai.source import Refusal, Rounding, require

Array = npt.NDArray[Any]
Move = Callable[["View", relay.Call, "Grid", relay.Expr], relay.Expr]

NARROW = ("int8", "uint8")
INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class Grid:
    """What a ``qnn.quantize`` of a whole tensor rounds to."""

    dtype: str
    scale: float
    zero_point: int

    def quantize(self, values: Array) -> Array:
        """Floats on the grid as ONNX rounds them: half to even, saturated."""
        limits = np.iinfo(self.dtype)
        steps = np.rint(np.asarray(values, np.float64) / self.scale) + self.zero_point
        return np.asarray(np.clip(steps, limits.min, limits.max), self.dtype)

    def holds(self, value: float) -> bool:
        """Whether a float is one of the grid's values, and not just near one."""
        return bool((int(self.quantize(np.array(value))) - self.zero_point) * self.scale == value)


@dataclass(frozen=True)
class Integers:
    """A value as integers. There is one scale, or one for each index along ``axis``.

    ``axis`` of an accumulator is its channels', whether there are many scales or one. ``added``
    is a dimension of length 1 that the float value does not have: the height of a convolution
    along one dimension.
    """

    expr: relay.Expr
    dtype: str
    shape: tuple[int, ...]
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    added: int | None = None

    @property
    def per_channel(self) -> bool:
        return len(self.scales) > 1 or len(self.zero_points) > 1

    @property
    def grid(self) -> Grid:
        """Scale and zero point of a value that has one of each; refuses any other."""
        require(not self.per_channel, "scales", len(self.scales), "one for the whole tensor")
        return Grid(self.dtype, self.scales[0], self.zero_points[0])

    def along_axis(self, values: tuple[Any, ...]) -> Array:
        """Scales or zero points in a shape that broadcasts with the integers."""
        if len(values) == 1 or self.axis is None:
            return np.array(values[0])
        shape = [len(values) if d == self.axis else 1 for d in range(len(self.shape))]
        return np.array(values).reshape(shape)


def is_call(expr: relay.Expr, *names: str) -> bool:
    """Whether an expression calls one of these operators; without names, any operator."""
    called = isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op)
    return called and (not names or expr.op.name in names)


def operator_name(expr: relay.Expr) -> str:
    """How a message calls an expression."""
    if is_call(expr):
        return str(expr.op.name)
    return "a parameter" if isinstance(expr, relay.Var) else f"a {type(expr).__name__}"


def shape_of(expr: relay.Expr) -> tuple[int, ...]:
    """Shape of a tensor; refuses a dynamic one."""
    dims = expr.checked_type.shape
    require(all(isinstance(d, tvm.tir.IntImm) for d in dims), "shape", dims, "fixed dimensions")
    return tuple(int(d) for d in dims)


def spanned(call: relay.Call, span: Any) -> relay.Call:
    """The same call under the source name of another."""
    return relay.Call(call.op, call.args, call.attrs, None, span)


def again(call: relay.Call, *args: relay.Expr) -> relay.Call:
    """The same operator on other arguments; types are inferred anew."""
    return relay.Call(call.op, list(args), call.attrs, None, call.span)


def scalars(values: tuple[Any, ...], dtype: str) -> relay.Constant:
    """Scales or zero points as Relay's QNN operators take them: a scalar or a vector."""
    return relay.const(np.array(values[0] if len(values) == 1 else values, dtype), dtype)


def requantize(value: Integers, grid: Grid, span: Any) -> relay.Expr:
    """Integers on another grid: the same expression where it is there already."""
    if not value.per_channel and value.grid == grid:
        return value.expr
    call = relay.qnn.op.requantize(
        value.expr,
        scalars(value.scales, "float32"),
        scalars(value.zero_points, "int32"),
        relay.const(grid.scale, "float32"),
        relay.const(grid.zero_point, "int32"),
        axis=-1 if value.axis is None else value.axis,
        out_dtype=grid.dtype,
    )
    return spanned(call, span)


def dequantize(value: Integers, span: Any) -> relay.Call:
    """The float value of integers."""
    grid = value.grid
    scale, zero_point = relay.const(grid.scale, "float32"), relay.const(grid.zero_point, "int32")
    return spanned(relay.qnn.op.dequantize(value.expr, scale, zero_point), span)


def quantize(value: relay.Expr, grid: Grid, span: Any) -> relay.Call:
    """A float value on a grid."""
    scale, zero_point = relay.const(grid.scale, "float32"), relay.const(grid.zero_point, "int32")
    rounded = relay.qnn.op.quantize(value, scale, zero_point, out_dtype=grid.dtype)
    return spanned(rounded, span)


def with_dtype(value: Integers, dtype: str, span: Any) -> Integers:
    """int8 as uint8 or back: integers and zero point move by 128, so that nothing is lost."""
    if value.dtype == dtype:
        return value
    grid = value.grid
    shift = 128 if dtype == "uint8" else -128
    moved = Grid(dtype, grid.scale, grid.zero_point + shift)
    if isinstance(value.expr, relay.Constant):
        wide = value.expr.data.numpy().astype(np.int32) + shift
        expr: relay.Expr = relay.const(wide.astype(dtype), dtype)
    else:
        expr = requantize(value, moved, span)
    return replace(value, expr=expr, dtype=dtype, zero_points=(moved.zero_point,))


class View:
    """A typed function as it was, and what its expressions became so far (``new``).

    The methods that find a value refuse, with a reason, one that is not quantized or whose float
    is wanted elsewhere too.
    """

    def __init__(self, func: relay.Function, moves: dict[str, Move], rounding: Rounding) -> None:
        self.rounding = rounding
        self.order = tuple(post_order(func.body))
        self.new: dict[relay.Expr, relay.Expr] = {}
        self.splits: dict[relay.Expr, relay.Expr] = {}
        self._moves = moves
        self._constant = _constant_expressions(self.order)

    @functools.cached_property
    def _places(self) -> dict[relay.Expr, int]:
        return {expr: place for place, expr in enumerate(self.order)}

    def place(self, expr: relay.Expr) -> int:
        """Where an expression comes in the order of computation."""
        return self._places[expr]

    # --- who uses a value ---

    @functools.cached_property
    def _users(self) -> dict[relay.Expr, set[object]]:
        users: dict[relay.Expr, set[object]] = {expr: set() for expr in self.order}
        users[self.order[-1]].add("the result of the function")
        for expr in self.order:
            key = self._user_key(expr)
            for child in children(expr):
                users[child].add(key)
        return users

    def _user_key(self, expr: relay.Expr) -> object:
        """Quantizations to one grid count as one user: their results are one value."""
        try:
            return self.grid(expr) if is_call(expr, "qnn.quantize") else expr
        except Refusal:
            return expr

    def alone(self, expr: relay.Expr) -> None:
        """Refuse a float value that more than one operator reads."""
        count = len(self._users[expr])
        require(count == 1, f"users of the float32 result of {operator_name(expr)}", count, "one")

    def within(self, expr: relay.Expr, calls: set[relay.Expr]) -> bool:
        """Whether nothing but ``calls`` and quantizations to one grid read a float value."""
        others = self._users[expr] - calls
        return len(others) <= 1 and all(isinstance(user, Grid) for user in others)

    # --- constants ---

    def is_constant(self, expr: relay.Expr) -> bool:
        return expr in self._constant

    def constant(self, expr: relay.Expr) -> Array:
        """Value of a constant expression, dequantized constants in float64."""
        require(self.is_constant(expr), "operand", operator_name(expr), "a constant")
        if isinstance(expr, relay.Constant):
            return np.asarray(expr.data.numpy())
        if is_call(expr, "qnn.dequantize"):
            value = self._dequantized(expr)
            values = value.expr.data.numpy().astype(np.float64)
            offset = value.along_axis(value.zero_points)
            return np.asarray((values - offset) * value.along_axis(value.scales))
        if is_call(expr, "qnn.quantize"):
            return self.grid(expr).quantize(self.constant(expr.args[0]))
        if is_call(expr, *RESHAPES, "transpose"):
            return moved_constant(expr, self.constant(expr.args[0]))
        folded = relay.transform.FoldConstantExpr(expr, tvm.IRModule(), fold_qnn=True)
        require(isinstance(folded, relay.Constant), "constant", operator_name(expr), "a known one")
        return np.asarray(folded.data.numpy())

    def uniform(self, expr: relay.Expr) -> float | None:
        """The one value that a constant holds everywhere, None where there is none."""
        if not self.is_constant(expr) and is_call(expr, "reshape", "broadcast_to_like"):
            return self.uniform(expr.args[0])  # the shape is read from a value of run time
        if not self.is_constant(expr) or not isinstance(expr.checked_type, relay.TensorType):
            return None
        values = self.constant(expr)
        same = values.size > 0 and bool((values == values.flat[0]).all())
        return float(values.flat[0]) if same else None

    # --- scales and zero points ---

    def _vector(self, expr: relay.Expr, what: str) -> tuple[Any, ...]:
        require(self.is_constant(expr), what, operator_name(expr), "constants")
        return tuple(self.constant(expr).reshape(-1).tolist())

    def grid(self, quantize: relay.Call) -> Grid:
        """Where a ``qnn.quantize`` rounds to; refuses one per channel, and other widths."""
        scales = self._vector(quantize.args[1], "scale")
        points = self._vector(quantize.args[2], "zero point")
        dtype = str(quantize.attrs.out_dtype)
        require(dtype in NARROW, "dtype of the quantization", dtype, " or ".join(NARROW))
        require(len(scales) == 1 == len(points), "scales", len(scales), "one for the whole tensor")
        require_positive(scales, "scale")
        return Grid(dtype, scales[0], points[0])

    def _dequantized(self, call: relay.Call) -> Integers:
        """The integers under a ``qnn.dequantize``."""
        data, shape = call.args[0], shape_of(call)
        scales, points = (
            self._vector(call.args[1], "scale"),
            self._vector(call.args[2], "zero point"),
        )
        points = points[:1] if len(set(points)) == 1 else points
        dtype = str(data.checked_type.dtype)
        constant = self.is_constant(data)
        allowed = (*NARROW, "int32") if constant else NARROW
        require(dtype in allowed, "dtype of the quantized value", dtype, " or ".join(allowed))
        require_positive(scales, "scale")
        axis = int(call.attrs.axis) % max(len(shape), 1) if len(scales + points) > 2 else None
        expr = relay.const(self.constant(data), dtype) if constant else self.new[data]
        return Integers(expr, dtype, shape, scales, points, axis)

    # --- values ---

    def integers(self, expr: relay.Expr) -> Integers:
        """The integers of a dequantized value, through operators that only move values."""
        if is_call(expr, "qnn.dequantize"):
            return self._dequantized(expr)
        if isinstance(expr, relay.TupleGetItem):
            return self._split(expr)
        moves = is_call(expr) and expr.op.name in self._moves
        require(moves, "input", operator_name(expr), "a quantized value")
        if not self.is_constant(expr):
            self.alone(expr)
        value = self.integers(expr.args[0])
        if isinstance(value.expr, relay.Constant) and is_call(expr, *RESHAPES, "transpose"):
            moved: relay.Expr = relay.const(
                moved_constant(expr, value.expr.data.numpy()), value.dtype
            )
        else:
            moved = self.move(expr, value.expr, value.grid, exact=True)
        axis = _moved_axis(expr, value) if value.per_channel else None
        return replace(value, expr=moved, shape=shape_of(expr), axis=axis)

    def move(
        self, call: relay.Call, value: relay.Expr, grid: Grid, *, exact: bool = False
    ) -> relay.Expr:
        """The operator ``call``, which only moves values, on integers. ``exact`` refuses a value
        that it adds where the grid does not hold it."""
        if exact and is_call(call, "nn.pad"):
            padding = self.uniform(call.args[1])
            held = padding is not None and grid.holds(padding)
            require(held, "padding", padding, "a value that the scale holds exactly")
        return self._moves[call.op.name](self, call, grid, value)

    def _split(self, item: relay.TupleGetItem) -> Integers:
        """One part of a split: all parts must end in quantizations, or it were computed twice."""
        split = item.tuple_value
        require(is_call(split, "split"), "input", operator_name(split), "a quantized value")
        parts = self._users[split]
        ends = all(isinstance(p, relay.TupleGetItem) for p in parts) and all(
            isinstance(user, Grid) for part in parts for user in self._users[part]
        )
        require(ends, "parts of the split", "one is used as float32", "each is quantized")
        value = self.integers(split.args[0])
        require(not value.per_channel, "scales", len(value.scales), "one for the whole tensor")
        if split not in self.splits:
            self.splits[split] = again(split, value.expr)
        part = relay.TupleGetItem(self.splits[split], item.index, item.span)
        return replace(value, expr=part, shape=shape_of(item))


RESHAPES = ("reshape", "expand_dims", "squeeze", "nn.batch_flatten")


def moved_constant(call: relay.Call, value: Array) -> Array:
    """A constant after one of ``RESHAPES`` or a transpose."""
    if is_call(call, "transpose"):
        return np.ascontiguousarray(value.transpose(attributes(call.attrs)["axes"]))
    return value.reshape(shape_of(call))


def _moved_axis(call: relay.Call, value: Integers) -> int:
    """Where a per-channel axis is after a move; refuses a move that mixes it with others."""
    assert value.axis is not None
    if is_call(call, "transpose"):
        axes = attributes(call.attrs)["axes"]
        rank = len(value.shape)
        order = tuple(reversed(range(rank))) if axes is None else axes
        return [axis % rank for axis in order].index(value.axis)
    after = shape_of(call)
    before = np.prod(value.shape[: value.axis], dtype=np.int64)
    sizes = itertools.accumulate((1, *after), lambda a, b: a * b)
    places = [
        axis
        for axis, (size, dim) in enumerate(zip(sizes, after, strict=False))
        if size == before and dim == value.shape[value.axis]
    ]
    kept = is_call(call, *RESHAPES) and bool(places)
    require(kept, f"per-channel scales through {call.op.name}", value.shape, "an axis kept whole")
    return places[0]


def _constant_expressions(order: tuple[relay.Expr, ...]) -> set[relay.Expr]:
    """All expressions that depend on no parameter."""
    found: set[relay.Expr] = set()
    for expr in order:
        below = children(expr)
        inner = bool(below) and all(child in found for child in below)
        if isinstance(expr, relay.Constant) or (inner and not _calls_function(expr)):
            found.add(expr)
    return found


def _calls_function(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Call) and not isinstance(expr.op, tvm.ir.Op)


def float_calls(exprs: tuple[relay.Expr, ...]) -> Iterator[relay.Call]:
    """Calls with a float result, tuples included, that neither quantize nor dequantize."""
    for expr in exprs:
        if is_call(expr) and not is_call(expr, "qnn.quantize", "qnn.dequantize"):
            kind = expr.checked_type
            types = kind.fields if isinstance(kind, relay.TupleType) else [kind]
            if any(t.dtype.startswith("float") for t in types if isinstance(t, relay.TensorType)):
                yield expr
