"""Regions in every position that TVM's PartitionGraph can put them in, each run and compared.

Shapes of a single function are in test_partition.py; here are those around functions, control
flow, tuples and names.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from tests.support.relay_nets import assert_equal_to_tvm
from tinyai.frontends.relay import regions


def host(x):
    """An operator that tinyai does not take."""
    return relay.cast(relay.abs(relay.cast(x, "int32")), "int8")


def test_one_operator():
    x, y = nets.data((2, 3), "int32", "x"), nets.data((2, 3), "int32", "y")
    partitioned = assert_equal_to_tvm(nets.module(relay.add(x, y)))
    assert len(regions(partitioned)) == 1


def test_two_regions_with_a_host_operator_between():
    x = nets.data(name="x")
    body = nets.requantize(nets.conv(host(nets.layers(1, x)), 3))
    assert len(regions(assert_equal_to_tvm(nets.module(body)))) == 2


def test_duplicate_outputs():
    y = nets.layers(1)
    assert_equal_to_tvm(nets.module(relay.Tuple([y, y, y])))


def test_tuple_outputs_with_an_input_among_them():
    x = nets.data(name="x")
    assert_equal_to_tvm(nets.module(relay.Tuple([x, nets.layers(1, x)])))


def test_tuple_with_constants():
    x = nets.data((4,), "int32", "x")
    fixed = relay.const(np.arange(4, dtype="int32"))
    assert_equal_to_tvm(nets.module(relay.Tuple([relay.add(x, fixed), fixed])))


def test_nested_tuples():
    x = nets.data((4,), "int32", "x")
    first, second = relay.add(x, x), relay.multiply(x, x)
    pair = relay.Tuple([first, second])
    body = relay.subtract(relay.TupleGetItem(pair, 1), relay.TupleGetItem(pair, 0))
    assert len(regions(assert_equal_to_tvm(nets.module(body)))) == 1


def test_shared_inputs_of_two_regions():
    x, y = nets.data(name="x"), nets.data(name="y")
    first = nets.requantize(nets.conv(relay.add(x, y), 1))
    second = nets.requantize(nets.conv(relay.subtract(x, host(first)), 2))
    assert_equal_to_tvm(nets.module(relay.Tuple([first, relay.add(second, y)])))


def test_an_output_that_only_the_host_reads_and_one_that_only_a_region_reads():
    x = nets.data(name="x")
    first = nets.layers(1, x)
    second = nets.requantize(nets.conv(first, 2))
    third = nets.requantize(nets.conv(host(second), 3))
    assert_equal_to_tvm(nets.module(relay.add(third, first)))


def test_a_dead_output_is_not_computed():
    x = nets.data(name="x")
    alive, dead = nets.layers(1, x), nets.requantize(nets.conv(x, 9))
    pair = relay.Tuple([alive, dead])
    partitioned = assert_equal_to_tvm(nets.module(relay.TupleGetItem(pair, 0)))
    (region,) = regions(partitioned).values()
    assert isinstance(region.ret_type, relay.TensorType)


def run_on_vm(mod, inputs):
    # AlterOpLayout of this TVM cannot see a convolution inside of an If.
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["AlterOpLayout"]):
        executable = relay.vm.compile(mod, target="llvm")
    code, library = executable.save()
    library = compiled(library)
    machine = tvm.runtime.vm.VirtualMachine(
        tvm.runtime.vm.Executable.load_exec(code, library), tvm.cpu()
    )
    return machine.run(**inputs).numpy()


def compiled(library):
    folder = tvm.contrib.utils.tempdir()
    library.export_library(folder.relpath("net.so"))
    return tvm.runtime.load_module(folder.relpath("net.so"))


@pytest.mark.long
@pytest.mark.parametrize("flag", [True, False])
def test_regions_inside_of_if_and_around_it(flag):
    x = nets.data(name="x")
    condition = relay.var("condition", shape=(), dtype="bool")
    before = nets.layers(1, x)
    choice = relay.If(condition, nets.requantize(nets.conv(before, 2)), relay.add(before, before))
    body = nets.requantize(nets.conv(choice, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x, condition], body))
    inputs = {"x": nets.weights(0, (1, 8, 8, 4)), "condition": np.array(flag)}
    partitioned = tinyai.partition_for_tinyai(mod)
    assert len(regions(partitioned)) >= 2
    np.testing.assert_array_equal(run_on_vm(partitioned, inputs), run_on_vm(mod, inputs))


def test_let_around_regions():
    x = nets.data(name="x")
    value = relay.var("value", shape=(1, 8, 8, 4), dtype="int8")
    inner = nets.requantize(nets.conv(value, 4))
    body = relay.Let(value, nets.layers(1, x), relay.add(inner, value))
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    inputs = nets.random_inputs(mod)
    partitioned = tinyai.partition_for_tinyai(mod)
    assert len(regions(partitioned)) == 1
    np.testing.assert_array_equal(run_on_vm(partitioned, inputs), run_on_vm(mod, inputs))


def test_several_functions_in_a_module():
    x, y = nets.data(name="x"), nets.data(name="y")
    helper = relay.GlobalVar("helper")
    of = relay.TensorType((1, 8, 8, 4), "int8")
    functions = {
        helper: relay.Function([y], host(nets.requantize(nets.conv(y, 5))), of),
        relay.GlobalVar("main"): relay.Function([x], helper(nets.layers(1, x)), of),
    }
    mod = relay.transform.InferType()(tvm.IRModule(functions))
    inputs = nets.random_inputs(mod)
    partitioned = tinyai.partition_for_tinyai(mod)
    assert len(regions(partitioned)) == 2
    np.testing.assert_array_equal(run_on_vm(partitioned, inputs), run_on_vm(mod, inputs))


def test_names_that_collide_or_need_escaping():
    """Inputs are called as C keywords, as our own identifiers, and as no identifier at all."""
    names = ["int", "in0", "arena", "out", "a/b.c", "tvmgen_default_tinyai_main_0", "x\n*/ y", "Ä"]
    variables = [nets.data((2, 3), "int32", name) for name in names]
    total = variables[0]
    for variable in variables[1:]:
        total = relay.subtract(relay.add(total, total), variable)
    mod = tvm.IRModule.from_expr(relay.Function(variables, total))
    assert_equal_to_tvm(mod)


def test_two_modules_of_one_name_in_one_process():
    first, second = nets.module(nets.layers(1)), nets.module(nets.residual())
    for mod in (first, second, first):
        assert_equal_to_tvm(mod, mod_name="same")
