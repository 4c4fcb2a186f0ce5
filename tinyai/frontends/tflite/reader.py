"""From a .tflite file to expressions of the vocabulary.

``operators/`` has a reader for each operator; here are the values that they read, in the order of
the file. Needs numpy and the package of the format's schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from tinyai.frontends.faults import LARGEST
from tinyai.frontends.moves import reshaped, transposed
from tinyai.frontends.source_model import End, SourceModel, unread
from tinyai.frontends.tflite.batch import require_own_images
from tinyai.frontends.tflite.file import File, FileOperator
from tinyai.frontends.tflite.loops import MOST_OPERATORS, results_of_loop
from tinyai.frontends.tflite.open_shapes import MOVES, TOLD, shape_by_inputs
from tinyai.frontends.tflite.tensors import FileTensor, OperatorOptions
from tinyai.frontends.tflite.variables import CONTROL_FLOW, KINDS, Variables
from tinyai.ir import Array
from tinyai.lowering import graph_of
from tinyai.partition.reasons import Language, such_as
from tinyai.reference import run_graph
from tinyai.source import (
    IN_FLOATS,
    TVMS_OWN,
    Call,
    Constant,
    Expr,
    Field,
    Refusal,
    SourceType,
    Tuple,
    Unread,
    post_order,
    require,
    tensors_of,
)
from tinyai.vocabulary import call, constant

# A reader returns the expression of an operator's result, or of its results in order.
Read: TypeAlias = "Callable[[Site], Expr | tuple[Expr, ...]]"


@dataclass(frozen=True)
class Row:
    """How an operator is read: the schema's table of its options, and how many inputs it has."""

    read: Read
    options: str
    inputs: range


