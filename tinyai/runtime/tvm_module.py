"""Built TVM modules made runnable: their C sources compiled and loaded.

``relay.build`` leaves a region as a C source module, which answers "no such function in module"
until it is compiled. ``export_library`` compiles it on the way to a file; ``compile`` does so for
a module that stays in this process.
"""

from __future__ import annotations

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

from tinyai.errors import OptionError
from tinyai.runtime.toolchain import Toolchain


class CompiledFactory(ExecutorFactoryModule):  # type: ignore[misc]
    """An executor factory that runs at once: ``factory["default"](tvm.cpu())``.

    Everything else is the factory's that ``relay.build`` returned: ``export_library``,
    ``get_params``, ``get_graph_json``, ``ir_mod``.
    """

    def __init__(self, built: ExecutorFactoryModule, loaded: tvm.runtime.Module) -> None:
        self.__dict__.update(built.__dict__)
        self.loaded = loaded

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
    graph = isinstance(built, GraphExecutorFactoryModule)
    factory = CompiledGraphFactory if graph else CompiledAotFactory
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        library = Path(folder) / "library.so"
        built.export_library(str(library), fcompile=linker(toolchain))
        return factory(built, tvm.runtime.load_module(str(library)))


def c_sources(built: Any) -> list[str]:
    """The C files of a built module's regions, in the order in which TVM holds them.

    ``built`` is the result of ``tinyai.build`` or ``relay.build``, or a module.
    """
    # What a CompiledFactory has loaded is a library; its sources are where relay.build left them.
    module = built.lib if isinstance(built, ExecutorFactoryModule) else built
    own = [module.get_source()] if module.type_key == "c" else []
    return own + [text for part in module.imported_modules for text in c_sources(part)]


def linker(toolchain: Toolchain) -> Any:
    """``toolchain`` as the ``fcompile`` of TVM's ``export_library``."""

    def create(
        output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any
    ) -> None:
        files = [Path(name) for name in ([objects] if isinstance(objects, str) else objects)]
        toolchain.shared_library(Path(output), files, *(options or ()))

    create.output_format = "so"  # type: ignore[attr-defined]
    create.need_system_lib = False  # type: ignore[attr-defined]
    return create
