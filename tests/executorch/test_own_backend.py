"""A back end of one's own in ExecuTorch: its composites, passes and kernels in delegates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.runtime import Runtime
from torch import Tensor, nn

import tinyai
from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import edge_of, program_of
from tests.support.magnitudes import KERNEL, REALS, ROW, Magnitude
from tinyai.backend import TinyAIBackend
from tinyai.errors import OptionError, OwnCodeError, UsageWarning
from tinyai.executorch import (
    TinyAIPartitioner,
    TinyAIQuantizer,
    explain,
    graph_of,
    load,
    quantization_config,
    write_static,
)
from tinyai.frontends.executorch.backend import TinyAIExecuTorchBackend
from tinyai.ir import Array, Graph
from tinyai.match import AnyConstant, op
from tinyai.own import backend_of
from tinyai.source import Refusal


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.abs(self.one(x)))


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    samples = [(torch.randn(5, 6),) for _ in range(3)]
    using = TinyAIQuantizer().set_global(quantization_config())
    return quantized(Layers().eval(), samples, using)


@pytest.fixture(autouse=True)
def _registered() -> None:
    tinyai.register_backend("magnitudes", TinyAIBackend, [ROW], kernels=[KERNEL])


def by_reference(program: torch.export.ExportedProgram, x: Tensor, backend: str) -> Array:
    graph = graph_of(program_of(program), own=backend_of(backend)).graph
    return tinyai.run_graph(graph, [x.numpy()])[0]


def by_delegate(program: torch.export.ExportedProgram, x: Tensor, **options: Any) -> Array:
    load()
    edge = edge_of(program, TinyAIPartitioner(strict=True, **options))
    buffer = edge.to_executorch().buffer
    (result,) = Runtime.get().load_program(buffer).load_method("forward").execute([x])
    return np.array(result.numpy())


def test_a_delegate_has_the_composites_and_kernels_of_ones_own(
    exported: torch.export.ExportedProgram,
) -> None:
    graph = graph_of(program_of(exported), own=backend_of("magnitudes")).graph
    assert [node.op.name for node in graph.nodes].count("magnitude") == 1
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(9))
    ours = by_delegate(exported, x, backend="magnitudes")
    np.testing.assert_array_equal(ours, by_reference(exported, x, "magnitudes"))
    assert (ours != by_delegate(exported, x)).any(), "the scale is another"


def test_two_back_ends_are_in_one_program(exported: torch.export.ExportedProgram) -> None:
    """What one of them must not have goes to the other."""
    load()
    first = TinyAIPartitioner(backend="magnitudes", operators_not_to_delegate=["aten.linear"])
    edge = edge_of(exported, first, TinyAIPartitioner())
    buffer = edge.to_executorch().buffer
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(9))
    (result,) = Runtime.get().load_program(buffer).load_method("forward").execute([x])
    np.testing.assert_array_equal(result.numpy(), by_reference(exported, x, "magnitudes"))


def test_passes_of_ones_own_change_the_graphs_of_delegates(
    exported: torch.export.ExportedProgram,
) -> None:
    def from_zero(graph: Graph) -> Graph:
        return replace(
            graph,
            nodes=tuple(
                replace(node, op=Magnitude(0)) if isinstance(node.op, Magnitude) else node
                for node in graph.nodes
            ),
        )

    details, rows, kernels = TinyAIBackend, [ROW], [KERNEL]
    tinyai.register_backend("from_zero", details, rows, passes=[from_zero], kernels=kernels)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(9))
    ours = by_delegate(exported, x, backend="from_zero")
    np.testing.assert_array_equal(ours, by_reference(exported, x, "from_zero"))
    assert (ours != by_reference(exported, x, "magnitudes")).any()


def test_a_c_package_has_the_kernels_of_ones_own(
    exported: torch.export.ExportedProgram, tmp_path: Any
) -> None:
    edge = edge_of(exported, TinyAIPartitioner(static=True, backend="magnitudes"))
    write_static(edge.to_executorch(), tmp_path / "static")
    texts = [file.read_text() for file in (tmp_path / "static").rglob("*.c")]
    assert any("far < 0 ? -far : far" in text for text in texts)


def test_a_report_says_what_is_delegated_with_it(exported: torch.export.ExportedProgram) -> None:
    report = explain(edge_of(exported), backend="magnitudes")
    assert len(report.regions) == 1
    assert not report.host


def test_what_a_builder_refuses_is_said_and_goes_to_tinyai(
    exported: torch.export.ExportedProgram,
) -> None:
    def refuses(*_: Any) -> Any:
        raise Refusal("colour", "red", "blue")

    tinyai.register_backend("choosy", TinyAIBackend, [replace(ROW, build=refuses)])
    with pytest.warns(UserWarning, match=r"(?s)magnitude is not made at .*colour.*red.*blue"):
        report = explain(edge_of(exported), backend="choosy")
    assert len(report.regions) == 1
    assert not report.host


def test_a_delegate_has_one_back_end_of_ones_own(exported: torch.export.ExportedProgram) -> None:
    specs = [CompileSpec("backend", b"magnitudes"), CompileSpec("backend", b"other")]
    with pytest.raises(OptionError, match=r"(?s)'magnitudes', 'other'.*one for a delegate"):
        TinyAIExecuTorchBackend.preprocess(program_of(exported), specs)


def fails(*_: Any) -> Any:
    raise KeyError("colour")


@pytest.mark.parametrize(
    ("extension", "where"),
    [
        ({"patterns": [replace(ROW, build=fails)]}, "the graph of "),
        ({"patterns": [], "passes": [fails]}, "pass fails"),
        ({"patterns": [ROW], "kernels": [replace(KERNEL, prepare=fails)]}, "the kernel for "),
    ],
    ids=["builder", "pass", "kernel"],
)
def test_what_ones_own_raises_names_it_and_the_back_end(
    exported: torch.export.ExportedProgram, extension: dict[str, Any], where: str
) -> None:
    tinyai.register_backend("failing", TinyAIBackend, **extension)
    with pytest.raises(OwnCodeError) as caught:
        edge_of(exported, TinyAIPartitioner(backend="failing"))
    assert "fails of the back end 'failing' failed" in caught.value.what
    assert where in caught.value.what


def test_an_unknown_back_end_is_refused_with_those_that_there_are(
    exported: torch.export.ExportedProgram,
) -> None:
    with pytest.raises(OptionError, match=r"(?s)'other'.*magnitudes"):
        TinyAIPartitioner(backend="other")
    with pytest.raises(OptionError, match=r"(?s)'other'.*magnitudes"):
        explain(edge_of(exported), backend="other")
    with pytest.raises(OptionError, match=r"(?s)'other'.*magnitudes"):
        TinyAIExecuTorchBackend.preprocess(program_of(exported), [CompileSpec("backend", b"other")])


def test_a_back_end_that_takes_nothing_says_what_came_nearest(
    exported: torch.export.ExportedProgram,
) -> None:
    sign = op("quantize", op("sign", REALS), AnyConstant(), AnyConstant())
    tinyai.register_backend("choosy", TinyAIBackend, [replace(ROW, pattern=sign)])
    said = r"(?s)'choosy' takes nothing.*nearest.*allowed: *sign"
    with pytest.warns(UsageWarning, match=said):
        explain(edge_of(exported), backend="choosy")
    with pytest.warns(UsageWarning, match=said):
        edge_of(exported, TinyAIPartitioner(backend="choosy"))
