"""Streaming .tflite files, whose variables keep values from one call to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tests.support.oracle import Array
from tests.support.random_tflite import Value, Writer

SCALE, ZERO = 0.1, -3


class StreamingWriter(Writer):
    """A file that grows, with variables. All tensors have one scale."""

    def tensor_like(self, shape: Sequence[int]) -> Value:
        return self.value(shape, SCALE, ZERO)

    def handle(self, name: str) -> int:
        index = self.tensor([], "RESOURCE")
        self.add("VAR_HANDLE", [], [index], "VarHandle", sharedName=name, container="")
        return index

    def read(self, handle: int, shape: Sequence[int]) -> Value:
        value = self.tensor_like(shape)
        self.add("READ_VARIABLE", [handle], [value.index], "ReadVariable")
        return value

    def assign(self, handle: int, value: Value) -> None:
        self.add("ASSIGN_VARIABLE", [handle, value.index], [], "AssignVariable")

    def call_once(self, subgraph: int = 1) -> None:
        self.add("CALL_ONCE", [], [], "CallOnce", initSubgraphIndex=subgraph)

    def begin(self, initial: Mapping[str, Array]) -> None:
        """The subgraph that assigns the initial values, which the operators after it go to."""
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.graph.inputs, self.graph.outputs = [], []
        self.model.subgraphs.append(self.graph)
        for name, value in initial.items():
            handle = self.handle(name)
            index = self.tensor(value.shape, "INT8", value, [SCALE], [ZERO])
            self.assign(handle, Value(index, value.shape, SCALE, ZERO))

    def joined(self, *values: Value) -> Value:
        rows = sum(value.shape[1] for value in values)
        result = self.tensor_like([1, rows, *values[0].shape[2:]])
        indices = [value.index for value in values]
        self.add("CONCATENATION", indices, [result.index], "Concatenation", axis=1)
        return result

    def rows(self, value: Value, first: int) -> Value:
        """What is left from a row on."""
        rank = value.rank
        shape = [1, value.shape[1] - first, *value.shape[2:]]
        begin, size = self.numbers([0, first, *[0] * (rank - 2)]), self.numbers(shape)
        result = self.tensor_like(shape)
        self.add("SLICE", [value.index, begin, size], [result.index], "Slice")
        return result

    def sum(self, one: Value, other: Value) -> Value:
        result = self.tensor_like(one.shape)
        self.add("ADD", [one.index, other.index], [result.index], "Add")
        return result

    def ends(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self.model.subgraphs[0].inputs = [value.index for value in inputs]
        self.model.subgraphs[0].outputs = [value.index for value in outputs]


def window(initial: Array | None = None) -> bytes:
    """A window of the last rows and their running sum; the second output is what the variable holds
    after it was assigned."""
    rng = np.random.default_rng(5)
    w = StreamingWriter(rng)
    x = w.tensor_like([1, 1, 1, 4])
    w.call_once()
    sums, last = w.handle("sums"), w.handle("window")
    whole = w.joined(w.read(last, [1, 3, 1, 4]), x)
    w.assign(last, w.rows(whole, 1))
    total = w.sum(w.read(sums, [1, 1, 1, 4]), x)
    w.assign(sums, total)
    w.ends([x], [whole, w.read(last, [1, 3, 1, 4]), w.sum(total, x)])
    value = rng.integers(-128, 128, (1, 3, 1, 4)).astype(np.int8) if initial is None else initial
    w.begin({"sums": np.full((1, 1, 1, 4), ZERO, np.int8), "window": value})
    return w.content()


def delay() -> bytes:
    """A line of two variables: what comes in is the output two calls later."""
    w = StreamingWriter(np.random.default_rng(6))
    x = w.tensor_like([1, 4])
    w.call_once()
    first, second = w.handle("first"), w.handle("second")
    old, older = w.read(first, [1, 4]), w.read(second, [1, 4])
    w.assign(second, old)
    w.assign(first, x)
    w.ends([x], [older])
    w.begin({"first": np.int8([[1, 2, 3, 4]]), "second": np.int8([[5, 6, 7, 8]])})
    return w.content()


def by_litert(content: bytes, calls: Sequence[Array]) -> list[list[Array]]:
    """The outputs of calls in a row, from the initial state, by the reference kernels."""
    kernels = OpResolverType.BUILTIN_REF
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    (first,) = interpreter.get_input_details()
    outputs = [each["index"] for each in interpreter.get_output_details()]
    results = []
    for call in calls:
        interpreter.set_tensor(first["index"], call)
        interpreter.invoke()
        results.append([np.array(interpreter.get_tensor(index)) for index in outputs])
    return results
