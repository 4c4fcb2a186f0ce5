"""Random stretches of floats between dequantize and quantize, beside their meaning in float64.

No framework is asked. Where one is the oracle, bit for bit, tests of its own compare with it; these
find what nobody thought of, such as a factor that is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pytest

from tests.support.cases import assert_same
from tests.support.paths import ROOT
from tests.support.random_stretches import OPERATORS, Site, Value, random_model
from tests.support.stretches import ARITHMETICS, compared, lowered, operators_of, table
from tinyai.errors import UnsupportedError
from tinyai.ir import Array, Graph
from tinyai.ops import scales
from tinyai.qdq import accumulators, averages, limits, rules
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

FEW = 250  # of each arithmetic, by the references
GRAPHS = 1500  # so many show every operator
COMPILED = 50
MANY = 2000  # in C, in the slow tests
ISAS = ("scalar", "generic", "native")
# TFLite's functions take int8 alone; int16 is TVM's.
DTYPES: dict[str, Sequence[str]] = {
    "upward": ("int8", "uint8", "int8", "uint8", "int16"),
    "tflite": ("int8",) * 7 + ("uint8",),
}
# What has no C whatever its operands are, and under which arithmetic; every other operator has to
# be seen some times.
FUNCTIONS = {"abs", "erf", "exp", "log", "log_softmax", "negative", "rsqrt", "sqrt", "square"}
REFUSED = {
    "tflite": FUNCTIONS | {"layer_norm", "rms_norm", "sum", "l2"},
    "onnx": {"log_softmax", "l2"},
    "torch": {"l2"},
    "upward": {"l2"},
}
LEAST = 3

Run = Callable[[Graph, Sequence[Array]], list[Array]]


@dataclass
class Survey:
    """What was found of many models: faults, and how often each operator was taken. ``offered`` are
    all that were tried."""

    faults: list[str] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)
    offered: set[str] = field(default_factory=set)


def surveyed(mode: str, first: int, graphs: int, run: Run) -> Survey:
    """So many models that have integers under an arithmetic, and results that tell something."""
    survey, names, counted = Survey(), list(OPERATORS), 0
    for seed in count(first):
        # Every operator has its turn to begin.
        only = names[seed % len(names)] if seed % 3 == 0 else ""
        model = random_model(seed, DTYPES.get(mode, ("int8", "uint8")), only)
        survey.offered.update(op.op for end in model.results for op in operators_of(end, {}))
        try:
            graph = lowered(model, mode)
        except UnsupportedError:
            continue
        stretches = list(compared(model, run(graph, model.samples), mode))
        survey.faults += [f"seed {seed}, {each}" for each in stretches if each.wrong]
        survey.taken.update(op for each in stretches if each.telling for op in each.operators)
        counted += all(each.telling for each in stretches)
        if counted == graphs:
            return survey
    raise AssertionError


def run_in_c(graph: Graph, samples: Sequence[Array]) -> list[Array]:
    """By one instruction set after the other; the reference's results."""
    isa = ISAS[len(graph.nodes) % len(ISAS)]
    results = Runner(graph, Target(isa=isa))(*samples)
    for found, expected in zip(results, run_graph(graph, samples), strict=True):
        assert_same(found, expected, f"C for {isa}, and the reference")
    return results


@pytest.mark.parametrize("mode", ARITHMETICS)
def test_the_integers_of_a_stretch_mean_its_floats(mode: str) -> None:
    survey = surveyed(mode, GRAPHS, FEW, run_graph)
    assert not survey.faults, "\n".join(survey.faults)


@pytest.mark.long
@pytest.mark.parametrize("mode", ARITHMETICS)
def test_so_do_those_of_every_operator(mode: str) -> None:
    survey = surveyed(mode, 0, GRAPHS, run_graph)
    assert not survey.faults, "\n".join(survey.faults)
    rare = {operator for operator in survey.offered if survey.taken[operator] < LEAST}
    assert sorted(rare) == sorted(REFUSED.get(mode, ()))


@pytest.mark.long
@pytest.mark.parametrize("mode", ARITHMETICS)
def test_so_does_its_c(mode: str) -> None:
    survey = surveyed(mode, 10**6, COMPILED, run_in_c)
    assert not survey.faults, "\n".join(survey.faults)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("mode", ARITHMETICS)
