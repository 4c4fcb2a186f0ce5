"""`make mcu`: C packages on microcontrollers that QEMU plays, and the tables of what they take.

Each network becomes a C package, which is compiled for each machine, run there, and compared with
what it should compute. Instructions of one call, bytes of code and stack go into the tables of
docs/microcontrollers.md. The exit code is 1 where a package does not compute what it should.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.mcu.machines import MACHINES, Machine, Measured, measure
from benchmarks.workloads import ROOT, write_whole
from tinyai.errors import EnvironmentProblem, OptionError, TinyAIError
from tinyai.package import Package, emit_c
from tinyai.target import Target

MODELS = ROOT.parent / "shared" / "models"
PAGE = ROOT / "docs" / "microcontrollers.md"
LEVELS = ("-O2", "-Os")
TARGET = Target(isa="scalar", rounding="tflite")
# Functions are named of which one call spends as much on its instructions.
SHARE = 0.04
_BEGIN, _END = "<!-- begin: written by make mcu -->", "<!-- end: written by make mcu -->"


@dataclass(frozen=True)
class Network:
    """A TFLite file of the folder of models, and how it is called here. ``ends="int8"`` leaves out
    the floats that it begins and ends with."""

    name: str
    file: str
    ends: str = "model"


NETWORKS = (
    Network("ad", "ad01_int8"),
    Network("kws", "kws_ref_model"),
    Network("resnet8", "pretrainedResnet_quant"),
    Network("vww", "vww_96_int8"),
    Network("mcunet_vww", "mcunet_vww", "int8"),
)


@dataclass(frozen=True)
class Row:
    """A network on a machine, measured at each of the levels."""

    network: str
    machine: str
    measured: tuple[Measured, ...]


def package(network: Network, folder: Path) -> Package:
    """Write the package of a network into a folder."""
    path = MODELS / f"{network.file}.tflite"
    if not path.exists():
        raise OptionError(
            f"model of {network.name}",
            found=f"no {path.name} in {path.parent}",
            allowed="the folder of models beside the project",
        )
    return emit_c(path, folder, TARGET, name=network.name, ends=network.ends)


def rows(network: Network, folder: Path, machines: Iterable[Machine]) -> Iterator[Row]:
    """What the package in a folder takes on machines."""
    for machine in machines:
        found = (measure(machine, folder, network.name, level) for level in LEVELS)
        yield Row(network.name, machine.name, tuple(found))


# --- The page ------------------------------------------------------------------------------------


def tools() -> list[str]:
    """The compilers and emulators that figures depend on, with their versions."""
    commands = {name for each in MACHINES for name in (each.compiler, each.emulator[0])}
    return [f"{name} {_version(name)}" for name in sorted(commands)]


def _version(command: str) -> str:
    """Of a compiler all, of QEMU what changes its machines."""
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    pattern = r"\) (\d+\.\d+\.\d+)" if command.endswith("gcc") else r"version (\d+\.\d+)"
    found = re.search(pattern, said.stdout)
    return found.group(1) if found else "of an unknown version"


def tables(packages: Sequence[Package], measured: Sequence[Row]) -> str:
    """The text between the page's markers."""
    blocks = [
        f"Made with {', '.join(tools())}.",
        _table("network | MACs | weights | arena | input | output", map(_package_cells, packages)),
        _table(
            "network | machine | instructions, -O2 | -Os | a MAC, -O2 | -Os | code, -O2 | -Os "
            "| stack, -O2 | -Os",
            (cells(row, macs) for row in measured for macs in [_macs(packages, row.network)]),
        ),
        f"Where the instructions of {MACHINES[0].name} go, compiled with {LEVELS[0]}:",
        _table(
            "network | functions with their shares",
            ((row.network, _shares(row)) for row in measured if row.machine == MACHINES[0].name),
        ),
    ]
    return "\n\n".join(blocks)


def _package_cells(of: Package) -> tuple[str, ...]:
    report = of.report
    sizes = (report.weight_bytes, report.arena_bytes, *(p.bytes for p in report.inputs))
    sizes += tuple(p.bytes for p in report.outputs)
    return (report.name, *(f"{size:,}" for size in (report.macs, *sizes)))


def _macs(packages: Sequence[Package], network: str) -> int:
    return next(each.report.macs for each in packages if each.report.name == network)


def cells(row: Row, macs: int) -> tuple[str, ...]:
    """A line of the table of instructions, code and stack."""
    counts = [each.counts.instructions for each in row.measured]
    return (
        row.network,
        row.machine,
        *(f"{count:,}" for count in counts),
        *(f"{count / macs:.2f}" for count in counts),
        *(f"{each.sizes[row.network].text:,}" for each in row.measured),
        *(f"{each.stack:,}" for each in row.measured),
    )


def _shares(row: Row) -> str:
    counts = row.measured[0].counts
    most = sorted(counts.functions, key=lambda each: -each.instructions)
    shares = ((each.name, each.instructions / counts.instructions) for each in most)
    return ", ".join(f"`{name}` {share:.0%}" for name, share in shares if share >= SHARE)


def _table(heads: str, lines: Iterable[Iterable[str]]) -> str:
    columns = heads.split(" | ")
    rule = [
        "---" if name in ("network", "machine") or "functions" in name else "---:"
        for name in columns
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *lines))


def page_with(page: str, text: str) -> str:
    """The page with other text between its markers."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{text}\n{_END}{after}"


# --- The command ---------------------------------------------------------------------------------


@click.command(help=__doc__.split("\n")[0])
@click.argument("names", nargs=-1, type=click.Choice([each.name for each in NETWORKS]))
def main(names: Sequence[str]) -> None:
    """With NAMES of networks their rows are printed, and the page is left as it is."""
    chosen = [each for each in NETWORKS if not names or each.name in names]
    try:
        lacking = sorted({name for each in MACHINES for name in each.missing()})
        if lacking:
            raise EnvironmentProblem(
                "microcontrollers cannot be played",
                found=f"no {', no '.join(lacking)}",
                allowed="the compilers and QEMU for Cortex-M and RISC-V",
                hint="Debian: apt install gcc-arm-none-eabi libnewlib-arm-none-eabi "
                "gcc-riscv64-unknown-elf qemu-system-arm qemu-system-misc",
            )
        packages, measured = _measured(chosen)
        if not names:
            write_whole(PAGE, page_with(PAGE.read_text(), tables(packages, measured)))
            print(f"wrote {PAGE.relative_to(ROOT)}")
    except TinyAIError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _measured(networks: Sequence[Network]) -> tuple[list[Package], list[Row]]:
    packages, measured = [], []
    for network in networks:
        with tempfile.TemporaryDirectory(prefix="tinyai-") as name:
            packages.append(package(network, Path(name)))
            for row in rows(network, Path(name), MACHINES):
                measured.append(row)
                print(" | ".join(cells(row, packages[-1].report.macs)), flush=True)
    return packages, measured


if __name__ == "__main__":
    main()
