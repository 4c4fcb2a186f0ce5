"""Small torch networks for the ExecuTorch front end: what its tests run and its benchmark times.

Their weights are random numbers from a seed, but they behave as trained ones: batch norms have the
statistics of the inputs that the network gets, and the last layer of a classifier is fitted to
patterns with noise, so that its first choice is clear.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer

PATTERNS = 10  # classes that inputs belong to
NOISE = 0.05


@dataclass(frozen=True)
class Network:
    """A module in eval mode, and the shape of the one input that it takes."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    channels_last: bool = False

    def samples(self, count: int, seed: int = 1) -> list[tuple[Tensor, ...]]:
        """Inputs of one batch each: one of ten patterns with noise."""
        images = patterns(self.shape, count, seed)[0]
        return [(self._ordered(image[None]),) for image in images]

    def _ordered(self, image: Tensor) -> Tensor:
        if not self.channels_last:
            return image
        return image.to(memory_format=torch.channels_last)

    def with_channels_last(self) -> Network:
        """The same network with its images, weights and inputs in the order NHWC."""
        module = self.module.to(memory_format=torch.channels_last)
        return Network(f"{self.name} channels last", module, self.shape, channels_last=True)


def patterns(shape: tuple[int, ...], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs, and which of the patterns each one shows."""
    drawn = torch.Generator().manual_seed(7)
    coarse = [max(1, size // 4) for size in shape[1:]] or [shape[0]]
    if len(shape) == 3:
        small = torch.randn(PATTERNS, shape[0], *coarse, generator=drawn)
        clean = nn.functional.interpolate(small, size=shape[1:], mode="nearest")
    else:
        clean = torch.randn(PATTERNS, *shape, generator=drawn)
    noise = torch.Generator().manual_seed(1000 + seed)
    classes = torch.randint(PATTERNS, (count,), generator=noise)
    return clean[classes] + NOISE * torch.randn(count, *shape, generator=noise), classes


def quantized(
    module: nn.Module, samples: Sequence[tuple[Tensor, ...]], quantizer: Quantizer
) -> torch.export.ExportedProgram:
    """The module as torch's own flow quantizes it, calibrated with ``samples``, and exported."""
    prepared = prepare_pt2e(torch.export.export(module, samples[0]).module(), quantizer)
    with torch.no_grad():
        for sample in samples:
            prepared(*sample)
    return torch.export.export(convert_pt2e(prepared), samples[0])


# --- The parts ------------------------------------------------------------------------------------


def _conv(
    of: int, to: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: type | None = nn.ReLU
) -> nn.Sequential:
    """Convolution, batch norm, activation."""
    padding = kernel // 2
    conv = nn.Conv2d(of, to, kernel, stride, padding, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(to), *([act()] if act else []))


class _Residual(nn.Module):
    """The sum of two ways, and a ReLU where ``act``."""

    def __init__(self, way: nn.Module, short: nn.Module | None = None, act: bool = False) -> None:
        super().__init__()
        self.way, self.short = way, short or nn.Identity()
        self.act = nn.ReLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.short(x) + self.way(x))


class _Classifier(nn.Module):
    """Features of an image, their average, a linear layer."""

    def __init__(self, features: nn.Module, channels: int, classes: int) -> None:
        super().__init__()
        self.features = features
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def embedded(self, x: Tensor) -> Tensor:
        return torch.flatten(self.pool(self.features(x)), 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.embedded(x))


def _basic(of: int, to: int, stride: int) -> nn.Module:
    """Two 3×3 layers beside a shortcut (He et al., 2016)."""
    way = nn.Sequential(_conv(of, to, 3, stride), _conv(to, to, act=None))
    short = None if stride == 1 else _conv(of, to, 1, stride, act=None)
    return _Residual(way, short, act=True)


def _resnet8() -> nn.Module:
    layers = [_conv(3, 16), _basic(16, 16, 1), _basic(16, 32, 2), _basic(32, 64, 2)]
    return _Classifier(nn.Sequential(*layers), 64, 10)


