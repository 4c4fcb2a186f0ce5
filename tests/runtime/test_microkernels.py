"""Microkernels that are compiled apart, once for many networks, and constants that no compiler
reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import tinyai
from tests.support.example_graphs import Network, small_network, tiled_network
from tinyai.backend import compile_graph
from tinyai.codegen.apart import body_of, digest, file_of, microkernels_of
from tinyai.ir import Builder, DType, Graph, Type
from tinyai.network import network_of_graph
from tinyai.runtime import kept
from tinyai.runtime.assembler import assembled
from tinyai.runtime.kept import keep_object, kept_objects
from tinyai.runtime.microkernels import KIND
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target, this_architecture

pytestmark = pytest.mark.skipif(
    this_architecture() != "x86_64", reason="only microkernels for x86-64 are compiled apart"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is kept, by a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tinyai" / KIND


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of microkernels that are compiled."""
    files: list[str] = []
    run = Toolchain.run

    def noted(toolchain: Toolchain, arguments: Sequence[str]) -> None:
        files.extend(word for word in arguments if Path(word).name.startswith("microkernels_"))
        run(toolchain, arguments)

    monkeypatch.setattr(Toolchain, "run", noted)
    return files


def compare(
    graph: Graph, place: Path, toolchain: Toolchain | None = None, isa: str = "auto"
) -> None:
    """Compile a network to a library, and compare what it computes with the reference."""
    target = Target(isa=isa)
    library = tinyai.compile(network_of_graph(graph, "net"), place, target, toolchain=toolchain)
    rng = np.random.default_rng(1)
    arrays = []
    for name in graph.inputs:
        of = graph.type(name)
        arrays.append(rng.integers(-100, 100, of.shape).astype(of.dtype.numpy))
    for ours, reference in zip(
        tinyai.Model(library).run(arrays), tinyai.run_graph(graph, arrays), strict=True
    ):
        np.testing.assert_array_equal(ours, reference)


def test_equal_microkernels_are_compiled_once(tmp_path: Path, compiled: list[str]) -> None:
    compare(tiled_network(), tmp_path / "one.so", isa="avx2")
    assert compiled != []
    compiled.clear()
    compare(tiled_network("another_name"), tmp_path / "two.so", isa="avx2")
    assert compiled == []
    compare(small_network(), tmp_path / "three.so", isa="avx2")
    assert compiled != []


def test_one_object_may_hold_microkernels_of_several_files(tmp_path: Path) -> None:
    graphs = tiled_network(), small_network()
    sources = [compile_graph(graph, Target(), abi="plain", hooked=True).source for graph in graphs]
    needed = [each for source in sources for each in microkernels_of(source)]
    file = tmp_path / "microkernels.c"
    file.write_text(file_of({digest(each): each for each in needed}.values()))
    Toolchain().run(["-fPIC", "-c", "-o", str(file.with_suffix(".o")), str(file)])


def test_a_library_has_no_microkernel_of_other_networks(tmp_path: Path) -> None:
    """Objects hold those that were compiled together."""
    target, names = Target(isa="avx2"), []
    net = Network(Builder("part"), "NHWC", np.random.default_rng(5))
    wide = net.conv(net.builder.input(Type((1, 5, 5, 8), DType.INT8)), 40, 1, "wide")
    part = net.conv(wide, 24, 3, "last")
    for number, graph in enumerate((tiled_network(), net.builder.graph([part]))):
        source = compile_graph(graph, target, abi="plain", hooked=True).source
        own = microkernels_of(source)
        names.append({f"{each.definition.name}_{digest(each)[:32]}" for each in own})
        place = tmp_path / f"{number}.so"
        tinyai.compile(network_of_graph(graph, "net"), place, target)
        table = subprocess.run(["nm", place], check=True, capture_output=True, text=True).stdout
        assert {name for name in set.union(*names) if name in table} == names[-1]
    assert names[0] > names[1] > set()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda file: file.write_bytes(file.read_bytes()[:-7]), id="cut"),
        pytest.param(lambda file: file.write_bytes(b""), id="empty"),
        pytest.param(lambda file: file.write_bytes(b"x" * file.stat().st_size), id="other"),
        pytest.param(lambda file: (file.unlink(), file.mkdir()), id="folder"),
        pytest.param(lambda file: (file.unlink(), file.symlink_to("/none")), id="dangling"),
    ],
)
def test_a_damaged_object_is_not_used(change: Callable[[Path], object], folder: Path) -> None:
    keep_object(KIND, ["one"], b"an object")
    keep_object(KIND, ["two"], b"another one")
    (file,) = folder.glob("one-*")
    change(file)
    assert kept_objects(KIND, {"one", "two"}) == {"two": b"another one"}


