"""Epilogues as AVX-512 code: 16 elements at a time, each a 32-bit lane, one statement a step.

A lane holds an integer of any type exactly, or a float. Where a step ``lacks`` a form here, the
kernel writes the scalar steps (``tinyai/codegen/steps.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinyai.codegen.c import literal
from tinyai.codegen.ctree import Code, Declare
from tinyai.codegen.definitions import Definition
from tinyai.codegen.index import Axis
from tinyai.codegen.isa.vectors import table_bytes
from tinyai.codegen.isa.x86_64.avx512vnni.simd import (
    DIVIDE,
    FIXED_POINT,
    FIXED_POINT_RIGHT,
    LINE,
    LOOKUP,
    ROUND_AWAY,
    ROUND_CUT,
    scale,
)
from tinyai.codegen.line import line_of
from tinyai.codegen.placed import Placed, stored_index
from tinyai.codegen.quotient import reciprocal_of
from tinyai.codegen.steps import Epilogue
from tinyai.ir import NARROW, DType, Operand, Step, Type
from tinyai.ops import steps
from tinyai.ops.bounds import INT32_MAX, largest_size

LANES = 16

_INTEGER: dict[type[Step], Callable[[str, str], str]] = {
    steps.Add: lambda a, b: f"_mm512_add_epi32({a}, {b})",
    steps.Subtract: lambda a, b: f"_mm512_sub_epi32({a}, {b})",
    steps.SubtractFrom: lambda a, b: f"_mm512_sub_epi32({b}, {a})",
    steps.Multiply: lambda a, b: f"_mm512_mullo_epi32({a}, {b})",
    steps.RightShift: lambda a, b: f"_mm512_srav_epi32({a}, {b})",
    steps.LeftShift: lambda a, b: f"_mm512_sllv_epi32({a}, {b})",
}
# These choose a value and change none: right for every integer type.
_CHOICE: dict[type[Step], Callable[[str, str], str]] = {
    steps.Maximum: lambda a, b: f"_mm512_max_epi32({a}, {b})",
    steps.Minimum: lambda a, b: f"_mm512_min_epi32({a}, {b})",
}
# minps and maxps answer with the second operand where one is a NaN, as ``a < b ? a : b`` does.
_FLOAT: dict[type[Step], Callable[[str, str], str]] = {
    steps.Add: lambda a, b: f"_mm512_add_ps({a}, {b})",
    steps.Subtract: lambda a, b: f"_mm512_sub_ps({a}, {b})",
    steps.SubtractFrom: lambda a, b: f"_mm512_sub_ps({b}, {a})",
    steps.Multiply: lambda a, b: f"_mm512_mul_ps({a}, {b})",
    steps.Divide: lambda a, b: f"_mm512_div_ps({a}, {b})",
    steps.Maximum: lambda a, b: f"_mm512_max_ps({a}, {b})",
    steps.Minimum: lambda a, b: f"_mm512_min_ps({a}, {b})",
    steps.Prelu: lambda a, b: (
        f"_mm512_mask_mul_ps({a}, "
        f"_mm512_cmp_ps_mask({a}, _mm512_setzero_ps(), _CMP_NGT_UQ), {a}, {b})"
    ),
}
_ROUND = {
    "even": "_mm512_roundscale_ps({}, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)",
    "floor": (
        "_mm512_roundscale_ps(_mm512_add_ps({}, _mm512_set1_ps(0.5f)), "
        "_MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)"
    ),
}
_ROUND_CALL = {"away": ROUND_AWAY, "cut": ROUND_CUT}
_LOAD = {
    DType.INT8: "_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(lanes, {}))",
    DType.UINT8: "_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanes, {}))",
    DType.INT16: "_mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(lanes, {}))",
    DType.INT32: "_mm512_maskz_loadu_epi32(lanes, {})",
    DType.FLOAT32: "_mm512_maskz_loadu_ps(lanes, {})",
}
_STORE = {
    DType.INT8: "_mm_mask_storeu_epi8({}, lanes, _mm512_cvtepi32_epi8({}))",
    DType.UINT8: "_mm_mask_storeu_epi8({}, lanes, _mm512_cvtepi32_epi8({}))",
    DType.INT16: "_mm256_mask_storeu_epi16({}, lanes, _mm512_cvtepi32_epi16({}))",
    DType.INT32: "_mm512_mask_storeu_epi32({}, lanes, {})",
    DType.FLOAT32: "_mm512_mask_storeu_ps({}, lanes, {})",
}
# The same for any 32-bit integers, cut to the type's bounds on the way.
_SATURATE = {
    DType.INT8: "_mm_mask_storeu_epi8({}, lanes, _mm512_cvtsepi32_epi8({}))",
    DType.UINT8: (
        "_mm_mask_storeu_epi8({}, lanes, "
        "_mm512_cvtusepi32_epi8(_mm512_max_epi32({}, _mm512_setzero_si512())))"
    ),
}


def lacks(graph: Placed, axes: Sequence[Axis], dtype: DType, chain: Sequence[Step]) -> str | None:
    """``Vectors.lacks``: the first of what has no form, in the order in which it is written."""
    return next(_lacking(graph, axes, dtype, chain), None)


def _lacking(
    graph: Placed, axes: Sequence[Axis], dtype: DType, chain: Sequence[Step]
) -> Iterator[str]:
    if dtype not in _LOAD:
        yield f"elements of {dtype}"
    result = yield from _of_steps(graph, axes, dtype, chain)
    if result not in _STORE:
        yield f"results of {result}"


def _of_steps(
    graph: Placed, axes: Sequence[Axis], dtype: DType, chain: Sequence[Step]
) -> Generator[str, None, DType]:
    if line := line_of(graph, chain, dtype):
        chain, dtype = chain[line.steps :], DType.INT32
    for step in chain:
        if step.operand:
            of = graph.type(step.operand.tensor)
            yield from _of_operand(graph, axes[-1], step.operand.tensor)
            yield from _of_steps(graph, axes, of.dtype, step.operand.steps)
        yield from _of_step(axes, step, dtype)
        dtype = step.result(dtype)
    return dtype


def _of_operand(graph: Placed, last: Axis, tensor: str) -> Iterator[str]:
    of, constant = graph.type(tensor), graph.number(tensor) is not None
    along = _along(last, of)
    if constant or (set(along) == {1} and along != last.sizes):
        if of.dtype is DType.INT64:
            yield "numbers of int64"
    elif along != last.sizes:
        yield f"an operand of {of} that is broadcast inside of the lanes"
    elif of.dtype not in _LOAD:
        yield f"elements of {of.dtype}"


def _of_step(axes: Sequence[Axis], step: Step, dtype: DType) -> Iterator[str]:
    match step:
        case steps.Cast(to):
            if lacking := {DType.INT64, DType.BOOL} & {dtype, to}:
                yield min(lacking)
        case steps.Lookup(_, to):
            if not {dtype, to} <= {*NARROW}:
                yield f"a table from {dtype} to {to}"
        case steps.FixedPointMultiply():
            last = sum(len(axis.sizes) for axis in axes) - 1
            one_number = all(len(set(n)) == 1 for n in (step.multiplier, step.left, step.right))
            if not one_number and (step.axis != last or len(axes[-1].sizes) != 1):
                yield f"numbers along axis {step.axis}"
        case steps.Round() | steps.Clip() | steps.Relu():
            pass
        case steps.MultiplyAdd() if dtype.is_float:
            pass
        case steps.Divide() if dtype is DType.INT32:
            pass
        case _:
            integer = _CHOICE | _INTEGER if dtype is DType.INT32 else _CHOICE
            if type(step) not in (_FLOAT if dtype.is_float else integer):
                yield f"{step.name} of {dtype}"


def _along(last: Axis, of: Type) -> tuple[int, ...]:
    """A tensor's sizes in the dimensions of the lanes' axis."""
    sizes = of.shape[-len(last.sizes) :] if of.shape else ()
    return (1,) * (len(last.sizes) - len(sizes)) + tuple(sizes)


def load(address: str, dtype: DType) -> str:
    """The elements at an address, where the mask ``lanes`` says so, as lanes."""
    return _LOAD[dtype].format(address)


@dataclass
class VectorSteps:
    """Writes the steps of one node for lanes that run along the last of ``axes``."""

    epilogue: Epilogue
    axes: Sequence[Axis]
    lines: list[Code] = field(default_factory=list)
    needs: list[Definition] = field(default_factory=list)

    def need(self, definition: Definition) -> str:
        """The name of what the file holds, if all steps have a form."""
        self.needs.append(definition)
        return definition.name

    def write(
        self, value: str, dtype: DType, address: str, chain: Sequence[Step] | None = None
    ) -> Code:
        """Statements that take lanes of ``dtype`` through all steps, or those of ``chain``, and
        store the result at an address."""
        chain = self.epilogue.node.epilogue if chain is None else chain
        stored = self._stored(value, dtype, address, chain)
        if self.needs:
            self.epilogue.need(*self.needs)
        return [*self.lines, stored]

    def _stored(self, value: str, dtype: DType, address: str, chain: Sequence[Step]) -> str:
        value = self._name(value, dtype)
        ending = _ending(chain)
        first, last = chain[: len(chain) - ending], chain[len(chain) - ending :]
        value, dtype = self._chain(first, value, dtype, last)
        if ending == 2 and dtype is DType.INT32:
            dtype = chain[-1].result(dtype)
            return _SATURATE[dtype].format(address, value) + ";"
        if last:  # the store cuts off what the cast would
            value, dtype = self._chain(last[:-1], value, dtype)
            if dtype.is_float:
                value = self._name(_cast(value, dtype, DType.INT32), DType.INT32)
            dtype = last[-1].result(dtype)
        return _STORE[dtype].format(address, value) + ";"

    def _chain(
        self, chain: Sequence[Step], value: str, dtype: DType, after: Sequence[Step] = ()
    ) -> tuple[str, DType]:
        """The value after a chain, which other steps come ``after``."""
        bounded: tuple[float, float] | None = None  # by the clip before
        start, begin = dtype, 0
        line = line_of(self.epilogue.graph, chain, dtype)
        if line is not None:
            begin, dtype = line.steps, DType.INT32
            numbers = (f"_mm512_set1_ps({literal(n, DType.FLOAT32)})" for n in (line.a, line.b))
            value = self._name(f"{self.need(LINE)}({value}, {', '.join(numbers)})", dtype)
        for number, step in enumerate(chain[begin:], begin):
            result = step.result(dtype)
            if not (isinstance(step, steps.Cast) and _holds(step.to, bounded)):
                expression = self._short_scale(step, value, chain[:number], start)
                expression = expression or self._quotient([*chain[number:], *after], value, dtype)
                if expression is None:
                    operand = self._operand(step.operand) if step.operand else None
                    expression = self._expression(step, value, operand, dtype)
                value = self._name(expression, result)
            clips = isinstance(step, steps.Clip) and not dtype.is_float
            bounded = (step.low, step.high) if clips and isinstance(step, steps.Clip) else None
            dtype = result
        return value, dtype

    def _short_scale(
        self, step: Step, value: str, before: Sequence[Step], start: DType
    ) -> str | None:
        """A fixed-point multiplication in six operations or nine, where the value is known to be
        small enough (``codegen/requantization.py`` says why that is exact)."""
        if not isinstance(step, steps.FixedPointMultiply) or step.ties == "tonearest":
            return None
        if len(step.multiplier) > 1 or step.result(DType.INT32) is not DType.INT32:
            return None
        left, right = step.left[0], step.right[0]
        twice = step.ties == "twice" and right > 31
        if twice and step.multiplier[0] < 0:
            return None
        more = 2 if twice else max(33 - right, 0)
        left, right = left + more, right + more
        half = (1 << (right - 33)) + twice
        largest = largest_size(self.epilogue.graph, before, start) << left
        if largest > INT32_MAX or (largest >> 1) + half > INT32_MAX:
            return None
        shifted = f"_mm512_slli_epi32({value}, {left})" if left and not twice else value
        multiplier, offset, places = (
            f"_mm512_set1_epi32({literal(number, DType.INT32)})"
            for number in (step.multiplier[0], half, right - 32)
        )
        helper = self.need(scale(twice=twice))
        return f"{helper}({shifted}, {multiplier}, {multiplier}, {offset}, {places})"

    def _quotient(self, chain: Sequence[Step], value: str, dtype: DType) -> str | None:
        """A division of floats by a number in two multiplications."""
        found = reciprocal_of(self.epilogue.graph, chain) if dtype.is_float else None
        if found is None:
            return None
        high, low = (
            f"_mm512_set1_ps({literal(n, DType.FLOAT32)})" for n in (found.high, found.low)
        )
        if not found.low:
            return f"_mm512_mul_ps({value}, {high})"
        return f"_mm512_fmadd_ps({value}, {high}, _mm512_mul_ps({value}, {low}))"

    def _name(self, expression: str, dtype: DType) -> str:
        name = self.epilogue.name()
        kind = "__m512" if dtype.is_float else "__m512i"
        self.lines.append(Declare(f"const {kind}", name, expression))
        return name

    def _operand(self, operand: Operand) -> str:
        graph = self.epilogue.graph
        of = graph.type(operand.tensor)
        constant = graph.number(operand.tensor)
        if constant is not None:
            value = _all_lanes(literal(constant.reshape(-1)[0], of.dtype), of.dtype)
        else:
            value = self._tensor(operand.tensor)
        name = self._name(value, of.dtype)
        return self._chain(operand.steps, name, of.dtype)[0]

    def _tensor(self, tensor: str) -> str:
        of = self.epilogue.graph.type(tensor)
        at = stored_index(self.epilogue.graph.stored(tensor), self.axes)
        pointer = self.epilogue.param(tensor)
        if _along(self.axes[-1], of) == self.axes[-1].sizes:
            return load(f"{pointer} + {at}", of.dtype)
        return _all_lanes(f"{pointer}[{at}]", of.dtype)

    def _numbers(self, values: tuple[int, ...]) -> str:
        """One number of a step, or those of the lanes' channels."""
        if len(set(values)) == 1:
            return f"_mm512_set1_epi32({literal(values[0], DType.INT32)})"
        name = self.epilogue.array(np.array(values, np.int32))
        return f"_mm512_maskz_loadu_epi32(lanes, {name} + {self.axes[-1].var})"

    def _lookup(self, step: steps.Lookup, value: str, dtype: DType) -> str:
        table = self.epilogue.array(table_bytes(step, dtype))
        found = f"{self.need(LOOKUP)}({value}, {table})"
        return _cast(found, DType.INT32, step.to)

    def _expression(self, step: Step, value: str, operand: str | None, dtype: DType) -> str:
        if isinstance(step, steps.Cast):
            return _cast(value, dtype, step.to)
        if isinstance(step, steps.Round):
            if step.mode in _ROUND_CALL:
                return f"{self.need(_ROUND_CALL[step.mode])}({value})"
            return _ROUND[step.mode].format(value)
        if isinstance(step, steps.Lookup):
            return self._lookup(step, value, dtype)
        if isinstance(step, steps.FixedPointMultiply):
            numbers = [self._numbers(n) for n in (step.multiplier, step.left, step.right)]
            if step.ties == "upward" and not any(step.left):
                return f"{self.need(FIXED_POINT_RIGHT)}({value}, {numbers[0]}, {numbers[2]})"
            return f"{self.need(FIXED_POINT[step.ties])}({', '.join((value, *numbers))})"
        if dtype.is_float:
            return _float(step, value, operand)
        if isinstance(step, steps.Divide) and dtype is DType.INT32:
            return f"{self.need(DIVIDE)}({value}, {operand})"
        return _integer(step, value, operand)


