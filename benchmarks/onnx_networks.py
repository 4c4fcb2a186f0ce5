"""Float ONNX networks with seeded random weights, and their quantization by ONNX Runtime.

Each builder returns a model of opset 13: NCHW, batch 1, input ``image`` [1, 3, size, size]. There
is no BatchNormalization: its factors are in the weights, as after an export for inference; with
``norm=True`` it is there, where a builder has that, and convolutions have no bias. The weights are
drawn as He et al. propose, so that activations stay alive in deep networks. Small sizes and widths
suit tests; the defaults are the sizes of the papers.

    model = mobilenet_v2(size=32, width=0.25)
    quantized = quantize(model, form="qdq", activation="uint8", per_channel=True)

Equal arguments give equal bytes: on every machine before quantization, under the same version of
ONNX Runtime after it.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

Image = npt.NDArray[np.float32]
Activation = Literal["relu", "relu6"] | None
OPSET = 13
IR_VERSION = 8
INPUT = "image"
CALIBRATION_IMAGES = 4
# Of the branch that is added to a shortcut: sums of many blocks stay of one order of magnitude.
RESIDUAL_GAIN = 0.5
# Of the first layer of networks with relu6: large enough that some activations reach 6.
STEM_GAIN = 2.0
# Marks a model as prepared: it has shapes, and nothing that ONNX Runtime's preparation would fold.
PREPARED = {"onnx.quant.pre_process": "onnxruntime.quant"}


@dataclass(frozen=True)
class Value:
    """A tensor [1, channels, size, size] by its name."""

    name: str
    channels: int
    size: int


class Net:
    """A model under construction: every method adds a layer and returns its output."""

    def __init__(self, name: str, size: int, norm: bool = False) -> None:
        self.name, self.norm = name, norm
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.image = Value(INPUT, 3, size)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; the output has the name of the node."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def weight(self, array: npt.NDArray[Any]) -> str:
        """Add an initializer."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def draw(self, shape: Sequence[int], deviation: float) -> str:
        """Add a normally distributed float32 initializer."""
        return self.weight((deviation * self.rng.standard_normal(shape)).astype(np.float32))

    def activate(self, x: Value, activation: Activation) -> Value:
        if activation is None:
            return x
        if activation == "relu":
            return Value(self.node("Relu", x.name), x.channels, x.size)
        bounds = [self.weight(np.array(bound, np.float32)) for bound in (0, 6)]
        return Value(self.node("Clip", x.name, *bounds), x.channels, x.size)

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        activation: Activation = None,
        gain: float = 1.0,
    ) -> Value:
        """Convolution with bias, padded by half of the kernel. ``gain`` scales the deviation."""
        shape = (channels, x.channels // groups, kernel, kernel)
        terms = shape[1] * min(kernel, x.size) ** 2  # of a sum; the rest is padding
        deviation = gain * np.sqrt((2 if activation else 1) / terms)
        weights = deviation * self.rng.standard_normal(shape)
        if groups == 1:  # else the mean of the activations outgrows what differs between images
            weights -= weights.mean(axis=(1, 2, 3), keepdims=True)
        parameters = [self.weight(weights.astype(np.float32))]
        parameters += [] if self.norm else [self.draw((channels,), 0.1)]
        pad = kernel // 2
        sizes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        y = self.node("Conv", x.name, *parameters, group=groups, **sizes)
        y = self.normalized(y, channels) if self.norm else y
        size = (x.size + 2 * pad - kernel) // stride + 1
        return self.activate(Value(y, channels, size), activation)

    def normalized(self, y: str, channels: int) -> str:
        """Batch norm as after a training: no two channels have the same numbers."""
        scale, variance = (self.rng.uniform(0.5, 1.5, channels) for _ in range(2))
        shift, mean = (0.1 * self.rng.standard_normal(channels) for _ in range(2))
        numbers = [self.weight(each.astype(np.float32)) for each in (scale, shift, mean, variance)]
        return self.node("BatchNormalization", y, *numbers)

    def upsample(self, x: Value, channels: int) -> Value:
        """Transposed convolution to twice the size; each output pixel has one input pixel."""
        deviation = np.sqrt(1 / x.channels)
        parameters = self.draw((x.channels, channels, 2, 2), deviation), self.draw((channels,), 0.1)
        y = self.node("ConvTranspose", x.name, *parameters, kernel_shape=[2, 2], strides=[2, 2])
        return Value(y, channels, 2 * x.size)

    def max_pool(self, x: Value, kernel: int, pad: int = 0) -> Value:
        """Maximum with stride 2."""
        sizes = {"kernel_shape": [kernel] * 2, "strides": [2, 2], "pads": [pad] * 4}
        size = (x.size + 2 * pad - kernel) // 2 + 1
        return Value(self.node("MaxPool", x.name, **sizes), x.channels, size)

    def add(self, a: Value, b: Value) -> Value:
        return Value(self.node("Add", a.name, b.name), a.channels, a.size)

    def concat(self, *values: Value) -> Value:
        """Join along the channels."""
        y = self.node("Concat", *(v.name for v in values), axis=1)
        return Value(y, sum(v.channels for v in values), values[0].size)

    def global_pool(self, x: Value) -> str:
        """Average of each channel, [1, channels]."""
        return self.node("Flatten", self.node("GlobalAveragePool", x.name), axis=1)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        """Fully connected layer with bias."""
        parameters = self.draw((outputs, inputs), np.sqrt(1 / inputs)), self.draw((outputs,), 0.1)
        return self.node("Gemm", x, *parameters, transB=1)

    def classify(self, x: Value, classes: int) -> onnx.ModelProto:
        """Finish with global average pooling and a fully connected layer."""
        return self.model({"logits": self.dense(self.global_pool(x), x.channels, classes)})

    def model(self, outputs: Mapping[str, str]) -> onnx.ModelProto:
        """The checked model. ``outputs``: name of an output to name of a tensor."""
        names = {tensor: output for output, tensor in outputs.items()}
        for node in self.nodes:
            node.output[0] = names.get(node.output[0], node.output[0])
        shape = (1, self.image.channels, self.image.size, self.image.size)
        inputs = [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, shape)]
        results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, self.name, inputs, results, self.weights)
        opset = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
        made = onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
        onnx.checker.check_model(made)
        return made


