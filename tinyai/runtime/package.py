"""A C package as a library: its C compiled for this machine, with the entry and the facts that
``tinyai.runtime.library`` reads. What is read here is written by ``tinyai.package``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Self

from tinyai._version import __version__
from tinyai.codegen.c import C_TYPES
from tinyai.doctor import cpu_description, instruction_sets
from tinyai.errors import FormatError, OptionError
from tinyai.files import no_file
from tinyai.ir import DType
from tinyai.report import safe
from tinyai.runtime.kept import kept_library
from tinyai.runtime.library import FORMAT
from tinyai.runtime.link import constant_in_c
from tinyai.runtime.toolchain import Toolchain
from tinyai.runtime.watch import HOOK_FLAG, layers_digest
from tinyai.stages import stage
from tinyai.target import Target, this_architecture

# Of NAME_report.json: another one for other keys or meanings.
SCHEMA = "tinyai.package/1"
_REPORT = "_report.json"
LARGEST_UNPACKED = 2**30  # bytes of an archive; the largest weights as text are a few hundred MB
_ENTRY = "tinyai_package_entry"
_OWN = "facts-and-entry.c"  # no file of a package: those begin with an identifier
_DTYPES = {c_type: dtype for dtype, c_type in C_TYPES.items()}


@contextlib.contextmanager
def library_of_package(path: Path, toolchain: Toolchain | None = None) -> Iterator[Path]:
    """The library of a C package: a folder, or an archive of one.

    It is kept in ``~/.cache/tinyai/packages`` under a digest of the package, the compiler and the
    CPU; where that cannot be written, it is gone after the block. Raises ``OptionError`` where
    nothing is there and for code of another architecture, ``FormatError`` for what is no package,
    or one whose files do not belong together, ``ToolchainError`` where it does not compile.
    """
    files = _files(path)
    facts = _facts(path, files)
    name, toolchain = facts["name"], Toolchain.of(toolchain)
    files[_OWN] = (constant_in_c(facts) + _entry(facts)).encode()
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
        raise _no_package(path, no_file(path))
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
        raise _no_package(path, f"{type(error).__name__}: {error}") from None
    reports = [file for file in found if file.endswith(_REPORT)]
    if len(reports) != 1:
        raise _no_package(path, f"{len(reports) or 'no'} files *{_REPORT}")
    name = reports[0].removesuffix(_REPORT)
    wanted = [f"{name}.h", f"{name}.c", f"{name}_weights.c"]
    missing = [file for file in wanted if file not in found]
    if missing:
        raise _no_package(path, f"no {', '.join(missing)} beside {reports[0]}")
    return {file: found[file] for file in (*reports, *wanted)}


def _in_folder(folder: Path) -> dict[str, bytes]:
    names = [report.name.removesuffix(_REPORT) for report in folder.glob(f"*{_REPORT}")]
    files = [
        folder / f"{name}{end}" for name in names[:2] for end in (_REPORT, ".h", ".c", "_weights.c")
    ]
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
            raise _no_package(path, f"{unpacked:,} bytes and more when unpacked; {allowed}")

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
            if content and name.endswith((_REPORT, ".h", ".c")):
                found[name] = content.read()
    return found


def _facts(path: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """What the library will say. Raises where the report is none, or another package's."""
    report_file, header_file, code_file, _ = files
    try:
        report = json.loads(files[report_file])
        schema = report["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise _no_package(path, f"{report_file}: {type(error).__name__}: {error}") from None
    if schema != SCHEMA:
        raise FormatError(
            "C package of another version",
            found=f"{safe(str(path))}: {safe(str(schema), 80)}",
            allowed=SCHEMA,
            hint="compile the model again, or use that version of tinyai",
        )
    try:
        name = report["name"]
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or f"{name}.c" != code_file:
            raise ValueError(f"name {name!r}")
        target = Target.of(str(report["target"]))
        facts = {
            "format": FORMAT,
            "tinyai": str(report["version"]),
            "name": name,
            "entry": _ENTRY,
            "target": str(target),
            "arena_bytes": int(report["arena_bytes"]),
            "weight_bytes": int(report["weight_bytes"]),
            "layers": layers_digest(files[code_file].decode()),
            "inputs": [_port(row) for row in report["inputs"]],
            "outputs": [_port(row) for row in report["outputs"]],
            "ports_in_arena": report["ports_saved"] is not None,
        }
        said = _defines(facts, str(report["hash"]))
        header = dict(re.findall(r"^#define (\w+) ([^/\n]+)", files[header_file].decode(), re.M))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_package(path, f"{report_file}: {type(error).__name__}: {error}") from None
    for define, value in said.items():
        written = "".join(header.get(define, "nothing").split())
        if written != value:
            found = f"{define} is {value} by {report_file}, {written} by {header_file}"
            raise _no_package(path, found)
    if not report.get("portable") and target.architecture != this_architecture():
        raise OptionError(
            "architecture of a C package",
            found=f"{safe(str(path))}: {target.architecture}",
            allowed=f"{this_architecture()}, or portable C",
            hint="tinyai compile --isa scalar",
        )
    return facts


def _port(row: Mapping[str, Any]) -> dict[str, Any]:
    """A port as ``Library`` knows it: scale and zero point where they are one for all."""
    shape, scale = [int(size) for size in row["shape"]], row["scale"]
    if min(shape, default=1) < 1:
        raise ValueError(f"shape {shape}")
    single = len(scale) == 1
    return {
        "name": str(row["name"]),
        "shape": shape,
        "dtype": str(_DTYPES[row["c_type"]]),
        "scale": float(scale[0]) if single else None,
        "zero_point": int(row["zero_point"]) if single else None,
    }


def _defines(facts: Mapping[str, Any], digest: str) -> dict[str, str]:
    """What the header defines, without blanks, where it is of the report's package."""
    prefix = facts["name"].upper()
    found = {f"{prefix}_HASH": f'"{digest}"', f"{prefix}_ARENA_BYTES": str(facts["arena_bytes"])}
    for kind in ("input", "output"):
        ports = facts[f"{kind}s"]
        found[f"{prefix}_{kind.upper()}S"] = str(len(ports))
        for number, port in enumerate(ports):
            macro, dtype = f"{prefix}_{kind.upper()}{number}", DType(port["dtype"])
            found[f"{macro}_BYTES"] = str(math.prod(port["shape"]) * dtype.bytes)
            found[f"{macro}_TYPE"] = C_TYPES[dtype]
            found[f"{macro}_SHAPE"] = f"{{{','.join(map(str, port['shape'] or [1]))}}}"
    return found


def _no_package(path: Path, found: str) -> FormatError:
    return FormatError(
        "C package",
        found=f"{safe(str(path))}: {safe(found, 300)}",
        allowed="a folder or .tar as tinyai compile wrote it",
        hint="tinyai compile MODEL -o net",
    )


# --- Its entry -----------------------------------------------------------------------------------


def _entry(facts: Mapping[str, Any]) -> str:
    """A function in C that is called as a library's, on an instance of its own."""
    name, prefix = facts["name"], facts["name"].upper()
    call = _run_in_arena if facts["ports_in_arena"] else _run
    arguments = "const void *const *inputs, void *const *outputs, void *arena"
    body = "\n".join(f"    {line}" for line in call(name, facts["inputs"], facts["outputs"]))
    return f"""
#include <string.h>

#include "{name}.h"

#ifdef __cplusplus
extern "C" {{
#endif
int32_t {_ENTRY}({arguments});

int32_t {_ENTRY}({arguments})
{{
    {name}_t net;
    int error = {name}_init(&net, arena, {prefix}_ARENA_BYTES);

    if (error != {prefix}_OK)
        return error;
{body}
    return error;
}}
#ifdef __cplusplus
}}
#endif
"""


def _run(
    name: str, inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    given = [f"(const {_c_type(port)} *)inputs[{n}]" for n, port in enumerate(inputs)]
    given += [f"({_c_type(port)} *)outputs[{n}]" for n, port in enumerate(outputs)]
    yield f"error = {name}_run({', '.join(['&net', *given])});"


def _run_in_arena(
    name: str, inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    prefix = name.upper()
    for n in range(len(inputs)):
        place = f"{name}_input{n if len(inputs) > 1 else ''}(&net)"
        yield f"memcpy({place}, inputs[{n}], {prefix}_INPUT{n}_BYTES);"
    yield f"error = {name}_run(&net);"
    yield f"if (error != {prefix}_OK)"
    yield "    return error;"
    for n in range(len(outputs)):
        place = f"{name}_output{n if len(outputs) > 1 else ''}(&net)"
        yield f"memcpy(outputs[{n}], {place}, {prefix}_OUTPUT{n}_BYTES);"


def _c_type(port: Mapping[str, Any]) -> str:
    return C_TYPES[DType(port["dtype"])]
