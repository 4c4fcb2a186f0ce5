"""Quantized values of a model, as the rules ask for them.

A float32 value between a dequantize and a quantize is known as *integers*: an
integer expression with scales and zero points; the float is ``(integer - zero point) * scale``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from tinyai.arithmetic import arithmetic_of
from tinyai.ops.scales import require_positive
from tinyai.source import (
    Call,
    Constant,
    Expr,
    Field,
    Opaque,
    Refusal,
    Rounding,
    SourceType,
    Tuple,
    children,
    post_order,
    require,
)
from tinyai.vocabulary import call, constant, signature

Array = npt.NDArray[Any]
# Integers on the grid of the quantization after an operator.
Rule = Callable[["View", Call, "Grid"], Expr]
# An operator that only moves values, on integers of a grid.
Move = Callable[["View", Call, "Grid", Expr], Expr]
# The value of a constant expression that is more than a constant.
Fold = Callable[[Expr], Array]

NARROW = ("int8", "uint8")
# What values may be quantized to. int16 has its zero point at 0, and no tables of functions.
QUANTIZED = (*NARROW, "int16")
INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class Grid:
    """The dtype, scale and zero point of a whole tensor's quantization."""

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


class Reshaping(Protocol):
    """How sums have another shape than the float value that they stand for."""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """That of the sums for that of the value."""

    def numbers(self, values: Array, rank: int) -> Array:
        """Constants that are added to a value of so many dimensions, for the sums."""

    def channels(self, values: Array) -> Array:
        """Numbers of a value's channels, or one for all, for those of the sums."""

    def undone(self, value: Expr, name: str) -> Call:
        """What became of the sums, in the value's shape."""


@dataclass(frozen=True)
class Integers:
    """A value as integers. There is one scale, or one for each index along ``axis``.

    ``axis`` of an accumulator is its channels', whether there are many scales or one;
    ``reshaping`` where its shape is another one. No sum of int16 is larger than ``largest``; 0
    where nobody asks.
    """

    expr: Expr
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    reshaping: Reshaping | None = None
    largest: int = 0

    @property
    def dtype(self) -> str:
        return self.expr.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.expr)

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


def is_call(expr: Expr | None, *names: str) -> TypeGuard[Call]:
    """Whether an expression calls one of these operators; without names, any operator."""
    return isinstance(expr, Call) and (not names or expr.op in names)


def operator_name(expr: Expr) -> str:
    """The name of an expression in messages."""
    if isinstance(expr, Call):
        return expr.spelled
    kinds = {Constant: "a constant", Tuple: "a tuple", Field: "a part of a tuple"}
    kinds |= {Opaque: "a call of a function"}
    return kinds.get(type(expr), "a parameter")


def name_of(expr: Expr) -> str:
    """Name of the source model's node that made a value, "" where none is known."""
    maker = expr.call if isinstance(expr, Field) else expr
    return maker.name if isinstance(maker, Call) else ""


def shape_of(expr: Expr) -> tuple[int, ...]:
    """Shape of a tensor; refuses a dynamic one."""
    dims = expr.type.shape
    fixed = tuple(dim for dim in dims if dim is not None)
    require(len(fixed) == len(dims), "shape", expr.type, "fixed dimensions")
    return fixed


def own_attributes(call: Call, operator: str) -> dict[str, Any]:
    """The attributes of a call that ``operator`` has too."""
    known = signature(operator)
    assert known is not None
    return {name: call.attrs[name] for name in known.attributes}


def again(call: Call, *args: Expr, dtype: str) -> Call:
    """The same operator on other arguments, for results of type ``dtype``."""
    types = tuple(replace(of, dtype=dtype) for of in call.types)
    return replace(call, types=types, load_attrs=lambda: call.attrs, load=lambda: args)


def tuple_of(*exprs: Expr) -> Tuple:
    return Tuple(tuple(expr.type for expr in exprs), load=lambda: exprs)


def of(shape: tuple[int, ...], dtype: str) -> SourceType:
    return SourceType(shape, dtype)


