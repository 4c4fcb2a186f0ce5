"""Which nodes of an edge program tinyai takes: those that its builders can build.

There is no list of conditions. Nodes that are read are grouped, each group is built up to its C,
and what fails leaves it with the reason, until nothing fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from tinyai.backend.pipeline import Compiled
from tinyai.boundary import such_as
from tinyai.errors import OptionError, TinyAIError, owning_faults
from tinyai.frontends.executorch.edge import ARITHMETIC, built, ends_of
from tinyai.frontends.executorch.hints import NOT_QUANTIZED, NOT_TO_DELEGATE
from tinyai.frontends.executorch.operators import READERS
from tinyai.frontends.executorch.reader import (
    QUANTIZATION,
    Reading,
    constants_of,
    operator_of,
)
from tinyai.ir import Graph
from tinyai.patterns import computes
from tinyai.qdq import Rewriting
from tinyai.qdq.operands import operator_name
from tinyai.report import Reason
from tinyai.source import Expr, Refusal, Tuple
from tinyai.target import Target
from tinyai.trial import to_blame, tried, unbuilt


@dataclass(frozen=True)
class Part:
    """A delegate to be: its nodes in the order of the graph, and its C."""

    nodes: tuple[Node, ...]
    compiled: Compiled


@dataclass(frozen=True)
class Division:
    """What of a program is delegated, and why the rest is not."""

    program: ExportedProgram
    target: Target
    parts: tuple[Part, ...]
    reasons: dict[Node, Reason] = field(repr=False)

    @property
    def left(self) -> tuple[Node, ...]:
        """The operators outside of delegates, of other back ends too, that are computed at run
        time."""
        inside = {node for part in self.parts for node in part.nodes}
        reading = Reading(self.program, READERS)
        return tuple(
            node
            for node in _calls(self.program)
            if node not in inside
            and node.target is not executorch_call_delegate
            and operator_of(node) != "getitem"
            and reading.known(node) is None
        )


def divide(program: ExportedProgram, target: Target, without: Collection[str] = ()) -> Division:
    """The parts of a program that tinyai can build, without the operators of the names
    ``without``."""
    reasons = _barred(program, frozenset(without))
    while True:
        taken = _without_loose_ends(program, set(_calls(program)) - reasons.keys())
        groups = [_Group(program, nodes) for nodes in _groups(program, taken)]
        found = [(group, group.tried(target)) for group in groups]
        failed = [why for _, why in found if not isinstance(why, Compiled)]
        if not failed:
            parts = (Part(g.nodes, made) for g, made in found if isinstance(made, Compiled))
            return Division(program, target, tuple(parts), reasons)
        for each in failed:
            reasons |= each


def _barred(program: ExportedProgram, without: frozenset[str]) -> dict[Node, Reason]:
    """The operators that no group may have, each with the reason."""
    reading = Reading(program, READERS)
    reading.read()
    found = {}
    for node in _calls(program):
        if reading.known(node) is not None:
            continue  # a constant by now: a delegate has its value, not what computes it
        if names_of(node) & without:
            found[node] = Refusal(NOT_TO_DELEGATE, operator_of(node), "others")
        elif node in reading.refused:
            found[node] = _with_names(operator_of(node), reading.refused[node])
    return {node: reason_of(node, refusal) for node, refusal in found.items()}


def _with_names(name: str, refusal: Refusal) -> Refusal:
    """Of an operator that nobody reads, with those that are read and have names like it."""
    if name in READERS:
        return refusal
    like = such_as(name, sorted(READERS))
    return Refusal(refusal.clause, refusal.found, f"one that tinyai reads{like}")


def read_as_integers(program: ExportedProgram, without: Collection[str] = ()) -> set[Node]:
    """The operators of a program that become integers, as far as reading tells: nothing is built.
    It may be a program of ATen, before anything is taken apart."""
    barred = _barred(program, frozenset(without))
    reading = Reading(program, READERS)
    reading.read()
    parts = tuple(map(reading, ends_of(program)[1]))
    whole = Tuple(tuple(of for part in parts for of in part.types), load=lambda: parts)
    taken = set(_calls(program)) - barred.keys()
    return taken - _floats_below(whole, taken).keys()


def checked_names(names: Any) -> frozenset[str]:
    """Raises ``OptionError`` for what are no names of operators."""
    several = isinstance(names, Collection) and not isinstance(names, str | bytes)
    for name in names if several else [names]:
        if not several or not isinstance(name, str) or not _is_operator(name):
            raise OptionError(
                "operators_not_to_delegate",
                found=repr(name),
                allowed='names of operators, such as ("aten.add", "aten.linear.default")',
                hint="tinyai.executorch.explain shows the names that a program has",
            )
    return frozenset(names)


def _is_operator(name: str) -> bool:
    """Whether torch has an operator of a name, with its overload or without."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None) if part.isidentifier() else None
    return name.count(".") in (1, 2) and found is not None


