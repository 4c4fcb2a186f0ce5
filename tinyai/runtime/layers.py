"""Time layer by layer: the region's C with a clock after every layer, compiled and run."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

from tinyai.backend import Compiled, compile_graph
from tinyai.codegen.isa import runs_here
from tinyai.codegen.kernels import Kernel
from tinyai.errors import OptionError
from tinyai.ir import Array, Graph
from tinyai.ops.gather import index_limits
from tinyai.runtime.runner import aligned_bytes, check_cpu, load, pointers
from tinyai.runtime.toolchain import Toolchain
from tinyai.safe_text import safe
from tinyai.target import Target

# Runs are measured in so many slices, with so many seconds between them: what else a machine does
# may slow down all runs of some milliseconds.
SLICES, PAUSE = 10, 0.05
# A distance of quartiles, as a share of the median, from which on times say little.
_UNSTEADY = 0.25


@dataclass(frozen=True)
class LayerTime:
    """One layer of a region: names in the source model, operator, the median of its times in
    microseconds, multiply-accumulates of one run, bytes that it reads and writes, constants
    included; the row of the kernel table that served on this machine, if it has code at all, and
    why no better one did; and the distance of the quartiles of its times, as a share of the
    median."""

    sources: tuple[str, ...]
    operator: str
    result: str
    microseconds: float
    macs: int
    bytes: int
    kernel: str = ""
    slower: tuple[str, ...] = ()
    spread: float = 0.0

    @property
    def gmacs(self) -> float:
        """Multiply-accumulates a nanosecond."""
        return self.macs / self.microseconds / 1e3 if self.microseconds else 0.0


def time_layers(
    graph: Graph,
    target: str | Target | None = None,
    toolchain: Toolchain | None = None,
    *,
    runs: int = 100,
) -> tuple[LayerTime, ...]:
    """Compile ``graph`` with a clock after every layer and run it ``runs`` times on random input,
    in slices with pauses of half a second in all.

    The clock itself costs some tens of nanoseconds a layer. Raises ``OptionError`` for less than
    one run, ``ToolchainError`` where the compiler fails.
    """
    return timed_layers(graph, target, toolchain, runs=runs)[1]


def timed_layers(
    graph: Graph,
    target: str | Target | None = None,
    toolchain: Toolchain | None = None,
    *,
    runs: int = 100,
    kernels: Sequence[Kernel] = (),
) -> tuple[Compiled, tuple[LayerTime, ...]]:
    """``time_layers``, with what was compiled; ``kernels`` go before the kernel table's."""
    if runs < 1:
        raise OptionError("runs", found=runs, allowed="1 or more")
    compiled = compile_graph(graph, Target.of(target).here(), abi="traced", kernels=kernels)
    library = load(compiled.source.text, toolchain or Toolchain())
    slices = []
    for part in np.array_split(np.arange(runs), min(runs, SLICES)):
        time.sleep(PAUSE)
        slices.append(run_timed(compiled, library, part.size)[0])
    served = compiled.source.variants[runs_here(compiled.source.variants)]
    quartiles = np.percentile(np.diff(np.concatenate(slices), axis=1) / 1e3, (25, 50, 75), axis=0).T
    graph, layers = compiled.graph, []
    for node, (low, median, high), each in zip(graph.nodes, quartiles, served, strict=True):
        touched = sum(graph.type(name).bytes for name in (*node.reads(), node.output))
        layers.append(
            LayerTime(
                node.sources,
                str(node.op),
                str(graph.type(node.output)),
                float(median),
                node.op.macs(*graph.types(node.inputs)),
                touched,
                each.kernel,
                each.slower,
                float((high - low) / median) if median else 0.0,
            )
        )
    return compiled, tuple(layers)