def _scaled(channels: int, width: float) -> int:
    """A multiple of 8, at least 8."""
    return max(8, int(channels * width / 8 + 0.5) * 8)


# --- Networks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """Inverted residual blocks; the first has the stride."""

    expansion: int
    channels: int
    blocks: int
    stride: int
    kernel: int = 3


MOBILENET_V2 = (
    Stage(1, 16, 1, 1),
    Stage(6, 24, 2, 2),
    Stage(6, 32, 3, 2),
    Stage(6, 64, 4, 2),
    Stage(6, 96, 3, 1),
    Stage(6, 160, 3, 2),
    Stage(6, 320, 1, 1),
)
# Channels and stride of each depthwise separable block.
MOBILENET_V1 = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
EFFICIENTNET_LITE0 = (
    Stage(1, 16, 1, 1),
    Stage(6, 24, 2, 2),
    Stage(6, 40, 2, 2, kernel=5),
    Stage(6, 80, 3, 2),
    Stage(6, 112, 3, 1, kernel=5),
    Stage(6, 192, 4, 2, kernel=5),
    Stage(6, 320, 1, 1),
)


def mobilenet_v1(
    size: int = 224,
    width: float = 1.0,
    blocks: Sequence[Sequence[int]] = MOBILENET_V1,
    classes: int = 1000,
    norm: bool = False,
) -> onnx.ModelProto:
    """Depthwise separable convolutions with relu6 (Howard et al., 2017)."""
    net = Net("mobilenet_v1", size, norm)
    x = net.conv(net.image, _scaled(32, width), 3, stride=2, activation="relu6", gain=STEM_GAIN)
    for channels, stride in blocks:
        x = net.conv(x, x.channels, 3, stride=stride, groups=x.channels, activation="relu6")
        x = net.conv(x, _scaled(channels, width), activation="relu6")
    return net.classify(x, classes)


def mobilenet_v2(
    size: int = 224,
    width: float = 1.0,
    stages: Sequence[Stage] = MOBILENET_V2,
    classes: int = 1000,
    norm: bool = False,
) -> onnx.ModelProto:
    """Inverted residuals with relu6 and linear ends (Sandler et al., 2018)."""
    return _inverted("mobilenet_v2", stages, size, width, classes, norm)


