"""What programs have in common is stored once: constants by their contents, functions by theirs.

A program's C then names a function's text with ``#include``; the text is named data, as constants
are. So that equal weights are equal constants too, programs that come later pack them as the first
one did.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tinyai.backend.named_data import NamedData, NamedDataStore
from tinyai.codegen.constants import with_declarations
from tinyai.codegen.emit import CSource
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.schedules import candidates_of
from tinyai.codegen.shapes.schedule import Schedule
from tinyai.ir import Node

# What is shorter is repeated: a line would name it.
_WORTH = 200
_INCLUDE = re.compile(r'^#include "(tinyai_code_[0-9a-f]+\.h)"\n', re.MULTILINE)
# Constants begin at a line of memory.
ALIGNMENT = 64


@dataclass
class Packing:
    """How weights were packed, by what they are: programs of one store agree on it."""

    schedules: dict[bytes, Schedule] = field(default_factory=dict)

    def agreed(self, graph: Lowered) -> dict[str, Schedule]:
        """Schedules for the nodes whose weights are known from another program and would be packed
        otherwise; those of new weights are noted."""
        found: dict[str, Schedule] = {}
        for node in filter(graph.has_choice, graph.nodes):
            own = graph.schedules[node.output]
            known = self.schedules.setdefault(_weights(graph, node), own)
            if _layout(own) != _layout(known):
                schedule = _like(graph, node, known)
                found |= {node.output: schedule} if schedule else {}
        return found


def _weights(graph: Lowered, node: Node) -> bytes:
    """What a node's weights are, and what else its kernels pack by: the instruction sets of the
    file, and the types."""
    weight = graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    data = b"" if weight is None else np.ascontiguousarray(weight).tobytes()
    sets = ",".join(isa.name for isa in graph.variants)
    facts = f"{node.op.name} {graph.type(node.inputs[-1])} {sets} "
    return hashlib.sha256(facts.encode() + data).digest()


def _layout(schedule: Schedule) -> tuple[object, ...]:
    """What of a schedule the order of packed weights depends on."""
    return *(tile.channels for tile in schedule.panels), schedule.together


def _like(graph: Lowered, node: Node, known: Schedule) -> Schedule | None:
    """The cheapest schedule of a node that packs as ``known``; else ``known`` itself, in stripes
    that the node has; None where it does not fit."""
    cheapest = next((c for c in candidates_of(graph, node) if _layout(c) == _layout(known)), None)
    if cheapest is not None:
        return cheapest
    stripes = (known.stripe, graph.schedules[node.output].stripe)
    tries = (
        replace(known, stripe=stripe, unrolled=unrolled, by_panels=None)
        for stripe in stripes
        for unrolled in (known.unrolled, False)
    )

    def fits(schedule: Schedule) -> bool:
        return all(
            each.schedule_rejection(graph, node, schedule) is None for each in graph.kernels(node)
        )

    return next(filter(fits, tries), None)


def shared_pieces(sources: Sequence[CSource]) -> set[str]:
    """Functions and definitions that more than one program has."""
    found = Counter(piece for source in sources for piece in set(source.pieces))
    return {piece for piece, count in found.items() if count > 1 and len(piece) > _WORTH}


def stored(source: CSource, pieces: set[str]) -> tuple[bytes, NamedData]:
    """A program's C without its constants and without these pieces, and both as named data."""
    store, text = NamedDataStore(), source.frame
    for constant in source.constants:
        store.add(constant.name, constant.data, ALIGNMENT)
    for piece in dict.fromkeys(source.pieces):
        if piece in pieces:
            key = f"tinyai_code_{hashlib.sha256(piece.encode()).hexdigest()[:32]}.h"
            store.add(key, piece.encode())
            text = text.replace(piece, f'#include "{key}"\n')
    return with_declarations(text).encode(), store.output()


def with_pieces(text: str, data: NamedData) -> str:
    """C with the pieces that it names. Raises ``KeyError`` for one that there is not."""
    return _INCLUDE.sub(lambda include: data[include[1]].decode(), text)


def is_code(key: str) -> bool:
    """Whether named data is a piece of C, not a constant."""
    return key.endswith(".h")


def saved_bytes(stores: Sequence[NamedData], together: NamedData) -> int:
    """How much less data that is merged takes than if each program had its own."""
    return sum(each.size for each in stores) - together.size
