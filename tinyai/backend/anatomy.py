"""Compiled -> what a page shows of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tinyai.backend.pipeline import Compiled
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.plan import Space
from tinyai.ir import Node, QParams, format_steps
from tinyai.ops import Reshape
from tinyai.report.anatomy import Anatomy, LayerFacts, Serving, TensorFacts

_UNQUANTIZED = QParams((), 0)


def anatomy_of(compiled: Compiled, states: int = 0) -> Anatomy:
    """The layers of a region and where its tensors live; its last ``states`` inputs are states."""
    names = _names(compiled.graph, states)
    tensors = (*_tensors(compiled, names), *_scratch(compiled))
    outputs = tuple(names[each] for each in compiled.graph.outputs)
    return Anatomy(tuple(_layers(compiled, names)), tensors, outputs)


def _names(graph: Lowered, states: int) -> dict[str, str]:
    """What tensors are called, constants left out: by the numbers of inputs and layers."""
    own = len(graph.inputs) - states
    names = {name: f"input {i}" for i, name in enumerate(graph.inputs[:own])}
    names |= {name: f"state {i}" for i, name in enumerate(graph.inputs[own:])}
    return names | {node.output: f"result {i}" for i, node in enumerate(graph.nodes)}


def _layers(compiled: Compiled, names: Mapping[str, str]) -> Iterator[LayerFacts]:
    graph, variants = compiled.graph, compiled.source.variants

    def shown(tensor: str) -> str:
        number = graph.number(tensor)
        return names.get(tensor) or str(graph.type(tensor) if number is None else number.item())

    for number, node in enumerate(graph.nodes):
        served = {isa.name: rows[number] for isa, rows in variants.items()}
        tensor = graph.tensors[node.output]
        yield LayerFacts(
            number,
            node.op.name,
            str(node.op),
            format_steps(node.epilogue, shown),
            node.sources,
            tuple(names[each] for each in node.reads() if each in names),
            str(tensor.type),
            node.op.macs(*graph.types(node.inputs)),
            sum(row.constant_bytes for row in served.values()),
            tuple(
                Serving(
                    isa, row.kernel, row.slower, row.math, row.call, row.function, row.functions
                )
                for isa, row in served.items()
            ),
            str(graph.schedules.get(node.output, "")),
            str(tensor.stored or ""),
        )


def _tensors(compiled: Compiled, names: Mapping[str, str]) -> Iterator[TensorFacts]:
    """Inputs and the results of the layers."""
    graph, plan = compiled.graph, compiled.plan
    first = {node.output: number for number, node in enumerate(graph.nodes)}
    last = {name: number for number, node in enumerate(graph.nodes) for name in node.reads()}
    last |= dict.fromkeys(graph.outputs, len(graph.nodes))
    for name, shown in names.items():
        place, stored = plan.locations[name], graph.stored(name)
        quant = graph.tensors[name].quant or _UNQUANTIZED
        made = first.get(name, -1)
        facts = TensorFacts(
            shown,
            str(stored.type),
            place.space.value,
            place.index if place.space is Space.ARENA else place.offset,
            stored.bytes,
            made,
            last.get(name, made),
            quant.scale,
            quant.zero_point if quant.scale else None,
            quant.axis,
            str(stored) if stored.border else "",
        )
        yield _sharing(compiled, names, name, facts) if made >= 0 else facts


def _sharing(
    compiled: Compiled, names: Mapping[str, str], name: str, facts: TensorFacts
) -> TensorFacts:
    """The facts of a result, with the tensor whose memory it takes over."""
    graph, locations = compiled.graph, compiled.plan.locations
    node: Node = graph.makers[name]
    if subview := graph.stored(name).subview:
        return replace(facts, shares=names[subview.whole], how="part")
    for read in node.reads():
        subview = graph.stored(read).subview
        own_part = subview is not None and subview.whole == name
        if read in names and locations[read] == locations[name] and not own_part:
            how = "alias" if isinstance(node.op, Reshape) else "in place"
            return replace(facts, shares=names[read], how=how)
    return facts


def _scratch(compiled: Compiled) -> Iterator[TensorFacts]:
    """The working memory of layers."""
    plan = compiled.plan
    for at, node in enumerate(compiled.graph.nodes):
        if (offset := plan.scratch.get(node.output)) is not None:
            size = plan.scratch_bytes[node.output]
            yield TensorFacts(f"scratch of {at}", "scratch", "arena", offset, size, at, at)
