"""Tiles of AMX: results equal the reference around the edges of patches, whoever computes them; and
what happens where Linux refuses a process the use of tiles."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.c_checks import SANITIZERS, run_sanitized
from tests.support.example_graphs import random_inputs
from tests.support.kernel_shapes import (
    CHANNELS,
    MIXED,
    WIDE,
    add,
    assert_equal,
    batch_matmul,
    pick,
)
from tests.support.machines import require_isa, runner
from tests.support.scripts import run_script
from tinyai.backend import compile_graph
from tinyai.errors import EnvironmentProblem
from tinyai.ir import Builder, DType, Example, Graph, Type, verify
from tinyai.ops import Conv2d, Dense
from tinyai.ops.window import Window
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

Rng = np.random.Generator
A_FILE = 25
# 200 layers in `make test`, beside those of its rows of the kernel table; 1,000 in `make test-all`.
FILES = [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 40))]


def layer(rng: Rng) -> Example:
    """A convolution whose rows are shorter and longer than a patch of 16 outputs, a dense layer of
    several rows, or a product of two matrices that are computed."""
    if rng.random() < 0.15:
        return batch_matmul(rng)
    dtype = DType.UINT8 if rng.random() < 0.7 else DType.INT8
    zero_point = int(rng.integers(dtype.range[0], dtype.range[1] + 1))
    out = pick(rng, (*WIDE, 256, 320))
    if rng.random() < 0.2:
        rows, k = int(rng.integers(1, 71)), pick(rng, (32, 60, 64, 100, 128, 300, 1024, 1100))
        return Dense(zero_point), (Type((rows, k), dtype), Type((out, k), DType.INT8))
    side = pick(rng, (1, 1, 1, 2, 3, 3, 5))
    padding = (side // 2,) * 4 if rng.random() < 0.5 else (0, 0, 0, 0)
    strides = pick(rng, (1, 1, 1, 2)), pick(rng, (1, 1, 1, 2, 3))
    dilation = (1, 1) if rng.random() < 0.9 else (2, 2)
    window = Window((side, side), strides, dilation, padding)
    groups = pick(rng, (1, 1, 1, 1, 1, 2))
    channels = pick(rng, (12, 16, 24, 32, 36, 48, 64, 68, 96, 128, 144, 200)) if side < 5 else 16
    if side == 1 and rng.random() < 0.2:
        channels = pick(rng, (1024, 1088))
    shape = pick(rng, (1, 1, 2)), int(rng.integers(1, 8)), int(rng.integers(1, 70))
    weight = Type(
        (groups * pick(rng, CHANNELS) if groups > 1 else out, side, side, channels), DType.INT8
    )
    return Conv2d(window, groups, zero_point=zero_point), (
        Type((*shape, channels * groups), dtype),
        weight,
    )


def layers(seed: int, count: int = A_FILE) -> Graph:
    """So many layers, each with steps after it."""
    rng = np.random.default_rng(seed)
    builder, outputs = Builder(f"layers_{seed}"), []
    while len(outputs) < count:
        op, types = layer(rng)
        try:
            op.infer(*types)
        except ValueError:
            continue
        outputs.append(add(builder, op, types, MIXED[int(rng.integers(len(MIXED)))], rng))
    return optimize(verify(builder.graph(outputs)))


def assert_equals_reference(
    graph: Graph, found: list[np.ndarray], inputs: list[np.ndarray]
) -> None:
    for name, *pair in zip(graph.outputs, found, run_graph(graph, inputs), strict=True):
        assert_equal(pair[0], pair[1], graph.makers[name])


@pytest.mark.parametrize("number", FILES)
def test_layers_around_the_edges_of_patches_equal_the_reference(number: int) -> None:
    require_isa("amx")
    graph = layers(number)
    isa = ("amx", "native")[number % 2]
    run = runner(graph, Target(isa=isa, threads=(1, 2, 3, 9)[number % 4]))
    assert isinstance(run, Runner)
    assert {"tdpbusd", "tdpbssd"} <= set(re.findall("tdpb..d", run.source.text))
    inputs = random_inputs(graph, number)
    assert_equals_reference(graph, run(*inputs), inputs)


@pytest.mark.parametrize("isa", ["amx", "auto"])
def test_products_of_the_largest_values_equal_the_reference(isa: str) -> None:
    require_isa("amx")
    builder, rng = Builder("largest"), np.random.default_rng(0)
    results = []
    for dtype in (DType.UINT8, DType.INT8):
        for side, channels, out in ((1, 1100, 64), (3, 128, 48), (3, 64, 17)):
            x = builder.input(Type((1, 9, 35, channels), dtype))
            weight = rng.choice(np.array([-128, -127, 127], np.int8), (out, side, side, channels))
            weight[0], weight[1] = -128, 127
            results.append(
                builder.add(
                    Conv2d(Window((side, side)), zero_point=0), [x, builder.constant(weight)]
                )
            )
    graph = builder.graph(results)
    run = runner(graph, Target(isa=isa))
    for end in (0, 1):
        types = graph.types(graph.inputs)
        inputs = [np.full(of.shape, of.dtype.range[end], of.dtype.numpy) for of in types]
        assert_equals_reference(graph, run(*inputs), inputs)


@pytest.mark.long
@pytest.mark.parametrize("sanitizer", SANITIZERS, indirect=True)
def test_tiles_in_c_equal_the_reference_and_are_clean_under_the_sanitizers(sanitizer: str) -> None:
    """What stands for the instructions there: a CPU without tiles runs it, too."""
    require_isa("avx512vnni")
    graph = layers(1000, 12)
    compiled = compile_graph(graph, Target(isa="amx"), abi="plain")
    inputs = random_inputs(graph, 0)
    found = run_sanitized(compiled, inputs, sanitizer, optimize="-O0")
    assert_equals_reference(graph, found, inputs)


# --- Permission -----------------------------------------------------------------------------------

NETWORK = '''
import ctypes, os, signal, sys, threading
import numpy as np
from tests.codegen.test_amx import layers
from tests.support.example_graphs import random_inputs
from tinyai.errors import EnvironmentProblem
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def permitted():
    """Whether this process may use tiles by now: arch_prctl(ARCH_GET_XCOMP_PERM), bit 18."""
    bits = ctypes.c_uint64()
    assert libc.syscall(158, 0x1022, ctypes.byref(bits)) == 0
    return bool(bits.value >> 18 & 1)

class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

def small_signal_stack():
    memory = ctypes.create_string_buffer(8192)
    assert libc.sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 8192)), None) == 0
    return memory

graph = layers(7, 5)
inputs = random_inputs(graph, 0)
expected = run_graph(graph, inputs)

def equal(found):
    return all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))

def compiled(isa, threads=1):
    return Runner(graph, Target(isa=isa, threads=threads))
'''


def prints(tmp_path: Path, *code: str) -> list[str]:
    """What a process of its own prints, which has not asked for tiles before."""
    require_isa("amx")
    return run_script([NETWORK, *code], tmp_path / "script.py", tmp_path).split()


def test_tiles_are_asked_for_at_the_first_call_and_not_before(tmp_path: Path) -> None:
    for isa in ("native", "auto", "amx"):
        code = (
            f"run = compiled('{isa}'); print(permitted()); print(equal(run(*inputs)), permitted())"
        )
        assert prints(tmp_path, code) == ["False", "True", "True"]


def test_vectors_run_where_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYAI_AMX", "0")
    for isa in ("native", "auto"):
        code = f"print(equal(compiled('{isa}')(*inputs)), permitted())"
        assert prints(tmp_path, code) == ["True", "False"]


def test_vectors_run_where_a_small_signal_stack_makes_linux_refuse(tmp_path: Path) -> None:
    for isa in ("native", "auto"):
        code = f"kept = small_signal_stack(); print(equal(compiled('{isa}')(*inputs)), permitted())"
        assert prints(tmp_path, code) == ["True", "False"]


def test_a_file_for_tiles_alone_is_an_error_where_linux_refuses(tmp_path: Path) -> None:
    code = """
kept, run = small_signal_stack(), compiled('amx')
try:
    run(*inputs)
except EnvironmentProblem as error:
    print("refused" if "this CPU cannot run the code" in str(error) else error)
call = run.bound(*inputs)
entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(call.entry)
tensors = map(ctypes.addressof, (call.input_pointers, call.output_pointers))
print(entry(*tensors, call.arena))
"""
    assert prints(tmp_path, code) == ["refused", "-1"]


def test_threads_from_before_the_permission_and_children_have_it(tmp_path: Path) -> None:
    code = """
run, begin, found = compiled('native'), threading.Event(), []
def work():
    begin.wait()
    found.extend(equal(run(*inputs)) for _ in range(20))
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads: each.start()
begin.set()  # the first calls come at the same time
for each in threads: each.join()
print(len(found), all(found), permitted())
child = os.fork()
if child == 0:
    os._exit(0 if equal(run(*inputs)) and permitted() else 1)
print(os.waitpid(child, 0)[1])
print(flush=True)
os.execv(sys.executable, [sys.executable, __file__, "again"]) if len(sys.argv) < 2 else None
"""
    assert prints(tmp_path, code) == ["80", "True", "True", "0"] * 2


def test_signals_in_the_middle_of_a_call_change_no_result(tmp_path: Path) -> None:
    code = """
run = compiled('native', 2)
handler = ctypes.cast(libc.getppid, ctypes.c_void_p)  # does nothing, in C
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
found = [equal(run(*inputs)) for _ in range(300)]
signal.setitimer(signal.ITIMER_REAL, 0)
print(all(found), permitted())
"""
    assert prints(tmp_path, code) == ["True", "True"]


def test_a_refusal_is_an_error_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    require_isa("avx512vnni")
    from tinyai.runtime import runner as module

    load = module.load
    refused = "__get_cpuid_count(7, 0, &a, &b, &c, &d)"

    def without_tiles(text: str, toolchain: object) -> ctypes.CDLL:
        assert text.count(refused) == 1
        return load(text.replace(refused, "0"), toolchain)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "load", without_tiles)
    graph = layers(7, 5)
    inputs = random_inputs(graph, 0)
    with pytest.raises(EnvironmentProblem, match="this CPU cannot run the code"):
        Runner(graph, Target(isa="amx"))(*inputs)
    assert_equals_reference(graph, Runner(graph, Target(isa="auto"))(*inputs), inputs)
