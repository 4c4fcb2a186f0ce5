"""Regions built, exported, loaded and run: the hook, the entry, the compilers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import threading
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
import tinyai.runtime
from tests.support.paths import DIGITS
from tinyai.errors import LimitError, OptionError, ToolchainError
from tinyai.frontends.relay import regions, register_hooks
from tinyai.frontends.relay.functions import region_target
from tinyai.frontends.relay.load import load_model
from tinyai.runtime.tvm_module import c_sources, linker


@pytest.fixture(scope="module")
def network():
    """A module, its inputs, and TVM's outputs."""
    mod = nets.module(nets.residual(nets.residual()))
    inputs = nets.random_inputs(mod)
    return mod, inputs, nets.run_tvm(mod, inputs)


def built(mod, **options):
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(tinyai.partition_for_tinyai(mod, **options), target="llvm")


LOAD = """
import sys
import numpy as np, tvm
from tvm.contrib import graph_executor
executor = graph_executor.GraphModule(tvm.runtime.load_module(sys.argv[1])["default"](tvm.cpu()))
executor.run(**np.load(sys.argv[2]))
np.save(sys.argv[3], executor.get_output(0).numpy())
assert not any(name.split(".")[0] == "tinyai" for name in sys.modules), "tinyai was imported"
"""


def test_an_exported_library_runs_in_a_process_without_tinyai(network, tmp_path):
    mod, inputs, (expected,) = network
    library, values, result = (tmp_path / name for name in ("net.so", "in.npz", "out.npy"))
    built(mod).export_library(str(library))
    np.savez(values, **inputs)
    command = [sys.executable, "-c", LOAD, str(library), str(values), str(result)]
    subprocess.run(command, check=True, cwd=tmp_path)
    np.testing.assert_array_equal(np.load(result), expected)


def test_an_uncompiled_module_does_not_run_and_compile_makes_it(network):
    mod, inputs, (expected,) = network
    lib = built(mod)
    with pytest.raises(tvm.TVMError, match="tinyai_main_0"):
        nets.run_factory(lib, inputs)
    (found,) = nets.run_factory(tinyai.runtime.compile(lib), inputs)
    np.testing.assert_array_equal(found, expected)


def test_compile_wants_the_result_of_relay_build():
    with pytest.raises(OptionError, match="str"):
        tinyai.runtime.compile("library.so")


