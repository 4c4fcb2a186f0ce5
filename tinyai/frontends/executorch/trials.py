"""Whether a group of nodes can be built, up to its C, and which of them are to blame if not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from tinyai.backend.pipeline import Compiled
from tinyai.errors import TinyAIError, owning_faults
from tinyai.frontends.executorch.edge import ARITHMETIC, built, integers_of
from tinyai.frontends.executorch.grouping import is_pair, node_computes
from tinyai.frontends.executorch.reader import Reading, operator_of
from tinyai.frontends.executorch.reasons import reason_of, why_float
from tinyai.ir import Graph
from tinyai.partition.trial import to_blame, tried, unbuilt
from tinyai.qdq import floats_of
from tinyai.report import Reason
from tinyai.source import Expr, Refusal
from tinyai.target import Target


class _Left(Exception):
    """What cannot be read and has to leave a group, and why."""

    def __init__(self, reasons: dict[Node, Reason]) -> None:
        super().__init__(", ".join(node.name for node in reasons))
        self.reasons = reasons


class Group:
    """Nodes of a reading, in the order of the graph, that are to be built together."""

    def __init__(self, reading: Reading, nodes: tuple[Node, ...]) -> None:
        self.reading, self.nodes = reading, nodes
        self._inside = set(nodes)

    def tried(self, target: Target) -> Compiled | dict[Node, Reason]:
        """The C; or what has to leave the group, and why."""
        outputs = [n for n in self.nodes if any(user not in self._inside for user in n.users)]
        try:
            made = tried(lambda: self._graph(self.nodes, outputs), target, named=False)
        except _Left as left:
            return left.reasons
        return made if isinstance(made, Compiled) else self._without_code(made, target)

    def _graph(self, nodes: Collection[Node], outputs: Sequence[Node]) -> Graph:
        """The graph of some nodes, from what they read from outside. Raises ``_Left``."""
        with owning_faults(f"the graph of {outputs[-1].name}", _Left):
            part = self.reading.part(nodes)
            several = Refusal("result", "several tensors", "one tensor")
            left = {
                node: reason_of(node, several)
                for node in outputs
                if not isinstance(node.meta.get("val"), torch.Tensor)
            }
            if not left:
                integers = integers_of(part, outputs)
                left = floats_below(integers, self.nodes)
            if left:
                raise _Left(left)
            try:
                return built(part, part.inputs, integers)
            except Refusal as refusal:
                blamed = _blamed(refusal, self.nodes)
                raise _Left({node: reason_of(node, refusal) for node in blamed}) from None

    def _without_code(self, whole: TinyAIError, target: Target) -> dict[Node, Reason]:
        """What has to leave a group that can be read and not be built."""

        def failure(stages: Sequence[_Stage]) -> TinyAIError | None:
            nodes = {node for stage in stages for node in stage.nodes}
            ends = [stage.end for stage in stages if not nodes.issuperset(stage.end.users)]
            try:
                made = tried(lambda: self._graph(nodes, ends), target, named=False)
            except _Left:
                return None  # outside of the whole group it is another matter
            return made if isinstance(made, TinyAIError) else None

        blamed = to_blame(self._stages(), whole, lambda stage: failure([stage]), failure)
        return {
            node: unbuilt("operator", operator_of(node), len(stage.blamed), error)
            for stage, error in blamed
            for node in stage.blamed
        }

    def _stages(self) -> list[_Stage]:
        """What a group can be cut into: no float goes from one to another."""
        found = []
        for end in self.nodes:
            if is_pair(end, "quantize") or not self._inside.issuperset(end.users):
                nodes = self._before(end)
                computing = (node for node in nodes if node_computes(node))
                blamed = tuple(node for node in computing if self.reading.known(node) is None)
                found.append(_Stage(end, nodes, blamed or (end,)))
        return found

    def _before(self, end: Node) -> tuple[Node, ...]:
        """What of the group makes a value from others that are quantized."""
        seen, todo = {end}, [end]
        while todo:
            for each in todo.pop().all_input_nodes:
                if each in self._inside and each not in seen and not is_pair(each, "quantize"):
                    seen.add(each)
                    todo.append(each)
        return tuple(node for node in self.nodes if node in seen)


@dataclass(frozen=True)
class _Stage:
    """The nodes that make the value of one of them, ``end``, which comes last. Those of ``blamed``
    leave a group where a stage has no C; its pairs go with them."""

    end: Node
    nodes: tuple[Node, ...]
    blamed: tuple[Node, ...]


def floats_below(integers: Expr, nodes: Collection[Node]) -> dict[Node, Reason]:
    """Those of ``nodes`` that stayed float in what was made of them, and why."""
    by_name = {node.name: node for node in nodes}
    return {
        node: reason_of(node, why_float(node, refusal, nodes))
        for call, refusal in floats_of(integers, ARITHMETIC)
        if (node := by_name.get(call.name)) is not None
    }


def _blamed(refusal: Refusal, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that a refusal is about: a call's, or those that read an input of no known type."""
    if refusal.call is not None:
        named = [node for node in nodes if node.name == refusal.call.name]
        return named or [nodes[-1]]
    name = refusal.clause.partition("'")[2].partition("'")[0]
    users = [n for n in nodes if any(each.name == name for each in n.all_input_nodes)]
    return users or [nodes[-1]]
