"""``TinyAIQuantizer`` with samples: scales, weights and biases that it chooses by them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node
from torchao.quantization.pt2e import ObserverBase
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from benchmarks.torch_networks import NETWORKS, quantized
from tests.executorch.edge_programs import by_runtime, edge_of
from tests.executorch.hand_made import InTwoQuantizers
from tests.support import two_quantizers
from tinyai import quantize_file
from tinyai.errors import EnvironmentProblem, OptionError, UsageWarning
from tinyai.executorch import TinyAIPartitioner, TinyAIQuantizer, quantization_config
from tinyai.frontends import quantize
from tinyai.ir import Array
from tinyai.quantizer import QuantConfig
from tinyai.quantizer.data import CalibrationError

Samples = list[tuple[Tensor, ...]]


def drawn(shape: tuple[int, ...], count: int = 40) -> Samples:
    torch.manual_seed(1)
    return [(torch.randn(shape),) for _ in range(count)]


def fitted(module: nn.Module, samples: Samples) -> ExportedProgram:
    """Without a calibration."""
    exported = torch.export.export(module.eval(), samples[0]).module()
    prepared = prepare_pt2e(exported, TinyAIQuantizer(samples=samples))
    return torch.export.export(convert_pt2e(prepared), samples[0])


def decibels(module: Callable[..., Tensor], made: Callable[..., Tensor], samples: Samples) -> float:
    """Of signal to noise."""
    with torch.no_grad():
        wanted, found = ([of(*each) for each in samples] for of in (module, made))
    noise = sum(float((a - b).square().sum()) for a, b in zip(wanted, found, strict=True))
    signal = sum(float(each.square().sum()) for each in wanted)
    return 10 * math.log10(signal / noise) if noise else math.inf


@pytest.mark.parametrize("name", ["ds_cnn", "squeeze_excite", "autoencoder"])
def test_results_have_less_noise_than_by_observers(name: str) -> None:
    network = NETWORKS[name]()
    samples, others = network.samples(40), network.samples(16, seed=5)
    observed = quantized(network.module, samples, TinyAIQuantizer())
    by_samples, by_observers = (
        decibels(network.module, each.module(), others)
        for each in (fitted(network.module, samples), observed)
    )
    assert by_samples > by_observers + 1


def test_the_report_tells_the_noise_of_what_the_delegate_computes() -> None:
    network = NETWORKS["ds_cnn"]()
    samples = network.samples(40)
    quantizer = TinyAIQuantizer(samples=samples)
    edge = edge_of(quantized(network.module, samples[:1], quantizer), TinyAIPartitioner())
    delegate = by_runtime(edge)
    assert quantizer.report is not None
    (row,) = quantizer.report.outputs
    found = decibels(network.module, lambda *each: delegate(*each)[0], samples[32:])
    assert found == pytest.approx(row.sqnr, rel=1e-4)
    names = [each.name for each in quantizer.report.layers]
    assert names[:2] == ["input", "features.0 (conv2d)"]
    assert names[-1] == "classifier (linear)"


class _Detector(nn.Module):
    """Boxes in pixels beside their scores, as one result."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, 2, 1)
        self.sides, self.classes = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 3, 1)

    def forward(self, image: Tensor) -> Tensor:
        seen = nn.functional.relu(self.body(image))
        parts = 200 * self.sides(seen), self.classes(seen).sigmoid()
        return torch.cat(parts, 1).flatten(2).transpose(1, 2)