@dataclass(frozen=True)
class Site:
    """An operator of the file as its reader sees it."""

    kind: str
    inputs: tuple[FileTensor | None, ...]
    outputs: tuple[FileTensor, ...]
    options: OperatorOptions
    values: tuple[Expr | None, ...]

    @property
    def name(self) -> str:
        return ", ".join(each.name for each in self.outputs)

    @property
    def output(self) -> FileTensor:
        require(len(self.outputs) == 1, "results", len(self.outputs), "one")
        return self.outputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.output.shape

    def has(self, place: int) -> bool:
        """Whether an input that may be left out is there."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def tensor(self, place: int) -> FileTensor:
        found = self.inputs[place] if place < len(self.inputs) else None
        if found is None:
            raise Refusal("inputs", f"no input {place}", "one")
        return found

    def value(self, place: int) -> Expr:
        self.tensor(place)
        value = self.values[place]
        assert value is not None
        return value

    def known(self, place: int, what: str) -> Array:
        """The numbers of an input that has to be a constant."""
        value = self.value(place)
        if not isinstance(value, Constant):
            raise Refusal(what, "computed at run time", "a constant")
        return value.value

    def call(
        self,
        operator: str,
        *args: Expr,
        of: SourceType | tuple[SourceType, ...] | None = None,
        **attrs: Any,
    ) -> Call:
        """A call of the vocabulary's operator with this operator's name and result."""
        made = call(operator, of or self.output.type, *args, name=self.name, **attrs)
        floats = all(each.dtype == "float32" for each in self.outputs)
        return replace(made, spelling=self.kind, origin=IN_FLOATS if floats else None)

    def typed(self, shape: tuple[int | None, ...], dtype: str = "") -> SourceType:
        return SourceType(shape, dtype or self.output.dtype)

    def reshaped(self, value: Expr, shape: Iterable[int | None]) -> Expr:
        return reshaped(self.call, value, shape)

    def transposed(self, value: Expr, axes: Iterable[int]) -> Expr:
        return transposed(self.call, value, axes)

    def is_quantized(self, *places: int) -> bool:
        """Whether an operator works on integers with scales, and not on float32.

        Raises ``Refusal`` for a mixture, and for other types.
        """
        tensors = [self.tensor(place) for place in places or (0,)] + list(self.outputs)
        quantized = [each.is_quantized for each in tensors]
        dtypes = ", ".join(dict.fromkeys(each.dtype for each in tensors))
        floats = all(each.dtype == "float32" for each in tensors)
        require(all(quantized) or floats, "types", dtypes, "float32, or integers with a scale")
        return all(quantized)

    def require_broadcast(self, count: int = 2) -> None:
        """The result of an operator of so many tensors has the shape that all broadcast to."""
        shapes = [self.tensor(place).shape for place in range(count)]
        try:
            whole = np.broadcast_shapes(*shapes)
        except ValueError:
            whole = None
        require(whole == self.shape, "shapes of the operands", shapes, f"such as give {self.shape}")

    def require_same_scale(self, *places: int) -> None:
        """What only moves or picks integers leaves them as they are: TFLite's kernels look at no
        scale here."""
        for place in places or (0,):
            found, wanted = self.tensor(place), self.output
            if found.is_quantized or wanted.is_quantized:
                same = (found.dtype, found.quant) == (wanted.dtype, wanted.quant)
                scales = f"{found.dtype} {found.quant} to {wanted.dtype} {wanted.quant}"
                require(same, "scales of input and output", scales, "the same")


class Reading:
    """The expressions of a file's tensors, by their numbers."""

    def __init__(
        self, file: File, rows: Mapping[str, Row], most_in_loops: int = MOST_OPERATORS
    ) -> None:
        self._file, self._rows, self._most_in_loops = file, rows, most_in_loops
        self._made: dict[int, Expr] = {}
        self._sized: set[int] = set()  # tensors of which the file does not tell the shape
        self._variables = Variables(file.operators)

    def read(self) -> SourceModel:
        """The whole file, as one model."""
        for index in self._file.inputs:
            self._made.setdefault(index, Expr((self._file.tensors[index].type,)))
        self._read_all()
        inputs, outputs = (
            tuple(map(self._end, indices)) for indices in (self._file.inputs, self._file.outputs)
        )
        states = self._variables.states()
        return SourceModel(
            (*inputs, *(state.before for state in states)),
            (*outputs, *(state.after for state in states)),
            language(self._rows),
            framework="tflite",
            initial=tuple(state.initial for state in states),
        )

    def _read_all(self) -> None:
        for operator in self._file.operators:
            try:
                results = self._results(operator)
            except Refusal as refusal:
                results = self._unread(operator, refusal)
            self._made.update(zip(operator.outputs, results, strict=bool(operator.outputs)))

    def _end(self, index: int) -> End:
        of = self._file.tensors[index]
        return End(of.name, self._value(index), of.quant)

    def _value(self, index: int) -> Expr:
        if index not in self._made:
            of = self._file.tensors[index]
            if of.value is None:
                refusal = Refusal("constant", f"{of.type}, packed or empty", "plain numbers")
                self._made[index] = unread("constant", (of.type,), (), refusal, of.name)
            else:
                self._made[index] = constant(of.value)
        return self._made[index]

    def _unread(self, operator: FileOperator, refusal: Refusal) -> list[Expr]:
        """The results of an operator that is not read. One without results changes a state, if
        anything: ``Variables`` tells who reads it."""
        outputs = [self._file.tensors[index] for index in operator.outputs]
        indices = () if operator.kind in KINDS else operator.inputs
        args = tuple(self._value(index) for index in indices if index >= 0)
        name = ", ".join(each.name for each in outputs)
        types = tuple(each.type for each in outputs)
        return list(tensors_of(unread(operator.kind, types, args, refusal, name)))

    def _results(self, operator: FileOperator) -> list[Expr]:
        if operator.kind in KINDS:
            return self._results_of_state(operator)
        if operator.kind == "WHILE":
            return self._results_of_loop(operator)
        self._variables.require_apart(operator)
        operator = self._without_empty_parts(operator)
        values = tuple(None if index < 0 else self._value(index) for index in operator.inputs)
        self._give_open_shape(operator, values)
        outputs = tuple(self._file.tensors[index] for index in operator.outputs)
        if operator.kind == "SLICE" and [0 in each.shape for each in outputs] == [True]:
            return [constant(np.zeros(outputs[0].shape, outputs[0].dtype))]
        row = self._rows.get(operator.kind)
        if row is None:
            raise refusal_of_kind(operator.kind, self._rows)
        require(len(values) in row.inputs, "inputs", len(values), _shown(row.inputs))
        require_own_images(self._file, operator)
        some = all(0 not in each.shape for each in outputs) and bool(outputs)
        require(some, "result", ", ".join(str(each.type) for each in outputs), "some elements")
        operator.options.require(row.options)
        inputs = tuple(None if n < 0 else self._file.tensors[n] for n in operator.inputs)
        site = Site(operator.kind, inputs, outputs, operator.options, values)
        made = row.read(site)
        results = [made] if isinstance(made, Expr) else list(made)
        for field, found, default in site.options.left():
            raise Refusal(f"option {field}", found, default)
        require(len(results) == len(outputs), "results", len(outputs), len(results))
        for result, output in zip(results, outputs, strict=True):
            require(result.type == output.type, "result", output.type, result.type)
        return [_folded(result) for result in results]

    def _without_empty_parts(self, operator: FileOperator) -> FileOperator:
        """A concatenation without parts that have no elements, as loops have at their ends."""
        tensors, inputs = self._file.tensors, operator.inputs
        some = tuple(index for index in inputs if index < 0 or 0 not in tensors[index].shape)
        empty = operator.kind == "CONCATENATION" and 0 < len(some) < len(inputs)
        return replace(operator, inputs=some) if empty else operator

    def _results_of_loop(self, operator: FileOperator) -> list[Expr]:
        require(self._most_in_loops > 0, "loop", "inside of another", "one of the file's own")
        require(-1 not in operator.inputs, "inputs", "one that is left out", "all of them")
        values = [self._value(index) for index in operator.inputs]
        try:
            results = results_of_loop(
                self._file, operator, values, self._read_subgraph, self._most_in_loops
            )
        except Refusal:
            self._variables.require_apart(operator)
            raise
        require(
            len(results) == len(operator.outputs), "results", len(operator.outputs), len(results)
        )
        for index, result in zip(operator.outputs, results, strict=True):
            self._give_type(index, result.type)
        return results

    def _read_subgraph(
        self, file: File, constants: Mapping[int, Expr], values: Sequence[Expr]
    ) -> list[Expr]:
        self._most_in_loops -= len(file.operators)
        inner = Reading(file, self._rows, 0)
        inner._made = {**constants, **dict(zip(file.inputs, values, strict=True))}
        for index, value in zip(file.inputs, values, strict=True):
            inner._give_type(index, value.type)
        inner._read_all()
        return [inner._value(index) for index in file.outputs]

    def _give_type(self, index: int, of: SourceType) -> None:
        """A tensor has this type, whatever the file says."""
        tensor = self._file.tensors[index]
        if tensor.type != of:
            self._file.tensors[index] = replace(tensor, type=of)
            self._sized.add(index)

    def _give_open_shape(self, operator: FileOperator, values: Sequence[Expr | None]) -> None:
        """The result gets the shape that its inputs tell, where the file's cannot be: of a move to
        another number of elements, and of what reads such a value."""
        tensors, read = self._file.tensors, [index for index in operator.inputs if index >= 0]
        if len(operator.outputs) != 1 or not read or min(operator.inputs[:2]) < 0:
            return
        (result,) = operator.outputs
        of, shapes = tensors[result], [tensors[index].shape for index in read]
        moves = operator.kind in MOVES and math.prod(of.shape) != math.prod(shapes[0])
        if moves or operator.kind in TOLD or not self._sized.isdisjoint(read):
            shape = shape_by_inputs(operator, of.shape, shapes, values)
            if shape != of.shape:
                fits = math.prod(shape) * 8 <= LARGEST
                require(fits, "result", shape, f"at most {LARGEST:,} bytes")
                self._give_type(result, replace(of.type, shape=shape))

    def _results_of_state(self, operator: FileOperator) -> list[Expr]:
        """What READ_VARIABLE reads; the others change what is read later."""
        variables, tensors = self._variables, self._file.tensors
        variables.require_form(operator)
        if operator.kind == "READ_VARIABLE":
            return [variables.read(operator.inputs[0], tensors[operator.outputs[0]])]
        if operator.kind == "ASSIGN_VARIABLE":
            handle, value = operator.inputs
            variables.assign(handle, self._value(value), tensors[value])
        elif operator.kind == "CALL_ONCE":
            once = Reading(self._file.once, self._rows, 0) if self._file.once else None
            if once is not None:
                once._read_all()
            variables.begin(once._variables if once else None)
        else:
            raise Refusal("state", "a variable itself", "its value, which READ_VARIABLE reads")
        return []


