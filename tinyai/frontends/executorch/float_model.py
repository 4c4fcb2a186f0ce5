"""An exported float module for the quantizer of files. ONNX Runtime runs what is read of it, and
torch what is not."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from tinyai.errors import EnvironmentProblem
from tinyai.frontends.executorch.exported import FloatReading, ModulePoints
from tinyai.frontends.executorch.program import ARITHMETIC
from tinyai.frontends.executorch.reader import operator_of
from tinyai.frontends.onnx.float_model import FileModel, FunctionRunner, in_onnx_runtime
from tinyai.frontends.onnx.writer import written
from tinyai.frontends.source_model import End, SourceModel
from tinyai.ir import Array
from tinyai.partition.reasons import Language
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import Sample
from tinyai.quantizer.write import with_results
from tinyai.safe_text import safe
from tinyai.source import Call, Expr, Refusal, Tuple, post_order


class ModuleModel(FileModel):
    """The ``FloatModel`` of an exported module. The nodes named in ``floats`` stay in float."""

    rounding = ARITHMETIC.mode

    def __init__(self, model: GraphModule, floats: Mapping[str, Refusal]) -> None:
        self._module = model
        self.reading, self._floats = FloatReading(model), floats
        self._unread = {(node.name, operator_of(node)): node for node in self.reading.refused}
        inputs = (node for node in model.graph.nodes if node.op == "placeholder")
        super().__init__(
            SourceModel(
                tuple(End(node.name, self.reading(node)) for node in inputs),
                tuple(End(f"result{n}", each) for n, each in enumerate(self.reading.results)),
                Language(),
                rounding=self.rounding,
            )
        )
        self.image_channels = None  # the module keeps its operators

    def points(self, root: Expr, config: QuantConfig, **chosen: Any) -> ModulePoints:
        floats = {
            each: self._floats[each.name]
            for each in post_order(root)
            if isinstance(each, Call) and each.name in self._floats
        }
        chosen["floats"] = {**floats, **chosen.get("floats", {})}
        return ModulePoints(root, config, self.fold, **chosen)

    def key(self, root: Expr) -> str:
        names = self._names() | {each: each.name for each in self._by_torch(root)}
        return hashlib.sha256(_file(_tensors(root), names)).hexdigest()[:16]

    def original(self, sample: Sample) -> list[Array] | None:
        nodes = tree_leaves(self._module.graph.output_node().args)
        try:
            with torch.no_grad():
                results = tree_leaves(self._module(*map(_as_tensors, sample.values())))
        except Exception as error:  # of any kind: they are the module's own
            raise EnvironmentProblem(
                "the module does not run", found=safe(str(error), 200), allowed="one that runs"
            ) from error
        # A node that is several results is one here.
        made = {n: r for n, r in zip(nodes, results, strict=True) if isinstance(n, Node)}
        return [each.numpy() for each in made.values()]

    def runner(
        self, root: Expr, values: Sequence[Expr] = (), switches: Mapping[Expr, str] | None = None
    ) -> FunctionRunner:
        """Step by step: what a call of torch reads, and that call."""
        whole = with_results(root, values)
        names, steps = self._names() | dict(switches or {}), []
        for each in self._by_torch(whole):
            name = str(len(names))  # no name of an input
            steps.append((name, _run(each.args, names), self._compute(each)))
            names[each] = name
        last = _run(_tensors(whole), names)

        def call(given: dict[str, Array]) -> list[Array]:
            known: dict[str, Any] = dict(given)
            for name, run, compute in steps:
                known[name] = compute(*run(known))
            return last(known)

        return FunctionRunner(call, len(self.results))

    def _names(self) -> dict[Expr, str]:
        return {end.expr: end.name for end in self.model.inputs}

    def _by_torch(self, root: Expr) -> list[Call]:
        every = (each for each in post_order(root) if isinstance(each, Call))
        return [e for e in every if e.op == "function" or (e.name, e.op) in self._unread]

    def _compute(self, call: Call) -> Callable[..., Any]:
        if call.op == "function":
            compute: Callable[..., Any] = call.attrs["compute"]
            return compute
        return functools.partial(_computed, self._unread[call.name, call.op])


Run = Callable[[Mapping[str, Any]], list[Any]]


def _run(exprs: Sequence[Expr], names: Mapping[Expr, str]) -> Run:
    """What computes expressions of those that have names, which are given by name."""
    names = dict(names)
    made = [each for each in dict.fromkeys(exprs) if each not in names]
    runner = in_onnx_runtime(_file(made, names), [*_single(names).values()], 0) if made else None

    def run(given: Mapping[str, Any]) -> list[Any]:
        values = {each: given[name] for each, name in names.items() if each in exprs}
        if runner is not None:
            runner.run({name: given[name] for name in _single(names).values()})
            values |= zip(made, runner.values(), strict=True)
        return [values[each] for each in exprs]

    return run


def _file(exprs: Iterable[Expr], names: Mapping[Expr, str]) -> bytes:
    inputs = {each: f"input{number}" for number, each in enumerate(_single(names))}
    content: bytes = written(exprs, inputs).SerializeToString()
    return content


def _single(names: Mapping[Expr, str]) -> dict[Expr, str]:
    """Those of one tensor; of others torch alone reads the parts."""
    return {each: name for each, name in names.items() if len(each.types) == 1}


def _tensors(root: Expr) -> tuple[Expr, ...]:
    return root.fields if isinstance(root, Tuple) else (root,)


def _computed(node: Node, *operands: Any) -> Any:
    """A node's result, of what it reads: arrays, or tuples of them where it is several tensors."""
    values = dict(zip(node.all_input_nodes, map(_as_tensors, operands), strict=True))
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    target: Any = node.target
    with torch.no_grad():
        return _as_arrays(target(*args, **kwargs))


def _as_tensors(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_as_tensors, value))
    return torch.from_numpy(np.array(value))


def _as_arrays(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_as_arrays, value))
    return value.numpy()
