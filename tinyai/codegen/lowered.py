"""The lowered graph: a graph with what code generation decides, typed, frozen, verified.

It says which row of the kernel table serves each node, how layers are cut up, how many threads
share them, and how each tensor is stored. The steps of ``backend.pipeline`` fill it in, Lowered ->
Lowered; ``verify_lowered`` says what holds at the end.

The row of a kernel is here too: a lowered graph holds kernels, and they are asked about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import ClassVar, TypeAlias

from tinyai.codegen.ctree import Code
from tinyai.codegen.isa.variant import IsaVariant
from tinyai.codegen.placed import Placed, Storage, Subview
from tinyai.codegen.shapes.schedule import Schedule
from tinyai.codegen.steps import Epilogue
from tinyai.errors import GraphError
from tinyai.ir import Array, DType, Graph, Node, Op, operand_tensors, print_graph
from tinyai.ops import Concatenate, Reshape

# Of the arena and of what lies in it, in bytes: of a line of memory, or where no vector instruction
# reads it, of the largest element.
ALIGNMENT, LEAST_ALIGNMENT = 64, 8


def aligned(size: int) -> int:
    """So many bytes, filled up: what lies behind them is aligned as the arena."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Prepared:
    """A kernel at one node: the facts of the layer, computed once when the kernel is chosen, and
    the answers that follow from them for a graph that says more of the node: its schedule, and how
    tensors are stored.

    This one takes tensors whose elements follow one another, needs no working memory, reads
    constants as they are and leaves no choice of schedules.
    """

    node: Node
    # How the layer is cut up, once that is decided, and whether the kernel leaves a choice.
    schedule: Schedule | None = field(default=None, kw_only=True)
    scheduled: ClassVar[bool] = False

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        """The function's body, which reads ``in0``, ``in1`` … and writes ``out``. What else it
        needs the epilogue collects: operands, arrays, definitions."""
        raise NotImplementedError

    def scratch(self, graph: Lowered) -> int:
        """Bytes of working memory, aligned to 64, for the graph's threads."""
        return 0

    def takes(self, graph: Lowered, name: str) -> bool:
        """Whether the kernel writes its result, or reads the tensor, of this name as the graph says
        that it is stored; asked where that is not one element after the other."""
        return False

    def weights(self, graph: Lowered) -> Array | None:
        """The constant that is the second input as the kernel reads it, rearranged at
        code-generation time; None where it reads it as it is."""
        return None

    def candidates(self, graph: Lowered) -> Iterable[Schedule]:
        """The schedules that the node may have for the graph's threads, the best by the kernel's
        own cost model first. They are the same for all kernels of equal machines, which read the
        same packed weights."""
        return ()

    def schedule_rejection(self, graph: Lowered, schedule: Schedule) -> str | None:
        """Why a schedule does not fit the node, or None."""
        return None


Takes: TypeAlias = "Callable[[Lowered, Node, str], bool]"


def densely(graph: Lowered, node: Node, name: str) -> bool:
    return False


def at_strides(graph: Lowered, node: Node, name: str) -> bool:
    """Results and inputs, at any strides; but no borders, and no operands of steps."""
    return graph.stored(name).border is None and name not in operand_tensors(node.epilogue)


def result_at_strides(graph: Lowered, node: Node, name: str) -> bool:
    return name == node.output and at_strides(graph, node, name)


def no_scratch(graph: Lowered, node: Node) -> int:
    return 0


def any_kind(graph: Lowered, node: Node) -> bool:
    return True


@dataclass(frozen=True)
class _Written(Prepared):
    """A kernel that serves every node and has no facts to compute."""

    writer: Callable[[Lowered, Node, Epilogue], Code]
    placement: Takes
    memory: Callable[[Lowered, Node], int]

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        return self.writer(graph, self.node, epilogue)

    def takes(self, graph: Lowered, name: str) -> bool:
        return self.placement(graph, self.node, name)

    def scratch(self, graph: Lowered) -> int:
        return self.memory(graph, self.node)


def written(
    code: Callable[[Lowered, Node, Epilogue], Code],
    takes: Takes = densely,
    scratch: Callable[[Lowered, Node], int] = no_scratch,
) -> Callable[[Lowered, Node], Prepared]:
    """``Kernel.prepare`` for a kernel that serves every node and has no facts to compute."""
    return lambda graph, node: _Written(node, code, takes, scratch)