def test_build_gives_a_factory_that_runs_and_exports(network, tmp_path):
    mod, inputs, (expected,) = network
    factory = tinyai.build(mod, target="tinyai -isa=scalar -threads=1, llvm -mcpu=core-avx2")
    np.testing.assert_array_equal(nets.run_factory(factory, inputs)[0], expected)
    factory.export_library(str(tmp_path / "net.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "net.so"))
    np.testing.assert_array_equal(nets.run_factory(loaded, inputs)[0], expected)


def test_build_serves_the_aot_executor(network, tmp_path):
    mod, inputs, (expected,) = network
    aot = tvm.relay.backend.Executor("aot", {"interface-api": "packed"})
    factory = tinyai.build(mod, executor=aot)
    executor = tvm.runtime.executor.AotModule(factory["default"](tvm.cpu()))
    executor.set_input(**inputs)
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected)
    factory.export_library(str(tmp_path / "net.so"))


@pytest.mark.parametrize("kind", ["graph", "aot"])
def test_a_region_reads_and_makes_bools(kind):
    x, y = (relay.var(name, shape=(4, 5), dtype="int8") for name in "xy")
    given = relay.var("given", shape=(4, 5), dtype="bool")
    seen = relay.logical_and(relay.greater(x, y), given)
    results = relay.Tuple([relay.where(seen, x, y), seen])
    mod = tvm.IRModule.from_expr(relay.Function([x, y, given], results))
    rng = np.random.default_rng(0)
    inputs = {name: rng.integers(-3, 3, (4, 5)).astype("int8") for name in "xy"}
    inputs["given"] = rng.random((4, 5)) < 0.5
    expected = nets.run_tvm(mod, inputs)
    if kind == "graph":
        found = nets.run_factory(tinyai.build(mod), inputs)
    else:
        executor = tvm.relay.backend.Executor("aot", {"interface-api": "packed"})
        factory = tinyai.build(mod, executor=executor)
        runner = tvm.runtime.executor.AotModule(factory["default"](tvm.cpu()))
        runner.set_input(**inputs)
        runner.run()
        found = [runner.get_output(number).numpy() for number in (0, 1)]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("options", ["", "-isa=avx2"])
def test_what_a_build_exports_is_what_its_toolchain_makes_of_the_whole_file(
    network, options, tmp_path
):
    factory = tinyai.build(network[0], target=f"tinyai {options}, llvm")
    mine, whole = tmp_path / "mine.so", tmp_path / "whole.so"
    factory.export_library(mine)
    plain = built(network[0], sealed=True, **({"isa": "avx2"} if options else {}))
    plain.export_library(str(whole), fcompile=linker(tinyai.Toolchain(), kept={}))
    variants = () if options else ("avx512vnni", "avx2", "generic")
    symbols = subprocess.run(["nm", str(mine)], capture_output=True, text=True, check=True).stdout
    assert [name for name in variants if f"_main_0_run_{name}\n" not in symbols] == []
    assert mine.read_bytes() == whole.read_bytes()


def test_an_export_takes_a_compiler_of_its_own(network, tmp_path):
    mod, inputs, (expected,) = network
    library, archive = tmp_path / "net.so", tmp_path / "net.tar"
    factory = tinyai.build(mod, toolchain=tinyai.Toolchain("gcc"))
    factory.export_library(str(library), cc="g++")
    loaded = tvm.runtime.load_module(str(library))
    np.testing.assert_array_equal(nets.run_factory(loaded, inputs)[0], expected)
    factory.export_library(str(archive))
    with tarfile.open(archive) as files:
        assert any(name.endswith(".c") for name in files.getnames())


def test_build_takes_params(network):
    weight = relay.var("w", shape=(3, 3, 4, 4), dtype="int8")
    mod = nets.module(nets.requantize(nets.conv(nets.data(), weight=weight)))
    params = {"w": nets.weights(3, (3, 3, 4, 4))}
    inputs = nets.random_inputs(mod)
    (expected,) = nets.run_tvm(mod, {**inputs, **params})
    factory = tinyai.build(mod, params)
    (found,) = nets.run_factory(factory, {"data": inputs["data"]})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", ["llvm", "tinyai, tinyai, llvm", "tinyai speed, llvm"])
def test_a_bad_target_string_is_an_error(network, target):
    with pytest.raises(OptionError):
        tinyai.build(network[0], target=target)


@pytest.mark.parametrize("cc", ["gcc", "g++", "clang", "gcc -O2 -march=native"])
def test_the_compiler_is_the_users_to_choose(network, cc):
    if shutil.which(cc.split()[0]) is None:
        pytest.skip(f"{cc.split()[0]} is not installed")
    mod, inputs, (expected,) = network
    factory = tinyai.build(mod, toolchain=tinyai.Toolchain(cc, ("-Wall", "-Werror")))
    np.testing.assert_array_equal(nets.run_factory(factory, inputs)[0], expected)


def test_the_compiler_of_the_environment_is_honoured(network, tmp_path, monkeypatch):
    log = tmp_path / "called"
    wrapper = tmp_path / "my-cc"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec gcc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    tinyai.build(network[0])
    assert "-shared" in log.read_text()


def test_a_missing_compiler_is_a_clear_error(network, monkeypatch):
    with pytest.raises(ToolchainError, match=r"(?s)no C compiler.*no-such-cc.*install gcc"):
        tinyai.build(network[0], toolchain=tinyai.Toolchain("no-such-cc"))


def test_weights_are_stored_once(tmp_path):
    x = nets.data((1, 1, 1, 1024))
    weight = nets.weights(0, (1, 1, 1024, 2048))
    y = relay.nn.conv2d(
        x,
        relay.const(weight),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype="int32",
        channels=2048,
        kernel_size=(1, 1),
    )
    library = tmp_path / "net.so"
    built(nets.module(y)).export_library(str(library))
    assert weight.nbytes < library.stat().st_size < 1.2 * weight.nbytes


def test_two_executors_of_one_library_run_in_two_threads(network, tmp_path):
    from tvm.contrib import graph_executor

    mod, inputs, (expected,) = network
    built(mod).export_library(str(tmp_path / "net.so"))
    library = tvm.runtime.load_module(str(tmp_path / "net.so"))
    wrong = []

    def work():
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        for _ in range(100):
            executor.run(**inputs)
            wrong.extend([1] * int(not np.array_equal(executor.get_output(0).numpy(), expected)))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.fixture(scope="module")
def entry():
    """The region's packed function: int32[4,3] -> int32[4,3], one more."""
    mod = nets.module(relay.add(nets.data((4, 3), "int32", "x"), relay.const(1)))
    library = tinyai.runtime.compile(built(mod)).get_lib()
    return library.get_function("tvmgen_default_tinyai_main_0")


def test_the_entry_takes_dense_tensors(entry):
    x = tvm.nd.array(np.arange(12, dtype="int32").reshape(4, 3))
    out = tvm.nd.empty((4, 3), "int32")
    entry(x, out)
    np.testing.assert_array_equal(out.numpy(), x.numpy() + 1)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: tvm.nd.empty((4, 3), "float32"), "dtype"),
        (lambda: tvm.nd.empty((4, 3), "int8"), "dtype"),
        (lambda: tvm.nd.empty((3, 4), "int32"), "size of a dimension"),
        (lambda: tvm.nd.empty((4, 3, 1), "int32"), "number of dimensions"),
    ],
)
def test_the_entry_refuses_what_it_was_not_made_for(entry, bad, message):
    good = tvm.nd.array(np.zeros((4, 3), "int32"))
    for arguments in ((bad(), good), (good, bad())):
        with pytest.raises(tvm.TVMError, match=message):
            entry(*arguments)


