"""What partition_for_tinyai takes, what it leaves on the host, and what it keeps as it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import tvm
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from tests.support.relay_nets import assert_equal_to_tvm
from tinyai.errors import OptionError, UnsupportedError
from tinyai.frontends.relay import cut_regions, pattern_table, regions
from tinyai.frontends.relay.functions import region_target
from tinyai.frontends.relay.source import graph_from_region
from tinyai.passes import optimize
from tinyai.patterns import pattern_rows
from tinyai.runtime.tvm_module import c_sources
from tinyai.target import Target


def test_layers_with_stop_fusion_between_them_become_one_region():
    partitioned = assert_equal_to_tvm(nets.module(nets.layers(3)))
    assert nets.composites(nets.only_region(partitioned)) == ["tinyai.conv2d"] * 3
    assert nets.host_operators(partitioned) == []


def test_a_residual_fork_becomes_one_region():
    partitioned = assert_equal_to_tvm(nets.module(nets.residual()))
    assert len(regions(partitioned)) == 1
    assert nets.host_operators(partitioned) == []


def test_without_stop_fusion_in_patterns_every_layer_is_a_region_of_its_own():
    passes = [
        relay.transform.InferType(),
        relay.transform.MergeComposite(pattern_table(pattern_rows(stop_fusion=False))),
        relay.transform.AnnotateTarget(["without_predicates"]),
    ]
    mod = tvm.transform.Sequential(passes)(nets.module(nets.layers(3)))
    assert nets.host_operators(mod).count("annotation.stop_fusion") == 3


def test_weights_are_bound_from_params():
    weight = relay.var("w", shape=(3, 3, 4, 4), dtype="int8")
    mod = nets.module(nets.requantize(nets.conv(nets.data(), weight=weight)))
    before = tvm.ir.structural_hash(mod)
    params = {"w": tvm.nd.array(nets.weights(3, (3, 3, 4, 4)))}
    partitioned = tinyai.partition_for_tinyai(mod, params)
    assert nets.host_operators(partitioned) == []
    assert tvm.ir.structural_hash(mod) == before, "the argument was changed"


def test_weights_that_are_not_constant_stay_on_the_host():
    weight = relay.var("w", shape=(3, 3, 4, 4), dtype="int8")
    mod = nets.module(nets.requantize(nets.conv(nets.data(), weight=weight)))
    partitioned = assert_equal_to_tvm(mod)
    assert nets.host_operators(partitioned) == ["nn.conv2d"]


def test_partitioning_twice_changes_nothing():
    once = tinyai.partition_for_tinyai(nets.module(nets.layers(2)))
    assert tvm.ir.structural_equal(tinyai.partition_for_tinyai(once), once)


def test_options_come_as_values_or_strings_and_become_attributes_of_every_region():
    mod = nets.module(nets.layers(1))
    for options in ({"threads": 2, "isa": "scalar"}, {"threads": "2", "isa": "SCALAR"}):
        func = nets.only_region(tinyai.partition_for_tinyai(mod, **options))
        assert region_target(func) == Target(threads=2, isa="scalar", rounding="upward")


def test_an_unknown_option_is_an_error_that_lists_the_known():
    with pytest.raises(OptionError, match=r"(?s)speed.*isa, arch, threads, rounding"):
        tinyai.partition_for_tinyai(nets.module(nets.layers(1)), speed="fast")


def test_a_hostile_module_name_is_an_error():
    with pytest.raises(OptionError, match="mod_name"):
        tinyai.partition_for_tinyai(nets.module(nets.layers(1)), mod_name='x"; system("y')


def test_the_module_name_begins_the_symbols():
    partitioned = tinyai.partition_for_tinyai(nets.module(nets.layers(1)), mod_name="camera")
    assert [v.name_hint for v in regions(partitioned)] == ["tvmgen_camera_tinyai_main_0"]


def test_a_saved_module_gives_the_same_c_in_a_new_process(tmp_path):
    partitioned = tinyai.partition_for_tinyai(nets.module(nets.residual()), isa="generic")
    path = tmp_path / "module.json"
    path.write_text(tvm.ir.save_json(partitioned))
    script = (
        "import sys, tvm, tinyai\n"
        "from tvm import relay\n"
        "from tinyai.runtime.tvm_module import c_sources\n"
        "mod = tvm.ir.load_json(open(sys.argv[1]).read())\n"
        "sys.stdout.write(*c_sources(relay.build(mod, target='llvm')))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (here,) = c_sources(relay.build(partitioned, target="llvm"))
    assert outputs == {here.encode()}
    assert "-isa=generic" in here


def test_regions_of_other_compilers_stay_as_they_are():
    x = nets.data((4,), "int32", "x")
    theirs = (
        relay.Function([x], relay.add(x, x), relay.TensorType((4,), "int32"))
        .with_attr("Compiler", "someone")
        .with_attr("global_symbol", "someone_0")
        .with_attr("Primitive", 1)
    )
    name = relay.GlobalVar("someone_0")
    y = nets.data((4,), "int32", "y")
    main = relay.Function([y], relay.multiply(name(relay.add(y, y)), y))
    mod = relay.transform.InferType()(tvm.IRModule({name: theirs, relay.GlobalVar("main"): main}))
    partitioned = tinyai.partition_for_tinyai(mod)
    assert len(regions(partitioned)) == 2
    assert tvm.ir.structural_equal(partitioned["someone_0"], mod["someone_0"])
    calls = []
    relay.analysis.post_order_visit(
        partitioned["main"],
        lambda e: calls.append(e.op.name_hint) if isinstance(e, relay.Call) else None,
    )
    assert "someone_0" in calls


def idle_module():
    x = nets.data((2, 4), "int8", "x")
    y = relay.reshape(relay.annotation.stop_fusion(relay.cast(x, "int32")), (4, 2))
    return nets.module(relay.nn.softmax(relay.cast(y, "float32")))


def test_a_region_that_computes_nothing_goes_back_to_the_host():
    mod = idle_module()
    assert len(regions(tinyai.partition_for_tinyai(mod))) == 0
    assert nets.host_operators(tinyai.partition_for_tinyai(mod)) == nets.host_operators(mod)


@pytest.mark.parametrize("prune", [False, "False", "0"])
def test_a_region_that_computes_nothing_is_kept_without_prune(prune):
    assert len(regions(tinyai.partition_for_tinyai(idle_module(), prune=prune))) == 1


def test_a_bad_value_of_prune_is_an_error():
    with pytest.raises(OptionError, match="prune"):
        tinyai.partition_for_tinyai(idle_module(), prune="perhaps")


def test_let_bindings_are_partitioned_like_a_graph():
    mod = relay.transform.InferType()(nets.module(nets.residual()))
    bound = relay.transform.ToANormalForm()(mod)
    partitioned = assert_equal_to_tvm(bound)
    assert len(regions(partitioned)) == 1


def test_dynamic_shapes_stay_on_the_host():
    x = relay.var("x", shape=(relay.Any(), 4), dtype="int32")
    partitioned = tinyai.partition_for_tinyai(nets.module(relay.add(x, x)))
    assert len(regions(partitioned)) == 0


def test_floats_inside_stay_on_the_host():
    x = nets.data((1, 8), "float32", "x")
    mod = nets.module(relay.nn.relu(relay.add(relay.multiply(x, x), relay.const(1.0))))
    assert len(regions(tinyai.partition_for_tinyai(mod))) == 0


def test_entry_quantization_and_exit_dequantization_are_part_of_the_region():
    x = nets.data((1, 8, 8, 4), "float32", "x")
    entry = relay.cast(
        relay.clip(relay.round(relay.multiply(x, relay.const(16.0))), -127, 127), "int8"
    )
    exit_ = relay.multiply(relay.cast(nets.layers(2, entry), "float32"), relay.const(0.0625))
    partitioned = assert_equal_to_tvm(nets.module(exit_))
    assert nets.host_operators(partitioned) == []
    names = nets.composites(nets.only_region(partitioned))
    assert {"tinyai.quantize", "tinyai.dequantize"} <= set(names)


def test_a_convolution_in_front_of_the_exit_is_a_composite_of_its_own():
    exit_ = relay.multiply(relay.cast(nets.conv(nets.data()), "float32"), relay.const(0.3))
    partitioned = assert_equal_to_tvm(nets.module(exit_))
    names = nets.composites(nets.only_region(partitioned))
    assert sorted(names) == ["tinyai.conv2d", "tinyai.dequantize"]


def test_concatenation_with_a_constant_and_an_input_stays_one_region():
    x = nets.data(name="x")
    fixed = relay.const(nets.weights(1, (1, 8, 8, 2)))
    joined = relay.concatenate([nets.layers(1, x), fixed, x, x], axis=3)
    partitioned = assert_equal_to_tvm(nets.module(relay.nn.relu(joined)))
    assert len(regions(partitioned)) == 1


def test_several_outputs_of_a_region():
    x = nets.data(name="x")
    first = nets.layers(1, x)
    second = nets.requantize(nets.conv(first, 5))
    body = relay.Tuple([first, second, relay.cast(second, "int32"), first])
    partitioned = assert_equal_to_tvm(nets.module(body))
    assert len(regions(partitioned)) == 1


def test_a_value_used_by_host_and_region():
    x = nets.data(name="x")
    first = nets.layers(1, x)
    host = relay.nn.softmax(relay.sqrt(relay.abs(relay.cast(first, "float32"))))
    body = relay.Tuple([host, nets.layers(2, first)])
    assert len(regions(assert_equal_to_tvm(nets.module(body)))) == 1


def test_the_diamond_around_an_unsupported_operator_gives_two_regions():
    x = nets.data(name="x")
    first = nets.layers(1, x)
    odd = relay.cast(relay.abs(relay.cast(first, "int32")), "int8")
    body = relay.add(nets.requantize(nets.conv(first, 3)), odd)
    partitioned = assert_equal_to_tvm(nets.module(body))
    assert len(regions(partitioned)) == 2
    assert nets.host_operators(partitioned).count("abs") == 1


def test_a_maximum_of_widened_values_keeps_their_type():
    """An average sums narrow values in int32 by itself, a maximum does not widen them."""
    x = nets.data((1, 5, 2, 9), name="x")
    y = relay.nn.global_max_pool2d(relay.cast(relay.nn.relu(x), "int32"))
    assert len(regions(assert_equal_to_tvm(nets.module(y)))) == 1


@pytest.mark.long
def test_a_deep_chain_of_operators_is_partitioned():
    y = nets.data((16,), "int32", "x")
    for i in range(600):
        y = relay.add(y, relay.const(i))
        y = relay.nn.relu(y) if i % 7 else relay.annotation.stop_fusion(y)
    assert len(regions(assert_equal_to_tvm(nets.module(y)))) == 1


def test_bare_operators_in_a_region_of_the_users_own_are_built():
    x, y = nets.data((2, 3), "float32", "x"), nets.data((2, 3), "float32", "y")
    func = relay.Function([x, y], relay.multiply(relay.subtract(relay.add(x, y), y), x))
    func = func.with_attr("global_symbol", "own")
    graph = graph_from_region(func)
    assert [node.op.name for node in graph.nodes] == ["elementwise"] * 3


def test_an_operator_that_a_region_cannot_hold_is_named():
    x = nets.data((2, 3), "int32", "x")
    func = relay.Function([x], relay.abs(relay.add(x, x))).with_attr("global_symbol", "own")
    with pytest.raises(UnsupportedError, match=r"(?s)operator abs.*region own"):
        graph_from_region(func)


def test_every_node_keeps_the_names_of_its_sources():
    def named(call, name):
        return relay.Call(
            call.op, call.args, call.attrs, span=relay.Span(relay.SourceName(name), 1, 1, 1, 1)
        )

    y = named(nets.conv(nets.data()), "stem/conv")
    y = named(relay.add(y, relay.const(64)), "stem/rounding")
    y = named(relay.right_shift(y, relay.const(7)), "stem/shift")
    partitioned = tinyai.partition_for_tinyai(nets.module(y))
    (node,) = optimize(graph_from_region(nets.only_region(partitioned))).nodes
    assert node.sources == ("stem/conv", "stem/rounding", "stem/shift")


def test_cut_regions_takes_a_pattern_table_of_ones_own():
    mod = cut_regions(nets.module(nets.layers(2)), patterns=pattern_rows(stop_fusion=False))
    assert len(regions(mod)) == 1, "loose operators bridge what the patterns leave out"


@pytest.mark.parametrize("net", [nets.layers, nets.residual])
def test_patterns_for_a_module_cut_out_what_the_whole_table_does(net):
    """``cut_regions`` leaves out of its patterns what no operator of the module can match."""
    mod = relay.transform.InferType()(nets.module(net()))
    whole = [
        relay.transform.MergeComposite(pattern_table()),
        relay.transform.AnnotateTarget(["tinyai"]),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph("default"),
        relay.transform.InferType(),
    ]
    tvm.ir.assert_structural_equal(cut_regions(mod), tvm.transform.Sequential(whole)(mod))


def branches(fields):
    """A convolution on each field of a split."""
    return [nets.requantize(nets.conv(field, 20 + i)) for i, field in enumerate(fields)]


def test_a_split_whose_fields_meet_again_stays_in_one_region():
    x = nets.data((1, 8, 8, 8))
    left, right = branches(relay.split(relay.nn.relu(x), 2, axis=3))
    body = relay.concatenate([right, relay.add(left, right)], axis=3)
    partitioned = assert_equal_to_tvm(nets.module(body))
    assert len(regions(partitioned)) == 1
    assert nets.host_operators(partitioned) == []


def test_a_split_of_an_input_and_a_split_that_begins_a_region():
    first, second, third = relay.split(nets.data((1, 8, 8, 12)), 3, axis=3)
    partitioned = assert_equal_to_tvm(nets.module(relay.add(relay.subtract(first, third), second)))
    assert len(regions(partitioned)) == 1
    assert nets.host_operators(partitioned) == []


def test_a_dead_field_of_a_split_is_not_copied():
    parts = relay.split(nets.data((1, 8, 8, 12)), 3, axis=3)
    partitioned = assert_equal_to_tvm(nets.module(nets.requantize(nets.conv(parts[2]))))
    graph = optimize(graph_from_region(nets.only_region(partitioned)))
    assert [node.op.name for node in graph.nodes] == ["strided_slice", "conv2d"]


def test_a_split_whose_tuple_leaves_the_region():
    x = nets.data((1, 8, 8, 4))
    parts = relay.split(nets.layers(1, x), (1, 3), axis=1)
    partitioned = assert_equal_to_tvm(nets.module(parts.astuple()))
    assert len(regions(partitioned)) == 1
    assert nets.host_operators(partitioned) == []


@pytest.mark.parametrize("both", [False, True])
def test_fields_of_a_split_that_the_host_reads(both):
    """One field is read by the host, one by the region or by both, one is dead."""
    parts = relay.split(nets.layers(1, nets.data((1, 6, 8, 4))), 3, axis=1)
    host = relay.abs(relay.cast(parts[0], "int32"))
    inside = nets.requantize(nets.conv(parts[1], 5))
    fields = [host, inside] + [relay.abs(relay.cast(parts[1], "int32"))] * both
    partitioned = assert_equal_to_tvm(nets.module(relay.Tuple(fields)))
    assert set(nets.host_operators(partitioned)) <= {"abs", "cast"}


def test_a_split_on_the_host_between_two_regions():
    floats = relay.cast(nets.layers(1, nets.data((1, 8, 8, 4))), "float32")
    parts = relay.split(relay.sqrt(relay.nn.relu(floats)), 2, axis=1)
    whole = [relay.cast(relay.clip(relay.round(part), 0, 100), "int32") for part in parts]
    partitioned = assert_equal_to_tvm(nets.module(relay.add(*whole)))
    assert "split" in nets.host_operators(partitioned)


def test_a_split_of_one_field():
    (part,) = relay.split(nets.layers(1), 1, axis=3)
    partitioned = assert_equal_to_tvm(nets.module(nets.requantize(nets.conv(part, 4))))
    assert nets.host_operators(partitioned) == []


def test_a_split_in_a_composite_s_argument_and_a_stack_with_a_constant():
    left, right = relay.split(nets.data((1, 8, 8, 8)), 2, axis=3)
    fixed = relay.const(nets.weights(1, (1, 8, 8, 4)))
    body = relay.stack([nets.requantize(nets.conv(left)), fixed, right, right], axis=1)
    partitioned = assert_equal_to_tvm(nets.module(relay.nn.relu(body)))
    assert len(regions(partitioned)) == 1
    assert nets.host_operators(partitioned) == []


def test_a_path_up_by_resize_and_depth_to_space_stays_in_one_region():
    x = nets.layers(1)
    attrs = {"layout": "NHWC", "method": "nearest_neighbor"}
    larger = relay.image.resize2d(x, (16, 16), coordinate_transformation_mode="asymmetric", **attrs)
    deep = nets.requantize(nets.conv(x, 6, channels=16))
    wide = relay.nn.depth_to_space(deep, 2, "NHWC")
    partitioned = assert_equal_to_tvm(nets.module(relay.concatenate([larger, wide], axis=3)))
    assert len(regions(partitioned)) == 1
    assert nets.host_operators(partitioned) == []
