"""The float model of a file for the quantizer: ONNX Runtime runs it, TVM is not needed."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tinyai.doctor import cpu_description, instruction_sets
from tinyai.errors import EnvironmentProblem, OptionError, UnsupportedError
from tinyai.frontends.attempt import attempt_of
from tinyai.frontends.onnx.framework import options_of_floats
from tinyai.frontends.onnx.writer import written
from tinyai.frontends.qparams import quant_of_input, quant_of_output, readers_of
from tinyai.frontends.source_model import End, SourceModel
from tinyai.ir import Array
from tinyai.qdq.operands import Fold, is_call
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import Sample
from tinyai.quantizer.float_runner import Framework
from tinyai.quantizer.points import Points
from tinyai.quantizer.write import with_results
from tinyai.runtime.library import Library
from tinyai.runtime.link import write_library
from tinyai.safe_text import safe
from tinyai.source import TVMS_OWN, Expr, Refusal, Rounding, Tuple, fixed_type, post_order
from tinyai.target import Target
from tinyai.tensor_spec import TensorSpec


class FileModel:
    """The ``FloatModel`` of a file that was read; ``framework`` runs the file itself, from a sample
    in the order of its inputs to its results.

    Raises ``OptionError`` for a model with states, two inputs of one name, or an input of a dtype
    that tinyai does not have.
    """

    # Of what is quantized here. A sum of two tensors is rounded once in it, where "upward" rounds
    # its operands too; but of 16 bits it has nothing.
    rounding = "onnx"

    def __init__(self, model: SourceModel, framework: Framework | None = None) -> None:
        names = [end.name for end in model.inputs]
        if model.initial or len(set(names)) < len(names):
            raise OptionError(
                "float model to quantize",
                found="states" if model.initial else f"inputs {', '.join(names)}",
                allowed="a model without states, whose inputs have names of their own",
            )
        self.model, self._framework = model, framework
        self.inputs = tuple(map(_spec, model.inputs))
        self.results = tuple(end.expr.type for end in model.outputs)
        self.root: Expr = model.result
        self.fold: Fold | None = self._folded
        self.image_channels: tuple[int, ...] | None = model.image_channels

    def _folded(self, expr: Expr) -> Array:
        """The value of a constant: by tinyai's references, of products and others by ONNX
        Runtime."""
        with suppress(Refusal):
            if self.model.fold is not None:
                return self.model.fold(expr)
        return in_onnx_runtime(written([expr], {}).SerializeToString(), (), 1).run({})[0]

    def points(self, root: Expr, config: QuantConfig, **chosen: Any) -> Points:
        return Points(root, config, self.fold, **chosen)

    def key(self, root: Expr) -> str:
        return hashlib.sha256(self._file(root).SerializeToString()).hexdigest()[:16]

    def original(self, sample: Sample) -> list[Array] | None:
        ordered = {each.name: sample[each.name] for each in self.inputs}
        return None if self._framework is None else self._framework(ordered)

    def runner(
        self, root: Expr, values: Sequence[Expr] = (), switches: Mapping[Expr, str] | None = None
    ) -> FunctionRunner:
        names = [*(each.name for each in self.inputs), *(switches or {}).values()]
        file = self._file(root, values, [*(switches or {})])
        return in_onnx_runtime(file.SerializeToString(), names, len(self.results))

    def recipe(self, root: Expr, values: Sequence[Expr]) -> FileRecipe:
        content = self._file(root, values).SerializeToString()
        names = tuple(each.name for each in self.inputs)
        return FileRecipe(content, _machine(), names, len(self.results))

    def integers(self, root: Expr, values: Sequence[Expr]) -> FunctionRunner:
        """Where an operator stays in float there is no such code: the pairs are run as floats,
        which round as the integers do but for the last bit."""
        model = self.quantized(root, values)
        network = attempt_of(model, "network", Rounding(model.rounding)).network
        if network is None:
            return self.runner(root, values)
        with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
            file = Path(folder) / "network.so"
            write_library(network, file, Target(), here=True)
            library = Library(file)  # what is loaded stays, when its file goes
        return FunctionRunner(library.run, len(self.results))

    def attempt(self, root: Expr) -> FunctionRunner:
        return self.runner(root)

    def quantized(self, root: Expr, values: Sequence[Expr] = ()) -> SourceModel:
        """The model with the root ``root``, and ``values`` as further outputs. Floats between
        dequantize and quantize stand for integers in it."""
        result = with_results(root, values)
        fields = _fields(result)
        wide = any(is_call(e, "quantize") and e.type.dtype == "int16" for e in post_order(result))
        readers = readers_of(fields)
        names = [end.name for end in self.model.outputs] + [
            f"value{n}" for n, _ in enumerate(values)
        ]
        return replace(
            self.model,
            inputs=tuple(
                replace(end, quant=quant_of_input(end.expr, readers)) for end in self.model.inputs
            ),
            outputs=tuple(
                End(name, expr, quant_of_output(expr))
                for name, expr in zip(names, fields, strict=True)
            ),
            framework="",
            rounding=TVMS_OWN.mode if wide else self.rounding,
        )

    def _file(
        self, root: Expr, values: Sequence[Expr] = (), switches: Sequence[Expr] = ()
    ) -> onnx.ModelProto:
        inputs = [*(end.expr for end in self.model.inputs), *switches]
        names = {expr: f"input{number}" for number, expr in enumerate(inputs)}
        return written(_fields(with_results(root, values)), names)


@dataclass(frozen=True)
class FileRecipe:
    """A float model as the bytes of an ONNX file, with further values after its own ``results``."""

    content: bytes = field(repr=False)
    machine: str
    inputs: tuple[str, ...]
    results: int

    def runner(self) -> FunctionRunner:
        """Raises ``EnvironmentProblem`` where this machine is another than that of who wrote it."""
        if self.machine != _machine():
            raise EnvironmentProblem(
                "a worker's machine",
                found=_machine(),
                allowed=f"{self.machine}, as where the calibration began",
                hint="floats of other code are not the same bit for bit",
            )
        return in_onnx_runtime(self.content, self.inputs, self.results)


class FunctionRunner:
    """The ``FloatRunner`` of a function from inputs by name to ``results`` and further values."""

    def __init__(self, call: Callable[[dict[str, Array]], list[Array]], results: int) -> None:
        self._call, self._results = call, results
        self._switches: dict[str, Array] = {}
        self._made: list[Array] = []

    def set(self, switch: str, value: Array) -> None:
        self._switches[switch] = value

    def run(self, sample: Sample) -> list[Array]:
        self._made = self._call({**sample, **self._switches})
        return self._made[: self._results]

    def values(self) -> Iterator[Array]:
        return iter(self._made[self._results :])


def in_onnx_runtime(content: bytes, inputs: Sequence[str], results: int) -> FunctionRunner:
    """A model of floats whose inputs are called input0, input1, ..., with these names."""
    import onnxruntime

    with _told("takes"):
        session = onnxruntime.InferenceSession(
            content, options_of_floats(), providers=["CPUExecutionProvider"]
        )
    places = {name: f"input{number}" for number, name in enumerate(inputs)}
    used = {each.name for each in session.get_inputs()}

    def call(given: dict[str, Array]) -> list[Array]:
        values = {places[n]: each for n, each in given.items() if places[n] in used}
        with _told("runs"):
            return [np.asarray(each) for each in session.run(None, values)]

    return FunctionRunner(call, results)


@contextmanager
def _told(does: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # ONNX Runtime raises errors of many kinds
        raise UnsupportedError(
            "the float model in ONNX Runtime",
            found=safe(str(error), 300),
            allowed=f"a model that it {does}",
            hint="--input-shapes, in Python input_shapes=, where the file's are no real ones",
        ) from None


def _machine() -> str:
    """What floats depend on: ONNX Runtime, and the instructions that it may use."""
    sets: Any = instruction_sets(cpu_description())
    return f"ONNX Runtime {version('onnxruntime')} on {', '.join(sorted(sets))}"


def _fields(root: Expr) -> tuple[Expr, ...]:
    return root.fields if isinstance(root, Tuple) else (root,)


def _spec(end: End) -> TensorSpec:
    try:
        of = fixed_type(end.expr.type, f"input {safe(end.name, 60)}")
    except Refusal as refusal:
        raise OptionError(
            "float model to quantize",
            found=f"{refusal.clause} {refusal.found}",
            allowed=refusal.allowed,
        ) from None
    return TensorSpec(end.name, of.shape, str(of.dtype))
