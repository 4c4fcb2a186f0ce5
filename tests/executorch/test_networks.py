"""Whole networks: one delegate each, the integers of the reference, the choices of eager torch."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.passes.quantize_io_pass import QuantizeInputs, QuantizeOutputs
from executorch.runtime import Runtime
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from benchmarks.torch_networks import NETWORKS, Network, quantized
from tests.executorch.edge_programs import edge_of, program_of
from tests.support.machines import runnable_isas
from tests.support.structure import structure
from tinyai.executorch import (
    TinyAIPartitioner,
    TinyAIQuantizer,
    graph_of,
    load,
    quantization_config,
)
from tinyai.ir import Array
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

CONFIG = quantization_config()
SLOW = ("mobilenet_v1", "mobilenet_v2", "resnet18", "unet")
CLASSIFIERS = ("resnet8", "ds_cnn", "mobilenet_v1", "mobilenet_v2", "resnet18", "squeeze_excite")
EACH = [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in NETWORKS]
FIRST = ("resnet8", "squeeze_excite")
OFTEN = [pytest.param(n, marks=[] if n in FIRST else [pytest.mark.slow]) for n in NETWORKS]


@functools.cache
def network(name: str) -> Network:
    return NETWORKS[name]()


@functools.cache
def program(name: str, quantizer: str = "tinyai") -> ExportedProgram:
    """The network, quantized."""
    using = (
        TinyAIQuantizer().set_global(CONFIG)
        if quantizer == "tinyai"
        else XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    )
    return quantized(network(name).module, network(name).samples(4, seed=5), using)


def lowered(exported: ExportedProgram, **options: str) -> EdgeProgramManager:
    """All of it by tinyai, or an error."""
    return to_edge_transform_and_lower(
        exported, partitioner=[TinyAIPartitioner(strict=True, **options)]
    )


def operators(edge: EdgeProgramManager) -> list[str]:
    nodes = (node for node in edge.exported_program().graph.nodes if node.op == "call_function")
    return [str(node.target) for node in nodes if "getitem" not in str(node.target)]


def stored(sample: Tensor, order: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(sample.numpy().transpose(order))


@pytest.mark.parametrize("name", EACH)
def test_a_network_is_one_delegate_with_the_reference_s_results_and_eager_torch_s_choice(
    name: str,
) -> None:
    load()
    exported = program(name)
    made = graph_of(program_of(exported))
    edge = lowered(exported)
    assert operators(edge) == ["executorch_call_delegate"]

    buffer = edge.to_executorch().buffer
    method = Runtime.get().load_program(buffer).load_method("forward")
    samples = [sample for (sample,) in network(name).samples(100)]
    found = [method.execute([sample])[0].clone() for sample in samples]

    for sample, result in list(zip(samples, found, strict=True))[:2]:
        (expected,) = run_graph(made.graph, [stored(sample, made.inputs[0].dim_order)])
        np.testing.assert_array_equal(stored(result, made.outputs[0].dim_order), expected)
    if name in CLASSIFIERS:
        eager = exported.module()
        with torch.no_grad():
            assert list(map(top, found)) == [top(eager(sample)) for sample in samples]


@pytest.mark.parametrize("name", EACH)
def test_a_program_is_read_as_its_edge_program_is(name: str) -> None:
    """So the Relax front end is held to what this one reads of the program, where there is no
    ExecuTorch."""
    exported = program(name)
    assert structure(graph_of(exported).graph) == structure(graph_of(program_of(exported)).graph)


def top(scores: Tensor) -> int:
    return int(scores.argmax())


@pytest.mark.parametrize("name", OFTEN)
def test_each_layer_is_within_a_step_of_eager_torch_s(name: str) -> None:
    """Of the same integers: differences of the layers before do not count."""
    (sample,) = network(name).samples(1)[0]
    module = program(name).module()
    rounded = [node for node in module.graph.nodes if is_rounding(node)]
    output = module.graph.output_node()
    output.args = (tuple(rounded),)  # every layer's integers are results
    module.graph.set_codegen(torch.fx.graph.CodeGen())
    module.recompile()

    made = graph_of(program_of(torch.export.export(module, (sample,))))
    found = run_graph(made.graph, [stored(sample, made.inputs[0].dim_order)])
    ours = {
        node: torch.from_numpy(result).permute(*np.argsort(port.dim_order).tolist())
        for node, result, port in zip(rounded, found, made.outputs, strict=True)
    }
    layers = Layers(module, ours)
    with torch.no_grad():
        layers.run(sample)

    assert len(layers.steps) == len(rounded)
    assert max(layers.steps.values()) <= 1, layers.steps


def is_rounding(node: Node) -> bool:
    """Whether it quantizes a value of run time."""
    return ".quantize_per_tensor" in str(node.target) and node.args[0].op != "get_attr"


class Layers(torch.fx.Interpreter):
    """Eager torch, which goes on with the integers of ``ours``; how far its own were from them."""

    def __init__(self, module: torch.fx.GraphModule, ours: dict[Node, Tensor]) -> None:
        super().__init__(module)
        self.ours, self.steps = ours, {}

    def run_node(self, node: Node) -> object:
        result = super().run_node(node)
        if node not in self.ours:
            return result
        mine = self.ours[node]
        assert result.dtype == mine.dtype
        self.steps[node] = int((result.int() - mine.int()).abs().max())
        return mine


@pytest.mark.parametrize("name", OFTEN)
def test_every_instruction_set_of_this_machine_gives_the_reference_s_integers(name: str) -> None:
    made = graph_of(program_of(program(name)))
    samples = [stored(x, made.inputs[0].dim_order) for (x,) in network(name).samples(2)]
    expected = [run_graph(made.graph, [sample])[0] for sample in samples]

    for isa in runnable_isas():
        runner = Runner(made.graph, Target(isa=isa))
        for sample, result in zip(samples, expected, strict=True):
            np.testing.assert_array_equal(runner(sample)[0], result, err_msg=isa)


@pytest.mark.parametrize("name", [each for each in EACH if each.values[0] != "squeeze_excite"])
def test_xnnpack_s_quantizer_makes_one_delegate_too(name: str) -> None:
    assert operators(lowered(program(name, "xnnpack"), isa="scalar")) == [
        "executorch_call_delegate"
    ]


@functools.cache
def last_program(name: str) -> ExportedProgram:
    """The network with its images in the order NHWC, quantized."""
    last = network(name).with_channels_last()
    return quantized(last.module, last.samples(4, seed=5), TinyAIQuantizer().set_global(CONFIG))


@pytest.mark.parametrize("name", [each for each in OFTEN if each.values[0] != "autoencoder"])
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_network_of_any_memory_format_and_ends_is_one_delegate_transposed_at_its_ends_at_most(
    name: str, last: bool, dtype: str
) -> None:
    """With channels last nothing is; ends of int8 are those of ExecuTorch's own passes."""
    edge = edge_of(last_program(name) if last else program(name))
    if dtype == "int8":
        edge = edge.transform([QuantizeInputs(edge, [0]), QuantizeOutputs(edge, [0])])
    made = graph_of(edge.exported_program())
    assert {made.inputs[0].dtype, made.outputs[0].dtype} == {dtype}
    turned = [node for node in optimize(made.graph).nodes if node.op.name == "transpose"]
    images = [port for port in (*made.inputs, *made.outputs) if len(port.shape) == 4]
    assert len(turned) <= (0 if last else len(images))
    lowered = edge.to_backend(TinyAIPartitioner(strict=True, isa="scalar"))
    assert operators(lowered) == ["executorch_call_delegate"]


def test_channels_last_inputs_are_one_delegate_with_the_reference_s_results() -> None:
    load()
    last, exported = network("resnet8").with_channels_last(), last_program("resnet8")
    edge = lowered(exported)
    assert operators(edge) == ["executorch_call_delegate"]

    buffer = edge.to_executorch().buffer
    method = Runtime.get().load_program(buffer).load_method("forward")
    made = graph_of(program_of(exported))
    for (sample,) in last.samples(2):
        result = method.execute([sample])[0]
        (expected,) = run_graph(made.graph, [stored(sample, made.inputs[0].dim_order)])
        assert made.inputs[0].dim_order == (0, 2, 3, 1)
        np.testing.assert_array_equal(stored(result, made.outputs[0].dim_order), expected)
