"""Random small models of the vocabulary: float operators between dequantize and quantize.

A *stretch* is what lies between: one to four operators. ``OPERATORS`` has a function for each way
to go on from a value; it varies every operand, constant, broadcast, axis and attribute, and returns
None where the value's shape does not fit. Values are computed as the model grows
(``float_meaning``), so that scales fit and a shape need not be inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.float_meaning import MEANING, dequantized
from tinyai.ir import Array
from tinyai.source import Call, Expr, SourceType, Tuple
from tinyai.vocabulary import call, constant

DISTINCT = 20  # values that a result has at least, off the limits of its type
MOST = 600  # elements of a value


@dataclass(frozen=True)
class Value:
    """A float value and its numbers in float64."""

    expr: Expr
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass(frozen=True)
class Model:
    """``results`` are all its quantized values, in order."""

    inputs: tuple[Expr, ...]
    samples: tuple[Array, ...]
    results: tuple[Call, ...]

    @property
    def root(self) -> Tuple:
        return Tuple(tuple(r.type for r in self.results), load=lambda: self.results)


Operator = Callable[["Site", Value], Value | None]
OPERATORS: dict[str, Operator] = {}
# What an operator may go with: only some follow a product or a reduction before it is quantized.
KINDS: dict[str, list[str]] = {"sums": [], "reduction": [], "values": [], "bound": [], "move": []}


def operator(kind: str) -> Callable[[Operator], Operator]:
    def add(function: Operator) -> Operator:
        OPERATORS[function.__name__] = function
        KINDS[kind].append(function.__name__)
        return function

    return add


@dataclass
class Site:
    """A model that grows. ``dtypes`` are those that values may be quantized to."""

    rng: np.random.Generator
    dtypes: Sequence[str]
    inputs: list[Expr] = field(default_factory=list)
    samples: list[Array] = field(default_factory=list)
    results: list[Call] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)  # dequantized ones
    # What is quantized on the grid of its operands, where it ends a stretch.
    grids: dict[Expr, tuple[str, Any, int]] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        return Model(tuple(self.inputs), tuple(self.samples), tuple(self.results))

    # --- Choices ---

    def one(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def factor(self) -> float:
        """From 1/8 to 8; half of them powers of two, of which sums make ties."""
        exponent = self.rng.uniform(-3, 3)
        return float(np.float32(2.0 ** (round(exponent) if self.chance(0.5) else exponent)))

    def axis(self, rank: int) -> int:
        """From the front or from the end."""
        return int(self.rng.integers(-rank, rank))

    # --- Values ---

    def call(
        self,
        op: str,
        *operands: Value,
        hidden: dict[str, Any] | None = None,
        of: str = "float32",
        **attrs: Any,
    ) -> Value:
        """A call, its result's shape that of its value. ``hidden`` are facts of its type."""
        exprs = [operand.expr for operand in operands]
        with np.errstate(all="ignore"):
            array = MEANING[op]({**attrs, **(hidden or {})}, *(o.array for o in operands))
        made = call(
            op, SourceType(array.shape, of), *exprs, name=f"{op}{len(self.results)}", **attrs
        )
        return Value(made, np.asarray(array))

    def floats(self, array: Any) -> Value:
        """A float32 constant."""
        stored = np.asarray(array, np.float32)
        return Value(constant(stored), stored.astype(np.float64))

    def number(self, value: float) -> Value:
        """One number, of any rank that broadcasts."""
        return self.floats(np.full((1,) * self.one(0, 0, 1), value))

    def dequantized(self, integers: Expr, stored: Array, scale: Any, zero: Any, axis: int) -> Value:
        scale, zero = constant(scale, "float32"), constant(zero, "int32")
        of = SourceType(stored.shape, "float32")
        made = call("dequantize", of, integers, scale, zero, axis=axis)
        return Value(made, dequantized(made, stored, scale.value, zero.value))

    def weights(self, shape: Sequence[int], axis: int | None) -> Value:
        """Quantized constants, with scales along ``axis`` or one, some with a zero point."""
        dtype = self.one("int8", "int8", "uint8")
        limits = np.iinfo(dtype)
        stored = self.rng.integers(limits.min, limits.max, tuple(shape), dtype, endpoint=True)
        middle = 128 if dtype == "uint8" else 0
        zero = middle + int(self.rng.integers(-20, 20)) * self.chance(0.3)
        count = () if axis is None or self.chance(0.4) else (shape[axis],)
        scale = (2.0 ** self.rng.uniform(-9, -5, count)).astype(np.float32)
        zeros = np.full(count, zero)
        return self.dequantized(constant(stored), stored, scale, zeros, axis or 0)

    def given(self, stored: Array) -> Value:
        """An input of integers or bools, as it is."""
        self.inputs.append(Expr((SourceType(stored.shape, stored.dtype.name),)))
        self.samples.append(stored)
        return Value(self.inputs[-1], stored)

    def input(self, shape: Sequence[int]) -> Value:
        dtype = self.one(*self.dtypes)
        limits = np.iinfo(dtype)
        stored = self.rng.integers(limits.min, limits.max, tuple(shape), dtype, endpoint=True)
        expr = self.given(stored).expr
        scale, zero = self.grid(dtype, 2.0 ** self.rng.uniform(-2, 3))
        value = self.dequantized(expr, stored, scale, zero, -1)
        self.values.append(value)
        return value

    def grid(self, dtype: str, span: float, low: float | None = None) -> tuple[Any, int]:
        """A scale of which ``span`` is most of the type, and a zero point near ``low``'s."""
        limits = np.iinfo(dtype)
        scale = np.float32(span / (limits.max - limits.min) * self.rng.uniform(0.8, 1.3))
        if self.chance(0.3):
            scale = np.float32(2.0 ** np.rint(np.log2(scale)))
        if dtype == "int16":
            return scale, 0
        zero = limits.min + 128 if low is None else limits.min - low / scale
        zero = int(np.clip(np.rint(zero + self.rng.integers(-9, 10)), limits.min, limits.max))
        return scale, zero

    def another(self, shape: Sequence[int]) -> Value:
        """A dequantized value of this shape, of the model or a new input."""
        fitting = [v for v in self.values if v.shape == tuple(shape)]
        return self.one(*fitting) if fitting and self.chance(0.7) else self.input(shape)

    def quantized(self, value: Value) -> None:
        """The end of a stretch."""
        dtype, span = self.one(*self.dtypes), float(np.ptp(value.array))
        limits = np.iinfo(dtype)
        if dtype == "int16":
            span = 2 * float(np.abs(value.array).max())
        scale, zero = self.grid(dtype, span, float(value.array.min()))
        if isinstance(value.expr, Call) and value.expr.op == "softmax" and dtype != "int16":
            scale, zero = np.float32(1 / 256), limits.min  # the only grid that TFLite takes
        if (end := value.expr) not in self.grids and isinstance(end, Call) and end.op == "relu":
            end = end.args[0]
        if end in self.grids:
            dtype, scale, zero = self.grids[end]
            limits = np.iinfo(dtype)
        of = SourceType(value.shape, dtype)
        pair = constant(scale, "float32"), constant(zero, "int32")
        made = call("quantize", of, value.expr, *pair, name=f"q{len(self.results)}", axis=-1)
        stored = np.clip(np.rint(value.array / scale) + zero, limits.min, limits.max)
        self.results.append(made)
        for _ in range(self.one(1, 1, 2)):  # a dequantize for each reader, or one for all
            self.values.append(self.dequantized(made, stored, scale, zero, -1))


