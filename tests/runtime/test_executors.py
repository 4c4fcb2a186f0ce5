"""Every executor and host of TVM runs tinyai's regions: its own result bit for bit, in threads too,
and in C programs without TVM."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tarfile
import threading

import numpy as np
import onnx
import pytest
import tvm
from tvm import relay
from tvm._ffi.libinfo import find_include_path
from tvm._ffi.runtime_ctypes import ArgTypeCode, DataType, Device, TVMArray, TVMByteArray
from tvm.contrib import graph_executor
from tvm.relay.backend import Executor, Runtime

import tests.support.networks as networks
import tests.support.relay_nets as nets
import tinyai
import tinyai.runtime
from tests.support.disk import on_disk
from tests.support.oracle import digest, pack, runner, unpack
from tests.support.paths import DRIVERS, ROOT
from tinyai.runtime.tvm_module import c_sources

HEADERS = ROOT / "tinyai/tvm_include"
THREADS, RUNS = 8, 200
SYMBOL = "tvmgen_default_tinyai_main_0"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


# --- Networks and what TVM makes of them -------------------------------------------------------


@functools.cache
def network(name):
    """A module with one input and one output."""
    if name == "residual":
        return relay.transform.InferType()(nets.module(nets.residual(nets.residual())))
    if name == "host_operator":
        scores = relay.cast(relay.nn.batch_flatten(nets.residual()), "float32")
        body = relay.nn.softmax(relay.multiply(scores, relay.const(0.05)))
        return relay.transform.InferType()(nets.module(body))
    if name == "digits_region":  # without the float layer after it
        return networks.as_plain_module(nets.only_region(partitioned("digits")))
    (found,) = (each for each in networks.NETWORKS if each.name == name)
    return networks.quantized(found)


@functools.cache
def samples(name):
    """Inputs by name, a set for each of THREADS threads; fewer where a run takes a second."""
    count = 2 if name == "mobilenet_nhwc" else THREADS
    return [nets.random_inputs(network(name), seed) for seed in range(count)]


@functools.cache
def expected(name, host):
    """TVM's outputs for the samples, on the same host: its exp differs between llvm and C.

    FoldScaleAxis would multiply the scale of digits' last layer, which ends a region, into float
    weights after it. That is as right, but no longer the same sum.
    """

    def make():
        with building(host, disabled_pass=["FoldScaleAxis"]):
            built = relay.build(network(name), target=host)
        run = runner(tinyai.runtime.compile(built, tinyai.Toolchain("gcc", ("-O1",))))
        return pack([array for inputs in samples(name) for array in run(inputs)])

    what = digest("executors", tvm.ir.save_json(network(name)), host, samples(name))
    return [[array] for array in unpack(on_disk("oracle", f"{what}.npz", make))]


def building(host, **options):
    """TVM's C has no vectors, and its schedules use them unless they are told not to."""
    config = {"tir.disable_vectorize": True} if host == "c" else {}
    return tvm.transform.PassContext(opt_level=3, config=config, **options)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Files of libraries, as ``export_library`` writes them without being told anything.

    AOT on the host "c" is the exception: TVM's C calls the regions without declaring them, which
    g++, its default, does not take.
    """
    as_c = {"cc": "gcc", "options": ["-Wno-implicit-function-declaration"]}

    @functools.cache
    def exported(name, host="llvm", executor="graph"):
        path = tmp_path_factory.mktemp("library") / "net.so"
        options = {"graph": {}, "aot": {"interface-api": "packed"}}[executor]
        with building(host):
            built = relay.build(partitioned(name), host, executor=Executor(executor, options))
        built.export_library(str(path), **(as_c if (host, executor) == ("c", "aot") else {}))
        return path

    return exported


@functools.cache
def partitioned(name):
    return tinyai.partition_for_tinyai(network(name))


def load(path):
    return tvm.runtime.load_module(str(path))


# --- Executors: from network and host to a function from inputs to outputs ---------------------


def graph(name, host, library, folder):
    return runner(load(library(name, host)))


def aot(name, host, library, folder):
    created = load(library(name, host, "aot"))["default"](tvm.cpu())
    executor = tvm.runtime.executor.AotModule(created)

    def run(inputs):
        executor.set_input(**inputs)
        executor.run()
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    return run


def vm(name, host, library, folder):
    with building(host):
        code, own = relay.vm.compile(partitioned(name), target=host).save()
    own.export_library(str(folder / "vm.so"))
    loaded = tvm.runtime.vm.Executable.load_exec(bytearray(code), load(folder / "vm.so"))
    machine = tvm.runtime.vm.VirtualMachine(loaded, tvm.cpu())
    return lambda inputs: [machine.run(**inputs).numpy()]


def debug_executor_of(path, folder):
    from tvm.contrib.debugger import debug_executor

    loaded = load(path)
    created, graph_json = loaded["debug_create"]("default", tvm.cpu()), loaded["get_graph_json"]()
    return debug_executor.GraphModuleDebug(created, [tvm.cpu()], graph_json, str(folder / "dump"))


def debug(name, host, library, folder):
    executor = debug_executor_of(library(name, host), folder)

    def run(inputs):
        executor.set_input(**inputs)
        executor.run()
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    return run


def rpc(name, host, library, folder):
    """A second process, which knows nothing of tinyai, behind a socket."""
    from tvm import rpc

    server = rpc.Server("127.0.0.1", port=9091, port_end=9991)
    remote = rpc.connect("127.0.0.1", server.port)
    remote.upload(bytearray(library(name, host).read_bytes()), "net.so")
    device = remote.cpu(0)
    executor = graph_executor.GraphModule(remote.load_module("net.so")["default"](device))

    def run(inputs):
        assert server.proc is not None, "the server lives until the last run"
        executor.run(**{each: tvm.nd.array(value, device) for each, value in inputs.items()})
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    return run


def zero_copy(name, host, library, folder):
    """The input stays where the caller has it: one array, written to before each run."""
    executor = graph_executor.GraphModule(load(library(name, host))["default"](tvm.cpu()))
    (param,) = network(name)["main"].params
    kept = tvm.nd.empty(param.checked_type.concrete_shape, param.checked_type.dtype)
    executor.set_input_zero_copy(param.name_hint, kept)

    def run(inputs):
        kept.copyfrom(inputs[param.name_hint])
        executor.run()
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    return run


def c_program(name, host, library, folder):
    """AOT with TVM's C interface: sources, a driver, a compiler, and no TVM in the program."""
    main = network(name)["main"]
    executor = Executor("aot", {"interface-api": "c", "unpacked-api": True})
    with building(host):
        cut = tinyai.partition_for_tinyai(network(name), abi="unpacked")
        built = relay.build(cut, host, executor=executor, runtime=Runtime("crt"))
    (param,) = main.params
    sizes = [_bytes_of(each) for each in (param.checked_type, main.ret_type)]
    (folder / "tvmgen_default.h").write_text(_interface_header(param.name_hint, *sizes))
    definitions = [f"-DINPUT_NAME={param.name_hint}"]
    definitions += [f"-D{n}_BYTES={s}" for n, s in zip(("INPUT", "OUTPUT"), sizes, strict=True)]
    program = compile_program(folder, built, DRIVERS / "unpacked.c", *definitions)

    def run(inputs):
        (value,) = inputs.values()
        process = subprocess.run([program], input=value.tobytes(), capture_output=True, check=True)
        array = np.frombuffer(process.stdout, main.ret_type.dtype)
        return [array.reshape(main.ret_type.concrete_shape)]

    return run


