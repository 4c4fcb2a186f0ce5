"""Which tensors are made inside of the concatenation that reads them.

A concatenation copies its inputs into its result. Where the maker of an input can write it to its
place there at once, nothing is left to copy, and the input needs no memory of its own. Along the
outermost axis the place is a stretch of bytes, which every kernel can fill; along an inner one, as
channels in NHWC, rows of it alternate with those of other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tinyai.codegen.lowered import Lowered
from tinyai.codegen.placed import Storage, Subview
from tinyai.codegen.plan import MemoryPlan, least_arena, plan_memory
from tinyai.ops import Concatenate, Reshape


def plan_in_place(graph: Lowered) -> tuple[Lowered, MemoryPlan]:
    """The graph with the places of its tensors' subviews, and its plan.

    The memory of a concatenation lives from its first input on. Where that would make the arena
    larger, the inputs stay apart.
    """
    scratch_bytes = graph.scratch_bytes()
    joined = in_place(graph, scratch_bytes)
    plan = plan_memory(joined, scratch_bytes)
    if plan.arena_bytes > least_arena(graph, scratch_bytes):
        apart = plan_memory(graph, scratch_bytes)
        if plan.arena_bytes > apart.arena_bytes:
            return graph, apart
    return joined, plan


def in_place(graph: Lowered, scratch_bytes: Mapping[str, int]) -> Lowered:
    """The graph with the inputs of each concatenation in their places that can be made there, where
    that does not raise the lower bound of the arena."""
    bound = least_arena(graph, scratch_bytes)
    for node in reversed(graph.nodes):  # the outer ones first: inner ones become subviews of them
        if not isinstance(node.op, Concatenate):
            continue
        # All at once, for one alone may cost more than it saves; else from the last one on, which
        # keep the memory for the shortest time.
        numbers = range(len(node.inputs))
        for chosen in (numbers, *((number,) for number in reversed(numbers))):
            trial, subviews = graph, graph.subviews(node)
            for number in chosen:
                trial = _with_subview(trial, node.inputs[number], subviews[number]) or trial
            least = least_arena(trial, scratch_bytes)
            if least <= bound:
                graph, bound = trial, least
                if chosen == numbers:
                    break
    return graph


def _with_subview(graph: Lowered, name: str, subview: Subview) -> Lowered | None:
    """The graph with the tensor in this place; None where it cannot be."""
    maker = graph.makers.get(name)
    if maker is None or name in graph.outputs or name in graph.storage:
        return None
    stored = Storage(graph.type(name), subview=subview)
    placed = graph.with_storage({name: stored})
    if not stored.dense:
        around = (maker, *graph.readers[name])
        return placed if all(placed.takes(node, name) for node in around) else None
    if not isinstance(maker.op, Reshape):
        return placed
    (source,) = maker.inputs
    return _with_subview(placed, source, replace(subview, strides=graph.type(source).strides))
