"""What users are told: of programs that are left, of options, of the wrong flow, of time."""

from __future__ import annotations

import functools

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.export import ExportedProgram
from torchao.quantization.pt2e import MinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationConfig, QuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import program_of
from tinyai.errors import OptionError, UsageWarning
from tinyai.executorch import (
    TinyAIPartitioner,
    TinyAIQuantizer,
    explain,
    quantization_config,
    watched,
)
from tinyai.report import Report

SAMPLES = [(torch.randn(4, 8, generator=torch.Generator().manual_seed(n)),) for n in range(2)]


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def of_type(dtype: torch.dtype, least: int, most: int) -> QuantizationConfig:
    """Of activations; weights have 8 bits."""
    observer, scheme = MinMaxObserver.with_args(eps=1e-6), torch.per_tensor_symmetric
    values = QuantizationSpec(dtype, observer, least, most, scheme)
    weights = QuantizationSpec(torch.int8, observer, -127, 127, scheme)
    return QuantizationConfig(values, values, weights, None)


CONFIGS = {
    "dynamic": get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True),
    "16 bits": of_type(torch.int16, -(2**15), 2**15 - 1),
    "4 bits": of_type(torch.int8, -8, 7),
}


@functools.cache
def program(name: str) -> ExportedProgram:
    if name == "float":
        return torch.export.export(layers(), SAMPLES[0])
    return quantized(layers().eval(), SAMPLES, XNNPACKQuantizer().set_global(CONFIGS[name]))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("float", "quantization of the result read as float32"),
        ("dynamic", "scale computed at run time"),
        ("16 bits", "arithmetic of int16"),
        ("4 bits", r"limits \(-8, 7\)"),
    ],
)
def test_a_program_of_which_nothing_is_delegated_says_so_once_with_the_reason(
    name: str, reason: str
) -> None:
    edge = program_of(program(name))
    with pytest.warns(UsageWarning, match=f"(?s)nothing of a program.*3 aten.*{reason}") as told:
        TinyAIPartitioner().partition(edge)
    assert len(told) == 1
    assert "quantize" in str(told[0].message).partition("try:")[2]


def test_a_report_s_text_groups_operators_of_one_reason_and_has_no_pairs_beside_them() -> None:
    report = explain(program("4 bits"))
    heads = [line for line in str(report).splitlines() if line.startswith("host:")]
    assert [head.split("'")[0] for head in heads] == [
        "host: 3 aten.linear ",
        "host: 4 quantized_decomposed.quantize_per_tensor ",
        "host: 2 aten.relu ",
    ]
    assert f"{4 * 8 * (8 + 8 + 4)} MACs" in str(report)
    pairs = [row for row in report.host if row.operator.startswith("quantized_decomposed")]
    assert len(report.host) == len(pairs) + 5 == len(report.to_dict()["host"])
    assert Report.from_json(report.json()).host == report.host

    text = str(explain(program("float"), operators_not_to_delegate=["aten.linear"]))
    assert "quantized_decomposed" not in text


@pytest.mark.parametrize(
    ("threads", "allowed"), [("2", "a number"), (1000, "at most 512"), (0, ">= 1"), (1.5, ">= 1")]
)
def test_a_number_of_threads_that_is_none_is_refused(threads: object, allowed: str) -> None:
    with pytest.raises(OptionError, match=f"(?s)threads.*{allowed}"):
        TinyAIPartitioner(threads=threads)


def quantized_by(quantizer: TinyAIQuantizer, prepare: object = prepare_pt2e) -> list[str]:
    """The names of what a quantizer gives a grid."""
    model = torch.export.export(layers(), SAMPLES[0]).module()
    seen: list[str] = []
    validate = quantizer.validate

    def look(model: torch.fx.GraphModule) -> None:
        validate(model)
        annotated = ((n.name, n.meta.get(Q_ANNOTATION_KEY)) for n in model.graph.nodes)
        seen.extend(name for name, each in annotated if each and each.output_qspec)

    quantizer.validate = look  # type: ignore[method-assign]
    prepare(model, quantizer)  # type: ignore[operator]
    return seen


def test_a_quantizer_without_a_configuration_uses_the_default_one() -> None:
    all_of_it = quantized_by(TinyAIQuantizer().set_global(quantization_config()))
    assert quantized_by(TinyAIQuantizer()) == all_of_it != []
    assert quantized_by(TinyAIQuantizer().set_global(None)) == []
    one = quantized_by(TinyAIQuantizer().set_module_name("2", quantization_config()))
    assert [name for name in one if "linear" in name or "relu" in name] == ["linear_1"]
    assert quantized_by(TinyAIQuantizer(), prepare_qat_pt2e) == all_of_it


def test_a_configuration_that_does_not_fit_the_flow_is_told() -> None:
    for_training = TinyAIQuantizer().set_global(quantization_config(is_qat=True))
    with pytest.warns(UsageWarning, match=r"(?s)prepare_pt2e.*is_qat=True.*allowed: is_qat=False"):
        quantized_by(for_training)
    after_training = TinyAIQuantizer().set_global(quantization_config())
    with pytest.warns(UsageWarning, match=r"(?s)prepare_qat_pt2e.*is_qat=False.*allowed: .*True"):
        quantized_by(after_training, prepare_qat_pt2e)
    quantized_by(for_training, prepare_qat_pt2e)


def test_lowering_can_be_watched_stage_by_stage() -> None:
    module = quantized(layers().eval(), SAMPLES, TinyAIQuantizer())
    stages: dict[str, float] = {}
    with watched(stages.__setitem__):
        to_edge_transform_and_lower(module, partitioner=[TinyAIPartitioner(isa="scalar")])
    assert [*stages] == [
        "division of a program of ATen, and its C",
        "division of an edge program, and its C",
        "delegates to graphs",
        "machine code of all delegates",
        "the rest",
        "in all",
    ]
    assert min(stages.values()) >= 0
