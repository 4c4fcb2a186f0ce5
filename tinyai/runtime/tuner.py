"""Choose how layers are cut up by measuring: every schedule that is worth a try, layer by layer.

The candidates of a layer stand side by side in one graph, as nodes that read the same input. Each
run of its C computes all of them, one after the other, so that a change of the clock meets them
alike; medians of many runs count. Before anything is timed their results are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from tinyai.backend import Compiled, lower, prepare, with_useful_threads, write
from tinyai.codegen.isa import best_of_this_machine
from tinyai.codegen.kernels import Kernel, choose_kernels
from tinyai.codegen.schedules import candidates_of, layer_key, read_tuning, write_tuning
from tinyai.codegen.shapes.schedule import Schedule
from tinyai.doctor import cpu_name
from tinyai.errors import OptionError, TinyAIError
from tinyai.ir import Graph, Node
from tinyai.runtime.layers import run_timed
from tinyai.runtime.runner import load
from tinyai.runtime.toolchain import Toolchain
from tinyai.safe_text import safe
from tinyai.target import Target

# So many candidates are measured at most, the first ones.
MOST = 32
# A schedule that is not that much faster than the cost model's choice is noise.
FASTER = 0.98
FEWEST_RUNS, MOST_RUNS = 15, 20_000

Track = Callable[[Sequence["TunableLayer"]], Iterable["TunableLayer"]]


@dataclass(frozen=True)
class TunableLayer:
    """A node with a choice of schedules, its graph, which is ready for code generation, and the key
    of its layer in tuning files."""

    key: str
    graph: Graph
    node: Node
    target: Target


@dataclass(frozen=True)
class MeasuredLayer:
    """The schedules of a layer with the medians of their times in microseconds, the cost model's
    choice first; ``chosen`` is the place of the best."""

    key: str
    sources: tuple[str, ...]
    schedules: tuple[Schedule, ...]
    microseconds: tuple[float, ...]

    @property
    def chosen(self) -> int:
        best = int(np.argmin(self.microseconds))
        return best if self.microseconds[best] < FASTER * self.microseconds[0] else 0


def tune_layers(
    graphs: Iterable[tuple[Graph, Target]],
    file: Path,
    *,
    seconds: float = 0.5,
    kernels: Sequence[Kernel] = (),
    toolchain: Toolchain | None = None,
    track: Track = iter,
) -> tuple[MeasuredLayer, ...]:
    """Measure the distinct layers of ``graphs`` that have a choice, each for about ``seconds`` (of
    running, without compiling), and write ``file`` after each. Layers that are in it already are
    left out, and those of ``kernels``, which go before the kernel table's. ``track`` is passed the
    layers, to show how far it is.

    Raises ``OptionError`` for bad ``seconds`` and where the file is no tuning file, is of another
    machine or cannot be written, ``ToolchainError`` where the compiler fails, and ``TinyAIError``
    where two schedules of a layer compute different results.
    """
    if not seconds >= 0:  # so that a NaN is refused
        raise OptionError(
            "seconds", found=seconds, allowed="0 and more", hint="--seconds 0.5 is the default"
        )
    graphs = list(graphs)
    isas = {_isa(target) for _, target in graphs} or {best_of_this_machine()}
    machine = ", ".join((cpu_name(), *sorted(isas)))
    tuning = read_tuning(file, machine) if file.exists() else {}
    layers = {
        layer.key: layer for graph, target in graphs for layer in layers_of(graph, target, kernels)
    }
    measured = []
    _write(file, tuning, machine)
    for layer in track([layer for key, layer in layers.items() if key not in tuning]):
        found = measure(layer, seconds, toolchain or Toolchain())
        tuning[layer.key] = found.schedules[found.chosen]
        _write(file, tuning, machine)
        measured.append(found)
    return tuple(measured)


def _write(file: Path, tuning: dict[str, Schedule], machine: str) -> None:
    try:
        write_tuning(file, tuning, machine)
    except OSError as error:
        raise OptionError("tuning file", found=error, allowed="a file to write") from None


def layers_of(graph: Graph, target: Target, kernels: Sequence[Kernel] = ()) -> list[TunableLayer]:
    """The layers that have a choice of schedules and are none of ``kernels``. Of a file for every
    machine this machine's variant is measured."""
    target = replace(target, isa=_isa(target), tuning="")
    graph = prepare(graph, target)
    target = with_useful_threads(graph, target)
    lowered = choose_kernels(graph, target, kernels)
    return [
        TunableLayer(layer_key(graph, node, lowered.threads), graph, node, target)
        for node in graph.nodes
        if lowered.has_choice(node)
    ]


