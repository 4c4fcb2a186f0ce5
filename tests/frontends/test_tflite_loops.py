"""A WHILE of a .tflite file, as Keras writes a recurrent layer: its rounds one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import tinyai
from tinyai.errors import BoundaryError, ModelError, OptionError
from tinyai.frontends.files import read_file
from tinyai.frontends.onnx.float_model import FileModel
from tinyai.ir import Array

STEPS, INPUTS, UNITS = 5, 3, 4
RNG = np.random.default_rng(0)


@dataclass
class Subgraph:
    """A graph of a ``model`` that grows."""

    model: Any
    name: str
    graph: Any = field(default_factory=schema.SubGraphT)

    def __post_init__(self) -> None:
        self.graph.tensors, self.graph.operators = [], []
        self.graph.inputs, self.graph.outputs = [], []
        self.model.subgraphs.append(self.graph)

    def tensor(self, shape: Sequence[int], dtype: str = "FLOAT32", data: Any = None) -> int:
        made, number = schema.TensorT(), len(self.graph.tensors)
        made.shape, made.type = [*shape], getattr(schema.TensorType, dtype)
        made.name, made.buffer = f"{self.name}{number}", 0
        if data is not None:
            made.buffer = len(self.model.buffers)
            self.model.buffers.append(schema.BufferT())
            content = np.asarray(data, "float32" if dtype == "FLOAT32" else "int32").tobytes()
            self.model.buffers[-1].data = np.frombuffer(content, np.uint8)
        self.graph.tensors.append(made)
        return number

    def number(self, value: Any) -> int:
        return self.tensor(np.shape(value), "INT32", value)

    def input(self, shape: Sequence[int], dtype: str = "FLOAT32") -> int:
        self.graph.inputs.append(self.tensor(shape, dtype))
        return int(self.graph.inputs[-1])

    def add(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], **fields: Any) -> int:
        """``fields`` are those of the table ``options``."""
        code, operator = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        self.model.operatorCodes.append(code)
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = [*inputs], [*outputs]
        if table := fields.pop("options", ""):
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{table}Options")
            operator.builtinOptions = getattr(schema, f"{table}OptionsT")()
            for name, value in fields.items():
                setattr(operator.builtinOptions, name, value)
        self.graph.operators.append(operator)
        return outputs[0]


def recurrent(rounds: int = STEPS, *, body: int = 2, counted: bool = True) -> bytes:
    """The state after each of ``rounds`` steps of tanh(x w + h u); ``body`` is the number of the
    subgraph that the loop calls. Not ``counted``, a third input says how many there are."""
    model = schema.ModelT()
    model.version, model.buffers = 3, [schema.BufferT()]
    model.operatorCodes, model.subgraphs = [], []
    main, condition, inside = (Subgraph(model, name) for name in ("x", "while", "body"))
    shapes = ((), (1, UNITS), (STEPS, 1, UNITS), (STEPS, 1, INPUTS), ())
    dtypes = ("INT32", "FLOAT32", "FLOAT32", "FLOAT32", "INT32")
    x = main.input(shapes[3])
    last = main.number(rounds) if counted else main.input((), "INT32")
    zeros = [main.tensor(shape, data=np.zeros(shape)) for shape in shapes[1:3]]
    ends = [main.tensor(*each) for each in zip(shapes, dtypes, strict=True)]
    calls = {"condSubgraphIndex": 1, "bodySubgraphIndex": body, "options": "While"}
    main.add("WHILE", [main.number(0), *zeros, x, last], ends, **calls)
    main.graph.outputs = ends[1:3]

    counter, *_, limit = (condition.input(*each) for each in zip(shapes, dtypes, strict=True))
    condition.graph.outputs = [condition.tensor((), "BOOL")]
    condition.add("LESS", [counter, limit], condition.graph.outputs, options="Less")

    counter, state, states, x, limit = (
        inside.input(*each) for each in zip(shapes, dtypes, strict=True)
    )
    following = inside.add(
        "ADD", [counter, inside.number(1)], [inside.tensor((), "INT32")], options="Add"
    )
    row = inside.add("GATHER", [x, counter], [inside.tensor((1, INPUTS))], options="Gather")
    products = []
    for value, depth in ((row, INPUTS), (state, UNITS)):
        weights = inside.tensor((UNITS, depth), data=0.4 * RNG.normal(size=(UNITS, depth)))
        made = inside.tensor((1, UNITS))
        inside.add("FULLY_CONNECTED", [value, weights, -1], [made], options="FullyConnected")
        products.append(made)
    total = inside.add("ADD", products, [inside.tensor((1, UNITS))], options="Add")
    new = inside.add("TANH", [total], [inside.tensor((1, UNITS))])
    together = inside.add(
        "RESHAPE",
        [new, inside.number([1, 1, UNITS])],
        [inside.tensor((1, 1, UNITS))],
        options="Reshape",
    )
    parts = []  # of the states, before and behind this one, of which the file knows no shape
    zero, all_ = inside.number(0), inside.number(-1)
    for begin, size in (
        ((zero, zero, zero), (counter, all_, all_)),
        ((following, zero, zero), (all_, all_, all_)),
    ):
        packed = [inside.tensor((3,), "INT32") for _ in range(2)]
        for numbers, to in zip((begin, size), packed, strict=True):
            inside.add("PACK", numbers, [to], options="Pack", axis=0, valuesCount=3)
        part = inside.tensor((1, 1, UNITS))
        inside.graph.tensors[part].shapeSignature = [-1, 1, UNITS]
        parts.append(inside.add("SLICE", [states, *packed], [part], options="Slice"))
    whole = inside.tensor((STEPS, 1, UNITS))
    inside.add(
        "CONCATENATION", [parts[0], together, parts[1]], [whole], options="Concatenation", axis=0
    )
    inside.graph.outputs = [following, new, whole, x, limit]

    builder = flatbuffers.Builder(4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def by_litert(content: bytes, x: Array) -> list[Array]:
    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net.tflite"


def samples(count: int = 12) -> list[dict[str, Array]]:
    return [{"x0": RNG.normal(size=(STEPS, 1, INPUTS)).astype("f4")} for _ in range(count)]


@pytest.mark.parametrize("rounds", [0, 1, 3, STEPS])
def test_each_round_computes_what_litert_does(rounds: int, file: Path) -> None:
    file.write_bytes(content := recurrent(rounds))
    model = FileModel(read_file(file))
    (sample,) = samples(1)
    found, wanted = model.runner(model.root).run(sample), by_litert(content, sample["x0"])
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_it_is_quantized_and_compiled_whole(file: Path) -> None:
    file.write_bytes(content := recurrent())
    given = samples()
    quantized = tinyai.quantize_file(file, given)
    assert not quantized.report.left
    model = tinyai.Model(tinyai.compile(quantized.model, file.with_suffix(".so")))
    for mine, other in zip(model(given[0]), by_litert(content, given[0]["x0"]), strict=True):
        np.testing.assert_allclose(mine, other, atol=0.06)
    names = {each.name for each in quantized.report.layers}
    assert {f"body13/round{number}" for number in range(STEPS)} <= names


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"counted": False}, "rounds of a WHILE: known in a call alone"),
        ({"rounds": 4000}, r"rounds of a WHILE: more than [5-9]\d\d"),
        ({"body": 9}, "subgraph of a WHILE: a call of subgraph 9"),
        ({"body": 0}, "subgraph of a WHILE: a call of subgraph 0"),
        ({"body": 1}, r"inputs and outputs of a WHILE's subgraph: \(5, 1\)"),
    ],
)
def test_what_is_not_unrolled_is_refused_with_the_reason(
    options: dict[str, Any], words: str, file: Path
) -> None:
    file.write_bytes(recurrent(**options))
    with pytest.raises(OptionError, match=words.replace(": ", ": found ")):
        tinyai.quantize_file(file, samples(2))
    with pytest.raises(BoundaryError, match=words):
        tinyai.compile(file, file.with_suffix(".so"))


def test_a_damaged_file_is_an_error_with_a_message(file: Path) -> None:
    content, rng = recurrent(), np.random.default_rng(1)
    for _ in range(60):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 3):
            damaged[place] = rng.choice([0, 1, 255])
        file.write_bytes(bytes(damaged))
        with pytest.raises((BoundaryError, ModelError)):
            tinyai.compile(file, file.with_suffix(".so"))