def _bytes_of(tensor_type):
    return int(np.prod(tensor_type.concrete_shape)) * np.dtype(tensor_type.dtype).itemsize


def _interface_header(input_name, input_bytes, output_bytes):
    """TVM writes this header in its Model Library Format, which needs USE_MICRO; this part does
    not."""
    create = tvm.get_global_func("runtime.InterfaceCCreate")
    sizes = {input_name: input_bytes}, {"output": output_bytes}
    return create("default", [input_name], ["output"], [], {}, [], 0, *sizes).get_source()


def write_sources(folder, built):
    """The C files of a built module, in ``folder``."""
    texts = c_sources(built)
    files = [folder / f"part{index}.c" for index in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return files


def compile_program(folder, built, driver, *options):
    """An executable of a built module's C sources and a driver."""
    files = write_sources(folder, built)
    program = folder / driver.stem
    includes = [f"-I{path}" for path in [*find_include_path(), folder]]
    command = ["gcc", "-std=gnu11", "-O1", *includes, *options, "-o", program, driver, *files]
    subprocess.run([*command, "-lm", "-lpthread"], check=True)
    return program


# --- Every network through every executor and host ---------------------------------------------

EXECUTORS = [
    *((make, "llvm") for make in (graph, debug, vm, aot, rpc, zero_copy)),
    *((make, "c") for make in (graph, aot, c_program)),
]
SMALL = ("residual", "host_operator")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "make", "host"),
    [
        pytest.param(
            *(name, make, host),
            marks=() if name in SMALL or (name, make) == ("digits", aot) else pytest.mark.slow,
            id=f"{name}-{make.__name__}-{host}",
        )
        for name in (*SMALL, "digits", "mobilenet_nhwc")
        for make, host in EXECUTORS
    ],
)
def test_the_executor_gives_tvms_result(name, make, host, library, tmp_path):
    run = make(name, host, library, tmp_path)
    for inputs, outputs in zip(samples(name), expected(name, host), strict=True):
        found = run(inputs)
        assert len(found) == len(outputs)
        for mine, theirs in zip(found, outputs, strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.long
@pytest.mark.parametrize("name", ["residual", "digits"])
def test_the_samples_tell_networks_apart(name):
    """Equal outputs prove something only where different inputs have different ones."""
    first, second, *_ = (outputs[0] for outputs in expected(name, "llvm"))
    assert not np.array_equal(first, second)
    assert len(np.unique(first)) > 5


def test_profile_lists_a_region_by_its_symbol(library, tmp_path):
    executor = debug_executor_of(library("host_operator"), tmp_path)
    report = executor.profile(**samples("host_operator")[0])
    names = [call["Name"] for call in report.calls]
    assert names[0] == SYMBOL
    assert any("softmax" in name for name in names[1:])


# --- Views -------------------------------------------------------------------------------------


def view(address, shape, dtype, byte_offset=0):
    """A tensor in somebody else's memory, as TVM's C API takes it; its memory is not kept alive."""
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    tensor = TVMArray(
        data=address,
        device=Device(Device.kDLCPU, 0),
        ndim=len(shape),
        dtype=DataType(dtype),
        shape=sizes,
        byte_offset=byte_offset,
    )
    return tvm.nd.NDArray(ctypes.pointer(tensor), True), (tensor, sizes)


def test_zero_copy_takes_a_view_that_begins_inside_of_its_memory(library):
    executor = graph_executor.GraphModule(load(library("residual"))["default"](tvm.cpu()))
    for inputs, (outputs,) in zip(samples("residual"), expected("residual", "llvm"), strict=True):
        memory = tvm.nd.array(np.pad(inputs["data"].reshape(-1), (64, 0)))
        address = memory.handle.contents.data
        tensor, _kept = view(address, inputs["data"].shape, "int8", byte_offset=64)
        executor.set_input_zero_copy("data", tensor)
        executor.run()
        np.testing.assert_array_equal(executor.get_output(0).numpy(), outputs)


@pytest.mark.parametrize(("start", "byte_offset"), [(0, 0), (1, 0), (0, 3), (7, 64)])
def test_a_region_takes_views_at_any_address(library, start, byte_offset):
    """TVM's own zero copy asks for 64 bytes; callers of the packed function need not keep to it."""
    entry = load(library("residual")).get_function(SYMBOL, True)
    for inputs, (outputs,) in zip(samples("residual"), expected("residual", "llvm"), strict=True):
        value = inputs["data"]
        rooms = [np.zeros(value.nbytes + 256, np.int8) for _ in range(2)]
        first = [-room.ctypes.data % 64 + start for room in rooms]
        taken = slice(first[0] + byte_offset, first[0] + byte_offset + value.nbytes)
        rooms[0][taken] = value.reshape(-1)
        (x, _x), (out, _out) = (
            view(room.ctypes.data + at, value.shape, "int8", byte_offset)
            for room, at in zip(rooms, first, strict=True)
        )
        entry(x, out)
        given = slice(first[1] + byte_offset, first[1] + byte_offset + value.nbytes)
        np.testing.assert_array_equal(rooms[1][given].reshape(value.shape), outputs)
        assert not rooms[1][: given.start].any(), "nothing is written in front"
        assert not rooms[1][given.stop :].any(), "nothing is written behind"


# --- Threads -----------------------------------------------------------------------------------


def side_by_side(count, work):
    """``work(i)`` in ``count`` threads; their results. What one raises, this raises."""
    results, errors = [None] * count, []

    def call(index):
        try:
            results[index] = work(index)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("count", [2, THREADS])
@pytest.mark.parametrize("name", ["residual", "digits"])
def test_executors_of_one_library_run_side_by_side(name, count, library):
    loaded = load(library(name))
    values, outputs = samples(name), expected(name, "llvm")

    def work(index):
        executor = graph_executor.GraphModule(loaded["default"](tvm.cpu()))
        wrong = 0
        for _ in range(RUNS):
            executor.run(**values[index])
            wrong += not np.array_equal(executor.get_output(0).numpy(), outputs[index][0])
        return wrong

    assert side_by_side(count, work) == [0] * count


@pytest.fixture(scope="module")
def thread_sanitizer(tmp_path_factory):
    """The compiler's flags; skips where it has no ThreadSanitizer or the system does not run it."""
    flags = ["-fsanitize=thread", "-g"]
    folder = tmp_path_factory.mktemp("tsan")
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    command = ["gcc", *flags, "-o", folder / "empty", folder / "empty.c"]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("gcc has no ThreadSanitizer (libtsan)")
    process = subprocess.run([folder / "empty"], capture_output=True, text=True)
    if process.returncode != 0:
        pytest.skip(f"ThreadSanitizer does not run here: {process.stderr.strip()[:200]}")
    return flags


def run_threads(name, runs, folder, flags):
    """The emitted C in a program of eight threads; its process."""
    values, outputs = samples(name), expected(name, "llvm")
    pairs = [
        (next(iter(inputs.values())).tobytes(), out.tobytes())
        for inputs, (out,) in zip(values, outputs, strict=True)
    ]
    with building("llvm"):
        built = relay.build(partitioned(name), target="llvm")
    options = [f"-DENTRY={SYMBOL}", f"-DTHREADS={THREADS}", f"-DRUNS={runs}"]
    options += [f"-DINPUT_BYTES={len(pairs[0][0])}", f"-DOUTPUT_BYTES={len(pairs[0][1])}"]
    program = compile_program(folder, built, DRIVERS / "threads.c", *options, *flags)
    sent = b"".join(part for pair in pairs for part in pair)
    environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run([program], input=sent, env=environment, capture_output=True, check=False)


# The second has more kinds of kernels, and takes longer.
@pytest.mark.parametrize(
    ("name", "runs"),
    [("residual", RUNS), pytest.param("digits_region", 20, marks=pytest.mark.slow)],
)
def test_the_emitted_c_is_clean_under_thread_sanitizer(name, runs, thread_sanitizer, tmp_path):
    process = run_threads(name, runs, tmp_path, thread_sanitizer)
    assert process.stderr == b""
    assert process.stdout == f"{THREADS * runs} runs, 0 wrong\n".encode()
    assert process.returncode == 0


def test_thread_sanitizer_sees_what_the_regions_share(thread_sanitizer, tmp_path):
    process = run_threads("residual", RUNS, tmp_path, [*thread_sanitizer, "-DSHARED_ARENA"])
    assert b"data race" in process.stderr
    assert process.returncode != 0


# --- Headers for TVM's C -----------------------------------------------------------------------

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]


