"""Methods that share their constants and functions, as one file: saved, loaded, compiled."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tinyai._version import __version__
from tinyai.backend.container import Buffer, Kind
from tinyai.backend.library import write_library
from tinyai.backend.named_data import NamedData
from tinyai.backend.sharing import is_code
from tinyai.doctor import cpu_description, instruction_sets
from tinyai.errors import FormatError, OptionError
from tinyai.files import no_file, written_whole
from tinyai.network import Port
from tinyai.runtime.kept import kept_library
from tinyai.runtime.library import executable
from tinyai.runtime.toolchain import Toolchain
from tinyai.safe_text import safe
from tinyai.target import this_architecture

SUFFIX = ".tinyai"
_FILE = Kind(b"TINYBNDL", 1, "bundle")
_ELF = b"\x7fELF"


@dataclass(frozen=True)
class Method:
    """One way to call a bundle. ``entry`` is its function in C, ``program`` what the back end made
    of it: C, or the key of a library. ``sources`` are the source model's nodes of each layer, by
    its number."""

    name: str
    entry: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    program: bytes
    sources: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Bundle:
    """``methods`` by name, and the ``data`` that they share. ``architecture`` is that of the
    machines it runs on; ``saved_bytes`` how much larger the data would be if each method had its
    own."""

    methods: Mapping[str, Method]
    data: NamedData
    architecture: str
    saved_bytes: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", MappingProxyType(dict(self.methods)))

    @property
    def constant_bytes(self) -> int:
        """Of weights, tables and other numbers, each stored once; 0 where a library holds them."""
        return self._size_of_data(False)

    @property
    def code_bytes(self) -> int:
        """Of what the back end made of the methods, and of the functions that they share."""
        return sum(len(each.program) for each in self.methods.values()) + self._size_of_data(True)

    def _size_of_data(self, code: bool) -> int:
        kinds = {n: is_code(k) or _is_library(self.data[k]) for k, n in self.data.keys.items()}
        return sum(len(b.data) for n, b in enumerate(self.data.buffers) if kinds[n] == code)

    def to_bytes(self) -> bytes:
        """All of it as one file, the same for the same methods."""
        head = {
            "tinyai": __version__,
            "architecture": self.architecture,
            "saved_bytes": self.saved_bytes,
            "keys": dict(self.data.keys),
            "methods": [_said(each) for each in self.methods.values()],
        }
        programs = [Buffer(each.program) for each in self.methods.values()]
        return _FILE.written(head, [*programs, *self.data.buffers])

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "") -> Bundle:
        """What ``to_bytes`` wrote. Raises ``FormatError`` for what was cut off, altered, written by
        a newer tinyai, or is something else."""
        head, buffers = _FILE.read(content, name)
        try:
            said = head["methods"]
            programs, rest = buffers[: len(said)], buffers[len(said) :]
            methods = [_method(each, buffer) for each, buffer in zip(said, programs, strict=True)]
            saved, architecture = int(head["saved_bytes"]), str(head["architecture"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"methods of bundle {name}".strip(),
                found=f"{type(error).__name__}: {error}",
                allowed="what tinyai.lower makes",
            ) from None
        data = NamedData.of(rest, head.get("keys"), name)
        return cls({each.name: each for each in methods}, data, architecture, saved)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write it to a file whose name ends with .tinyai, whole or not at all. Raises
        ``OptionError`` for another name, or where no file can be."""
        path = Path(file)
        if path.suffix != SUFFIX:
            raise OptionError("file of a bundle", found=str(path), allowed=f"a name with {SUFFIX}")
        try:
            with written_whole(path) as beside:
                beside.write_bytes(self.to_bytes())
        except OSError as error:
            raise OptionError(
                "file of a bundle", found=error, allowed="a folder that can be written"
            ) from None

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Bundle:
        """The bundle of a file. Raises ``OptionError`` where there is none, and ``FormatError`` as
        ``from_bytes``."""
        wrong = no_file(Path(file))
        try:
            content = b"" if wrong else Path(file).read_bytes()
        except OSError as error:
            wrong = str(error)
        if wrong:
            found, allowed = f"{safe(str(file))}, {wrong}", "a file that Bundle.save wrote"
            raise OptionError("bundle", found=found, allowed=allowed)
        return cls.from_bytes(content, Path(file).name)

    @contextlib.contextmanager
    def libraries(self, toolchain: Toolchain | None = None) -> Iterator[dict[str, Path]]:
        """For each method the library that has its entry, compiled for this machine if need be.

        It is kept in ``~/.cache/tinyai/bundles`` under a digest of the bundle, the compiler and the
        CPU; where that cannot be written, the files are gone after the block. Raises
        ``EnvironmentProblem``'s kin: ``ToolchainError`` where the compiler is missing or fails, and
        ``OptionError`` for a bundle of another architecture.
        """
        if self.architecture not in (this_architecture(), "portable"):
            raise OptionError(
                "architecture of a bundle",
                found=self.architecture,
                allowed=this_architecture(),
                hint='lower it for this machine, or with CompileSpec("isa", b"generic")',
            )
        with contextlib.ExitStack() as stack:
            groups: dict[bytes, list[Method]] = {}
            for method in self.methods.values():
                key = method.program if _key(method.program) in self.data else b""
                groups.setdefault(key, []).append(method)
            found: dict[str, Path] = {}
            for key, methods in groups.items():
                file = self._library(key, methods, stack, toolchain)
                found |= {method.name: file for method in methods}
            yield found

    def _library(
        self,
        key: bytes,
        methods: Sequence[Method],
        stack: contextlib.ExitStack,
        toolchain: Toolchain | None,
    ) -> Path:
        """The library of these methods' C, or of the data of a key."""
        programs = [method.program for method in methods]
        library = self.data[_key(key)] if key else b""
        library = library or next(filter(_is_library, programs), b"")
        digest = hashlib.sha256(library)
        if not library:
            digest.update(repr((Toolchain.of(toolchain).command(), __version__)).encode())
            digest.update(repr(instruction_sets(cpu_description())).encode())
            for part in (*programs, self.data.to_bytes()):
                digest.update(hashlib.sha256(part).digest())

        def make(file: Path) -> None:
            if library:
                file.write_bytes(library)
            else:
                write_library(file, programs, self.data, toolchain, here=True)

        return kept_library("bundles", digest.hexdigest(), make, stack)

    def __str__(self) -> str:
        names = ", ".join(self.methods)
        return (
            f"bundle of {len(self.methods)} methods ({names}): constants of "
            f"{self.constant_bytes:,} bytes, code of {self.code_bytes:,}; "
            f"{self.saved_bytes:,} bytes saved by sharing"
        )


