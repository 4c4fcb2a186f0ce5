"""Calls of a compiler side by side, before the header of intrinsics is there and after."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import tinyai
from tests.support.example_graphs import small_network
from tinyai.network import network_of_graph
from tinyai.runtime.headers import KIND
from tinyai.runtime.jobs import CompilerJobs
from tinyai.runtime.link import write_library
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target, this_architecture

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc"),
    pytest.mark.skipif(this_architecture() != "x86_64", reason="whose header is kept"),
]
HERE = Target(isa="native")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of headers, in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tinyai" / KIND


@pytest.fixture
def slow(tmp_path: Path) -> Toolchain:
    """gcc, which precompiles a header when the file "go" is there, and writes its process's number
    to "begun" before."""
    script = tmp_path / "gcc"
    script.write_text(
        f"""#!/bin/sh
case "$*" in *c-header*)
    echo $$ > {tmp_path}/number && mv {tmp_path}/number {tmp_path}/begun
    until [ -e {tmp_path}/go ]; do sleep 0.02; done
esac
exec gcc "$@"
"""
    )
    script.chmod(0o755)
    return Toolchain(str(script))


def test_a_library_does_not_wait_for_the_header(
    slow: Toolchain, tmp_path: Path, kept: Path
) -> None:
    graph, library = small_network(), tmp_path / "net.so"
    with CompilerJobs(slow, HERE) as jobs:
        write_library(network_of_graph(graph), library, HERE, slow, jobs=jobs)
        assert library.exists()
        assert jobs.header() == []
        (tmp_path / "go").touch()
    assert len([*kept.glob("*.gch")]) == 1, "it is there for the next one"
    with CompilerJobs(slow, HERE) as jobs:
        while not jobs.header():
            time.sleep(0.01)
        write_library(network_of_graph(graph), library, HERE, slow, jobs=jobs)
    data = [np.zeros(of.shape, of.dtype.numpy) for of in graph.types(graph.inputs)]
    found, expected = tinyai.Model(library).run(data), tinyai.run_graph(graph, data)
    assert all(map(np.array_equal, found, expected))


def test_a_library_has_the_same_bytes_with_nothing_kept_and_with_all(
    tmp_path: Path, kept: Path
) -> None:
    network, made = network_of_graph(small_network()), tmp_path / "net.so"
    contents = []
    for _ in range(2):
        write_library(network, made, HERE, Toolchain("gcc"))
        contents.append(made.read_bytes())
    assert len([*kept.glob("*.gch")]) == 1
    assert [*(kept.parent / "functions").glob("*.o")]
    assert contents[0] == contents[1]


def test_what_fails_does_not_wait_for_the_header(
    slow: Toolchain, tmp_path: Path, kept: Path
) -> None:
    def fail() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        raise KeyError

    with pytest.raises(KeyError), CompilerJobs(slow, HERE) as jobs:
        fail()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "begun").read_text()), 0)
    assert not jobs.folder.exists()
    assert not [*kept.iterdir()]
