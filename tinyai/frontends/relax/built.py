"""Model files in TVM's Relax VM, with tinyai's regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from tinyai.errors import EnvironmentProblem
from tinyai.frontends.onnx.pairs import in_pairs
from tinyai.frontends.relax.pipeline import build
from tinyai.ir import Array
from tinyai.safe_text import safe


class RelaxBuilt:
    """A file as TVM imports it and ``tinyai.relax.build`` makes it for this machine. Of values on
    the way it shows none. Raises ``EnvironmentProblem`` where TVM cannot import or build it."""

    def __init__(self, file: Path) -> None:
        self.name = f"TVM {tvm.__version__} (Relax) with tinyai's regions"
        try:
            mod = imported(file)
        except Exception as error:  # TVM's importers raise errors of many kinds
            raise EnvironmentProblem(
                f"TVM's importer cannot read {safe(file.name)}",
                found=safe(f"{type(error).__name__}: {error}", 300),
                allowed="a file whose operators it knows",
                hint="leave out --against: the file's own framework runs it",
            ) from None
        self._run = relax.VirtualMachine(build(mod, names=file, isa="native"), tvm.cpu())["main"]

    def results(self, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
        tensors = ([tvm.runtime.tensor(value) for value in sample] for sample in samples)
        return [flat(self._run(*given)) for given in tensors]

    def tensors(self, sample: Sequence[Array]) -> Mapping[str, Array]:
        return {}

    def tensor_of(self, source: str) -> str | None:
        return None


def imported(file: Path) -> tvm.IRModule:
    """A file as TVM's importers read it."""
    if file.suffix.lower() == ".tflite":
        import tflite
        from tvm.relax.frontend.tflite import from_tflite

        return from_tflite(tflite.Model.GetRootAsModel(file.read_bytes(), 0))
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load(file)
    kinds = {node.op_type for node in model.graph.node}
    is_old = any(kind.startswith(("QLinear", "QGemm")) for kind in kinds)
    return from_onnx(in_pairs(model) if is_old else model, keep_params_in_input=False)


def flat(result: Any) -> list[Array]:
    """The tensors of a result that may be a tuple of tuples."""
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [each for part in result for each in flat(part)]
