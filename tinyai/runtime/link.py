"""From a network to a library that ``tinyai.runtime.library`` loads."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tinyai._version import __version__
from tinyai.backend import Compiled, compile_network, tell_unused
from tinyai.codegen.apart import body_of, constants_of, digest, microkernels_of
from tinyai.codegen.c_source import CSource, Microkernel
from tinyai.codegen.lowered import ALIGNMENT
from tinyai.files import check_place
from tinyai.network import Network
from tinyai.runtime.assembler import assembled
from tinyai.runtime.jobs import CompilerJobs
from tinyai.runtime.library import CONSTANT, FORMAT, FORMAT_WITH_STATE
from tinyai.runtime.microkernels import objects_of
from tinyai.runtime.toolchain import Toolchain, unit_here
from tinyai.runtime.watch import HOOK_FLAG
from tinyai.stages import stage
from tinyai.target import Target, this_architecture


def write_library(
    network: Network,
    file: str | os.PathLike[str],
    target: Target,
    toolchain: Toolchain | None = None,
    *,
    here: bool = False,
    jobs: CompilerJobs | None = None,
) -> Compiled:
    """Compile ``network`` to a library at ``file``, whole or not at all. ``here``: for this
    machine's CPU alone. ``jobs`` are those of the same toolchain and target, if there are any yet.
    Returns what its C was made of.

    Raises ``LimitError``, ``UnsupportedError`` or ``OptionError`` as ``compile_network``,
    ``ToolchainError`` where the C compiler fails, ``OSError`` where the file cannot be written.
    """
    path = Path(file)
    toolchain = toolchain_for(target, toolchain)
    toolchain.command()  # raises, before the work begins, where there is none
    check_place(path)
    with contextlib.ExitStack() as stack:
        jobs = jobs or stack.enter_context(CompilerJobs(toolchain, target))
        with stage("graph to C"):
            compiled = compile_network(network, target)
        tell_unused(compiled, network.kernels)
        source = compiled.source
        with stage("C compiler"):
            facts = jobs.folder / "facts.c"
            facts.write_text(facts_in_c(network, source, target))
            bodies, objects = _parts([source], jobs, here=here)
            objects.append(jobs.pool.submit(_object, facts, toolchain))
            beside = jobs.beside(objects)
            toolchain.shared_library(path, bodies, HOOK_FLAG, here=here, beside=beside)
    return compiled


def write_object(
    sources: Sequence[CSource],
    file: Path,
    target: Target,
    toolchain: Toolchain | None = None,
    *,
    symbols: Sequence[str],
) -> None:
    """Compile C of one architecture, the target's, to one object at ``file``, whole or not at all:
    the functions ``symbols`` and what they need.

    Raises ``OptionError`` or ``ToolchainError`` as ``write_library``.
    """
    toolchain = toolchain_for(target, toolchain)
    with CompilerJobs(toolchain, target) as jobs:
        bodies, objects = _parts(sources, jobs)
        toolchain.object_file(file, bodies, beside=jobs.beside(objects), symbols=symbols)


def _parts(
    sources: Sequence[CSource], jobs: CompilerJobs, *, here: bool = False
) -> tuple[list[Path], list[Future[Path]]]:
    """C files, each without its constants and microkernels, and objects of these, which are made
    meanwhile: of what several have, once."""
    needed = [each for source in sources for each in _microkernels(source, here=here)]
    once = list({digest(each): each for each in needed}.values())
    objects = objects_of(once, jobs)
    values = {name: value for source in sources for name, value in constants_of(source).items()}
    constants = (([name], value, ALIGNMENT) for name, value in values.items())
    data = assembled(constants, jobs.folder)
    objects.append(jobs.pool.submit(_object, data, jobs.toolchain))
    bodies = [jobs.folder / f"body_{number}.c" for number in range(len(sources))]
    for body, source in zip(bodies, sources, strict=True):
        body.write_text(body_of(source))
    return bodies, objects


def _object(source: Path, toolchain: Toolchain) -> Path:
    made = source.with_suffix(".o")
    toolchain.run(["-fPIC", "-c", "-o", str(made), str(source)])
    return made


def _microkernels(source: CSource, *, here: bool) -> list[Microkernel]:
    """Those that may be compiled apart; ``here``: of what this machine's CPU runs."""
    units = source.head.units
    isa = units[unit_here(units)] if here and units else None
    return [each for each in microkernels_of(source) if isa in (None, each.isa.name)]


def toolchain_for(target: Target, given: Toolchain | None) -> Toolchain:
    """The compiler that is given, else this machine's, or the cross compiler for the target's.
    Raises ``OptionError`` for what is no toolchain, ``ToolchainError`` where there is none."""
    foreign = target.architecture != this_architecture()
    return Toolchain.of(given, f"{target.architecture}-linux-gnu" if foreign else "")


def facts_in_c(network: Network, source: CSource, target: Target) -> str:
    """What a library says of itself, as a C file with one constant."""
    facts = {
        "tinyai": __version__,
        "name": network.name,
        "entry": source.symbol,
        "target": str(target),
        "arena_bytes": source.arena_bytes,
        "weight_bytes": source.weight_bytes,
        "layers": source.layers_digest,
        "inputs": [port.spec() for port in network.inputs],
        "outputs": [port.spec() for port in network.outputs],
    }
    if network.states:
        facts["state_bytes"] = source.state_bytes
    return constant_in_c(facts)


def constant_in_c(facts: Mapping[str, Any]) -> str:
    """The constant that a library says facts of itself by."""
    written = FORMAT_WITH_STATE if "state_bytes" in facts else FORMAT
    text = json.dumps({"format": written, **facts})
    parts = (text[start : start + 80] for start in range(0, len(text), 80))
    declared = f"extern const char {CONSTANT}[];\nconst char {CONSTANT}[] ="
    # ASCII inside of string literals, in which no trigraph is.
    escaped = ("".join(f"\\{c}" if c in '"\\?' else c for c in part) for part in parts)
    lines = "\n".join(f'    "{part}"' for part in escaped)
    return (
        f'#ifdef __cplusplus\nextern "C" {{\n#endif\n{declared}\n{lines};\n'
        "#ifdef __cplusplus\n}\n#endif\n"
    )