def _resnet18(width: float) -> nn.Module:
    of = int(64 * width)
    layers: list[nn.Module] = [_conv(3, of, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for stage in range(4):
        to = int(64 * width) * 2**stage
        layers += [_basic(of, to, 2 if stage else 1), _basic(to, to, 1)]
        of = to
    return _Classifier(nn.Sequential(*layers), of, 10)


def _ds_cnn() -> nn.Module:
    first = nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False)
    layers: list[nn.Module] = [first, nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        layers += [_conv(64, 64, groups=64), _conv(64, 64, 1)]
    return _Classifier(nn.Sequential(*layers), 64, 12)


def _mobilenet_v1(width: float) -> nn.Module:
    def channels(count: int) -> int:
        return max(8, int(count * width))

    layers: list[nn.Module] = [_conv(3, channels(32), stride=2)]
    of = channels(32)
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5]
    for count, stride in [*blocks, (1024, 2), (1024, 1)]:
        to = channels(count)
        layers += [_conv(of, of, 3, stride, groups=of), _conv(of, to, 1)]
        of = to
    return _Classifier(nn.Sequential(*layers), of, 10)


def _mobilenet_v2(width: float, classes: int) -> nn.Module:
    def channels(count: int) -> int:
        return max(8, int(count * width + 4) // 8 * 8)

    of = channels(32)
    layers: list[nn.Module] = [_conv(3, of, stride=2, act=nn.ReLU6)]
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)]
    for expand, count, repeats, first in [*stages, (6, 160, 3, 2), (6, 320, 1, 1)]:
        for stride in (first, *[1] * (repeats - 1)):
            wide, to = of * expand, channels(count)
            opening = [] if expand == 1 else [_conv(of, wide, 1, act=nn.ReLU6)]
            depthwise = _conv(wide, wide, 3, stride, groups=wide, act=nn.ReLU6)
            way = nn.Sequential(*opening, depthwise, _conv(wide, to, 1, act=None))
            layers.append(_Residual(way) if stride == 1 and of == to else way)
            of = to
    last = channels(1280) if width > 1 else 1280
    layers.append(_conv(of, last, 1, act=nn.ReLU6))
    return _Classifier(nn.Sequential(*layers), last, classes)


def _autoencoder() -> nn.Module:
    """MLPerf Tiny's for the sounds of machines. Its batch norms are folded below: torch's own flow
    folds those of convolutions only."""
    widths = [640, *[128] * 4, 8, *[128] * 4]
    layers: list[nn.Module] = []
    for of, to in itertools.pairwise(widths):
        layers += [nn.Linear(of, to), nn.BatchNorm1d(to), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 640))


class _UNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.one = nn.Sequential(_conv(3, width), _conv(width, width))
        self.two = nn.Sequential(_conv(width, 2 * width), _conv(2 * width, 2 * width))
        self.deep = nn.Sequential(_conv(2 * width, 4 * width), _conv(4 * width, 4 * width))
        self.pool = nn.MaxPool2d(2)
        self.up_two = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.after_two = _conv(4 * width, 2 * width)
        self.up_one = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.after_one = _conv(2 * width, width)
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.one(x)
        two = self.two(self.pool(one))
        deep = self.deep(self.pool(two))
        two = self.after_two(torch.cat([self.up_two(deep), two], 1))
        one = self.after_one(torch.cat([self.up_one(two), one], 1))
        return self.head(one)


