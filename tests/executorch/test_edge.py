"""Edge programs become graphs: what is read, what is delegated, and why the rest is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from torch import Tensor, nn
from torch.export import ExportedProgram

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import delegates, eager, edge_of, program_of
from tinyai.errors import BoundaryError, OptionError, UnsupportedError
from tinyai.executorch import (
    TinyAIPartitioner,
    TinyAIQuantizer,
    explain,
    graph_of,
    load,
    quantization_config,
)
from tinyai.frontends.executorch import reader
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.target import Target

IMAGE = (1, 3, 12, 10)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, 2, 1, groups=8)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = nn.functional.hardswish(self.second(x)) + nn.functional.max_pool2d(x, 2)
        x = torch.cat([x, torch.sigmoid(x)], 1)[:, ::2] * 2.0
        return self.last(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def converted(module: nn.Module, *shapes: tuple[int, ...], last: bool = False) -> ExportedProgram:
    torch.manual_seed(3)
    order = torch.channels_last if last else torch.contiguous_format
    samples = [tuple(torch.randn(s).to(memory_format=order) for s in shapes) for _ in range(3)]
    return quantized(module.eval(), samples, TinyAIQuantizer().set_global(quantization_config()))


def small(*, last: bool = False) -> ExportedProgram:
    torch.manual_seed(1)
    return program_of(converted(Small(), IMAGE, last=last))


def test_a_network_is_one_graph_with_ports_and_names_of_the_source() -> None:
    program = small()
    graph = graph_of(program, name="small")
    assert graph.graph.name == "small"
    (port,) = graph.inputs
    assert (port.name, port.dtype, port.shape, port.dim_order) == (
        "x",
        "float32",
        IMAGE,
        (0, 1, 2, 3),
    )
    sources = {name for node in graph.graph.nodes for name in node.sources}
    assert sources <= graph.handles.keys()
    assert {"aten_convolution_default", "aten_linear_default"} <= sources


@pytest.mark.parametrize("isa", ["scalar", "auto"])
@pytest.mark.parametrize("last", [False, True])
def test_c_equals_the_reference_and_the_eager_graph_within_a_step(isa: str, last: bool) -> None:
    program = small(last=last)
    made = graph_of(program)
    order = torch.channels_last if last else torch.contiguous_format
    image = torch.randn(IMAGE, generator=torch.Generator().manual_seed(5)).to(memory_format=order)
    stored = np.ascontiguousarray(image.numpy().transpose(made.inputs[0].dim_order))
    (expected,) = run_graph(made.graph, [stored])
    np.testing.assert_array_equal(Runner(made.graph, Target(isa=isa))(stored)[0], expected)
    wanted = eager(program, image)
    step = float(np.diff(np.unique(np.concatenate([wanted, expected]))).min())
    assert np.abs(wanted - expected).max() <= 2 * step, "a step, and one of a layer before"
    assert np.unique(expected).size == 5


@pytest.mark.parametrize("last", [False, True])
def test_images_are_transposed_at_the_ends_at_most(last: bool) -> None:
    """None where images come with channels last."""
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    if last:
        module = module.to(memory_format=torch.channels_last)
    made = graph_of(program_of(converted(module, IMAGE, last=last)))
    turned = [n for n in optimize(made.graph).nodes if n.op.name in ("transpose", "interleave")]
    assert len(turned) == (0 if last else 2)
    assert made.outputs[0].dim_order == ((0, 2, 3, 1) if last else (0, 1, 2, 3))


def test_the_partitioner_tags_a_network_as_one_delegate() -> None:
    program = small()
    result = TinyAIPartitioner(isa="scalar", threads=2).partition(program)
    ((tag, spec),) = result.partition_tags.items()
    assert spec.backend_id == "TinyAIExecuTorchBackend"
    specs = {each.key: each.value for each in spec.compile_specs}
    assert specs == {"isa": b"scalar", "threads": b"2", "rounding": b"torch"}
    nodes = [n for n in program.graph.nodes if n.op == "call_function"]
    assert {node.meta["delegation_tag"] for node in nodes} == {tag}


class Host(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = torch.relu(x + y)
        return torch.cumsum(x, 1) + y


def test_what_stays_outside_is_told_with_its_reason_and_its_pairs_stay_with_it() -> None:
    program = program_of(converted(Host(), (1, 4, 8), (1, 4, 8)))
    report = explain(program)
    found = {row.operator: row for row in report.computing}
    assert found["aten.cumsum"].reason.found == "aten.cumsum"
    assert "XnnpackPartitioner" in found["aten.cumsum"].hint
    assert found["aten.cumsum"].reason.allowed.startswith("one that tinyai reads")
    with pytest.raises(BoundaryError, match=r"aten\.cumsum"):
        TinyAIPartitioner(strict=True).partition(program)
    with pytest.raises(UnsupportedError, match=r"operator aten\.cumsum 'aten_cumsum_default'"):
        graph_of(program)


def test_operators_that_are_not_to_be_delegated_are_not() -> None:
    program = small()
    for name in ("aten.cat", "aten.cat.default"):
        report = explain(program, operators_not_to_delegate=[name])
        assert [row.operator for row in report.computing] == ["aten.cat"]
        assert len(report.regions) == 2
    assert explain(program).computing == ()


class OfConstants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(torch.zeros(1, 4)) + self.second(x)


@pytest.mark.parametrize("without", [(), ("aten.full",)])
def test_a_program_with_a_layer_of_constants_can_be_written(without: tuple[str, ...]) -> None:
    """What depends on no input is no operator at run time, so that it is delegated or not."""
    partitioner = TinyAIPartitioner(operators_not_to_delegate=without)
    edge = edge_of(converted(OfConstants(), (1, 4)), partitioner)
    calls = [str(node.target) for node in edge.exported_program().graph.nodes]
    assert sum("call_delegate" in name for name in calls) == 1
    assert edge.to_executorch().buffer


def test_an_unquantized_network_is_left_whole() -> None:
    example = (torch.randn(IMAGE),)
    program = program_of(torch.export.export(Small().eval(), example))
    report = explain(program)
    assert report.regions == ()
    rows = {row.name: row for row in report.computing}
    assert {"aten.convolution", "aten.linear"} <= {row.operator for row in report.computing}
    row = rows["aten_linear_default"]
    assert row.reason.found == "read as float32 by an output of the program"
    assert "TinyAIQuantizer" in row.hint


class Products(nn.Module):
    """Each operator whose work is counted, and one whose work is not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3, stride=2, groups=2)
        self.up = nn.ConvTranspose2d(6, 5, 2, stride=2)
        self.line = nn.Conv1d(8, 3, 3)
        self.linear = nn.Linear(7, 9)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x = self.up(self.conv(x))
        return x, self.line(y), self.linear(y), y @ y.transpose(1, 2), y[0] @ y[0].t(), x + 1


