"""Instructions of AArch64 for each multiply-accumulate of a network, counted by QEMU.

    python benchmarks/arm_instructions.py [--isa dotprod]… [model.tflite…]

A row a network and instruction set: executed instructions of a whole call, everything included; of
these, the tiles of convolutions and dense layers, and depthwise layers; and the share of products
(SDOT, SMMLA, SMULL and SMLAL) in tiles with their ends. Behind the table, their share in the loop
over a pixel's channels alone: in what a layer runs more that has twice the channels.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.qemu import Counts, count
from tinyai.backend import Compiled, compile_graph
from tinyai.errors import ToolchainError
from tinyai.ir import Builder, DType, Graph, Type
from tinyai.ops import Conv2d
from tinyai.ops.window import Window
from tinyai.target import ARCHITECTURES, ROUNDINGS, Target

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
ARCH = "aarch64"
MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
NETWORKS = ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "mobilenet_v1_int8")
# Masks and values of SDOT and UDOT, by vectors and by elements; SMMLA; SMULL and SMLAL of bytes.
PRODUCTS = (
    (0xFFE0FC00, 0x4E809400),
    (0xFFC0F400, 0x4F80E000),
    (0xFFE0FC00, 0x4E80A400),
    (0xBFE0FC00, 0x0E20C000),
    (0xBFE0FC00, 0x0E208000),
)
# A program that calls the entry so often as it is told.
DRIVER = """
#include <stdint.h>
#include <stdlib.h>
int32_t {symbol}(const void *const *inputs, void *const *outputs, void *arena);
static char arena[{arena}] __attribute__((aligned(64)));
{buffers}
int main(int count, char **words) {{
    const void *in[] = {{{inputs}}};
    void *out[] = {{{outputs}}};
    for (int calls = atoi(words[count - 1]); calls > 0; --calls)
        if ({symbol}(in, out, arena) != 0) return 1;
    return 0;
}}
"""


@dataclass(frozen=True)
class Row:
    """Of one call."""

    network: str
    isa: str
    macs: int
    counts: Counts

    def per_mac(self, prefix: str = "") -> float:
        return self.counts.of(prefix).instructions / self.macs


def measured(name: str, graph: Graph, target: Target) -> Row:
    """One call, which is two calls without one."""
    compiled = compile_graph(graph, target, abi="plain")
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder:
        program = Path(folder) / "program"
        _build(compiled, Path(folder), program)
        command = [EMULATOR, "-cpu", "max", str(program)]
        once, twice = (count([*command, calls], PRODUCTS) for calls in ("1", "2"))
    return Row(name, target.isa, compiled.graph.macs(), twice.without(once))


def _build(compiled: Compiled, folder: Path, program: Path) -> None:
    graph, source = compiled.graph, compiled.source
    inputs, outputs = graph.types(graph.inputs), graph.types(graph.outputs)
    text = DRIVER.format(
        symbol=source.symbol,
        arena=max(source.arena_bytes, 1),
        buffers="\n".join([*_buffers("in", inputs), *_buffers("out", outputs)]),
        inputs=", ".join(f"in{n}" for n in range(len(inputs))),
        outputs=", ".join(f"out{n}" for n in range(len(outputs))),
    )
    (folder / "driver.c").write_text(text)
    (folder / "region.c").write_text(source.text)
    files = [str(folder / "driver.c"), str(folder / "region.c")]
    command = [COMPILER, "-O1", "-static", *files, "-lm", "-lpthread", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ToolchainError(
            f"{COMPILER} failed",
            found=done.stderr[-2000:],
            allowed="a program",
            hint="report it with the network",
        )


def _buffers(name: str, types: Sequence[Type]) -> list[str]:
    return [
        f"static char {name}{n}[{of.bytes}] __attribute__((aligned(64)));"
        for n, of in enumerate(types)
    ]


def table(rows: Sequence[Row]) -> Table:
    found = Table(title="Instructions for each multiply-accumulate", title_justify="left")
    for column in ("network", "isa", "MACs", "all", "tiles", "depthwise", "products in tiles"):
        left = column in ("network", "isa")
        found.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        tiles = row.counts.of("tinyai_tile")
        share = tiles.fitting / tiles.instructions if tiles.instructions else 0.0
        figures = (row.per_mac(each) for each in ("", "tinyai_tile", "tinyai_depthwise"))
        cells = (f"{row.macs:,}", *(f"{each:.4f}" for each in figures), f"{share:.1%}")
        found.add_row(row.network, row.isa, *cells)
    return found


def loop_share(target: Target) -> float:
    """The share of products in what a layer of single pixels runs more for more input channels."""
    few, many = (measured("", pointwise(n), target).counts.of("tinyai_tile") for n in (256, 512))
    more = many.without(few)
    return more.fitting / more.instructions


def pointwise(channels: int) -> Graph:
    """A layer of 14 by 14 pixels, as in the middle of MobileNetV1."""
    build = Builder("pointwise")
    weights = np.random.default_rng(0).integers(-127, 128, (64, 1, 1, channels), np.int8)
    data = build.input(Type((1, 14, 14, channels), DType.INT8))
    return build.graph([build.add(Conv2d(Window((1, 1))), [data, build.constant(weights)])])


@click.command()
@click.argument("models", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--isa", "isas", multiple=True, type=click.Choice(ARCHITECTURES[ARCH]))
@click.option("--rounding", type=click.Choice(ROUNDINGS), default="tflite", show_default=True)
def main(models: tuple[Path, ...], isas: tuple[str, ...], rounding: str) -> None:
    """Count the instructions of MODELS, or of the int8 files beside the project."""
    from tinyai.frontends.relay.whole import network_of

    rows = []
    targets = [Target(isa=isa, arch=ARCH, rounding=rounding) for isa in isas or ARCHITECTURES[ARCH]]
    for path in models or [MODELS / f"{name}.tflite" for name in NETWORKS]:
        rows += [measured(path.stem, network_of(path, each).graph, each) for each in targets]
    console = Console(width=100)
    console.print(table(rows))
    for target in targets:
        share = loop_share(target)
        console.print(f"{target.isa}: {share:.1%} of the loop over input channels are products")


if __name__ == "__main__":
    main()
