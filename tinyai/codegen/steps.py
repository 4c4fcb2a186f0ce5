"""Epilogues as C: one statement a step, each with a name of its own.

Signed integers wrap without undefined behaviour: sums and products are taken unsigned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinyai.codegen.c import C_TYPES, literal
from tinyai.codegen.index import Axis, element, place
from tinyai.codegen.lowered import Lowered
from tinyai.ir import Array, DType, Node, Operand, Step
from tinyai.ops import steps

_WIDE = {DType.INT32: "uint32_t", DType.INT64: "uint64_t"}


def _arithmetic(sign: str, a: str, b: str, dtype: DType) -> str:
    if dtype.is_float:
        return f"{a} {sign} {b}"
    if dtype in _WIDE:
        unsigned = _WIDE[dtype]
        return f"({C_TYPES[dtype]})(({unsigned}){a} {sign} ({unsigned}){b})"
    return f"({C_TYPES[dtype]})({a} {sign} {b})"


def _right_shift(a: str, b: str, dtype: DType) -> str:
    return f"{a} >> {b}" if dtype in _WIDE else f"({C_TYPES[dtype]})({a} >> {b})"


def _left_shift(a: str, b: str, dtype: DType) -> str:
    return f"({C_TYPES[dtype]})(({_WIDE.get(dtype, 'uint32_t')}){a} << {b})"


_BINARY: dict[type[Step], Callable[[str, str, DType], str]] = {
    steps.Add: lambda a, b, t: _arithmetic("+", a, b, t),
    steps.Subtract: lambda a, b, t: _arithmetic("-", a, b, t),
    steps.SubtractFrom: lambda a, b, t: _arithmetic("-", b, a, t),
    steps.Multiply: lambda a, b, t: _arithmetic("*", a, b, t),
    steps.Divide: lambda a, b, t: (
        f"{a} / {b}" if t in (*_WIDE, DType.FLOAT32) else f"({C_TYPES[t]})({a} / {b})"
    ),
    steps.Prelu: lambda a, b, t: f"{a} > {literal(0, t)} ? {a} : {_arithmetic('*', a, b, t)}",
    steps.Maximum: lambda a, b, t: f"{a} > {b} ? {a} : {b}",
    steps.Minimum: lambda a, b, t: f"{a} < {b} ? {a} : {b}",
    steps.RightShift: _right_shift,
    steps.LeftShift: _left_shift,
}

_DOT_PATCHES = """
/* acc[p][c] = the products of patch p and row c of the weights, summed; four patches at once. */
static void NAME(const int16_t *patch, const WEIGHT *weight, ptrdiff_t k,
ptrdiff_t rows, SUM *acc) {
const int16_t *const p0 = patch;
const int16_t *const p1 = patch + k;
const int16_t *const p2 = patch + 2 * k;
const int16_t *const p3 = patch + 3 * k;
for (ptrdiff_t c = 0; c < rows; ++c) {
const WEIGHT *const row = weight + c * k;
SUM s0 = 0;
SUM s1 = 0;
SUM s2 = 0;
SUM s3 = 0;
for (ptrdiff_t i = 0; i < k; ++i) {
s0 += row[i] * p0[i];
s1 += row[i] * p1[i];
s2 += row[i] * p2[i];
s3 += row[i] * p3[i];
}
acc[c] = s0;
acc[rows + c] = s1;
acc[2 * rows + c] = s2;
acc[3 * rows + c] = s3;
}
}
"""

HELPERS = {
    "string.h": """
#include <string.h>
""",
    "tinyai_add_border": """
/* A copy of an image, rows of bytes, with a border of one value, and a word of it behind: its rows
   from first to last - 1. ``flip`` turns bits of every byte of the image: 128 makes signed ones
   unsigned. */
TINYAI_INLINE void tinyai_add_border(const uint8_t *in, uint8_t *out, ptrdiff_t rows,
ptrdiff_t bytes, ptrdiff_t top, ptrdiff_t left, ptrdiff_t bottom, ptrdiff_t right, int value,
int flip, ptrdiff_t first, ptrdiff_t last) {
const ptrdiff_t whole = left + bytes + right;
if (first == last) {
return;
}
if (first == 0) {
memset(out, value, (size_t)(top * whole));
}
in += first * bytes;
out += (top + first) * whole;
for (ptrdiff_t row = first; row < last; ++row) {
memset(out, value, (size_t)left);
for (ptrdiff_t i = 0; i < bytes; ++i) {
out[left + i] = (uint8_t)(in[i] ^ flip);
}
memset(out + left + bytes, value, (size_t)right);
in += bytes;
out += whole;
}
if (last == rows) {
memset(out, value, (size_t)(bottom * whole + 4));
}
}
""",
    "tinyai_slice": """
