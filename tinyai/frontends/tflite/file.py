"""The plain values of a .tflite file: its tensors, and its operators in order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tinyai.frontends.faults import Fault
from tinyai.frontends.tflite.checks import check_graph
from tinyai.frontends.tflite.tensors import BUILTINS, OperatorOptions, tensors_of_graph


@dataclass(frozen=True)
class FileOperator:
    """An operator as the file has it: its name, the numbers of its tensors (-1: left out)."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: OperatorOptions

    @classmethod
    def of(cls, model: Any, operator: Any) -> FileOperator:
        """An operator of a file that was checked."""
        numbers = _numbers(operator.InputsAsNumpy()), _numbers(operator.OutputsAsNumpy())
        return cls(kind_of(model, operator), *numbers, OperatorOptions(operator))


class File:
    """The plain values of a file; ``model`` is the root table of ``content``, which was checked.
    ``once`` are those of the subgraph that its first call calls, None where there is none."""

    def __init__(self, model: Any, content: bytes, number: int = 0) -> None:
        self._model, self._content = model, content
        graph = model.Subgraphs(number)
        self.tensors = tensors_of_graph(model, graph, content)
        self.batched: set[int] = set()  # tensors of another batch than the file's
        operators = map(graph.Operators, range(graph.OperatorsLength()))
        self.operators = [FileOperator.of(model, each) for each in operators]
        self.inputs = _numbers(graph.InputsAsNumpy())
        self.outputs = _numbers(graph.OutputsAsNumpy())
        calls = (each.options for each in self.operators if each.kind == "CALL_ONCE")
        self.once: File | None = None
        for options in islice(calls, int(number == 0)):  # one that is called makes no more calls
            known = options.table == "CallOnceOptions"
            self.once = self.subgraph(int(options("InitSubgraphIndex")) if known else 0)

    def subgraph(self, number: int) -> File:
        """A subgraph that an operator calls. Raises ``Fault`` for one that is none, or damaged."""
        count = self._model.SubgraphsLength()
        if not 0 < number < count:
            raise Fault(f"a call of subgraph {number}", f"1 to {count - 1}")
        check_graph(self._model, self._model.Subgraphs(number), self._content)
        return File(self._model, self._content, number)


def _numbers(values: Any) -> tuple[int, ...]:
    """A list of numbers, for which the schema's package gives 0 where there is none."""
    return () if isinstance(values, int) else tuple(map(int, values))


def number_of(code: Any) -> int:
    """The number of an operator code: the larger of two fields. Old files have it in one of 8 bits,
    and some new ones have nothing there."""
    offset = code._tab.Offset(10)  # of builtin_code, where the package gives the old field's
    new = np.frombuffer(code._tab.Bytes, "<i4", 1, offset + code._tab.Pos)[0] if offset else 0
    return max(int(code.DeprecatedBuiltinCode()), int(new))


def kind_of(model: Any, operator: Any) -> str:
    """The name of an operator, "CUSTOM name" for one of somebody's own."""
    code = model.OperatorCodes(operator.OpcodeIndex())
    number = number_of(code)
    kind = BUILTINS.get(number, f"operator {number}")
    custom = (code.CustomCode() or b"").decode(errors="replace")
    return f"{kind} {custom}".strip() if kind == "CUSTOM" else kind
