"""What the partitioner takes can be built: what has no C stays outside with its reason, and the
rest is divided anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from executorch.runtime import Runtime
from torch import Tensor, nn
from torch.export import ExportedProgram

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import eager, edge_of, program_of
from tests.support.faults import NO_KERNEL, broken, raises
from tinyai.errors import BoundaryError, DefectWarning
from tinyai.executorch import (
    TinyAIPartitioner,
    TinyAIQuantizer,
    explain,
    quantization_config,
)
from tinyai.frontends.executorch.operators import READERS
from tinyai.ops import Concatenate, Conv2d, Dense, MaxPool2d


class Branches(nn.Module):
    """Three convolutions, a maximum between the first two, a concatenation of two values."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 1)
        self.third = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.first(x)), 2)
        x = torch.cat([torch.relu(self.second(x)), x], 1)
        return self.third(x)


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    torch.manual_seed(3)
    samples = [(torch.randn(1, 2, 6, 6),) for _ in range(2)]
    quantizer = TinyAIQuantizer().set_global(quantization_config())
    return program_of(quantized(Branches().eval(), samples, quantizer))


def test_an_operator_without_code_stays_outside_with_its_pairs(program: ExportedProgram) -> None:
    with broken(raises(NO_KERNEL, MaxPool2d)):
        report = explain(program)
    (row,) = report.computing
    assert (row.operator, row.reason.clause) == ("aten.max_pool2d_with_indices", "code generation")
    assert (row.reason.found, row.reason.allowed) == ("no kernel: a large one", "a small one")
    pairs = [each.operator.rpartition(".")[2] for each in report.host if not each.computes]
    assert sorted(pairs) == ["dequantize_per_tensor", "quantize_per_tensor"]
    found = {each.reason.found for each in report.host if not each.computes}
    assert found == {"aten.max_pool2d_with_indices outside of a delegate"}
    assert len(report.regions) == 2
    assert len(explain(program).regions) == 1


def test_a_fault_of_tinyais_own_is_said_to_be_one(program: ExportedProgram) -> None:
    said = "max_pool2d_with_indices stays on the host.*fault of tinyai's own"
    with (
        broken(raises(KeyError("nothing here"), MaxPool2d)),
        pytest.warns(DefectWarning, match=said),
    ):
        (row,) = explain(program).computing
    assert row.reason.clause == "a fault of tinyai's own"
    assert "KeyError: 'nothing here'" in row.reason.found


def test_an_operator_that_cannot_be_read_for_a_fault_of_tinyais_own_stays_outside(
    program: ExportedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reader(_: object) -> None:
        raise KeyError("nothing here")

    monkeypatch.setitem(READERS, "aten.cat", reader)
    with pytest.warns(DefectWarning, match="aten.cat stays on the host.*fault of tinyai's own"):
        report = explain(program)
    (row,) = report.computing
    assert (row.operator, row.reason.clause) == ("aten.cat", "a fault of tinyai's own")
    assert len(report.regions) == 2
    assert "report it" in row.hint


@pytest.mark.parametrize("kinds", [(MaxPool2d, Concatenate), (Conv2d, Concatenate)])
def test_of_what_fails_together_the_last_part_stays_outside(
    program: ExportedProgram, kinds: tuple[type, ...]
) -> None:
    with broken(raises(NO_KERNEL, *kinds)):
        assert [row.operator for row in explain(program).computing] == ["aten.cat"]


def test_where_nothing_has_code_nothing_is_delegated(program: ExportedProgram) -> None:
    with broken(raises(NO_KERNEL)):
        report = explain(program)
    assert report.regions == ()
    assert {"aten.convolution", "aten.cat"} <= {row.operator for row in report.computing}


def test_strict_objects_to_what_has_no_code(program: ExportedProgram) -> None:
    with (
        broken(raises(NO_KERNEL, MaxPool2d)),
        pytest.raises(BoundaryError, match=r"1 aten\.max_pool2d_with") as caught,
    ):
        TinyAIPartitioner(strict=True).partition(program)
    assert "no kernel: a large one" in str(caught.value)


class Shared(nn.Module):
    """A value that is made of constants, and read in front of a tanh and behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        first, second, of_constants = self.layers
        made = of_constants(torch.ones(1, 8))
        return second(torch.tanh(first(x) + made)) + made


def test_what_another_delegate_computes_is_no_constant() -> None:
    torch.manual_seed(3)
    samples = [(torch.randn(1, 8),) for _ in range(3)]
    exported = quantized(
        Shared().eval(), samples, TinyAIQuantizer().set_global(quantization_config())
    )
    assert explain(exported).computing == ()
    partitioner = TinyAIPartitioner(operators_not_to_delegate=["aten.tanh"])
    graph = edge_of(exported, partitioner).exported_program().graph
    assert sum("call_delegate" in str(node.target) for node in graph.nodes) == 1
    report = explain(exported, operators_not_to_delegate=["aten.tanh"])
    (reason,) = (row.reason for row in report.computing if row.operator == "aten.add")
    assert (reason.found, reason.allowed) == ("aten.linear", "a quantized value")


def test_a_linear_layer_that_is_read_whole_and_has_no_code_runs_in_the_runtime() -> None:
    torch.manual_seed(3)
    samples = [(torch.randn(1, 8),) for _ in range(3)]
    quantizer = TinyAIQuantizer().set_global(quantization_config())
    exported = quantized(nn.Linear(8, 8).eval(), samples, quantizer)
    ((sample,), *_) = samples
    with broken(raises(NO_KERNEL, Dense)):
        assert [row.operator for row in explain(exported).computing] == ["aten.linear"]
        program = edge_of(exported, TinyAIPartitioner()).to_executorch().buffer
    (found,) = Runtime.get().load_program(program).load_method("forward").execute([sample])
    np.testing.assert_array_equal(found, eager(program_of(exported), sample))


@pytest.mark.parametrize(("cell", "parts"), [(nn.LSTM, 0), (nn.quantizable.LSTM, 1)])
def test_products_of_constants_do_not_stop_a_program(cell: type[nn.Module], parts: int) -> None:
    """Of an LSTM's first state, which is zero. One of torch's own is quantized by nobody."""
    torch.manual_seed(3)
    samples = [(torch.randn(1, 3, 8),) for _ in range(3)]
    module = cell(8, 6, batch_first=True).eval()
    quantizer = TinyAIQuantizer().set_global(quantization_config())
    program = edge_of(quantized(module, samples, quantizer), TinyAIPartitioner())
    calls = [str(node.target) for node in program.exported_program().graph.nodes]
    assert sum("call_delegate" in each for each in calls) == parts
