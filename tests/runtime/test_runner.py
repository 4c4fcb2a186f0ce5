"""Graphs compiled and run through ctypes, and the compiler call beneath it."""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.machines import require_isa, runnable_isas
from tests.support.random_graphs import graphs, random_inputs
from tinyai.backend import compile_graph
from tinyai.errors import GraphError, LimitError, OptionError, ToolchainError
from tinyai.ir import Array, Builder, DType, Graph, Operand, Type
from tinyai.ops import Conv2d, Elementwise, MaxPool2d, Reshape
from tinyai.ops.steps import Add, Cast, Clip, Relu, RightShift, Round
from tinyai.ops.window import Window
from tinyai.reference import run_graph
from tinyai.runtime import toolchain as compilers
from tinyai.runtime.runner import Runner, aligned_bytes, pointers
from tinyai.runtime.toolchain import DEFAULT_COMPILERS, Toolchain
from tinyai.target import Target

SAME = Window((3, 3), padding=(1, 1, 1, 1))


def residual(size: int = 6, channels: int = 4) -> Graph:
    """Two convolutions and the sum of their results, and a pooled copy, as two outputs."""
    b = Builder("residual")
    rng = np.random.default_rng(5)
    shape = (1, size, size, channels)
    x, other = b.input(Type(shape, DType.INT8)), b.input(Type(shape, DType.INT32))
    chain = (
        Add(operand=Operand(b.constant(np.array(64, np.int32)))),
        RightShift(operand=Operand(b.constant(np.array(7, np.int32)))),
        Clip(-127, 127),
        Cast(DType.INT8),
    )

    def conv(data: str) -> str:
        weight = rng.integers(-127, 128, (channels, 3, 3, channels), np.int8)
        return b.add(Conv2d(SAME), [data, b.constant(weight)], chain)

    first = conv(x)
    second = conv(first)
    total = b.add(
        Elementwise(shape),
        [second],
        (Cast(DType.INT32), Add(operand=Operand(first, (Cast(DType.INT32),))), Relu()),
    )
    total = b.add(Elementwise(shape), [total], (Add(operand=Operand(other)),))
    pooled = b.add(MaxPool2d(SAME), [total])
    return b.graph([b.add(Reshape((size, size * channels)), [total]), pooled])


@pytest.fixture(scope="module")
def graph() -> Graph:
    return residual()


@pytest.fixture(scope="module")
def runner(graph: Graph) -> Runner:
    return Runner(graph)