def efficientnet_lite0(
    size: int = 224,
    width: float = 1.0,
    stages: Sequence[Stage] = EFFICIENTNET_LITE0,
    classes: int = 1000,
    norm: bool = False,
) -> onnx.ModelProto:
    """EfficientNet-Lite0: no squeeze-and-excite, relu6; symmetric padding at strides."""
    return _inverted("efficientnet_lite0", stages, size, width, classes, norm)


def _inverted(
    name: str, stages: Sequence[Stage], size: int, width: float, classes: int, norm: bool
) -> onnx.ModelProto:
    net = Net(name, size, norm)
    x = net.conv(net.image, _scaled(32, width), 3, stride=2, activation="relu6", gain=STEM_GAIN)
    for stage in stages:
        for block in range(stage.blocks):
            stride = stage.stride if block == 0 else 1
            channels = _scaled(stage.channels, width)
            x = _inverted_residual(net, x, channels, stage.expansion, stride, stage.kernel)
    x = net.conv(x, 4 * x.channels, activation="relu6")
    return net.classify(x, classes)


def _inverted_residual(
    net: Net, x: Value, channels: int, expansion: int, stride: int, kernel: int = 3
) -> Value:
    """Expand, depthwise, project; plus the input where the shapes allow."""
    shortcut = stride == 1 and x.channels == channels
    y = x
    if expansion != 1:
        y = net.conv(y, expansion * x.channels, activation="relu6")
    y = net.conv(y, y.channels, kernel, stride=stride, groups=y.channels, activation="relu6")
    y = net.conv(y, channels, gain=RESIDUAL_GAIN if shortcut else 1.0)
    return net.add(x, y) if shortcut else y