/* 64 lanes of a depthwise convolution, channels or neighbouring pixels, over one image. */
typedef struct {
const uint8_t *in;
ptrdiff_t in_row;
ptrdiff_t row_step;
ptrdiff_t row_stride;
ptrdiff_t channels;
const int8_t *weights;
const int32_t *start;
const int32_t *left;
const int32_t *multiplier;
const int32_t *offset;
const int32_t *right;
int32_t flip; /* makes an input unsigned */
int32_t low;
int32_t high;
uint64_t mask; /* lanes that count */
uint64_t last_mask; /* at the end of a row */
char *out;
ptrdiff_t out_row;
ptrdiff_t out_column;
ptrdiff_t first; /* rows */
ptrdiff_t last;
ptrdiff_t width;
} tinyai_slice;
""",
    "tinyai_write_border": """
/* The border of an image that is written into the middle, from its row first to last - 1: rows of
   bytes, borders included. */
TINYAI_INLINE void tinyai_write_border(uint8_t *out, ptrdiff_t rows, ptrdiff_t bytes,
ptrdiff_t top, ptrdiff_t left, ptrdiff_t bottom, ptrdiff_t right, int value, ptrdiff_t first,
ptrdiff_t last) {
if (first == last) {
return;
}
if (first == 0) {
memset(out, value, (size_t)(top * bytes));
}
out += (top + first) * bytes;
memset(out, value, (size_t)left);
for (ptrdiff_t row = first; row < last - 1; ++row) {
out += bytes;
memset(out - right, value, (size_t)(right + left));
}
out += bytes;
memset(out - right, value, (size_t)right);
if (last == rows) {
memset(out, value, (size_t)(bottom * bytes));
}
}
""",
    "tinyai_cover": """
/* How many of count outputs go to tiles of so many pixels, where tiles of one pixel less take the
   others and leave no place idle; all of them where there is no such way. */
TINYAI_INLINE ptrdiff_t tinyai_cover(ptrdiff_t count, ptrdiff_t pixels) {
ptrdiff_t tiles = count / pixels;
while (tiles >= 0 && (count - tiles * pixels) % (pixels - 1) != 0) {
--tiles;
}
return tiles < 0 ? count : tiles * pixels;
}
""",
    "tinyai_panel": """
/* A panel of a convolution: what its core needs to compute the outputs first .. last - 1 of one
   image, 16 channels a block. Steps of the window are four bytes of the input: rows, columns and
   bytes of a column; the weights follow the same order. Distances are in bytes. */
typedef struct {
const uint8_t *in;
ptrdiff_t in_row;
ptrdiff_t in_column;
ptrdiff_t rows;
ptrdiff_t columns;
ptrdiff_t bytes;
ptrdiff_t row_step;
ptrdiff_t column_step;
const int8_t *weights;
ptrdiff_t ahead; /* from the weights to those that are read next */
uintptr_t fetched; /* to here */
const int32_t *start;
const int32_t *left;
const int32_t *multiplier;
const int32_t *offset;
const int32_t *right;
int32_t flip; /* makes an input unsigned */
int32_t low;
int32_t high;
uint32_t last_block; /* bits of the channels that the last block has */
char *out;
ptrdiff_t out_row;
ptrdiff_t out_column;
ptrdiff_t out_skip;
ptrdiff_t width;
ptrdiff_t first;
ptrdiff_t last;
} tinyai_panel;
""",
    "tinyai_softmax": """
/* a * b / 2^31, rounded half up. */
TINYAI_INLINE int64_t tinyai_high_product(int64_t a, int64_t b) {
return (a * b + (1 << 30)) >> 31;
}

/* x / 2^places, halves away from zero. */
TINYAI_INLINE int64_t tinyai_shift_rounded(int64_t x, int places) {
const int64_t mask = ((int64_t)1 << places) - 1;
return (x >> places) + ((x & mask) > (mask >> 1) + (x < 0));
}

/* 1 / (1 + a), both in Q0.31, by three steps of Newton's method. */
TINYAI_INLINE int64_t tinyai_reciprocal(int64_t a) {
const int64_t half = (a + ((int64_t)1 << 31)) >> 1;
int64_t x = 1515870810 + tinyai_high_product(half, -1010580540);
for (int step = 0; step < 3; ++step) {
x += tinyai_high_product(x, (1 << 29) - tinyai_high_product(half, x)) * 4;
}
return x * 2 > INT32_MAX ? INT32_MAX : x * 2;
}
""",
    "tinyai_math": """
