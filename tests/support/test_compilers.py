"""What compilers made is kept for the same texts, options and compilers, and for no others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import compilers
from tests.support.disk import cache_folder
from tests.support.example_graphs import examples_graph
from tests.support.machines import require_isa
from tinyai.backend import compile_graph
from tinyai.ops import Dense
from tinyai.target import Target

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands that are run, in a cache and a folder of their own."""
    commands: list[Sequence[str]] = []
    run = subprocess.run

    def recorded(command: Sequence[str], **options: Any) -> Any:
        if command[1:] != ["-v"]:
            commands.append(command)
        return run(command, **options)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TINYAI_TEST_CACHE", "1")
    monkeypatch.setattr(compilers.subprocess, "run", recorded)
    monkeypatch.chdir(tmp_path)
    Path("a.c").write_text("int answer(void) { return 42; }\n")
    return commands


def compiled(*options: str, cc: str = "gcc", source: str = "a.c", output: str = "a.so") -> int:
    command = [cc, "-shared", "-fPIC", "-o", output, source, *options]
    return compilers.run(command, capture_output=True, text=True, check=False).returncode


def test_the_same_is_compiled_once_and_gives_the_same_file(ran: list[Sequence[str]]) -> None:
    assert (compiled(), compiled(output="b.so")) == (0, 0)
    assert len(ran) == 1
    assert Path("a.so").read_bytes() == Path("b.so").read_bytes()
    assert os.access("b.so", os.X_OK)


def test_another_text_option_or_compiler_is_compiled(
    ran: list[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled()
    compiled("-O1")
    Path("a.c").write_text("int answer(void) { return 43; }\n")
    compiled()
    monkeypatch.setenv("CPATH", str(tmp_path))
    compiled()
    other = tmp_path / "other" / "gcc"  # the same words, another date
    other.parent.mkdir()
    shutil.copyfile(Path(shutil.which("gcc") or "").resolve(), other)
    other.chmod(0o755)
    monkeypatch.setattr(compilers, "_identity", compilers._identity.__wrapped__)
    compiled(cc=str(other))
    assert len(ran) == 5


def test_what_fails_warns_or_reads_more_than_is_named_is_not_kept(
    ran: list[Sequence[str]], tmp_path: Path
) -> None:
    script = tmp_path / "cc"
    script.write_text('#!/bin/sh\nexec gcc "$@"\n')
    script.chmod(0o755)
    Path("wrong.c").write_text("int answer(void) { return x; }\n")
    Path("warns.c").write_text("int answer(void) { int x; }\n")
    Path("own.c").write_text('#include "own.h"\n')
    Path("angle.c").write_text("#include <stdint.h>\n#include <own.h>\n")
    Path("own.h").write_text("int answer;\n")
    for _ in range(2):
        assert compiled(source="wrong.c") == 1
        assert compiled("-Wall", source="warns.c") == 0
        assert compiled(source="own.c") == 0
        assert compiled("-I.", source="angle.c") == 0
        assert compiled(cc=str(script)) == 0
    assert len(ran) == 10
    assert not (cache_folder() / compilers.FOLDER).exists()


def test_nothing_is_kept_where_the_cache_is_off(
    ran: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYAI_TEST_CACHE", "0")
    compiled()
    compiled()
    assert len(ran) == 2
    assert not cache_folder().exists()


def test_a_check_without_output_is_kept_as_passed(ran: list[Sequence[str]]) -> None:
    for output in (["-fsyntax-only"], ["-c", "-o", os.devnull]):
        for _ in range(2):
            assert compilers.run(["gcc", *output, "a.c"], capture_output=True).returncode == 0
    assert len(ran) == 2


def test_what_was_not_asked_for_longest_goes_first(ran: list[Sequence[str]]) -> None:
    for option in ("-O0", "-O1", "-O2"):
        compiled(option)
    folder = cache_folder() / compilers.FOLDER
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    compiled("-O1")
    assert len(ran) == 3
    compilers.drop_old(sum(path.stat().st_size for path in folder.iterdir()) - 1)
    assert len([*folder.iterdir()]) == 2
    compiled("-O1")
    assert len(ran) == 3


def test_intrinsics_that_were_read_before_give_the_same_library(ran: list[Sequence[str]]) -> None:
    require_isa("avx2")
    graph = examples_graph(Dense.examples(), "qnn")
    text = compile_graph(graph, Target(isa="avx2"), abi="plain").source.text
    Path("a.c").write_text(text)
    for options in (("-Wall", "-Wextra", "-lm", "-pthread"), ("-std=c99", "-O1")):
        ran.clear()
        compiled(*options)
        header, quick = ran
        assert header[0] == "gcc"
        assert "c-header" in header
        assert "-include" in quick
        plain = ["gcc", "-shared", "-fPIC", "-o", "plain.so", "a.c", *options]
        subprocess.run(plain, check=True)
        assert Path("a.so").read_bytes() == Path("plain.so").read_bytes()
