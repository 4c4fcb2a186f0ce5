"""The function of a network that calls its layers: its parameters, and calls of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyai.codegen.c import C_TYPES, signature
from tinyai.codegen.plan import MemoryPlan
from tinyai.ir import DType, Graph

_BOOL = 6  # DLPack's code


@dataclass(frozen=True)
class EntryPort:
    """An input or output as the entry's templates need it; ``offset`` in the arena, where it lives
    there."""

    c_type: str
    shape: tuple[int, ...]
    code: int
    bits: int
    offset: int

    @classmethod
    def of(cls, graph: Graph, plan: MemoryPlan, name: str) -> EntryPort:
        """The port that a tensor of the graph is."""
        of = graph.type(name)
        kind = 2 if of.dtype.is_float else int(of.dtype.startswith("u"))  # DLDataTypeCode
        kind = _BOOL if of.dtype is DType.BOOL else kind
        offset = plan.locations[name].index
        return cls(C_TYPES[of.dtype], of.shape, kind, 8 * of.dtype.bytes, offset)

    @property
    def packed_kind(self) -> tuple[int, int]:
        """Code and bits as TVM's packed functions have them: a bool is an unsigned bit."""
        return (1, 1) if self.code == _BOOL else (self.code, self.bits)


@dataclass(frozen=True)
class RunFunction:
    """A C function of a pointer for each input and output that is not in the arena, the arena, and
    where it has them the times of layers and the thread that calls."""

    inputs: Sequence[EntryPort]
    outputs: Sequence[EntryPort]
    timed: bool
    threads: int

    @property
    def parameters(self) -> str:
        """The list of them in its definition."""
        read, write = "const {type} *in{}", "{type} *out{}"
        return self.arguments(read, write, "char *arena", "int64_t *times", "tinyai_thread *thread")

    def arguments(
        self,
        read: str,
        write: str,
        arena: str,
        times: str = "times",
        thread: str = "thread",
        *,
        first: int = 0,
    ) -> str:
        """The arguments of a call. In ``read`` and ``write``, which are C, {} stands for the number
        of an input or output (outputs from ``first`` on), {type} for its type."""
        texts = [read.format(n, type=p.c_type) for n, p in enumerate(self.inputs)]
        texts += [write.format(n, type=p.c_type) for n, p in enumerate(self.outputs, first)]
        texts += [arena, *([times] if self.timed else []), *([thread] if self.threads > 1 else [])]
        return ", ".join(texts)

    @property
    def signature(self) -> str:
        """The types and dimensions of what it reads and writes."""
        return signature(
            *([(p.c_type, p.shape) for p in ports] for ports in (self.inputs, self.outputs))
        )
