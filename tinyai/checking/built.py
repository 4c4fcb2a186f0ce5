"""What was built before: libraries of ``tinyai.compile``, and C packages, compiled here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyai.backend import compile_graph
from tinyai.checking.code import Code
from tinyai.codegen.lowered import Lowered
from tinyai.errors import OptionError
from tinyai.frontends.model import is_package
from tinyai.ir import Array
from tinyai.network import Network
from tinyai.report import safe
from tinyai.runtime.library import Library
from tinyai.runtime.package import library_of_package
from tinyai.runtime.toolchain import Toolchain
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
        if made.source.layers_digest == self.layers:
            graph = made.graph
        name = f"the {self.kind} {self.path.name}"
        return Code(name, self.library, self.name, graph, self.run)


def load_built(path: Path, toolchain: Toolchain | None = None) -> Built:
    """A library (.so), or a C package (a folder or .tar), which is compiled.

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
    if not is_package(path):
        return _built(path, "library", Library(path), {"abi": "plain"})
    with library_of_package(path, toolchain) as file:
        library = Library(file)
    how = {"abi": "package", "ports_in_arena": library.facts["ports_in_arena"]}
    return _built(path, "C package", library, how)


def _built(path: Path, kind: str, library: Library, how: dict[str, Any]) -> Built:
    return Built(
        path=path,
        kind=kind,
        name=library.name,
        target=Target.of(library.target),
        inputs=[(each.shape, each.dtype) for each in library.inputs],
        outputs=[(each.shape, each.dtype) for each in library.outputs],
        layers=str(library.facts.get("layers", "")),
        how={**how, "hooked": True},
        library=library.handle,
        run=lambda inputs: library.run(list(inputs)),
    )
