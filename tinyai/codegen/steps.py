"""Epilogues as C: one statement a step, each with a name of its own.

Signed integers wrap without undefined behaviour: sums and products are taken unsigned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinyai.codegen.c import C_TYPES, literal
from tinyai.codegen.ctree import Assign, Declare, For, Statement
from tinyai.codegen.definitions import Definition, collect
from tinyai.codegen.helpers import DOUBLE, FIXED_POINT, MATH, REAL, ROUND
from tinyai.codegen.index import Axis, element
from tinyai.codegen.placed import Placed, stored_index
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
    steps.RightShift: lambda a, b, t: (
        f"{a} >> {b}" if t in _WIDE else f"({C_TYPES[t]})({a} >> {b})"
    ),
    steps.LeftShift: lambda a, b, t: f"({C_TYPES[t]})(({_WIDE.get(t, 'uint32_t')}){a} << {b})",
}
_FUNCTIONS = {
    "abs": "TINYAI_FABSF({})",
    "negative": "-{}",
    "rsqrt": "1.0f / TINYAI_SQRTF({})",
    "sqrt": "TINYAI_SQRTF({})",
    "square": "{0} * {0}",
}
_LOGIC = {"and": "{} && {}", "or": "{} || {}", "xor": "!{} != !{}"}


@dataclass(frozen=True)
class StepChain:
    """Steps that elements of type ``start`` have before them."""

    start: DType
    steps: Sequence[Step]


@dataclass
class Epilogue:
    """Writes the steps of one node. Operands become parameters ``p0``, ``p1`` … in order of use;
    constants of one element become literals. Numbers of a step's own (tables, multipliers) become
    parameters ``a0``, ``a1`` …. ``needs`` collects what the C file must hold, by name; ``slower``
    why the node takes longer than such nodes can, ``told`` what else the comment above it says.
    ``threads`` is how many may work on the node at
    most. ``calls_only`` says that the function does nothing but call microkernels."""

    graph: Placed
    node: Node
    threads: int = 1
    params: list[str] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    needs: dict[str, Definition] = field(default_factory=dict)
    slower: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    calls_only: bool = False
    _count: int = 0

    def write(
        self,
        value: str,
        dtype: DType,
        axes: Sequence[Axis],
        at: str | None = None,
        chain: Sequence[Step] | None = None,
    ) -> list[Statement]:
        """Statements that take ``value`` through all steps, or those of ``chain``, and store the
        result in ``out``, where the axes say or ``at`` another place."""
        chain = self.node.epilogue if chain is None else chain
        at = stored_index(self.graph.stored(self.node.output), axes) if at is None else at
        return self.write_to(f"out[{at}]", value, dtype, axes, chain)

    def write_to(
        self, place: str, value: str, dtype: DType, axes: Sequence[Axis], chain: Sequence[Step]
    ) -> list[Statement]:
        """The same for the steps of a chain, with the result in another place."""
        lines, result = self._chain(chain, value, dtype, axes)
        return [*lines, Assign(place, result)]

    def need(self, *definitions: Definition) -> str:
        """The file then holds these; the name of the last one."""
        for each in definitions:
            collect(self.needs, each)
        return definitions[-1].name

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
    ) -> tuple[list[Statement], str]:
        lines: list[Statement] = []
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

    def _name(self, lines: list[Statement], expression: str, dtype: DType) -> str:
        """Give an expression a name of its own."""
        name = self.name()
        lines.append(Declare(f"const {C_TYPES[dtype]}", name, expression))
        return name

    def name(self) -> str:
        """The next variable."""
        self._count += 1
        return f"v{self._count}"

    def _operand(self, operand: Operand, axes: Sequence[Axis]) -> tuple[list[Statement], str]:
        of = self.graph.stored(operand.tensor)
        dtype = of.type.dtype
        constant = self.graph.number(operand.tensor)
        if constant is not None:
            value = literal(constant.reshape(-1)[0], dtype)
        else:
            value = f"{self.param(operand.tensor)}[{stored_index(of, axes)}]"
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
        double = self.need(DOUBLE)
        bits = tuple(np.array(step.multiplier, np.float64).view(np.int64).tolist())
        return f"{double}({self._number(bits, DType.INT64, step.axis, axes)})"

    def _expression(
        self, step: Step, value: str, operand: str | None, dtype: DType, axes: Sequence[Axis]
    ) -> str:
        match step:
            case steps.Cast(to):
                if DType.BOOL in (dtype, to):
                    value = f"({value} != {literal(0, dtype)})"
                return f"({C_TYPES[to]}){value}"
            case steps.Relu():
                zero = literal(0, dtype)
                return f"{value} > {zero} ? {value} : {zero}"
            case steps.LeakyRelu(alpha):
                slope = literal(alpha if dtype.is_float else int(alpha), dtype)
                scaled = _arithmetic("*", value, slope, dtype)
                return f"{value} > {literal(0, dtype)} ? {value} : {scaled}"
            case steps.AddProduct(factor):
                self.need(MATH)
                return f"TINYAI_FMAF({operand}, {literal(factor, dtype)}, {value})"
            case steps.MultiplyAdd(factor):
                self.need(MATH)
                return f"TINYAI_FMAF({value}, {literal(factor, dtype)}, {operand})"
            case steps.Function(function):
                self.need(MATH)
                return _FUNCTIONS[function].format(value)
            case steps.Round(mode):
                return f"{self.need(ROUND[mode])}({value})"
            case steps.FixedPointMultiply():
                helper = self.need(FIXED_POINT[step.ties])
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
                helper = self.need(REAL[step.mode])
                number = self._real(step, axes)
                ends = (literal(end, DType.INT32) for end in (step.low, step.high))
                return f"{helper}({', '.join((value, number, f'{step.offset}.0', *ends))})"
            case steps.Lookup():
                lowest = dtype.range[0]
                index = f"{value} - {lowest}" if lowest >= 0 else f"{value} + {-lowest}"
                return f"{self.array(step.results)}[{index}]"
            case steps.Not():
                return f"!{value}"
            case steps.Compare(sign) if dtype is DType.BOOL:  # of which any byte but 0 is true
                return f"!!{value} {sign} !!{operand}"
            case steps.Compare(sign):
                return f"{value} {sign} {operand}"
            case steps.Logic(word):
                return _LOGIC[word].format(value, operand)
            case steps.Fill(number, when):
                return f"{'' if when else '!'}{operand} ? {literal(number, dtype)} : {value}"
        assert operand is not None, step
        return _BINARY[type(step)](value, operand, dtype)


def write_scalar(
    epilogue: Epilogue,
    chain: StepChain,
    acc_index: str,
    out_index: str,
    axes: Sequence[Axis],
    count: int,
) -> Statement:
    """A loop that takes ``acc[acc_index]`` through the steps of a chain to ``out[out_index]``, for
    ``count`` values of the variable c."""
    steps = epilogue.write(f"acc[{acc_index}]", chain.start, axes, out_index, chain.steps)
    return For("c", 0, count, steps)
