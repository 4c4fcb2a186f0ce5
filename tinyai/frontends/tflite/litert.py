"""LiteRT in a process of its own: its reference softmax aborts where its input's scale is below
2**-26, as random weights may have it, and takes the process along. ``python -m
tinyai.frontends.tflite.litert`` is that process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyai.errors import EnvironmentProblem
from tinyai.ir import Array
from tinyai.safe_text import safe

if TYPE_CHECKING:  # the process needs none of it
    from tinyai.quantizer.data import Sample
    from tinyai.quantizer.float_runner import Framework


# Where the offset of an operator code's version is in its table.
_VERSION_FIELD = 8
# What LiteRT says of an operator of a version that it has not registered.
_TOO_NEW = re.compile(r"builtin opcode '(\w+)' version '(\d+)'")


class AbortedError(EnvironmentProblem):
    """LiteRT took its process along."""


def run(
    content: bytes,
    samples: Sequence[Sequence[Array]],
    *,
    kernels: str = "BUILTIN_REF",
    tensors: bool = False,
    hint: str = "",
) -> list[list[tuple[str, Array]]]:
    """The outputs of a .tflite file on each sample, which has an array for each input, or all
    ``tensors`` that operators make, with their names. ``kernels`` is one of LiteRT's
    ``OpResolverType``, ``hint`` says what to try where it fails.
    Raises ``AbortedError`` where LiteRT aborts, ``EnvironmentProblem`` where it refuses the file.
    """
    with tempfile.TemporaryDirectory(prefix="tinyai-") as name:
        folder = Path(name)
        (folder / "model.tflite").write_bytes(content)
        for number, sample in enumerate(samples):
            np.savez(folder / f"in{number}.npz", *sample)
        words = [name, str(len(samples)), kernels, str(int(tensors))]
        ran = in_a_process("tinyai.frontends.tflite.litert", *words)
        if ran.returncode != 0:
            kind = AbortedError if ran.returncode < 0 else EnvironmentProblem
            raise kind(
                "LiteRT cannot run the model",
                found=reason_of(ran),
                allowed="a model that it runs",
                hint=hint,
            )
        names = json.loads((folder / "names.json").read_text())
        found = []
        for number in range(len(samples)):
            with np.load(folder / f"out{number}.npz", allow_pickle=False) as arrays:
                values = [arrays[f"arr_{i}"] for i in range(len(names))]
            found.append([*zip(names, values, strict=True)])
        return found


def in_a_process(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A module of tinyai's that has run to its end, with what this process can import."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", module, *words]  # no module of the working folder
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def reason_of(ran: subprocess.CompletedProcess[str]) -> str:
    """Why a process failed: the last that it said, if it said anything."""
    said = [line for line in ran.stderr.splitlines() if line.strip()]
    return safe(said[-1] if said else f"its process ended by {-ran.returncode}", 240)


def framework_of(file: Path, signature: str = "") -> Framework:
    """What runs a .tflite file as it is."""

    def call(sample: Sample) -> list[Array]:
        from tinyai.frontends.tflite.signatures import content_of

        if find_spec("ai_edge_litert") is None:
            raise EnvironmentProblem(
                "LiteRT cannot run the file",
                found="no package ai-edge-litert",
                allowed="one that is installed",
            )
        content = content_of(file.read_bytes(), signature)
        (found,) = run(content, [[*sample.values()]], kernels="BUILTIN_WITHOUT_DEFAULT_DELEGATES")
        return [value for _, value in found]

    return call


def _work(folder: Path, samples: int, kernels: str, *, tensors: bool) -> None:
    """Run the model of a folder on its inputs, and write the outputs, or all tensors that operators
    make."""
    interpreter = _interpreter_of((folder / "model.tflite").read_bytes(), kernels, tensors=tensors)
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
        names, values = [], []
        for each in details:
            with suppress(ValueError):  # of a tensor that nothing made
                values.append(interpreter.get_tensor(each["index"]))
                names.append(each["name"])
        np.savez(folder / f"out{number}.npz", *values)
        (folder / "names.json").write_text(json.dumps(names))


def _interpreter_of(content: bytes, kernels: str, *, tensors: bool) -> Any:
    """The reference kernels are registered for older versions of some operators (2 of TILE, where
    converters write 3 for int8), though they compute the newer: such a version is lowered."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    while True:
        try:
            return Interpreter(
                model_content=content,
                experimental_op_resolver_type=OpResolverType[kernels],
                experimental_preserve_all_tensors=tensors,
            )
        except ValueError as error:
            found = _TOO_NEW.search(str(error))
            if found is None or int(found[2]) < 2:
                raise
            content = _with_version_lowered(content, found[1], int(found[2]))


def _with_version_lowered(content: bytes, kind: str, version: int) -> bytes:
    from ai_edge_litert import schema_py_generated as schema

    changed = bytearray(content)
    model, number = schema.Model.GetRootAs(content, 0), getattr(schema.BuiltinOperator, kind)
    for place in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(place)
        own = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if (own, code.Version()) == (number, version):
            table = code._tab
            at = table.Pos + table.Offset(_VERSION_FIELD)
            changed[at : at + 4] = (version - 1).to_bytes(4, "little")
    return bytes(changed)


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], tensors=sys.argv[4] == "1")
