"""Between the partition and machine code: passes of TVM's, what was forgotten, what compiles."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from benchmarks.onnx_networks import quantize
from tests.relax.nets import (
    ONNX,
    OPTIONS,
    assert_equal,
    built,
    imported,
    onnx_runtime,
    run,
    samples,
)
from tinyai import Toolchain
from tinyai.errors import OptionError, ToolchainError
from tinyai.frontends.relax.pipeline import GenerateCode
from tinyai.relax import build, partition_for_tinyai, pipeline

SHAPE = (1, 3, 32, 32)


@pytest.fixture(scope="module")
def model():
    return quantize(ONNX["mobilenet_v2"](), form="qdq", activation="uint8", per_channel=True)


def assert_equals_onnx_runtime(executable, model) -> None:
    for sample in samples(SHAPE, 4):
        assert_equal(run(executable, [sample]), onnx_runtime(model)([sample]))


@pytest.mark.parametrize(
    "between",
    [
        relax.transform.FoldConstant(),
        relax.transform.LegalizeOps(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.EliminateCommonSubexpr(),
        relax.transform.DeadCodeElimination(),
        relax.get_pipeline("zero"),
    ],
    ids=lambda each: each.info.name,
)
def test_a_sealed_region_outlives_passes_of_tvms(model, between) -> None:
    partitioned = between(partition_for_tinyai(imported(model), **OPTIONS))
    assert_equals_onnx_runtime(built(partitioned), model)


def test_a_region_reads_and_makes_bools() -> None:
    b = relax.BlockBuilder()
    x, mask = (relax.Var(n, relax.TensorType((4, 5), t)) for n, t in (("x", "int8"), ("m", "bool")))
    with b.function("main", [x, mask]):
        with b.dataflow():
            turned = b.emit(relax.op.permute_dims(mask, [1, 0]))
            sums = b.emit(relax.op.add(x, relax.const(np.int8(3))))
            both = b.emit_output(relax.Tuple([turned, sums]))
        b.emit_func_output(both)
    assert "tinyai_main_0" in partition_for_tinyai(b.get()).script()
    values = np.arange(20, dtype=np.int8).reshape(4, 5)
    found = run(build(b.get()), [values, values % 3 == 0])
    assert_equal(found, [(values % 3 == 0).T, values + 3])


def test_a_forgotten_code_generation_is_an_error_that_names_it(model) -> None:
    partitioned = partition_for_tinyai(imported(model), **OPTIONS)
    with pytest.raises(Exception, match=r"RunCodegen\(\) is missing"):
        run(tvm.compile(partitioned, "llvm"), samples(SHAPE, 1))


def test_code_is_generated_once_of_a_sealed_module(model) -> None:
    partitioned = partition_for_tinyai(imported(model), **OPTIONS)
    relax.transform.RunCodegen()(partitioned)
    with pytest.raises(Exception, match="sealed=False"):
        relax.transform.RunCodegen()(partitioned)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_module_is_built_in_one_call_or_by_a_pipeline(model, threads: int) -> None:
    options = {**OPTIONS, "threads": threads}
    assert_equals_onnx_runtime(build(imported(model), **options), model)
    made = tvm.compile(imported(model), "llvm", relax_pipeline=pipeline(**options))
    assert_equals_onnx_runtime(made, model)


def test_a_toolchain_that_is_given_compiles_the_regions(model) -> None:
    assert_equals_onnx_runtime(build(imported(model), toolchain=Toolchain("g++"), **OPTIONS), model)
    with pytest.raises(ToolchainError, match="no-such-compiler"):
        build(imported(model), toolchain=Toolchain("no-such-compiler"), **OPTIONS)
    with pytest.raises(OptionError):
        build(imported(model), toolchain="gcc", **OPTIONS)


def test_weights_of_regions_are_in_their_code_alone_and_those_of_others_stay(model) -> None:
    """Whatever the others are called: RunCodegen notes constants by names."""
    noted = {"tinyai_main_0_tinyai_const_1": tvm.runtime.tensor(samples((2,), 1)[0])}
    mod = imported(model).with_attr("const_name_to_constant", noted)
    for options in ({}, {"sealed": False}):
        partitioned = partition_for_tinyai(mod, **options, **OPTIONS)
        lowered = GenerateCode()(partitioned)
        assert [*lowered.attrs["const_name_to_constant"]] == [*noted]
        assert_equals_onnx_runtime(tvm.compile(lowered, "llvm"), model)