class _SqueezeExcite(nn.Module):
    """Each channel times a number between 0 and 1 that depends on all channels' averages."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.squeeze = nn.Conv2d(channels, channels // 4, 1)
        self.act = nn.ReLU()
        self.excite = nn.Conv2d(channels // 4, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.excite(self.act(self.squeeze(self.pool(x)))))


def _mobilenet_v3_blocks() -> nn.Module:
    """A stem and two blocks with squeeze and excite, as MobileNetV3 has them."""

    def block(of: int, wide: int, to: int, kernel: int, stride: int) -> nn.Module:
        way = nn.Sequential(
            _conv(of, wide, 1, act=nn.Hardswish),
            _conv(wide, wide, kernel, stride, groups=wide, act=nn.Hardswish),
            _SqueezeExcite(wide),
            _conv(wide, to, 1, act=None),
        )
        return _Residual(way) if stride == 1 and of == to else way

    stem = _conv(3, 16, stride=2, act=nn.Hardswish)
    layers = [stem, block(16, 64, 24, 5, 2), block(24, 96, 24, 3, 1)]
    layers.append(_conv(24, 128, 1, act=nn.Hardswish))
    return _Classifier(nn.Sequential(*layers), 128, 10)


# --- Networks -------------------------------------------------------------------------------------


def _made(name: str, maker: Callable[[], nn.Module], shape: tuple[int, ...]) -> Network:
    """The network with its weights, from the name's seed, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(sum(map(ord, name)))
        module = maker()
        _use(module, patterns(shape, 16, 2)[0])
        if isinstance(module, _Classifier):
            _fit(module, shape)
        if isinstance(module, nn.Sequential):
            module = _folded(module)
    return Network(name, module.eval(), shape)


def _use(module: nn.Module, images: Tensor) -> None:
    """Give batch norms the statistics of these inputs, and scales and shifts that differ."""
    norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the average of all batches
        norm.weight.uniform_(0.6, 1.4)
        norm.bias.uniform_(0.0, 1.0)  # most values pass a ReLU: noise does not grow with depth
    module.train()
    module(images)
    module.eval()


def _folded(layers: nn.Sequential) -> nn.Sequential:
    """Linear layers with the batch norms after them in their weights."""
    folded: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.BatchNorm1d):
            folded[-1] = fuse_linear_bn_eval(folded[-1], layer)
        else:
            folded.append(layer)
    return nn.Sequential(*folded)


def _fit(module: _Classifier, shape: tuple[int, ...]) -> None:
    """The last layer by ridge regression: 6 for the class of an input, 0 for the others."""
    images, classes = patterns(shape, 4 * PATTERNS, 3)
    features = torch.cat([module.embedded(each) for each in images.split(8)]).double()
    middle = features.mean(0)
    around = features - middle
    wanted = 6.0 * nn.functional.one_hot(classes, PATTERNS).double()
    ridge = around.T @ around + 0.05 * around.var() * len(images) * torch.eye(len(middle))
    weights = torch.linalg.solve(ridge, around.T @ (wanted - wanted.mean(0)))
    layer = module.classifier
    layer.weight *= 0.1
    layer.bias.zero_()
    layer.weight[:PATTERNS] = weights.T.float()
    layer.bias[:PATTERNS] = (wanted.mean(0) - middle @ weights).float()


def mobilenet_v2(size: int = 160, width: float = 1.0, classes: int = 1000) -> Network:
    name = f"MobileNetV2 {width:g} {size}"
    return _made(name, lambda: _mobilenet_v2(width, classes), (3, size, size))


NETWORKS: dict[str, Callable[[], Network]] = {
    "resnet8": lambda: _made("ResNet8", _resnet8, (3, 32, 32)),
    "ds_cnn": lambda: _made("DS-CNN", _ds_cnn, (1, 49, 10)),
    "mobilenet_v1": lambda: _made("MobileNetV1 0.25", lambda: _mobilenet_v1(0.25), (3, 96, 96)),
    "mobilenet_v2": mobilenet_v2,
    "resnet18": lambda: _made("ResNet18", lambda: _resnet18(1.0), (3, 96, 96)),
    "autoencoder": lambda: _made("autoencoder", _autoencoder, (640,)),
    "unet": lambda: _made("U-Net", _UNet, (3, 64, 64)),
    "squeeze_excite": lambda: _made("squeeze and excite", _mobilenet_v3_blocks, (3, 64, 64)),
}