def retyped(expr: Expr, dtype: str) -> SourceType:
    """The type of an expression with another dtype."""
    return replace(expr.type, dtype=dtype)


def reshaped(value: Expr, shape: tuple[int, ...], name: str) -> Call:
    return call("reshape", of(shape, value.type.dtype), value, name=name)


def scalars(values: tuple[Any, ...], dtype: str) -> Constant:
    """Scales or zero points: one number or a vector."""
    return constant(values[0] if len(values) == 1 else values, dtype)


def scale_and_zero(grid: Grid) -> tuple[Constant, Constant]:
    return constant(grid.scale, "float32"), constant(grid.zero_point, "int32")


def requantize(value: Integers, grid: Grid, name: str) -> Expr:
    """Integers on another grid: the same expression where it is there already.

    Sums that may have more than 32 bits go by way of float64: else TVM cuts them to 32 bits first.
    """
    if not value.per_channel and value.grid == grid:
        return value.expr
    return call(
        "requantize",
        retyped(value.expr, grid.dtype),
        value.expr,
        scalars(value.scales, "float32"),
        scalars(value.zero_points, "int32"),
        *scale_and_zero(grid),
        name=name,
        axis=-1 if value.axis is None else value.axis,
        rounding="None",
        compute_dtype="float64" if value.largest > INT32.max else "None",
    )


def dequantize(value: Integers, name: str) -> Call:
    """The float value of integers."""
    pair = scale_and_zero(value.grid)
    return call("dequantize", retyped(value.expr, "float32"), value.expr, *pair, name=name, axis=-1)


def quantize(value: Expr, grid: Grid, name: str) -> Call:
    """A float value on a grid."""
    pair = scale_and_zero(grid)
    return call("quantize", retyped(value, grid.dtype), value, *pair, name=name, axis=-1)


def with_dtype(value: Integers, dtype: str, name: str) -> Integers:
    """The same values as other integers, so that nothing is lost: 8 bits as int16 with zero point
    0; int8 as uint8 or back, integers and zero point moved by 128."""
    if value.dtype == dtype:
        return value
    grid = value.grid
    zero = 0 if dtype == "int16" else grid.zero_point + (128 if dtype == "uint8" else -128)
    moved = Grid(dtype, grid.scale, zero)
    if isinstance(value.expr, Constant):
        wide = value.expr.value.astype(np.int32) - grid.zero_point + zero
        expr: Expr = constant(wide.astype(dtype))
    else:
        expr = requantize(value, moved, name)
    return replace(value, expr=expr, zero_points=(moved.zero_point,))