def _isa(target: Target) -> str:
    isa = target.here().isa
    return best_of_this_machine() if isa in ("auto", "native") else isa


def candidates(layer: TunableLayer) -> tuple[Schedule, ...]:
    """The schedules of a layer that are measured, the cheapest by the cost model first."""
    alone = choose_kernels(replace(layer.graph, nodes=(layer.node,)), layer.target)
    return tuple(itertools.islice(candidates_of(alone, layer.node), MOST))


def measure(layer: TunableLayer, seconds: float, toolchain: Toolchain) -> MeasuredLayer:
    """Times of a layer's candidates, when all have computed the same."""
    schedules = candidates(layer)
    _compare(layer, schedules, toolchain)
    # Tensors that nobody reads share a place. The last node's is the caller's: it is not timed.
    compiled = side_by_side(layer, (*schedules, schedules[0]), outputs=1)
    library = load(compiled.source.text, toolchain)
    first, _ = run_timed(compiled, library, 1)
    once = (first[0, -1] - first[0, 0]) / 1e9
    runs = int(np.clip(seconds / max(once, 1e-9), FEWEST_RUNS, MOST_RUNS))
    times, _ = run_timed(compiled, library, runs)
    medians = np.median(np.diff(times, axis=1), axis=0)[:-1] / 1e3
    return MeasuredLayer(layer.key, layer.node.sources, schedules, tuple(map(float, medians)))


def _compare(layer: TunableLayer, schedules: tuple[Schedule, ...], toolchain: Toolchain) -> None:
    compiled = side_by_side(layer, schedules, outputs=len(schedules))
    _, results = run_timed(compiled, load(compiled.source.text, toolchain), 1)
    for schedule, result in zip(schedules, results, strict=True):
        if not np.array_equal(result, results[0]):
            raise TinyAIError(
                f"results of {layer.key}",
                found=f"{schedule} and {schedules[0]} differ",
                allowed="the same result by every schedule",
                hint="another C compiler",
            )


def side_by_side(layer: TunableLayer, schedules: Sequence[Schedule], *, outputs: int) -> Compiled:
    """Code that computes the layer once for each schedule and returns the last ``outputs``
    results, with the entry "traced"."""
    graph, node = layer.graph, layer.node
    reads = node.reads()
    names = [f"result{i}" for i in range(len(schedules))]
    tensors = {name: graph.tensors[name] for name in reads}
    tensors |= {name: replace(graph.tensors[node.output], name=name) for name in names}
    several = Graph(
        "candidates",
        tuple(name for name in reads if name not in graph.constants),
        tuple(names[-outputs:]),
        tuple(replace(node, output=name) for name in names),
        tensors,
        {name: graph.constants[name] for name in reads if name in graph.constants},
    )
    by_output = dict(zip(names, schedules, strict=True))
    return write(lower(several, layer.target, by_output), layer.target, abi="traced")


def tuning_table(measured: Sequence[MeasuredLayer]) -> Table:
    """What was measured, for a terminal: a row a layer."""
    table = Table(title="layers that were measured", title_justify="left")
    columns: tuple[tuple[str, Any], ...] = (
        ("layer", "left"),
        ("schedule", "left"),
        ("candidates", "right"),
        ("µs", "right"),
        ("cost model's", "right"),
        ("ratio", "right"),
    )
    for name, justify in columns:
        table.add_column(name, justify=justify, overflow="fold")
    for each in measured:
        best, model = each.microseconds[each.chosen], each.microseconds[0]
        cells = (
            safe((each.sources or (each.key,))[0], 60),
            str(each.schedules[each.chosen]),
            str(len(each.schedules)),
            f"{best:.2f}",
            f"{model:.2f}",
            f"{best / model if model else 1:.3f}",
        )
        table.add_row(*map(Text, cells))
    return table
