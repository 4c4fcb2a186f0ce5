"""A minimum cut, by augmenting shortest paths (Edmonds and Karp)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable

Edge = tuple[Hashable, Hashable, int]


def min_cut(edges: Iterable[Edge], source: Hashable, sink: Hashable) -> set[Hashable]:
    """The source's side of a cut of least capacity; of several, the one with the smallest side.

    ``edges`` hold (from, to, capacity); what leads from the one side to the other is cut.
    """
    room: dict[Hashable, dict[Hashable, int]] = defaultdict(lambda: defaultdict(int))
    for start, end, capacity in edges:
        room[start][end] += capacity
        room[end][start] += 0  # flow may be taken back
    while True:
        before = _reached(room, source)
        if sink not in before:
            return set(before)
        path = [sink]
        while path[-1] != source:
            path.append(before[path[-1]])
        steps = list(zip(path[1:], path, strict=False))
        flow = min(room[start][end] for start, end in steps)
        for start, end in steps:
            room[start][end] -= flow
            room[end][start] += flow


def _reached(
    room: dict[Hashable, dict[Hashable, int]], source: Hashable
) -> dict[Hashable, Hashable]:
    """The vertices that edges with room lead to, each with the vertex before it on a shortest
    path."""
    before: dict[Hashable, Hashable] = {source: source}
    queue = deque([source])
    while queue:
        start = queue.popleft()
        for end, capacity in room[start].items():
            if capacity > 0 and end not in before:
                before[end] = start
                queue.append(end)
    return before