def refusal_of_kind(kind: str, rows: Mapping[str, Row]) -> Refusal:
    """Why an operator without a row is not read."""
    if kind in CONTROL_FLOW:
        return Refusal("control flow", "a call of another subgraph", "one graph")
    return Refusal("operator", kind, f"one that tinyai reads{such_as(kind, sorted(rows))}")


def language(rows: Mapping[str, Row]) -> Language:
    """TFLite, for reasons and reports."""
    return Language(supported=tuple(sorted(rows)))


def _shown(counts: range) -> str:
    return str(counts.start) if len(counts) == 1 else f"{counts.start} to {counts.stop - 1}"


def _folded(value: Expr) -> Expr:
    """The value of plain integers that are known, such as a shape."""
    integers = isinstance(value, Call) and [of.dtype for of in value.types] in _FOLDED
    if not integers or not all(map(_is_known, post_order(value))):
        return value
    (found,) = run_graph(graph_of("constant", (), value, TVMS_OWN), [])
    return constant(found)


_FOLDED = (["int32"], ["int64"], ["bool"])


def _is_known(expr: Expr) -> bool:
    """Of an expression whose operands are known."""
    made = isinstance(expr, Constant | Tuple | Field)
    return made or (isinstance(expr, Call) and not isinstance(expr.origin, Unread))
