"""The lowered graph: a graph with what code generation decides, typed, frozen, verified.

It says which row of the kernel table serves each node, how layers are cut up, how many threads
share them, and how each tensor is stored. The steps of ``backend.generate`` fill it in, Lowered ->
Lowered; ``verify_lowered`` says what holds at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tinyai.errors import GraphError
from tinyai.ir import Array, DType, Graph, Node, Type, print_graph
from tinyai.ops import Concatenate, Reshape
from tinyai.traits import Border

if TYPE_CHECKING:
    from tinyai.codegen.isa.variant import IsaVariant
    from tinyai.codegen.kernels.table import Kernel

# Bytes after the last row of an image with a border: whole words of them may be read.
BORDER_SLACK = 128
# Of the arena and of what lies in it, in bytes: of a line of memory, or where no vector instruction
# reads it, of the largest element.
ALIGNMENT, LEAST_ALIGNMENT = 64, 8


@dataclass(frozen=True)
class Subview:
    """The place of a tensor that is made inside of another one, which joins it with others:
    ``offset`` bytes from the start of ``whole``, ``strides`` elements between neighbours of each
    dimension."""

    whole: str
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Storage:
    """How a tensor is stored: one element after the other, as an image in NHWC with a ``border``
    around it, or as a ``subview`` of another tensor."""

    type: Type
    border: Border | None = None
    subview: Subview | None = None

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours of each dimension."""
        if self.subview:
            return self.subview.strides
        if self.border is None:
            return self.type.strides
        _, h, w, c = self.type.shape
        top, left, bottom, right = self.border.sides
        row = (left + w + right) * c
        return (top + h + bottom) * row, row, c, 1

    @property
    def first(self) -> int:
        """Elements of the border before the first one."""
        if self.border is None:
            return 0
        _, row, pixel, _ = self.strides
        return self.border.top * row + self.border.left * pixel

    @property
    def bytes(self) -> int:
        """Of the tensor with its border; of a subview without what lies in between."""
        if self.border is None:
            return self.type.bytes
        return self.type.shape[0] * self.strides[0] * self.type.dtype.bytes + BORDER_SLACK

    @property
    def seen(self) -> int:
        """Bytes from where the tensor's address is, in front of its border, to the end of its last
        element."""
        return self.first * self.type.dtype.bytes + self.end

    def read(self, memory: Array) -> Array:
        """The elements that the bytes of this array hold, from the tensor's address on."""
        size = self.type.dtype.bytes
        steps = [step * size for step in self.strides]
        numpy = self.type.dtype.numpy
        return np.ndarray(self.type.shape, numpy, memory, self.first * size, steps).copy()

    @property
    def dense(self) -> bool:
        """Whether the elements follow one another."""
        rows = zip(self.type.shape, self.strides, self.type.strides, strict=True)
        return all(size == 1 or stored == plain for size, stored, plain in rows)

    @property
    def plain(self) -> bool:
        """Whether there is nothing but the elements, one after the other."""
        return self.border is None and self.dense

    @property
    def end(self) -> int:
        """Bytes from the first element to the end of the last one."""
        steps = zip(self.type.shape, self.strides, strict=True)
        last = sum((size - 1) * step for size, step in steps)
        return (last + 1) * self.type.dtype.bytes

    def __str__(self) -> str:
        if self.border:
            sides = " ".join(map(str, self.border.sides))
            return f"with a border of {sides} around it, all {self.border.value}"
        if self.subview:
            return (
                f"in %{self.subview.whole} from byte {self.subview.offset}, strides {self.strides}"
            )
        return "one element after the other"


@dataclass(frozen=True)
class Tile:
    """Sums that are in registers at once: ``outputs`` of an image by ``channels``, whole blocks of
    16."""

    outputs: int
    channels: int

    def __str__(self) -> str:
        return f"{self.outputs}x{self.channels}"


@dataclass(frozen=True)
class Schedule:
    """How a layer's work is cut up, where its kernel leaves a choice. Results do not depend on it.

    - ``panels``: the channels of a group from the first on, and how many outputs meet them at a
      time.
    - ``stripe``: outputs that are computed for all panels before the next ones.
    - ``unrolled``: whether the products of a window are written out, without a loop.
    - ``by_panels``: whether threads share the panels, each with all outputs, or the outputs.
    - ``together``: neighbouring outputs that are computed as one.

    What is None is as the kernel's own rule says.
    """

    panels: tuple[Tile, ...]
    stripe: int
    unrolled: bool
    by_panels: bool | None = None
    together: int | None = None

    def __str__(self) -> str:
        window = "written out" if self.unrolled else "in a loop"
        facts = [f"tiles {' '.join(map(str, self.panels))}", f"stripes of {self.stripe} outputs"]
        facts.append(f"windows {window}")
        if self.by_panels is not None:
            facts.append(f"threads share {'panels' if self.by_panels else 'outputs'}")
        if self.together is not None:
            several = self.together > 1
            facts.append(f"{self.together} outputs as one" if several else "each output alone")
        return ", ".join(facts)


