"""Configurations of ``TinyAIQuantizer``, and what torchao makes integers by: its specifications."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torchao.quantization.pt2e import (
    FusedMovingAvgObsFakeQuantize,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
)
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationConfig,
    QuantizationSpec,
)

from tinyai.errors import OptionError
from tinyai.ir import Array
from tinyai.qdq.operands import Grid
from tinyai.quantizer.config import LARGEST_OF_7_BITS, QuantConfig

# Of weights too: the smallest scale. Sums of a dead channel keep a multiplier that way.
SMALLEST_SCALE = 2**-12
OBSERVERS = {"histogram": HistogramObserver, "minmax": MinMaxObserver}


def quantization_config(
    *,
    per_channel: bool = True,
    symmetric: bool = False,
    observer: str = "histogram",
    is_qat: bool = False,
    reduce_range: bool = False,
) -> QuantizationConfig:
    """How activations and weights become int8.

    Weights are symmetric: a scale for each output channel (``per_channel``) or one a tensor; with
    ``reduce_range`` they have 7 bits (-63 to 63), of which two products fit into 16 bits: some CPUs
    multiply more of them at once.
    Activations have one scale a tensor and a zero point, which is 0 if they are ``symmetric``.
    ``observer`` chooses their ranges from what it saw: ``histogram`` with the least squared error,
    or ``minmax`` all. With ``is_qat`` the quantization is simulated in training.
    """
    switches = {
        "per_channel": per_channel,
        "symmetric": symmetric,
        "is_qat": is_qat,
        "reduce_range": reduce_range,
    }
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise OptionError(name, found=repr(value), allowed="True or False")
    if observer not in OBSERVERS:
        raise OptionError("observer", found=repr(observer), allowed=" or ".join(OBSERVERS))
    scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    kind = FusedMovingAvgObsFakeQuantize if is_qat else OBSERVERS[observer]
    activation = _int8(-128, 127, kind.with_args(eps=SMALLEST_SCALE), scheme)
    scheme = torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric
    largest = QuantConfig(reduce_range=reduce_range).largest_weight
    weight = _int8(-largest, largest, _weight_observer(per_channel, is_qat), scheme, axis=0)
    return QuantizationConfig(activation, activation, weight, None, is_qat)


def _int8(
    least: int, largest: int, observer: Any, scheme: Any, axis: int | None = None
) -> QuantizationSpec:
    return QuantizationSpec(
        dtype=torch.int8,
        observer_or_fake_quant_ctr=observer,
        quant_min=least,
        quant_max=largest,
        qscheme=scheme,
        ch_axis=axis,
    )


def _weight_observer(per_channel: bool, is_qat: bool) -> Any:
    if is_qat:
        moving = (
            MovingAveragePerChannelMinMaxObserver if per_channel else MovingAverageMinMaxObserver
        )
        return FusedMovingAvgObsFakeQuantize.with_args(observer=moving, eps=SMALLEST_SCALE)
    observer = PerChannelMinMaxObserver if per_channel else MinMaxObserver
    return observer.with_args(eps=SMALLEST_SCALE)


def checked(config: QuantizationConfig | None) -> QuantizationConfig | None:
    """Raise ``OptionError`` for what no integer code is made of."""
    hint = "tinyai.executorch.quantization_config(), or XNNPACK's get_symmetric_quantization_config"
    if config is None:
        return None
    if not isinstance(config, QuantizationConfig):
        allowed = "a QuantizationConfig, or None: float"
        raise OptionError("quantization", found=repr(config), allowed=allowed, hint=hint)
    schemes = (torch.per_tensor_affine, torch.per_tensor_symmetric)
    weights = (torch.per_tensor_symmetric, torch.per_channel_symmetric)
    for what, spec, allowed_schemes in (
        ("inputs", config.input_activation, schemes),
        ("results", config.output_activation, schemes),
        ("weights", config.weight, weights),
    ):
        if spec is None or spec.is_dynamic:
            found = "none" if spec is None else "a dynamic one"
            raise OptionError(
                f"quantization of {what}", found=found, allowed="a static one", hint=hint
            )
        if spec.dtype is not torch.int8:
            raise OptionError(f"dtype of {what}", found=spec.dtype, allowed="torch.int8", hint=hint)
        if spec.qscheme not in allowed_schemes:
            allowed = " or ".join(map(str, allowed_schemes))
            raise OptionError(f"scheme of {what}", found=spec.qscheme, allowed=allowed, hint=hint)
    return config


def fixed(spec: QuantizationSpec, at: Grid) -> FixedQParamsQuantizationSpec:
    return FixedQParamsQuantizationSpec(
        dtype=spec.dtype,
        scale=at.scale,
        zero_point=at.zero_point,
        quant_min=spec.quant_min,
        quant_max=spec.quant_max,
        qscheme=spec.qscheme,
    )


def weight_spec(spec: QuantizationSpec, axis: int | None) -> QuantizationSpec:
    """Along the axis of the output channels, where there is one."""
    if spec.qscheme is not torch.per_channel_symmetric:
        return spec
    if axis is not None:
        return replace(spec, ch_axis=axis)
    return replace(
        spec,
        qscheme=torch.per_tensor_symmetric,
        observer_or_fake_quant_ctr=_weight_observer(per_channel=False, is_qat=False),
        ch_axis=None,
    )


def quant_config_of(configs: Iterable[QuantizationConfig | None]) -> QuantConfig:
    """The quantizer's own configuration that says the same. Raises ``OptionError`` for several."""
    found = {_as_own(each) for each in configs if each is not None}
    if len(found) != 1:
        raise OptionError(
            "configurations with samples of TinyAIQuantizer",
            found=f"{len(found)} that differ" if found else "None alone",
            allowed="one, and None for modules that stay in float",
            hint="without samples each module may have its own",
        )
    return found.pop()


def _as_own(config: QuantizationConfig) -> QuantConfig:
    if config.is_qat:
        raise OptionError(
            "configuration with samples of TinyAIQuantizer",
            found="is_qat=True",
            allowed="one of prepare_pt2e: samples are for what is not trained any more",
        )
    maker = getattr(config.input_activation.observer_or_fake_quant_ctr, "p", None)
    minmax = getattr(maker, "func", None) is MinMaxObserver
    return QuantConfig(
        symmetric=config.input_activation.qscheme is torch.per_tensor_symmetric,
        observer="minmax" if minmax else QuantConfig.observer,
        per_channel=config.weight.qscheme is torch.per_channel_symmetric,
        reduce_range=config.weight.quant_max <= LARGEST_OF_7_BITS,
    )


class PerChannelScales(ObserverBase):  # type: ignore[misc]  # torchao has no type hints
    """Observes nothing: the ``scales`` of channels are known."""

    def __init__(self, *, scales: Array, ch_axis: int, **kwargs: Any) -> None:
        super().__init__(kwargs["dtype"], is_dynamic=False)
        self.ch_axis, self.qscheme = ch_axis, kwargs["qscheme"]
        self.quant_min, self.quant_max = kwargs["quant_min"], kwargs["quant_max"]
        self.register_buffer("scales", torch.from_numpy(scales.astype("float32")))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.scales, torch.zeros(self.scales.shape, dtype=torch.int32)


def with_scales(spec: QuantizationSpec, scales: Array) -> Any:
    """``spec`` of weights whose scales are known: one for each channel, or one alone."""
    if spec.qscheme is not torch.per_channel_symmetric:
        return fixed(spec, Grid("int8", float(scales[0]), 0))
    return replace(spec, observer_or_fake_quant_ctr=PerChannelScales.with_args(scales=scales))
