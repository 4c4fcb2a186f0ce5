"""Modules built for machines of other architectures."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

import pytest
import tvm
from click.testing import CliRunner

import tests.support.relay_nets as nets
import tinyai
from tests.support.machines import not_emulated
from tests.support.paths import DIGITS
from tinyai.cli import main
from tinyai.errors import EnvironmentProblem, OptionError, ToolchainError
from tinyai.runtime.toolchain import Toolchain
from tinyai.runtime.tvm_module import c_sources

TARGET = "tinyai, llvm -mtriple=aarch64-linux-gnu"
AARCH64 = 183  # in the header of an ELF file


def machine_of(library: Path) -> int:
    content = library.read_bytes()
    assert content[:4] == b"\x7fELF"
    return int.from_bytes(content[18:20], "little")


def network() -> tvm.IRModule:
    return nets.module(nets.residual())


@pytest.fixture(autouse=True)
def _cross_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    reason = not_emulated("aarch64")
    if reason:
        pytest.skip(reason)


def test_a_module_for_another_machine_is_exported_and_says_why_it_does_not_run_here(
    tmp_path: Path,
) -> None:
    factory = tinyai.build(network(), target=TARGET)
    (text,) = c_sources(factory)
    assert "-arch=aarch64" in text
    assert "__x86_64__" not in text
    with pytest.raises(EnvironmentProblem, match="another machine") as raised:
        factory["default"]
    assert "aarch64-linux-gnu" in str(raised.value)
    assert "export_library" in str(raised.value)
    factory.export_library(tmp_path / "net.so")
    assert machine_of(tmp_path / "net.so") == AARCH64


def test_the_compiler_for_another_machine_may_be_named(tmp_path: Path) -> None:
    factory = tinyai.build(
        network(), target=TARGET, toolchain=Toolchain("aarch64-linux-gnu-g++ -O1")
    )
    factory.export_library(tmp_path / "net.so")
    assert machine_of(tmp_path / "net.so") == AARCH64


def test_a_vendor_in_the_triple_does_not_hide_the_compiler() -> None:
    assert Toolchain.of(None, "aarch64-unknown-linux-gnu") == Toolchain("aarch64-linux-gnu-gcc")


def test_a_missing_compiler_for_the_triple_is_told_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(tvm.relay, "build", lambda *_, **__: pytest.fail("built"))
    with pytest.raises(ToolchainError, match="no C compiler for aarch64-linux-gnu") as raised:
        tinyai.build(network(), target=TARGET)
    assert "gcc-aarch64-linux-gnu" in str(raised.value)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("tinyai -arch=aarch64, llvm", "aarch64, beside x86_64"),
        ("tinyai -isa=avx2, llvm -mtriple=aarch64-linux-gnu", "x86_64, beside aarch64"),
        ("tinyai -isa=native, llvm -mtriple=aarch64-linux-gnu", "native"),
    ],
)
def test_regions_and_host_of_different_machines_are_refused(target: str, found: str) -> None:
    with pytest.raises(OptionError, match=re.escape(found)):
        tinyai.build(network(), target=target)


@pytest.mark.long
# tvmc leaves files open, and its importer of ONNX uses what onnx deprecates.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", r"ignore:.mapping\.\w+. is now deprecated"
)
@pytest.mark.parametrize("named", [("--cross-compiler", "aarch64-linux-gnu-g++"), ()])
def test_tvmc_compiles_for_the_triple_of_the_host(named: tuple[str, ...], tmp_path: Path) -> None:
    package = tmp_path / "net.tar"
    command = ["tvmc", "compile", *named, "--output"]
    result = CliRunner().invoke(main, [*command, str(package), "--target", TARGET, str(DIGITS)])
    assert result.exit_code == 0, result.output
    with tarfile.open(package) as files:
        files.extract("mod.so", tmp_path, filter="data")
    assert machine_of(tmp_path / "mod.so") == AARCH64
