"""A C package as a library: its C compiled for this machine, with the entry and the facts that
``tinyai.runtime.library`` reads. What is read here is written by ``tinyai.package``."""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Self

from tinyai._version import __version__
from tinyai.codegen.templates import render, tidy
from tinyai.doctor import cpu_description, instruction_sets
from tinyai.errors import OptionError
from tinyai.files import no_file
from tinyai.network import Port
from tinyai.runtime.kept import kept_library
from tinyai.runtime.link import constant_in_c
from tinyai.runtime.manifest import (
    SUFFIX,
    facts_of_file,
    no_package,
    other_version,
    read_manifest,
)
from tinyai.runtime.toolchain import Toolchain
from tinyai.runtime.watch import HOOK_FLAG
from tinyai.safe_text import safe
from tinyai.stages import stage
from tinyai.target import Target, this_architecture

LARGEST_UNPACKED = 2**30  # bytes of an archive; the largest weights as text are a few hundred MB
_REPORT = "_report.json"  # all that packages of earlier versions have
_ENTRY = "tinyai_package_entry"
_OWN = "facts-and-entry.c"  # no file of a package: those begin with an identifier
_CODE = (".h", ".c", "_weights.c")


@contextlib.contextmanager
def library_of_package(path: Path, toolchain: Toolchain | None = None) -> Iterator[Path]:
    """The library of a C package: a folder, or an archive of one.

    It is kept in ``~/.cache/tinyai/packages`` under a digest of the package, the compiler and the
    CPU; where that cannot be written, it is gone after the block. Raises ``OptionError`` where
    nothing is there and for code of another architecture, ``FormatError`` for what is no package,
    or one whose files do not belong together, ``ToolchainError`` where it does not compile.
    """
    files, toolchain = _files(path), Toolchain.of(toolchain)
    facts = _facts(path, files)
    name = facts["name"]
    adapter = tidy(render("adapter.c.j2", **{"state_bytes": 0, **facts}))
    files[_OWN] = (constant_in_c(facts) + adapter).encode()
    optimized = any(word.startswith("-O") for word in toolchain.command())
    options = (HOOK_FLAG, *(() if optimized else ("-O2",)))
    digest = hashlib.sha256(repr((__version__, toolchain.command(), options)).encode())
    digest.update(repr(instruction_sets(cpu_description())).encode())
    for content in files.values():
        digest.update(hashlib.sha256(content).digest())

    def make(library: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="tinyai-") as folder, stage("C compiler"):
            work = Path(folder)
            for file, content in files.items():
                (work / file).write_bytes(content)
            sources = [work / f"{name}.c", work / f"{name}_weights.c", work / _OWN]
            toolchain.shared_library(library, sources, *options, f"-I{work}", here=True)

    with contextlib.ExitStack() as stack:
        yield kept_library("packages", digest.hexdigest(), make, stack)


# --- What a package says of itself ---------------------------------------------------------------


def _files(path: Path) -> dict[str, bytes]:
    """What is compiled of a package, and its report, by name."""
    if path.exists() and not path.is_dir() and no_file(path):
        raise no_package(path, no_file(path))
    try:
        found = _in_folder(path) if path.is_dir() else _in_archive(path)
    except FileNotFoundError:
        raise OptionError(
            "C package",
            found=f"{safe(str(path))}, no file and no folder",
            allowed="a folder or .tar that tinyai compile wrote",
            hint="tinyai compile MODEL -o net",
        ) from None
    except PermissionError:
        raise
    except (OSError, EOFError, tarfile.TarError) as error:
        raise no_package(path, f"{type(error).__name__}: {error}") from None
    manifests = [file for file in found if file.endswith(SUFFIX)]
    if not manifests and any(file.endswith(_REPORT) for file in found):
        raise other_version(path, f"no *{SUFFIX}, as packages of this version have")
    if len(manifests) != 1:
        raise no_package(path, f"{len(manifests) or 'no'} files *{SUFFIX}")
    name = manifests[0].removesuffix(SUFFIX)
    wanted = [f"{name}{end}" for end in _CODE]
    missing = [file for file in wanted if file not in found]
    if missing:
        raise no_package(path, f"no {', '.join(missing)} beside {manifests[0]}")
    return {file: found[file] for file in (*manifests, *wanted)}


def _in_folder(folder: Path) -> dict[str, bytes]:
    files = [file for end in (SUFFIX, _REPORT) for file in folder.glob(f"*{end}")]
    names = [file.name.removesuffix(SUFFIX) for file in files]
    files += [folder / f"{name}{end}" for name in names[:2] for end in _CODE]
    return {file.name: file.read_bytes() for file in files if file.is_file()}


def _in_archive(path: Path) -> dict[str, bytes]:
    """Raises ``FormatError`` where a header says more bytes than may be unpacked, before they are
    read: the archive may be compressed, and then it is any times as large as the file."""
    found: dict[str, bytes] = {}
    unpacked = 0

    def count(size: int) -> None:
        nonlocal unpacked
        unpacked += size
        if unpacked > LARGEST_UNPACKED:
            allowed = f"at most {LARGEST_UNPACKED:,}"
            raise no_package(path, f"{unpacked:,} bytes and more when unpacked; {allowed}")

    class Counted(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: Any, encoding: str, errors: str) -> Self:
            header = super().frombuf(buf, encoding, errors)
            count(header.size)
            return header

    with tarfile.open(path, tarinfo=Counted) as archive:
        for member in archive:
            if member.size > LARGEST_UNPACKED:  # said in a header of its own, or sparse
                count(member.size)
            content = archive.extractfile(member) if member.isfile() else None
            name = PurePosixPath(member.name).name
            if content and name.endswith((SUFFIX, _REPORT, ".h", ".c")):
                found[name] = content.read()
    return found


def _facts(path: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """What the library will say. Raises for a package of another machine, or with another's header.
    Where its code was changed by hand, its layers are not known."""
    file, header, code, _ = files
    facts = read_manifest(files[file], path)
    try:
        listed, target = facts.pop("files"), Target.of(str(facts["target"]))
        for kind in ("inputs", "outputs"):
            facts[kind] = [Port.from_dict(port).spec() for port in facts[kind]]
        if f"{facts['name']}.c" != code:
            raise ValueError(f"name {facts['name']!r}")
        if listed[header] != facts_of_file(files[header]):
            raise ValueError(f"{header} is another one")
        if listed[code] != facts_of_file(files[code]):
            facts["layers"] = ""
        portable = facts["portable"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise no_package(path, f"{file}: {type(error).__name__}: {error}") from None
    if not portable and target.architecture != this_architecture():
        raise OptionError(
            "architecture of a C package",
            found=f"{safe(str(path))}: {target.architecture}",
            allowed=f"{this_architecture()}, or portable C",
            hint="tinyai compile --isa scalar",
        )
    return {**facts, "entry": _ENTRY}
