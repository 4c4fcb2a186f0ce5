"""What was built before: libraries of ``tinyai.compile``, and C packages, compiled here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyai.backend import compile_network
from tinyai.checking.code import Code
from tinyai.codegen.lowered import Lowered
from tinyai.errors import OptionError
from tinyai.frontends.model import is_package
from tinyai.ir import Array
from tinyai.network import Network
from tinyai.runtime.library import Library
from tinyai.runtime.package import library_of_package
from tinyai.runtime.toolchain import Toolchain
from tinyai.safe_text import safe
from tinyai.target import Target


@dataclass(frozen=True, eq=False)
class Built:
    """Code that says of itself what it was made from; ``how`` is what ``compile_network`` was asked
    for."""

    path: Path
    kind: str
    library: Library
    how: dict[str, Any]

    @property
    def target(self) -> Target:
        """What the code was compiled for."""
        return Target.of(self.library.target)

    @property
    def types(self) -> str:
        """The types of its inputs and outputs."""
        return _types(self.library.inputs, self.library.outputs)

    def fits(self, network: Network) -> bool:
        """Whether a network has such inputs and outputs."""
        return self.types == types_of(network)

    def code(self, network: Network) -> Code:
        """The code, with the graph that it was made from if the network is that of its model: made
        anew under the same options, it has the same layers."""
        graph: Lowered | None = None
        made = compile_network(network, self.target, **self.how)
        if made.source.layers_digest == self.library.facts.get("layers"):
            graph = made.graph
        name, library = f"the {self.kind} {self.path.name}", self.library

        def run(inputs: Sequence[Array]) -> list[Array]:
            return library.run(list(inputs))

        return Code(name, library.handle, library.name, graph, run, library.reset)


def types_of(network: Network) -> str:
    """The types of the inputs and outputs of a network, as ``Built`` has them."""
    return _types(*([port.type for port in ports] for ports in (network.inputs, network.outputs)))


def _types(*ends: Iterable[object]) -> str:
    return " -> ".join(", ".join(map(str, each)) for each in ends)


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
        return Built(path, "library", Library(path), {"abi": "plain"})
    with library_of_package(path, toolchain) as file:
        library = Library(file)
    how = {"abi": "package", "ports_in_arena": library.facts["ports_in_arena"]}
    return Built(path, "C package", library, how)
