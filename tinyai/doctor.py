"""What the environment offers: a TVM with Relay, the packages of the extras, C compilers, the CPU,
and what to do about gaps.

``examine`` gathers the facts, ``advise`` judges them: the first asks the machine and the second
is a pure function, so that every verdict can be tested with made-up facts.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_TIMEOUT = 120  # seconds; a TVM on a cold disk takes a while to load

# Flags of /proc/cpuinfo that an instruction set of ours needs, from the weakest to the strongest.
ISA_FLAGS: Mapping[str, frozenset[str]] = {
    "scalar": frozenset(),
    "avx2": frozenset({"avx2", "fma"}),
    "avxvnni": frozenset({"avx2", "avx_vnni"}),
    "avx512": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    "avx512vnni": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}),
    "amx": frozenset(
        {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "amx_tile", "amx_int8"}
    ),
    "neon": frozenset({"asimd"}),
    "dotprod": frozenset({"asimd", "asimddp"}),
    "i8mm": frozenset({"asimd", "asimddp", "i8mm"}),
}

# What reads models and what `make bench` compares with: the package of each extra.
_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "tflite": ("tflite",),
    "onnx": ("onnx",),
    "bench": ("ai-edge-litert", "onnxruntime"),
}
_NO_TVM = (
    "no TVM is installed: .tflite and .onnx files are read without one; "
    "tinyai.build, tinyai.quantize, tvmc and Relay's text need it"
)
# What extras exclude one another by: "relay" and "executorch" want another numpy.
_ASIDE = ("numpy", "executorch")
_NUMPY_END = (2, 0)  # TVM with Relay knows none from here on
_ONNX_END = (1, 19)  # TVM's importer needs onnx.mapping, which this version removed

# Run by a process of its own: a broken TVM may raise, print, hang or crash when it is imported.
# Each fact is printed as soon as it is known, so those before a failure still count.
_MARK = "tinyai-doctor:"
_PROBE = """
import importlib.metadata as metadata, importlib.util, json, os, sys
sys.path[:1] = filter(None, sys.argv[2:])
def tell(**facts):
    print(sys.argv[1] + json.dumps(facts), flush=True)
spec = importlib.util.find_spec("tvm")
if spec is None:
    sys.exit(0)
tell(location=str(next(iter(spec.submodule_search_locations or [spec.origin]))))
names = {"apache-tvm", "tvm", *metadata.packages_distributions().get("tvm", [])}
found = {d for name in names for d in metadata.distributions(name=name)}
tell(distributions=sorted({f"{d.metadata['Name']} {d.version}" for d in found}))
folders = {os.path.realpath(d.locate_file("tvm")) for d in found}
hidden = [each for each in sorted(folders) if os.path.isdir(each)]
location = next(iter(spec.submodule_search_locations or [spec.origin]))
if hidden and os.path.realpath(location) not in hidden:
    tell(hidden=hidden[0])
try:
    import tvm
    tell(version=str(getattr(tvm, "__version__", "unknown")))
    found = map(importlib.util.find_spec, ("tvm.relax", "tvm_ffi", "tvm.relay"))
    tell(relax=[spec is not None for spec in found] == [True, True, False])
    import tvm.relay
    tell(relay=True)
