"""TFLite files in LiteRT's reference kernels, whose integers are TFLite's."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from tinyai.checking.opponents import Sample, need
from tinyai.frontends.tflite.litert import run
from tinyai.ir import Array


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
        return [[value for _, value in found] for found in self._run(samples)]

    def tensors(self, sample: Sample) -> Mapping[str, Array]:
        *_, found = self._run([*self._before, sample], tensors=True)
        return dict(found)

    def _run(
        self, samples: Sequence[Sample], *, tensors: bool = False
    ) -> list[list[tuple[str, Array]]]:
        hint = "--against tvm compares with TVM's own code"
        return run(self._content, samples, tensors=tensors, hint=hint)

    def tensor_of(self, source: str) -> str | None:
        return source


def _without_last(content: bytes) -> tuple[bytes, str]:
    """The file without its last operator that computes, and the name of the tensor that this one
    reads first."""
    import tflite

    from tinyai.frontends.tflite.cut import part_of
    from tinyai.frontends.tflite.file import File

    model = tflite.Model.GetRootAsModel(content, 0)
    file = File(model, content)
    last = len(file.operators) - 1
    while last > 0 and file.operators[last].kind == "DEQUANTIZE":
        last -= 1
    number = file.operators[last].inputs[0]
    part = part_of(content, range(last), file.inputs, [number])
    return part, model.Subgraphs(0).Tensors(number).Name().decode(errors="replace")
