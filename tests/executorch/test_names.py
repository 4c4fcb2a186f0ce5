"""Layers go by the names of the source model's modules, for ExecuTorch's Inspector too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from executorch.devtools import Inspector
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch.export import ExportedProgram, export
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from tests.executorch import hand_made
from tinyai.executorch import TinyAIPartitioner, TinyAIQuantizer, load, quantization_config
from tinyai.frontends.executorch.names import LONGEST, names_of


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.act = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(self.act(self.conv(x)))
        return (y + x) + torch.sigmoid(y)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(Block(), torch.nn.ReLU())
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


SAMPLE = (torch.linspace(-1, 1, 8 * 8 * 8).reshape(1, 8, 8, 8),)


def quantized(*, strict: bool) -> ExportedProgram:
    exported = export(Net().eval(), SAMPLE, strict=strict).module()
    prepared = prepare_pt2e(exported, TinyAIQuantizer().set_global(quantization_config()))
    prepared(*SAMPLE)
    return export(convert_pt2e(prepared), SAMPLE, strict=strict)


@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
def test_the_inspector_shows_layers_by_their_modules_and_leads_to_their_nodes(
    strict: bool, tmp_path: Path
) -> None:
    load()
    edge = to_edge_transform_and_lower(
        quantized(strict=strict),
        partitioner=[TinyAIPartitioner(strict=True, isa="scalar")],
        generate_etrecord=True,
    )
    program = edge.to_executorch()
    record, dump, debug = (str(tmp_path / name) for name in ("record", "dump", "debug"))
    program.get_etrecord().save(record)
    loaded = Runtime.get().load_program(program.buffer, enable_etdump=True)
    loaded.load_method("forward").execute(SAMPLE)
    loaded.write_etdump_result_to_file(dump, debug)

    blocks = Inspector(etdump_path=dump, etrecord=record).event_blocks
    (block,) = (each for each in blocks if each.name == "Execute")
    layers = {event.name: event for event in block.events if event.is_delegated_op}
    for shown, operator in {
        "body.0.conv (convolution)": "aten.convolution.default",
        "body.0.conv (convolution 2)": "aten.convolution.default",
        "body.0 (add 2)": "aten.add.Tensor",
        "head (linear)": "aten.linear.default",
    }.items():
        found = [layer for name, layer in layers.items() if shown in name]
        assert found, (shown, [*layers])
        for layer in found:
            assert operator in layer.op_types
            paths = [list(stack.values())[-1][0] for stack in layer.module_hierarchy.values()]
            assert shown.partition(" (")[0] in paths


def test_hostile_names_of_modules_are_one_line_of_bounded_length() -> None:
    program = export(hand_made.TwoClamps(), (torch.zeros(hand_made.SHAPE),))
    first, second, third = (n for n in program.graph.nodes if n.op == "call_function")
    first.meta["nn_module_stack"] = {"a": ("", "Net"), "b": ("x\n\0\udc80" + "y" * 100_000, "X")}
    second.meta["nn_module_stack"] = "none"
    third.meta["nn_module_stack"] = {"a": (7,)}

    names = names_of(program)

    assert len(names[first.name]) <= LONGEST
    assert names[first.name].isprintable()
    assert names[first.name].startswith("x\\n\\x00\\udc80y")
    assert names[first.name].endswith("y (clamp)")
    assert [names[second.name], names[third.name]] == [second.name, third.name]