def random_model(seed: int, dtypes: Sequence[str] = ("int8", "uint8"), only: str = "") -> Model:
    """A model of one to three stretches, of which the first has the operator ``only``."""
    rng = np.random.default_rng(seed)
    while True:
        site = Site(rng, dtypes)
        shape = _shape(rng)
        site.input(shape)
        for number in range(site.one(1, 1, 2, 3)):
            _grow(site, only if number == 0 else "")
        if site.results:
            return site.model


# Sizes of inputs, each from the least to the most; of the latter kind many are left after a
# reduction.
SIZES = (
    ((2, 6), (8, 24)),
    ((1, 3), (3, 8), (5, 12)),
    ((1, 2), (2, 6), (4, 8), (4, 8)),
    ((1, 2), (2, 6), (4, 8), (4, 8)),
    ((4, 8), (30, 50)),
    ((2, 4), (16, 24), (3, 4)),
    ((2, 3), (16, 24), (2, 3), (2, 3)),
    ((2, 3), (2, 3), (2, 3), (16, 24)),
)


def _shape(rng: np.random.Generator) -> tuple[int, ...]:
    sizes = SIZES[int(rng.integers(len(SIZES)))]
    return tuple(int(rng.integers(least, most + 1)) for least, most in sizes)


def _grow(site: Site, only: str) -> None:
    """A stretch more, if one is found."""
    values = [site.one(*site.values)]
    for kinds in [(only,)] if only else _plan(site):
        names = [name for kind in kinds for name in KINDS.get(kind, [kind])]
        for name in site.rng.permutation(names):
            following = OPERATORS[name](site, values[-1])
            if following is not None and _fits(following):
                values.append(following)
                break
    for extra in _plan(site)[1:] if only else ():
        following = OPERATORS[site.one(*(n for kind in extra for n in KINDS[kind]))](
            site, values[-1]
        )
        if following is not None and _fits(following):
            values.append(following)
    if len(values) > 1 and is_telling(values[-1].array):
        site.quantized(values[-1])
        if len(values) > 2 and site.chance(0.05) and is_telling(values[-2].array):
            site.quantized(values[-2])  # a float that has two readers