/* C++ takes a tenth of a second for the header of these. */
#if defined(__GNUC__)
#define TINYAI_EXPF __builtin_expf
#define TINYAI_LOGF __builtin_logf
#define TINYAI_FMAF __builtin_fmaf
#else
#include <math.h>
#define TINYAI_EXPF expf
#define TINYAI_LOGF logf
#define TINYAI_FMAF fmaf
#endif
""",
    **{
        name: _DOT_PATCHES.replace("NAME", name).replace("WEIGHT", weight).replace("SUM", of)
        for name, weight, of in (
            ("tinyai_dot_patches", "int8_t", "int32_t"),
            ("tinyai_dot_patches_wide", "int16_t", "int32_t"),
            ("tinyai_dot_patches_in_64_bits", "int8_t", "int64_t"),
            ("tinyai_dot_patches_wide_in_64_bits", "int16_t", "int64_t"),
        )
    },
    "tinyai_round_away": """
/* Nearest integer, halves away from zero. A float beyond 2^23 has no fraction. */
TINYAI_INLINE float tinyai_round_away(float x) {
if (!(x > -8388608.0f && x < 8388608.0f)) {
return x;
}
const int32_t whole = (int32_t)x;
const float rest = x - (float)whole;
const float nearest = (float)(whole + (rest >= 0.5f) - (rest <= -0.5f));
return nearest == 0.0f ? x * 0.0f : nearest; /* keeps the sign of a zero */
}
""",
    "tinyai_round_even": """
/* Nearest integer, halves to even. A float beyond 2^23 has no fraction. */
TINYAI_INLINE float tinyai_round_even(float x) {
if (!(x > -8388608.0f && x < 8388608.0f)) {
return x;
}
const int32_t whole = (int32_t)x;
const float rest = x - (float)whole;
const int up = rest > 0.5f || (rest == 0.5f && whole % 2 != 0);
const int down = rest < -0.5f || (rest == -0.5f && whole % 2 != 0);
const float nearest = (float)(whole + up - down);
return nearest == 0.0f ? x * 0.0f : nearest; /* keeps the sign of a zero */
}
""",
    "tinyai_round_floor": """
/* The largest integer that is at most x + 0.5. */
TINYAI_INLINE float tinyai_round_floor(float x) {
const float y = x + 0.5f;
if (!(y > -8388608.0f && y < 8388608.0f)) {
return y;
}
const float whole = (float)(int32_t)y;
const float below = whole > y ? whole - 1.0f : whole;
return below == 0.0f ? y * 0.0f : below; /* keeps the sign of a zero */
}
""",
    "tinyai_round_cut": """
/* x + 0.5 or x - 0.5, away from zero, cut towards zero. */
TINYAI_INLINE float tinyai_round_cut(float x) {
const float y = x + (x < 0.0f ? -0.5f : 0.5f);
if (!(y > -8388608.0f && y < 8388608.0f)) {
return y;
}
const float whole = (float)(int32_t)y;
return whole == 0.0f ? y * 0.0f : whole; /* keeps the sign of a zero */
}
""",
    "tinyai_double": """
/* The number whose bits these are. */
TINYAI_INLINE double tinyai_double(int64_t bits) {
double x;
memcpy(&x, &bits, sizeof x);
return x;
}
""",
    "tinyai_real_floor": """
/* x * multiplier + offset in double precision, halves up, within bounds. */
TINYAI_INLINE int32_t tinyai_real_floor(int64_t x, double multiplier, double offset, int32_t low,
int32_t high) {
const double y = (double)x * multiplier + offset + 0.5;
if (!(y > (double)low)) {
return low;
}
if (y >= (double)high) {
return high;
}
const int32_t whole = (int32_t)y;
return whole - ((double)whole > y);
}
""",
    "tinyai_real_cut": """
/* x * multiplier + offset in double precision, and a half more, cut towards zero, within bounds. */
TINYAI_INLINE int32_t tinyai_real_cut(int64_t x, double multiplier, double offset, int32_t low,
int32_t high) {
const double y = (double)x * multiplier + offset;
const double z = y + (y < 0 ? -0.5 : 0.5);
if (!(z > (double)low)) {
return low;
}
return z >= (double)high ? high : (int32_t)z;
}
""",
    "tinyai_real_away": """
/* x * multiplier + offset in double precision, halves away from zero, within bounds. */
TINYAI_INLINE int32_t tinyai_real_away(int64_t x, double multiplier, double offset, int32_t low,
int32_t high) {
const double y = (double)x * multiplier + offset;
if (!(y > (double)low)) {
return low;
}
if (y >= (double)high) {
return high;
}
const int32_t whole = (int32_t)y;
const double rest = y - (double)whole;
return whole + (rest >= 0.5) - (rest <= -0.5);
}
""",
    "tinyai_fixed_point": """