def test_the_work_of_what_stays_outside_is_counted() -> None:
    example = (torch.randn(2, 4, 9, 9), torch.randn(2, 8, 7))
    report = explain(program_of(torch.export.export(Products().eval(), example)))
    assert {row.operator: row.macs for row in report.computing if row.macs is None} == {
        "aten.add": None
    }
    found = sorted(row.macs for row in report.computing if row.macs is not None)
    assert found == sorted(
        [
            2 * 4 * 4 * 6 * 2 * 9,  # each place of the result and each weight
            2 * 4 * 4 * 6 * 5 * 4,  # each place of the data and each weight
            2 * 5 * 3 * 8 * 3,
            2 * 8 * 9 * 7,
            2 * 8 * 8 * 7,
            8 * 8 * 7,
        ]
    )


class FloatsAndConstants(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.minimum(x, torch.zeros(1, 4).view(4, 1))


def test_constants_that_only_the_host_reads_are_no_delegate() -> None:
    program = program_of(torch.export.export(FloatsAndConstants(), (torch.randn(4, 4),)))
    report = explain(program)
    assert report.regions == ()
    assert [row.operator for row in report.computing] == ["aten.minimum"]


def test_a_program_whose_numbers_are_not_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a torch that keeps them elsewhere: nothing is built on numbers that are made up."""
    monkeypatch.setattr(reader, "_behind", lambda fake: None)
    with pytest.raises(UnsupportedError, match=r"(?s)constants of a program.*without numbers"):
        edge_of(converted(nn.Linear(4, 6), (1, 4)), TinyAIPartitioner())


@pytest.mark.parametrize("without", [(), ("aten.hardswish",)])
def test_what_is_not_delegated_is_taken_apart_and_the_program_can_be_written(
    without: tuple[str, ...],
) -> None:
    """Whole, it would be an error of ExecuTorch's: because it is float, or not to be delegated."""
    module = nn.Sequential(nn.Linear(4, 6), nn.Hardswish())
    using = TinyAIQuantizer().set_global(quantization_config())
    if not without:
        using.set_module_type(nn.Hardswish, None)
    samples = [(torch.randn(1, 4, generator=torch.Generator().manual_seed(n)),) for n in range(3)]
    exported = quantized(module.eval(), samples, using)
    edge = edge_of(exported, TinyAIPartitioner(operators_not_to_delegate=without))
    calls = [str(node.target) for node in edge.exported_program().graph.nodes]
    assert sum("call_delegate" in name for name in calls) == 1
    assert not any("hardswish" in name for name in calls)
    assert edge.to_executorch().buffer


class Stream(nn.Module):
    """Adds to an image the one before."""

    before: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.register_buffer("before", torch.zeros(1, 2, 6, 6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x + self.before)
        self.before.copy_(x)
        return y


def test_a_delegate_reads_a_buffer_that_the_program_changes() -> None:
    """It gets the buffer as it is at each call. XNNPACK's quantizer has pairs for buffers."""
    load()
    samples = [(torch.randn(1, 2, 6, 6),) for _ in range(3)]
    xnnpack = get_symmetric_quantization_config(is_per_channel=True)
    exported = quantized(Stream().eval(), samples, XNNPACKQuantizer().set_global(xnnpack))
    edge = edge_of(exported, TinyAIPartitioner())
    assert delegates(edge) == ["TinyAIExecuTorchBackend"]
    assert explain(exported).computing == ()
    others = edge_of(exported, XnnpackPartitioner())
    buffers = [each.to_executorch().buffer for each in (others, edge)]
    methods = [_load_for_executorch_from_buffer(buffer) for buffer in buffers]
    generator = torch.Generator().manual_seed(8)
    for _ in range(3):
        image = torch.randn(1, 2, 6, 6, generator=generator)
        expected, found = (method.forward([image])[0].numpy() for method in methods)
        np.testing.assert_array_equal(found, expected)


def test_options_that_are_none_are_refused() -> None:
    with pytest.raises(OptionError, match="rounding"):
        TinyAIPartitioner(rounding="onnx")
    with pytest.raises(OptionError, match="unknown option"):
        TinyAIPartitioner(colour="red")
    with pytest.raises(OptionError, match="operators_not_to_delegate"):
        TinyAIPartitioner(operators_not_to_delegate="aten.add")
    with pytest.raises(OptionError, match="abi"):
        TinyAIPartitioner(abi="unpacked")
    with pytest.raises(OptionError, match="strict"):
        TinyAIPartitioner(strict="yes")  # type: ignore[arg-type]
    for static in (3, "", "a b"):
        with pytest.raises(OptionError, match="static"):
            TinyAIPartitioner(static=static)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="edge program"):
        explain(3)


@pytest.mark.parametrize("names", ["aten.add", None, [3], ["aten.ad"], ["add"], ["aten.add.x"]])
def test_names_that_no_operator_has_are_refused(names: Any) -> None:
    """A name with a letter wrong would say nothing, and all would be delegated."""
    with pytest.raises(OptionError, match=r"aten\.linear\.default"):
        TinyAIPartitioner(operators_not_to_delegate=names)


def test_a_report_of_what_is_lowered_or_of_no_method_is_refused() -> None:
    exported = converted(Host(), (1, 4, 8), (1, 4, 8))
    with pytest.raises(OptionError, match=r'explain\(edge, method="forward"\)'):
        explain(edge_of(exported), method="backward")
    with pytest.raises(OptionError, match="not lowered yet"):
        explain(edge_of(exported, TinyAIPartitioner()))


def test_a_report_of_an_exported_program_is_that_of_its_edge_program_and_tells_limits() -> None:
    exported = converted(Small(), IMAGE)
    report = explain(exported, arena_limit=10)
    assert report.computing == ()
    (region,) = report.regions
    assert region.exceeds == ("arena_limit",)
    assert explain(program_of(exported), arena_limit=10) == report


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_floats_that_are_not_float32_are_said_to_be_that(dtype: torch.dtype) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1)).to(dtype)
    exported = torch.export.export(module.eval(), (torch.randn(IMAGE).to(dtype),))
    (row,) = explain(exported).computing
    assert (row.reason.found, row.reason.allowed) == (str(dtype)[6:], "float32, quantized")
    assert "module.float()" in row.hint