class View:
    """A model as it was, and what its expressions became so far (``new``).

    The methods that find a value refuse, with a reason, one that is not quantized or whose float
    is wanted elsewhere too.
    """

    def __init__(
        self,
        root: Expr,
        moves: dict[str, Move],
        rounding: Rounding,
        fold: Fold | None,
        *,
        as_written: bool = False,
    ) -> None:
        self.arithmetic, self.as_written = arithmetic_of(rounding), as_written
        self.order = tuple(post_order(root))
        self.new: dict[Expr, Expr] = {}
        self.splits: dict[Expr, Call] = {}
        self._fold = fold
        self._moves = moves
        self._constant = _constant_expressions(self.order)

    @functools.cached_property
    def _places(self) -> dict[Expr, int]:
        return {expr: place for place, expr in enumerate(self.order)}

    def place(self, expr: Expr) -> int:
        """The number of an expression in the order of computation."""
        return self._places[expr]

    # --- who uses a value ---

    @functools.cached_property
    def _users(self) -> dict[Expr, set[object]]:
        users: dict[Expr, set[object]] = {expr: set() for expr in self.order}
        users[self.order[-1]].add("the result of the model")
        for expr in self.order:
            key = self._user_key(expr)
            for child in children(expr):
                users[child].add(key)
        return users

    def _user_key(self, expr: Expr) -> object:
        """Quantizations to one grid count as one user: their results are one value."""
        try:
            return self.grid(expr) if is_call(expr, "quantize") else expr
        except Refusal:
            return expr

    def alone(self, expr: Expr) -> None:
        """Refuse a float value that more than one operator reads."""
        count = len(self._users[expr])
        require(count == 1, f"users of the float32 result of {operator_name(expr)}", count, "one")

    def within(self, expr: Expr, calls: set[Expr]) -> bool:
        """Whether nothing but ``calls`` and quantizations to one grid read a float value."""
        return len(self._users[expr] - calls) <= 1 and self.only_for(expr, calls)

    def is_inside(self, expr: Expr, calls: set[Expr]) -> bool:
        """Whether nothing but ``calls`` read a value."""
        return self._users[expr] <= calls

    def only_for(self, expr: Expr, calls: set[Expr]) -> bool:
        """Whether nothing but ``calls`` and quantizations read a float value."""
        return all(isinstance(user, Grid) for user in self._users[expr] - calls)

    # --- constants ---

    def is_constant(self, expr: Expr) -> bool:
        return expr in self._constant

    def constant(self, expr: Expr) -> Array:
        """Value of a constant expression, dequantized constants in float64."""
        require(self.is_constant(expr), "operand", operator_name(expr), "a constant")
        if isinstance(expr, Constant):
            return expr.value
        if is_call(expr, "dequantize"):
            value = self._dequantized(expr)
            values = self.constant(expr["data"]).astype(np.float64)
            offset = value.along_axis(value.zero_points)
            return np.asarray((values - offset) * value.along_axis(value.scales))
        if is_call(expr, "quantize"):
            return self.grid(expr).quantize(self.constant(expr["data"]))
        if is_call(expr, "reshape", "transpose"):
            return moved_constant(expr, self.constant(expr["data"]))
        if self._fold is None:
            raise Refusal("constant", operator_name(expr), "a known one")
        return self._fold(expr)

    def uniform(self, expr: Expr) -> float | None:
        """The one value that a constant holds everywhere, None where there is none, or where only
        a framework could compute it."""
        if not self.is_constant(expr) and is_call(expr, "reshape", "broadcast_to_like"):
            return self.uniform(expr["data"])  # the shape is read from a value of run time
        if not self.is_constant(expr) or isinstance(expr, Tuple) or len(expr.types) != 1:
            return None
        try:
            values = self.constant(expr)
        except Refusal:
            return None
        same = values.size > 0 and bool((values == values.flat[0]).all())
        return float(values.flat[0]) if same else None

    # --- scales and zero points ---

    def _vector(self, expr: Expr, what: str) -> tuple[Any, ...]:
        require(self.is_constant(expr), what, operator_name(expr), "constants")
        return tuple(self.constant(expr).reshape(-1).tolist())

    def grid(self, quantize: Call) -> Grid:
        """Where a quantize rounds to; refuses one per channel, and other widths."""
        scales = self._vector(quantize["output_scale"], "scale")
        points = self._vector(quantize["output_zero_point"], "zero point")
        dtype = quantize.type.dtype
        require(dtype in QUANTIZED, "dtype of the quantization", dtype, " or ".join(QUANTIZED))
        require(len(scales) == 1 == len(points), "scales", len(scales), "one for the whole tensor")
        require_positive(scales, "scale")
        return Grid(dtype, scales[0], points[0])

    def _dequantized(self, call: Call) -> Integers:
        """The integers under a dequantize."""
        data, shape = call["data"], shape_of(call)
        scales = self._vector(call["input_scale"], "scale")
        points = self._vector(call["input_zero_point"], "zero point")
        points = points[:1] if len(set(points)) == 1 else points
        dtype, known = data.type.dtype, self.is_constant(data)
        allowed = (*QUANTIZED, "int32") if known else QUANTIZED
        require(dtype in allowed, "dtype of the quantized value", dtype, " or ".join(allowed))
        require_positive(scales, "scale")
        axis = int(call.attrs["axis"]) % max(len(shape), 1) if len(scales + points) > 2 else None
        expr = constant(self.constant(data), dtype) if known else self.new[data]
        return Integers(expr, scales, points, axis)

    # --- values ---

    def integers(self, expr: Expr) -> Integers:
        """The integers of a dequantized value, through operators that only move values."""
        if is_call(expr, "dequantize"):
            return self._dequantized(expr)
        if isinstance(expr, Field):
            return self._split(expr)
        if not is_call(expr, *self._moves):
            raise Refusal("input", operator_name(expr), "a quantized value")
        if not self.is_constant(expr):
            self.alone(expr)
        value = self.integers(expr.args[0])
        if isinstance(value.expr, Constant) and is_call(expr, "reshape", "transpose"):
            moved: Expr = constant(moved_constant(expr, value.expr.value), value.dtype)
        else:
            moved = self.move(expr, value.expr, value.grid, exact=True)
        axis = None
        if value.per_channel:
            assert value.axis is not None
            axis = moved_axis(expr, value.shape, value.axis)
        return replace(value, expr=moved, axis=axis)

    def move(self, call: Call, value: Expr, grid: Grid, *, exact: bool = False) -> Expr:
        """The operator ``call``, which only moves values, on integers. ``exact`` refuses a value
        that it adds where the grid does not hold it."""
        if exact and is_call(call, "pad"):
            padding = self.uniform(call["value"])
            held = padding is not None and grid.holds(padding)
            require(held, "padding", padding, "a value that the scale holds exactly")
        return self._moves[call.op](self, call, grid, value)

    def _split(self, item: Field) -> Integers:
        """The integers of one part of a split, all parts of which must end in quantizations: else
        it would be computed twice."""
        split = item.call
        require(is_call(split, "split"), "input", operator_name(split), "a quantized value")
        parts = self._users[split]
        ends = all(
            isinstance(part, Field) and all(isinstance(user, Grid) for user in self._users[part])
            for part in parts
        )
        require(ends, "parts of the split", "one is used as float32", "each is quantized")
        value = self.integers(split.args[0])
        require(not value.per_channel, "scales", len(value.scales), "one for the whole tensor")
        if split not in self.splits:
            self.splits[split] = again(split, value.expr, dtype=value.dtype)
        return replace(value, expr=self.splits[split].fields[item.index])


