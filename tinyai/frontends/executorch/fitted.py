"""An exported float module whose weights and biases are those that ``tinyai.quantize_file`` chooses
by samples, and the grids that go with them.

The module stays one of floats. Its weights are steps of their scales, so that who quantizes it with
these scales gets the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from tinyai.frontends.executorch.float_model import ModuleModel
from tinyai.frontends.executorch.names import names_of
from tinyai.frontends.executorch.reader import Reading, arguments_of, operator_of
from tinyai.ir import Array
from tinyai.qdq.accumulators import PRODUCTS
from tinyai.qdq.operands import Grid, is_call
from tinyai.quantizer.channels import along
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import CalibrationError, Sample
from tinyai.quantizer.quantize import quantized
from tinyai.quantizer.report import QuantReport
from tinyai.quantizer.write import Written
from tinyai.source import Call, Constant, Expr, Refusal, post_order

# The arguments that are biases, of operators that have another name for them.
_BIASES = {"aten.addmm": "self"}


@dataclass(frozen=True, eq=False)
class Fitted:
    """``grids`` of nodes' values, ``scales`` of weights by their nodes, and what was lost where, by
    the names of modules; ``floats`` are the names of nodes that stay in float, and why."""

    config: QuantConfig
    floats: Mapping[str, Refusal]
    grids: Mapping[Node, Grid]
    scales: Mapping[Node, Array]
    report: QuantReport


def fitted(
    model: GraphModule,
    samples: Iterable[Sequence[Tensor]],
    config: QuantConfig,
    floats: Mapping[str, Refusal],
    *,
    rank: bool = False,
) -> Fitted | None:
    """Changes the constants of ``model``, and says how it is quantized then; None where nothing of
    it is. The nodes named in ``floats`` stay in float; with ``rank`` the report says what damage
    each layer does alone."""
    of_floats, modules = ModuleModel(model, floats), names_of(model)
    if not of_floats.points(of_floats.root, config).points:
        return None
    inputs = [each.name for each in of_floats.inputs]
    result = quantized(of_floats, _named(samples, inputs), config, rank=rank)
    rows = [replace(row, name=modules.get(row.name, row.name)) for row in result.report.layers]
    writing = _Writing(model, of_floats.reading, of_floats.root, result.written)
    report = replace(result.report, layers=tuple(rows))
    chosen = result.written.points.chosen_floats
    left = {each.name: why for each, why in chosen.items() if isinstance(each, Call)}
    return Fitted(config, left, writing.grids, writing.scales, report)


# --- Samples -------------------------------------------------------------------------------------


def _named(samples: Iterable[Sequence[Tensor]], names: Sequence[str]) -> Iterable[Sample]:
    """Samples as the quantizer takes them; those of a list can be read twice."""
    if isinstance(samples, Tensor) or not isinstance(samples, Iterable):
        raise _not_samples(f"a {type(samples).__name__}")
    named = (_by_name(number, sample, names) for number, sample in enumerate(samples))
    return [*named] if isinstance(samples, Sequence) else named


def _by_name(number: int, sample: object, names: Sequence[str]) -> Sample:
    values = [*sample] if isinstance(sample, tuple | list) else [None]
    arrays = [each.detach().cpu().numpy() for each in values if isinstance(each, Tensor)]
    if len(arrays) < len(values):
        raise _not_samples(f"a {type(sample).__name__} as sample {number}")
    if len(arrays) != len(names):
        raise _not_samples(f"{len(arrays)} tensors as sample {number}, of {', '.join(names)}")
    return dict(zip(names, arrays, strict=True))


def _not_samples(found: str) -> CalibrationError:
    return CalibrationError(
        "samples of TinyAIQuantizer",
        found=found,
        allowed="tuples of tensors, one for each input, as the module is called with them",
        hint="TinyAIQuantizer(samples=[(image,) for image in images])",
    )


# --- Constants -----------------------------------------------------------------------------------


class _Writing:
    """Writes the constants of a quantized model into the module that was read as ``before``."""

    def __init__(
        self, model: GraphModule, reading: Reading, before: Expr, written: Written
    ) -> None:
        self._model, self._reading = model, reading
        self._nodes = {node.name: node for node in model.graph.nodes if node.op != "output"}
        self.grids = dict(self._grids(written))
        self.scales: dict[Node, Array] = {}
        originals = [*post_order(before)]
        weights = {(e.name, e.op): e["weight"] for e in originals if is_call(e, *PRODUCTS)}
        added = {each.name: _addend(each) for each in originals if _is_addition(each)}
        result = [*post_order(written.result)]
        biases = dict(_biases(result))
        for product in result:
            if is_call(product, *PRODUCTS):
                node = self._nodes[product.name]
                self._write_weights(node, product["weight"], weights[product.name, product.op])
                if (total := biases.get(product)) is not None:
                    behind = added[total.name] if total.name != product.name else None
                    self._write_bias(node, total, behind)
        model.recompile()

    def _grids(self, written: Written) -> Iterator[tuple[Node, Grid]]:
        at = {point.expr: written.grids[point.grid] for point in written.points.points}
        for node in self._nodes.values():
            expr = written.points.sources.get(self._reading(node))
            if expr in at:
                yield node, at[expr]

    def _write_weights(self, node: Node, stored: Expr, before: Expr) -> None:
        """``before`` is what the weights were read as, and ``stored`` what became of that."""
        if not is_call(stored, "dequantize") or is_call(before, "dequantize"):
            return
        steps, scales = stored["data"], stored["input_scale"]
        if not isinstance(steps, Constant) or not isinstance(scales, Constant):
            return  # a product of two values
        each, rank = scales.value.reshape(-1), steps.value.ndim
        floats = steps.value * along(each.astype(np.float64), rank, stored.attrs["axis"] % rank)
        while is_call(before, "transpose", "reshape"):
            if is_call(before, "transpose"):
                floats = floats.transpose(np.argsort(before.attrs["axes"]))
            before = before["data"]
            floats = floats.reshape([int(size or 0) for size in before.type.shape])
        weights = self._reading.nodes[before]
        new = self._constant(node, "weight", floats)
        node.replace_input_with(weights, new)
        self._forget(weights)
        self.scales[new] = each

    def _write_bias(self, node: Node, total: Call, behind: Array | None) -> None:
        """``total`` is added to the sums of a layer's node. A part of that, ``behind`` it, is added
        by a node after it, which goes on to, or adds all where the layer takes no bias."""
        value, name = _addend(total).reshape(-1), _BIASES.get(operator_of(node), "bias")
        after = self._nodes[total.name]
        if name not in _arguments(node) and operator_of(after) == "aten.add":
            first = after.args[0]
            known = isinstance(first, Node) and self._reading.known(first) is not None
            self._set(after, "self" if known else "other", value)
            return
        value = value if behind is None else value - behind.reshape(-1)
        if name in _arguments(node):
            self._set(node, name, value)
        else:
            self._add_behind(node, value)

    def _add_behind(self, node: Node, value: Array) -> None:
        """A bias of a node that takes none: a node after it adds that."""
        new = self._constant(node, "bias", value)
        with self._model.graph.inserting_after(node):
            adding = self._model.graph.call_function(torch.ops.aten.add.Tensor, (node, new))
        adding.meta = dict(node.meta)
        node.replace_all_uses_with(adding, lambda user: user is not adding)
        if node in self.grids:
            self.grids[adding] = self.grids.pop(node)

    def _set(self, node: Node, name: str, value: Array) -> None:
        """Gives an argument of a node another constant; by place, as torchao wants it."""
        given, names = arguments_of(node), _arguments(node)
        old, given[name] = given[name], self._constant(node, name, value)
        places = max(len(node.args), names.index(name) + 1)
        node.kwargs = {each: arg for each, arg in node.kwargs.items() if each not in names[:places]}
        node.args = tuple(given[each] for each in names[:places])
        if isinstance(old, Node):
            self._forget(old)

    def _constant(self, before: Node, kind: str, value: Array) -> Node:
        """A new constant, read in front of a node."""
        names = (f"fitted_{kind}_{number}" for number in count())
        name = next(each for each in names if not hasattr(self._model, each))
        tensor = torch.from_numpy(np.ascontiguousarray(value, np.float32))
        self._model.register_buffer(name, tensor)
        with self._model.graph.inserting_before(before):
            node = self._model.graph.get_attr(name)
        node.meta["val"] = before.meta["val"].new_empty(tensor.shape)
        return node

    def _forget(self, node: Node) -> None:
        """Leaves out a constant that nobody reads any more."""
        if not node.users:
            self._model.graph.erase_node(node)


def _arguments(node: Node) -> list[str]:
    return [each.name for each in node.target._schema.arguments]


def _biases(result: Iterable[Expr]) -> Iterator[tuple[Expr, Call]]:
    """The sums of products, and the call that adds a constant to them."""
    for expr in filter(_is_addition, result):
        (below,) = (each for each in expr.args if not isinstance(each, Constant))
        below = below["data"] if is_call(below, "reshape") else below
        if is_call(below, *PRODUCTS):
            yield below, expr


def _is_addition(expr: Expr) -> TypeGuard[Call]:
    """Whether a call adds a constant."""
    return is_call(expr, "bias_add", "add") and any(isinstance(e, Constant) for e in expr.args)


def _addend(addition: Call) -> Array:
    return next(each.value for each in addition.args if isinstance(each, Constant))
