"""``TinyAIQuantizer``: what it quantizes, with which scales, and what it leaves in float."""

from __future__ import annotations

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torch import Tensor, nn
from torch.fx import Graph, Node
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from benchmarks.torch_networks import NETWORKS, Network, quantized
from tests.executorch.hand_made import InTwoQuantizers
from tests.support import two_quantizers
from tinyai.errors import OptionError
from tinyai.executorch import TinyAIQuantizer, quantization_config

SMALL = [name for name in NETWORKS if name not in ("mobilenet_v1", "mobilenet_v2", "resnet18")]
# What may follow a layer before its result is rounded.
BEHIND = ("aten.relu.default", "aten.hardtanh.default")


def quantizer(**options: object) -> TinyAIQuantizer:
    return TinyAIQuantizer().set_global(quantization_config(**options))


def graph_of(module: nn.Module, shape: tuple[int, ...], using: TinyAIQuantizer) -> Graph:
    network = Network("", module.eval(), shape)
    return quantized(network.module, network.samples(2), using).graph


def operators(graph: Graph) -> list[Node]:
    """All calls but the pairs."""
    calls = (node for node in graph.nodes if node.op == "call_function")
    return [node for node in calls if "quantize" not in str(node.target)]


def is_pair(node: Node, kind: str) -> bool:
    return str(node.target).startswith(f"quantized_decomposed.{kind}_per")


def in_float(graph: Graph) -> list[str]:
    """The operators whose operands are not all dequantized, or whose result is not quantized."""
    found = []
    for node in operators(graph):
        values = [each for each in node.all_input_nodes if each not in node.args[2:3]]  # a bias
        before = all(is_pair(each, "dequantize") for each in values)
        before = before or (str(node.target) in BEHIND and len(values[0].users) == 1)
        after = all(is_pair(user, "quantize") or str(user.target) in BEHIND for user in node.users)
        if not (before and after):
            found.append(node.name)
    return found


def grid_after(node: Node) -> tuple[float, int]:
    (user, *_) = node.users
    assert is_pair(user, "quantize")
    return user.args[1], user.args[2]


def grids_before(node: Node) -> list[tuple[float, int]]:
    return [each.args[1:3] for each in node.all_input_nodes if is_pair(each, "dequantize")]


@pytest.mark.parametrize("name", SMALL)
def test_every_operator_of_a_network_is_between_pairs(name: str) -> None:
    using = quantizer()
    network = NETWORKS[name]()

    graph = quantized(network.module, network.samples(2), using).graph

    assert operators(graph)
    assert in_float(graph) == []
    assert using.left == ()


@pytest.mark.parametrize(
    "function",
    [
        nn.Sigmoid(),
        nn.Tanh(),
        nn.Hardswish(),
        nn.Hardsigmoid(),
        nn.SiLU(),
        nn.GELU(),
        nn.LeakyReLU(),
        nn.ReLU(),
        nn.ReLU6(),
        nn.Softmax(1),
        nn.MaxPool2d(2),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Upsample(scale_factor=2, mode="nearest"),
    ],
    ids=lambda module: type(module).__name__,
)
def test_what_follows_a_convolution_is_quantized_too(function: nn.Module) -> None:
    graph = graph_of(nn.Sequential(nn.Conv2d(3, 4, 3), function), (3, 10, 10), quantizer())

    assert in_float(graph) == []


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.one(x) + self.two(x)) * self.two(x)


def test_sums_and_products_of_values_round_once() -> None:
    graph = graph_of(Residual(), (3, 6, 6), quantizer())

    assert in_float(graph) == []
    (add,) = (node for node in operators(graph) if "add" in str(node.target))
    assert [str(user.target) for user in add.users] == ["aten.relu.default"]


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([self.one(x), 9 * self.two(x)], 1)
        return torch.flatten(nn.functional.max_pool2d(joined, 2), 1)


def test_what_joins_or_moves_values_has_one_grid() -> None:
    graph = graph_of(Joined(), (3, 6, 6), quantizer())

    moving = [node for node in operators(graph) if "conv" not in str(node.target)]
    moving = [node for node in moving if "mul" not in str(node.target)]
    grids = {grid for node in moving for grid in [*grids_before(node), grid_after(node)]}
    assert [str(node.target) for node in moving] == [
        "aten.cat.default",
        "aten.max_pool2d.default",
        "aten.flatten.using_ints",
    ]
    assert len(grids) == 1


class WithCumsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.cumsum(self.one(x), -1))


def test_an_operator_without_a_row_stays_float_and_is_named() -> None:
    using = quantizer()

    graph = graph_of(WithCumsum(), (6,), using)

    (found,) = using.left
    assert (found.name, found.operator) == ("cumsum", "aten.cumsum.default")
    assert "operator" in found.reason
    (cumsum,) = (node for node in operators(graph) if "cumsum" in node.name)
    assert len(operators(graph)) == 3
    assert all(is_pair(each, "dequantize") for each in cumsum.all_input_nodes)


def weights_of(graph: Graph) -> dict[str, Node]:
    """What dequantizes the weights of each layer."""
    layers = (node for node in operators(graph) if len(node.args) > 1)
    return {node.name: node.args[1] for node in layers if isinstance(node.args[1], Node)}


@pytest.mark.parametrize(("per_channel", "kind"), [(True, "channel"), (False, "tensor")])
def test_weights_have_a_scale_a_channel_or_one(per_channel: bool, kind: str) -> None:
    graph = graph_of(nn.Conv2d(3, 4, 1), (3, 6, 6), quantizer(per_channel=per_channel))

    (weights,) = weights_of(graph).values()
    assert str(weights.target).startswith(f"quantized_decomposed.dequantize_per_{kind}")


@pytest.mark.parametrize("per_channel", [False, True])
def test_weights_of_7_bits_end_at_63(per_channel: bool) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1))
    using = quantizer(per_channel=per_channel, reduce_range=True)

    converted = quantized(module, [(torch.rand(1, 3, 6, 6),)], using)

    weights = [value for value in converted.state_dict.values() if value.dtype is torch.int8]
    assert [int(each.abs().max()) for each in weights] == [63, 63]


@pytest.mark.parametrize(("groups", "axis"), [(1, 1), (2, None)])
def test_a_transposed_convolution_has_the_scales_of_its_output_channels(
    groups: int, axis: int | None
) -> None:
    module = nn.ConvTranspose2d(4, 6, 2, 2, groups=groups)

    (weights,) = weights_of(graph_of(module, (4, 6, 6), quantizer())).values()

    per_channel = "per_channel" in str(weights.target)
    assert (weights.args[3] if per_channel else None) == axis


def test_symmetric_activations_have_the_zero_point_0() -> None:
    graph = graph_of(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), (3, 6, 6), quantizer())
    grids = {grid_after(node) for node in operators(graph) if node.name == "relu"}
    assert {zero for _, zero in grids} == {-128}

    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    graph = graph_of(module, (3, 6, 6), quantizer(symmetric=True))

    assert {grid_after(node)[1] for node in operators(graph) if node.name == "relu"} == {0}


def three_layers() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.Conv2d(4, 4, 1)), nn.Conv2d(4, 4, 1))


def test_a_module_may_stay_in_float() -> None:
    using = quantizer().set_module_name("1", None)

    assert in_float(graph_of(three_layers(), (3, 6, 6), using)) == ["conv2d_1"]
    assert [each.name for each in using.left] == ["conv2d_1"]


def test_the_configuration_of_an_inner_module_goes_before_those_around_it_and_of_types() -> None:
    using = quantizer().set_module_type(nn.Conv2d, None)
    using.set_module_name("1", None).set_module_name("1.0", quantization_config(per_channel=False))

    graph = graph_of(three_layers(), (3, 6, 6), using)

    assert in_float(graph) == ["conv2d", "conv2d_2"]
    assert "per_tensor" in str(weights_of(graph)["conv2d_1"].target)


def test_xnnpacks_configurations_are_taken() -> None:
    using = TinyAIQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))

    assert in_float(graph_of(three_layers(), (3, 6, 6), using)) == []