def test_what_is_kept_damaged_is_compiled_again(
    tmp_path: Path, folder: Path, compiled: list[str]
) -> None:
    compare(tiled_network(), tmp_path / "one.so", isa="avx2")
    compiled.clear()
    for file in folder.iterdir():
        file.write_bytes(b"no object")
    compare(tiled_network(), tmp_path / "two.so", isa="avx2")
    assert compiled != []


def test_other_flags_are_another_compiler() -> None:
    flags = [(), ("-O2",), ("-O2", "-fno-omit-frame-pointer"), ("-DONE",)]
    told = {Toolchain(flags=each).identity() for each in flags}
    assert len(told - {None}) == len(flags)


@pytest.mark.parametrize("flag", ["-march=native", "-include/dev/null", "-I.", "-fplugin=", "-B/"])
def test_what_depends_on_more_than_the_compiler_is_not_kept(flag: str) -> None:
    assert Toolchain(flags=("-O2", "-g")).identity() is not None
    assert Toolchain(flags=("-O2", flag)).identity() is None


def test_another_version_of_the_compiler_is_another_one(tmp_path: Path) -> None:
    script = tmp_path / "cc"
    told = []
    for version in ("one", "two"):
        script.write_text(f"#!/bin/sh\necho {version}\n")
        script.chmod(0o755)
        os.utime(script, (1, 1))
        told.append(Toolchain(str(script)).identity())
    assert None not in told
    assert told[0] != told[1]


@pytest.mark.long
@pytest.mark.parametrize("cc", ["gcc", "g++", "clang", "clang++", "gcc -O2 -fsanitize=undefined"])
def test_every_compiler_takes_microkernels_apart(cc: str, tmp_path: Path) -> None:
    if shutil.which(cc.split()[0]) is None:
        pytest.skip(f"no {cc}")
    compare(tiled_network(), tmp_path / "net.so", Toolchain(cc))


def test_processes_may_keep_at_the_same_time(tmp_path: Path) -> None:
    """Each begins with nothing kept, and all end with the same library."""
    code = (
        "import sys, tinyai; from tests.support.example_graphs import tiled_network\n"
        "from tinyai.network import network_of_graph\n"
        "network, target = network_of_graph(tiled_network(), 'net'), tinyai.Target(isa='avx2')\n"
        "tinyai.compile(network, sys.argv[1], target)\n"
    )
    places = [tmp_path / f"{number}.so" for number in range(3)]
    root = str(Path(tinyai.__file__).parents[1])
    running = [subprocess.Popen([sys.executable, "-c", code, place], cwd=root) for place in places]
    assert [each.wait(120) for each in running] == [0, 0, 0]
    compare(tiled_network(), tmp_path / "last.so", isa="avx2")


def test_the_cache_is_bounded_and_keeps_the_newest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MOST_OBJECTS", 4)
    for number in range(5):
        keep_object(KIND, [f"{number}a", f"{number}b"], b"object %d" % number)
        for file in folder.glob(f"{number}*"):
            os.utime(file, ns=(number, number))
    assert len(list(folder.iterdir())) == 4
    assert kept_objects(KIND, {"4a", "4b", "0a"}) == {"4a": b"object 4", "4b": b"object 4"}


def test_without_a_cache_all_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    monkeypatch.setattr(kept, "kept_folder", lambda kind: None)
    compare(tiled_network(), tmp_path / "net.so", isa="avx2")
    assert compiled != []


def test_a_digest_is_of_all_that_a_microkernel_is_compiled_from() -> None:
    source = compile_graph(tiled_network(), Target(), abi="plain").source
    microkernels = microkernels_of(source)
    assert len({digest(each) for each in microkernels}) == len(microkernels) > 1
    text, body = file_of(microkernels), body_of(source)
    for each in microkernels:
        assert f"#define {each.definition.name} " in text
        assert each.text in text
        assert each.text not in body


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a b", "ä,é", "a%s$(x)`y`"])
def test_bytes_are_assembled_in_a_folder_of_any_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    content = bytes(range(256))
    source = assembled([(["one"], content, 64), (["two", "too"], b"", 1)], folder)
    made = folder / "data.o"
    Toolchain().run(["-c", "-o", str(made), str(source)])
    assert content in made.read_bytes()