/* x * multiplier * 2^(left - right), rounded half up in 64 bits, cut to 32. */
TINYAI_INLINE int32_t tinyai_fixed_point(int64_t x, int32_t multiplier, int left, int right) {
const uint64_t product = ((uint64_t)x << left) * (uint64_t)(int64_t)multiplier;
return (int32_t)((int64_t)(product + ((uint64_t)1 << (right - 1))) >> right);
}
""",
    "tinyai_fixed_point_nearest": """
/* x * multiplier * 2^(left - right), halves away from zero, in 64 bits, cut to 32. */
TINYAI_INLINE int32_t tinyai_fixed_point_nearest(int64_t x, int32_t multiplier, int left,
int right) {
const uint64_t product = ((uint64_t)x << left) * (uint64_t)(int64_t)multiplier;
const uint64_t half = ((uint64_t)1 << (right - 1)) - ((int64_t)product < 0);
return (int32_t)((int64_t)(product + half) >> right);
}
""",
    "tinyai_fixed_point_tflite": """
/* x * multiplier * 2^(left - right) as TFLite rounds it: to 2^-31 first, then by the rest. */
TINYAI_INLINE int32_t tinyai_fixed_point_tflite(int64_t x, int32_t multiplier, int left,
int right) {
const int64_t product = (int64_t)(int32_t)((uint32_t)x << left) * multiplier;
const int64_t high = (product + (product < 0 ? 1 - (1 << 30) : 1 << 30)) / ((int64_t)1 << 31);
const int64_t mask = ((int64_t)1 << (right - 31)) - 1;
return (int32_t)((high >> (right - 31)) + ((high & mask) > (mask >> 1) + (high < 0)));
}
""",
}

_ROUND = {mode: f"tinyai_round_{mode}" for mode in ("away", "even", "floor", "cut")}
_FIXED_POINT = {
    "upward": "tinyai_fixed_point",
    "tonearest": "tinyai_fixed_point_nearest",
    "tflite": "tinyai_fixed_point_tflite",
}


@dataclass(frozen=True)
class Chain:
    """Steps that elements of type ``start`` have before them."""

    start: DType
    steps: Sequence[Step]


@dataclass
class Epilogue:
    """Writes the steps of one node. Operands become parameters ``p0``, ``p1`` … in order of use;
    constants of one element become literals. Numbers of a step's own (tables, multipliers) become
    parameters ``a0``, ``a1`` …. ``helpers`` collects what the C file must hold, ``cores`` the
    functions, by name, that layers of one instruction set share; ``slower`` why the node takes
    longer than such nodes can. ``threads`` is how many may work on the node at most."""

    graph: Lowered
    node: Node
    threads: int = 1
    params: list[str] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    cores: dict[str, str] = field(default_factory=dict)
    slower: list[str] = field(default_factory=list)
    _count: int = 0

    def write(
        self, value: str, dtype: DType, axes: Sequence[Axis], chain: Sequence[Step] | None = None
    ) -> str:
        """Statements that take ``value`` through all steps, or those of ``chain``; the result is
        ``result``'s."""
        chain = self.node.epilogue if chain is None else chain
        lines, self.result = self._chain(chain, value, dtype, axes)
        return "\n".join(lines)

    def param(self, tensor: str) -> str:
        """Name of the pointer parameter of a tensor that the steps read."""
        if tensor not in self.params:
            self.params.append(tensor)
        return f"p{self.params.index(tensor)}"

    def array(self, value: Array) -> str:
        """Name of the pointer parameter of an array that belongs to a step."""
        for number, known in enumerate(self.arrays):
            if known.dtype == value.dtype and np.array_equal(known, value):
                return f"a{number}"
        self.arrays.append(value)
        return f"a{len(self.arrays) - 1}"

    def _chain(
        self, chain: Sequence[Step], value: str, dtype: DType, axes: Sequence[Axis]
    ) -> tuple[list[str], str]:
        lines: list[str] = []
        for step in chain:
            operand = None
            if step.operand is not None:
                before, operand = self._operand(step.operand, axes)
                lines += before
            result = step.result(dtype)
            if isinstance(
                step, steps.Clip
            ):  # TVM's order: min first, so that a NaN is the high bound
                low, high = literal(step.low, dtype), literal(step.high, dtype)
                value = self._name(lines, f"{value} < {high} ? {value} : {high}", dtype)
                value = self._name(lines, f"{value} > {low} ? {value} : {low}", dtype)
            else:
                value = self._name(
                    lines, self._expression(step, value, operand, dtype, axes), result
                )
            dtype = result
        return lines, value

    def _name(self, lines: list[str], expression: str, dtype: DType) -> str:
        """Give an expression a name of its own."""
        name = self.name()
        lines.append(f"const {C_TYPES[dtype]} {name} = {expression};")
        return name

    def name(self) -> str:
        """The next variable."""
        self._count += 1
        return f"v{self._count}"

    def _operand(self, operand: Operand, axes: Sequence[Axis]) -> tuple[list[str], str]:
        of = self.graph.stored(operand.tensor)
        dtype = of.type.dtype
        constant = self.graph.constants.get(operand.tensor)
        if constant is not None and constant.size == 1:
            value = literal(constant.reshape(-1)[0], dtype)
        else:
            value = f"{self.param(operand.tensor)}[{place(of, axes)}]"
        return self._chain(operand.steps, value, dtype, axes)

    def _number(
        self, values: tuple[int, ...], dtype: DType, axis: int | None, axes: Sequence[Axis]
    ) -> str:
        """One number of a step, or the one that belongs to the position along its axis."""
        if len(set(values)) == 1:
            return literal(values[0], dtype)
        assert axis is not None
        rank = sum(len(each.sizes) for each in axes)
        along = tuple(len(values) if dim == axis else 1 for dim in range(rank))
        return f"{self.array(np.array(values, dtype.numpy))}[{element(along, axes)}]"

    def _real(self, step: steps.RealMultiply, axes: Sequence[Axis]) -> str:
        """The double of a step, or the one of the position along its axis, read from its bits."""
        if len(set(step.multiplier)) == 1:
            return repr(float(step.multiplier[0]))
        self.helpers |= {"string.h", "tinyai_double"}
        bits = tuple(np.array(step.multiplier, np.float64).view(np.int64).tolist())
        return f"tinyai_double({self._number(bits, DType.INT64, step.axis, axes)})"

    def _expression(
        self, step: Step, value: str, operand: str | None, dtype: DType, axes: Sequence[Axis]
    ) -> str:
        match step:
            case steps.Cast(to):
                return f"({C_TYPES[to]}){value}"
            case steps.Relu():
                zero = literal(0, dtype)
                return f"{value} > {zero} ? {value} : {zero}"
            case steps.LeakyRelu(alpha):
                slope = literal(alpha if dtype.is_float else int(alpha), dtype)
                scaled = _arithmetic("*", value, slope, dtype)
                return f"{value} > {literal(0, dtype)} ? {value} : {scaled}"
            case steps.MultiplyAdd(factor):
                self.helpers.add("tinyai_math")
                return f"TINYAI_FMAF({value}, {literal(factor, dtype)}, {operand})"
            case steps.Round(mode):
                helper = _ROUND[mode]
                self.helpers.add(helper)
                return f"{helper}({value})"
            case steps.FixedPointMultiply():
                helper = _FIXED_POINT[step.rounding]
                self.helpers.add(helper)
                numbers = (
                    self._number(values, dtype, step.axis, axes)
                    for values, dtype in (
                        (step.multiplier, DType.INT32),
                        (step.left, DType.UINT8),
                        (step.right, DType.UINT8),
                    )
                )
                return f"{helper}({', '.join((value, *numbers))})"
            case steps.RealMultiply():
                helper = f"tinyai_real_{step.rounding}"
                self.helpers.add(helper)
                number = self._real(step, axes)
                ends = (literal(end, DType.INT32) for end in (step.low, step.high))
                return f"{helper}({', '.join((value, number, f'{step.offset}.0', *ends))})"
            case steps.Lookup(table, to):
                lowest = dtype.range[0]
                index = f"{value} - {lowest}" if lowest >= 0 else f"{value} + {-lowest}"
                return f"{self.array(np.array(table, to.numpy))}[{index}]"
        assert operand is not None, step
        return _BINARY[type(step)](value, operand, dtype)


def write_scalar(
    epilogue: Epilogue, chain: Chain, taken: str, place: str, axes: Sequence[Axis], count: int
) -> str:
    """A loop that takes ``acc[taken]`` through the steps of a chain to ``out[place]``, for
    ``count`` values of the variable c."""
    text = epilogue.write(f"acc[{taken}]", chain.start, axes, chain.steps)
    return "\n".join(
        [
            f"for (ptrdiff_t c = 0; c < {count}; ++c) {{",
            text,
            f"out[{place}] = {epilogue.result};",
            "}",
        ]
    )
