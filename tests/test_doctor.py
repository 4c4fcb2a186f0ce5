"""``python -m tinyai doctor``: what it finds, how it judges it, and how it says so."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tinyai import doctor
from tinyai.cli import main
from tinyai.doctor import Advice, CompilerFacts, Findings, TvmFacts

RELAY_TVM = TvmFacts(
    location="/site/tvm", version="0.17.dev0", distributions=("apache-tvm 0.17.dev0",), relay=True
)
GCC = CompilerFacts(command="gcc", path="/usr/bin/gcc", version="gcc 12.2.0")
GXX = CompilerFacts(command="g++", path="/usr/bin/g++", version="g++ 12.2.0")
PACKAGES = (
    ("tflite", "2.18.0"),
    ("onnx", "1.18.0"),
    ("ai-edge-litert", "2.3.0"),
    ("onnxruntime", "1.31.1"),
)
COMPLETE = Findings(
    python="3.11.7 (/usr/bin/python3)",
    machine="Linux x86_64",
    tvm=RELAY_TVM,
    packages=PACKAGES,
    compilers=(GCC, GXX),
    isas=("scalar", "avx2"),
    cc=None,
)


def stub_tvm(folder: Path, code: str, *, relay: str | None = None, name: str | None = None) -> None:
    """Write a package ``tvm`` into ``folder``, and a distribution ``name`` 0.14.0 that owns it."""
    package = folder / "tvm"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(code)
    if relay is not None:
        (package / "relay.py").write_text(relay)
    if name is not None:
        record = folder / f"{name.replace('-', '_')}-0.14.0.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.14.0\n")
        (record / "RECORD").write_text("tvm/__init__.py,,\n")


@pytest.fixture
def bare_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make doctor look through a Python without any package; returns its site-packages."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    monkeypatch.setattr(sys, "executable", str(folder / "bin/python"))
    (site,) = folder.glob("lib/python*/site-packages")
    return site


def scripts(folder: Path, **bodies: str) -> str:
    """Write shell scripts of these names into ``folder``; returns it as a PATH."""
    folder.mkdir()
    for name, body in bodies.items():
        script = folder / name.replace("plus", "+")
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    return str(folder)


# --- finding TVM ---


def test_no_tvm_is_found_where_there_is_none(bare_python: Path) -> None:
    assert doctor.find_tvm() == TvmFacts()


@pytest.mark.parametrize("name", ["tvm", "apache-tvm", "tvm-of-our-own"])
def test_tvm_with_relay_is_found_with_its_distribution(bare_python: Path, name: str) -> None:
    stub_tvm(bare_python, "__version__ = '0.14.0'", relay="", name=name)
    assert doctor.find_tvm() == TvmFacts(
        location=str(bare_python / "tvm"),
        version="0.14.0",
        distributions=(f"{name} 0.14.0",),
        relay=True,
    )


def test_two_distributions_of_tvm_are_both_named(bare_python: Path) -> None:
    stub_tvm(bare_python, "", relay="", name="tvm")
    stub_tvm(bare_python, "", relay="", name="apache-tvm")
    assert doctor.find_tvm().distributions == ("apache-tvm 0.14.0", "tvm 0.14.0")


def test_tvm_without_relay_is_found_as_such(bare_python: Path) -> None:
    stub_tvm(bare_python, "__version__ = '0.26.0'", name="apache-tvm")
    facts = doctor.find_tvm()
    assert (facts.version, facts.relay) == ("0.26.0", False)
    assert facts.problem == "ModuleNotFoundError: No module named 'tvm.relay'"


def test_relax_in_relay_s_place_is_found_as_such(bare_python: Path) -> None:
    stub_tvm(bare_python, "__version__ = '0.27.0'", name="apache-tvm")
    (bare_python / "tvm_ffi.py").touch()
    assert not doctor.find_tvm().relax
    (bare_python / "tvm" / "relax.py").touch()
    assert doctor.find_tvm().relax
    (bare_python / "tvm" / "relay.py").write_text("raise ImportError")
    assert not doctor.find_tvm().relax


def test_tvm_on_the_python_path_needs_no_distribution(bare_python: Path, tmp_path: Path) -> None:
    stub_tvm(tmp_path / "source", "__version__ = '0.8.0'", relay="")
    facts = doctor.find_tvm(os.environ | {"PYTHONPATH": str(tmp_path / "source")})
    assert facts == TvmFacts(location=str(tmp_path / "source/tvm"), version="0.8.0", relay=True)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            "raise RuntimeError('Cannot find libraries: libtvm.so\\nList of candidates:\\n/a')",
            "RuntimeError: Cannot find libraries: libtvm.so",
        ),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        (
            "import os, sys; print('bad', file=sys.stderr, flush=True); os._exit(7)",
            "the process that imports it ended with exit code 7. bad",
        ),
        ("raise KeyError", "KeyError:"),
    ],
)
def test_broken_tvm_is_found_with_the_reason(bare_python: Path, code: str, problem: str) -> None:
    stub_tvm(bare_python, code, name="tvm")
    assert doctor.find_tvm() == TvmFacts(
        location=str(bare_python / "tvm"), distributions=("tvm 0.14.0",), problem=problem
    )


def test_tvm_that_hangs_is_given_up(bare_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub_tvm(bare_python, "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "_TIMEOUT", 1)
    assert doctor.find_tvm() == TvmFacts(problem="importing it took more than 1 s")


def test_output_of_tvm_itself_does_not_confuse_doctor(bare_python: Path) -> None:
    stub_tvm(bare_python, "print('{no json'); __version__ = '0.9'", relay="print('{}')")
    assert doctor.find_tvm().relay


# --- finding compilers and the CPU ---


def test_compilers_are_found_on_the_path_with_their_versions(tmp_path: Path) -> None:
    path = scripts(tmp_path / "bin", gcc="echo gcc 12; echo more", clangplusplus="echo clang 14")
    assert doctor.find_compilers({"PATH": path}) == (
        CompilerFacts(command="gcc", path=f"{path}/gcc", version="gcc 12"),
        CompilerFacts(command="clang++", path=f"{path}/clang++", version="clang 14"),
    )


def test_chosen_compiler_comes_first_and_keeps_its_arguments(tmp_path: Path) -> None:
    path = scripts(tmp_path / "bin", gcc="echo gcc 12", own='echo "own $1"')
    found = doctor.find_compilers({"PATH": path, "CC": "own -m32"})
    assert [(item.command, item.version) for item in found] == [
        ("own -m32", "own -m32"),
        ("gcc", "gcc 12"),
    ]


def test_blank_choice_of_a_compiler_is_none(tmp_path: Path) -> None:
    path = scripts(tmp_path / "bin", cc="echo cc 12")
    (found,) = doctor.find_compilers({"PATH": path, "CC": "  "})
    assert found.command == "cc"
    assert doctor.examine({"PATH": path, "CC": "  "}).cc is None


@pytest.mark.parametrize("chosen", ["absent", "fails", "own 'not closed"])
def test_chosen_compiler_that_does_not_run_is_not_found(tmp_path: Path, chosen: str) -> None:
    path = scripts(tmp_path / "bin", fails="exit 1", own="echo own")
    assert doctor.find_compilers({"PATH": path, "CC": chosen}) == ()


@pytest.mark.parametrize(
    ("cpuinfo", "isas"),
    [
        ("", ("scalar",)),
        ("flags\t\t: fpu sse4_1 avx2 fma\n", ("scalar", "avx2")),
        ("flags : avx2\n", ("scalar",)),
        (
            "processor : 0\nflags : avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni\n",
            ("scalar", "avx2", "avx512", "avx512vnni"),
        ),
        (
            "flags : avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni amx_tile amx_int8\n",
            ("scalar", "avx2", "avx512", "avx512vnni", "amx"),
        ),
        ("Features\t: fp asimd asimddp\n", ("scalar", "neon", "dotprod")),
    ],
)
def test_instruction_sets_are_read_from_cpuinfo(cpuinfo: str, isas: tuple[str, ...]) -> None:
    assert doctor.instruction_sets(cpuinfo) == isas


# --- judging ---


def test_complete_environment_needs_no_advice() -> None:
    assert doctor.advise(COMPLETE) == ()


@pytest.mark.parametrize(
    ("changes", "level", "problem", "hint"),
    [
        ({"tvm": TvmFacts()}, "note", "no TVM is installed", "tinyai install-tvm"),
        ({"tvm": TvmFacts(problem="took long")}, "error", "took long", "from source"),
        (
            {"packages": (("tflite", None), *PACKAGES[1:])},
            "warning",
            ".tflite files cannot be read: the package tflite is not installed",
            'pip install "tinyai[tflite]"',
        ),
        (
            {"packages": (PACKAGES[0], ("onnx", None), *PACKAGES[2:])},
            "warning",
            ".onnx files cannot be read",
            'pip install "tinyai[onnx]"',
        ),
        (
            {"packages": (PACKAGES[0], ("onnx", "1.19.0rc1"), *PACKAGES[2:])},
            "warning",
            "does not know onnx 1.19.0rc1",
            'pip install "onnx<1.19"',
        ),
        (
            {"packages": (*PACKAGES[:2], ("ai-edge-litert", None), ("onnxruntime", None))},
            "note",
            "ai-edge-litert, onnxruntime",
            'pip install "tinyai[bench]"',
        ),
        (
            {"tvm": TvmFacts(location="/site/tvm", problem="OSError: libtvm.so")},
            "error",
            "the TVM at /site/tvm cannot be imported: OSError: libtvm.so",
            "repair or remove",
        ),
        (
            {"tvm": TvmFacts(location="/site/tvm", version="0.26.0", problem="No module")},
            "error",
            "TVM 0.26.0 has no Relay that can be imported: No module",
            "removed in TVM 0.20",
        ),
        (
            {"tvm": TvmFacts(location="/site/tvm", version="0.27.0", relax=True)},
            "note",
            "TVM 0.27.0 has Relax and no Relay",
            "the extras relay and relax exclude each other",
        ),
        (
            {"packages": (*PACKAGES, ("numpy", "2.3.1"))},
            "warning",
            "numpy 2.3.1 is too new for a TVM with Relay",
            "brings numpy<2 and onnx<1.19",
        ),
        (
            {"packages": (*PACKAGES, ("numpy", "2.3.1"), ("executorch", "1.5.0"))},
            "warning",
            "the extras relay and executorch exclude each other",
            "an environment for each",
        ),
        (
            {"tvm": dataclasses.replace(RELAY_TVM, distributions=("apache-tvm 1", "tvm 2"))},
            "warning",
            "apache-tvm 1, tvm 2",
            "pip uninstall",
        ),
        ({"compilers": ()}, "error", "no C compiler", "apt install gcc"),
        ({"compilers": (GCC,)}, "warning", "no C++ compiler", "apt install g++"),
        ({"cc": "icc -x"}, "error", "CC is set to 'icc -x'", "unset"),
    ],
)
def test_gap_gets_one_advice_that_says_what_to_do(
    changes: dict[str, object], level: str, problem: str, hint: str
) -> None:
    (advice,) = doctor.advise(dataclasses.replace(COMPLETE, **changes))  # type: ignore[arg-type]
    assert advice.level == level
    assert problem in advice.problem
    assert hint in advice.hint


def test_errors_come_before_warnings_and_notes() -> None:
    packages = (*PACKAGES[:3], ("onnxruntime", None))
    two = dataclasses.replace(RELAY_TVM, distributions=("apache-tvm 0.17", "tvm 0.14"))
    findings = dataclasses.replace(COMPLETE, packages=packages, tvm=two, compilers=())
    assert [item.level for item in doctor.advise(findings)] == ["error", "warning", "note"]


def test_packages_of_this_environment_are_found_with_their_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tflite

    assert dict(doctor.find_packages())["tflite"] == tflite.__version__
    monkeypatch.setattr(doctor, "_EXTRAS", {"none": ("no-such-package",)})
    monkeypatch.setattr(doctor, "_ASIDE", ("numpy",))
    found = (("no-such-package", None), ("numpy", np.__version__))
    assert doctor.find_packages() == found


# --- the command ---


def run_doctor(
    monkeypatch: pytest.MonkeyPatch, findings: Findings, *options: str
) -> tuple[int, str]:
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    result = CliRunner().invoke(main, ["doctor", *options])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"compilers": (GCC,)}, 0),
        ({"compilers": ()}, 2),
        ({"tvm": TvmFacts()}, 0),
        ({"tvm": dataclasses.replace(RELAY_TVM, relay=False)}, 2),
        ({"tvm": dataclasses.replace(RELAY_TVM, relay=False, relax=True)}, 0),
    ],
)
def test_exit_code_is_0_where_a_compiler_is_and_no_broken_tvm(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], code: int
) -> None:
    findings = dataclasses.replace(COMPLETE, **changes)  # type: ignore[arg-type]
    assert run_doctor(monkeypatch, findings)[0] == code
    assert run_doctor(monkeypatch, findings, "--json")[0] == code


def test_text_names_every_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = run_doctor(monkeypatch, COMPLETE)
    for fact in (
        "3.11.7",
        "Linux x86_64",
        "0.17.dev0 at /site/tvm",
        "apache-tvm 0.17.dev0",
        "gcc: gcc 12.2.0 at /usr/bin/gcc",
        "g++: g++ 12.2.0 at /usr/bin/g++",
        "tflite: 2.18.0",
        "scalar, avx2",
        "All is there.",
    ):
        assert fact in text


def test_long_paths_stay_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "/a [long] path" * 30
    findings = dataclasses.replace(COMPLETE, tvm=dataclasses.replace(RELAY_TVM, location=place))
    assert place in run_doctor(monkeypatch, findings)[1]


def test_text_without_tvm_says_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = run_doctor(monkeypatch, dataclasses.replace(COMPLETE, tvm=TvmFacts()))
    assert "note: no TVM is installed" in text
    assert "  try: `tinyai install-tvm`" in text


def test_json_carries_the_same_facts_and_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = dataclasses.replace(COMPLETE, compilers=())
    facts = json.loads(run_doctor(monkeypatch, findings, "--json")[1])
    assert [Advice(**item) for item in facts.pop("advice")] == list(doctor.advise(findings))
    assert facts == json.loads(json.dumps(dataclasses.asdict(findings)))


def test_doctor_is_content_with_the_environment_of_the_tests() -> None:
    command = [sys.executable, "-m", "tinyai", "doctor"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "Relay         yes" in process.stdout
