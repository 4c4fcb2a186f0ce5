"""What is taken can be built: what turns out to have no C stays on the host, with its reason."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

import tests.support.relay_nets as nets
import tinyai
from tests.support.faults import NO_KERNEL, broken, raises
from tinyai.backend import pipeline
from tinyai.codegen.lowered import Lowered
from tinyai.errors import BoundaryError, DefectError, DefectWarning, LimitError
from tinyai.frontends.relay import regions, source
from tinyai.frontends.relay.annotate import annotate_whole_graph
from tinyai.frontends.relay.rewriting import inlined
from tinyai.frontends.relay.trial import code_of_trial
from tinyai.ir import Graph
from tinyai.ops import Concatenate, Conv2d, MaxPool2d
from tinyai.target import Target


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_KEPT", type(pipeline._KEPT)())


def network(pool: bool = True) -> tvm.IRModule:
    """Three convolutions, a maximum between the first two, a concatenation of two values."""
    x = nets.layers(1)
    middle = relay.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC") if pool else x
    y = nets.layers(1, middle)
    z = relay.concatenate([y, middle], axis=1)
    return nets.module(nets.requantize(nets.conv(z, seed=7)))


def run(mod: tvm.IRModule, **options: Any) -> list[Any]:
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(tinyai.partition_for_tinyai(mod, **options), "llvm")
    return nets.run_factory(tinyai.runtime.compile(built), nets.random_inputs(mod))


def assert_equal_to_tvm(mod: tvm.IRModule, found: list[Any]) -> None:
    for ours, theirs in zip(found, nets.run_tvm(mod, nets.random_inputs(mod)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("sealed", [False, True])
def test_an_operator_without_code_stays_on_the_host_and_the_rest_is_built(sealed: bool) -> None:
    mod = network()
    with broken(raises(NO_KERNEL, MaxPool2d)):
        partitioned = tinyai.partition_for_tinyai(mod, sealed=sealed)
        assert nets.host_operators(partitioned) == ["nn.max_pool2d"]
        assert len(regions(partitioned)) == 2
        assert_equal_to_tvm(mod, run(mod, sealed=sealed))
    assert nets.host_operators(tinyai.partition_for_tinyai(mod)) == []


def test_the_report_says_why_there_is_no_code() -> None:
    with broken(raises(NO_KERNEL, MaxPool2d)):
        (row,) = tinyai.explain(network()).host
    assert (row.operator, row.reason.row, row.reason.clause) == (
        "nn.max_pool2d",
        "pool2d",
        "code generation",
    )
    assert (row.reason.found, row.reason.allowed) == ("no kernel: a large one", "a small one")


def test_a_fault_of_tinyais_own_is_said_to_be_one() -> None:
    mod = network()
    with broken(raises(KeyError("nothing here"), MaxPool2d)):
        with pytest.warns(DefectWarning, match="pool2d stays on the host.*fault of tinyai's own"):
            report = tinyai.explain(mod)
        (row,) = report.host
        assert row.reason.clause == "a fault of tinyai's own"
        assert "KeyError: 'nothing here'" in row.reason.found
        assert "report it" in row.hint
        with pytest.warns(DefectWarning):
            assert_equal_to_tvm(mod, run(mod))


@pytest.mark.parametrize("kinds", [(MaxPool2d, Concatenate), (Conv2d, Concatenate)])
def test_of_what_fails_together_the_last_part_stays_on_the_host(kinds: tuple[type, ...]) -> None:
    mod = network()
    with broken(raises(NO_KERNEL, *kinds)):
        report = tinyai.explain(mod)
        assert [row.operator for row in report.host] == ["concatenate"]
        assert_equal_to_tvm(mod, run(mod))


def test_an_operator_of_its_own_stays_on_the_host() -> None:
    """A bare operator of a region, no composite, with a tuple and with constants."""
    x = nets.data()
    joined = relay.concatenate([relay.clip(x, -9, 9), x], axis=3)
    mod = nets.module(relay.maximum(joined, relay.const(np.int8(3))))
    kinds = {"concatenate": Concatenate}
    with broken(raises(NO_KERNEL, *kinds.values())):
        assert [row.operator for row in tinyai.explain(mod).host] == ["concatenate"]
        assert_equal_to_tvm(mod, run(mod))


def test_where_nothing_has_code_all_is_the_hosts() -> None:
    mod = network()
    with broken(raises(NO_KERNEL)):
        partitioned = tinyai.partition_for_tinyai(mod)
        assert not regions(partitioned)
        assert_equal_to_tvm(mod, run(mod))


def test_strict_objects_to_what_has_no_code() -> None:
    with (
        broken(raises(NO_KERNEL, MaxPool2d)),
        pytest.raises(BoundaryError, match=r"1 nn\.max_pool2d") as caught,
    ):
        tinyai.partition_for_tinyai(network(), strict=True)
    assert "no kernel: a large one" in str(caught.value)


def test_a_region_of_the_users_own_fails_with_a_message() -> None:
    x = nets.data()
    func = relay.Function([x], relay.clip(x, -3, 5))
    mod = tvm.IRModule.from_expr(annotate_whole_graph(func))
    mod = relay.transform.PartitionGraph()(relay.transform.InferType()(mod))
    with (
        broken(raises(KeyError("nothing here"))),
        pytest.raises(DefectError, match="a fault of tinyai's own in"),
        tvm.transform.PassContext(opt_level=3),
    ):
        relay.build(mod, "llvm")


@pytest.mark.parametrize("option", ["arena_limit", "weight_limit"])
def test_an_exceeded_limit_stays_an_error_of_the_build(option: str) -> None:
    partitioned = tinyai.partition_for_tinyai(network(), **{option: 1})
    assert nets.host_operators(partitioned) == []
    with pytest.raises(LimitError, match=option), tvm.transform.PassContext(opt_level=3):
        relay.build(partitioned, "llvm")


def count_generations(patch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    write = pipeline.write

    def counted(graph: Lowered, target: Target, **rest: Any) -> pipeline.Compiled:
        seen.append(graph.name)
        return write(graph, target, **rest)

    patch.setattr(pipeline, "write", counted)
    return seen


@pytest.mark.parametrize("options", [{}, {"arena_limit": 10**6}, {"isa": "native"}])
def test_the_hook_takes_the_code_of_the_trial(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_generations(monkeypatch)
    mod = network()
    text = [tinyai.explain(mod, **options).regions for _ in range(2)]
    assert text[0] == text[1]
    run(mod, **options)
    assert len(seen) == 1
    run(mod, **options)
    assert len(seen) == 2


def count_readings(patch: pytest.MonkeyPatch) -> list[str]:
    """Each graph that is made of a region, in the partition, the report or the hook."""
    seen: list[str] = []
    make = source._graph

    def counted(func: relay.Function, *rest: Any) -> Graph:
        seen.append(str(func.attrs["global_symbol"]))
        return make(func, *rest)

    patch.setattr(source, "_graph", counted)
    return seen


@pytest.mark.parametrize("sealed", [False, True])
def test_a_region_is_read_once_from_the_partition_to_the_build(
    sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, mod = count_readings(monkeypatch), network()
    run(mod, sealed=sealed, strict=True)
    assert len(seen) == 1
    tinyai.explain(mod)
    assert len(seen) == 2


class _Changed(ExprMutator):  # type: ignore[misc]
    """One weight more in each constant of weights, in whatever holds it."""

    def visit_constant(self, const: relay.Constant) -> relay.Constant:
        value = const.data.numpy().copy()
        if value.dtype != np.int8 or value.ndim != 4:
            return const
        value.reshape(-1)[-1] += 1
        return relay.const(value)


def _with_region(mod: tvm.IRModule, change: Any) -> tvm.IRModule:
    ((variable, func),) = regions(mod).items()
    changed = tvm.IRModule(mod.functions, mod.type_definitions, mod.attrs)
    changed.update_func(variable, change(func))
    return changed


def test_a_region_that_was_changed_after_the_partition_is_compiled_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, mod = count_readings(monkeypatch), network()

    def results(partitioned: tvm.IRModule) -> Any:
        with tvm.transform.PassContext(opt_level=3):
            built = relay.build(partitioned, "llvm")
        (found,) = nets.run_factory(tinyai.runtime.compile(built), nets.random_inputs(mod))
        return found

    first = results(tinyai.partition_for_tinyai(mod))
    assert len(seen) == 1
    changed = _with_region(tinyai.partition_for_tinyai(mod), _Changed().visit)
    found = results(changed)
    assert len(seen) == 3
    assert not np.array_equal(found, first)
    host = relay.transform.InferType()(inlined(changed, _bodies(changed), "tinyai"))
    assert np.array_equal(found, nets.run_tvm(host, nets.random_inputs(mod))[0])


def _bodies(mod: tvm.IRModule) -> dict[str, relay.Function]:
    return {variable.name_hint: func for variable, func in regions(mod).items()}


def _other_specs(func: relay.Function) -> relay.Function:
    return func.with_attr("tinyai.compile_specs", '{"isa": "scalar"}')


def _other_name(func: relay.Function) -> relay.Function:
    return func.with_attr("global_symbol", "another")


@pytest.mark.parametrize("change", [_other_specs, _other_name, _Changed().visit])
def test_what_was_changed_is_not_what_was_tried(change: Any) -> None:
    partitioned = tinyai.partition_for_tinyai(network())
    assert code_of_trial(nets.only_region(partitioned)) is not None
    assert code_of_trial(nets.only_region(_with_region(partitioned, change))) is None
    with relay.qnn.op.requantize_config(rounding="TONEAREST"):
        assert code_of_trial(nets.only_region(partitioned)) is None


def test_other_names_or_weights_are_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_generations(monkeypatch)
    for seed in (0, 1):
        for name in ("one", "two"):
            body = relay.Call(*call_of(nets.conv(nets.data(), seed)), None, span_named(name))
            tinyai.partition_for_tinyai(nets.module(nets.requantize(body)))
    assert len(seen) == 4


def call_of(call: relay.Call) -> tuple[Any, Any, Any]:
    return call.op, call.args, call.attrs


def span_named(name: str) -> Any:
    return relay.Span(relay.SourceName(name), 0, 0, 0, 0)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_KEPT_BYTES", 1)
    for pool in (False, True):
        tinyai.partition_for_tinyai(network(pool))
        assert len(pipeline._KEPT) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(network())


def integers(shape: tuple[int, ...], dtype: str = "int8") -> Any:
    return relay.const(np.arange(-4, 4).astype(dtype).reshape(shape))


def test_an_int16_average_and_a_constant_that_meets_itself_are_built() -> None:
    x = relay.var("x", shape=(1, 4, 6, 6), dtype="int16")
    average = relay.nn.avg_pool2d(relay.cast(x, "int32"), (2, 2), (2, 2))
    scale, zero = relay.const(0.1, "float32"), relay.const(1, "int32")
    c = integers((2, 4))
    bodies = [
        relay.cast(average, "int16"),
        *(op(c, c, *(scale, zero) * 3) for op in (relay.qnn.op.add, relay.qnn.op.mul)),
    ]
    for body in bodies:
        mod = nets.module(body)
        assert_equal_to_tvm(mod, run(mod, strict=True))