def _is_library(data: bytes) -> bool:
    return data.startswith(_ELF)


def _key(program: bytes) -> str:
    return program.decode(errors="replace") if len(program) < 200 else ""


@contextlib.contextmanager
def loaded_method(
    bundle: Bundle, name: str = "", toolchain: Toolchain | None = None
) -> Iterator[tuple[Path, dict[str, Any], ctypes.CDLL]]:
    """The file of a method's library, what ``Library`` wants to know of it, and the library. The
    only method need not be named. Raises ``OptionError`` for a name that there is not, and what
    ``libraries`` raises."""
    name = name or (next(iter(bundle.methods)) if len(bundle.methods) == 1 else "")
    method = bundle.methods.get(name)
    if method is None:
        allowed = ", ".join(map(repr, bundle.methods))
        raise OptionError("method of a bundle", found=repr(name), allowed=allowed)
    with bundle.libraries(toolchain) as libraries:
        file = libraries[name]
        with executable(file):
            handle = ctypes.CDLL(str(file))
        facts = {
            "name": name,
            "entry": method.entry,
            "target": f"tinyai -arch={bundle.architecture}",
            "arena_bytes": ctypes.c_int64.in_dll(handle, f"{method.entry}_arena_bytes").value,
            "inputs": [port.spec() for port in method.inputs],
            "outputs": [port.spec() for port in method.outputs],
        }
        yield file, facts, handle


# --- What a file says ----------------------------------------------------------------------------


def _said(method: Method) -> dict[str, Any]:
    return {
        "name": method.name,
        "entry": method.entry,
        "inputs": [each.to_dict() for each in method.inputs],
        "outputs": [each.to_dict() for each in method.outputs],
        "sources": {str(number): list(names) for number, names in method.sources.items()},
    }


def _method(said: Mapping[str, Any], program: Buffer) -> Method:
    """Raises one of Python's errors for what is no method."""
    name, entry = said["name"], said["entry"]
    if not isinstance(name, str) or not isinstance(entry, str) or not entry.isidentifier():
        raise ValueError(f"a method {name!r} with entry {entry!r}")
    return Method(
        name,
        entry,
        tuple(map(Port.from_dict, said["inputs"])),
        tuple(map(Port.from_dict, said["outputs"])),
        program.data,
        {int(number): tuple(map(str, names)) for number, names in said["sources"].items()},
    )
