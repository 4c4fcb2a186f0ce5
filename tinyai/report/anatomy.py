"""What a region is made of: its layers, and where its tensors live. Frozen values, for the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Serving:
    """The row of the kernel table that serves a layer under an instruction set, "" where no code is
    needed; why a better one does not serve (``slower``); whether it calls the C library's
    mathematics; and its C: the ``call``, and the ``function`` that is called. ``functions`` are the
    names of that one and of what it needs. ``code_bytes`` are those of their machine code, without
    functions that a layer before it needs; None where they are not known."""

    isa: str
    kernel: str
    slower: tuple[str, ...] = ()
    math: bool = False
    call: str = ""
    function: str = ""
    functions: tuple[str, ...] = ()
    code_bytes: int | None = None


@dataclass(frozen=True)
class LayerFacts:
    """A layer, ``number`` in the order of execution.

    ``attributes`` are the operator with its attributes, ``steps`` what follows it element by
    element. ``sources`` are the source model's names. ``reads`` are names of tensors, constants
    left out; ``result`` is the result's type. ``schedule`` says how it is cut up, ``stored`` which
    channels are left out. ``macs`` are multiply-accumulates of a run, ``weight_bytes`` those of
    the arrays that no layer before it reads, ``servings`` one for each instruction set of the file.
    ``microseconds`` is the median of its times, None where it was not timed.
    """

    number: int
    operator: str
    attributes: str
    steps: str
    sources: tuple[str, ...]
    reads: tuple[str, ...]
    result: str
    macs: int
    weight_bytes: int
    servings: tuple[Serving, ...]
    schedule: str = ""
    stored: str = ""
    microseconds: float | None = None


@dataclass(frozen=True)
class TensorRow:
    """Where a tensor lives: "arena", "input", "output" (the caller's memory) or "constant"; its
    ``offset`` there in bytes, and from which layer to which one (-1: before the first; as many as
    there are layers: after the last). ``bytes`` are those of its place, borders included.
    Working memory of a layer is a tensor too, of ``type`` "scratch"."""

    name: str
    type: str
    space: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class TensorFacts(TensorRow):
    """A tensor: "input 0", "state 0", "result 3" (of layer 3), or "scratch of 3".

    ``scale`` has one number, or one for each place of dimension ``axis``; none where it is not
    quantized. ``storage`` says what is around its elements. ``shares`` is the tensor whose memory
    it takes over, ``how`` "in place", "alias" (the same values under another type) or "part"; both
    "" for memory of its own.
    """

    scale: tuple[float, ...] = ()
    zero_point: int | None = None
    axis: int | None = None
    storage: str = ""
    shares: str = ""
    how: str = ""


@dataclass(frozen=True)
class Anatomy:
    """The layers of a region in the order of execution; its inputs, the results of its layers and
    their working memory; the names of its outputs."""

    layers: tuple[LayerFacts, ...]
    tensors: tuple[TensorFacts, ...]
    outputs: tuple[str, ...]

    @property
    def live_bytes(self) -> tuple[int, ...]:
        """Bytes of the arena that are in use while each layer runs."""
        count = len(self.layers)
        spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for each in self.tensors:
            if each.space == "arena":
                for number in range(max(each.first, 0), min(each.last, count - 1) + 1):
                    spans[number].append((each.offset, each.offset + each.bytes))
        return tuple(_covered(spans[number]) for number in range(count))


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """How much of a line these spans cover."""
    covered = reached = 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered
