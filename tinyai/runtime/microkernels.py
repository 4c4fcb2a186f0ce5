"""Objects of microkernels: compiled once for many networks, and kept in the user's cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

from tinyai.codegen.apart import digest, file_of
from tinyai.codegen.c_source import Microkernel
from tinyai.runtime.jobs import CompilerJobs
from tinyai.runtime.kept import keep_object, kept_objects
from tinyai.runtime.toolchain import cpus_here

KIND = "functions"
# A linker takes of an object only the functions that are needed, if each has a section.
_FLAGS = ("-fPIC", "-ffunction-sections")


def objects_of(microkernels: Sequence[Microkernel], jobs: CompilerJobs) -> list[Future[Path]]:
    """Objects that hold the microkernels, each perhaps with others. What is not kept is compiled,
    in parts for the CPUs."""
    toolchain, folder, pool = jobs.toolchain, jobs.folder, jobs.pool
    identity = toolchain.identity()
    keys = {repr((identity or "", _FLAGS, digest(each))): each for each in microkernels}
    keys = {hashlib.sha256(key.encode()).hexdigest(): each for key, each in keys.items()}
    kept = kept_objects(KIND, keys) if identity else {}
    objects = list[Future[Path]]()
    for number, content in enumerate(dict.fromkeys(kept[key] for key in keys if key in kept)):
        objects.append(pool.submit(_written, folder / f"kept_{number}.o", content))
    missing = {key: each for key, each in keys.items() if key not in kept}
    for number, part in enumerate(_parts(missing, cpus_here())):
        file = folder / f"microkernels_{number}.c"

        def compiled(file: Path = file, part: dict[str, Microkernel] = part) -> Path:
            made = file.with_suffix(".o")
            file.write_text(file_of(part.values()))
            toolchain.run([*_FLAGS, *jobs.header(), "-c", "-o", str(made), str(file)])
            if identity:
                keep_object(KIND, part, made.read_bytes())
            return made

        objects.append(pool.submit(compiled))
    return objects


def _written(file: Path, content: bytes) -> Path:
    file.write_bytes(content)
    return file


def _parts(microkernels: dict[str, Microkernel], parts: int) -> Iterator[dict[str, Microkernel]]:
    """Parts that are about as long as one another, in the order in which they are given."""
    whole = sum(len(each.text) for each in microkernels.values())
    part, length = dict[str, Microkernel](), 0
    for key, each in microkernels.items():
        part[key] = each
        length += len(each.text)
        if length * parts >= whole:
            yield part
            part, length = {}, 0
    if part:
        yield part
