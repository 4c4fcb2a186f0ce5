"""How Relay spells the vocabulary: which operator is which, and what it calls the attributes.

Operands come in Relay's order, so that the two differ in names alone. Knows no TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tinyai.ops import OPERATORS
from tinyai.source import Call, Expr, SourceType
from tinyai.vocabulary import signature

# Relay's operators by name, where that is not the vocabulary's.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{
            f"nn.{name}": name
            for name in (
                *("conv1d", "conv2d", "conv3d", "conv2d_transpose", "conv3d_transpose"),
                *("dense", "batch_matmul", "bias_add"),
                *("relu", "leaky_relu", "prelu", "softmax", "log_softmax", "fast_softmax", "lrn"),
                *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d"),
                *("global_max_pool2d", "global_avg_pool2d"),
                *("adaptive_max_pool1d", "adaptive_avg_pool1d"),
                *("adaptive_max_pool2d", "adaptive_avg_pool2d"),
                *("pad", "depth_to_space", "space_to_depth", "upsampling"),
            )
        },
        **{
            f"qnn.{name}": f"quantized_{name}"
            for name in (
                *("conv2d", "conv2d_transpose", "dense", "batch_matmul"),
                *("add", "subtract", "concatenate"),
            )
        },
        "qnn.mul": "quantized_multiply",
        **{f"qnn.{name}": name for name in ("requantize", "quantize", "dequantize")},
        **dict.fromkeys(("reshape", "expand_dims", "squeeze", "nn.batch_flatten"), "reshape"),
        "annotation.stop_fusion": "stop_fusion",
        "image.resize2d": "resize2d",
    }
)
_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "a_min": "low",
        "a_max": "high",
        "pad_mode": "mode",
        "pad_width": "widths",
        "data_layout": "layout",
        "kernel_layout": "weight_layout",
        "pool_size": "kernel",
        "src_layout": "source",
        "dst_layout": "target",
        "coordinate_transformation_mode": "coordinates",
        "rounding_method": "nearest_mode",
    }
)


def spelled(operator: str) -> str:
    """Relay's name of an operator of the vocabulary: the first, where it has several."""
    return next((name for name, ours in NAMES.items() if ours == operator), operator)


# What Relay has no name for, and its cumsum, which goes from any type to any other.
UNSPELLED = (
    *("cumulative_sum", "function", "interpolate2d", "layer_norm", "rescale", "rms_norm"),
    "square",
)


def supported() -> dict[str, str]:
    """By Relay's name the operators that have a builder."""
    named = {*NAMES.values(), *UNSPELLED}
    return {name: ours for name, ours in NAMES.items() if ours in OPERATORS} | {
        name: name for name in OPERATORS if name not in named
    }


def read(
    operator: str,
    types: tuple[SourceType, ...],
    attributes: Callable[[], Mapping[str, Any]],
    args: Callable[[], tuple[Expr, ...]],
    name: str = "",
    origin: object = None,
) -> Call:
    """A call of Relay's ``operator`` in the vocabulary's terms."""
    ours = NAMES.get(operator, operator)
    known = signature(ours)
    return Call(
        types,
        origin=origin,
        op=ours,
        load_attrs=(lambda: _renamed(ours, attributes())) if known else attributes,
        load=args,
        operands=known.operands if known else (),
        name=name,
        spelling=operator,
    )


def _renamed(operator: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes under our names; those of a window have one form."""
    ours = {_ATTRIBUTES.get(name, name): value for name, value in attributes.items()}
    if "padding" in ours:
        dims = 1 if "1d" in operator else 3 if "3d" in operator else 2
        pads = tuple(ours["padding"])
        ours["padding"] = pads if len(pads) == 2 * dims else (pads * 2 * dims)[: 2 * dims]
        for name in ours.keys() & {"strides", "dilation", "kernel"}:
            ours[name] = (tuple(ours[name]) * dims)[:dims]
    return ours
