"""What programs have in common is stored once: constants by their contents, functions by theirs.

A program's C then names a function's text with ``#include``; the text is named data, as constants
are. So that equal weights are equal constants too, programs that come later pack them as the first
one did.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tinyai.backend.named_data import NamedData, NamedDataStore
from tinyai.c_head import CODE, head_of, is_generated, with_lines
from tinyai.codegen.c import DTYPES
from tinyai.codegen.c_source import CSource, Part, Piece
from tinyai.codegen.constants import APART, ConstantArray
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.schedules import candidates_of
from tinyai.codegen.shapes.schedule import Schedule
from tinyai.ir import Node

# What is shorter is repeated: a line would name it.
_WORTH = 200
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
        return all(each.schedule_rejection(graph, schedule) is None for each in graph.kernels(node))

    return next(filter(fits, tries), None)


def shared_pieces(sources: Sequence[CSource]) -> set[Piece]:
    """Functions and definitions that more than one program has."""
    distinct = ({part for part in each.parts if isinstance(part, Piece)} for each in sources)
    found = Counter(piece for pieces in distinct for piece in pieces)
    return {piece for piece, count in found.items() if count > 1 and len(piece.text) > _WORTH}


def stored(source: CSource, pieces: set[Piece]) -> tuple[bytes, NamedData]:
    """A program's C without its constants and without these pieces, and both as named data."""
    store, parts, apart = NamedDataStore(), list[Part](), dict[str, str]()
    for part in source.parts:
        if isinstance(part, ConstantArray):
            parts += [part.place] if apart else [APART, part.place]
            apart[part.name] = part.c_type
            store.add(part.name, part.data, ALIGNMENT)
        elif isinstance(part, Piece) and part in pieces:
            code = part.text.encode()
            key = f"tinyai_code_{hashlib.sha256(code).hexdigest()[:32]}.h"
            parts.append(_include(key))
            apart[key] = CODE
            store.add(key, code)
        else:
            parts.append(part)
    return source.written(replace(source.head, apart=apart), parts).encode(), store.output()


def whole(text: str, data: NamedData) -> str:
    """C with what lies apart from it in its place; what has no head is whole. Raises ``KeyError``
    for data that there is not, ``ValueError`` for C of an earlier tinyai."""
    head = head_of(text)
    if head is None and is_generated(text[:1024].encode()):
        raise ValueError("C of another version of tinyai")
    if head is None:
        return text
    lines = dict.fromkeys(APART.splitlines(keepends=True), "")
    lines[head.lines[1]] = replace(head, apart={}).lines[1]
    for key, kind in head.apart.items():
        if kind == CODE:
            lines[_include(key)] = data[key].decode()
        else:
            constant = ConstantArray(key, np.frombuffer(data[key], DTYPES[kind].numpy))
            lines[constant.place] = constant.definition
    return with_lines(text, lines)


def _include(key: str) -> str:
    return f'#include "{key}"\n'


def is_code(key: str) -> bool:
    """Whether named data is a piece of C, not a constant."""
    return key.endswith(".h")


def saved_bytes(stores: Sequence[NamedData], together: NamedData) -> int:
    """How much less data that is merged takes than if each program had its own."""
    return sum(each.size for each in stores) - together.size