@pytest.mark.parametrize(
    "header", sorted(path.relative_to(HEADERS).as_posix() for path in HEADERS.rglob("*.h"))
)
@pytest.mark.parametrize(
    "compiler", [["gcc", "-xc", "-std=c99"], ["gcc", "-xc++", "-std=c++17"]], ids=["c99", "c++17"]
)
def test_a_header_stands_alone_without_a_warning(header, compiler):
    text = f"#include <{header}>\n#include <{header}>\n"
    command = [*compiler, *WARNINGS, f"-I{HEADERS}", "-"]
    process = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert process.stderr == ""
    assert process.returncode == 0


class Value(ctypes.Union):
    """What Python's side of TVM takes a packed function's argument for."""

    _fields_ = [
        ("v_int64", ctypes.c_int64),
        ("v_float64", ctypes.c_double),
        ("v_handle", ctypes.c_void_p),
        ("v_str", ctypes.c_char_p),
    ]


TYPE_CODES = {
    "kTVMArgInt": ArgTypeCode.INT,
    "kTVMArgFloat": ArgTypeCode.FLOAT,
    "kTVMOpaqueHandle": ArgTypeCode.HANDLE,
    "kTVMNullptr": ArgTypeCode.NULL,
    "kTVMDataType": ArgTypeCode.TVM_TYPE,
    "kDLDevice": ArgTypeCode.DLDEVICE,
    "kTVMDLTensorHandle": ArgTypeCode.DLTENSOR_HANDLE,
    "kTVMObjectHandle": ArgTypeCode.OBJECT_HANDLE,
    "kTVMModuleHandle": ArgTypeCode.MODULE_HANDLE,
    "kTVMPackedFuncHandle": ArgTypeCode.PACKED_FUNC_HANDLE,
    "kTVMStr": ArgTypeCode.STR,
    "kTVMBytes": ArgTypeCode.BYTES,
    "kTVMNDArrayHandle": ArgTypeCode.NDARRAY_HANDLE,
    "kTVMObjectRValueRefArg": ArgTypeCode.OBJECT_RVALUE_REF_ARG,
    "kDLCPU": Device.kDLCPU,
    "kDLCUDA": Device.kDLCUDA,
    "kDLCUDAHost": Device.kDLCUDAHost,
    "kDLOpenCL": Device.kDLOpenCL,
    "kDLExtDev": Device.kDLExtDev,
}


