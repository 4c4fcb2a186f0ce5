"""Random modules, imported from random ONNX files: equal to what the file's own reader makes of
them, or on the host with a reason, whatever passes of TVM's ran before and after the partition.

TVM's importer reads some files as another network than ONNX Runtime does. There the module is what
counts: TVM's own build of it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from tests.relax.nets import Array, built, by_tvm, regions, run
from tests.support.onnx_bounds import bound, steps_off
from tests.support.random_onnx import OnnxModel, random_onnx, write
from tests.support.random_onnx import run as of_onnx_runtime
from tinyai.errors import TinyAIError, UsageWarning
from tinyai.frontends.files import network_of_file
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.relax import explain, partition_for_tinyai
from tinyai.target import Target

MODELS = 60
MANY = 600  # in the slow tests
PARTS = 6
ISA = "scalar"  # other instruction sets have tests of their own

BEFORE = {
    "CanonicalizeBindings": relax.transform.CanonicalizeBindings(),
    "EliminateCommonSubexpr": relax.transform.EliminateCommonSubexpr(),
    "DeadCodeElimination": relax.transform.DeadCodeElimination(),
    "ConvertLayout": relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
    "FoldConstant": relax.transform.FoldConstant(),
}
AFTER = {**BEFORE, "LegalizeOps": relax.transform.LegalizeOps()}


def mode_of(seed: int) -> str:
    return "upward" if seed % 5 == 0 else "onnx"


def imported(seed: int) -> tuple[OnnxModel, Any] | None:
    """A random file and its module; None where TVM's importer, which knows no QOperators, has
    none."""
    model = random_onnx(seed)
    if model.floats is None:
        return None
    try:
        return model, from_onnx(model.integers, keep_params_in_input=False)
    except Exception:  # TVM's importer raises errors of many kinds
        return None


def inputs_of(mod: tvm.IRModule, model: OnnxModel) -> list[Array]:
    names = [getattr(each, "name", None) or each.name_hint for each in mod["main"].params]
    return [model.inputs[name] for name in names]


def partitioned(mod: tvm.IRModule, mode: str) -> tvm.IRModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UsageWarning)  # nothing is taken of some
        return partition_for_tinyai(mod, rounding=mode, isa=ISA)


def by_file(file: Path, model: OnnxModel, mode: str) -> Array | None:
    """What the reader of files makes of it; None of what it refuses."""
    try:
        network = network_of_file(file, Target(rounding=mode))
    except TinyAIError:
        return None
    inputs = [model.inputs[port.name] for port in network.inputs]
    (result,) = run_graph(optimize(network.graph), inputs)
    return result


def onnx_shape(model: OnnxModel) -> tuple[int, ...]:
    return next(array.shape for array in of_onnx_runtime(model.integers, model.inputs))


def fault_of(seed: int, folder: Path) -> tuple[str, str]:
    """What is wrong with one model, and what became of it."""
    found = imported(seed)
    if found is None:
        return "", "not imported"
    (model, mod), mode = found, mode_of(seed)
    report, made = explain(mod, rounding=mode, isa=ISA), partitioned(mod, mode)
    named = f"seed {seed}, {mode}, {', '.join(model.operators)}: "
    if own := [row for row in report.host if "fault" in row.reason.clause]:
        return f"{named}{own[0].reason}", "fault"
    if not regions(made):
        assert all(row.reason.clause for row in report.host)
        return "", "host"
    inputs = inputs_of(mod, model)
    (result,) = run(built(made), inputs)
    write(folder / "model.onnx", model, is_open=False)
    of_file = by_file(folder / "model.onnx", model, mode)
    end = "parts" if report.host else "whole"
    if of_file is not None and end == "whole" and np.array_equal(result, of_file):
        return "", "equal"
    most = bound(model, mode)
    if result.shape == onnx_shape(model) and steps_off(model, result) <= most:
        return "", end
    (by_module,) = by_tvm(mod, inputs)
    off = np.abs(result - by_module.astype(np.float64)).max()
    return (f"{named}{off} steps off TVM's own" if off > most + 1 else ""), "misread by TVM"


def faults_of(seeds: Sequence[int], folder: Path) -> tuple[list[str], Counter[str]]:
    found = [fault_of(seed, folder) for seed in seeds]
    return [fault for fault, _ in found if fault], Counter(end for _, end in found)


def test_a_random_module_equals_its_file_or_stays_on_the_host(tmp_path: Path) -> None:
    faults, ends = faults_of(range(MODELS), tmp_path)
    assert not faults, "\n".join(faults)
    assert ends["equal"] > MODELS / 5
    assert ends["misread by TVM"] <= MODELS / 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_so_do_many(tmp_path: Path, part: int) -> None:
    count = MANY // PARTS
    faults, ends = faults_of(range(count * part, count * (part + 1)), tmp_path)
    assert not faults, "\n".join(faults)
    assert ends["equal"] > count / 5


# --- Passes of TVM's before and after the partition -----------------------------------------------


def through(mod: tvm.IRModule, names: Sequence[str]) -> tvm.IRModule:
    for name in names:
        mod = AFTER[name](mod)
    return mod


def passes_of(seed: int, known: Sequence[str]) -> list[str]:
    drawn = np.random.default_rng(seed)
    return [str(each) for each in drawn.choice(known, size=int(drawn.integers(1, 5)))]


def fault_with_passes(seed: int) -> tuple[str, str]:
    found = imported(seed)
    if found is None:
        return "", "not imported"
    (model, mod), mode = found, mode_of(seed)
    before, after = passes_of(seed, [*BEFORE]), passes_of(seed + 1, [*AFTER])
    plain = partitioned(mod, mode)
    if not regions(plain):
        return "", "host"
    inputs = inputs_of(mod, model)
    (wanted,) = run(built(plain), inputs)
    try:
        altered = through(mod, before)
    except tvm.error.InternalError:  # ConvertLayout fails on operators that have several results
        return "", "refused by TVM"
    changed = partitioned(altered, mode)
    (result,) = run(built(through(changed, after)), inputs)
    named = f"seed {seed}, {mode}, {', '.join(model.operators)}, {before}, {after}: "
    off = np.abs(result - wanted.astype(np.float64)).max()
    if "FoldConstant" in before or explain(mod, rounding=mode, isa=ISA).host:
        # The host computes in floats, and FoldConstant makes floats of weights: a step more.
        return (f"{named}{off} steps apart" if off > bound(model, mode) + 1 else ""), "near"
    if len(regions(changed)) != 1:
        return f"{named}{len(regions(changed))} regions", "regions"
    return (f"{named}{off} steps apart" if off else ""), "equal"


def test_passes_before_and_after_the_partition_change_no_value() -> None:
    found = [fault_with_passes(seed) for seed in range(50)]
    faults = [fault for fault, _ in found if fault]
    assert not faults, "\n".join(faults)
    assert Counter(end for _, end in found)["equal"] >= 4
