"""Random quantized graphs, partitioned, built and run, give the integers of TVM's CPU.

Many graphs share one build. Where a batch fails, one of its graphs that fails alone is found and
cut down to a small reproducer.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

import tinyai
from tests.support import random_relay
from tests.support.disk import on_disk
from tests.support.oracle import REQUANTIZE, Array, digest, in_a_child, pack, runner, unpack
from tests.support.random_relay import RandomGraph, random_graph
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.qdq import integers_from_qdq
from tinyai.frontends.relay.report import report_of
from tinyai.report import HostRow

Run = Callable[[dict[str, Array]], list[Array]]

QUICK, ALL, BATCH = 50, 5_000, 25
# Without SSE4.1, LLVM 10 dies of products of 32-bit integers in some numbers of lanes (12 of them);
# nothing that TVM decides depends on it but the arithmetic of requantize, which is given.
QUICK_TARGET = "llvm -opt-level=0 -mattr=+sse4.1"
# A softmax at the exit, which nobody quantizes again.
HOST = {"nn.softmax"}
# Functions of several values, which are no table.
CLAUSES = ("function",)


class Fault(AssertionError):
    """What is wrong with a graph; ``kind`` stays the same while the graph gets smaller."""

    def __init__(self, kind: str, text: object = "") -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


# --- One build for many graphs -------------------------------------------------------------------


def joined(graphs: Sequence[RandomGraph]) -> tvm.IRModule:
    """One function of all inputs and all outputs."""
    functions = [graph.function() for graph in graphs]
    params = [param for func in functions for param in func.params]
    fields = [field for func in functions for field in _fields(func.body)]
    func = relay.Function(params, relay.Tuple(fields))
    return relay.transform.InferType()(tvm.IRModule.from_expr(func))


def _fields(body: relay.Expr) -> list[relay.Expr]:
    return list(body.fields) if isinstance(body, relay.Tuple) else [body]


def inputs_of(graphs: Sequence[RandomGraph]) -> dict[str, Array]:
    return {name: array for graph in graphs for name, array in graph.inputs().items()}


def expected(mod: tvm.IRModule, inputs: dict[str, Array]) -> list[Array]:
    """TVM's CPU. Where dequantize and quantize become integers, those integers' result: the
    arithmetic between them is another one, and tests/frontends/test_qdq.py compares it."""
    module = tvm.ir.save_json(integers_from_qdq(mod))
    name = digest(QUICK_TARGET, module, inputs)
    content = on_disk("random", f"{name}.npz", lambda: in_a_child(quick_result, module, inputs))
    return unpack(content)


def quick_result(module: str, inputs: dict[str, Array]) -> bytes:
    """The packed outputs of TVM's code for the host, the same integers (a test below says so) in a
    third of the time: long fused chains and unrolled windows would be written out many times."""
    config = {"relay.FuseOps.max_depth": 8, "tir.UnrollLoop": {"explicit_unroll": False}}
    mod = tvm.ir.load_json(module)
    return pack(built(mod, QUICK_TARGET, opt_level=2, config=config)(inputs))


def built(mod: tvm.IRModule, target: str = "llvm", **context: Any) -> Run:
    with (
        tvm.transform.PassContext(**{"opt_level": 3, **context}),
        relay.qnn.op.qnn.requantize_config(**REQUANTIZE),
    ):
        factory = relay.build(mod, target=target)
    return runner(tinyai.runtime.compile(factory) if regions(mod) else factory)


def found(mod: tvm.IRModule, inputs: dict[str, Array]) -> list[Array]:
    """The partitioned module, of which the host computes nothing but what
    ``may_stay``."""
    partitioned = partition_for_tinyai(mod, isa="native")
    for row in report_of(partitioned).computing:
        if not may_stay(row):
            raise Fault(f"{row.operator} stays on the host", row)
    return built(partitioned)(inputs)


def may_stay(row: HostRow) -> bool:
    known = row.operator in HOST or row.reason.clause.startswith(CLAUSES)
    return known and bool(row.reason.found and row.reason.allowed)


def check(graphs: Sequence[RandomGraph]) -> None:
    """Raises ``Fault`` where a graph of the batch has one."""
    mod = joined(graphs)
    inputs = inputs_of(graphs)
    try:
        wanted = expected(mod, inputs)
    except BrokenProcessPool as error:
        raise Fault("TVM alone crashes", error) from error
    except Exception as error:
        raise Fault(f"TVM alone fails with {type(error).__name__}", error) from error
    try:
        ours = found(mod, inputs)
    except Fault:
        raise
    except Exception as error:
        raise Fault(f"tinyai fails with {type(error).__name__}", error) from error
    outputs = [graph.nodes[index].value for graph in graphs for index in graph.outputs]
    for value, a, b in zip(outputs, ours, wanted, strict=True):
        compare(value, a, b)


def compare(value: random_relay.Value, ours: Array, wanted: Array) -> None:
    if (ours.dtype, ours.shape) != (wanted.dtype, wanted.shape):
        raise Fault("type", f"{ours.dtype} {ours.shape}, TVM {wanted.dtype} {wanted.shape}")
    differ = ours != wanted
    if value.ulps:
        differ = np.abs(ours - wanted) > value.ulps * np.spacing(np.abs(wanted))
    if differ.any():
        where = tuple(int(i) for i in np.argwhere(differ)[0])
        numbers = f"first at {where}: {ours[where]}, TVM {wanted[where]}"
        raise Fault("another result", f"{differ.sum()} of {differ.size}, {numbers}")


# --- A small reproducer --------------------------------------------------------------------------


def fault_of(graphs: Sequence[RandomGraph]) -> Fault | None:
    try:
        check(graphs)
    except Fault as fault:
        return fault
    return None


def culprit(graphs: Sequence[RandomGraph]) -> RandomGraph:
    """One graph of a batch that fails: the first half of it that fails, again and again."""
    while len(graphs) > 1:
        half = graphs[: len(graphs) // 2]
        graphs = half if fault_of(half) else graphs[len(half) :]
    return graphs[0]


def shrunk(graph: RandomGraph, kind: str) -> RandomGraph:
    """The smallest graph found that fails in the same way."""
    for smaller in graph.smaller():
        fault = fault_of([smaller])
        if fault and fault.kind == kind:
            return shrunk(smaller, kind)
    return graph


def explained(graphs: Sequence[RandomGraph], fault: Fault) -> str:
    graph = culprit(graphs)
    alone = fault_of([graph])
    if alone is None:
        seeds = ", ".join(str(each.seed) for each in graphs)
        return f"{fault}\nin a batch only, of the seeds {seeds}"
    small = shrunk(graph, alone.kind)
    return f"{fault_of([small])}\nseed {graph.seed}, cut down to:\n{small}"


def assert_equal_to_tvm(graphs: Sequence[RandomGraph]) -> None:
    fault = fault_of(graphs)
    if fault:
        pytest.fail(explained(graphs, fault), pytrace=False)


# --- Tests ---------------------------------------------------------------------------------------


def batches(first: int, last: int) -> list[Any]:
    return [
        pytest.param(start, id=f"seeds {start}..", marks=pytest.mark.long if start else ())
        for start in range(first, last, BATCH)
    ]


def graphs_from(seed: int) -> list[RandomGraph]:
    return [random_graph(each) for each in range(seed, seed + BATCH)]


@pytest.mark.parametrize("seed", batches(0, QUICK))
def test_graphs_equal_tvm(seed: int) -> None:
    assert_equal_to_tvm(graphs_from(seed))


def die(module: str, inputs: dict[str, Array]) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def test_a_crash_of_tvm_is_told_from_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYAI_TEST_CACHE", "0")
    monkeypatch.setitem(globals(), "quick_result", die)
    fault = fault_of([random_graph(0)])
    assert fault is not None
    assert fault.kind == "TVM alone crashes"


@pytest.mark.slow
@pytest.mark.parametrize("seed", batches(0, 4 * BATCH))
def test_the_quick_oracle_equals_tvm_at_its_defaults(seed: int) -> None:
    mod, inputs = joined(graphs := graphs_from(seed)), inputs_of(graphs)
    for quick, default in zip(
        expected(mod, inputs), built(integers_from_qdq(mod))(inputs), strict=True
    ):
        np.testing.assert_array_equal(quick, default)


@pytest.mark.slow
@pytest.mark.parametrize("seed", batches(QUICK, ALL))
def test_more_graphs_equal_tvm(seed: int) -> None:
    assert_equal_to_tvm(graphs_from(seed))