def test_the_headers_state_the_layouts_and_numbers_of_tvms_python_package(tmp_path):
    wanted = dict(TYPE_CODES)
    structures = {"DLTensor": TVMArray, "TVMByteArray": TVMByteArray, "TVMValue": Value}
    for name, structure in structures.items():
        wanted[f"sizeof({name})"] = ctypes.sizeof(structure)
        for field, *_ in structure._fields_:
            wanted[f"offsetof({name}, {field})"] = getattr(structure, field).offset
    wanted |= {"sizeof(DLDataType)": ctypes.sizeof(DataType), "sizeof(DLDevice)": 8}
    lines = "\n".join(f'printf("%d\\n", (int)({text}));' for text in wanted)
    program = tmp_path / "layout"
    source = f"""#include <stdio.h>
#include <tvm/runtime/c_backend_api.h>
int main(void) {{ {lines} return 0; }}
"""
    command = ["gcc", f"-I{HEADERS}", "-xc", "-o", program, "-"]
    subprocess.run(command, input=source, text=True, check=True)
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert dict(zip(wanted, map(int, output.split()), strict=True)) == wanted


class Registry(ctypes.Structure):
    """Names and functions of a library that is linked in."""

    _fields_ = [("names", ctypes.c_void_p), ("functions", ctypes.POINTER(ctypes.c_void_p))]