def test_scores_beside_boxes_keep_a_scale_of_their_own() -> None:
    module, samples = _Detector().eval(), drawn((1, 3, 16, 16))
    quantizer = TinyAIQuantizer(samples=samples)
    edge = edge_of(quantized(module, samples[:1], quantizer), TinyAIPartitioner())
    made = by_runtime(edge)
    (left,) = quantizer.left
    assert left.operator == "aten.cat.default"
    assert "scales of its parts" in left.reason

    def scores(of: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *image: of(*image)[..., 4:]

    others = drawn((1, 3, 16, 16), 44)[40:]
    assert decibels(scores(module), scores(lambda *image: made(*image)[0]), others) > 20


def test_layers_are_ranked_by_the_damage_that_each_does_alone() -> None:
    module, samples = _Function(nn.functional.mish).eval(), drawn((1, 3, 8, 8))
    module.dense.weight.data *= 0.01  # beside its bias: the values before it tell little
    quantizer = TinyAIQuantizer(samples=samples, rank=True)
    quantized(module, samples[:1], quantizer)
    assert quantizer.report is not None
    (first, *others) = quantizer.report.ranking
    assert len(others) == 4
    assert first.name == "dense (linear)"


def constants(program: ExportedProgram) -> list[Array]:
    """Weights, as they are stored, and biases, in the order of the layers."""
    held = {**program.state_dict, **program.constants}
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    found = []
    for node in program.graph.nodes:
        if str(node.target) in ("aten.conv2d.default", "aten.linear.default"):
            _, weight, bias = node.args[:3]
            weight = next(iter(weight.args), weight)  # behind a dequantize
            found += [held[names[each.name]].detach().numpy() for each in (weight, bias)]
    return found


def test_weights_and_biases_are_those_of_the_quantizer_of_files(tmp_path: Path) -> None:
    onnx.save(two_quantizers.as_file(), tmp_path / "net.onnx")
    samples = two_quantizers.SAMPLES
    by_file = quantize_file(tmp_path / "net.onnx", [{"x": each} for each in samples])
    by_file.save(tmp_path / "pairs.onnx")
    file = onnx.load(tmp_path / "pairs.onnx").graph
    stored = {each.name: numpy_helper.to_array(each) for each in file.initializer}
    made = {name: node for node in file.node for name in node.output}
    layers = [node for node in file.node if node.op_type in ("Conv", "Gemm")]

    program = fitted(InTwoQuantizers(), [(torch.from_numpy(each),) for each in samples])

    found = constants(program)
    assert len(found) == 2 * len(layers) == 6
    for layer, weights, bias in zip(layers, found[::2], found[1::2], strict=True):
        steps, scale = (stored[name] for name in made[layer.input[1]].input[:2])
        np.testing.assert_array_equal(weights, steps)
        sums, unit = (stored[name] for name in made[layer.input[2]].input[:2])
        assert unit.size == scale.size
        np.testing.assert_array_equal(np.rint(bias / unit), sums)


def test_what_is_prepared_needs_no_calibration() -> None:
    network = NETWORKS["resnet8"]()
    samples = network.samples(4)
    exported = torch.export.export(network.module, samples[0]).module()
    prepared = prepare_pt2e(exported, TinyAIQuantizer(samples=samples))
    observers = [each for each in prepared.modules() if isinstance(each, ObserverBase)]
    assert len(observers) > 10
    assert {type(each).__name__ for each in observers} == {
        "FixedQParamsObserver",
        "PerChannelScales",
    }


def test_the_module_itself_stays_as_it_is() -> None:
    module = InTwoQuantizers().eval()
    before = copy.deepcopy(module.state_dict())
    fitted(module, [(torch.from_numpy(each),) for each in two_quantizers.SAMPLES])
    assert all(map(torch.equal, module.state_dict().values(), before.values()))


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv, self.function = nn.Conv2d(3, 6, 3), function
        self.dense = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.function(self.conv(x)).mean((2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "function",
    [
        nn.functional.mish,
        nn.functional.hardsigmoid,
        lambda x: torch.roll(x, 1, 2),
        lambda x: torch.cat(torch.topk(x, 2, 2)[:1] * 2, 1)[:, :6],
        lambda x: torch.cat([each * 0.5 for each in x.unbind(2)], 2)[:, :, None],
    ],
    ids=["mish", "hardsigmoid", "roll", "topk", "unbind"],
)
def test_torch_computes_what_no_file_of_onnx_has(function: Callable[..., Tensor]) -> None:
    module, samples = _Function(function).eval(), drawn((1, 3, 8, 8))
    assert decibels(module, fitted(module, samples).module(), samples) > 30


class _Products(nn.Module):
    """Layers that people write as products of matrices, and two of the same weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second = (nn.Parameter(torch.randn(6, 6) / 3) for _ in range(2))
        self.bias = nn.Parameter(torch.randn(6))
        self.shared = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x @ self.first + self.bias)
        x = torch.relu(x @ self.second)
        x = torch.relu(torch.addmm(self.bias, x, self.second))
        x = torch.relu(self.shared(x)) + 0.25
        return self.shared(x + 2.5)  # type: ignore[no-any-return]


class Noisy(nn.Module):
    """Other numbers at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.fc(x) + torch.rand_like(x)
        return made


def test_a_module_that_is_run_otherwise_than_by_torch_is_told() -> None:
    with pytest.warns(UsageWarning, match=r"result 0 on the first sample is -?[\d.]+ dB beside"):
        fitted(Noisy(), drawn((4, 8)))


def test_products_of_matrices_are_fitted_and_shared_weights_twice() -> None:
    module, samples = _Products().eval(), drawn((3, 6))
    program = fitted(module, samples)
    assert decibels(module, program.module(), samples) > 30
    weights = [n for n in program.graph.nodes if "dequantize_per_channel" in str(n.target)]
    assert len(weights) == 5
    assert all(weight.args[0].op == "placeholder" for weight in weights)


class _Recurrent(nn.Module):
    """Of words by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words, self.norm = nn.Embedding(20, 6), nn.LayerNorm(6)
        self.layer, self.dense = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, numbers: Tensor) -> Tensor:
        values, _ = self.layer(self.norm(self.words(numbers)))
        return self.dense(values[:, -1])  # type: ignore[no-any-return]


class _Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.first, self.second = nn.ConvTranspose2d(3, 6, 3, 2, groups=3), nn.Conv1d(6, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)).flatten(2))  # type: ignore[no-any-return]


def test_so_are_recurrent_layers_of_words() -> None:
    torch.manual_seed(7)
    module, samples = _Recurrent().eval(), [(torch.randint(0, 20, (1, 5)),) for _ in range(40)]
    assert decibels(module, fitted(module, samples).module(), samples) > 30


def test_so_are_transposed_convolutions_and_those_of_one_dimension() -> None:
    module, samples = _Transposed().eval(), drawn((1, 3, 6, 6))
    assert decibels(module, fitted(module, samples).module(), samples) > 30


def test_a_dynamic_batch_stays_dynamic() -> None:
    module, samples = _Function(torch.relu).eval(), drawn((2, 3, 8, 8))
    sizes = ({0: torch.export.Dim("batch", max=8)},)
    exported = torch.export.export(module, samples[0], dynamic_shapes=sizes).module()
    made = convert_pt2e(prepare_pt2e(exported, TinyAIQuantizer(samples=samples)))
    assert decibels(module, made, drawn((5, 3, 8, 8), 4)) > 30


def test_modules_without_a_configuration_stay_as_they_are() -> None:
    module = InTwoQuantizers().eval()
    samples = [(torch.from_numpy(each),) for each in two_quantizers.SAMPLES]
    quantizer = TinyAIQuantizer(samples=samples).set_global(quantization_config())
    quantizer.set_module_name("depthwise", None)
    program = quantized(module, samples, quantizer)
    weights = [each for each in constants(program) if each.ndim == 4 and each.shape[1] == 1]
    np.testing.assert_array_equal(weights[0], two_quantizers.WEIGHTS["depthwise"][0])
    assert [each.name for each in quantizer.left] == ["conv2d_1", "hardswish"]


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({}, QuantConfig()),
        ({"symmetric": True}, QuantConfig(symmetric=True)),
        ({"observer": "minmax"}, QuantConfig(observer="minmax")),
        ({"per_channel": False}, QuantConfig(per_channel=False)),
        ({"reduce_range": True}, QuantConfig(reduce_range=True)),
    ],
)
def test_a_configuration_means_what_it_means_for_files(
    options: dict[str, object], config: QuantConfig, tmp_path: Path
) -> None:
    onnx.save(two_quantizers.as_file(), tmp_path / "net.onnx")
    samples = two_quantizers.SAMPLES
    wanted = quantize_file(tmp_path / "net.onnx", [{"x": each} for each in samples], config).report
    quantizer = TinyAIQuantizer(samples=[(torch.from_numpy(each),) for each in samples])
    quantizer.set_global(quantization_config(**options))
    program = quantized(InTwoQuantizers().eval(), [(torch.from_numpy(samples[0]),)], quantizer)
    pairs = [n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)]
    made = [(node.args[1], node.args[2]) for node in pairs]
    for row in wanted.layers:
        assert any(
            scale == pytest.approx(row.scale) and zero == row.zero_point for scale, zero in made
        )


def test_an_attention_is_run_by_the_delegate() -> None:
    torch.manual_seed(5)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    samples = drawn((1, 5, 8))
    program = fitted(layer, samples)
    edge = edge_of(program, TinyAIPartitioner())
    with torch.no_grad():
        (found,) = by_runtime(edge)(*samples[0])
        assert float((layer(*samples[0]) - found).abs().max()) < 0.2


def test_a_module_of_which_nothing_is_quantized_stays_as_it_is() -> None:
    samples = drawn((3, 4), 2)
    module = _Sums().eval()
    quantizer = TinyAIQuantizer(samples=samples)
    program = quantized(module, samples, quantizer)
    assert quantizer.report is None
    assert [each.operator for each in quantizer.left] == ["aten.cumsum.default"]
    assert torch.equal(program.module()(*samples[0]), module(*samples[0]))


class _Sums(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, 1)


# --- Mistakes ------------------------------------------------------------------------------------


def prepared(quantizer: TinyAIQuantizer) -> Node:
    sample = (torch.from_numpy(two_quantizers.SAMPLES[0]),)
    return prepare_pt2e(torch.export.export(InTwoQuantizers().eval(), sample).module(), quantizer)


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        (torch.zeros(4, 3, 8, 8), "a Tensor"),
        ([torch.zeros(two_quantizers.SHAPE)], "a Tensor as sample 0"),
        ([{"x": torch.zeros(two_quantizers.SHAPE)}], "a dict as sample 0"),
        ([(torch.zeros(two_quantizers.SHAPE),) * 2], "2 tensors as sample 0, of x"),
        ([(torch.zeros(1, 3, 9, 9),)], r"\[1, 3, 9, 9\]"),
        ([], "no samples"),
        (7, "a int"),
    ],
)
def test_samples_of_another_form_are_refused(samples: object, found: str) -> None:
    with pytest.raises(CalibrationError, match=found):
        prepared(TinyAIQuantizer(samples=samples))  # type: ignore[arg-type]


def test_samples_and_training_exclude_each_other() -> None:
    sample = (torch.from_numpy(two_quantizers.SAMPLES[0]),)
    exported = torch.export.export(InTwoQuantizers(), sample).module()
    with pytest.raises(OptionError, match="prepare_qat_pt2e"):
        prepare_qat_pt2e(exported, TinyAIQuantizer(samples=[sample]))


def test_samples_take_one_configuration() -> None:
    samples = [(torch.from_numpy(each),) for each in two_quantizers.SAMPLES]
    two = TinyAIQuantizer(samples=samples).set_global(quantization_config())
    two.set_module_name("dense", quantization_config(per_channel=False))
    with pytest.raises(OptionError, match="2 that differ"):
        prepared(two)
    with pytest.raises(OptionError, match="None alone"):
        prepared(TinyAIQuantizer(samples=samples).set_global(None))
    with pytest.raises(OptionError, match="is_qat=True"):
        prepared(TinyAIQuantizer(samples=samples).set_global(quantization_config(is_qat=True)))


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize, "find_spec", lambda name: None if name == "onnx" else object())
    samples = [(torch.from_numpy(each),) for each in two_quantizers.SAMPLES]
    with pytest.raises(EnvironmentProblem, match="pip install onnx"):
        prepared(TinyAIQuantizer(samples=samples))
