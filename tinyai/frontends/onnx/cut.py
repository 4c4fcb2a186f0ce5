"""An .onnx file that is cut: the nodes between some of its values."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tinyai.errors import ModelError
from tinyai.frontends.cuttable import CuttableFile, NamedOperator
from tinyai.frontends.faults import Fault, faults_of, missing
from tinyai.frontends.onnx.checks import check_external, check_model
from tinyai.frontends.onnx.facts import Known, facts_of, proto_of, set_shapes, set_values
from tinyai.frontends.onnx.functions import inlined
from tinyai.frontends.onnx.load import read_whole
from tinyai.frontends.onnx.quantized import OLDEST as OLDEST_WITH_PAIRS
from tinyai.frontends.onnx.unread import names_read
from tinyai.frontends.shapes import check_asked, parse_inputs
from tinyai.frontends.source_model import SourceModel
from tinyai.model_file import InputShapes
from tinyai.model_file import check_model as check_model_file


class OnnxWhole(CuttableFile):
    """A file with its weights, wherever they lie; inputs have the shapes and values of
    ``input_shapes``. Raises what ``load.read_whole`` raises."""

    def __init__(self, file: Path, input_shapes: InputShapes) -> None:
        shapes, values = parse_inputs(input_shapes)
        check_model_file(file, ".onnx")
        if find_spec("onnx") is None:
            raise missing("onnx")
        import onnx

        with faults_of(file, ".onnx"):
            self._model = inlined(onnx.load(file, load_external_data=False))
            check_asked(shapes, check_model(self._model))
            set_shapes(self._model, shapes)
            set_values(self._model, values)
            check_external(self._model, file.parent)
            onnx.load_external_data_for_model(self._model, str(file.parent))
            self._facts = facts_of(self._model)
        graph = self._model.graph
        constants = {tensor.name for tensor in graph.initializer}
        self.inputs = [value.name for value in graph.input if value.name not in constants]
        self.outputs = [value.name for value in graph.output]
        self.operators = [
            NamedOperator(
                node.name or next(filter(None, node.output), ""), tuple(names_read(node)), makes
            )
            for node in graph.node
            for makes in [tuple(filter(None, node.output))]
        ]
        self._file, self._shapes = file, input_shapes

    def part(self, kept: Sequence[int], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
        part = type(self._model)()
        part.CopyFrom(self._model)
        graph = part.graph
        nodes = [graph.node[place] for place in kept]
        read = {*outputs, *(name for node in nodes for name in names_read(node))}
        values = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
        made = {name for node in nodes for name in node.output}
        with faults_of(self._file, ".onnx"):
            ends = [[self._value(name, values) for name in names] for names in (inputs, outputs)]
            for node in nodes:  # what one makes in the place of an input has another name
                node.output[:] = [
                    each + " before the cut" * (each in inputs) for each in node.output
                ]
            _keep(graph.node, nodes)
            _keep(graph.initializer, (each for each in graph.initializer if each.name in read))
            _keep(graph.value_info, (each for each in graph.value_info if each.name in made))
            _keep(graph.input, ends[0])
            _keep(graph.output, ends[1])
            return bytes(part.SerializeToString())

    def read(self) -> SourceModel:
        """Recurrent operators are their operators."""
        try:
            return read_whole(self._file, self._shapes, OLDEST_WITH_PAIRS).source
        except ModelError:  # of an opset that onnx does not convert
            return read_whole(self._file, self._shapes).source

    def type_of(self, name: str) -> str:
        known = self._facts.values.get(name, Known(None, ""))
        dims = "..." if known.shape is None else ",".join(str(dim or "?") for dim in known.shape)
        return f"{known.dtype or 'unknown'}[{dims}]"

    def _value(self, name: str, values: dict[str, Any]) -> Any:
        """An input or output of the part, of the type that the file or ONNX's inference tells."""
        import onnx

        known = self._facts.values.get(name)
        if known is not None and known.dtype:
            return onnx.helper.make_value_info(name, proto_of(known))
        if name in values:
            return values[name]
        raise Fault(f"value {name!r} of an unknown type", "one whose type is known")


def _keep(field: Any, values: Any) -> None:
    kept = [*values]
    del field[:]
    field.extend(kept)
