"""The header of intrinsics, precompiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tinyai.runtime import headers
from tinyai.runtime.headers import KIND, first_header
from tinyai.runtime.toolchain import Toolchain

HEADER = "float.h"  # as gcc's own as that of intrinsics is, and shorter
GCC = Toolchain("gcc")
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is kept, by a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tinyai" / KIND


@pytest.fixture
def place(tmp_path: Path) -> Callable[[], Path]:
    """Makes temporary folders."""

    def make() -> Path:
        folder = tmp_path / f"folder {len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return folder

    return make


def is_read(options: list[str], folder: Path) -> bool:
    """Whether gcc takes the precompiled header. What it reads is what it prints then."""
    source = folder / "a.c"
    source.write_text(f"#include <{HEADER}>\nint digits = DBL_DIG;\n")
    command = ["gcc", "-H", "-fPIC", *options, "-c", str(source), "-o", str(folder / "a.o")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return told.startswith("! ")


def test_a_header_is_precompiled_once(
    place: Callable[[], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = place()
    assert is_read(first_header(GCC, HEADER, first), first)
    (kept,) = folder.glob("*.gch")
    monkeypatch.setattr(headers, "subprocess", None)
    second = place()
    assert is_read(first_header(GCC, HEADER, second), second)
    assert [kept] == list(folder.glob("*.gch"))


def test_a_damaged_one_is_made_again(place: Callable[[], Path], folder: Path) -> None:
    first_header(GCC, HEADER, place())
    (kept,) = folder.glob("*.gch")
    content = kept.read_bytes()
    kept.write_bytes(content[:-1] + b"?")
    again = place()
    assert is_read(first_header(GCC, HEADER, again), again)
    assert all(each.read_bytes() != content[:-1] + b"?" for each in folder.glob("*.gch"))


def test_one_that_goes_meanwhile_is_read_as_text(place: Callable[[], Path], folder: Path) -> None:
    own = place()
    options = first_header(GCC, HEADER, own)
    for kept in folder.glob("*.gch"):
        kept.unlink()
    assert not is_read(options, own)


@pytest.mark.parametrize(
    "cc", ["g++", "clang", "gcc -std=c99", "gcc -fsanitize=address", "gcc -I."]
)
def test_only_gcc_with_plain_options_takes_one(cc: str, place: Callable[[], Path]) -> None:
    if shutil.which(cc.split()[0]) is None:
        pytest.skip(f"no {cc}")
    assert first_header(Toolchain(cc), HEADER, place()) == []


def test_a_header_that_there_is_not_is_done_without(place: Callable[[], Path]) -> None:
    assert first_header(GCC, "no/such/header.h", place()) == []


def test_only_the_newest_are_kept(
    place: Callable[[], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "MOST_KEPT", 1)
    first_header(GCC, HEADER, place())
    (old,) = folder.glob("*.gch")
    os.utime(old, (1, 1))
    first_header(GCC, "stddef.h", place())
    assert len(list(folder.glob("*.gch"))) == 1
    assert not old.exists()
