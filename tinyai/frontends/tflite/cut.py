"""A .tflite file that is cut: the operators between some of its tensors."""

from __future__ import annotations

import copy
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tflite

from tinyai.errors import EnvironmentProblem, OptionError, UsageWarning
from tinyai.frontends.cuttable import CuttableFile, NamedOperator
from tinyai.frontends.faults import Fault, faults_of
from tinyai.frontends.shapes import check_asked, parse_shapes
from tinyai.frontends.source_model import SourceModel
from tinyai.frontends.tflite import checks
from tinyai.frontends.tflite.file import File
from tinyai.frontends.tflite.litert import in_a_process, reason_of
from tinyai.frontends.tflite.load import model_of
from tinyai.frontends.tflite.signatures import content_of
from tinyai.model_file import InputShapes, check_model

Shape: TypeAlias = tuple[int, ...]


class TFLiteWhole(CuttableFile):
    """A file, or that of one ``signature``; a tensor whose name is not its own has its number
    behind it. Inputs have the shapes ``input_shapes``, if any are named; where a file leaves shapes
    open, those of all tensors are what LiteRT makes of them. Raises what ``load.read_model``
    raises, and for a file that has a state."""

    def __init__(self, file: Path, signature: str, input_shapes: InputShapes) -> None:
        asked = parse_shapes(input_shapes)
        check_model(file, ".tflite")
        require_writer()
        self._file = file
        with faults_of(file, ".tflite"):
            content = file.read_bytes()
            checks.check_identifier(content)
            self._content = content_of(content, signature)
            model = tflite.Model.GetRootAsModel(self._content, 0)
            checks.check_model(model, self._content, by_tvm=False)
            whole = File(model, self._content)
            for operator in whole.operators:
                if not operator.outputs:
                    raise Fault(
                        f"{operator.kind}, an operator without results",
                        "a file without a state, to be cut",
                        "the whole file, which tinyai.compile takes with its state",
                    )
        counts = Counter(each.name for each in whole.tensors)
        self._tensors = whole.tensors
        self._names = [
            each.name if counts[each.name] == 1 else f"{each.name}:{number}"
            for number, each in enumerate(whole.tensors)
        ]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        inputs = {whole.tensors[number].name: number for number in whole.inputs}
        check_asked(asked, {n: whole.tensors[number].shape for n, number in inputs.items()})
        self._shapes = [each.shape for each in whole.tensors]
        if asked or _is_open(model):
            given = {inputs[name]: shape for name, shape in asked.items()}
            self._shapes = shapes_by_litert(self._content, given, self._shapes)
        self.inputs = [self._names[number] for number in whole.inputs]
        self.outputs = [self._names[number] for number in whole.outputs]
        self.operators = [
            NamedOperator(
                ", ".join(whole.tensors[number].name for number in each.outputs),
                tuple(self._names[number] for number in each.inputs if number >= 0),
                tuple(self._names[number] for number in each.outputs),
            )
            for each in whole.operators
        ]

    def part(self, kept: Sequence[int], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
        begins = [self._numbers[name] for name in inputs]
        ends = [self._numbers[name] for name in outputs]
        with faults_of(self._file, ".tflite"):
            return part_of(self._content, kept, begins, ends, self._shapes)

    def read(self) -> SourceModel:
        whole = self.part(range(len(self.operators)), self.inputs, self.outputs)
        return model_of(whole, self._file)

    def type_of(self, name: str) -> str:
        number = self._numbers[name]
        dims = ",".join(map(str, self._shapes[number]))
        return f"{self._tensors[number].dtype}[{dims}]"


def require_writer() -> None:
    """Raises ``EnvironmentProblem`` where what writes .tflite files is missing."""
    if find_spec("ai_edge_litert") is None:
        raise EnvironmentProblem(
            "the package ai-edge-litert, which writes .tflite files, is missing",
            found="no such module",
            allowed="an installed one",
            hint='pip install "tinyai[check]"',
        )


def _is_open(model: Any) -> bool:
    """Whether the shape of something that an operator makes is open in a file."""
    graph = model.Subgraphs(0)
    signatures = (
        graph.Tensors(number).ShapeSignatureAsNumpy() for number in range(graph.TensorsLength())
    )
    return any(not isinstance(each, int) and (each < 0).any() for each in signatures)


def shapes_by_litert(
    content: bytes, given: Mapping[int, Sequence[int]], declared: Sequence[Shape]
) -> list[Shape]:
    """The shapes of all tensors once the file has run on zeros, in a process of its own, which a
    damaged file may end; ``given`` are those of inputs. Where LiteRT does not run it they are as
    ``declared``, and a ``UsageWarning`` says so, but for ``given`` ones, which raise
    ``OptionError``."""
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        file = Path(folder) / "model.tflite"
        file.write_bytes(content)
        words = [str(file), json.dumps({number: [*shape] for number, shape in given.items()})]
        ran = in_a_process("tinyai.frontends.tflite.litert_shapes", *words)
    if ran.returncode == 0:
        found = {int(number): shape for number, shape in json.loads(ran.stdout).items()}
        return [tuple(found.get(number, shape)) for number, shape in enumerate(declared)]
    why = reason_of(ran)
    if given:
        asked = ", ".join(map(str, given.values()))
        allowed = "sizes with which LiteRT runs the file"
        raise OptionError("input shapes", found=f"{asked}: {why}", allowed=allowed)
    warnings.warn(
        UsageWarning(
            "shapes of the part",
            found=f"open ones in a file that LiteRT does not run: {why}",
            allowed="those that the file declares, which were taken",
            hint="names of values in front of the operator that LiteRT does not have",
        ),
        stacklevel=4,
    )
    return [*declared]


def part_of(
    content: bytes,
    kept: Sequence[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    shapes: Sequence[Shape] = (),
) -> bytes:
    """The file of the operators at the places ``kept`` of the first subgraph; inputs and outputs by
    the numbers of their tensors. ``shapes`` are those of all tensors, if any are named. Signatures
    go: they name inputs and outputs of the whole."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph, model.signatureDefs = model.subgraphs[0], []
    for tensor, shape in zip(graph.tensors, shapes, strict=False):
        tensor.shape, tensor.shapeSignature = [*shape], None
    graph.operators = [graph.operators[place] for place in kept]
    graph.inputs, graph.outputs = [*inputs], [*outputs]
    _make_no_inputs(graph)
    options = (each.builtinOptions for each in graph.operators if each.builtinOptions is not None)
    if not any("ubgraphIndex" in field for each in options for field in vars(each)):
        model.subgraphs = [graph]  # no operator calls another
    _drop_tensors(graph)
    _drop_data(model, content)
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _make_no_inputs(graph: Any) -> None:
    """What operators make in the places of inputs becomes tensors that nobody reads."""
    for operator in graph.operators:
        operator.outputs = [*map(int, operator.outputs)]
        for place, number in enumerate(operator.outputs):
            if number in graph.inputs:
                unused = copy.copy(graph.tensors[number])
                unused.name = unused.name + b" before the cut"
                operator.outputs[place] = len(graph.tensors)
                graph.tensors.append(unused)


def _drop_tensors(graph: Any) -> None:
    """Tensors that nothing of a graph names go."""
    places = {-1: -1}

    def moved(numbers: Any) -> Any:
        if numbers is None:
            return None
        return [places.setdefault(int(number), len(places) - 1) for number in numbers]

    for operator in graph.operators:
        for field in ("inputs", "outputs", "intermediates"):
            setattr(operator, field, moved(getattr(operator, field)))
    graph.inputs, graph.outputs = moved(graph.inputs), moved(graph.outputs)
    graph.tensors = [graph.tensors[number] for number in places if number >= 0]


def _drop_data(model: Any, content: bytes) -> None:
    """Buffers that nothing names are empty, and others lie inside of the file."""
    used = {tensor.buffer for graph in model.subgraphs for tensor in graph.tensors}
    used |= {each.buffer for each in model.metadata or ()}
    if model.metadataBuffer is not None:
        used |= {int(number) for number in model.metadataBuffer}
    for number, buffer in enumerate(model.buffers):
        if number in used and buffer.offset > 1:
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
        elif number not in used:
            buffer.data = None
        buffer.offset = buffer.size = 0