def _ending(chain: Sequence[Step]) -> int:
    """With how many steps a chain ends that a store takes over: the cast to a narrow type, and in
    front of it the bounds of an 8-bit one."""
    match chain[-2:]:
        case [steps.Clip(low, high), steps.Cast(to)] if to in _SATURATE and (low, high) == to.range:
            return 2
        case [*_, steps.Cast(DType.INT8 | DType.UINT8 | DType.INT16)]:
            return 1
    return 0


def _holds(dtype: DType, bounds: tuple[float, float] | None) -> bool:
    """Whether every integer between the bounds is one of ``dtype``."""
    if bounds is None or dtype.is_float or dtype is DType.INT64:
        return False
    return dtype.range[0] <= bounds[0] and bounds[1] <= dtype.range[1]


def _all_lanes(value: str, dtype: DType) -> str:
    return f"_mm512_set1_ps({value})" if dtype.is_float else f"_mm512_set1_epi32({value})"


def _cast(value: str, dtype: DType, to: DType) -> str:
    if dtype.is_float:
        if to.is_float:
            return value
        if to is not DType.INT32:  # C leaves what is out of range undefined; so do we
            return _cast(f"_mm512_cvttps_epi32({value})", DType.INT32, to)
        return f"_mm512_cvttps_epi32({value})"
    if to.is_float:
        return f"_mm512_cvtepi32_ps({value})"
    if to.range[0] <= dtype.range[0] and dtype.range[1] <= to.range[1]:
        return value
    narrow, widen = {
        DType.INT8: ("_mm512_cvtepi32_epi8", "_mm512_cvtepi8_epi32"),
        DType.UINT8: ("_mm512_cvtepi32_epi8", "_mm512_cvtepu8_epi32"),
        DType.INT16: ("_mm512_cvtepi32_epi16", "_mm512_cvtepi16_epi32"),
        DType.INT32: ("", ""),
    }[to]
    return f"{widen}({narrow}({value}))" if narrow else value