@dataclass(frozen=True)
class Kernel:
    """C code for one operator.

    - ``prepare`` makes the kernel ready for a node, or says what the node lacks for it; the first
      row that does not reject a node serves it.
    - ``kind``: whether a node is what the kernel is for, such as a sum of two tensors. Where it is
      not, the report does not say that the kernel rejects it.
    - ``split``: whether threads share a node; the epilogue then says how many, and where these are
      several, C has a ``thread``. Of other kernels one thread computes all.
    """

    name: str
    op: type[Op]
    prepare: Callable[[Lowered, Node], Prepared | str]
    isa: str = "scalar"
    kind: Callable[[Lowered, Node], bool] = any_kind
    split: bool = False


@dataclass(frozen=True)
class KernelChoice:
    """The row of the kernel table that serves a node, ``prepared`` for it, and the better ones that
    were ``rejected``, each with the reason."""

    kernel: Kernel
    prepared: Prepared
    rejected: tuple[str, ...] = ()


Variants: TypeAlias = Mapping[IsaVariant, Mapping[str, KernelChoice]]


@dataclass(frozen=True)
class Lowered(Placed):
    """A graph with the decisions of code generation; nodes are known by their outputs.

    - ``variants``: for each instruction set of the file the kernel of each node.
    - ``threads``: how many the code is written for; one where no kernel has work for more.
    - ``alignment`` of the arena and of each tensor in it, in bytes.
    - ``ports_in_arena``: inputs and outputs live in the arena too, not with the caller.
    """

    variants: Variants = field(default_factory=dict)
    threads: int = 1
    alignment: int = ALIGNMENT
    ports_in_arena: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "variants", MappingProxyType(dict(self.variants)))

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

    def kernels(self, node: Node) -> Iterator[Prepared]:
        """The node's kernel in each variant."""
        return (rows[node.output].prepared for rows in self.variants.values())

    def takes(self, node: Node, name: str) -> bool:
        """Whether all of the node's kernels write their result, or read the tensor, of this name as
        it is stored."""
        if self.stored(name).plain:
            return True
        return all(kernel.takes(self, name) for kernel in self.kernels(node))

    def has_choice(self, node: Node) -> bool:
        """Whether a kernel of the node leaves a choice of schedules."""
        return any(kernel.scheduled for kernel in self.kernels(node))

    @property
    def schedules(self) -> dict[str, Schedule]:
        """How nodes are cut up whose kernels leave a choice: by the first variant that does."""
        cut = ((n.output, kernel.schedule) for n in self.nodes for kernel in self.kernels(n))
        schedules: dict[str, Schedule] = {}
        for output, schedule in cut:
            if schedule:
                schedules.setdefault(output, schedule)
        return schedules

    def scratch_bytes(self) -> dict[str, int]:
        """Working memory that each node's kernels ask for at most, by the node's output."""
        return {
            node.output: max(kernel.scratch(self) for kernel in self.kernels(node))
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
    schedules = graph.schedules
    for node in graph.nodes:
        rows = (
            f"{isa.name}: {rows[node.output].kernel.name}" for isa, rows in graph.variants.items()
        )
        facts = [", ".join(rows)]
        if schedule := schedules.get(node.output):
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
    instruction set, with a schedule where it leaves a choice; only what a node makes and the region
    does not return has a border or is a subview; a border lies around an image, and its value is
    one of the image's type; a subview lies in a concatenation's result, where a reader expects it;
    whoever makes or reads a tensor takes it as it is stored.
    """
    for isa, rows in graph.variants.items():
        _check_rows(graph, isa, rows)
    for name, storage in graph.storage.items():
        for found, allowed in _wrong(graph, name, storage):
            raise GraphError(f"storage of %{name}: {storage}", found=found, allowed=allowed)
    return graph


def _check_rows(graph: Lowered, isa: IsaVariant, rows: Mapping[str, KernelChoice]) -> None:
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
        if choice.prepared.scheduled and choice.prepared.schedule is None:
            raise GraphError(
                f"schedule of %{output} for {isa.name}",
                found="none",
                allowed="one where the kernel leaves a choice",
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
    if border := storage.border:
        of = storage.type
        if len(of.shape) != 4 or of.dtype.is_float or min(border.sides) < 0:
            yield of, "an image of integers, and sides of 0 or more"
        low, high = of.dtype.range
        if not low <= border.value <= high:
            yield f"a border of {border.value}", f"a value of {of.dtype}"
    if storage.subview:
        yield from _wrong_with_subview(graph, name, storage, storage.subview)
    for node in (maker, *graph.readers[name]):
        if not graph.takes(node, name):
            rows = (choices[node.output].kernel.name for choices in graph.variants.values())
            names = ", ".join(dict.fromkeys(rows))
            what = "written" if node is maker else "read"
            yield f"{what} by %{node.output}: {names}", "kernels that take it so"


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