def names_of(node: Node) -> frozenset[str]:
    """What an operator may be called: with its overload or without."""
    name = operator_of(node)
    overload = getattr(getattr(node.target, "_schema", None), "overload_name", "") or "default"
    return frozenset((name, f"{name}.{overload}"))


def reason_of(node: Node, refusal: Refusal) -> Reason:
    """A refusal for the report."""
    name = operator_of(node)
    known = name in READERS
    kind, row = ("operator", name) if known else ("none", "")
    return Reason(kind, row, int(known), refusal.clause, refusal.found, refusal.allowed)


# --- Groups --------------------------------------------------------------------------------------


def _calls(program: ExportedProgram) -> Iterator[Node]:
    return (node for node in program.graph.nodes if node.op == "call_function")


def _is(node: Node, kind: str) -> bool:
    return operator_of(node).startswith(f"{QUANTIZATION}{kind}")


def _without_loose_ends(program: ExportedProgram, taken: set[Node]) -> set[Node]:
    """``taken`` without pairs that belong to operators outside: another back end that knows
    quantization takes these together."""
    fixed = set(constants_of(program))
    for node in _calls(program):  # also those that read nothing at all
        if fixed.issuperset(node.all_input_nodes):
            fixed.add(node)
    left = set(taken)
    while True:
        loose = {node for node in left if _is_loose(node, left, fixed)}
        if not loose:
            return left
        left -= loose


def _is_loose(node: Node, taken: set[Node], fixed: Collection[Node]) -> bool:
    users = set(node.users)
    if _is(node, "dequantize"):
        return not users & taken and not any(user.op == "output" for user in users)
    if _is(node, "quantize"):
        source = node.args[0]
        return isinstance(source, Node) and source.op == "call_function" and source not in taken
    # A part of a result, and what is made of constants, go with those around them.
    if operator_of(node) == "getitem":
        return node.args[0] not in taken
    return node in fixed and not users & taken


class _Taken(OperatorSupportBase):  # type: ignore[misc]
    def __init__(self, taken: set[Node]) -> None:
        self.taken = taken

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        return node in self.taken


def _groups(program: ExportedProgram, taken: set[Node]) -> Iterator[tuple[Node, ...]]:
    """Groups without a way from one to itself through others; those that compute something."""
    module: GraphModule = program.graph_module
    proposed = CapabilityBasedPartitioner(
        module, _Taken(taken), allows_single_node_partition=True
    ).propose_partitions()
    order = {node: place for place, node in enumerate(program.graph.nodes)}
    groups = [tuple(sorted(each.nodes, key=order.__getitem__)) for each in proposed]
    for nodes in sorted(groups, key=lambda group: order[group[0]]):
        if any(node_computes(node) for node in nodes):
            yield nodes


def node_computes(node: Node) -> bool:
    """Whether an operator does more than quantize, or move values to another place."""
    name = operator_of(node)
    if name in ("getitem", *MOVING) or name.startswith(QUANTIZATION):
        return False
    return computes(name)


_COPIED = ("view", "permute", "squeeze", "unsqueeze", "expand", "alias", "slice", "select", "t")
MOVING = frozenset(
    (
        *(f"aten.{name}{copy}" for name in (*_COPIED, "transpose") for copy in ("", "_copy")),
        *("aten.clone", "dim_order_ops._to_dim_order_copy", "dim_order_ops._clone_dim_order"),
    )
)


# --- Trials --------------------------------------------------------------------------------------


class _Left(Exception):
    """What cannot be read and has to leave a group, and why."""

    def __init__(self, reasons: dict[Node, Reason]) -> None:
        super().__init__(", ".join(node.name for node in reasons))
        self.reasons = reasons


