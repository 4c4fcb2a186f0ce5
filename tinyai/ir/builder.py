"""What collects the parts of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tinyai.ir.graph import Graph, Node
from tinyai.ir.operators import Op
from tinyai.ir.steps import Step
from tinyai.ir.types import Array, DType, QParams, Tensor, Type


class Builder:
    """Collects the parts of a ``Graph``; the only mutable thing on the way to one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[str] = []
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Array] = {}

    def _define(self, prefix: str, of: Type, quant: QParams | None = None) -> str:
        name = f"{prefix}{len(self.tensors)}"
        self.tensors[name] = Tensor(name, of, quant)
        return name

    def type(self, name: str) -> Type:
        return self.tensors[name].type

    def last_step(self, name: str) -> Step | None:
        """The elementwise step that made a tensor last; None for inputs and constants."""
        maker = next((node for node in reversed(self.nodes) if node.output == name), None)
        return maker.epilogue[-1] if maker and maker.epilogue else None

    def input(self, of: Type) -> str:
        name = self._define("in", of)
        self.inputs.append(name)
        return name

    def constant(self, value: Array) -> str:
        value = np.ascontiguousarray(value).reshape(value.shape)
        value.setflags(write=False)
        name = self._define("c", Type(value.shape, DType(value.dtype.name)))
        self.constants[name] = value
        return name

    def add(
        self,
        op: Op,
        inputs: Sequence[str],
        epilogue: tuple[Step, ...] = (),
        sources: tuple[str, ...] = (),
        quant: QParams | None = None,
    ) -> str:
        """Append a node; its type follows from the operator's rule. Returns its output, which
        stands for real numbers as ``quant`` says, or as its input where both keep one scale."""
        result = op.infer(*(self.type(name) for name in inputs))
        dtype = result.dtype
        for step in epilogue:
            dtype = step.result(dtype)
        if quant is None and op.keeps_scale and all(step.keeps_scale for step in epilogue):
            quant = self._scale_of(inputs[0], dtype)
        output = self._define("t", Type(result.shape, dtype), quant)
        self.nodes.append(Node(op, tuple(inputs), output, epilogue, sources))
        return output

    def _scale_of(self, name: str, dtype: DType) -> QParams | None:
        """The one scale of a tensor of this type; one along an axis may be along another behind."""
        tensor = self.tensors[name]
        known = tensor.quant is not None and tensor.quant.axis is None
        return tensor.quant if known and tensor.type.dtype == dtype else None

    def credit(self, name: str, sources: tuple[str, ...]) -> None:
        """These names of the source model belong to the node that made a tensor too."""
        for number, node in enumerate(self.nodes):
            if node.output == name:
                both = tuple(dict.fromkeys(node.sources + sources))
                self.nodes[number] = replace(node, sources=both)

    def graph(self, outputs: Sequence[str]) -> Graph:
        return Graph(
            self.name,
            tuple(self.inputs),
            tuple(outputs),
            tuple(self.nodes),
            self.tensors,
            self.constants,
        )