def resnet50(
    size: int = 224,
    width: float = 1.0,
    blocks: Sequence[int] = (3, 4, 6, 3),
    classes: int = 1000,
    norm: bool = False,
) -> onnx.ModelProto:
    """Bottlenecks with the stride in the 3×3 layer (He et al., 2016; "v1.5")."""
    net = Net("resnet50", size, norm)
    x = net.conv(net.image, _scaled(64, width), 7, stride=2, activation="relu")
    x = net.max_pool(x, 3, pad=1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(net, x, _scaled(64 * 2**stage, width), stride, project=block == 0)
    return net.classify(x, classes)


def _bottleneck(net: Net, x: Value, channels: int, stride: int, project: bool) -> Value:
    y = net.conv(x, channels, activation="relu")
    y = net.conv(y, channels, 3, stride=stride, activation="relu")
    y = net.conv(y, 4 * channels, gain=RESIDUAL_GAIN)
    shortcut = net.conv(x, 4 * channels, stride=stride) if project else x
    return net.activate(net.add(y, shortcut), "relu")


def resnet18(
    size: int = 224,
    width: float = 1.0,
    blocks: Sequence[int] = (2, 2, 2, 2),
    classes: int = 1000,
    norm: bool = False,
) -> onnx.ModelProto:
    """Blocks of two 3×3 layers (He et al., 2016)."""
    net = Net("resnet18", size, norm)
    x = net.conv(net.image, _scaled(64, width), 7, stride=2, activation="relu")
    x = net.max_pool(x, 3, pad=1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _basic(net, x, _scaled(64 * 2**stage, width), stride)
    return net.classify(x, classes)


def _basic(net: Net, x: Value, channels: int, stride: int) -> Value:
    y = net.conv(x, channels, 3, stride=stride, activation="relu")
    y = net.conv(y, channels, 3, gain=RESIDUAL_GAIN)
    same = stride == 1 and x.channels == channels
    shortcut = x if same else net.conv(x, channels, stride=stride)
    return net.activate(net.add(y, shortcut), "relu")


def squeezenet(
    size: int = 224,
    width: float = 1.0,
    fires: Sequence[Sequence[int]] = ((16, 16), (32, 32), (48, 48, 64, 64)),
    classes: int = 1000,
    norm: bool = False,
) -> onnx.ModelProto:
    """SqueezeNet 1.1 (Iandola et al., 2016): fire modules, a convolution as the classifier."""
    net = Net("squeezenet", size, norm)
    x = net.conv(net.image, _scaled(64, width), 3, stride=2, activation="relu")
    for stage in fires:
        x = net.max_pool(x, 3)
        for squeeze in stage:
            x = _fire(net, x, _scaled(squeeze, width), _scaled(4 * squeeze, width))
    x = net.conv(x, classes, activation="relu")
    return net.model({"logits": net.global_pool(x)})


def _fire(net: Net, x: Value, squeeze: int, expand: int) -> Value:
    """A narrow 1×1 layer, then 1×1 and 3×3 layers side by side."""
    x = net.conv(x, squeeze, activation="relu")
    sides = (net.conv(x, expand, kernel, activation="relu") for kernel in (1, 3))
    return net.concat(*sides)


def unet(size: int = 128, width: float = 1.0, levels: int = 4, classes: int = 1) -> onnx.ModelProto:
    """A U-Net (Ronneberger et al., 2015) with padded layers; a probability per pixel and class.

    ``size`` is divisible by ``2**levels``.
    """
    net = Net("unet", size)
    x, skips = net.image, []
    for level in range(levels):
        x = _two_convs(net, x, _scaled(32 * 2**level, width))
        skips.append(x)
        x = net.max_pool(x, 2)
    x = _two_convs(net, x, _scaled(32 * 2**levels, width))
    for skip in reversed(skips):
        x = net.concat(skip, net.upsample(x, skip.channels))
        x = _two_convs(net, x, skip.channels)
    return net.model({"mask": net.node("Sigmoid", net.conv(x, classes).name)})


def _two_convs(net: Net, x: Value, channels: int) -> Value:
    return net.conv(net.conv(x, channels, 3, activation="relu"), channels, 3, activation="relu")


def ssd(
    size: int = 256,
    width: float = 1.0,
    scales: Sequence[int] = (32, 96, 160),
    classes: int = 21,
    anchors: int = 6,
) -> onnx.ModelProto:
    """Class and box heads on inverted residuals (SSD: Liu et al., 2016).

    ``scales``: channels of the feature maps at strides 8, 16, and so on. Outputs ``scores``
    [1, boxes, classes] before the softmax and ``boxes`` [1, boxes, 4].
    """
    net = Net("ssd", size)
    x = net.conv(net.image, _scaled(32, width), 3, stride=2, activation="relu6", gain=STEM_GAIN)
    x = _inverted_residual(net, x, _scaled(24, width), 4, 2)
    maps = []
    for channels in scales:
        x = _inverted_residual(net, x, _scaled(channels, width), 4, 2)
        x = _inverted_residual(net, x, x.channels, 4, 1)
        maps.append(x)
    scores = [_head(net, x, anchors, classes) for x in maps]
    boxes = [_head(net, x, anchors, 4) for x in maps]
    return net.model(
        {"scores": net.node("Concat", *scores, axis=1), "boxes": net.node("Concat", *boxes, axis=1)}
    )


def _head(net: Net, x: Value, anchors: int, numbers: int) -> str:
    """``numbers`` for each anchor at each pixel: [1, anchors · pixels, numbers]."""
    y = net.conv(x, anchors * numbers, 3)
    last = net.node("Transpose", y.name, perm=[0, 2, 3, 1])
    return net.node("Reshape", last, net.weight(np.array([1, -1, numbers], np.int64)))


@dataclass(frozen=True, eq=False)
class Network:
    """A row of the table: a builder, and its arguments for tests and for measurements."""

    name: str
    build: Callable[..., onnx.ModelProto]
    small: Mapping[str, Any]
    full: Mapping[str, Any]

    def __str__(self) -> str:
        return self.name


# TVM's importer with freeze_params folds constants anew at each node: the small ones are shallow.
NETWORKS = (
    Network(
        "mobilenet_v1",
        mobilenet_v1,
        {"size": 32, "width": 0.25, "blocks": MOBILENET_V1[:4], "classes": 10},
        {},
    ),
    Network(
        "mobilenet_v2",
        mobilenet_v2,
        {"size": 32, "width": 0.25, "stages": MOBILENET_V2[:2], "classes": 10},
        {},
    ),
    Network(
        "resnet50",
        resnet50,
        {"size": 32, "width": 0.125, "blocks": (2, 1), "classes": 10},
        {},
    ),
    Network(
        "efficientnet_lite0",
        efficientnet_lite0,
        {"size": 32, "width": 0.25, "stages": EFFICIENTNET_LITE0[2:3], "classes": 10},
        {},
    ),
    Network(
        "squeezenet",
        squeezenet,
        {"size": 48, "width": 0.25, "fires": ((16,), (32,)), "classes": 10},
        {},
    ),
    Network("unet", unet, {"size": 32, "width": 0.25, "levels": 1}, {}),
    Network(
        "ssd", ssd, {"size": 32, "width": 0.25, "scales": (32, 96), "classes": 4, "anchors": 3}, {}
    ),
)


@dataclass(frozen=True)
class Cost:
    """Multiply-accumulates of convolutions and dense layers; numbers in weights and biases."""

    macs: int
    parameters: int


def cost(model: onnx.ModelProto) -> Cost:
    """The cost of a float model that a builder of this file made."""
    weights = {w.name: tuple(w.dims) for w in model.graph.initializer}
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    macs = parameters = 0
    for node in model.graph.node:
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm"):
            continue
        weight, bias = (weights[name] for name in node.input[1:])
        # Every pixel of this side meets each weight once.
        side = node.input[0] if node.op_type == "ConvTranspose" else node.output[0]
        macs += int(np.prod(shapes[side][2:])) * int(np.prod(weight))
        parameters += int(np.prod(weight)) + int(np.prod(bias))
    return Cost(macs, parameters)


# --- Quantization ----------------------------------------------------------------------------


def images(size: int, count: int, seed: int = 0) -> list[Image]:
    """``count`` images [1, 3, size, size] of coarse patches and fine noise, mean 0."""
    rng = np.random.default_rng(seed)
    return [_image(size, rng) for _ in range(count)]


def _image(size: int, rng: np.random.Generator) -> Image:
    patch = -(-size // 4)
    coarse = rng.standard_normal((3, 4, 4)).repeat(patch, axis=1).repeat(patch, axis=2)
    fine = rng.standard_normal((3, size, size))
    return (coarse[:, :size, :size] + 0.5 * fine).astype(np.float32)[np.newaxis]


def image_size(model: onnx.ModelProto) -> int:
    """Height and width of the input."""
    return int(model.graph.input[0].type.tensor_type.shape.dim[-1].dim_value)


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Hands images to ONNX Runtime's calibration."""

    def __init__(self, data: Sequence[Image], name: str = INPUT) -> None:
        self.feeds: Iterator[dict[str, Image]] = ({name: image} for image in data)

    def get_next(self) -> dict[str, Image] | None:
        return next(self.feeds, None)


FORMS = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}
TYPES = {"uint8": quantization.QuantType.QUInt8, "int8": quantization.QuantType.QInt8}


def quantize(
    model: onnx.ModelProto,
    *,
    form: Literal["qdq", "qoperator"] = "qdq",
    activation: Literal["uint8", "int8"] = "uint8",
    per_channel: bool = True,
    reduce_range: bool = False,
    calibration: Sequence[Image] | None = None,
) -> onnx.ModelProto:
    """The model with int8 weights, quantized by ``onnxruntime.quantization.quantize_static``.

    ``calibration`` are the images whose minima and maxima set the ranges of activations; None
    takes ``CALIBRATION_IMAGES`` seeded ones. With ``reduce_range`` weights have 7 bits.

    Relu and Clip vanish: the ranges of the layers before them do their work. In QOperator form
    ONNX Runtime leaves ConvTranspose in float, between DequantizeLinear and QuantizeLinear; in QDQ
    form its weights are quantized too, per output channel (axis 1) if ``per_channel``.
    """
    if calibration is None:
        calibration = images(image_size(model), CALIBRATION_IMAGES)
    source = onnx.ModelProto()
    source.CopyFrom(model)
    helper.set_model_props(source, PREPARED)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        target = Path(folder) / "quantized.onnx"
        quantization.quantize_static(
            source,
            target,
            Reader(calibration, model.graph.input[0].name),
            quant_format=FORMS[form],
            activation_type=TYPES[activation],
            weight_type=quantization.QuantType.QInt8,
            per_channel=per_channel,
            reduce_range=reduce_range,
        )
        return onnx.load(target)


@contextmanager
def _quiet() -> Iterator[None]:
    """No advice in the log while ONNX Runtime quantizes."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
