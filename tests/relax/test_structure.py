"""How modules are put together: tuples, diamonds, several outputs, blocks and functions, constants
that several share, another back end beside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.relax.functions import (
    SHAPE,
    Body,
    Net,
    diamond,
    function,
    images,
    module,
    nested_outputs,
    several_outputs,
)
from tests.relax.nets import OPTIONS, Array, assert_equal, built, by_tvm, flat, regions, run
from tinyai.relax import explain, partition_for_tinyai

# Steps that TVM's floats may be off: its quotients and sums round on their own.
CLOSE = 1


def split_and_joined(net: Net, x: Any) -> Any:
    parts = net.emit(relax.op.split(net.floats(net.convolution(x)), 2, axis=1))
    halves = [net.integers(net.emit(relax.TupleGetItem(parts, n))) for n in range(2)]
    joined = net.emit(relax.op.concat([net.floats(each) for each in halves[::-1]], axis=1))
    return net.integers(joined)


def tuple_in_between(net: Net, x: Any) -> Any:
    pair = net.emit(relax.Tuple([net.convolution(x), net.relu(x)]))
    one, other = (net.emit(relax.TupleGetItem(pair, n)) for n in range(2))
    return net.add(one, other)


def same_output_twice(net: Net, x: Any) -> Any:
    stem = net.convolution(x)
    return relax.Tuple([stem, stem])


def input_is_an_output(net: Net, x: Any) -> Any:
    return relax.Tuple([x, net.convolution(x)])


def two_inputs(net: Net, x: Any, y: Any) -> Any:
    return net.add(net.convolution(x), y)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        *((each, 1) for each in (diamond, several_outputs, nested_outputs, split_and_joined)),
        *((each, 1) for each in (tuple_in_between, same_output_twice, input_is_an_output)),
        (two_inputs, 2),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_function_of_this_form_is_one_region_and_keeps_its_values(body: Body, count: int) -> None:
    mod, inputs = module(body, count), images(count)
    made = partition_for_tinyai(mod, rounding="onnx", **OPTIONS)
    assert len(regions(made)) == 1
    assert explain(mod, rounding="onnx", **OPTIONS).host == ()
    assert_close(run(built(made), inputs), by_tvm(mod, inputs))
    assert relax.analysis.well_formed(made) is not False


def assert_close(found: list[Array], allowed: list[Array]) -> None:
    assert [each.shape for each in found] == [each.shape for each in allowed]
    for one, other in zip(found, allowed, strict=True):
        assert np.unique(one).size > 10
        assert np.abs(one.astype(int) - other).max() <= CLOSE


@pytest.mark.parametrize("isa", [OPTIONS["isa"], "auto"])
def test_each_function_and_each_block_has_regions_of_its_own(isa: str) -> None:
    builder = relax.BlockBuilder()
    params = [relax.Var("x", relax.TensorType(SHAPE, "int8"))]
    with builder.function("main", params):
        net = Net(builder)
        with builder.dataflow():
            first = builder.emit_output(net.convolution(params[0]))
        between = builder.emit(
            relax.op.call_pure_packed("vm.builtin.copy", first, ty_args=first.ty)
        )
        with builder.dataflow():
            second = builder.emit_output(net.relu(net.convolution(between)))
        builder.emit_func_output(second)
    function(builder, "other", diamond)
    mod, inputs = builder.get(), images()
    made = partition_for_tinyai(mod, rounding="onnx", isa=isa)
    assert regions(made) == ["tinyai_main_0", "tinyai_main_1", "tinyai_other_0"]
    executable, plain = built(made), tvm.compile(mod, "llvm")
    for entry in ("main", "other"):
        assert_close(run(executable, inputs, entry), run(plain, inputs, entry))


def test_equal_functions_with_other_weights_stay_apart() -> None:
    """A merge of equal functions once dropped the weights of one of them (TVM 0.25)."""
    drawn = np.random.default_rng(8)
    builder = relax.BlockBuilder()
    for name in ("main", "other"):
        weights = drawn.integers(-90, 90, (4, 4, 3, 3), dtype=np.int8)

        def body(net: Net, x: Any, weights: Array = weights) -> Any:
            return Net(net.builder, weights).convolution(x)

        function(builder, name, body)
    mod, inputs = builder.get(), images()
    executable = built(partition_for_tinyai(mod, rounding="onnx", **OPTIONS))
    (one,), (other,) = (run(executable, inputs, entry) for entry in ("main", "other"))
    assert not np.array_equal(one, other)
    assert_close([one], by_tvm(mod, inputs))


def test_a_host_operator_between_regions_gets_and_gives_integers() -> None:
    def body(net: Net, x: Any) -> Any:
        stem = net.convolution(x)
        middle = net.integers(net.emit(relax.op.cumsum(net.floats(stem), axis=2)), 0.2)
        return net.add(net.convolution(middle), stem)

    mod, inputs = module(body), images()
    made = partition_for_tinyai(mod, rounding="onnx", **OPTIONS)
    report = explain(mod, rounding="onnx", **OPTIONS)
    assert len(regions(made)) == 2
    (row,) = [row for row in report.host if row.operator == "relax.cumsum"]
    assert row.reason.clause == "operator"
    assert row.hint
    assert_close(run(built(made), inputs), by_tvm(mod, inputs))


def test_regions_of_another_back_end_are_left_alone_in_either_order() -> None:
    """The other takes ReLUs; its functions are compiled as any, without their mark."""
    mod, inputs = module(diamond), images()
    patterns = [("other.relu", relax.dpl.is_op("relax.nn.relu")(relax.dpl.wildcard()))]
    others = relax.transform.FuseOpsByPattern(patterns, bind_constants=False)
    wanted = by_tvm(mod, inputs)
    for first in (True, False):
        made = partition_for_tinyai(
            others(mod) if first else mod, rounding="onnx", sealed=False, **OPTIONS
        )
        made = made if first else others(made)
        assert any(map(is_others, made.functions.values())) == first
        assert regions(made)
        assert_close(run(built(without_marks(made)), inputs), wanted)


def without_marks(mod: tvm.IRModule) -> tvm.IRModule:
    """The functions of other back ends as plain ones."""
    return tvm.IRModule(
        {
            variable: f.without_attr("Composite").without_attr("Primitive") if is_others(f) else f
            for variable, f in mod.functions.items()
        }
    )


def is_others(function: Any) -> bool:
    return "Composite" in (function.attrs or {})


def test_constants_that_several_layers_share_are_the_same_for_all() -> None:
    def body(net: Net, x: Any) -> Any:
        return net.convolution(net.convolution(net.convolution(x)))

    mod, inputs = module(body), images()
    assert_close(
        run(built(partition_for_tinyai(mod, rounding="onnx", **OPTIONS)), inputs),
        by_tvm(mod, inputs),
    )


def test_the_results_of_a_call_again_are_the_same() -> None:
    executable = built(partition_for_tinyai(module(several_outputs), rounding="onnx", **OPTIONS))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    (image,) = map(tvm.runtime.tensor, images())
    first = flat(machine["main"](image))
    for _ in range(3):
        assert_equal(flat(machine["main"](image)), first)


def test_what_a_tuple_has_and_nobody_asks_for_is_left_out() -> None:
    """torch's pooling with indices is imported as a pair of which one is read."""

    def body(net: Net, x: Any) -> Any:
        pooled = net.emit(relax.op.nn.max_pool2d(net.floats(net.convolution(x)), (2, 2), (2, 2)))
        indices = net.emit(relax.op.zeros_like(pooled))
        pair = net.emit(relax.Tuple([pooled, indices]))
        return net.integers(net.emit(relax.TupleGetItem(pair, 0)))

    mod, inputs = module(body), images()
    assert explain(mod, rounding="onnx", **OPTIONS).host == ()
    assert_close(
        run(built(partition_for_tinyai(mod, rounding="onnx", **OPTIONS)), inputs),
        by_tvm(mod, inputs),
    )