def _plan(site: Site) -> list[tuple[str, ...]]:
    """Which kinds of operators follow each other: mostly such as a stretch can be integers of."""
    before = [("move",)] * site.one(0, 0, 1)
    match site.one("sums", "sums", "reduction", "values", "any"):
        case "sums":
            plan = [*before, ("sums",), *[("bound", "move")] * site.one(0, 0, 1, 2)]
        case "reduction":
            plan = [*before, ("reduction",), *[("bound", "move")] * site.one(0, 0, 1)]
        case "values":
            plan = [*before, *[("values", "bound")] * site.one(1, 1, 2, 3)]
        case _:
            plan = [tuple(KINDS)] * site.one(1, 2, 3, 4)
    return plan[:4]


def _fits(value: Value) -> bool:
    array = value.array
    sane = array.size and np.isfinite(array).all() and np.abs(array).max() < 1e7
    return bool(sane and 1 <= array.size <= MOST and np.ptp(array) > 1e-3)


def is_telling(array: Array) -> bool:
    """Whether a value can have ``DISTINCT`` results."""
    return np.unique(np.rint(array / (np.ptp(array) + 1e-30) * 180)).size > DISTINCT


# --- Products ------------------------------------------------------------------------------------


def _after_sums(site: Site, sums: Value, axis: int) -> Value:
    """What may follow a product before it is quantized: a bias, factors."""
    if site.chance(0.5):
        size = sums.shape[axis]
        # Some are so much larger than the sums that a step of the result is millions of theirs.
        spread = np.abs(sums.array).max() * site.one(0.25, 0.25, 0.25, 3e4)
        bias = np.float32(site.rng.normal(0, spread, size))
        if site.chance(0.5):
            sums = site.call("bias_add", sums, site.floats(bias), axis=axis)
        else:
            along = site.floats(bias.reshape(-1, *(1,) * (sums.rank - axis % sums.rank - 1)))
            sums = site.call("add", *((sums, along) if site.chance(0.5) else (along, sums)))
    if site.chance(0.5):
        sums = scale_by_a_number(site, sums)
    return sums


def _window(site: Site, size: Sequence[int], most: int = 3) -> dict[str, Any] | None:
    """Attributes of a window over ``size``, and the kernel's size as ``kernel``."""
    kernel = tuple(int(site.rng.integers(1, min(most, s) + 1)) for s in size)
    dilation = tuple(site.one(1, 1, 2) for _ in size)
    strides = tuple(site.one(1, 1, 2, 3) for _ in size)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = [int(site.rng.integers(0, e)) for e in (*extent, *extent)]
    total = [padding[i] + padding[i + len(size)] for i in range(len(size))]
    if any(e > s + p for e, s, p in zip(extent, size, total, strict=True)):
        return None
    facts = {"kernel": kernel, "dilation": dilation, "strides": strides}
    return {**facts, "padding": tuple(padding)}


