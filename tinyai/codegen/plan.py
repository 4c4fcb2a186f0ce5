"""Where every tensor lives: an arena planned at code-generation time.

Tensors share the arena by lifetime. A reshape is the same memory under another type; a node may
write over an operand that it reads last, element by element; a tensor that is a subview of another
one is a piece of its memory. Graph inputs and outputs live with the caller, or in the arena as
well.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from tinyai.codegen.lowered import Lowered
from tinyai.ir import Node
from tinyai.ops import Elementwise, Reshape


class Space(enum.Enum):
    """The memory that a tensor lives in: the caller's, the constants of the file, or the arena."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    ARENA = "arena"


@dataclass(frozen=True)
class Location:
    """``index`` is the number of the input or output, or the byte offset in the arena; ``offset``
    is in bytes from the start of an output."""

    space: Space
    index: int = 0
    offset: int = 0


@dataclass(frozen=True)
class LiveBytes:
    """Bytes of the arena that are in use from node ``first`` to node ``last``, both included; from
    -1 on where they are in use before the first one."""

    name: str
    bytes: int
    first: int
    last: int

    def meets(self, other: LiveBytes) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class MemoryPlan:
    """``locations`` of every tensor, ``scratch`` offsets and ``scratch_bytes`` by a node's output,
    sizes in bytes.

    ``lower_bound`` is the largest sum of blocks that live at once: no plan can be smaller.
    """

    locations: Mapping[str, Location]
    scratch: Mapping[str, int]
    arena_bytes: int
    lower_bound: int
    scratch_bytes: Mapping[str, int] = field(default_factory=dict)


def plan_memory(graph: Lowered, scratch_bytes: Mapping[str, int]) -> MemoryPlan:
    """Plan for ``graph``; ``scratch_bytes`` holds what a node's kernel needs, by its output."""
    homes, locations, blocks = _blocks(graph, scratch_bytes)
    offsets, size = place(blocks)
    for name, home in homes.items():
        if name not in locations and home.root in offsets:
            locations[name] = Location(Space.ARENA, offsets[home.root] + home.offset)
    scratch = {name: offsets[_scratch_name(name)] for name, size in scratch_bytes.items() if size}
    return MemoryPlan(locations, scratch, size, lower_bound(blocks), scratch_bytes)


def least_arena(graph: Lowered, scratch_bytes: Mapping[str, int]) -> int:
    """The lower bound of ``plan_memory``, in bytes, without a plan."""
    return lower_bound(_blocks(graph, scratch_bytes)[-1])


@dataclass(frozen=True)
class _Home:
    """Whose memory a tensor uses: its own, or that of ``root``, so many bytes from its start."""

    root: str
    offset: int = 0


def _blocks(
    graph: Lowered, scratch_bytes: Mapping[str, int]
) -> tuple[dict[str, _Home], dict[str, Location], list[LiveBytes]]:
    homes = _share(graph)
    locations = _outside(graph, homes)
    blocks = _tensor_blocks(graph, homes, locations)
    blocks += [
        LiveBytes(
            _scratch_name(node.output), _aligned(graph, scratch_bytes[node.output]), index, index
        )
        for index, node in enumerate(graph.nodes)
        if scratch_bytes.get(node.output)
    ]
    return homes, locations, blocks


def _last_reads(graph: Lowered) -> dict[str, int]:
    """Index of the last node that reads a tensor; outputs are read after the last node."""
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.reads()}
    return last | dict.fromkeys(graph.outputs, len(graph.nodes))


def _share(graph: Lowered) -> dict[str, _Home]:
    """The home of each tensor: the whole of which it is a subview, or its own or an earlier one."""
    homes = {name: _Home(name) for name in graph.tensors}
    last = _last_reads(graph)
    group_last = dict(last)
    for name, stored in graph.storage.items():
        if subview := stored.subview:
            homes[name] = _Home(subview.whole, subview.offset)
            group_last[subview.whole] = max(group_last.get(subview.whole, 0), last.get(name, 0))
    for index, node in enumerate(graph.nodes):
        host = _host(graph, node, homes, group_last, index)
        if host is not None:
            homes[node.output] = homes[host]
            ends = (group_last.get(homes[host].root, index), last.get(node.output, index))
            group_last[homes[host].root] = max(ends)
    return homes


def _host(
    graph: Lowered,
    node: Node,
    homes: Mapping[str, _Home],
    group_last: Mapping[str, int],
    index: int,
) -> str | None:
    """A tensor that the node reads whose memory its output may take."""
    output = graph.stored(node.output)
    if output.subview:
        return None
    if isinstance(node.op, Reshape):
        return _host_of_reshape(graph, node, homes)
    if node.output in graph.outputs or output.border:
        return None
    candidates = [step.operand.tensor for step in node.epilogue if step.operand]
    if isinstance(node.op, Elementwise):
        candidates = [*node.inputs, *candidates]
    kept = {*graph.inputs, *graph.outputs, *graph.constants}
    if not isinstance(node.op, Elementwise):  # a kernel reads its inputs in windows
        kept |= {homes[name].root for name in node.inputs}
    for name in candidates:
        if (
            graph.type(name) == output.type
            and graph.stored(name).plain
            and homes[name].root not in kept
            and group_last[homes[name].root] <= index
        ):
            return name
    return None


