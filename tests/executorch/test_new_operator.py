"""An operator of torch is added in one place: its row is what the quantizer and the partitioner
ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from executorch.runtime import Runtime
from torch import Tensor, nn

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import eager, edge_of
from tinyai.executorch import TinyAIPartitioner, TinyAIQuantizer, load, quantization_config
from tinyai.frontends.executorch.operators import KEPT_WHOLE, READERS
from tinyai.frontends.executorch.operators.rows import reads
from tinyai.frontends.executorch.reader import Site
from tinyai.source import Expr, Tuple


def read_roll(site: Site) -> Expr:
    """The end of a row, then its beginning."""
    value, (by,) = site.value("self"), site.args["shifts"]
    (dim,), shape = site.args["dims"], site.shape
    parts = []
    for start, size in ((shape[dim] - by, by), (0, shape[dim] - by)):
        of = replace(site.type, shape=tuple(size if d == dim else n for d, n in enumerate(shape)))
        begin = tuple(start if d == dim else 0 for d in range(len(shape)))
        attrs = {"begin": begin, "strides": (1,) * len(shape), "axes": None, "slice_mode": "end"}
        parts.append(site.call("strided_slice", value, of=of, **attrs))
    whole = Tuple(tuple(each.type for each in parts), load=lambda: tuple(parts))
    return site.call("concatenate", whole, axis=dim)


@pytest.fixture
def row() -> Iterator[None]:
    """What a file in ``operators/`` does by being there."""
    readers, whole = dict(READERS), list(KEPT_WHOLE)
    reads("roll", whole=[torch.ops.aten.roll.default])(read_roll)
    yield
    READERS.clear()
    READERS.update(readers)
    KEPT_WHOLE[:] = whole


class Rolling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.roll(torch.relu(self.one(x)), 3, 1))


def exported(using: TinyAIQuantizer) -> torch.export.ExportedProgram:
    samples = [(torch.randn(5, 6, generator=torch.Generator().manual_seed(n)),) for n in range(3)]
    return quantized(Rolling().eval(), samples, using.set_global(quantization_config()))


def test_without_its_row_it_stays_float() -> None:
    using = TinyAIQuantizer()
    exported(using)
    assert [each.operator for each in using.left] == ["aten.roll.default"]


@pytest.mark.usefixtures("row")
def test_with_one_row_it_is_quantized_and_delegated() -> None:
    load()
    using = TinyAIQuantizer()
    program = exported(using)
    assert using.left == ()

    edge = edge_of(program, TinyAIPartitioner(strict=True))
    calls = [str(n.target) for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    assert [name for name in calls if "getitem" not in name] == ["executorch_call_delegate"]
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(9))
    buffer = edge.to_executorch().buffer
    (result,) = Runtime.get().load_program(buffer).load_method("forward").execute([x])
    wanted = eager(program, x)
    step = float(np.diff(np.unique(wanted)).min())
    assert np.abs(result.numpy() - wanted).max() <= 1.01 * step
    assert np.unique(wanted).size > 5