def test_the_entry_refuses_a_wrong_number_of_arguments(entry):
    with pytest.raises(tvm.TVMError, match="number of arguments"):
        entry(tvm.nd.empty((4, 3), "int32"))


def test_registering_again_changes_nothing(network):
    assert tinyai.register() is True
    register_hooks()
    mod, inputs, (expected,) = network
    np.testing.assert_array_equal(nets.run_factory(tinyai.build(mod), inputs)[0], expected)


def test_limits_of_the_target_are_kept(network):
    for option in ("arena_limit", "weight_limit"):
        with pytest.raises(LimitError, match=option):
            built(network[0], **{option: 16})


def test_the_c_of_a_build_can_be_read(network):
    (text,) = c_sources(built(network[0]))
    assert "conv2d" in text
    assert "tvmgen_default_tinyai_main_0" in text


def test_the_c_of_a_factory_that_runs_is_the_same(network):
    assert c_sources(tinyai.build(network[0])) == c_sources(built(network[0], sealed=True)) != []


def test_a_target_of_ones_own_is_as_good_as_its_string(network):
    target = tinyai.Target(isa="scalar", threads=2)
    (text,) = c_sources(tinyai.build(network[0], target=target))
    assert [text] == c_sources(tinyai.build(network[0], target="tinyai -isa=scalar -threads=2"))
    (region,) = regions(tinyai.partition_for_tinyai(network[0], target=target)).values()
    assert region_target(region) == replace(target, rounding="upward")  # Relay's default
    report = tinyai.explain(network[0], target=target)
    assert report == tinyai.explain(network[0], isa="scalar", threads=2)


@pytest.mark.filterwarnings(r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning")
def test_a_path_is_as_good_as_the_module_in_it():
    for file in (str(DIGITS), DIGITS):
        partitioned = tinyai.partition_for_tinyai(file)
        assert tvm.ir.structural_equal(
            partitioned, tinyai.partition_for_tinyai(*load_model(DIGITS)), map_free_vars=True
        )
    assert tinyai.explain(DIGITS, prune=True) == tinyai.explain(partitioned)
    factory = tinyai.build(DIGITS)
    (found,) = nets.run_factory(factory, {"image": np.zeros((1, 1, 8, 8), "float32")})
    assert found.shape == (1, 10)
    with pytest.raises(OptionError, match="no file"):
        tinyai.build("none.onnx")
    with pytest.raises(OptionError, match="params beside a model file"):
        tinyai.build(DIGITS, {"w": 1})


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (None, "what an importer returns"),
        (relay.Function([], relay.const(1)), "IRModule.from_expr"),
        (3, "IRModule"),
    ],
)
def test_what_is_no_module_is_an_error(wrong, hint):
    for door in (tinyai.build, tinyai.partition_for_tinyai, tinyai.explain):
        with pytest.raises(OptionError, match=f"module\\n  found(.|\\n)*{hint}"):
            door(wrong)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"target": tvm.target.Target("llvm")}, r"found:   tvm\.target\.target\.Target 'llvm"),
        ({"target": None}, "NoneType"),
        ({"toolchain": "gcc"}, r"try:     tinyai\.Toolchain\('gcc'\)"),
        ({"executor": "aot"}, 'Executor\\("aot"'),
        ({"params": "w"}, "params\n  found:   builtins.str"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_an_error(network, arguments, told):
    with pytest.raises(OptionError, match=told):
        tinyai.build(network[0], **arguments)


def test_a_dynamic_batch_is_an_error_of_the_build_alone():
    x = relay.var("x", shape=(relay.Any(), 4), dtype="float32")
    mod = nets.module(relay.nn.relu(x))
    with pytest.raises(OptionError, match=r"found:   x: float32\[\?,4\]\n  allowed: fixed shapes"):
        tinyai.build(mod)
    assert tinyai.explain(mod).host


def test_a_module_without_regions_is_built_too():
    x = nets.data((1, 8), "float32", "x")
    mod = nets.module(relay.nn.softmax(x))
    inputs = nets.random_inputs(mod)
    expected = nets.run_tvm(mod, inputs)
    np.testing.assert_array_equal(nets.run_factory(tinyai.build(mod), inputs), expected)


def test_a_hostile_source_name_never_leaves_its_comment():
    name = '*/ system("x"); /* \\ ??/ \n #error'
    span = relay.Span(relay.SourceName(name), 1, 1, 1, 1)
    x = nets.data()
    call = nets.conv(x)
    call = relay.Call(call.op, call.args, call.attrs, span=span)
    (text,) = c_sources(built(nets.module(nets.requantize(call))))
    assert "* / system" in text
    assert '*/ system("x")' not in text
    assert "\n #error" not in text