def run_timed(compiled: Compiled, library: ctypes.CDLL, runs: int) -> tuple[Array, list[Array]]:
    """Run a library with the entry "traced" on random input, the same each time.

    Nanoseconds [runs, layers + 1], before the first layer and after each, and the outputs.
    """
    graph = compiled.graph
    inputs = random_inputs(graph)
    outputs = [np.empty(of.shape, of.dtype.numpy) for of in graph.types(graph.outputs)]
    arena = aligned_bytes(compiled.source.arena_bytes)
    entry = getattr(library, compiled.source.symbol)
    entry.restype = ctypes.c_int32
    times = np.zeros((runs + 1, len(graph.nodes) + 1), np.int64)
    for row in times:  # the first run finds cold caches: it does not count
        place = ctypes.c_void_p(row.ctypes.data)
        memory = ctypes.c_void_p(arena.ctypes.data)
        check_cpu(entry(pointers(inputs), pointers(outputs), memory, place))
    return times[1:], outputs


def random_inputs(graph: Graph) -> list[Array]:
    """Input to measure with: the whole range of integers or indices, a few small floats."""
    rng = np.random.default_rng(0)
    inputs = []
    for name, of in zip(graph.inputs, graph.types(graph.inputs), strict=True):
        low, high = (-4, 4) if of.dtype.is_float else index_limits(graph, name) or of.dtype.range
        inputs.append(rng.integers(low, high, of.shape, endpoint=True).astype(of.dtype.numpy))
    return inputs


def times_table(
    region: str, times: Sequence[LayerTime], *, layers: bool = True, peak: float | None = None
) -> Table:
    """A region's times for a terminal: a row a layer, or only their sum. ``peak`` is what the
    processor could do at most, in multiply-accumulates a nanosecond. Under the rows of layers it
    says which could be faster, and why they are not; and where the times are too far apart."""
    table = Table(title=Text(safe(region)), title_justify="left", show_footer=True)
    slower = [
        f"{_name(number, each)}: {safe(reason)}"
        for number, each in enumerate(times if layers else ())
        for reason in each.slower
    ]
    whole, macs = sum(each.microseconds for each in times), sum(each.macs for each in times)
    told = ["slower than such layers can be:", *slower] if slower else []
    apart = sum(each.spread * each.microseconds for each in times) / whole if whole else 0.0
    if apart > _UNSTEADY:
        told.append(
            f"The quartiles of these times are {apart:.0%} of the median apart: the machine is "
            "busy or unsteady. --runs 1000 takes more of them."
        )
    if told:
        table.caption, table.caption_justify = Text("\n".join(told)), "left"
    columns = (
        ("layer", f"{len(times)} layers", "left"),
        ("operator", "", "left"),
        ("result", "", "left"),
        ("µs", f"{whole:.1f}", "right"),
        ("share", "100 %", "right"),
        ("MMAC", f"{macs / 1e6:.3f}", "right"),
        ("GMAC/s", f"{macs / whole / 1e3 if whole else 0:.1f}", "right"),
        ("of peak", _share(macs, whole, peak), "right"),
        ("kB", f"{sum(each.bytes for each in times) / 1e3:.1f}", "right"),
    )
    for name, footer, justify in columns:
        table.add_column(name, Text(footer), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for number, each in enumerate(times if layers else ()):
        cells = (
            _name(number, each),
            safe(each.operator, 60),
            each.result,
            f"{each.microseconds:.2f}",
            f"{100 * each.microseconds / whole if whole else 0:.1f} %",
            f"{each.macs / 1e6:.3f}",
            f"{each.gmacs:.1f}",
            _share(each.macs, each.microseconds, peak),
            f"{each.bytes / 1e3:.1f}",
        )
        table.add_row(*map(Text, cells))
    return table


def _name(number: int, layer: LayerTime) -> str:
    return safe(layer.sources[0], 60) if layer.sources else f"layer {number}"


def _share(macs: int, microseconds: float, peak: float | None) -> str:
    if not peak or not macs or not microseconds:
        return "–"
    return f"{macs / microseconds / 10 / peak:.0f} %"
