"""Which values of a float model are quantized, and which of them share a grid.

A value gets a quantize and a dequantize unless its operator is taken together with the one after it
(``roles.py``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tinyai.errors import OptionError
from tinyai.ops.reduce import axes_of
from tinyai.qdq.averages import AVERAGES
from tinyai.qdq.functions import SOFTMAX, has_16_bits
from tinyai.qdq.limits import EXTREMES
from tinyai.qdq.operands import NARROW, QUANTIZED, Fold, Grid, is_call, operator_name
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.params import configured_grid
from tinyai.quantizer.residuals import residual_values
from tinyai.quantizer.roles import Role, Roles
from tinyai.safe_text import safe
from tinyai.source import Call, Expr, Refusal, Tuple, children, tensors_of

# Operators whose results may share the grid of their input.
SHARING = (*AVERAGES, "global_avg_pool2d", "adaptive_avg_pool1d", "mean")


@dataclass(frozen=True, eq=False)
class Point:
    """A float value that becomes quantized. Those with one ``grid`` share scale and zero point;
    ``observed`` is False where its values are seen elsewhere on that grid."""

    expr: Expr
    name: str
    operator: str
    grid: int
    observed: bool


@dataclass(frozen=True)
class Shares:
    """The grid of softmaxes along axes of ``length`` or more, in 8 bits.

    TFLite's and ONNX Runtime's own quantizers give all of them the scale 1/256. Of thousands of
    places each has less than half of such a step, so what layers read of them has a finer one.
    """

    dtype: str
    length: int

    def grid(self, largest: float = 1.0) -> Grid:
        """For shares up to ``largest``: a power of two. ONNX Runtime's integers are powers of e
        times its reciprocal: with a smaller one they would need divisions in C, or be infinite."""
        halvings = min(-math.log2(largest) if largest > 0 else 0, math.log2(self.length) - 2)
        scale = 2.0 ** -(8 + max(0, math.floor(halvings)))
        return Grid(self.dtype, scale, np.iinfo(self.dtype).min)


class Points(Roles):
    """``points`` in order of computation; ``dtypes`` are those of their grids, ``fixed`` grids that
    no sample decides, ``shares`` those of softmaxes that layers read. ``wide`` are values whose
    layers have 16 bits beside those of the configuration; ``sources`` lead from expressions of the
    model that was folded to this one's.

    Raises ``OptionError`` for a name in the configuration that no layer has.
    """

    def __init__(
        self,
        root: Expr,
        config: QuantConfig,
        fold: Fold | None = None,
        floats: Mapping[Expr, Refusal] = MappingProxyType({}),
        wide: Collection[Expr] = (),
        sources: Mapping[Expr, Expr] = MappingProxyType({}),
    ) -> None:
        self._chosen_wide, self.sources = wide, sources
        super().__init__(root, config, fold, floats)
        while more := self._narrow_beside_wide() - self._narrow:
            self._narrow |= more
            self._decide()
        self._require_names()

    def _decide(self) -> None:
        super()._decide()
        self.fixed: dict[int, Grid] = {}
        self.shares: dict[int, Shares] = {}
        self.points = self._points()
        self.dtypes = self._dtypes()

    @property
    def root(self) -> Expr:
        """The model."""
        return self.order[-1]

    def places(self) -> list[int]:
        """Where in the model's order each point is."""
        return [self.view.place(point.expr) for point in self.points]

    def grid_of(self, expr: Expr) -> int | None:
        """The number of the grid that a value is on, None where it has none here."""
        return next((point.grid for point in self.points if point.expr is expr), None)

    def softmax_axis(self, expr: Expr) -> int | None:
        """The axis of the softmaxes, or sums of powers, that alone read a value, perhaps moved or
        as a part of more; None of any other value."""
        readers = self.users[expr]
        axes = {None if r is None else self._axis_told_apart(expr, r) for r in readers}
        only_largest = all(is_call(reader, "max") for reader in readers)
        return axes.pop() if len(axes) == 1 and not only_largest else None

    def _axis_told_apart(self, expr: Expr, reader: Expr) -> int | None:
        """The axis along which ``reader`` passes over what is far below the largest value."""
        if is_call(reader, "softmax", "fast_softmax"):
            return int(reader.attrs["axis"] % len(reader.type.shape))
        if is_call(reader, "max"):
            return _only_axis(reader)
        if is_call(reader, "subtract"):
            first, other = reader.args
            if not is_call(other, "max") or not other["data"] is first is expr:
                return None
            powers = all(is_call(each, "exp") for each in self.users[reader])
            return _only_axis(other) if powers else None
        if is_call(reader, "exp"):
            (total, *others) = self.users[reader]
            alone = is_call(expr, "subtract") and not others
            return _only_axis(total) if alone and is_call(total, "sum") else None
        moves = "concatenate", "reshape", "transpose"
        if not isinstance(reader, Tuple) and not is_call(reader, *moves):
            return None
        axis = self.softmax_axis(reader)
        if axis is None or not is_call(reader, *moves[1:]):
            return axis
        if is_call(reader, "transpose"):
            return int(reader.attrs["axes"][axis])
        old, new = expr.type.shape, reader.type.shape
        return len(old) - 1 if axis == len(new) - 1 and old[-1:] == new[-1:] else None

    # --- grids ---

    def _points(self) -> list[Point]:
        found = [expr for expr in self.order if self._is_point(expr)]
        groups = _Groups(found)
        for expr in found:
            self._share(expr, groups)
        groups.shares = {e: shares for e in found if (shares := self._of_shares(e, groups))}
        for grid_of in (self._of_results, self._of_tables):
            groups.fixed |= {expr: grid for expr in found if (grid := grid_of(expr, groups))}
        numbers = {root: i for i, root in enumerate(dict.fromkeys(map(groups.root, found)))}
        names: set[str] = set()
        for expr, grid in groups.fixed.items():
            self.fixed[numbers[groups.root(expr)]] = grid
        for expr, shares in groups.shares.items():
            self.shares[numbers[groups.root(expr)]] = shares
        points = []
        for expr in found:
            name, operator = self._name(expr)
            number = numbers[groups.root(expr)]
            observed = expr not in groups.derived and number not in self.fixed
            points.append(Point(expr, _unique(name, names), operator, number, observed))
        return points

    def _is_point(self, expr: Expr) -> bool:
        if any(0 in of.shape for of in expr.types):
            return False
        if expr in self.roles:
            if self.roles[expr] is Role.SOURCE or self._goes_on(expr):
                return False
            return not self._has_pair(expr)
        return expr in self._wanted and self._floats(expr) and not self._is_cut_up(expr)

    def _has_pair(self, expr: Expr) -> bool:
        """Whether all that read a value are quantizes that the model has, perhaps behind a reshape:
        a product of matrices and its reshape are one node of a file."""
        users = self.users[expr]
        return (
            bool(users)
            and all(
                is_call(user, "quantize") or (is_call(user, "reshape") and self._has_pair(user))
                for user in users
                if user is not None
            )
            and None not in users
        )

    def _is_cut_up(self, expr: Expr) -> bool:
        """Whether an input is cut into parts at once, which may be of different size: each has a
        grid of its own. Parts that a concatenation puts together again have one."""
        if type(expr) is not Expr:
            return False
        parts = self.users[expr]
        readers = [user for part in parts if part is not None for user in self.users[part]]
        cut = all(is_call(part, "strided_slice", "take") and part in self.roles for part in parts)
        return cut and len(parts) > 1 and not any(is_call(each, "concatenate") for each in readers)

    def _is_read_inside(self, expr: Expr) -> bool:
        """Whether operators other than moves to its one reader read a value too."""
        while len(self.users[expr]) == 1:
            if self.roles.get(expr) is not Role.MOVE:
                return False
            expr = next(self.operands(self._reader(expr)))
        return True

    def _share(self, expr: Expr, groups: _Groups) -> None:
        role, below = self.roles.get(expr), [*self.operands(self._reader(expr))]
        if role is Role.MOVE and below and not self._is_cut_up(below[0]):
            self._join(expr, below[0], groups)
            groups.derived.add(expr)
        elif is_call(expr, "concatenate", *EXTREMES) and role is Role.RULE:
            # A constant may be beyond the values of the others.
            operands = [t for each in children(expr) for t in tensors_of(each)]
            # What leaves the model does not take steps from what goes on in it.
            leaves = not any(isinstance(user, Call) for user in self.users[expr])
            apart = leaves and any(map(self._is_read_inside, operands))
            if all(each in groups for each in operands) and not apart:
                for each in below:
                    groups.join(expr, each)
                groups.derived.add(expr)
        else:
            for each in self._with_common_scale(expr):
                groups.join(expr, each)

    def _with_common_scale(self, expr: Expr) -> Iterator[Expr]:
        """Points that share the grid of ``expr`` because the configuration says so."""
        base = self.opening(expr)[0]
        common = self.config.residual == "common" and is_call(base, "add")
        common &= self.softmax_axis(expr) is None  # a mask reaches farther than what it hides
        averages = self.config.shared_averages and is_call(base, *SHARING)
        if self.roles.get(base) is Role.RULE and (common or averages):
            yield from (each for each in self.operands(base) if self._is_point(each))

    def _join(self, expr: Expr, below: Expr, groups: _Groups) -> None:
        if below in groups:
            groups.join(expr, below)
        elif is_call(below, "dequantize"):
            scale, zero = (
                self.view.constant(below[each]).reshape(-1)
                for each in ("input_scale", "input_zero_point")
            )
            if scale.size == zero.size == 1 and below["data"].type.dtype in QUANTIZED:
                at = Grid(below["data"].type.dtype, float(scale[0]), int(zero[0]))
                groups.fixed[expr] = at

    def _of_shares(self, expr: Expr, groups: _Groups) -> Shares | None:
        """What is known of the grid of softmaxes; None where other values than such shares are on
        it, and of other values."""
        sources = groups.sources(expr)
        if self.config.dtype not in NARROW or self.config.symmetric or groups.is_fixed(expr):
            return None
        if not all(map(self._is_share, sources)):
            return None
        calls = [source for source in sources if isinstance(source, Call)]
        return Shares(self.config.dtype, min(e.type.shape[e.attrs["axis"]] for e in calls))

    def _of_results(self, expr: Expr, groups: _Groups) -> Grid | None:
        """The grid of shares that leave the model, whatever those of the samples were."""
        leaves = any(None in self.users[each] for each in groups.members(expr))
        return groups.shares.pop(expr).grid() if expr in groups.shares and leaves else None

    def _is_share(self, expr: Expr) -> bool:
        shares = is_call(expr, "softmax", "fast_softmax")
        return shares and self.roles.get(expr) is Role.FUNCTION

    def _of_tables(self, expr: Expr, groups: _Groups) -> Grid | None:
        """The grid of rows of constant tables, which holds all of them, whatever samples picked.
        None where other values are on it, and of other values."""
        sources = groups.sources(expr)
        if groups.is_fixed(expr) or not all(map(self.is_lookup, sources)):
            return None
        tables = [self.view.constant(source["data"]) for source in sources if is_call(source)]
        low, high = (float(of([of(table) for table in tables])) for of in (np.min, np.max))
        return configured_grid(low, high, self.config)

    def _name(self, expr: Expr) -> tuple[str, str]:
        """The name and the operator of the layer that computes a value."""
        calls = [self._reader(each) for each in self.opening(expr)]
        names = (each.name for each in calls if isinstance(each, Call) and each.name)
        operator = operator_name(calls[0]) if isinstance(calls[0], Call) else "input"
        return next(names, operator), operator

    # --- 16 bits ---

    def residuals(self) -> list[Point]:
        """The values of residual layers that ``residual="int16"`` gives 16 bits."""
        found = {*residual_values(self, [point.expr for point in self.points])}
        return [point for point in self.points if point.expr in found]

    def _dtypes(self) -> dict[int, str]:
        wide = self._wide()
        return {
            point.grid: "int16" if point.grid in wide else self.config.dtype
            for point in self.points
        } | {n: at.dtype for own in (self.fixed, self.shares) for n, at in own.items()}

    def _wide(self) -> set[int]:
        """Grids of the operands and results of layers that are to have 16 bits."""
        named = {*self.config.int16_layers}
        at = {point.expr: point for point in self.points}
        wide: set[int] = set()
        if self.config.residual == "int16":
            wide |= {point.grid for point in self.residuals()}
        for point in self.points if named or self._chosen_wide else ():
            chain = [self._reader(each) for each in self.opening(point.expr)]
            names = {point.name, *(each.name for each in chain if isinstance(each, Call))}
            if named & names or point.expr in self._chosen_wide:
                read = {below for each in chain for below in self.operands(each)}
                wide |= {at[each].grid for each in (point.expr, *read) if each in at}
        return wide

    def _narrow_beside_wide(self) -> set[Expr]:
        wide = {point.expr for point in self.points if self.dtypes[point.grid] == "int16"}
        found: set[Expr] = set()
        for point in self.points if wide else ():
            chain = self.opening(point.expr)
            read = {below for each in chain for below in self.operands(self._reader(each))}
            if wide & {point.expr, *read}:
                found.update(*(self._without_16_bits(each) for each in chain))
        return found

    def _without_16_bits(self, expr: Expr) -> set[Expr]:
        """The operators, among them ``expr``, that are taken together and have no 16 bits."""
        if is_call(expr, "conv2d_transpose", "conv3d_transpose", "batch_matmul", *SOFTMAX):
            return {expr}
        if is_call(expr, "dense"):
            return set() if self.view.is_constant(expr["weight"]) else {expr}
        if expr not in self.roots or self.roles.get(expr) is not Role.FUNCTION:
            return set()
        function = [each for each, own in self.roots.items() if own == self.roots[expr]]
        calls = [each for each in function if isinstance(each, Call)]
        return set() if has_16_bits(calls) else {*calls}

    def dtype_beside(self, call: Call) -> str:
        """The dtype for a constant operand of ``call``: that of the other operands."""
        grids = (point.grid for point in self.points if point.expr in {*self.operands(call)})
        return "int16" if "int16" in map(self.dtypes.get, grids) else self.config.dtype

    def _require_names(self) -> None:
        known = {each.name for each in self.order if is_call(each)}
        known |= {point.name for point in self.points}
        known -= {""}  # of many that the model does not name
        for option in ("float_layers", "int16_layers"):
            for name in getattr(self.config, option):
                if name not in known:
                    names = safe(", ".join(each.name for each in self.points), 400)
                    allowed = names or "none: no value is quantized"
                    raise OptionError(f"QuantConfig.{option}", found=repr(name), allowed=allowed)