@operator("sums")
def conv2d(site: Site, x: Value) -> Value | None:
    if x.rank != 4:
        return None
    layout = site.one("NCHW", "NHWC")
    channels = x.shape[layout.index("C")]
    size = [x.shape[layout.index(a)] for a in "HW"]
    window = _window(site, size)
    if window is None:
        return None
    groups = site.one(1, 1, channels, *(g for g in (2, 3) if channels % g == 0))
    out = groups * int(site.rng.integers(1, 4))
    order = site.one("OIHW", "HWIO", "OHWI")
    sizes = dict(zip("HW", window.pop("kernel"), strict=True))
    if groups == channels > 1:
        out = channels
    sizes |= {"O": out, "I": channels // groups}
    weight = site.weights([sizes[a] for a in order], order.index("O"))
    attrs = {"layout": layout, "out_layout": "", "weight_layout": order, "groups": groups}
    return _after_sums(site, site.call("conv2d", x, weight, **attrs, **window), layout.index("C"))


@operator("sums")
def conv1d(site: Site, x: Value) -> Value | None:
    if x.rank != 3:
        return None
    channels = x.shape[1]
    window = _window(site, x.shape[2:])
    if window is None:
        return None
    groups = site.one(1, 1, channels)
    out = channels if groups > 1 else int(site.rng.integers(1, 6))
    weight = site.weights((out, channels // groups, *window.pop("kernel")), 0)
    attrs = {"layout": "NCW", "out_layout": "", "weight_layout": "OIW", "groups": groups}
    return _after_sums(site, site.call("conv1d", x, weight, **attrs, **window), 1)


def _volume(site: Site, x: Value) -> Value:
    """Images as one volume, whose channels are as many as they; any other value as it is."""
    return site.call("reshape", x, hidden={"shape": (1, *x.shape)}) if x.rank == 4 else x


@operator("sums")
def conv3d(site: Site, x: Value) -> Value | None:
    """Of a volume, or of images whose number is its channels'."""
    if (x := _volume(site, x)).rank != 5:
        return None
    channels = x.shape[1]
    window = _window(site, x.shape[2:])
    if window is None:
        return None
    groups = site.one(1, 1, channels)
    out = channels * site.one(1, 2) if groups > 1 else int(site.rng.integers(1, 6))
    weight = site.weights((out, channels // groups, *window.pop("kernel")), 0)
    attrs = {"layout": "NCDHW", "out_layout": "", "weight_layout": "OIDHW", "groups": groups}
    return _after_sums(site, site.call("conv3d", x, weight, **attrs, **window), 1)


@operator("sums")
def conv3d_transpose(site: Site, x: Value) -> Value | None:
    """Of slices that do not meet."""
    if (x := _volume(site, x)).rank != 5:
        return None
    deep, *kernel = (int(site.rng.integers(1, 4)) for _ in "DHW")
    strides = (deep, *(site.one(1, 2, 3) for _ in kernel))
    top, left, bottom, right = (int(site.rng.integers(0, k)) for k in (*kernel, *kernel))
    more = (0, *(int(site.rng.integers(0, s)) for s in strides[1:]))
    weight = site.weights((x.shape[1], int(site.rng.integers(1, 5)), deep, *kernel), 1)
    facts = {"layout": "NCDHW", "out_layout": "", "weight_layout": "IODHW", "groups": 1}
    window = {"strides": strides, "padding": (0, top, left, 0, bottom, right), "dilation": (1,) * 3}
    made = site.call("conv3d_transpose", x, weight, **facts, **window, output_padding=more)
    return _after_sums(site, made, 1) if made.array.size else None


@operator("sums")
def conv2d_transpose(site: Site, x: Value) -> Value | None:
    if x.rank != 4:
        return None
    layout = site.one("NCHW", "NHWC")
    channels = x.shape[layout.index("C")]
    kernel = tuple(int(site.rng.integers(1, 4)) for _ in "HW")
    strides = tuple(site.one(1, 2, 3) for _ in "HW")
    padding = tuple(int(site.rng.integers(0, k)) for k in (*kernel, *kernel))
    more = tuple(int(site.rng.integers(0, s)) for s in strides)
    out = int(site.rng.integers(1, 5))
    weight = site.weights((channels, out, *kernel), 1)
    made = site.call(
        *("conv2d_transpose", x, weight),
        layout=layout,
        out_layout="",
        weight_layout="IOHW",
        groups=1,
        strides=strides,
        padding=padding,
        dilation=(1, 1),
        output_padding=more,
    )
    return _after_sums(site, made, layout.index("C")) if made.array.size else None


@operator("sums")
def dense(site: Site, x: Value) -> Value | None:
    if x.rank != 2:
        return None
    units = int(site.rng.integers(1, 40))
    fixed = site.chance(0.7)
    right = site.weights((units, x.shape[1]), 0) if fixed else site.another((units, x.shape[1]))
    sums = site.call("dense", x, right)
    if fixed and site.chance(0.2):
        rows = (1, x.shape[0]) if site.chance(0.5) else (x.shape[0], 1)
        sums = site.call("reshape", sums, hidden={"shape": (*rows, units)})
    return _after_sums(site, sums, -1)


@operator("sums")
def batch_matmul(site: Site, x: Value) -> Value | None:
    if x.rank != 3:
        return None
    batch, _, inner = x.shape
    columns, turned = int(site.rng.integers(1, 9)), site.chance(0.5)
    shape = (batch, columns, inner) if turned else (batch, inner, columns)
    other = site.weights(shape, None) if site.chance(0.3) else site.another(shape)
    if site.chance(0.3):
        other = scale_by_a_number(site, other)
    if site.chance(0.3):
        x = scale_by_a_number(site, x)
    sums = site.call("batch_matmul", x, other, transpose_a=False, transpose_b=turned)
    return _after_sums(site, sums, -1)


# --- Arithmetic ----------------------------------------------------------------------------------


@operator("values")
def scale_by_a_number(site: Site, x: Value) -> Value:
    factor = site.number(site.factor())
    match site.one("left", "right", "divide"):
        case "left":
            return site.call("multiply", factor, x)
        case "right":
            return site.call("multiply", x, factor)
    return site.call("divide", x, factor)


@operator("values")
def multiply_by_a_negative_number(site: Site, x: Value) -> Value:
    return site.call("multiply", x, site.number(-site.factor()))


@operator("values")
def add_a_number(site: Site, x: Value) -> Value:
    number = site.number(float(site.rng.normal(0, np.abs(x.array).max())))
    op = site.one("add", "subtract")
    return site.call(op, *((x, number) if site.chance(0.5) else (number, x)))


@operator("values")
def arithmetic_with_a_constant(site: Site, x: Value) -> Value:
    """Of many numbers, quantized or not, that broadcast against the value, or it against them."""
    shape = _broadcasting(site, x.shape)
    if site.chance(0.6):
        other = site.weights(shape, None)
    else:
        other = site.floats(site.rng.normal(0, np.abs(x.array).max(), shape))
    op = site.one("add", "subtract", "multiply")
    return site.call(op, *((x, other) if site.chance(0.5) else (other, x)))


@operator("values")
def arithmetic_of_two_values(site: Site, x: Value) -> Value:
    other = site.another(x.shape if site.chance(0.6) else _broadcasting(site, x.shape))
    op = site.one("add", "add", "subtract", "multiply")
    return site.call(op, *((x, other) if site.chance(0.5) else (other, x)))


@operator("values")
def extreme_of_two_values(site: Site, x: Value) -> Value:
    """The operands and the result are on one grid most times: then integers are compared."""
    op, source = site.one("maximum", "minimum"), x.expr
    if not isinstance(source, Call) or source.op != "dequantize" or site.chance(0.4):
        return site.call(op, x, site.another(x.shape))
    dtype = source["data"].type.dtype
    scale, zero = (source[name].value for name in ("input_scale", "input_zero_point"))
    limits = np.iinfo(dtype)
    stored = site.rng.integers(limits.min, limits.max, x.shape, dtype, endpoint=True)
    other = site.dequantized(site.given(stored).expr, stored, scale, zero, -1)
    made = site.call(op, *((x, other) if site.chance(0.5) else (other, x)))
    site.grids[made.expr] = dtype, scale, int(zero)
    return made


def _broadcasting(site: Site, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that goes with ``shape``: some dimensions 1, the first ones left out."""
    kept = [1 if site.chance(0.5) else size for size in shape]
    return tuple(kept[int(site.rng.integers(len(kept))) :])


@operator("bound")
def bound_by_a_constant(site: Site, x: Value) -> Value:
    """One number, of a shape that may broadcast the value, or many."""
    op, level = site.one("maximum", "minimum"), float(site.one(*x.array.reshape(-1)))
    shape = site.one((), (1,), (1,) * x.rank, _broadcasting(site, x.shape), (2, *x.shape))
    many = site.chance(0.2)
    array = site.rng.normal(level, 1, shape) if many else np.full(shape, level)
    other = site.floats(array)
    return site.call(op, *((x, other) if site.chance(0.5) else (other, x)))


@operator("bound")
def relu(site: Site, x: Value) -> Value:
    return site.call("relu", x)


@operator("bound")
def clip(site: Site, x: Value) -> Value:
    """Between two bounds, or one."""
    low, high = sorted(site.rng.choice(x.array.reshape(-1), 2).tolist())
    match site.one("both", "low", "high"):
        case "low":
            high = float(np.finfo(np.float32).max)
        case "high":
            low = -float(np.finfo(np.float32).max)
    return site.call("clip", x, low=low, high=high)


@operator("values")
def function_of_values(site: Site, x: Value) -> Value:
    return site.call(site.one("abs", "negative", "square", "exp", "erf"), x)


@operator("values")
def sigmoid_or_tanh(site: Site, x: Value) -> Value:
    return site.call(site.one("sigmoid", "sigmoid", "tanh"), x)


@operator("values")
def function_of_positive_values(site: Site, x: Value) -> Value:
    if x.array.min() < 0.05:
        x = site.call("add", site.call("abs", x), site.number(0.25))
    return site.call(site.one("log", "sqrt", "rsqrt"), x)


@operator("values")
def magnitude_or_gates(site: Site, x: Value) -> Value:
    """The root of a sum of squares, as of complex numbers, or a sum of two products, as gates
    make."""
    other = site.another(x.shape)
    if site.chance(0.5):
        squares = (site.call("square", each) for each in (x, other))
        return site.call("sqrt", site.call("add", *squares))
    products = (site.call("multiply", each, site.another(x.shape)) for each in (x, other))
    return site.call("add", *products)


@operator("values")
def leaky_relu(site: Site, x: Value) -> Value:
    return site.call("leaky_relu", x, alpha=float(np.float32(site.one(0.01, 0.1, 0.3, 1.5))))


@operator("values")
def prelu(site: Site, x: Value) -> Value:
    axis = site.axis(x.rank)
    count = x.shape[axis]
    slope = np.full(count, 0.2) if site.chance(0.5) else site.rng.uniform(0.05, 0.9, count)
    return site.call("prelu", x, site.floats(slope), axis=axis)


@operator("values")
def softmax(site: Site, x: Value) -> Value | None:
    if np.abs(x.array).max() > 1e4:
        return None  # it subtracts them from each other: float32 has too few digits for that
    return site.call(site.one("softmax", "log_softmax"), x, axis=site.axis(x.rank))


@operator("values")
def layer_norm(site: Site, x: Value) -> Value | None:
    """Gamma and beta may be none, one of them or both, of each place along the axis, of each row or
    of any; epsilon may be as large as the variance. Rows whose values hardly differ are left out:
    float32 does not hold what is left of them."""
    axis = site.axis(x.rank)
    mean, deviation = x.array.mean(axis), x.array.std(axis)
    if np.any(np.abs(mean) > 1000 * deviation):
        return None
    along = tuple(x.shape[axis] if dim == axis % x.rank else 1 for dim in range(x.rank))
    shape = site.one(along, along, along[axis % x.rank :], _broadcasting(site, x.shape))
    gamma = site.rng.normal(0.5, 1, shape) if site.chance(0.7) else np.ones(shape)
    beta = site.rng.normal(0, 1, shape) if site.chance(0.7) else np.zeros(shape)
    epsilon = float(np.float32(site.one(1e-12, 1e-5, 0.1, 3.0)))
    numbers = site.floats(gamma), site.floats(beta)
    norm = site.one("layer_norm", "rms_norm")
    return site.call(norm, x, *numbers, axis=axis, epsilon=epsilon)


@operator("values")
def numbers(site: Site, x: Value) -> Value:
    """Arithmetic on integers from outside, as on a mask."""
    given = site.given(site.rng.integers(-40, 40, x.shape).astype(site.one("int32", "int64")))
    value = site.call("cast", given, dtype="float32")
    for _ in range(site.one(1, 2, 3)):
        op = site.one("add", "subtract", "multiply", "maximum", "minimum", "divide")
        number = site.number(site.factor())
        first = op != "divide" and site.chance(0.4)
        value = site.call(op, *((number, value) if first else (value, number)))
    return value


@operator("values")
def choice(site: Site, x: Value) -> Value:
    """A value or another one, or a number, by what is true; with numbers alone, a mask."""
    level = float(site.one(*x.array.reshape(-1)))
    condition = _condition(site, x)
    other = site.another(x.shape) if site.chance(0.4) else site.number(level)
    if site.chance(0.2):
        x = site.number(level + site.factor())
    return site.call("where", condition, *((x, other) if site.chance(0.5) else (other, x)))


COMPARED = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def _condition(site: Site, x: Value) -> Value:
    """Bools that broadcast to a value: of outside, or integers or values that are compared."""
    shape = x.shape
    some = shape if site.chance(0.5) else _broadcasting(site, shape)
    integers = site.rng.integers(-3, 4, some or (1,)).astype(site.one("int8", "int32", "int64"))
    given, op = site.given(integers), site.one(*COMPARED)
    if given.array.dtype != np.int8 and site.chance(0.5):
        attrs = {name: site.chance(0.3) for name in ("exclusive", "reverse")}
        dtype = given.array.dtype.name
        axis = site.axis(given.rank)
        given = site.call("cumulative_sum", given, of=dtype, axis=axis, **attrs)
    number = constant(site.rng.integers(-3, 4, site.one((), (1,))), given.array.dtype.name)
    match site.one("given", "cast", "compared", "two", "value"):
        case "given":
            made = site.given(site.rng.random(some or (1,)) < 0.5)
        case "cast":
            made = site.call("cast", given, of="bool", dtype="bool")
        case "value" if (source := x.expr) and isinstance(source, Call) and x in site.values:
            # Off the grid, for a float32 on it may be compared as another than its float64.
            scale = np.max(source["input_scale"].value)
            level = float(site.one(*x.array.reshape(-1))) + scale / 2
            made = site.call(op, x, site.number(level), of="bool")
        case "two":
            more = site.rng.integers(-3, 4, given.shape).astype(given.array.dtype)
            made = site.call(op, given, site.given(more), of="bool")
        case _:
            made = site.call(op, given, Value(number, number.value), of="bool")
    if site.chance(0.3):
        made = site.call("logical_not", made, of="bool")
    if site.chance(0.6):
        op = site.one("logical_and", "logical_or", "logical_xor")
        made = site.call(op, made, site.given(site.rng.random(shape) < 0.7), of="bool")
    return made


# --- Reductions and pooling ----------------------------------------------------------------------


@operator("reduction")
def reduction(site: Site, x: Value) -> Value:
    op = "l2" if site.chance(0.08) else site.one("mean", "mean", "sum", "max", "min")
    axes = site.rng.permutation(x.rank)[: site.one(1, 1, 2)]
    axis = tuple(int(a) - x.rank * site.chance(0.5) for a in axes)
    named = axis[0] if len(axis) == 1 and site.chance(0.5) else axis
    if site.chance(0.1):
        named = None
    exclude = named is not None and site.chance(0.1)
    return site.call(op, x, axis=named, keepdims=site.chance(0.5), exclude=exclude)


@operator("reduction")
def pooling(site: Site, x: Value) -> Value | None:
    if x.rank == 4 and site.chance(0.2):
        x = _volume(site, x)
    if x.rank not in (3, 4, 5):
        return None
    kind, rank = site.one("max", "avg") if x.rank < 5 else "max", x.rank - 2
    layout = site.one("NCHW", "NHWC") if rank == 2 else f"NC{'DHW'[-rank:]}"
    size = [x.shape[layout.index(a)] for a in "DHW"[-rank:]]
    window = _window(site, size)
    if window is None or any(
        p >= k for p, k in zip(window["padding"], window["kernel"] * 2, strict=True)
    ):
        return None
    if kind == "avg":
        window["dilation"] = (1,) * rank
    attrs = {"layout": layout, "out_layout": "", "ceil_mode": False, **window}
    if kind == "avg":
        attrs["count_include_pad"] = site.chance(0.4)
    return site.call(f"{kind}_pool{rank}d", x, **attrs)


@operator("reduction")
def global_pooling(site: Site, x: Value) -> Value | None:
    kind = site.one("max", "avg")
    if x.rank == 4:
        layouts = {"layout": site.one("NCHW", "NHWC"), "out_layout": ""}
        return site.call(f"global_{kind}_pool2d", x, **layouts)
    if x.rank == 3:
        return site.call(f"adaptive_{kind}_pool1d", x, output_size=(1,), layout="NCW")
    return None


# --- Moves ---------------------------------------------------------------------------------------


@operator("move")
def reshape(site: Site, x: Value) -> Value:
    shapes = [(x.array.size,), (1, x.array.size), (*x.shape, 1), (x.shape[0], -1)]
    if x.rank > 2:
        shapes.append((x.shape[0] * x.shape[1], *x.shape[2:]))
    shape = x.array.reshape(site.one(*shapes)).shape
    return site.call("reshape", x, hidden={"shape": shape})


@operator("move")
def transpose(site: Site, x: Value) -> Value:
    axes = tuple(int(a) for a in site.rng.permutation(x.rank))
    return site.call("transpose", x, axes=None if site.chance(0.1) else axes)


@operator("move")
def strided_slice(site: Site, x: Value) -> Value:
    axes = tuple(sorted(int(a) for a in site.rng.permutation(x.rank)[: site.one(1, 2)]))
    begin = [int(site.rng.integers(0, x.shape[a])) for a in axes]
    strides = [site.one(1, 1, 2) for _ in axes]
    shape = list(x.shape)
    for place, axis in enumerate(axes):
        shape[axis] = -(-(x.shape[axis] - begin[place]) // strides[place])
        begin[place] -= x.shape[axis] * site.chance(0.3)
    attrs = {"begin": tuple(begin), "strides": tuple(strides), "axes": axes, "slice_mode": "end"}
    return site.call("strided_slice", x, hidden={"shape": tuple(shape)}, **attrs)


def _indices(site: Site, size: int, mode: str) -> Value:
    """An input of indices, out of range where a mode says what these are."""
    shape, dtype = site.one((3,), (2, 3), (5,), ()), site.one("int32", "int64")
    low, high = {"fast": (0, size), "raise": (-size, size)}.get(mode, (-2 * size, 2 * size))
    return site.given(site.rng.integers(low, high, shape).astype(dtype))


@operator("move")
def move(site: Site, x: Value) -> Value:
    axis = site.axis(x.rank)
    match site.one("reverse", "repeat", "tile", "broadcast_to", "copy", "take", "pad"):
        case "reverse":
            return site.call("reverse", x, axis=axis)
        case "repeat":
            return site.call("repeat", x, repeats=2, axis=axis)
        case "tile":
            times = [site.one(1, 1, 2) for _ in x.shape]
            shape = tuple(s * t for s, t in zip(x.shape, times, strict=True))
            return site.call("tile", x, hidden={"shape": shape})
        case "broadcast_to":
            return site.call("broadcast_to", x, hidden={"shape": (2, *x.shape)})
        case "copy":
            return site.call("copy", x)
        case "take":
            size = x.shape[axis]
            places = site.rng.integers(0, size, site.one((3,), (2, 2)))
            attrs = {"axis": axis % x.rank, "batch_dims": 0, "mode": site.one("clip", "wrap")}
            if site.chance(0.5):
                table = site.weights(x.shape, None) if site.chance(0.5) else x
                attrs["mode"] = site.one("clip", "wrap", "fast", "raise")
                return site.call("take", table, _indices(site, size, attrs["mode"]), **attrs)
            indices = Value(constant(places, "int32"), places)
            return site.call("take", x, indices, **attrs)
    widths = tuple((int(a), int(b)) for a, b in site.rng.integers(0, 3, (x.rank, 2)))
    value = site.floats(0.0 if site.chance(0.5) else site.rng.normal())
    return site.call("pad", x, value, mode="constant", widths=widths)


@operator("move")
def blocks(site: Site, x: Value) -> Value | None:
    if x.rank != 4:
        return None
    layout = site.one("NCHW", "NHWC")
    sizes = dict(zip(layout, x.shape, strict=True))
    match site.one("depth_to_space", "space_to_depth", "layout_transform"):
        case "depth_to_space" if sizes["C"] % 4 == 0:
            mode = site.one("DCR", "CRD")
            return site.call("depth_to_space", x, block_size=2, layout=layout, mode=mode)
        case "space_to_depth" if sizes["H"] % 2 == 0 == sizes["W"] % 2:
            return site.call("space_to_depth", x, block_size=2, layout=layout)
        case "layout_transform":
            other = "NCHW" if layout == "NHWC" else "NHWC"
            return site.call("layout_transform", x, source=layout, target=other)
    return None


@operator("reduction")
def concatenate(site: Site, x: Value) -> Value:
    axis = site.axis(x.rank)
    parts = [x, *(site.another(x.shape) for _ in range(site.one(1, 1, 2)))]
    arrays = tuple(part.array for part in parts)
    exprs = tuple(part.expr for part in parts)
    whole = Tuple(tuple(expr.type for expr in exprs), load=lambda: exprs)
    return site.call("concatenate", Value(whole, arrays), axis=axis)  # type: ignore[arg-type]


@operator("reduction")
def split(site: Site, x: Value) -> Value | None:
    """Its parts are quantized each; the first one goes on."""
    axis = site.axis(x.rank)
    if x.shape[axis] % 2:
        return None
    parts = np.split(x.array, 2, axis)
    types = tuple(SourceType(part.shape, "float32") for part in parts)
    made = call("split", types, x.expr, name=f"split{len(site.results)}", axis=axis)
    if not is_telling(parts[1]):
        return None
    site.quantized(Value(made.fields[1], parts[1]))
    return Value(made.fields[0], parts[0])