def test_a_batch_of_any_size_is_quantized_as_one_of_the_sample_s() -> None:
    """In training it is often dynamic; it may be fixed when the model is lowered."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    sample = (torch.zeros(2, 3, 6, 6),)
    sizes = ({0: torch.export.Dim("batch", max=64)},)
    exported = torch.export.export(module.train(), sample, dynamic_shapes=sizes).module()
    using = quantizer(is_qat=True)

    using.annotate(exported)

    assert using.left == ()
    rounded = [n.name for n in exported.graph.nodes if _is_rounded(n)]
    assert rounded == ["relu", "flatten"], "a layer with its batch norm and its bound is one"


def _is_rounded(node: Node) -> bool:
    annotation = node.meta.get(Q_ANNOTATION_KEY)
    return annotation is not None and annotation.output_qspec is not None


@pytest.mark.slow  # torchao takes that long
def test_a_network_is_quantized_in_training() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
    sample = (torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1)),)
    exported = torch.export.export(module, sample).module()
    prepared = prepare_qat_pt2e(exported, quantizer(is_qat=True))
    prepared(*sample).sum().backward()

    graph = torch.export.export(convert_pt2e(prepared), sample).graph

    assert [str(node.target) for node in operators(graph)] == [
        "aten.conv2d.default",
        "aten.relu.default",
    ]
    assert in_float(graph) == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("int8", "a QuantizationConfig"),
        (get_symmetric_quantization_config(is_dynamic=True), "a dynamic one"),
    ],
)
def test_a_configuration_that_no_integers_are_made_of_is_refused(config: object, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        TinyAIQuantizer().set_global(config)


@pytest.mark.parametrize(
    "options",
    [
        {"per_channel": 1},
        {"symmetric": None},
        {"observer": "best"},
        {"is_qat": "yes"},
        {"reduce_range": 7},
    ],
)
def test_an_option_without_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=f"(?s){next(iter(options))}.*allowed"):
        quantization_config(**options)


def test_the_name_of_no_module_is_refused_with_those_there_are() -> None:
    using = quantizer().set_module_name("conv", None)

    with pytest.raises(OptionError, match=r"(?s)found: +conv.*0, 1, 1.0, 2"):
        graph_of(three_layers(), (3, 6, 6), using)
    with pytest.raises(OptionError, match="type of a module"):
        quantizer().set_module_type("Conv2d", None)


def test_ranges_and_values_are_chosen_as_by_the_quantizer_of_files() -> None:
    """``tests/frontends/test_quantize_file.py`` expects the same of ``tinyai.quantize_file``."""
    samples = [(torch.from_numpy(each),) for each in two_quantizers.SAMPLES]
    graph = quantized(InTwoQuantizers().eval(), samples, quantizer(observer="minmax")).graph
    assert in_float(graph) == []
    pairs = [node for node in graph.nodes if is_pair(node, "quantize")]
    made = dict.fromkeys((node.args[1], node.args[2]) for node in pairs)
    for ours, wanted in zip(made, two_quantizers.GRIDS, strict=True):
        assert ours == (pytest.approx(wanted[0], rel=1e-5), wanted[1])


class Attention(nn.Module):
    """Of each place to those before it."""

    def __init__(self, hidden: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        for parameter in self.parameters():
            parameter.data *= 2.5
        self.register_buffer("mask", torch.full((6, 6), hidden).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (layer(x) for layer in self.layers)
        scores = query @ key.transpose(1, 2) + self.mask
        return scores.softmax(-1) @ value


def attention(hidden: float) -> tuple[Attention, list[tuple[Tensor]]]:
    torch.manual_seed(0)
    return Attention(hidden).eval(), [(torch.randn(2, 6, 8),) for _ in range(12)]


def ratio(module: nn.Module, made: nn.Module, samples: list[tuple[Tensor]]) -> float:
    """Of signal to noise."""
    wanted = [module(*sample) for sample in samples]
    noise = sum(
        (each - made(*sample)).square().sum() for each, sample in zip(wanted, samples, strict=True)
    )
    return float(sum(each.square().sum() for each in wanted) / noise)


@pytest.mark.parametrize("hidden", [-1e4, float(torch.finfo(torch.float32).min), -torch.inf])
@pytest.mark.parametrize("options", [{}, {"observer": "minmax"}, {"symmetric": True}])
def test_a_mask_takes_no_bits_of_what_is_seen(hidden: float, options: dict[str, object]) -> None:
    module, samples = attention(hidden)
    made = quantized(module, samples, quantizer(**options))
    assert ratio(module, made.module(), samples) > 200
    assert not in_float(made.graph)


def test_a_mask_is_trained_with() -> None:
    module, samples = attention(-1e9)
    exported = torch.export.export(module, samples[0]).module()
    prepared = prepare_qat_pt2e(exported, quantizer(is_qat=True))
    for sample in samples:
        prepared(*sample).square().sum().backward()
    # Ranges are moving averages of few samples.
    assert ratio(module, convert_pt2e(prepared), samples) > 8
