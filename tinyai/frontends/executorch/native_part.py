"""The native part: what ExecuTorch's runtime calls, compiled against its headers, and loaded.

ExecuTorch promises no binary interface between versions, so the native part comes as source. It is
compiled once for a version of ExecuTorch, a compiler and a tinyai, and kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tinyai.errors import EnvironmentProblem, FormatError, ToolchainError
from tinyai.files import written_whole
from tinyai.runtime.kept import drop_old, kept_folder
from tinyai.runtime.library import check_elf
from tinyai.runtime.toolchain import Toolchain

COMPILERS = ("c++", "g++", "clang++")
# Earlier ones do not export register_backend.
OLDEST = (1, 5)
SOURCES = ("backend.cpp", "blob.h", "library.h", "network.h")
# What else an application needs that links its networks.
STATIC = ("Makefile", "backend.cpp", "blob.h", "example.cpp", "network.h")
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


def sources(names: Iterable[str] = SOURCES) -> dict[str, bytes]:
    """Files of the native part, by name."""
    return {name: (native_folder() / name).read_bytes() for name in names}


def native_folder() -> Path:
    """Where they are."""
    return Path(__file__).parent / "native"


def executorch_folder() -> Path:
    """Where ExecuTorch is installed, with headers and libraries. Raises ``EnvironmentProblem``
    where it is not, too old, or has none."""
    spec = importlib.util.find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentProblem(
            "no ExecuTorch is installed",
            found="no package executorch",
            allowed="executorch 1.5 or later",
            hint='pip install "tinyai[executorch]"',
        )
    version = executorch_version()
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST:
        raise EnvironmentProblem(
            "this ExecuTorch cannot take a back end from outside",
            found=f"executorch {version}",
            allowed="executorch 1.5 or later, which exports register_backend",
            hint='pip install "executorch>=1.5"',
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    header = folder / "include/executorch/runtime/backend/interface.h"
    library = folder / "lib/libexecutorch.so"
    missing = [str(path) for path in (header, library) if not path.is_file()]
    if missing:
        raise EnvironmentProblem(
            "this ExecuTorch has not what a back end is compiled with",
            found=f"no {missing[0]}",
            allowed="a wheel for Linux, with headers and libexecutorch.so",
            hint=f"pip install --force-reinstall executorch=={version}",
        )
    return folder


def executorch_version() -> str:
    return importlib.metadata.version("executorch")


def compiler() -> Toolchain:
    """The C++ compiler: the environment's ``CXX``, or the first of c++, g++, clang++."""
    asked = os.environ.get("CXX", "")
    found = asked or next(filter(shutil.which, COMPILERS), "")
    words = shlex.split(found) if found.count("'") % 2 == 0 and found.count('"') % 2 == 0 else []
    if not words or shutil.which(words[0]) is None:
        raise ToolchainError(
            "no C++ compiler",
            found=repr(asked) if asked else f"none of {', '.join(COMPILERS)}",
            allowed="an executable on the PATH, or its path",
            hint="install g++, or set CXX (a path with spaces in quotes)",
        )
    return Toolchain(found)


def compile_arguments(folder: Path) -> list[str]:
    """What C++ for ExecuTorch's runtime is compiled with."""
    include = folder / "include"
    portable = include / "executorch/runtime/core/portable_type/c10"
    return [
        *("-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_EVENT_TRACER_ENABLED"),
        *("-isystem", str(include), "-isystem", str(portable)),
    ]


def link_arguments(folder: Path) -> list[str]:
    """What is linked with ExecuTorch's runtime."""
    library = folder / "lib"
    rpath = ["-Xlinker", "-rpath", "-Xlinker", str(library)]
    return [f"-L{library}", "-lexecutorch", *rpath, "-ldl"]


def build(output: Path) -> None:
    """Compile the native part, whole or not at all."""
    folder, toolchain = executorch_folder(), compiler()
    source = str(native_folder() / "backend.cpp")
    with written_whole(output) as beside:
        arguments = [*_FLAGS, *compile_arguments(folder), source]
        toolchain.run([*arguments, "-o", str(beside), *link_arguments(folder)])


def _digest() -> str:
    """Of all that the native part depends on."""
    toolchain = compiler()
    command = toolchain.command()
    said = subprocess.run([command[0], "--version"], capture_output=True, check=False).stdout
    machine = os.uname().machine  # a home may be that of several
    parts = (executorch_version(), str(executorch_folder()), machine, command, said, _FLAGS)
    digest = hashlib.sha256(repr(parts).encode())
    for content in sources().values():
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


@functools.cache
def load() -> None:
    """Register the back end with ExecuTorch's runtime in this process, before ``load_method``.

    The native part is compiled the first time, which takes seconds, and kept in
    ``~/.cache/tinyai/executorch`` for this version of ExecuTorch and this compiler. Raises
    ``EnvironmentProblem`` where there is no fitting ExecuTorch, ``ToolchainError`` where there is
    no C++ compiler, or it fails.
    """
    name = f"{_digest()}.so"
    kept = kept_folder("executorch")
    with contextlib.ExitStack() as stack:
        library = _kept(kept / name) if kept else None
        if library is None:
            temporary = tempfile.TemporaryDirectory(prefix="tinyai-")
            library = _built(Path(stack.enter_context(temporary)) / name)
    error = library.tinyai_executorch_registered()
    if error:
        raise EnvironmentProblem(
            "ExecuTorch's runtime does not take another back end",
            found=f"error {error} of register_backend",
            allowed="0",
            hint="a process with fewer back ends",
        )


def _kept(file: Path) -> ctypes.CDLL | None:
    """The library of a folder that is kept, made where it is not there or was cut off; nothing
    where the folder does not take it, or holds no code that may be executed."""
    with contextlib.suppress(OSError, FormatError):
        return _loaded(file)
    with contextlib.suppress(OSError, EnvironmentProblem):
        library = _built(file)
        drop_old(file.parent)
        return library
    return None


def _built(file: Path) -> ctypes.CDLL:
    build(file)
    try:
        return _loaded(file)
    except (OSError, FormatError) as error:
        raise EnvironmentProblem(
            "the native part was compiled and cannot be loaded",
            found=str(error).splitlines()[0],
            allowed="a folder from which code may be executed, and the libraries of ExecuTorch",
            hint="XDG_CACHE_HOME or TMPDIR set to another folder",
        ) from None


def _loaded(file: Path) -> ctypes.CDLL:
    check_elf(file)
    return ctypes.CDLL(str(file))