def assert_equal(found: list[Array], expected: list[Array]) -> None:
    for got, want in zip(found, expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert got.tobytes() == want.tobytes()


# --- Runner ------------------------------------------------------------------------------------


def test_a_compiled_graph_gives_what_the_reference_gives(graph: Graph, runner: Runner) -> None:
    for seed in range(5):
        inputs = random_inputs(graph, seed)
        assert_equal(runner(*inputs), run_graph(graph, inputs))
    assert runner.inputs == graph.types(graph.inputs)
    assert runner.outputs == graph.types(graph.outputs)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(graph=graphs(), seed=st.integers(0, 2**16), isa=st.sampled_from(runnable_isas()))
def test_any_graph_runs_compiled_as_it_runs_in_numpy(graph: Graph, seed: int, isa: str) -> None:
    inputs = random_inputs(graph, seed)
    runner = Runner(graph, Target(isa=isa))
    for found, expected in zip(runner(*inputs), run_graph(graph, inputs), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(found, expected)


def test_a_small_negative_number_rounds_to_minus_zero() -> None:
    b = Builder("rounding")
    graph = b.graph([b.add(Elementwise((4,)), [b.input(Type((4,), DType.FLOAT32))], (Round(),))])
    values = np.array([-0.3, -0.0, 0.3, -0.5], np.float32)
    assert_equal(Runner(graph)(values), run_graph(graph, [values]))


def test_inputs_of_any_strides_are_taken_and_left_alone(graph: Graph, runner: Runner) -> None:
    x, other = random_inputs(graph, 1)
    strided = np.repeat(x, 2, axis=2)[:, :, ::2]
    strided.setflags(write=False)
    before = other.copy()
    assert not strided.flags.c_contiguous
    assert_equal(runner(strided, other), run_graph(graph, [x, other]))
    np.testing.assert_array_equal(other, before)


def test_each_call_returns_arrays_of_its_own(graph: Graph, runner: Runner) -> None:
    first, second = random_inputs(graph, 1), random_inputs(graph, 2)
    kept = runner(*first)
    runner(*second)
    assert_equal(kept, run_graph(graph, first))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_inputs_is_refused(graph: Graph, runner: Runner, count: int) -> None:
    arrays = [*random_inputs(graph, 0), np.zeros(1, np.int8)]
    with pytest.raises(OptionError) as raised:
        runner(*arrays[:count])
    assert (raised.value.found, raised.value.allowed) == (str(count), "2")


@pytest.mark.parametrize(
    ("index", "array"),
    [
        (0, np.zeros((1, 6, 6, 4), np.uint8)),
        (0, np.zeros((1, 6, 6, 4), np.float32)),
        (0, np.zeros((6, 6, 4), np.int8)),
        (0, np.zeros((1, 4, 6, 6), np.int8)),
        (1, np.zeros((1, 6, 6, 4), ">i4")),
        (1, np.zeros((1, 6, 6, 4), np.int64)),
        (1, np.zeros((2, 6, 6, 4), np.int32)),
    ],
    ids=lambda value: f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else None,
)
def test_an_input_of_another_shape_or_dtype_is_refused(
    graph: Graph, runner: Runner, index: int, array: Array
) -> None:
    inputs = random_inputs(graph, 0)
    inputs[index] = array
    with pytest.raises(OptionError) as raised:
        runner(*inputs)
    assert raised.value.what == f"input {index}"
    assert raised.value.found == f"{array.dtype}{list(array.shape)}"
    assert raised.value.allowed == str(runner.inputs[index])


def test_a_graph_without_arena_and_a_scalar_run_too() -> None:
    b = Builder("scalar")
    x = b.input(Type((), DType.INT32))
    graph = b.graph([b.add(Elementwise(()), [x], (Relu(),))])
    runner = Runner(graph)
    assert runner.source.arena_bytes == 0
    assert_equal(runner(np.array(-5, np.int32)), [np.array(0, np.int32)])


def test_a_bound_call_reads_and_writes_the_same_memory_each_time(
    graph: Graph, runner: Runner
) -> None:
    inputs, others = (random_inputs(graph, seed) for seed in (1, 2))
    call = runner.bound(*inputs)
    call()
    assert_equal(call.outputs, run_graph(graph, inputs))
    for mine, other in zip(inputs, others, strict=True):
        mine[...] = other
    call()
    assert_equal(call.outputs, run_graph(graph, others))
    assert call.entry != 0
    with pytest.raises(OptionError, match="inputs"):
        runner.bound()


def test_two_threads_that_run_one_runner_get_their_own_results() -> None:
    graph = residual(size=24, channels=8)
    runner = Runner(graph)
    assert runner.source.arena_bytes > 0
    inputs = [random_inputs(graph, seed) for seed in (1, 2)]
    expected = [run_graph(graph, arrays) for arrays in inputs]
    start = threading.Barrier(2)
    wrong: list[int] = []

    def work(who: int) -> None:
        start.wait()
        for _ in range(40):
            found = runner(*inputs[who])
            if [a.tobytes() for a in found] != [a.tobytes() for a in expected[who]]:
                wrong.append(who)

    threads = [threading.Thread(target=work, args=(who,)) for who in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_graph_that_breaks_a_rule_or_a_limit_is_not_compiled(graph: Graph) -> None:
    b = Builder("broken")
    b.add(Elementwise((2,)), [b.input(Type((2,), DType.INT8))])
    with pytest.raises(GraphError):
        Runner(b.graph(["in0"]))
    with pytest.raises(LimitError, match="arena_limit=64"):
        Runner(graph, Target(arena_limit=64))


# --- Toolchain ---------------------------------------------------------------------------------

SOURCE = "int answer(void) { return ANSWER; }\n"


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """The system's compiler behind a script that writes down how it was called."""
    real = next(filter(None, map(shutil.which, DEFAULT_COMPILERS)))
    log = tmp_path / "log"
    return script(tmp_path / "my cc", f'echo "$@" >> "{log}"\nexec "{real}" "$@"')


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.c"
    path.write_text(SOURCE)
    return path


def test_the_environments_compiler_is_called_with_its_flags(
    compiler: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", f"'{compiler}' -DANSWER=42")
    library = tmp_path / "library.so"
    Toolchain().shared_library(library, [source], "-O1")
    assert library.is_file()
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("-DANSWER=42 ")
    assert line.endswith(f" {source} -O1 -lm -pthread")
    assert "-shared -fPIC" in line


def test_a_compiler_that_is_asked_for_goes_before_the_environments(
    compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    toolchain = Toolchain(cc=f"'{compiler}' -m64", flags=("-O2", "-DNAME=a b"))
    assert toolchain.command() == [str(compiler), "-m64", "-O2", "-DNAME=a b"]


def test_the_first_default_compiler_that_is_there_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("clang", "gcc"):
        script(tmp_path / name, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    for unset in ("", "  "):
        monkeypatch.setenv("CC", unset)
        assert Toolchain().command() == ["gcc"]
    monkeypatch.delenv("CC")
    assert Toolchain(flags=("-g",)).command() == ["gcc", "-g"]


def test_without_any_compiler_the_error_says_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ToolchainError, match="no C compiler") as raised:
        Toolchain().command()
    assert raised.value.found == "none of cc, gcc, clang, g++"
    assert raised.value.allowed == "an executable on the PATH, or its path"
    assert "set CC" in str(raised.value.hint)


@pytest.mark.parametrize("cc", ["no-such-compiler -O2", "./no/such/path", "'no such' -O2"])
def test_a_compiler_that_is_not_there_is_named(cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", cc)
    for toolchain in (Toolchain(), Toolchain(cc=cc)):
        with pytest.raises(ToolchainError, match="no C compiler") as raised:
            toolchain.command()
        assert raised.value.found == repr(cc)


def test_a_file_that_cannot_be_executed_is_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "cc"
    plain.write_text("text")
    monkeypatch.setenv("CC", str(plain))
    with pytest.raises(ToolchainError, match="no C compiler"):
        Toolchain().command()


def test_a_quote_in_cc_that_is_not_closed_is_a_toolchain_error() -> None:
    with pytest.raises(ToolchainError):
        Toolchain(cc='"gcc -O2').command()


def test_a_compiler_that_the_system_cannot_start_is_a_toolchain_error(tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_bytes(b"\x7fELF is all that it has of a program")
    broken.chmod(0o755)
    with pytest.raises(ToolchainError):
        Toolchain(str(broken)).run([])


def test_a_failing_compilers_words_come_out_with_the_command(tmp_path: Path, source: Path) -> None:
    failing = script(tmp_path / "cc", "echo to stdout; echo boom >&2; exit 3")
    with pytest.raises(ToolchainError, match="the C compiler failed") as raised:
        Toolchain(str(failing)).shared_library(tmp_path / "library.so", [source])
    assert raised.value.found == f"{failing} ended with 3: boom"
    assert raised.value.allowed == "exit code 0"
    assert f"run it by hand: {failing} -shared -fPIC -o " in str(raised.value.hint)


def test_a_compiler_that_fails_on_stdout_only_is_heard_and_cut_short(tmp_path: Path) -> None:
    failing = script(
        tmp_path / "cc", "i=0; while [ $i -lt 900 ]; do echo error$i; i=$((i+1)); done; exit 1"
    )
    with pytest.raises(ToolchainError) as raised:
        Toolchain(str(failing)).run([])
    beginning = f"{failing} ended with 1: "
    assert str(raised.value.found).startswith(f"{beginning}error0\nerror1\n")
    assert len(str(raised.value.found)) == 4000


def test_a_failed_compilation_leaves_nothing_behind_and_keeps_what_was_there(
    tmp_path: Path, source: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    library = folder / "library.so"
    with pytest.raises(ToolchainError, match="ANSWER"):  # gcc names what is not declared
        Toolchain().shared_library(library, [source])
    assert list(folder.iterdir()) == []

    # This one writes half of its output before it fails.
    half = script(tmp_path / "cc", 'while [ "$1" != -o ]; do shift; done; echo half > "$2"; exit 1')
    library.write_text("old")
    with pytest.raises(ToolchainError):
        Toolchain(str(half)).shared_library(library, [source])
    assert [path.name for path in folder.iterdir()] == ["library.so"]
    assert library.read_text() == "old"


def test_a_runner_uses_the_toolchain_that_it_is_given(graph: Graph, tmp_path: Path) -> None:
    failing = script(tmp_path / "cc", "echo not today >&2; exit 1")
    with pytest.raises(ToolchainError, match="not today"):
        Runner(graph, toolchain=Toolchain(str(failing)))


@pytest.mark.long
def test_a_file_for_every_machine_is_compiled_in_parts_and_gives_the_same(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    run = Toolchain.run

    def recorded(toolchain: Toolchain, arguments: list[str]) -> None:
        calls.append(list(arguments))
        run(toolchain, arguments)

    monkeypatch.setattr(Toolchain, "run", recorded)
    inputs = random_inputs(graph, 3)
    for cpus, compilations in (({0, 1}, 4), ({0}, 0)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cpus=cpus: cpus)
        for cc in filter(shutil.which, ("gcc", "g++", "clang")):
            calls.clear()
            toolchain = Toolchain(cc, ("-Wall", "-Wextra", "-Werror"))
            assert_equal(Runner(graph, Target(), toolchain)(*inputs), run_graph(graph, inputs))
            assert sum("-c" in call for call in calls) == compilations


CPUS = {"avx512vnni": 0, "avx2": 1, "scalar": 2}


@pytest.mark.parametrize("isa", CPUS)
def test_for_this_machine_only_what_its_cpu_runs_is_compiled_and_the_rest_when_it_is_wanted(
    isa: str, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_isa(isa)
    flags = {"avx512vnni": "avx512f avx512bw avx512dq avx512vl avx512_vnni", "avx2": "fma avx2"}
    monkeypatch.setattr(compilers, "cpu_description", lambda: f"flags : {flags.get(isa, 'sse2')}")
    compiled: list[str] = []
    run = Toolchain.run

    def recorded(toolchain: Toolchain, arguments: list[str]) -> None:
        compiled.append(" ".join(word for word in arguments if word.startswith("-DTINYAI")))
        run(toolchain, arguments)

    monkeypatch.setattr(Toolchain, "run", recorded)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # one after the other
    source, here, everywhere, anew = (tmp_path / n for n in ("net.c", "1.so", "2.so", "3.so"))
    emitted = compile_graph(graph, Target(), abi="plain").source
    source.write_text(emitted.text)
    objects: dict[bytes, bytes] = {}
    part = f"-DTINYAI_UNIT={CPUS[isa]}"
    Toolchain().shared_library(here, [source], here=True, kept=objects)
    *units, linked = compiled  # units in any order
    assert (linked, {*units}) == ("", {part, f"-DTINYAI_UNIT=3 -DTINYAI_ONLY={CPUS[isa]}"})
    compiled.clear()
    Toolchain().shared_library(everywhere, [source], kept=objects)
    *units, linked = compiled
    every = {f"-DTINYAI_UNIT={number}" for number in range(4)}
    assert (linked, len(units), {*units}) == ("", 3, every - {part})
    Toolchain().shared_library(anew, [source], kept={})
    assert everywhere.read_bytes() == anew.read_bytes() != here.read_bytes()
    inputs = random_inputs(graph, 3)
    outputs = [np.empty(t.shape, t.dtype.numpy) for t in graph.types(graph.outputs)]
    arena = aligned_bytes(emitted.arena_bytes)
    for file in (here, everywhere):
        entry = getattr(ctypes.CDLL(str(file)), emitted.symbol)
        assert entry(pointers(inputs), pointers(outputs), ctypes.c_void_p(arena.ctypes.data)) == 0
        assert_equal(outputs, run_graph(graph, inputs))


def test_a_kept_object_is_of_the_same_text_compiler_and_flags(graph: Graph, tmp_path: Path) -> None:
    source = tmp_path / "net.c"
    source.write_text(compile_graph(graph, Target(isa="scalar"), abi="plain").source.text)
    objects: dict[bytes, bytes] = {}
    for toolchain in (Toolchain("gcc"), Toolchain("gcc", ("-O1",)), Toolchain("gcc")):
        toolchain.shared_library(tmp_path / "net.so", [source], kept=objects)
    assert len(objects) == 2
    source.write_text(source.read_text().replace("/* The network.", "/* Network."))
    Toolchain("gcc").shared_library(tmp_path / "net.so", [source], kept=objects)
    assert len(objects) == 3
    others = tmp_path / "others.c"  # may include a header, which may change
    others.write_text("int answer = 42;\n")
    Toolchain("gcc").shared_library(tmp_path / "net.so", [others], kept=objects)
    assert len(objects) == 3
