"""Depthwise layers of every form beside the 3×3 of stride 1 with as many channels.

    python benchmarks/depthwise.py [--isa avx2] [--instructions dotprod] [--channels 32,96]

A row a number of channels: multiply-accumulates a nanosecond of the 3×3 form of stride 1, and for
each other form its rate as a share of that. The forms take turns, call by call, and a rate is of
the median. Each stands behind a pointwise layer, as in a network, which writes its image with the
border: the image of a network's input would be copied for it, and a stride of 2 has a fourth of the
outputs for the same copy. With ``--instructions`` it is the instructions for each
multiply-accumulate that QEMU counts in the microkernels of an AArch64 set.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.arm_instructions import ARCH, measured
from tinyai.codegen.isa import best_of_this_machine
from tinyai.ir import Builder, DType, Graph, Operand, Type
from tinyai.ops import Conv2d
from tinyai.ops.steps import Add, Cast, Clip, FixedPointMultiply
from tinyai.ops.window import Window
from tinyai.runtime.layers import time_layers
from tinyai.target import ARCHITECTURES, Target

CHANNELS = (32, 64, 96, 128, 144, 192, 240, 256, 384, 480, 512, 576, 672, 960)
# Size of the window and stride; the first is what the others are compared with.
FORMS = ((3, 1), (3, 2), (5, 1), (5, 2))
SIDE = 28
INNER = 16  # channels of the input of the pointwise layer
# The share that each form should reach.
WANTED = 0.6


def depthwise(
    channels: int, forms: tuple[tuple[int, int], ...] = FORMS, *, alone: bool = False
) -> Graph:
    """A layer a form, requantized for each channel as in a network; behind a pointwise one, if it
    is not ``alone``."""
    builder, rng = Builder("depthwise"), np.random.default_rng(0)
    multipliers = tuple(map(int, rng.integers(2**30, 2**31, channels)))

    def layer(x: str, kernel: int, stride: int, inner: int, groups: int) -> str:
        weight = rng.integers(-127, 128, (channels, kernel, kernel, inner), np.int8)
        bias = rng.integers(-5000, 5000, (1, 1, 1, channels)).astype(np.int32)
        padding = (kernel // 2,) * 4
        op = Conv2d(Window((kernel, kernel), (stride, stride), padding=padding), groups)
        steps = (
            Add(operand=Operand(builder.constant(bias))),
            FixedPointMultiply(multipliers, (-9,) * channels, 3),
            Clip(0, 255),
            Cast(DType.UINT8),
        )
        return builder.add(op, [x, builder.constant(weight)], steps)

    results = []
    for kernel, stride in forms:
        x = builder.input(Type((1, SIDE, SIDE, channels if alone else INNER), DType.UINT8))
        x = x if alone else layer(x, 1, 1, INNER, 1)
        results.append(layer(x, kernel, stride, 1, channels))
    return builder.graph(results)


def rates(channels: int, isa: str, runs: int) -> list[float]:
    """Multiply-accumulates a nanosecond of each form."""
    layers = time_layers(depthwise(channels), Target(isa=isa), runs=runs)
    return [each.gmacs for each in layers if each.macs][1::2]


def per_instruction(channels: int, isa: str) -> list[float]:
    """Multiply-accumulates an instruction of each form, in its microkernel."""
    target = Target(isa=isa, arch=ARCH)
    rows = (measured("", depthwise(channels, (form,), alone=True), target) for form in FORMS)
    return [1 / row.per_mac("tinyai_depthwise") for row in rows]


@click.command(help=__doc__.split("\n")[0])
@click.option("--isa", default=best_of_this_machine(), show_default=True)
@click.option("--instructions", type=click.Choice(ARCHITECTURES[ARCH]), help="Of an AArch64 set.")
@click.option("--channels", default=",".join(map(str, CHANNELS)), show_default=True)
@click.option("--runs", default=300, show_default=True)
def main(isa: str, instructions: str | None, channels: str, runs: int) -> None:
    """Print the table; the exit code says whether each form reaches its share."""
    unit = "MACs an instruction" if instructions else "GMAC/s"
    names = [f"{kernel}×{kernel}{f' stride {stride}' * (stride > 1)}" for kernel, stride in FORMS]
    table = Table(title=f"Depthwise layers, {instructions or isa}", title_justify="left")
    for name in ("channels", f"{names[0]}, {unit}", *names[1:]):
        table.add_column(name, justify="right")
    least = 1.0
    for count in map(int, channels.split(",")):
        if instructions:
            first, *others = per_instruction(count, instructions)
        else:
            first, *others = rates(count, isa, runs)
        shares = [rate / first for rate in others]
        least = min(least, *shares)
        table.add_row(str(count), f"{first:.2f}", *(f"{share:.2f}" for share in shares))
    console = Console(width=100)
    console.print(table)
    console.print(f"The least share is {least:.2f}; {WANTED} is wanted.")
    sys.exit(least < WANTED)


if __name__ == "__main__":
    main()
