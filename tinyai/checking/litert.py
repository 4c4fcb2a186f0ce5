"""TFLite files in LiteRT's reference kernels, whose integers are TFLite's.

They run in a process of their own: the reference softmax aborts where its input's scale is large,
and takes the process along. ``python -m tinyai.checking.litert`` is that process.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tinyai.checking.opponents import Sample, need
from tinyai.errors import EnvironmentProblem
from tinyai.ir import Array


class AbortedError(EnvironmentProblem):
    """LiteRT took its process along."""


class LiteRTOracle:
    """A TFLite file. ``cut`` is the name of the tensor that its last operator reads, where the file
    is taken without that operator, else None."""

    def __init__(self, content: bytes) -> None:
        self.name = f"{need('ai_edge_litert', 'ai-edge-litert', 'LiteRT')}'s reference kernels"
        self.cut: str | None = None
        self._content = content
        self._before: tuple[Sample, ...] = ()

    def without_last(self) -> LiteRTOracle:
        """The same without the file's last operator."""
        other = LiteRTOracle(self._content)
        other._content, other.cut = _without_last(self._content)
        return other

    def after(self, before: Sequence[Sample]) -> LiteRTOracle:
        """The same file, whose tensors are those of a call that follows those on ``before``."""
        other = copy.copy(self)
        other._before = tuple(before)
        return other

    def results(self, samples: Sequence[Sample]) -> list[list[Array]]:
        """Raises ``AbortedError`` where LiteRT aborts."""
        return [list(found.values()) for found in self._run(samples, tensors=False)]

    def tensors(self, sample: Sample) -> Mapping[str, Array]:
        *_, found = self._run([*self._before, sample], tensors=True)
        return found

    def tensor_of(self, source: str) -> str | None:
        return source

    def _run(self, samples: Sequence[Sample], *, tensors: bool) -> list[dict[str, Array]]:
        with tempfile.TemporaryDirectory(prefix="tinyai-check-") as name:
            folder = Path(name)
            (folder / "model.tflite").write_bytes(self._content)
            for number, sample in enumerate(samples):
                np.savez(folder / f"in{number}.npz", *sample)
            words = [name, str(len(samples)), str(int(tensors))]
            command = [sys.executable, "-m", "tinyai.checking.litert", *words]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            ran = subprocess.run(
                command, env=environment, cwd=name, capture_output=True, text=True, check=False
            )
            if ran.returncode != 0:
                said = [line for line in ran.stderr.splitlines() if line.strip()]
                kind = AbortedError if ran.returncode < 0 else EnvironmentProblem
                raise kind(
                    "LiteRT's reference kernels cannot run the model",
                    found=said[-1][:240] if said else f"its process ended by {-ran.returncode}",
                    allowed="a model that they run",
                    hint="--against tvm compares with TVM's own code",
                )
            names = json.loads((folder / "names.json").read_text())
            found = []
            for number in range(len(samples)):
                with np.load(folder / f"out{number}.npz", allow_pickle=False) as arrays:
                    values = [arrays[f"arr_{i}"] for i in range(len(names))]
                found.append(dict(zip(names, values, strict=True)))
            return found


def _without_last(content: bytes) -> tuple[bytes, str]:
    """The file without its last operator, and the name of the tensor that this one reads first."""
    from ai_edge_litert import schema_py_generated as schema

    from tinyai.frontends.tflite.cut import part_of

    graph = schema.Model.GetRootAs(content, 0).Subgraphs(0)
    before = range(graph.OperatorsLength() - 1)
    number = graph.Operators(len(before)).Inputs(0)
    part = part_of(content, before, graph.InputsAsNumpy(), [number])
    return part, graph.Tensors(number).Name().decode(errors="replace")


def _work(folder: Path, samples: int, *, tensors: bool) -> None:
    """Run the model of a folder on its inputs, and write the outputs, or all tensors that operators
    make."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_path=str(folder / "model.tflite"),
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=tensors,
    )
    inputs = [each["index"] for each in interpreter.get_input_details()]
    if samples:  # of another batch than the file's
        with np.load(folder / "in0.npz", allow_pickle=False) as arrays:
            for place, each in enumerate(interpreter.get_input_details()):
                if (shape := arrays[f"arr_{place}"].shape) != tuple(each["shape"]):
                    interpreter.resize_tensor_input(each["index"], shape)
    interpreter.allocate_tensors()
    details = interpreter.get_output_details()
    for number in range(samples):
        with np.load(folder / f"in{number}.npz", allow_pickle=False) as arrays:
            for place, index in enumerate(inputs):
                interpreter.set_tensor(index, arrays[f"arr_{place}"])
        interpreter.invoke()
        if tensors:
            details = interpreter.get_tensor_details()
        found = {}
        for each in details:
            try:
                found[each["name"]] = interpreter.get_tensor(each["index"])
            except ValueError:  # a tensor that nothing made
                continue
        np.savez(folder / f"out{number}.npz", *found.values())
        (folder / "names.json").write_text(json.dumps(list(found)))


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]), tensors=sys.argv[3] == "1")
