"""The test cases that come with the package onnx, of nearly every operator: read as they mean, or
refused; and with pairs around them ONNX Runtime's own integers, or refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import tinyai
from tests.support.float_meaning import MEANING, evaluated
from tests.support.onnx_backend_tests import (
    FOLDER,
    PRODUCT,
    Case,
    Paired,
    behind_a_product,
    cases,
    paired,
)
from tinyai.checking.onnxruntime import exact_session
from tinyai.errors import BoundaryError, OptionError, TinyAIError
from tinyai.frontends.files import network_of_file, read_file
from tinyai.ir import Array
from tinyai.quantizer.data import CalibrationError
from tinyai.quantizer.report import output_row
from tinyai.reference import run_graph
from tinyai.source import Call, post_order
from tinyai.target import Target

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=f"onnx {onnx.__version__} has no cases")
# Of a float32 result, beside its size.
NEAR = 1e-3
PARTS = 24
DTYPES = ("uint8", "int8")


def is_near(found: Array, wanted: Array) -> bool:
    if found.shape != wanted.shape:
        return False
    if wanted.dtype.kind != "f":
        return bool(np.array_equal(found, wanted))
    return bool(np.allclose(found, wanted, rtol=NEAR, atol=NEAR, equal_nan=True))


def read_as(case: Case) -> str:
    """What becomes of a case: it is read as it means, or wrong, or not read, or not to the end."""
    try:
        model = read_file(case.file)
    except TinyAIError:
        return "refused"
    calls = [each for each in post_order(model.result) if isinstance(each, Call)]
    if not {call.op for call in calls} <= {*MEANING, "dequantize"}:
        return "partly read"
    given, wanted = case.tensors()
    known = {end.expr: _exact(given[end.name]) for end in model.inputs}
    with np.errstate(all="ignore"):
        values = evaluated(model.result, known)
    found = [np.asarray(values[end.expr]) for end in model.outputs]
    return "right" if all(map(is_near, found, wanted)) else "wrong"


def _exact(value: Array) -> Array:
    return value.astype(np.float64) if value.dtype == np.float32 else value


# Integers that divide are refused by name: the vocabulary's divide is of floats.
INTEGERS_DIVIDED = {"test_div_uint8"}


def is_wrong_itself(name: str) -> bool:
    """onnx 1.18 split the heads of Attention in another way, where operands have three dimensions
    or there are fewer heads of keys; 1.19 and 1.20 have the right numbers, which are ours."""
    split = name.startswith("test_attention_3d") or "gqa" in name
    return split and onnx.__version__.startswith("1.18.")


def test_models_of_onnx_mean_what_onnx_says() -> None:
    found = {case.folder.name: read_as(case) for case in cases()}
    wrong = {name for name, how in found.items() if how == "wrong" and not is_wrong_itself(name)}
    assert wrong == INTEGERS_DIVIDED
    assert Counter(found.values())["right"] > 290  # 302 of onnx 1.18


def integers_of(case: Case, folder: Path, dtype: str) -> Counter[str]:
    """How many of a case's ways are ``equal``, or ``refused``, or "a way: how many steps off"."""
    counts: Counter[str] = Counter()
    for number, made in enumerate(paired(case, dtype)):
        file = folder / "model.onnx"
        onnx.save(made.model, file)
        try:
            network = network_of_file(file, Target(rounding="onnx"))
        except BoundaryError:
            counts["refused"] += 1
            continue
        ours = run_graph(network.graph, [made.inputs[port.name] for port in network.inputs])
        theirs = by_onnx_runtime(made)
        equal = all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        counts["equal" if equal else f"{case.folder.name} {number} {dtype}"] += 1
    return counts


def by_onnx_runtime(made: Paired) -> list[Array]:
    session = exact_session(made.model.SerializeToString(), keeps_int8=False)
    return [np.asarray(each) for each in session.run(None, dict(made.inputs))]


def require_equal(some: list[Case], folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number, case in enumerate(some):
        counts += integers_of(case, folder, DTYPES[number % len(DTYPES)])
    assert counts.keys() <= {"equal", "refused"}, counts
    return counts


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_with_pairs_they_have_onnx_runtimes_integers(part: int, tmp_path: Path) -> None:
    """844 are equal of onnx 1.18, and 3,206 refused, most of which ONNX Runtime runs as floats."""
    assert require_equal(cases()[part::PARTS], tmp_path)["equal"] > 5


# --- Quantized ------------------------------------------------------------------------------------

# dB: the noise of a result in ONNX Runtime beside the report's, whose pairs are floats. Of few
# values one that is a step apart says much.
ALIKE, TELLING, FEW = 3.0, 40.0, 64
# Of which ONNX Runtime draws other numbers at each run, or whose result is what a pair makes.
OWN_WILL = ("test_training_dropout", "test_bernoulli", "test_quantizelinear")


def noise_of(case: Case, folder: Path) -> str:
    """How a case behind a product is quantized: "like the report", or what is wrong."""
    made = behind_a_product(case)
    if made is None:
        return "none"
    source, file = folder / "float.onnx", folder / "int8.onnx"
    onnx.save(made, source)
    rng, (value, *_) = np.random.default_rng(1), made.graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    samples = [{PRODUCT: rng.normal(size=shape).astype(np.float32)} for _ in range(3)]
    try:
        floats = [results_of(source, each) for each in samples]
    except Exception:  # of ONNX Runtime, which does not have all operators, or not of such values
        return "none"
    try:
        quantized = tinyai.quantize_file(source, samples)
        quantized.save(file)
    except OptionError:  # no layer but shapes, or a Gemm whose bias is a matrix
        return "refused"
    except CalibrationError:  # a float that is infinite or not a number
        return "none"
    integers = [results_of(file, each) for each in samples]
    for number, row in enumerate(quantized.report.outputs):
        wanted, found = ([each[number] for each in of] for of in (floats, integers))
        noise = output_row("", wanted, found).sqnr if wanted[0].dtype.kind == "f" else None
        if noise is None or row.sqnr is None or min(noise, row.sqnr) > TELLING:
            continue
        few = sum(each.size for each in wanted) < FEW
        if abs(noise - row.sqnr) > (2 * ALIKE if few else ALIKE):
            return f"result {number}: {noise:.1f} dB, in the report {row.sqnr:.1f}"
    return "like the report"


def results_of(file: Path, inputs: Mapping[str, Array]) -> list[Array]:
    """As users run it, with ONNX Runtime's own settings but for exact sums."""
    session = exact_session(file, keeps_int8=False)
    return [np.asarray(each) for each in session.run(None, dict(inputs))]


def require_quantized(some: list[Case], folder: Path) -> Counter[str]:
    wrong = {}
    counts: Counter[str] = Counter()
    for case in some:
        if case.folder.name.startswith(OWN_WILL):
            continue
        how = noise_of(case, folder)
        counts[how] += 1
        if how not in ("none", "refused", "like the report"):
            wrong[case.folder.name] = how
    assert not wrong
    return counts


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::tinyai.errors.UsageWarning")
def test_behind_a_product_some_are_quantized_for_onnx_runtime(tmp_path: Path) -> None:
    assert require_quantized(cases()[::PARTS], tmp_path)["like the report"] > 12


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tinyai.errors.UsageWarning")
@pytest.mark.parametrize("part", range(1, PARTS))
def test_behind_a_product_all_are(part: int, tmp_path: Path) -> None:
    require_quantized(cases()[part::PARTS], tmp_path)
