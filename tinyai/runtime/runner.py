"""Compile and run emitted code through ctypes, without TVM."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinyai.backend import compile_graph
from tinyai.codegen.kernels import Kernel
from tinyai.codegen.lowered import ALIGNMENT
from tinyai.doctor import cpu_name
from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.ir import Array, Graph
from tinyai.runtime.library import executable
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target


@dataclass(frozen=True, eq=False)
class BoundCall:
    """One call of a compiled function, ready to be made again and again: what the entry takes.

    ``outputs`` are the arrays that each call writes. ``entry`` is the address of
    ``int32_t (*)(const void *const *inputs, void *const *outputs, void *arena)``;
    ``input_pointers``, ``output_pointers`` and ``arena`` are its arguments. They stay valid as long
    as this object lives. Calls of one object must not overlap.
    """

    outputs: list[Array]
    entry: int
    input_pointers: Any
    output_pointers: Any
    arena: int
    _kept: Any  # what the pointers point to, and the library

    def __call__(self) -> None:
        """Make the call from Python. Raises ``EnvironmentProblem`` where the CPU lacks the
        instructions that the code is compiled to."""
        check_cpu(self._kept[0](self.input_pointers, self.output_pointers, self.arena))


class Runner:
    """A graph as a compiled function: ``runner(*inputs) -> list of outputs``.

    Inputs are numpy arrays of the graph's types, dense; outputs are new arrays. Calls may overlap
    in threads: each gets an arena of its own. ``kernels`` go before the kernel table's.
    """

    def __init__(
        self,
        graph: Graph,
        target: str | Target | None = None,
        toolchain: Toolchain | None = None,
        *,
        kernels: Sequence[Kernel] = (),
    ) -> None:
        compiled = compile_graph(graph, Target.of(target).here(), abi="plain", kernels=kernels)
        self.source = compiled.source
        self.inputs = graph.types(graph.inputs)
        self.outputs = graph.types(graph.outputs)
        self._library = load(self.source.text, toolchain or Toolchain())
        self._entry = getattr(self._library, self.source.symbol)
        self._entry.restype = ctypes.c_int32
        self._entry.argtypes = [ctypes.c_void_p] * 3

    def __call__(self, *inputs: Array) -> list[Array]:
        """Raises ``OptionError`` where an input's number, shape or dtype is not the graph's."""
        call = self.bound(*inputs)
        call()
        return call.outputs

    def bound(self, *inputs: Array) -> BoundCall:
        """A call on these inputs, not made yet: to measure the entry without Python's share.

        Inputs that are dense are read where they are, at each call. Raises ``OptionError`` as a
        call does.
        """
        if len(inputs) != len(self.inputs):
            raise OptionError("inputs", found=len(inputs), allowed=len(self.inputs))
        for index, (array, expected) in enumerate(zip(inputs, self.inputs, strict=True)):
            if (array.shape, array.dtype) != (expected.shape, expected.dtype.numpy):
                found = f"{array.dtype}{list(array.shape)}"
                raise OptionError(f"input {index}", found=found, allowed=expected)
        arrays = [np.ascontiguousarray(array) for array in inputs]
        outputs = [np.empty(t.shape, t.dtype.numpy) for t in self.outputs]
        arena = aligned_bytes(self.source.arena_bytes)
        return BoundCall(
            outputs=outputs,
            entry=ctypes.cast(self._entry, ctypes.c_void_p).value or 0,
            input_pointers=pointers(arrays),
            output_pointers=pointers(outputs),
            arena=arena.ctypes.data,
            _kept=(self._entry, self._library, arrays, arena),
        )


def check_cpu(returned: int) -> None:
    """Raise ``EnvironmentProblem`` for what an entry returns on a CPU that it is not for."""
    if returned != 0:
        raise EnvironmentProblem(
            "this CPU cannot run the code",
            found=cpu_name(),
            allowed="one with the instructions of the option isa",
            hint="isa=auto, which every CPU of the architecture runs",
        )


def load(text: str, toolchain: Toolchain) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        source, library = Path(folder) / "region.c", Path(folder) / "region.so"
        source.write_text(text)
        toolchain.shared_library(library, [source])
        with executable(library):
            return ctypes.CDLL(str(library))


def aligned_bytes(size: int) -> Array:
    room = np.empty(size + ALIGNMENT, np.uint8)
    return room[-room.ctypes.data % ALIGNMENT :]


def pointers(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * max(len(arrays), 1))(*(array.ctypes.data for array in arrays))
