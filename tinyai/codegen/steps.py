"""Epilogues as C: one statement a step, each with a name of its own.

Signed integers wrap without undefined behaviour: sums and products are taken unsigned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tinyai.codegen.c import C_TYPES, literal
from tinyai.codegen.index import Axis, element
from tinyai.ir import DType, Graph, Node, Operand, Step
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
    steps.Maximum: lambda a, b, t: f"{a} > {b} ? {a} : {b}",
    steps.Minimum: lambda a, b, t: f"{a} < {b} ? {a} : {b}",
    steps.RightShift: _right_shift,
    steps.LeftShift: _left_shift,
}

HELPERS = {
    "tinyai_dot_patches": """
/* acc[p][c] = the products of patch p and row c of the weights, summed; four patches at once. */
static void tinyai_dot_patches(const int16_t *patch, const int8_t *weight, ptrdiff_t k,
ptrdiff_t rows, int32_t *acc) {
const int16_t *const p0 = patch;
const int16_t *const p1 = patch + k;
const int16_t *const p2 = patch + 2 * k;
const int16_t *const p3 = patch + 3 * k;
for (ptrdiff_t c = 0; c < rows; ++c) {
const int8_t *const row = weight + c * k;
int32_t s0 = 0;
int32_t s1 = 0;
int32_t s2 = 0;
int32_t s3 = 0;
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
""",
    "tinyai_round": """
/* Nearest integer, halves away from zero. A float beyond 2^23 has no fraction. */
static inline float tinyai_round(float x) {
if (!(x > -8388608.0f && x < 8388608.0f)) {
return x;
}
const int32_t whole = (int32_t)x;
const float rest = x - (float)whole;
const float nearest = (float)(whole + (rest >= 0.5f) - (rest <= -0.5f));
return nearest == 0.0f ? x * 0.0f : nearest; /* keeps the sign of a zero */
}
""",
    "tinyai_fixed_point": """
/* x * multiplier * 2^(left - right), rounded half up in 64 bits, cut to 32. */
static inline int32_t tinyai_fixed_point(int64_t x, int32_t multiplier, int left, int right) {
const uint64_t product = ((uint64_t)x << left) * (uint64_t)(int64_t)multiplier;
return (int32_t)((int64_t)(product + ((uint64_t)1 << (right - 1))) >> right);
}
""",
}


@dataclass
class Epilogue:
    """Writes the steps of one node. Operands become parameters ``p0``, ``p1`` … in order of use;
    constants of one element become literals. ``helpers`` collects what the C file must hold."""

    graph: Graph
    node: Node
    params: list[str] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    _count: int = 0

    def write(self, value: str, dtype: DType, axes: Sequence[Axis]) -> str:
        """Statements that take ``value`` through all steps; the result is ``result``'s."""
        lines, self.result = self._chain(self.node.epilogue, value, dtype, axes)
        return "\n".join(lines)

    def param(self, tensor: str) -> str:
        """Name of the pointer parameter of a tensor that the steps read."""
        if tensor not in self.params:
            self.params.append(tensor)
        return f"p{self.params.index(tensor)}"

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
                value = self._name(lines, self._expression(step, value, operand, dtype), result)
            dtype = result
        return lines, value

    def _name(self, lines: list[str], expression: str, dtype: DType) -> str:
        """Give an expression a name of its own: the next variable."""
        self._count += 1
        lines.append(f"const {C_TYPES[dtype]} v{self._count} = {expression};")
        return f"v{self._count}"

    def _operand(self, operand: Operand, axes: Sequence[Axis]) -> tuple[list[str], str]:
        of = self.graph.type(operand.tensor)
        constant = self.graph.constants.get(operand.tensor)
        if constant is not None and constant.size == 1:
            value = literal(constant.reshape(-1)[0], of.dtype)
        else:
            value = f"{self.param(operand.tensor)}[{element(of.shape, axes)}]"
        return self._chain(operand.steps, value, of.dtype, axes)

    def _expression(self, step: Step, value: str, operand: str | None, dtype: DType) -> str:
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
            case steps.Round():
                self.helpers.add("tinyai_round")
                return f"tinyai_round({value})"
            case steps.FixedPointMultiply(multiplier):
                self.helpers.add("tinyai_fixed_point")
                factor = literal(multiplier, DType.INT32)
                left, right = step.places
                return f"tinyai_fixed_point({value}, {factor}, {left}, {right})"
        assert operand is not None, step
        return _BINARY[type(step)](value, operand, dtype)