def test_so_does_the_c_of_many(mode: str, part: int) -> None:
    survey = surveyed(mode, 10**7 * (part + 1), MANY // 10, run_in_c)
    assert not survey.faults, "\n".join(survey.faults)


# --- What was wrong once -------------------------------------------------------------------------


def conv(site: Site, then: str, factor: float) -> Value:
    """A convolution times or divided by a number."""
    x, weight = site.input((1, 6, 6, 6)), site.weights((6, 6, 3, 3), 0)
    window = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    layouts = {"layout": "NCHW", "out_layout": "", "weight_layout": "OIHW"}
    return site.call(then, site.call("conv2d", x, weight, **window, **layouts), site.floats(factor))


def doubled_product(site: Site) -> Value:
    product = site.call("dense", site.input((4, 16)), site.weights((12, 16), 0))
    return site.call("multiply", site.floats(2), product)


def biased_and_halved(site: Site) -> Value:
    """A bias under a factor, of sums in another shape."""
    product = site.call("dense", site.input((4, 16)), site.weights((12, 16), 0))
    biased = site.call("add", product, site.floats(site.rng.normal(0, 0.5, 12)))
    moved = site.call("reshape", biased, hidden={"shape": (1, 4, 12)})
    return site.call("multiply", moved, site.floats(0.5))


def attention(site: Site) -> Value:
    """Two products of values computed at run time, with a factor between."""
    x, turned = site.input((2, 6, 8)), {"transpose_a": False, "transpose_b": True}
    scores = site.call("batch_matmul", x, site.input((2, 6, 8)), **turned)
    return site.call("multiply", scores, site.floats(0.125))


def bias_of_millions_of_steps(site: Site) -> Value:
    """A step of the result is a million times that of the sums."""
    sums = site.call("dense", site.input((2, 16)), site.weights((40, 16), None))
    bias = site.rng.normal(0, 5e3 * np.abs(sums.array).max(), 40)
    return site.call("bias_add", sums, site.floats(bias), axis=1)


def bound_of_another_shape(site: Site) -> Value:
    """A sum of two values, and the larger of that and one number that broadcasts it."""
    x, z = site.input((3, 5, 4)), site.input((3, 5, 4))
    bound = site.floats(np.full((2, 1, 1, 1), 0.1))
    return site.call("maximum", site.call("add", x, z), bound)


def mean_of_rows(site: Site) -> Value:
    axes = {"axis": (-1,), "keepdims": False, "exclude": False}
    return site.call("mean", site.input((8, 6, 4)), **axes)


def hard_swish_by_a_vector_of_one(site: Site) -> Value:
    x = site.input((4, 16))
    above = site.call("add", x, site.floats([3]))
    gate = site.call("clip", above, low=0.0, high=6.0)
    return site.call("divide", site.call("multiply", x, gate), site.floats([6]))


ONCE: dict[str, Callable[[Site], Value]] = {
    "conv_times_0.3": lambda site: conv(site, "multiply", 0.3),
    "conv_by_4": lambda site: conv(site, "divide", 4),
    **{
        case.__name__: case
        for case in (
            *(doubled_product, biased_and_halved, attention, bias_of_millions_of_steps),
            *(bound_of_another_shape, mean_of_rows, hard_swish_by_a_vector_of_one),
        )
    },
}


@pytest.mark.parametrize("mode", ARITHMETICS)
@pytest.mark.parametrize("case", ONCE)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_what_was_wrong_once_is_right_or_refused(case: str, dtype: str, mode: str) -> None:
    site = Site(np.random.default_rng(3), [dtype])
    site.quantized(ONCE[case](site))
    model = site.model
    tables = case == "hard_swish_by_a_vector_of_one" and dtype == "uint8" and mode == "tflite"
    if tables or (case == "bound_of_another_shape" and mode == "tflite"):
        with pytest.raises(UnsupportedError):
            lowered(model, mode)
        return
    graph = lowered(model, mode)
    (stretch,) = compared(model, run_graph(graph, model.samples), mode)
    assert stretch.telling
    assert not stretch.wrong, str(stretch)


# --- The net itself ------------------------------------------------------------------------------


def no_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor of sums is forgotten where an arithmetic starts from the operands' scales."""
    monkeypatch.setattr(accumulators, "_with_larger_data", lambda sums, factor: sums)
    monkeypatch.setattr(scales, "SAME", np.inf)


def no_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "cuts", lambda grid, low, high: False)


def half_a_zero_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean takes the zero point off too seldom."""
    average = averages._average

    def wrong(of, total, divisor, counted, *more):  # type: ignore[no-untyped-def]
        return average(of, total, divisor, counted - 1, *more)

    monkeypatch.setattr(averages, "_average", wrong)


def no_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers of two scales are compared with each other."""
    monkeypatch.setattr(rules, "require", lambda *claim: None)


@pytest.mark.parametrize("fault", [no_factor, no_shape, half_a_zero_point, no_scales])
def test_a_planted_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert any(surveyed("onnx", first, 100, run_graph).faults for first in range(0, 10**4, 1000))


def test_the_page_has_the_table_of_bounds() -> None:
    assert table() in (ROOT / "docs" / "bounds.md").read_text()