def _only_axis(reduction: Call) -> int | None:
    """The one dimension that a reduction is over, None where there are more."""
    axes = axes_of(reduction, len(reduction["data"].type.shape))
    return axes[0] if len(axes) == 1 else None


def _unique(name: str, taken: set[str]) -> str:
    """``name``, with a number where ``taken`` has it already; the result is added to ``taken``."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}#{number}"
    taken.add(found)
    return found


class _Groups:
    """Points that share a grid, as a union of sets."""

    def __init__(self, exprs: list[Expr]) -> None:
        self._parent = {expr: expr for expr in exprs}
        self._members = {expr: [expr] for expr in exprs}
        self.derived: set[Expr] = set()
        self.fixed: dict[Expr, Grid] = {}
        self.shares: dict[Expr, Shares] = {}

    def __contains__(self, expr: Expr) -> bool:
        return expr in self._parent

    def root(self, expr: Expr) -> Expr:
        while self._parent[expr] is not expr:
            expr = self._parent[expr]
        return expr

    def members(self, expr: Expr) -> list[Expr]:
        """All points of a grid."""
        return self._members[self.root(expr)]

    def sources(self, expr: Expr) -> list[Expr]:
        """The points of a grid whose values are not those of others of it."""
        return [e for e in self.members(expr) if e not in self.derived]

    def is_fixed(self, expr: Expr) -> bool:
        return not self.fixed.keys().isdisjoint(self.members(expr))

    def join(self, one: Expr, other: Expr) -> None:
        root, goes = self.root(other), self.root(one)
        if goes is not root:
            self._parent[goes] = root
            self._members[root] += self._members.pop(goes)
