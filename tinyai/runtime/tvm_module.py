"""Built TVM modules made runnable: their C sources compiled and loaded.

``relay.build`` leaves a region as a C source module, which answers "no such function in module"
until it is compiled. ``export_library`` compiles it on the way to a file; ``compile`` does so for
a module that stays in this process, which of a file for every machine takes no more than what this
CPU runs.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.relay.backend.executor_factory import (
    AOTExecutorFactoryModule,
    ExecutorFactoryModule,
    GraphExecutorFactoryModule,
)

from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.runtime.library import executable
from tinyai.runtime.toolchain import Objects, Toolchain

# What export_library writes without a C compiler, or with one that is not this machine's.
_TVMS_OWN = (".tar", ".wasm")


class CompiledFactory(ExecutorFactoryModule):  # type: ignore[misc]
    """An executor factory that runs at once: ``factory["default"](tvm.cpu())``.

    Everything else is the factory's that ``relay.build`` returned: ``get_params``,
    ``get_graph_json``, ``ir_mod``. One for another machine exports, and says so where it should
    run.
    """

    def __init__(
        self,
        built: ExecutorFactoryModule,
        loaded: tvm.runtime.Module | None,
        toolchain: Toolchain,
        objects: Objects,
    ) -> None:
        self.__dict__.update(built.__dict__)
        self._loaded = loaded
        self._toolchain, self._objects = toolchain, objects

    @property
    def loaded(self) -> tvm.runtime.Module:
        """The compiled library. Raises ``EnvironmentProblem`` where it is for another machine."""
        if self._loaded is None:
            raise EnvironmentProblem(
                "the library is for another machine and cannot be loaded here",
                found=", ".join(map(str, self.target)),
                allowed=f"a host for {platform.machine()}",
                hint="export_library, and tvm.runtime.load_module on that machine",
            )
        return self._loaded

    def export_library(
        self, file_name: str | Path, fcompile: Any = None, addons: Any = None, **kwargs: Any
    ) -> Any:
        """TVM's, of all that ``relay.build`` made: the library runs wherever the options say.

        Without a compiler of its own (``fcompile``, ``cc``, ``.tar``) by the toolchain of the
        build, which compiles what it has not compiled yet.
        """
        if fcompile is None and not kwargs and Path(file_name).suffix not in _TVMS_OWN:
            fcompile = linker(self._toolchain, kept=self._objects)
        return super().export_library(file_name, fcompile, addons, **kwargs)

    def __getitem__(self, item: str) -> Any:
        return self.loaded[item]

    def get_lib(self) -> tvm.runtime.Module:
        """The library with the operators' functions, loaded."""
        (library,) = self.loaded.imported_modules
        return library

    def __del__(self) -> None:
        """Nothing to release: the attributes are shared with the factory that was built."""


class CompiledGraphFactory(CompiledFactory, GraphExecutorFactoryModule):  # type: ignore[misc]
    """For the graph executor."""


class CompiledAotFactory(CompiledFactory, AOTExecutorFactoryModule):  # type: ignore[misc]
    """For the AOT executor with the packed interface."""


def for_another_machine(built: ExecutorFactoryModule, toolchain: Toolchain) -> CompiledFactory:
    """A factory that ``toolchain`` exports for the machine that TVM's host code is for."""
    return _factory(built)(built, None, toolchain, {})


def compile(built: ExecutorFactoryModule, toolchain: Toolchain | None = None) -> CompiledFactory:
    """A factory that runs, from the result of ``relay.build`` with the graph or AOT executor.

    ``toolchain`` compiles the C sources; without it ``CC`` or the system's C compiler does.
    Raises ``OptionError`` for anything but an executor factory, ``ToolchainError`` where the
    compiler is missing or fails.
    """
    if not isinstance(built, ExecutorFactoryModule):
        raise OptionError(
            "module to compile",
            found=type(built).__name__,
            allowed="the result of relay.build",
            hint="export_library and tvm.runtime.load_module serve the VM",
        )
    toolchain = Toolchain.of(toolchain)
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        library = Path(folder) / "library.so"
        objects: Objects = {}
        built.export_library(str(library), fcompile=linker(toolchain, here=True, kept=objects))
        with executable(library):
            loaded = tvm.runtime.load_module(str(library))
        return _factory(built)(built, loaded, toolchain, objects)


def _factory(built: ExecutorFactoryModule) -> type[CompiledFactory]:
    graph = isinstance(built, GraphExecutorFactoryModule)
    return CompiledGraphFactory if graph else CompiledAotFactory


def c_sources(built: Any) -> list[str]:
    """The C files of a built module's regions, in the order in which TVM holds them.

    ``built`` is the result of ``tinyai.build`` or ``relay.build``, or a module.
    """
    # What a CompiledFactory has loaded is a library; its sources are where relay.build left them.
    module = built.lib if isinstance(built, ExecutorFactoryModule) else built
    own = [module.get_source()] if module.type_key == "c" else []
    return own + [text for part in module.imported_modules for text in c_sources(part)]


def linker(toolchain: Toolchain, *, here: bool = False, kept: Objects | None = None) -> Any:
    """``toolchain.shared_library`` as the ``fcompile`` of TVM's ``export_library``."""

    def create(
        output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any
    ) -> None:
        files = [Path(name) for name in ([objects] if isinstance(objects, str) else objects)]
        toolchain.shared_library(Path(output), files, *(options or ()), here=here, kept=kept)

    create.output_format = "so"  # type: ignore[attr-defined]
    create.need_system_lib = False  # type: ignore[attr-defined]
    return create