def moved_constant(call: Call, value: Array) -> Array:
    """A constant after a reshape, a transpose or a broadcast."""
    if is_call(call, "transpose"):
        return np.ascontiguousarray(value.transpose(call.attrs["axes"]))
    if is_call(call, "broadcast_to"):
        return np.ascontiguousarray(np.broadcast_to(value, shape_of(call)))
    return value.reshape(shape_of(call))


def moved_axis(call: Call, shape: tuple[int, ...], along: int) -> int:
    """Where the axis ``along`` of a value of this shape is after a move; refuses a move that mixes
    it with others."""
    if is_call(call, "transpose"):
        axes, rank = call.attrs["axes"], len(shape)
        order = tuple(reversed(range(rank))) if axes is None else axes
        return [axis % rank for axis in order].index(along)
    after = shape_of(call)
    before = np.prod(shape[:along], dtype=np.int64)
    sizes = itertools.accumulate((1, *after), lambda a, b: a * b)
    places = [
        axis
        for axis, (size, dim) in enumerate(zip(sizes, after, strict=False))
        if size == before and dim == shape[along]
    ]
    kept = is_call(call, "reshape") and bool(places)
    require(kept, f"per-channel scales through {call.spelled}", shape, "an axis kept whole")
    return places[0]


def _constant_expressions(order: tuple[Expr, ...]) -> set[Expr]:
    """All expressions that depend on no parameter."""
    found: set[Expr] = set()
    for expr in order:
        below = children(expr)
        inner = bool(below) and all(child in found for child in below)
        if isinstance(expr, Constant) or (inner and not isinstance(expr, Opaque)):
            found.add(expr)
    return found


def float_calls(exprs: tuple[Expr, ...]) -> Iterator[Call]:
    """Calls with a float result, tuples included, that neither quantize nor dequantize."""
    for expr in exprs:
        floats = any(of.dtype.startswith("float") for of in expr.types)
        if floats and is_call(expr) and not is_call(expr, "quantize", "dequantize"):
            yield expr
