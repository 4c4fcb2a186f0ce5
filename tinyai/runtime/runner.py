"""Compile and run emitted code through ctypes, without TVM."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinyai.backend import compile_graph
from tinyai.errors import OptionError
from tinyai.ir import Array, Graph, Type
from tinyai.plan import ALIGNMENT
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target


class Runner:
    """A graph as a compiled function: ``runner(*inputs) -> list of outputs``.

    Inputs are numpy arrays of the graph's types, dense; outputs are new arrays. Calls may overlap
    in threads: each gets an arena of its own.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target | None = None,
        toolchain: Toolchain | None = None,
    ) -> None:
        compiled = compile_graph(graph, target or Target(), abi="plain")
        self.source = compiled.source
        self.inputs = graph.types(graph.inputs)
        self.outputs = graph.types(graph.outputs)
        self._library = _load(self.source.text, toolchain or Toolchain())
        self._entry = getattr(self._library, self.source.symbol)
        self._entry.restype = None

    def __call__(self, *inputs: Array) -> list[Array]:
        """Raises ``OptionError`` where an input's number, shape or dtype is not the graph's."""
        if len(inputs) != len(self.inputs):
            raise OptionError("inputs", found=len(inputs), allowed=len(self.inputs))
        arrays = [
            _checked(i, a, t) for i, (a, t) in enumerate(zip(inputs, self.inputs, strict=True))
        ]
        outputs = [np.empty(t.shape, t.dtype.numpy) for t in self.outputs]
        arena = _aligned_bytes(self.source.arena_bytes)
        self._entry(_pointers(arrays), _pointers(outputs), arena.ctypes.data_as(ctypes.c_void_p))
        return outputs


def _load(text: str, toolchain: Toolchain) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        source, library = Path(folder) / "region.c", Path(folder) / "region.so"
        source.write_text(text)
        toolchain.shared_library(library, [source])
        return ctypes.CDLL(str(library))


def _checked(index: int, array: Array, expected: Type) -> Array:
    if (array.shape, array.dtype) != (expected.shape, expected.dtype.numpy):
        raise OptionError(
            f"input {index}", found=f"{array.dtype}{list(array.shape)}", allowed=expected
        )
    return np.ascontiguousarray(array)


def _aligned_bytes(size: int) -> Array:
    room = np.empty(size + ALIGNMENT, np.uint8)
    return room[-room.ctypes.data % ALIGNMENT :]


def _pointers(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * max(len(arrays), 1))(*(array.ctypes.data for array in arrays))
