"""What a kernel is: a row of the table that dispatch, tests and benchmarks walk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tinyai.codegen.ctree import Code
from tinyai.codegen.lowered import Lowered, Schedule
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Array, Node, Op, operand_tensors


def never_rejects(graph: Lowered, node: Node) -> str | None:
    return None


def any_kind(graph: Lowered, node: Node) -> bool:
    return True


def no_scratch(graph: Lowered, node: Node, threads: int) -> int:
    return 0


def no_candidates(graph: Lowered, node: Node, threads: int) -> Iterable[Schedule]:
    return ()


def never_rejects_schedule(graph: Lowered, node: Node, schedule: Schedule) -> str | None:
    return None


def densely(graph: Lowered, node: Node, name: str) -> bool:
    return False


def at_strides(graph: Lowered, node: Node, name: str) -> bool:
    """Results and inputs, at any strides; but no borders, and no operands of steps."""
    return graph.stored(name).border is None and name not in operand_tensors(node.epilogue)


def result_at_strides(graph: Lowered, node: Node, name: str) -> bool:
    return name == node.output and at_strides(graph, node, name)


@dataclass(frozen=True)
class Kernel:
    """C code for one operator.

    - ``rejection`` says what a node lacks for this kernel, or None; the first row that does not
      reject it serves.
    - ``kind``: whether a node is what the kernel is for, such as a sum of two tensors. Where it is
      not, the report does not say that the kernel rejects it.
    - ``code`` is the function's body, which reads ``in0``, ``in1`` … and writes ``out``. What else
      it needs the epilogue collects: operands, arrays, definitions.
    - ``scratch`` is the bytes of working memory, aligned to 64, for a number of threads.
    - ``split``: whether threads share a node; the epilogue then says how many, and where these are
      several, C has a ``thread``. Of other kernels one thread computes all.
    - ``takes``: whether it writes its result, or reads the tensor, of this name as the graph says
      that it is stored; asked where that is not one element after the other.
    - ``pack`` rearranges the constant at an input's position at code-generation time.
    - ``candidates`` are the schedules that a node may have for a number of threads, the best by
      the kernel's own cost model first; none where there is no choice. They are the same for all
      kernels that read the same packed weights. ``schedule_rejection`` says why one does
      not fit, or None.
    """

    name: str
    op: type[Op]
    code: Callable[[Lowered, Node, Epilogue], Code]
    isa: str = "scalar"
    rejection: Callable[[Lowered, Node], str | None] = never_rejects
    kind: Callable[[Lowered, Node], bool] = any_kind
    scratch: Callable[[Lowered, Node, int], int] = no_scratch
    takes: Callable[[Lowered, Node, str], bool] = densely
    split: bool = False
    pack: Mapping[int, Callable[[Lowered, Node, Array], Array]] = field(default_factory=dict)
    candidates: Callable[[Lowered, Node, int], Iterable[Schedule]] = no_candidates
    schedule_rejection: Callable[[Lowered, Node, Schedule], str | None] = never_rejects_schedule

    @property
    def scheduled(self) -> bool:
        """Whether it leaves a choice of schedules."""
        return self.candidates is not no_candidates