def test_a_library_for_the_c_runtime_registers_its_regions(tmp_path):
    runtime = Runtime("crt", {"system-lib": True})
    with building("c"):
        built = relay.build(partitioned("host_operator"), target="c", runtime=runtime)
    includes = [f"-I{path}" for path in find_include_path()]
    command = ["gcc", "-shared", "-fPIC", *includes, "-o", tmp_path / "net.so"]
    subprocess.run([*command, *write_sources(tmp_path, built), "-lm"], check=True)
    loaded = ctypes.CDLL(str(tmp_path / "net.so"))
    loaded.TVMSystemLibEntryPoint.restype = ctypes.POINTER(ctypes.POINTER(Registry))
    registry = loaded.TVMSystemLibEntryPoint().contents.contents
    count, *names = ctypes.string_at(registry.names, 200).split(b"\0")
    assert SYMBOL.encode() in names
    at = ctypes.cast(getattr(loaded, SYMBOL), ctypes.c_void_p).value
    assert at in registry.functions[: count[0]]


# --- TVM's command line ------------------------------------------------------------------------


def test_the_shells_tvmc_compiles_and_runs_a_file(tmp_path):
    a, b = (np.arange(6, dtype="int32").reshape(2, 3) * factor for factor in (1, -70_000))
    model, package, values, outputs = (
        tmp_path / name for name in ("net.onnx", "net.tar", "in.npz", "out.npz")
    )
    onnx.save(sum_times_first(a.shape), model)
    np.savez(values, a=a, b=b)
    tvmc = [sys.executable, "-m", "tinyai", "tvmc"]
    target = ["--target", "tinyai -isa=scalar, llvm"]
    subprocess.run([*tvmc, "compile", *target, "--output", package, model], check=True)
    with tarfile.open(package) as files:
        assert SYMBOL.encode() in files.extractfile("mod.so").read()
    subprocess.run([*tvmc, "run", package, "--inputs", values, "--outputs", outputs], check=True)
    with np.load(outputs) as found:
        np.testing.assert_array_equal(found["output_0"], (a + b) * a)


def sum_times_first(shape):
    """An ONNX model, int32: (a + b) * a."""
    kind = onnx.TensorProto.INT32
    names = ("a", "b", "y")
    a, b, y = (onnx.helper.make_tensor_value_info(name, kind, shape) for name in names)
    nodes = [
        onnx.helper.make_node("Add", ["a", "b"], ["sum"]),
        onnx.helper.make_node("Mul", ["sum", "a"], ["y"]),
    ]
    made = onnx.helper.make_graph(nodes, "graph", [a, b], [y])
    return onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 13)])