@dataclass(frozen=True)
class Choice:
    """The row of the kernel table that serves a node, and the better ones that were ``rejected``,
    each with the reason."""

    kernel: Kernel
    rejected: tuple[str, ...] = ()


Variants: TypeAlias = "Mapping[IsaVariant, Mapping[str, Choice]]"


@dataclass(frozen=True)
class Lowered(Graph):
    """A graph with the decisions of code generation; nodes are known by their outputs.

    - ``variants``: for each instruction set of the file the kernel of each node.
    - ``threads``: how many the code is written for; one where no kernel has work for more.
    - ``schedules`` of the nodes whose kernels leave a choice.
    - ``storage`` of the tensors that are not stored one element after the other.
    - ``alignment`` of the arena and of each tensor in it, in bytes.
    - ``ports_in_arena``: inputs and outputs live in the arena too, not with the caller.
    """

    variants: Variants = field(default_factory=dict)
    threads: int = 1
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    storage: Mapping[str, Storage] = field(default_factory=dict)
    alignment: int = ALIGNMENT
    ports_in_arena: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("variants", "schedules", "storage"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @classmethod
    def of(cls, graph: Graph, variants: Variants | None = None, threads: int = 1) -> Lowered:
        """The graph, served by these kernels, for at most so many threads."""
        variants = variants or {}
        shared = any(each.kernel.split for rows in variants.values() for each in rows.values())
        facts = {each.name: getattr(graph, each.name) for each in fields(Graph)}
        return cls(**facts, variants=variants, threads=threads if shared else 1)

    @property
    def bytes_are(self) -> DType:
        """What bytes of images are to the file's microkernels: as its strongest instruction set
        multiplies them. Images of the other type are turned on the way."""
        unsigned = next((isa.unsigned for isa in self.variants), True)
        return DType.UINT8 if unsigned else DType.INT8

    def stored(self, name: str) -> Storage:
        """How a tensor is stored."""
        return self.storage.get(name) or Storage(self.type(name))

    def with_storage(self, storage: Mapping[str, Storage]) -> Lowered:
        """The same with these tensors stored so."""
        changed = replace(self, storage={**self.storage, **storage})
        # Makers and readers are what they were: many ways to store a tensor are tried.
        vars(changed).update((n, vars(self)[n]) for n in ("makers", "readers") if n in vars(self))
        return changed

    def kernels(self, node: Node) -> Iterator[Kernel]:
        """The node's kernel in each variant."""
        return (rows[node.output].kernel for rows in self.variants.values())

    def takes(self, node: Node, name: str) -> bool:
        """Whether all of the node's kernels write their result, or read the tensor, of this name as
        it is stored."""
        if self.stored(name).plain:
            return True
        return all(kernel.takes(self, node, name) for kernel in self.kernels(node))

    def has_choice(self, node: Node) -> bool:
        """Whether a kernel of the node leaves a choice of schedules."""
        return any(kernel.scheduled for kernel in self.kernels(node))

    def scratch_bytes(self) -> dict[str, int]:
        """Working memory that each node's kernels ask for at most, by the node's output."""
        return {
            node.output: max(
                kernel.scratch(self, node, self.threads) for kernel in self.kernels(node)
            )
            for node in self.nodes
        }

    def subviews(self, node: Node) -> list[Subview]:
        """The place of each input of a concatenation in the memory of its result."""
        assert isinstance(node.op, Concatenate)
        out = self.stored(node.output)
        whole, at = node.output, out.first * out.type.dtype.bytes
        if out.subview:
            whole, at = out.subview.whole, out.subview.offset
        subviews = []
        for of in self.types(node.inputs):
            subviews.append(Subview(whole, at, out.strides))
            at += of.shape[node.op.axis] * out.strides[node.op.axis] * of.dtype.bytes
        return subviews

    def copied(self, node: Node) -> list[int]:
        """Numbers of the inputs of a concatenation that are not made in their places."""
        inputs = zip(node.inputs, self.subviews(node), strict=True)
        return [
            n for n, (name, subview) in enumerate(inputs) if self.stored(name).subview != subview
        ]

    def __str__(self) -> str:
        return print_lowered(self)


def print_lowered(graph: Lowered) -> str:
    """The graph as text, and below it what was decided of each node and its result."""
    lines = [print_graph(graph), f"lowered for {graph.threads} thread(s) {{"]
    for node in graph.nodes:
        rows = (
            f"{isa.name}: {rows[node.output].kernel.name}" for isa, rows in graph.variants.items()
        )
        facts = [", ".join(rows)]
        if schedule := graph.schedules.get(node.output):
            facts.append(f"cut into {schedule}")
        if storage := graph.storage.get(node.output):
            facts.append(f"stored {storage}")
        lines.append(f"  %{node.output}: {'; '.join(filter(None, facts)) or 'nothing decided'}")
    return "\n".join([*lines, "}"])


def for_package(graph: Lowered, *, ports_in_arena: bool = False) -> Lowered:
    """The graph as a C package has it: where no instruction set of any architecture is used, its
    arena needs the alignment of the largest element alone."""
    portable = all(isa.architecture is None for isa in graph.variants)
    alignment = LEAST_ALIGNMENT if portable else ALIGNMENT
    return replace(graph, alignment=alignment, ports_in_arena=ports_in_arena)


def verify_lowered(graph: Lowered) -> Lowered:
    """Return ``graph`` when its decisions obey the rules, else raise ``GraphError``.

    Rules: every variant has a row for each node, of the node's operator and of the variant's
    instruction set; the nodes whose kernels leave a choice have a schedule, and no others; only
    what a node makes and the region does not return has a border or is a subview; a border lies
    around an image, and its value is one of the image's type; a subview lies in a concatenation's
    result, where a reader expects it; whoever makes or reads a tensor takes it as it is stored.
    """
    for isa, rows in graph.variants.items():
        _check_rows(graph, isa, rows)
    for node in graph.nodes:
        _check_schedule(graph, node)
    if unknown := set(graph.schedules) - set(graph.makers):
        raise GraphError(f"schedule of %{min(unknown)}", found="no node makes it")
    for name, storage in graph.storage.items():
        for found, allowed in _wrong(graph, name, storage):
            raise GraphError(f"storage of %{name}: {storage}", found=found, allowed=allowed)
    return graph


def _check_rows(graph: Lowered, isa: IsaVariant, rows: Mapping[str, Choice]) -> None:
    if set(rows) != set(graph.makers):
        odd = min(set(rows) ^ set(graph.makers))
        raise GraphError(f"kernels of {isa.name}", found=f"%{odd}", allowed="one for each node")
    for output, choice in rows.items():
        op, kernel = graph.makers[output].op, choice.kernel
        if kernel.op is not type(op) or kernel.isa not in isa.rows:
            raise GraphError(
                f"kernel of %{output} for {isa.name}",
                found=f"{kernel.name}, for {kernel.op.name} on {kernel.isa}",
                allowed=f"a row for {op.name} on {' or '.join(isa.rows)}",
            )


def _check_schedule(graph: Lowered, node: Node) -> None:
    has = node.output in graph.schedules
    if has != graph.has_choice(node):
        raise GraphError(
            f"schedule of %{node.output}",
            found="one" if has else "none",
            allowed="one where a kernel of the node leaves a choice, else none",
        )


def _wrong(graph: Lowered, name: str, storage: Storage) -> Iterator[tuple[object, object]]:
    """What is wrong with how a tensor is stored, the worst first, and what is allowed."""
    maker = graph.makers.get(name)
    if maker is None or name in graph.outputs:
        what = "an output" if maker else "not made by a node"
        yield what, "what a node makes and the region does not return"
        return
    if storage.type != graph.type(name):
        yield storage.type, graph.type(name)
    if storage.border and storage.subview:
        yield "a border and a subview", "one of them"
    if storage.border:
        yield from _wrong_with_border(storage.type, storage.border)
    if storage.subview:
        yield from _wrong_with_subview(graph, name, storage, storage.subview)
    for node in (maker, *graph.readers[name]):
        if not graph.takes(node, name):
            names = ", ".join(dict.fromkeys(kernel.name for kernel in graph.kernels(node)))
            what = "written" if node is maker else "read"
            yield f"{what} by %{node.output}: {names}", "kernels that take it so"


def _wrong_with_border(of: Type, border: Border) -> Iterator[tuple[object, object]]:
    if len(of.shape) != 4 or of.dtype.is_float or min(border.sides) < 0:
        yield of, "an image of integers, and sides of 0 or more"
    low, high = of.dtype.range
    if not low <= border.value <= high:
        yield f"a border of {border.value}", f"a value of {of.dtype}"


def _wrong_with_subview(
    graph: Lowered, name: str, storage: Storage, subview: Subview
) -> Iterator[tuple[object, object]]:
    whole, of = graph.makers.get(subview.whole), storage.type
    if (
        whole is None
        or not isinstance(whole.op, Concatenate)
        or graph.stored(subview.whole).subview
    ):
        yield f"in %{subview.whole}", "in a concatenation's result that is no subview itself"
    if len(subview.strides) != len(of.shape):
        yield f"{len(subview.strides)} strides", f"one a dimension of {of}"
    into = graph.stored(subview.whole)
    first = into.first * into.type.dtype.bytes
    end, last = subview.offset + storage.end, first + into.end
    if of.dtype != into.type.dtype or not first <= subview.offset or end > last:
        yield (
            f"bytes {subview.offset} to {end}",
            f"{first} to {last} of %{subview.whole}: {into.type}",
        )
    if not any(_expects(graph, node, name, subview) for node in graph.readers[name]):
        yield "no reader that expects it there", "a concatenation, or a reshape to a subview"


def _expects(graph: Lowered, node: Node, name: str, subview: Subview) -> bool:
    """Whether a node takes a tensor over in this place of its whole."""
    if isinstance(node.op, Concatenate):
        return (name, subview) in zip(node.inputs, graph.subviews(node), strict=True)
    into = graph.stored(node.output).subview if isinstance(node.op, Reshape) else None
    return into is not None and (into.whole, into.offset) == (subview.whole, subview.offset)