class _Group:
    """Nodes in the order of the graph that are to be built together."""

    def __init__(self, program: ExportedProgram, nodes: tuple[Node, ...]) -> None:
        self.program, self.nodes = program, nodes
        self._inside = set(nodes)

    def tried(self, target: Target) -> Compiled | dict[Node, Reason]:
        """The C; or what has to leave the group, and why."""
        outputs = [n for n in self.nodes if any(user not in self._inside for user in n.users)]
        try:
            made = tried(lambda: self._graph(self.nodes, outputs), target)
        except _Left as left:
            return left.reasons
        return made if isinstance(made, Compiled) else self._without_code(made, target)

    def _graph(self, nodes: Collection[Node], outputs: Sequence[Node]) -> Graph:
        """The graph of some nodes, from what they read from outside. Raises ``_Left``."""
        with owning_faults(f"the graph of {outputs[-1].name}", _Left):
            reading = Reading(self.program, READERS, nodes)
            reading.read()
            floats = _floats(reading, outputs, self.nodes)
            if floats:
                raise _Left(floats)
            read = {each for node in nodes for each in node.all_input_nodes} - set(nodes)
            inputs = [n for n in self.program.graph.nodes if n in read & reading.parameters.keys()]
            try:
                return built(reading, inputs, outputs)
            except Refusal as refusal:
                blamed = _blamed(refusal, self.nodes)
                raise _Left({node: reason_of(node, refusal) for node in blamed}) from None

    def _without_code(self, whole: TinyAIError, target: Target) -> dict[Node, Reason]:
        """What has to leave a group that can be read and not be built."""

        def failure(stages: Sequence[_Stage]) -> TinyAIError | None:
            nodes = {node for stage in stages for node in stage.nodes}
            ends = [stage.end for stage in stages if not nodes.issuperset(stage.end.users)]
            try:
                made = tried(lambda: self._graph(nodes, ends), target)
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
        ends = (
            node
            for node in self.nodes
            if _is(node, "quantize") or not self._inside.issuperset(node.users)
        )
        return [_Stage(end, self._before(end)) for end in ends]

    def _before(self, end: Node) -> tuple[Node, ...]:
        """What of the group makes a value from others that are quantized."""
        seen, todo = {end}, [end]
        while todo:
            for each in todo.pop().all_input_nodes:
                if each in self._inside and each not in seen and not _is(each, "quantize"):
                    seen.add(each)
                    todo.append(each)
        return tuple(node for node in self.nodes if node in seen)


@dataclass(frozen=True)
class _Stage:
    """The nodes that make the value of one of them, ``end``, which comes last."""

    end: Node
    nodes: tuple[Node, ...]

    @property
    def blamed(self) -> tuple[Node, ...]:
        """The nodes that leave a group where a stage has no C; its pairs go with them."""
        return tuple(node for node in self.nodes if node_computes(node)) or (self.end,)


def _floats(reading: Reading, outputs: Sequence[Node], nodes: Sequence[Node]) -> dict[Node, Reason]:
    """The operators of a group that stay float, and those of several results that are not one."""
    several = {
        node: reason_of(node, Refusal("result", "several tensors", "one tensor"))
        for node in outputs
        if not isinstance(node.meta.get("val"), torch.Tensor)
    }
    if several:
        return several
    return _floats_below(reading.result(outputs), nodes)


def _floats_below(root: Expr, nodes: Collection[Node]) -> dict[Node, Reason]:
    by_name = {node.name: node for node in nodes}
    integers = Rewriting(root, ARITHMETIC).result
    return {
        by_name[call.name]: reason_of(
            by_name[call.name], _why_float(by_name[call.name], refusal, nodes)
        )
        for call, refusal in Rewriting(integers, ARITHMETIC).floats()
        if call.name in by_name
    }


def _why_float(node: Node, refusal: Refusal | None, inside: Collection[Node]) -> Refusal:
    """What keeps an operator from becoming one of integers; ``inside`` is its group."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.dtype != torch.float32:
        dtype = str(value.dtype).removeprefix("torch.")
        return Refusal("dtype of the result", dtype, "float32, quantized")
    if refusal is None:
        users = [user for user in node.users if not _is(user, "quantize")]
        found = f"read as float32 by {operators_of(users)}"
        return Refusal(NOT_QUANTIZED, found, "a quantize after it, and no other reader")
    outside = [each for each in node.all_input_nodes if each not in inside]
    if refusal.found == operator_name(Expr(())) and outside:
        return Refusal(refusal.clause, f"float32 of {operators_of(outside)}", refusal.allowed)
    return refusal


def operators_of(nodes: Iterable[Node]) -> str:
    """What nodes are, for messages: operators, or the ends of a program."""
    ends = {"placeholder": "an input of the program", "output": "an output of the program"}
    makers = (node.args[0] if operator_of(node) == "getitem" else node for node in nodes)
    found = {ends.get(node.op) or operator_of(node) for node in makers if isinstance(node, Node)}
    return ", ".join(sorted(found))


def _blamed(refusal: Refusal, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that a refusal is about: a call's, or those that read an input of no known type."""
    if refusal.call is not None:
        named = [node for node in nodes if node.name == refusal.call.name]
        return named or [nodes[-1]]
    name = refusal.clause.partition("'")[2].partition("'")[0]
    users = [n for n in nodes if any(each.name == name for each in n.all_input_nodes)]
    return users or [nodes[-1]]
