"""What a kernel is: a row of the table that dispatch, tests and benchmarks walk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tinyai.codegen.steps import Epilogue
from tinyai.ir import Array, Graph, Node, Op, Schedule

Values = Mapping[str, Any]


def no_demand(graph: Graph, node: Node) -> str | None:
    return None


def any_kind(graph: Graph, node: Node) -> bool:
    return True


def no_scratch(graph: Graph, node: Node, threads: int) -> int:
    return 0


def no_candidates(graph: Graph, node: Node, threads: int) -> tuple[Schedule, ...]:
    return ()


def no_complaint(graph: Graph, node: Node, schedule: Schedule) -> str | None:
    return None


def densely(graph: Graph, node: Node) -> bool:
    return False


def anywhere(graph: Graph, node: Node) -> bool:
    return True


@dataclass(frozen=True)
class Kernel:
    """C code for one operator.

    - ``demands`` says what a node lacks for this kernel, or None; the first row that has no
      complaint serves.
    - ``kind``: whether a node is what the kernel is for, such as a sum of two tensors. Where it is
      not, nobody needs to hear that the kernel does not serve.
    - ``values`` are the numbers and texts of the template; all computing is done here.
    - ``scratch`` is the bytes of working memory, aligned to 64, for a number of threads.
    - ``split``: whether threads share a node; its template gets ``threads`` and, where these are
      several, C's ``part``. Of other kernels one thread computes all.
    - ``bordered``: whether it reads and writes images that are stored with a border.
    - ``strided_out``, ``strided_in``: whether it writes the result, or reads the first input, at
      the strides of the tensor, where that is not dense.
    - ``pack`` rearranges the constant at an input's position at code-generation time.
    - ``candidates`` are the schedules that a node may have for a number of threads, the best by
      the kernel's own cost model first; none where there is no choice. They are the same for all
      kernels that read the same packed weights. ``complaint`` says why one does not fit, or None.
    """

    name: str
    op: type[Op]
    template: str
    values: Callable[[Graph, Node, Epilogue], Values]
    isa: str = "scalar"
    demands: Callable[[Graph, Node], str | None] = no_demand
    kind: Callable[[Graph, Node], bool] = any_kind
    scratch: Callable[[Graph, Node, int], int] = no_scratch
    bordered: bool = False
    strided_out: Callable[[Graph, Node], bool] = densely
    strided_in: Callable[[Graph, Node], bool] = densely
    split: bool = False
    pack: Mapping[int, Callable[[Graph, Node, Array], Array]] = field(default_factory=dict)
    candidates: Callable[[Graph, Node, int], tuple[Schedule, ...]] = no_candidates
    complaint: Callable[[Graph, Node, Schedule], str | None] = no_complaint
