"""How layers are cut up: by their kernels' cost models, or as a tuning file says.

A tuning file is JSON: ``version``, ``machine`` (where it was measured, for the reader), and
``layers``, a schedule for each by what the layer is. Layers of other networks may be in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tinyai.codegen.lowered import Lowered, Prepared
from tinyai.codegen.shapes.schedule import Schedule, Tile
from tinyai.errors import OptionError
from tinyai.files import written_whole
from tinyai.ir import Graph, Node
from tinyai.ops.contraction import Contraction
from tinyai.target import instruction_set_named

VERSION = 1
# Types of what a schedule says beside its panels.
KINDS = ((int,), (bool,), (bool, type(None)), (int, type(None)))
# Of a layer, by its ``layer_key``.
Tuning = Mapping[str, Schedule]


def with_schedules(
    graph: Lowered, tuning: Tuning, schedules: Mapping[str, Schedule] | None = None
) -> Lowered:
    """The graph with a schedule for each node and variant whose kernel leaves a choice: that of
    ``schedules``, by the node's output, that of ``tuning``, or the cheapest candidate. Variants
    whose machines are equal get the same.

    Raises ``OptionError`` where a schedule does not fit its node.
    """
    given, variants = schedules or {}, {}
    for isa, rows in graph.variants.items():
        variants[isa] = dict(rows)
        for node in graph.nodes:
            choice = rows[node.output]
            if choice.prepared.scheduled:
                key = layer_key(graph, node, graph.threads)
                known = given.get(node.output) or tuning.get(key)
                prepared = _cut(graph, choice.prepared, key, known)
                variants[isa][node.output] = replace(choice, prepared=prepared)
    return replace(graph, variants=variants)


def _cut(graph: Lowered, kernel: Prepared, key: str, known: Schedule | None) -> Prepared:
    """A kernel with a schedule that is known, or the cheapest."""
    cheapest = next(iter(kernel.candidates(graph)))
    schedule = known or cheapest
    rejection = kernel.schedule_rejection(graph, schedule)
    if rejection is not None:
        raise OptionError(
            f"schedule of {key}",
            found=rejection,
            allowed=f"for example {cheapest}",
            hint="measure the layer again: remove it from the file, and run tinyai tune",
        )
    return replace(kernel, schedule=schedule)


def candidates_of(graph: Lowered, node: Node) -> Iterator[Schedule]:
    """The schedules that a node with a choice may have, the cheapest first. The variants of a file
    share the packed weights, so what serves one serves all."""
    kernel = next(each for each in graph.kernels(node) if each.scheduled)
    return iter(kernel.candidates(graph))


def layer_key(graph: Graph, node: Node, threads: int) -> str:
    """What a layer is, as far as its speed depends on it."""
    op = node.op
    if isinstance(op, Contraction):
        op = op.with_zero_point(0)
    inputs = ", ".join(map(str, graph.types(node.inputs)))
    steps = "".join(f" >> {step.name}" for step in node.epilogue)
    return f"{op}: {inputs} -> {graph.type(node.output)}{steps}; threads {threads}"


def read_tuning(file: str | os.PathLike[str], machine: str | None = None) -> dict[str, Schedule]:
    """The schedules of a tuning file. Raises ``OptionError`` for a file that is no such, or was
    not measured on ``machine`` where one is named."""

    def fail(found: object, allowed: str) -> OptionError:
        hint = "python -m tinyai tune MODEL --output FILE writes one"
        return OptionError(f"tuning file {file}", found=found, allowed=allowed, hint=hint)

    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise fail(error, "a readable file of JSON") from None
    if not isinstance(content, dict) or content.get("version") != VERSION:
        version = content.get("version") if isinstance(content, dict) else type(content).__name__
        raise fail(f"version {version}", f"version {VERSION}")
    if machine is not None and _named(machine) != _named(content.get("machine")):
        raise fail(f"machine {content.get('machine')!r}", f"{machine!r}: measure into another file")
    layers = content.get("layers")
    if not isinstance(layers, dict):
        raise fail(f"layers: {layers!r}", "an object of layers")
    schedules = {}
    for key, entry in layers.items():
        try:
            schedules[key] = _parsed(entry)
        except (AttributeError, KeyError, TypeError, ValueError):
            example = _entry(Schedule((Tile(6, 64), Tile(8, 32)), 192, unrolled=False))
            raise fail(f"{key}: {entry!r}", f"as {json.dumps(example)}") from None
    return schedules


def _named(machine: object) -> set[str]:
    """What a tuning file says of a machine: its CPU, and instruction sets by today's names."""
    return set(map(instruction_set_named, str(machine).split(", ")))


def write_tuning(file: Path, tuning: Tuning, machine: str) -> None:
    """Write a tuning file, whole or not at all; the same text for the same arguments."""
    layers = {key: _entry(tuning[key]) for key in sorted(tuning)}
    content = {"version": VERSION, "machine": machine, "layers": layers}
    with written_whole(file) as beside:
        beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _entry(schedule: Schedule) -> dict[str, Any]:
    panels = " ".join(map(str, schedule.panels))
    entry = {"panels": panels, "stripe": schedule.stripe, "unrolled": schedule.unrolled}
    others = {"by_panels": schedule.by_panels, "together": schedule.together}
    return entry | {name: value for name, value in others.items() if value is not None}


def _parsed(entry: Any) -> Schedule:
    """Raises one of Python's errors for what is no schedule."""
    tiles = [[int(number) for number in tile.split("x")] for tile in entry["panels"].split()]
    found = Schedule(**{**entry, "panels": tuple(Tile(*numbers) for numbers in tiles)})
    kinds = (type(found.stripe), type(found.unrolled), type(found.by_panels), type(found.together))
    if not all(kind in may for kind, may in zip(kinds, KINDS, strict=True)):
        raise ValueError(entry)
    return found