def _host_of_reshape(graph: Lowered, node: Node, homes: Mapping[str, _Home]) -> str | None:
    (source,) = node.inputs
    root = homes[source].root
    fixed = set(graph.outputs)
    if node.output in graph.outputs:
        whole = graph.type(root).bytes == graph.type(source).bytes
        fixed |= set(graph.inputs) if whole else {root}
    return None if root in fixed or source in graph.constants else source


def _outside(graph: Lowered, homes: dict[str, _Home]) -> dict[str, Location]:
    """Locations of what is not in the arena. A tensor whose memory a graph output shares lives
    with that output from the start; in the arena, where the graph's outputs do."""
    locations = {name: Location(Space.CONSTANT) for name in graph.constants}
    root_space: dict[str, Location] = {
        name: Location(Space.INPUT, i) for i, name in enumerate(graph.inputs)
    }
    for i, name in enumerate(graph.outputs):
        if homes[name].root in root_space:  # the memory belongs to someone else: the node copies
            homes[name] = _Home(name)
        root_space[homes[name].root] = Location(Space.OUTPUT, i)
    if graph.ports_in_arena:
        return locations
    for name, home in homes.items():
        if home.root in root_space:
            locations[name] = replace(root_space[home.root], offset=home.offset)
    return locations


def _tensor_blocks(
    graph: Lowered, homes: Mapping[str, _Home], outside: Mapping[str, Location]
) -> list[LiveBytes]:
    last = _last_reads(graph)
    blocks: dict[str, LiveBytes] = {}
    for name in graph.inputs:
        if name not in outside:
            size = _aligned(graph, graph.type(name).bytes)
            blocks[name] = LiveBytes(name, size, -1, last.get(name, -1))
    for index, node in enumerate(graph.nodes):
        if node.output in outside:
            continue
        root, end = homes[node.output].root, last.get(node.output, index)
        size = _aligned(graph, graph.stored(root).bytes)
        block = blocks.get(root, LiveBytes(root, size, index, end))
        blocks[root] = replace(block, last=max(block.last, end))
    return list(blocks.values())


def _scratch_name(output: str) -> str:
    return f"scratch of {output}"


def _aligned(graph: Lowered, size: int) -> int:
    return -(-size // graph.alignment) * graph.alignment


# The name settles ties, so that the order of the blocks does not matter.
ORDERS: tuple[Callable[[LiveBytes], tuple[int | str, ...]], ...] = (
    lambda block: (-block.bytes, block.first, block.last, block.name),
    lambda block: (-block.bytes * (block.last - block.first + 1), block.first, block.name),
    lambda block: (block.first, -block.bytes, block.last, block.name),
    lambda block: (block.first - block.last, -block.bytes, block.first, block.name),
)


ROUNDS = 50


def place(blocks: Iterable[LiveBytes]) -> tuple[dict[str, int], int]:
    """Offsets of the blocks and the size of the arena: the best of greedy placements that begin
    by size, by size times duration, by time and by duration. Never worse than greedy by size."""
    blocks = list(blocks)
    bound = lower_bound(blocks)
    best: tuple[dict[str, int], int] | None = None
    for order in ORDERS:
        for plan in _placements(blocks, order, bound):
            if best is None or plan[1] < best[1]:
                best = plan
            if best[1] == bound:
                return best
    assert best is not None
    return best


def _placements(
    blocks: list[LiveBytes], order: Callable[[LiveBytes], tuple[int | str, ...]], bound: int
) -> Iterator[tuple[dict[str, int], int]]:
    """Greedy placements, each with the blocks first that so far ended above the bound most often
    (D. E. Joslin, D. P. Clements, "Squeaky Wheel Optimization", 1999)."""
    blame = dict.fromkeys((block.name for block in blocks), 0)
    for _ in range(ROUNDS):
        offsets, size = _place_in_order(sorted(blocks, key=lambda b: (-blame[b.name], *order(b))))
        yield offsets, size
        for block in blocks:
            blame[block.name] += offsets[block.name] + block.bytes > bound


def _place_in_order(blocks: Iterable[LiveBytes]) -> tuple[dict[str, int], int]:
    """Each block goes to the lowest offset at which it meets no block placed before."""
    placed: list[tuple[int, LiveBytes]] = []
    for block in blocks:
        offset = 0
        for start, other in sorted(
            ((start, other) for start, other in placed if other.meets(block)),
            key=lambda item: item[0],
        ):
            if offset + block.bytes <= start:
                break
            offset = max(offset, start + other.bytes)
        placed.append((offset, block))
    size = max((offset + block.bytes for offset, block in placed), default=0)
    return {block.name: offset for offset, block in placed}, size


def lower_bound(blocks: Iterable[LiveBytes]) -> int:
    """The largest sum of bytes that live at the same node."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.bytes
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.bytes
    return max(accumulate(changes[at] for at in sorted(changes)), default=0)
