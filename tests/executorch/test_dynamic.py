"""Programs with dynamic dimensions: what has fixed ones is delegated, and no size is."""

from __future__ import annotations

import torch
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from tests.executorch.edge_programs import by_runtime, delegates
from tinyai.executorch import TinyAIPartitioner, TinyAIQuantizer, quantization_config
from tinyai.frontends.executorch.reader import operator_of


class Circular(nn.Module):
    """ExecuTorch fixes the size of what is padded in this way; a reshape after it still asks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x)).flatten(1).unflatten(1, (4, -1)).tanh()


def test_a_size_is_no_input_of_a_delegate() -> None:
    batch = {0: torch.export.Dim("batch", min=1, max=8)}
    samples = [
        (torch.randn(n, 3, 5, 7, generator=torch.Generator().manual_seed(n)),) for n in (3, 2, 8)
    ]
    using = TinyAIQuantizer().set_global(quantization_config())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        module = Circular().eval()
    exported = torch.export.export(module, samples[0], dynamic_shapes=(batch,)).module()
    prepared = prepare_pt2e(exported, using)
    for sample in samples:
        prepared(*sample)
    program = torch.export.export(convert_pt2e(prepared), samples[0], dynamic_shapes=(batch,))

    edge = to_edge_transform_and_lower(program, partitioner=[TinyAIPartitioner(isa="scalar")])

    assert "TinyAIExecuTorchBackend" in delegates(edge)
    for node in edge.exported_program().graph.nodes:
        if operator_of(node) == "executorch_call_delegate":
            assert all(isinstance(n.meta["val"], Tensor) for n in node.args[1:])
    (found,) = by_runtime(edge)(*samples[0])
    torch.testing.assert_close(found, program.module()(*samples[0]), rtol=0, atol=0.02)