def _float(step: Step, value: str, operand: str | None) -> str:
    match step:
        case steps.Clip(low, high):
            bounds = [f"_mm512_set1_ps({literal(b, DType.FLOAT32)})" for b in (high, low)]
            return f"_mm512_max_ps(_mm512_min_ps({value}, {bounds[0]}), {bounds[1]})"
        case steps.Relu():
            return f"_mm512_max_ps({value}, _mm512_setzero_ps())"
        case steps.MultiplyAdd(factor):
            number = f"_mm512_set1_ps({literal(factor, DType.FLOAT32)})"
            times, plus = (
                (operand, value) if isinstance(step, steps.AddProduct) else (value, operand)
            )
            return f"_mm512_fmadd_ps({times}, {number}, {plus})"
    assert operand is not None, step
    return _FLOAT[type(step)](value, operand)


def _integer(step: Step, value: str, operand: str | None) -> str:
    match step:
        case steps.Clip(low, high):
            bounds = [f"_mm512_set1_epi32({literal(b, DType.INT32)})" for b in (high, low)]
            return f"_mm512_max_epi32(_mm512_min_epi32({value}, {bounds[0]}), {bounds[1]})"
        case steps.Relu():
            return f"_mm512_max_epi32({value}, _mm512_setzero_si512())"
    assert operand is not None, step
    return (_CHOICE | _INTEGER)[type(step)](value, operand)