def test_delegates_of_others_are_nothing_that_strict_objects_to() -> None:
    edge = edge_of(
        converted(Small(), IMAGE),
        *(TinyAIPartitioner(operators_not_to_delegate=["aten.add"]), XnnpackPartitioner()),
        TinyAIPartitioner(strict=True, operators_not_to_delegate=["aten.add"]),
    )
    assert sorted(set(delegates(edge))) == ["TinyAIExecuTorchBackend", "XnnpackBackend"]


def test_xnnpack_takes_what_is_left_and_the_program_computes_the_same() -> None:
    """A sum that tinyai is to leave: its pairs go with it, or XNNPACK would not know it."""
    load()
    exported = converted(Small(), IMAGE)
    without = TinyAIPartitioner(operators_not_to_delegate=("aten.add",))
    edge = edge_of(exported, without, XnnpackPartitioner())
    nodes = [n for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    assert {n.name.rstrip("_0123456789") for n in nodes} == {"executorch_call_delegate", "getitem"}
    assert sorted(delegates(edge)) == ["TinyAIExecuTorchBackend"] * 2 + ["XnnpackBackend"]
    image = torch.randn(IMAGE, generator=torch.Generator().manual_seed(9))
    buffer = edge.to_executorch().buffer
    (result,) = _load_for_executorch_from_buffer(buffer).forward([image])
    (expected,) = run_graph(graph_of(program_of(exported)).graph, [image.numpy()])
    np.testing.assert_array_equal(result.numpy(), expected)
