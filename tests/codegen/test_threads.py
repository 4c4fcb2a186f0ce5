"""Regions on several threads: the same results whatever their number, from calls that overlap, in
children of fork, beside busy processes, under the thread sanitizer and inside of TVM."""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.c_checks import assert_warning_free, build_with, run_command
from tests.support.example_graphs import Network, random_inputs
from tests.support.kernel_shapes import SIMD, force_kernel, served_graph, tiling_of
from tests.support.machines import Emulated, QuickToolchain, require_isa, runner
from tests.support.paths import DRIVERS, ROOT
from tests.support.prequantized import from_tflite, tflite_file
from tests.support.thread_graphs import GRAPHS, PATIENT, called, deep_network
from tinyai.backend import MACS_OF_A_THREAD, compile_graph, pipeline, with_useful_threads
from tinyai.codegen.helpers import COVER
from tinyai.codegen.kernels import Kernel, tile, work_stealing
from tinyai.codegen.kernels.tiling import shares_panels
from tinyai.codegen.shapes.channel_blocks import ChannelBlocks
from tinyai.codegen.shapes.geometry import Geometry
from tinyai.codegen.shapes.machine import Machine
from tinyai.codegen.shapes.tiling import cover
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.source import graph_from_region
from tinyai.ir import Builder, DType, Graph, Type
from tinyai.ops import Dense, Elementwise
from tinyai.ops.steps import Relu
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target

SPLIT_ISAS = ("generic", "avx512vnni", "amx")


def assert_equals_reference(graph: Graph, run: Runner | Emulated, draws: int = 2) -> None:
    for seed in range(draws):
        inputs = random_inputs(graph, seed)
        for found, expected in zip(run(*inputs), run_graph(graph, inputs), strict=True):
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            assert found.tobytes() == expected.tobytes()


@functools.cache
def deep_runner(threads: int = 3) -> Runner:
    return Runner(deep_network(), Target(threads=threads), Toolchain(flags=(PATIENT,)))


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights as few as those below are heavy enough to be read once, panel by panel."""

    def machine(kernel: tile.Tiled) -> Machine:
        return replace(kernel.micro.machine, heavy_bytes=40_000)

    monkeypatch.setattr(tile.Tiled, "machine", property(machine))


@pytest.fixture(params=["shares", "pieces"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers as small as those below are shared whole; or in pieces, as large ones are."""
    if request.param == "pieces":
        monkeypatch.setattr(work_stealing, "CYCLES", 1)
        monkeypatch.setattr(tile, "PIECE", 1)


# --- Results -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "cut"),
    [
        *[(2, "shares"), (3, "pieces")],
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [(2, "pieces"), (3, "shares")]),
    ],
    indirect=["cut"],
)
@pytest.mark.parametrize("isa", SPLIT_ISAS)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_network_equals_the_reference_on_any_number_of_threads(
    name: str, isa: str, threads: int, cut: None
) -> None:
    require_isa(isa)
    graph = GRAPHS[name]()
    toolchain = QuickToolchain(flags=(PATIENT,))
    runner = Runner(graph, Target(isa=isa, threads=threads), toolchain)
    assert "tinyai_barrier(thread);" in runner.source.text
    assert_equals_reference(graph, runner)


