"""What was built before: libraries of ``tinyai.compile``, and C packages, compiled here."""

from __future__ import annotations

import ctypes
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinyai.backend import compile_graph
from tinyai.checking.code import Code
from tinyai.codegen.lowered import Lowered
from tinyai.errors import EnvironmentProblem, FormatError, OptionError
from tinyai.ir import Array
from tinyai.network import Network
from tinyai.report import safe
from tinyai.runtime.library import Library
from tinyai.runtime.runner import aligned_bytes, pointers
from tinyai.runtime.toolchain import Toolchain
from tinyai.runtime.watch import HOOK_FLAG, layers_digest
from tinyai.target import Target

# Shapes and dtypes of arrays.
Ends = list[tuple[tuple[int, ...], str]]


@dataclass(frozen=True, eq=False)
class Built:
    """Code that says of itself what it was made from: the name of the network, the target, the
    types of its inputs and outputs. ``layers`` is the digest of its layers, ``how`` what
    ``compile_graph`` was asked for."""

    path: Path
    kind: str
    name: str
    target: Target
    inputs: Ends
    outputs: Ends
    layers: str
    how: dict[str, Any]
    library: ctypes.CDLL
    run: Callable[[Sequence[Array]], list[Array]]

    def fits(self, network: Network) -> bool:
        """Whether a network has such inputs and outputs."""
        pairs = ((network.inputs, self.inputs), (network.outputs, self.outputs))
        return all(
            [(port.type.shape, str(port.type.dtype)) for port in ports] == ends
            for ports, ends in pairs
        )

    def code(self, network: Network) -> Code:
        """The code, with the graph that it was made from if the network is that of its model: made
        anew under the same options, it has the same layers."""
        graph: Lowered | None = None
        made = compile_graph(network.graph, self.target, **self.how)
        if layers_digest(made.source.text) == self.layers:
            graph = made.graph
        name = f"the {self.kind} {self.path.name}"
        return Code(name, self.library, self.name, graph, self.run)


def load_built(path: Path, folder: Path, toolchain: Toolchain | None = None) -> Built:
    """A library (.so), or a C package (a folder or .tar), compiled in ``folder``.

    Raises ``OptionError`` where nothing is there, ``FormatError`` for what is neither,
    ``ToolchainError`` where a package does not compile.
    """
    if not path.exists():
        raise OptionError(
            "code to check",
            found=f"{safe(str(path))}, no file and no folder",
            allowed="a library or C package of tinyai compile",
            hint="without --with the model is compiled",
        )
    if path.suffix == ".so":
        return _library(path)
    if path.is_dir():
        return _package(path, path, folder, toolchain or Toolchain())
    return _package(path, _unpacked(path, folder), folder, toolchain or Toolchain())


def _library(path: Path) -> Built:
    library = Library(path)
    return Built(
        path=path,
        kind="library",
        name=library.name,
        target=Target.of(library.target),
        inputs=[(each.shape, each.dtype) for each in library.inputs],
        outputs=[(each.shape, each.dtype) for each in library.outputs],
        layers=str(library.facts.get("layers", "")),
        how={"abi": "plain", "hooked": True},
        library=library.handle,
        run=lambda inputs: library.run(list(inputs)),
    )


# --- C packages ----------------------------------------------------------------------------------


class _Instance(ctypes.Structure):
    """NAME_t, and what its pointer points to."""

    _fields_ = (("arena", ctypes.c_void_p), ("ready", ctypes.c_uint32))
    memory: Array


def _unpacked(path: Path, folder: Path) -> Path:
    """The one folder in an archive."""
    try:
        with tarfile.open(path) as archive:
            archive.extractall(folder / "package", filter="data")
    except (OSError, tarfile.TarError) as error:
        raise _no_package(path, f"{type(error).__name__}: {error}") from None
    found = [each for each in (folder / "package").iterdir() if each.is_dir()]
    if len(found) != 1:
        raise _no_package(path, f"{len(found)} folders")
    return found[0]


def _package(path: Path, folder: Path, made: Path, toolchain: Toolchain) -> Built:
    try:
        (report,) = folder.glob("*_report.json")
        facts = json.loads(report.read_text())
        name, inputs, outputs = facts["name"], _ends(facts["inputs"]), _ends(facts["outputs"])
        target, arena = Target.of(facts["target"]), int(facts["arena_bytes"])
        in_arena = facts["ports_saved"] is not None
        text = (folder / f"{name}.c").read_text()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _no_package(path, f"{type(error).__name__}: {error}") from None
    library = made / "package.so"
    sources = [folder / f"{name}.c", folder / f"{name}_weights.c"]
    toolchain.shared_library(library, sources, HOOK_FLAG, f"-I{folder}")
    loaded = ctypes.CDLL(str(library))
    return Built(
        path=path,
        kind="C package",
        name=name,
        target=target,
        inputs=inputs,
        outputs=outputs,
        layers=layers_digest(text),
        how={"abi": "package", "hooked": True, "ports_in_arena": in_arena},
        library=loaded,
        run=_runner(loaded, name, arena, inputs, outputs, in_arena=in_arena),
    )


def _ends(rows: Sequence[dict[str, Any]]) -> Ends:
    return [(tuple(row["shape"]), _DTYPES[row["c_type"]]) for row in rows]


_DTYPES = {"float": "float32"} | {
    f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def _runner(
    library: ctypes.CDLL, name: str, size: int, inputs: Ends, outputs: Ends, *, in_arena: bool
) -> Callable[[Sequence[Array]], list[Array]]:
    """A function that calls NAME_run on an instance of its own."""
    instance, arena = _Instance(), aligned_bytes(size)
    instance.memory = arena
    start = getattr(library, f"{name}_init")
    start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    _check(name, start(ctypes.byref(instance), arena.ctypes.data, size))
    run = getattr(library, f"{name}_run")

    def place(kind: str, number: int, among: int) -> int:
        function = getattr(library, f"{name}_{kind}{number if among > 1 else ''}")
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        return int(function(ctypes.byref(instance)))

    def called(arrays: Sequence[Array]) -> list[Array]:
        arrays = [np.ascontiguousarray(each) for each in arrays]
        results = [np.empty(shape, dtype) for shape, dtype in outputs]
        if not in_arena:
            given = [*pointers(arrays)[: len(arrays)], *pointers(results)[: len(results)]]
            _check(name, run(ctypes.byref(instance), *map(ctypes.c_void_p, given)))
            return results
        for number, each in enumerate(arrays):
            to = place("input", number, len(inputs))
            ctypes.memmove(to, each.ctypes.data, each.nbytes)
        _check(name, run(ctypes.byref(instance)))
        for number, each in enumerate(results):
            at = place("output", number, len(outputs))
            ctypes.memmove(each.ctypes.data, at, each.nbytes)
        return results

    return called


def _check(name: str, returned: int) -> None:
    if returned != 0:
        raise EnvironmentProblem(
            f"the C package {name} does not run here",
            found=f"error {returned} of {name}.h",
            allowed="0",
            hint="a package for this machine's CPU",
        )


def _no_package(path: Path, found: str) -> FormatError:
    return FormatError(
        "code to check",
        found=f"{safe(str(path))}: {safe(found, 200)}",
        allowed="a library (.so) or a C package (a folder or .tar) of tinyai compile",
        hint="tinyai compile MODEL -o net.so",
    )