except BaseException as error:
    tell(problem=" ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]]))
"""


@dataclass(frozen=True, kw_only=True)
class TvmFacts:
    """The TVM that ``import tvm`` finds.

    - ``location``: folder of the package, None where there is none.
    - ``version``: ``tvm.__version__``, None where the import fails.
    - ``distributions``: installed distributions that provide it, as "name version", sorted.
    - ``relay``: whether ``tvm.relay`` can be imported; ``relax``: whether Relax took its place.
    - ``hidden``: folder of an installed TVM that this one comes before.
    - ``problem``: why an import failed, in a line.
    """

    location: str | None = None
    version: str | None = None
    distributions: tuple[str, ...] = ()
    relay: bool = False
    relax: bool = False
    hidden: str | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class CompilerFacts:
    """A C or C++ compiler: its command, its file, and the first line of ``--version``."""

    command: str
    path: str
    version: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All facts of one look at the environment.

    - ``packages``: name and version of what the extras bring or depend on, the version None where
      it is missing.
    - ``isas``: instruction sets of the CPU, from the weakest to the strongest.
    - ``cc``: the environment variable ``CC``.
    """

    python: str
    machine: str
    tvm: TvmFacts
    packages: tuple[tuple[str, str | None], ...]
    compilers: tuple[CompilerFacts, ...]
    isas: tuple[str, ...]
    cc: str | None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Something that is not as it should be. An error keeps tinyai from compiling a network; a note
    names what few need."""

    level: Literal["error", "warning", "note"]
    problem: str
    hint: str


def examine(environment: Mapping[str, str] = os.environ) -> Findings:
    """Look at this process's Python, TVM, PATH and CPU. Never raises for what is missing."""
    return Findings(
        python=f"{platform.python_version()} ({sys.executable})",
        machine=f"{platform.system()} {platform.machine()}",
        tvm=find_tvm(environment),
        packages=find_packages(),
        compilers=find_compilers(environment),
        isas=instruction_sets(cpu_description()),
        cc=_chosen_compiler(environment),
    )


def find_tvm(environment: Mapping[str, str] = os.environ) -> TvmFacts:
    """Import TVM in a process of its own and tell how far that got. That is where this process
    would find it, but in another folder: TVM makes files in the one that it is imported in."""
    try:
        with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
            command = [sys.executable, "-c", _PROBE, _MARK, _first_on_path()]
            process = _run(command, environment, folder)
    except subprocess.TimeoutExpired:
        return TvmFacts(problem=f"importing it took more than {_TIMEOUT} s")
    facts: dict[str, str | bool | list[str]] = {}
    for line in process.stdout.splitlines():
        if line.startswith(_MARK):  # TVM may print lines of its own
            facts |= json.loads(line.removeprefix(_MARK))
    distributions = facts.get("distributions", [])
    return TvmFacts(
        location=_text(facts.get("location")),
        version=_text(facts.get("version")),
        distributions=tuple(distributions) if isinstance(distributions, list) else (),
        relay=bool(facts.get("relay")),
        relax=bool(facts.get("relax")),
        hidden=_text(facts.get("hidden")),
        problem=_text(facts.get("problem")) or _failure(process),
    )


def _first_on_path() -> str:
    """The folder in which this process looks for modules first; nothing where it is gone."""
    try:
        return os.path.abspath(sys.path[0])
    except OSError:
        return ""


def find_packages() -> tuple[tuple[str, str | None], ...]:
    """What the extras bring or depend on, with its version where it is installed."""
    names = [*(name for names in _EXTRAS.values() for name in names), *_ASIDE]
    return tuple((name, _version(name)) for name in names)


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # takes long to import

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def find_compilers(environment: Mapping[str, str] = os.environ) -> tuple[CompilerFacts, ...]:
    """The compilers on PATH: ``CC`` first if it is set, then the usual names."""
    chosen = _chosen_compiler(environment) or "cc"
    commands = dict.fromkeys([chosen, "cc", "gcc", "g++", "clang", "clang++"])
    found = (_compiler(command, environment) for command in commands)
    return tuple(compiler for compiler in found if compiler)


def instruction_sets(cpuinfo: str) -> tuple[str, ...]:
    """The instruction sets that a CPU described by the text of /proc/cpuinfo offers."""
    flags: set[str] = set()
    for line in cpuinfo.splitlines():
        name, _, values = line.partition(":")
        if name.strip() in ("flags", "Features"):  # x86 and Arm
            flags |= set(values.split())
    return tuple(isa for isa, needed in ISA_FLAGS.items() if needed <= flags)


def others_saturate() -> bool:
    """Whether other programs add two products of bytes in 16 bits on this CPU, which saturate: on
    x86 without VNNI."""
    known = instruction_sets(cpu_description())
    return platform.machine() == "x86_64" and not any(name.endswith("vnni") for name in known)


def advise(findings: Findings) -> tuple[Advice, ...]:
    """What to do about the gaps in ``findings``: errors first, notes last."""
    advice = [*_tvm_advice(findings), *_compiler_advice(findings), *_package_advice(findings)]
    return tuple(sorted(advice, key=lambda item: ("error", "warning", "note").index(item.level)))


def _tvm_advice(findings: Findings) -> Iterable[Advice]:
    tvm = findings.tvm
    ready_made = (
        "`tinyai install-tvm` brings one (Linux x86-64), or build one below 0.20 from source"
    )
    if tvm.location is None:
        if tvm.problem:
            yield Advice(level="error", problem=tvm.problem, hint=ready_made)
        else:
            yield Advice(level="note", problem=_NO_TVM, hint=ready_made)
    elif not tvm.relay and (tvm.hidden or tvm.location.endswith(".py")):
        installed = f", and hides the one at {tvm.hidden}" if tvm.hidden else ""
        yield Advice(
            level="error",
            problem=f"{tvm.location} is what `import tvm` finds, no TVM with Relay{installed}",
            hint="move or rename it, or run in another folder and without PYTHONPATH"
            + ("" if tvm.hidden else f"; {ready_made}"),
        )
    elif tvm.version is None:
        problem = f"the TVM at {tvm.location} cannot be imported: {tvm.problem}"
        yield Advice(level="error", problem=problem, hint=f"repair or remove it; {ready_made}")
    elif not tvm.relay and tvm.relax:
        problem = (
            f"TVM {tvm.version} has Relax and no Relay, which quantize, tvmc and Relay's text need"
        )
        hint = "tinyai.relax takes its modules; the extras relay and relax exclude each other: "
        yield Advice(level="note", problem=problem, hint=f"{hint}an environment for each")
    elif not tvm.relay:
        problem = f"TVM {tvm.version} has no Relay that can be imported: {tvm.problem}"
        yield Advice(
            level="error", problem=problem, hint=f"Relay was removed in TVM 0.20; {ready_made}"
        )
    if len(tvm.distributions) > 1:
        yield Advice(
            level="warning",
            problem=f"{len(tvm.distributions)} distributions provide the package tvm: "
            f"{', '.join(tvm.distributions)}; which one is imported is a matter of luck",
            hint="pip uninstall both, then install the one that you mean",
        )


def _package_advice(findings: Findings) -> Iterable[Advice]:
    versions = dict(findings.packages)
    for extra, names in _EXTRAS.items():
        missing = [name for name in names if versions.get(name) is None]
        if not missing:
            continue
        hint = f'pip install "tinyai[{extra}]"'
        if extra == "bench":
            problem = f"what `make bench` compares with is not installed: {', '.join(missing)}"
            yield Advice(level="note", problem=problem, hint=hint)
        else:
            problem = f".{extra} files cannot be read: the package {extra} is not installed"
            yield Advice(level="warning", problem=problem, hint=hint)
    executorch, numpy = versions.get("executorch"), versions.get("numpy")
    has_relay = findings.tvm.location is not None and not findings.tvm.relax
    if has_relay and executorch is not None:
        yield Advice(
            level="warning",
            problem=f"executorch {executorch}, which needs numpy 2, beside a TVM with Relay, which "
            "needs one below 2: the extras relay and executorch exclude each other",
            hint="an environment for each, as make executorch has",
        )
    elif has_relay and numpy is not None and _numbers(numpy) >= _NUMPY_END:
        yield Advice(
            level="warning",
            problem=f"numpy {numpy} is too new for a TVM with Relay",
            hint='pip install "tinyai[relay]", which brings numpy<2 and onnx<1.19',
        )
    onnx = versions.get("onnx")
    if onnx is not None and _numbers(onnx) >= _ONNX_END and findings.tvm.relay:
        yield Advice(
            level="warning",
            problem=f"TVM's importer does not know onnx {onnx}: tinyai.build, tinyai.quantize "
            "and tvmc cannot read .onnx files, the commands of tinyai can",
            hint='pip install "onnx<1.19"',
        )


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    parts = version.split(".")[:2]
    return tuple(int("".join(filter(str.isdecimal, part)) or 0) for part in parts)


def _compiler_advice(findings: Findings) -> Iterable[Advice]:
    commands = [compiler.command for compiler in findings.compilers]
    if findings.cc and findings.cc not in commands:
        yield Advice(
            level="error",
            problem=f"CC is set to {findings.cc!r}, which does not run",
            hint="set CC to a C compiler on PATH, or unset it",
        )
    elif not commands:
        yield Advice(
            level="error",
            problem="no C compiler is on PATH",
            hint="apt install gcc g++, or set CC to the compiler of your choice",
        )
    elif not any(command.endswith("++") for command in commands):
        yield Advice(
            level="warning",
            problem="no C++ compiler is on PATH, and TVM's export_library calls g++ by default",
            hint="apt install g++, or export_library(path, cc=...)",
        )


def _chosen_compiler(environment: Mapping[str, str]) -> str | None:
    return environment.get("CC", "").strip() or None


def _compiler(command: str, environment: Mapping[str, str]) -> CompilerFacts | None:
    try:
        words = shlex.split(command)
        path = shutil.which(words[0], path=environment.get("PATH", ""))
        if path is None:
            return None
        version = _run([path, *words[1:], "--version"], environment)
    except (OSError, ValueError, subprocess.TimeoutExpired):  # e.g. a quote that is not closed
        return None
    if version.returncode != 0:
        return None
    return CompilerFacts(command=command, path=path, version=version.stdout.partition("\n")[0])


def _run(
    command: Sequence[str], environment: Mapping[str, str], folder: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT,
        env=dict(environment),
        cwd=folder,
    )


def _failure(process: subprocess.CompletedProcess[str]) -> str | None:
    if process.returncode == 0:
        return None
    last = process.stderr.strip().rpartition("\n")[2]
    return f"the process that imports it ended with exit code {process.returncode}. {last}".strip()


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def cpu_description() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux: only the portable kernels are known to run
        return ""


def cpu_name() -> str:
    """The CPU as its maker calls it, or the kind of machine where that is not told."""
    lines = (line.partition(":") for line in cpu_description().splitlines())
    names = (value.strip() for key, _, value in lines if key.strip() == "model name")
    return next(names, platform.machine())