SPLITTING = [(k, 2 + n % 2) for n, k in enumerate(k for k in SIMD if k.split)]


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "threads"), SPLITTING, ids=lambda it: getattr(it, "name", it))
def test_a_kernel_that_splits_equals_the_reference(
    kernel: Kernel, threads: int, cut: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_isa(kernel.isa)
    graph = served_graph(kernel, 7, 12)
    target = Target(isa=kernel.isa, threads=threads)
    force_kernel(monkeypatch, kernel)
    assert_equals_reference(graph, runner(graph, target, PATIENT, quickly=True))


@functools.cache
def keyword_spotting() -> Graph:
    (region,) = regions(partition_for_tinyai(from_tflite(tflite_file("kws_ref_model")))).values()
    return graph_from_region(region)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("isa", ["scalar", *SPLIT_ISAS])
def test_a_tflite_network_equals_the_reference_on_any_number_of_threads(
    isa: str, threads: int
) -> None:
    require_isa(isa)
    toolchain = Toolchain(flags=(PATIENT,) if threads == 3 else ())
    runner = Runner(keyword_spotting(), Target(isa=isa, threads=threads), toolchain)
    assert_equals_reference(keyword_spotting(), runner, draws=1)


# --- How layers are shared -----------------------------------------------------------------------


def test_layers_are_shared_in_every_way() -> None:
    graph = compile_graph(deep_network(), Target(isa="generic")).graph
    by_name = {node.sources[0]: node for node in graph.nodes if node.sources}
    for name, by_panels in (("outputs", False), ("panels", True), ("one output", True)):
        assert shares_panels(tiling_of(graph, by_name[name]), 2) == by_panels, name
        assert not shares_panels(tiling_of(graph, by_name[name]), 1)
    for name, by_blocks in (("rows", False), ("more rows", False), ("blocks", True)):
        slicing = ChannelBlocks(Geometry.of(graph, by_name[name]))
        assert slicing.by_blocks(2, stepped=False) == by_blocks, name
        assert not slicing.by_blocks(2, stepped=True)
        assert not slicing.by_blocks(1, stepped=False)


def test_panels_that_cannot_be_dealt_out_evenly_are_not_shared() -> None:
    b = Builder("uneven")
    net = Network(b, "NHWC", np.random.default_rng(8))
    x = net.conv(b.input(Type((1, 7, 7, 256), DType.INT8)), 160, 1, "uneven")  # 4, 3 and 3 blocks
    graph = compile_graph(b.graph([x]), Target(isa="generic")).graph
    assert not shares_panels(tiling_of(graph, graph.nodes[0]), 2)
    assert shares_panels(tiling_of(graph, graph.nodes[0]), 5) is False  # fewer panels than threads


def test_only_weights_from_afar_make_threads_share_the_panels_of_many_outputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Builder("few_weights")
    net = Network(b, "NHWC", np.random.default_rng(8))
    x = net.conv(b.input(Type((1, 7, 7, 256), DType.INT8)), 256, 1, "panels")
    graph = compile_graph(b.graph([x]), Target(isa="generic")).graph
    cut = tiling_of(graph, graph.nodes[0])
    assert shares_panels(cut, 2)
    near = replace(cut.machine, heavy_bytes=256 * 256)
    assert not shares_panels(replace(cut, machine=near), 2)


def test_outputs_are_covered_at_run_time_as_at_code_generation_time() -> None:
    text = "#include <stddef.h>\n#define TINYAI_INLINE static inline\n" + COVER.text
    text += "ptrdiff_t covered(ptrdiff_t n, ptrdiff_t p) { return tinyai_cover(n, p); }\n"
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        source, library = Path(folder) / "cover.c", Path(folder) / "cover.so"
        source.write_text(text)
        Toolchain().shared_library(library, [source])
        covered = ctypes.CDLL(str(library)).covered
    covered.restype, covered.argtypes = ctypes.c_ssize_t, [ctypes.c_ssize_t] * 2
    for pixels in (6, 8):
        for count in range(200):
            assert covered(count, pixels) == cover(count, pixels)[0], (count, pixels)


@pytest.mark.parametrize("isa", SPLIT_ISAS)
def test_a_thread_that_waits_computes_pieces_of_one_that_is_late(
    isa: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first thread sleeps at the beginning of each layer and after every piece of it."""
    require_isa(isa)
    monkeypatch.setattr(work_stealing, "CYCLES", 1)
    monkeypatch.setattr(tile, "PIECE", 1)
    graph = deep_network()
    source = compile_graph(graph, Target(isa=isa, threads=3), abi="plain").source
    text = source.text
    for before, behind in (
        ("uint32_t *const claimed = &thread->team", "if (thread->task == 0) { usleep(2000); }\n"),
        (
            "__atomic_add_fetch(&team->helping",
            "__atomic_add_fetch(&helped, 1, __ATOMIC_RELAXED);\n",
        ),
    ):
        assert text.count(before) == 1
        text = text.replace(before, behind + before)
    file, library = tmp_path / "late.c", tmp_path / "late.so"
    file.write_text(f"#include <unistd.h>\nint helped;\n{text}")
    Toolchain().shared_library(library, [file], PATIENT, "-D_DEFAULT_SOURCE")
    loaded = ctypes.CDLL(str(library))
    inputs = random_inputs(graph, 1)
    expected = [each.tobytes() for each in run_graph(graph, inputs)]
    assert called(loaded, source, graph, inputs) == expected
    assert ctypes.c_int.in_dll(loaded, "helped").value > 3


@pytest.mark.long
@pytest.mark.parametrize("abi", ["plain", "traced", "packed", "unpacked"])
def test_code_for_threads_has_no_warning_and_is_deterministic(
    abi: str, compiler: str, cut: None
) -> None:
    texts = {
        compile_graph(deep_network(), Target(threads=3), abi=abi).source.text for _ in range(2)
    }
    (text,) = texts
    assert_warning_free(text, compiler)


@pytest.mark.parametrize("target", [Target(threads=1), Target(threads=4, isa="scalar")], ids=str)
def test_code_that_one_thread_runs_knows_nothing_of_threads(target: Target) -> None:
    text = compile_graph(deep_network(), target, abi="plain").source.text
    words = "pthread", "sched_yield", "tinyai_thread", "tinyai_barrier"
    assert not any(word in text for word in words)


@pytest.mark.parametrize(("channels", "threads"), [(16, 1), (600, 2), (2000, 3)])
def test_a_thread_is_taken_for_every_four_million_multiply_accumulates(
    channels: int, threads: int
) -> None:
    b = Builder("one_layer")
    x = b.input(Type((64, 128), DType.INT8))
    weight = b.constant(np.zeros((channels, 128), np.int8))
    graph = b.graph([b.add(Dense(), [x, weight])])
    assert with_useful_threads(graph, Target(threads=3)) == Target(threads=threads)


@pytest.mark.parametrize(("layers", "threads"), [(1, 2), (16, 2), (17, 1)])
def test_many_small_layers_are_left_to_one_thread(layers: int, threads: int) -> None:
    b = Builder("layers")
    x = b.input(Type((64, 128), DType.INT8))
    channels = MACS_OF_A_THREAD // (64 * 128) + 1
    weight = b.constant(np.zeros((channels, 128), np.int8))
    outputs = [b.add(Dense(), [x, weight])]
    outputs += [b.add(Elementwise((64, 128)), [x], (Relu(),)) for _ in range(layers - 1)]
    assert with_useful_threads(b.graph(outputs), Target(threads=3)) == Target(threads=threads)


def test_code_is_generated_for_as_many_threads_as_are_useful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "with_useful_threads", with_useful_threads)
    graph = deep_network()
    useful = with_useful_threads(graph, Target(threads=64)).threads
    text = compile_graph(graph, Target(threads=useful + 1), abi="plain").source.text
    assert f"-threads={useful} " in text


# --- The library's own threads -------------------------------------------------------------------


def test_calls_of_one_runner_from_four_threads_get_their_own_results() -> None:
    runner, graph = deep_runner(), deep_network()
    inputs = [random_inputs(graph, seed) for seed in range(4)]
    expected = [[each.tobytes() for each in run_graph(graph, arrays)] for arrays in inputs]
    start = threading.Barrier(4)
    wrong: list[int] = []

    def work(who: int) -> None:
        start.wait()
        for _ in range(50):
            if [each.tobytes() for each in runner(*inputs[who])] != expected[who]:
                wrong.append(who)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def in_a_process(script: str, **environment: str) -> str:
    """What a script prints that has a process of its own."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout.strip()


PREAMBLE = """
    import _ctypes, gc, os, signal
    import pytest
    from tests.support import compilers
    from tests.support.example_graphs import random_inputs
    from tests.support.thread_graphs import PATIENT, deep_network
    from tinyai.reference import run_graph
    from tinyai.runtime.runner import Runner
    from tinyai.runtime.toolchain import Toolchain
    from tinyai.target import Target

    compilers.use(pytest.MonkeyPatch())
    graph = deep_network()
    runner = Runner(graph, Target(threads=3), Toolchain(flags=(PATIENT,)))
    inputs = random_inputs(graph, 1)
    expected = [each.tobytes() for each in run_graph(graph, inputs)]

    def right():
        return [each.tobytes() for each in runner(*inputs)] == expected

    def running():
        return len(os.listdir("/proc/self/task"))

    before = running()
"""
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc")


@needs_proc
def test_a_child_of_fork_makes_threads_of_its_own() -> None:
    script = """
    assert right() and right() and running() == before + 2
    for _ in range(3):
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a child that hangs is one that fails
            alone = running()
            os._exit(0 if right() and right() and running() == alone + 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert right()
    print("done")
    """
    assert in_a_process(PREAMBLE + script) == "done"


@needs_proc
def test_threads_begin_with_the_first_call_and_end_with_the_library() -> None:
    script = """
    import time
    assert running() == before
    assert right() and running() == before + 2
    time.sleep(0.2)  # they sleep
    assert right() and running() == before + 2
    _ctypes.dlclose(runner._library._handle)
    assert running() == before
    os._exit(0)  # ctypes still believes in the library
    """
    in_a_process(PREAMBLE + script)


@needs_proc
def test_regions_of_one_library_share_its_threads() -> None:
    script = """
    import ctypes, tempfile
    from pathlib import Path
    from tests.support.thread_graphs import GRAPHS, called
    from tinyai.backend import lower, prepare, write

    names = {"deep": 3, "few rows": 2}
    graphs = {name: GRAPHS[name]() for name in names}
    sources = {}
    for name, threads in names.items():
        target = Target(threads=threads)
        chosen = lower(prepare(graphs[name], target), target)
        sources[name] = write(chosen, target, abi="plain").source
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.c" for number in range(2)]
        for file, source in zip(files, sources.values()):
            file.write_text(source.text)
        Toolchain().shared_library(Path(folder) / "both.so", files, PATIENT)
        library = ctypes.CDLL(str(Path(folder) / "both.so"))

    def right(name):
        inputs = random_inputs(graphs[name], 1)
        expected = [each.tobytes() for each in run_graph(graphs[name], inputs)]
        return called(library, sources[name], graphs[name], inputs) == expected

    assert running() == before
    for name, more in (("few rows", 1), ("deep", 2), ("few rows", 2)):
        assert right(name) and running() == before + more, name
    _ctypes.dlclose(library._handle)
    assert running() == before
    os._exit(0)
    """
    in_a_process(PREAMBLE + script)


def test_calls_beside_busy_processes_give_the_same_results() -> None:
    script = """
    import subprocess, sys
    runner = Runner(graph, Target(threads=3), Toolchain())
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        print(all(right() for _ in range(200)))
    finally:
        for each in busy:
            each.kill()
    """
    assert in_a_process(PREAMBLE + script) == "True"


@pytest.mark.parametrize(
    "place", ["int gate = __atomic_load_n(&tinyai_gate", "const unsigned arrived ="]
)
def test_calls_that_wait_for_their_helpers_are_followed_by_calls_that_run_alone(
    place: str, tmp_path: Path
) -> None:
    """Helpers sleep in front of the gate, or in each layer, as if the system ran others."""
    graph = deep_network()
    source = compile_graph(graph, Target(isa="generic", threads=3), abi="plain").source
    text = source.text
    helper = "thread->task > 0" if "arrived" in place else "1"
    for before, behind in (
        (place, f"if ({helper}) {{ usleep(10000); }}\n"),
        ("const int helpers = ", "++tries;\n"),
    ):
        assert text.count(before) == 1
        text = text.replace(before, behind + before)
    file, library = tmp_path / "late.c", tmp_path / "late.so"
    file.write_text(f"#include <unistd.h>\nint tries;\n{text}")
    Toolchain().shared_library(library, [file], "-D_DEFAULT_SOURCE")
    loaded = ctypes.CDLL(str(library))
    inputs = random_inputs(graph, 1)
    expected = [each.tobytes() for each in run_graph(graph, inputs)]
    for _ in range(300):
        assert called(loaded, source, graph, inputs) == expected
    # How many run alone depends on how long a call takes: a pause is 8 times what was lost.
    assert 0 < ctypes.c_int.in_dll(loaded, "tries").value < 300


def with_load(text: str, file: Path, cpus: int = 2) -> str:
    """The C with a machine of so many CPUs, whose number of running threads a file tells."""
    for known, told in (
        ('"/proc/loadavg"', f'"{file}"'),
        ("sysconf(_SC_NPROCESSORS_ONLN)", str(cpus)),
        ("#define TINYAI_CROWDED 100000000", "#define TINYAI_CROWDED 1000000000000"),
        ("const int helpers = ", "++tries;\nconst int helpers = "),
    ):
        assert text.count(known) == 1
        text = text.replace(known, told)
    return f"int tries;\n{text}"


def test_behind_a_pool_that_stays_awake_calls_run_alone_until_it_sleeps(tmp_path: Path) -> None:
    graph = deep_network()
    source = compile_graph(graph, Target(isa="generic", threads=2), abi="plain").source
    load, file, library = (tmp_path / name for name in ("load", "call.c", "call.so"))
    file.write_text(with_load(source.text, load))
    Toolchain().shared_library(library, [file])
    loaded = ctypes.CDLL(str(library))
    tries = ctypes.c_int.in_dll(loaded, "tries")
    inputs = random_inputs(graph, 1)
    expected = [each.tobytes() for each in run_graph(graph, inputs)]

    def call() -> int:
        """1 if a call asks for help, behind a pause in which others may have run."""
        time.sleep(0.002)
        before = tries.value
        assert called(loaded, source, graph, inputs) == expected
        return tries.value - before

    load.write_text("0.00 0.00 0.00 2/100 1")
    assert [call() for _ in range(5)] == [0] * 5
    load.write_text("0.00 0.00 0.00 1/100 1")
    assert sum(call() for _ in range(5)) > 0


@pytest.mark.parametrize("told", ["", "words", "0.0 0.0 0.0 0/1 1", None])
def test_where_the_system_does_not_say_what_runs_calls_ask_for_help(
    told: str | None, tmp_path: Path
) -> None:
    graph = deep_network()
    source = compile_graph(graph, Target(isa="generic", threads=2), abi="plain").source
    load, file, library = (tmp_path / name for name in ("load", "call.c", "call.so"))
    if told is not None:
        load.write_text(told)
    file.write_text(with_load(source.text, load, cpus=1))
    Toolchain().shared_library(library, [file])
    loaded = ctypes.CDLL(str(library))
    called(loaded, source, graph, random_inputs(graph, 1))
    assert ctypes.c_int.in_dll(loaded, "tries").value == 1


# --- The thread sanitizer ------------------------------------------------------------------------

TSAN = ("-fsanitize=thread", "-g", "-DTINYAI_INTRINSICS", PATIENT)


@functools.cache
def missing_thread_sanitizer() -> str | None:
    """Why the test below skips: TSan needs its library and an address space as it expects it."""
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int main(void) { return 0; }\n")
        program = source.with_suffix("")
        try:
            run_command(["gcc", *TSAN, str(source), "-o", str(program)])
            run_command([str(program)])
        except (AssertionError, OSError) as error:
            return f"the thread sanitizer does not run: {str(error)[:200]}"
    return None


@pytest.mark.long
@pytest.mark.parametrize("isa", SPLIT_ISAS)
@pytest.mark.parametrize("name", ["deep", "branching NHWC", "attention"])
def test_the_thread_sanitizer_finds_nothing(name: str, isa: str, cut: None, tmp_path: Path) -> None:
    require_isa(isa)
    reason = missing_thread_sanitizer()
    if reason:
        pytest.skip(reason)
    graph = GRAPHS[name]()
    source = compile_graph(graph, Target(isa=isa, threads=3), abi="plain").source
    program = tsan_program(source.text, graph, source.symbol, tmp_path)
    assert run_command([str(program)]) == "0 wrong\n"


def tsan_program(text: str, graph: Graph, symbol: str, folder: Path) -> Path:
    """Three threads that call the region 20 times each."""
    sizes = [
        ",".join(str(of.bytes) for of in graph.types(n)) for n in (graph.inputs, graph.outputs)
    ]
    definitions = [f"-DENTRY={symbol}", "-DCALLERS=3", "-DRUNS=20"]
    definitions += [f"-DINPUT_BYTES={sizes[0]}", f"-DOUTPUT_BYTES={sizes[1]}", "-lpthread"]
    return build_with(TSAN, text, "shared.c", folder, "gcc", *definitions, optimize="-O1")


def test_the_thread_sanitizer_would_find_a_layer_that_does_not_wait(
    cut: None, tmp_path: Path
) -> None:
    reason = missing_thread_sanitizer()
    if reason:
        pytest.skip(reason)
    source = compile_graph(deep_network(), Target(isa="generic", threads=3), abi="plain").source
    text = source.text.replace("tinyai_barrier(thread);", "(void)thread;")
    with pytest.raises(AssertionError, match="data race"):
        run_command([str(tsan_program(text, deep_network(), source.symbol, tmp_path))])


# --- Inside of TVM -------------------------------------------------------------------------------


@needs_proc
@pytest.mark.parametrize("threads", [2, 3])
def test_the_unpacked_entry_shares_a_call_among_threads(threads: int, tmp_path: Path) -> None:
    graph = deep_network()
    source = compile_graph(graph, Target(isa="generic", threads=threads), abi="unpacked").source
    region, library = tmp_path / "region.c", tmp_path / "region.so"
    region.write_text(source.text)
    files = [region, DRIVERS / "workspace.c"]
    Toolchain().shared_library(library, files, PATIENT)
    loaded = ctypes.CDLL(str(library))
    inputs = random_inputs(graph, 1)
    outputs = [np.empty(of.shape, of.dtype.numpy) for of in graph.types(graph.outputs)]
    arguments = [each.ctypes.data_as(ctypes.c_void_p) for each in (*inputs, *outputs)]
    before = len(os.listdir("/proc/self/task"))
    assert getattr(loaded, source.symbol)(*arguments) == 0
    assert len(os.listdir("/proc/self/task")) == before + threads - 1
    for found, expected in zip(outputs, run_graph(graph, inputs), strict=True):
        assert found.tobytes() == expected.tobytes()
    _ctypes.dlclose(loaded._handle)
    assert len(os.listdir("/proc/self/task")) == before


WITH_TVM = """
    import gc, multiprocessing, os, signal, threading, time
    import numpy as np
    import tvm
    import tests.support.relay_nets as nets
    import tinyai
    from tests.support.oracle import oracle
    from tests.support.thread_graphs import PATIENT
    from tinyai.backend import pipeline
    from tinyai.runtime.toolchain import Toolchain
    from tvm.contrib import graph_executor

    pipeline.with_useful_threads = lambda graph, target: target  # the network is small
    mod = nets.module(nets.residual())
    patient = Toolchain(flags=(PATIENT,))  # whatever else the machine runs
    library = tinyai.build(mod, target="tinyai -threads=2, llvm", toolchain=patient)
    samples = [nets.random_inputs(mod, seed) for seed in range(2)]
    expected = [oracle(mod, each) for each in samples]
    wrong = []

    def running():
        return len(os.listdir("/proc/self/task"))

    def left(expected):  # a thread that was joined is seen for a moment more
        for _ in range(1000):
            if running() <= expected:
                break
            time.sleep(0.01)
        return running()

    def work(who, runs=30):
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        for _ in range(runs):
            executor.run(**samples[who])
            found = [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
            if [each.tobytes() for each in found] != [each.tobytes() for each in expected[who]]:
                wrong.append(who)
        return len(wrong)

    before = running()
    work(0)
    assert running() == before + 1
"""


@needs_proc
def test_many_callers_in_tvm_leave_no_more_than_the_librarys_thread_behind() -> None:
    script = """
    for _ in range(5):
        both = [threading.Thread(target=work, args=(who,)) for who in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    assert left(before + 1) == before + 1
    print("wrong:", *wrong)
    """
    assert in_a_process(WITH_TVM + script) == "wrong:"


@needs_proc
def test_a_child_of_fork_runs_a_region_in_tvm() -> None:
    script = """
    signal.alarm(200)  # a child that hangs is one that fails
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(work(1))
    assert os.waitpid(child, 0)[1] == 0
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(work, [0, 1, 0, 1]) == [0] * 4
    assert work(0) == 0 and left(before + 1) == before + 1
    print("done")
    """
    # Threads are counted, and OpenBLAS ends its own at a fork.
    assert in_a_process(WITH_TVM + script, OPENBLAS_NUM_THREADS="1") == "done"


@needs_proc
def test_a_module_that_tvm_unloads_leaves_no_thread_behind() -> None:
    script = """
    assert running() == before + 1
    del library
    gc.collect()
    assert left(before) == before
    print("done")
    """
    assert in_a_process(WITH_TVM + script) == "done"
