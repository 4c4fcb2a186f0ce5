"""The cases that TVM tests its own cutting of Relax with, as quantized modules through tinyai's:
those of ``test_transform_merge_composite_functions`` and ``test_transform_codegen_pass``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.relax.functions import SHAPE, Net, function, images, module
from tests.relax.nets import OPTIONS, Array, built, by_tvm, regions, run
from tinyai.relax import explain, partition_for_tinyai

CLOSE = 1  # steps that TVM's floats may be off


def partitioned(mod: tvm.IRModule, **options: Any) -> tvm.IRModule:
    return partition_for_tinyai(mod, rounding="onnx", **OPTIONS, **options)


def assert_close(found: list[Array], allowed: list[Array], steps: int = CLOSE) -> None:
    for one, other in zip(found, allowed, strict=True):
        assert one.shape == other.shape
        assert np.abs(one.astype(int) - other).max() <= steps


def two_in_a_row(net: Net, x: Any) -> Any:
    return net.relu(net.convolution(net.relu(net.convolution(x))))


def several_producers(net: Net, x: Any, y: Any) -> Any:
    """Two chains, each of which reads the middle of the other."""
    one, other = net.relu(x), net.convolution(y)
    return net.add(net.add(net.relu(other), one), net.add(net.convolution(one), other))


def elementwise_chain(net: Net, x: Any, y: Any) -> Any:
    def product(one: Any, other: Any) -> Any:
        floats = net.emit(relax.op.multiply(net.floats(one), net.floats(other)))
        return net.integers(floats, 0.4)

    first = product(x, y)
    second = net.add(first, x)
    return net.add(product(net.add(first, second), second), first)


def inner_value_is_an_output(net: Net, x: Any) -> Any:
    stem = net.convolution(x)
    whole = net.emit(relax.Tuple([stem, net.relu(stem)]))
    return relax.Tuple([net.emit(relax.TupleGetItem(whole, 1)), whole])


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (two_in_a_row, 1),
        (several_producers, 2),
        (elementwise_chain, 2),
        (inner_value_is_an_output, 1),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_what_one_back_end_takes_whole_is_one_region(body: Any, count: int) -> None:
    mod, inputs = module(body, count), images(count)
    made = partitioned(mod)
    assert len(regions(made)) == 1
    assert_close(run(built(made), inputs), by_tvm(mod, inputs), steps=3)


def test_a_branch_of_another_back_end_s_leaves_no_way_out_and_back_in() -> None:
    """A diamond, one side of which somebody else has: what joins the sides is a region of its own,
    for it needs both."""

    def body(net: Net, x: Any) -> Any:
        stem = net.convolution(x)
        theirs = net.integers(net.emit(relax.op.nn.gelu(net.floats(stem))))
        return net.add(net.relu(stem), theirs)

    mod, inputs = module(body), images()
    gelu = relax.dpl.is_op("relax.nn.gelu")(relax.dpl.wildcard())
    others = relax.transform.FuseOpsByPattern([("other.gelu", gelu)], bind_constants=False)(mod)
    made = partitioned(others, sealed=False)
    assert len(regions(made)) == 2
    plain = {
        variable: f.without_attr("Composite").without_attr("Primitive")
        if "Composite" in (getattr(f, "attrs", None) or {})
        else f
        for variable, f in made.functions.items()
    }
    assert_close(run(built(tvm.IRModule(plain)), inputs), by_tvm(mod, inputs))


def test_a_function_that_is_called_twice_is_cut_once() -> None:
    builder = relax.BlockBuilder()
    function(builder, "stem", two_in_a_row)
    stem = builder.get().get_global_var("stem")
    x = relax.Var("x", relax.TensorType(SHAPE, "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(stem, [builder.emit(relax.Call(stem, [x]))]))
        builder.emit_func_output(result)
    mod, inputs = builder.get(), images()
    made = partitioned(mod)
    assert regions(made) == ["tinyai_stem_0"]
    assert_close(run(built(made), inputs), by_tvm(mod, inputs), steps=2)


def test_the_entry_may_have_any_name() -> None:
    builder = relax.BlockBuilder()
    function(builder, "func", two_in_a_row)
    mod, inputs = builder.get(), images()
    made = partitioned(mod)
    assert regions(made) == ["tinyai_func_0"]
    wanted = run(tvm.compile(mod, "llvm"), inputs, "func")
    assert_close(run(built(made), inputs, "func"), wanted)


def test_symbolic_shapes_stay_on_the_host_beside_others_that_are_fixed() -> None:
    builder = relax.BlockBuilder()
    size = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType(SHAPE, "int8"))
    y = relax.Var("y", relax.TensorType((size, 4), "int8"))
    with builder.function("main", [x, y]):
        net = Net(builder)
        with builder.dataflow():
            known, other = net.convolution(x), net.relu(y)
            result = builder.emit_output(relax.Tuple([known, other]))
        builder.emit_func_output(result)
    mod, inputs = builder.get(), [*images(), np.arange(-6, 6, dtype=np.int8).reshape(3, 4)]
    made = partitioned(mod)
    assert len(regions(made)) == 1
    rows = explain(mod, rounding="onnx", **OPTIONS).host
    assert {row.reason.allowed for row in rows if row.computes} == {"fixed dimensions"}
    assert any("BindSymbolicVars" in row.hint for row in rows)
    assert_close(run(built(made), inputs), by_tvm(mod, inputs))


def test_functions_of_tir_in_a_module_are_no_functions_of_relax_s() -> None:
    def body(net: Net, x: Any) -> Any:
        stem = net.convolution(x)
        return net.relu(net.builder.emit_te(lambda each: tvm.topi.flip(each, axis=3), stem))

    mod, inputs = module(body), images()
    made = partitioned(mod)
    assert len(regions(made)) == 2
    assert_close(run(built(made), inputs), by_tvm(mod, inputs))
