"""What ``relay.quantize`` writes, from float to float."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relay

from tests.support.cases import (
    FLOATS,
    INTEGERS,
    Family,
    Input,
    Suite,
    const,
    random,
)

# --- Edges of a region ---------------------------------------------------------------------------


def quantize(x: relay.Expr, scale: Any, low: float, high: float, dtype: str) -> relay.Expr:
    scaled = relay.multiply(x, const(scale, "float32"))
    return relay.cast(relay.clip(relay.round(scaled), low, high), dtype)


def edge_family() -> Family:
    family = Family()
    x = Input((7, 41), "float32", floats=FLOATS)
    for scale in (1.0, 16.0, -0.37, 1e-30):
        for low, high, dtype in (
            (-127, 127, "int8"),
            (-128, 127, "int8"),
            (0, 255, "uint8"),
            (-32768, 32767, "int16"),
        ):
            family.add(
                f"quantize by {scale} to {dtype} {low} {high}",
                x,
                lambda x, a=(scale, low, high, dtype): quantize(x, *a),
            )
    family.add(
        "quantize by a scale a channel",
        x,
        lambda x: quantize(x, np.linspace(0.1, 40, 41), -127, 127, "int8"),
    )
    family.add(
        "quantize after a float pad",
        Input((1, 4, 5, 3), "float32", floats=FLOATS),
        lambda x: quantize(
            relay.nn.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)), 0.75), 16.0, -127, 127, "int8"
        ),
    )
    for dtype in INTEGERS:
        family.add(
            f"dequantize {dtype}",
            Input((5, 41), dtype),
            lambda x: relay.multiply(relay.cast(x, "float32"), const(0.0078125 / 3, "float32")),
        )
    family.add(
        "dequantize by a scale a channel",
        Input((2, 3, 5), "int32"),
        lambda x: relay.multiply(
            relay.cast(x, "float32"), const([0.1, -0.3, 1e-9, 7, 0], "float32")
        ),
    )
    return family


# --- Chains --------------------------------------------------------------------------------------


def requantize(x: relay.Expr, rounding: Any, shift: Any, dtype: str = "int8") -> relay.Expr:
    x = relay.right_shift(relay.add(x, const(rounding)), const(shift))
    return relay.cast(relay.clip(x, -127, 127), dtype)


def chain_family() -> Family:
    """What tvm.relay.quantize writes, in bounds in which no sum overflows."""
    family = Family()
    image = Input((2, 5, 6, 7), "int8")
    weight = random("chain", (4, 5, 3, 3))
    shifts = np.array([6, 7, 8, 9]).reshape(4, 1, 1)

    def conv(x: relay.Expr) -> relay.Expr:
        attrs = {"padding": (1, 1), "kernel_size": (3, 3), "channels": 4}
        return relay.nn.conv2d(x, relay.const(weight), out_dtype="int32", **attrs)

    family.add("conv requantize", image, lambda x: requantize(conv(x), 64, 7))
    family.add(
        "conv bias_add relu requantize",
        image,
        lambda x: requantize(
            relay.nn.relu(relay.nn.bias_add(conv(x), const([9, -7000, 5, 800]))), 64, 7
        ),
    )
    family.add(
        "conv multiply add per channel",
        image,
        lambda x: requantize(
            relay.add(
                relay.multiply(requantize(conv(x), 64, 7, "int32"), const([[[3]], [[-7]]] * 2)),
                const([[[1]], [[200]], [[-9]], [[0]]]),
            ),
            1 << (shifts - 1),
            shifts,
        ),
    )
    family.add(
        "conv leaky relu",
        image,
        lambda x: requantize(relay.nn.leaky_relu(conv(x), 0.1), 64, 7),
    )
    family.add(
        "conv int64 fixed point",
        image,
        lambda x: relay.cast(
            relay.clip(
                relay.fixed_point_multiply(relay.cast(conv(x), "int64"), 1518500250, -6), -127, 127
            ),
            "int8",
        ),
    )

    def residual(x: relay.Expr, y: relay.Expr) -> relay.Expr:
        left = relay.left_shift(relay.cast(requantize(conv(x), 64, 7), "int32"), const(2))
        right = relay.multiply(relay.cast(y, "int32"), const(3))
        return requantize(relay.add(left, right), 2, 2)

    family.add("conv residual", (image, Input((2, 4, 6, 7), "int8")), residual)
    family.add(
        "difference of a branch and a convolution",
        (image, Input((2, 4, 6, 7), "int8")),
        lambda x, y: requantize(relay.subtract(relay.cast(y, "int32"), conv(x)), 64, 7),
    )

    def fork(x: relay.Expr) -> relay.Expr:
        first = requantize(conv(x), 64, 7)
        wide = relay.cast(first, "int32")
        pooled = relay.nn.max_pool2d(first, (3, 3), padding=(1, 1))
        joined = relay.concatenate([first, pooled], 1)
        summed = requantize(relay.add(wide, relay.cast(pooled, "int32")), 1, 1)
        return relay.concatenate([joined, summed], 1)

    family.add("fork into pool, add and concatenate", image, fork)
    family.add(
        "average in int32, then float",
        image,
        lambda x: relay.multiply(
            relay.cast(
                relay.nn.global_avg_pool2d(relay.cast(requantize(conv(x), 64, 7), "int32")),
                "float32",
            ),
            const(0.0625, "float32"),
        ),
    )
    family.add(
        "float image to float result",
        Input((1, 5, 6, 7), "float32", floats=FLOATS),
        lambda x: relay.multiply(
            relay.cast(requantize(conv(quantize(x, 16.0, -127, 127, "int8")), 64, 7), "float32"),
            const(0.1, "float32"),
        ),
    )
    return family


SUITE = Suite(
    {
        "edge": edge_family,
        "chain": chain_family,
    }
)
