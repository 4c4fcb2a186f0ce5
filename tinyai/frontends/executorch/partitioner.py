"""Which nodes of an edge program tinyai takes: those that its builders can build.

There is no list of conditions. Nodes that are read are grouped, each group is built up to its C,
and what fails leaves it with the reason, until nothing fails.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import executorch.kernels.quantized  # noqa: F401  # kernels of pairs that stay outside
import torch
from executorch.exir.backend import partitioner as interface
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.utils import tag_constant_data
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from tinyai.backend import compile_once
from tinyai.backend.pipeline import Compiled
from tinyai.boundary import NO_CODE, OWN_FAULT
from tinyai.codegen.c import identifier
from tinyai.errors import BoundaryError, DefectError, OptionError, TinyAIError
from tinyai.frontends.executorch.edge import ARITHMETIC, built
from tinyai.frontends.executorch.operators import KEPT_WHOLE, READERS
from tinyai.frontends.executorch.reader import (
    QUANTIZATION,
    Reading,
    constants_of,
    mutable_of,
    operator_of,
    type_of,
)
from tinyai.patterns import computes
from tinyai.qdq import Rewriting
from tinyai.report import HostRow, Reason, RegionRow, Report
from tinyai.source import Refusal, fixed_type
from tinyai.target import Target

# The name of the class of the back end: what the runtime asks for.
BACKEND = "TinyAIExecuTorchBackend"
# Its compile spec that is no option of ``tinyai.Target``.
STATIC = "static"


class TinyAIPartitioner(interface.Partitioner):  # type: ignore[misc]
    """Gives to tinyai what it can build, and leaves the rest to other partitioners or to the host.

    ``options`` are those of ``tinyai.Target`` (``isa``, ``arch``, ``threads``, ``tuning``, limits).
    ``operators_not_to_delegate`` are names such as "aten.add" or "aten.add.Tensor". With
    ``strict`` an operator that computes outside of a delegate is a ``BoundaryError`` with the
    report of ``explain``. With ``static`` delegates are C packages that an application links
    (``tinyai.executorch.write_static``); a text is what their names begin with, else "net".

    Raises ``OptionError`` for options that are none.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        operators_not_to_delegate: Collection[str] = (),
        static: bool | str = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.target = target_of(options)
        self.specs = [*compile_specs_of(self.target), *specs_of_static(static)]
        self.strict, self.without = strict, checked_names(operators_not_to_delegate)

    def partition(self, exported_program: ExportedProgram) -> interface.PartitionResult:
        division = divide(exported_program, self.target, self.without)
        if self.strict:
            require_all(division)
        spec = interface.DelegationSpec(BACKEND, self.specs)
        tags = {}
        for number, part in enumerate(division.parts):
            tag = f"tinyai_{number}"
            tags[tag] = spec
            for node in part.nodes:
                node.meta["delegation_tag"] = tag
        tag_constant_data(exported_program)
        return interface.PartitionResult(exported_program, tags)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[Any], Callable[[Node], bool] | None]:
        """Operators that are read whole, where they are quantized: of floats others make more.
        What remains whole is an error of ExecuTorch's, and of constants nobody makes integers."""
        inputs = set(ep.graph_signature.user_inputs)
        return list(KEPT_WHOLE), lambda node: _is_quantized(node) and _reads(node, inputs)


def _is_quantized(node: Node) -> bool:
    """Whether an operator reads nothing but dequantized values."""
    read = [each for each in node.all_input_nodes if each.op == "call_function"]
    return bool(read) and all(
        ".dequantize_" in operator_of(each)
        or (operator_of(each) == "getitem" and isinstance(each.args[0], Node))
        for each in read
    )


def _reads(node: Node, inputs: set[str]) -> bool:
    """Whether a value depends on one of the inputs of these names."""
    seen, todo = {node}, [node]
    while todo:
        below = [each for each in todo.pop().all_input_nodes if each not in seen]
        if any(each.op == "placeholder" and each.name in inputs for each in below):
            return True
        seen.update(below)
        todo += below
    return False


def target_of(options: dict[str, Any]) -> Target:
    """Raises ``OptionError`` for an option that is none, or a rounding that is not PyTorch's."""
    asked = options.pop("rounding", ARITHMETIC.mode)
    if asked != ARITHMETIC.mode:
        raise OptionError("option 'rounding'", found=asked, allowed=ARITHMETIC.mode)
    return Target.from_options({**options, "rounding": ARITHMETIC.mode})


def compile_specs_of(target: Target) -> list[CompileSpec]:
    """What of a target is not as it is without a word."""
    usual = Target().options()
    said = {name: text for name, text in target.options().items() if text != usual[name]}
    return [CompileSpec(name, text.encode()) for name, text in sorted(said.items())]


def specs_of_static(static: bool | str) -> list[CompileSpec]:
    """Raises ``OptionError`` for what no name in C begins with."""
    if not static:
        return []
    name = "1" if static is True else identifier(static, "option 'static'")
    return [CompileSpec(STATIC, name.encode())]


def checked_names(names: Collection[str]) -> frozenset[str]:
    """Raises ``OptionError`` for what are no names."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise OptionError(
            "operators_not_to_delegate", found=repr(names), allowed='names, such as ("aten.add",)'
        )
    return frozenset(names)


# --- The division of a program -------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A delegate to be: its nodes in the order of the graph, and its C."""

    nodes: tuple[Node, ...]
    compiled: Compiled


@dataclass(frozen=True)
class Division:
    """What of a program is delegated, and why the rest is not."""

    program: ExportedProgram
    parts: tuple[Part, ...]
    reasons: dict[Node, Reason] = field(repr=False)

    @property
    def left(self) -> tuple[Node, ...]:
        """The operators outside of delegates that are computed at run time."""
        inside = {node for part in self.parts for node in part.nodes}
        reading = Reading(self.program, READERS)
        return tuple(
            node
            for node in self.program.graph.nodes
            if node.op == "call_function"
            and node not in inside
            and reading.known(node) is None
            and operator_of(node) != "getitem"
        )


def divide(program: ExportedProgram, target: Target, without: Collection[str] = ()) -> Division:
    """The parts of a program that tinyai can build."""
    reasons: dict[Node, Reason] = {}
    reading = Reading(program, READERS)
    reading.read()
    barred = mutable_of(program)
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        if names_of(node) & frozenset(without):
            refusal = Refusal("operators_not_to_delegate", operator_of(node), "others")
            reasons[node] = _reason(node, refusal)
        elif barred & set(node.all_input_nodes):
            found = "a buffer that the program changes"
            reasons[node] = _reason(node, Refusal("operand", found, "constants and inputs"))
        elif node in reading.refused:
            reasons[node] = _reason(node, reading.refused[node])
    while True:
        taken = _without_loose_ends(program, set(_calls(program)) - reasons.keys())
        parts = []
        failed: dict[Node, Reason] = {}
        for nodes in _groups(program, taken):
            tried = _tried(program, nodes, target)
            if isinstance(tried, Compiled):
                parts.append(Part(nodes, tried))
            else:
                failed |= tried
        if not failed:
            return Division(program, tuple(parts), reasons)
        reasons |= failed


def names_of(node: Node) -> frozenset[str]:
    """What an operator may be called: with its overload or without."""
    name = operator_of(node)
    overload = getattr(getattr(node.target, "_schema", None), "overload_name", "") or "default"
    return frozenset((name, f"{name}.{overload}"))


def _calls(program: ExportedProgram) -> Iterator[Node]:
    return (node for node in program.graph.nodes if node.op == "call_function")


def _is(node: Node, kind: str) -> bool:
    return operator_of(node).startswith(f"{QUANTIZATION}{kind}")


def _without_loose_ends(program: ExportedProgram, taken: set[Node]) -> set[Node]:
    """``taken`` without pairs that belong to operators outside: another back end that knows
    quantization takes these together."""
    constants = constants_of(program)
    left = set(taken)
    while True:
        loose = {node for node in left if _is_loose(node, left, constants)}
        if not loose:
            return left
        left -= loose


def _is_loose(node: Node, taken: set[Node], constants: Collection[Node]) -> bool:
    users = set(node.users)
    if _is(node, "dequantize"):
        return not users & taken and not any(user.op == "output" for user in users)
    if _is(node, "quantize"):
        source = node.args[0]
        return isinstance(source, Node) and source.op == "call_function" and source not in taken
    read = [each for each in node.all_input_nodes if each not in constants]
    # A part of a result, and what is made of constants, go with those around them.
    if operator_of(node) == "getitem":
        return node.args[0] not in taken
    fixed = bool(node.all_input_nodes) and not read
    return fixed and not users & taken


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
        if any(_computes(node) for node in nodes):
            yield nodes


def _computes(node: Node) -> bool:
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


def _tried(
    program: ExportedProgram, nodes: tuple[Node, ...], target: Target
) -> Compiled | dict[Node, Reason]:
    """The C of a group; or what has to leave it, and why."""
    reading, inputs, outputs = _read(program, nodes)
    floats = _floats(reading, outputs, nodes)
    if floats:
        return floats
    try:
        graph = built(reading, inputs, outputs)
    except Refusal as refusal:
        return {node: _reason(node, refusal) for node in _blamed(refusal, reading, nodes)}
    try:
        return compile_once(graph, target)
    except OptionError:
        raise
    except TinyAIError as error:
        last = _last_of_fewest(program, nodes, target)
        return {last: _unbuilt(last, error)}


def _read(
    program: ExportedProgram, nodes: Collection[Node]
) -> tuple[Reading, list[Node], list[Node]]:
    """A group's expressions, the nodes that it reads from outside, and those that others read."""
    inside = set(nodes)
    reading = Reading(program, READERS, inside)
    reading.read()
    read = {each for node in nodes for each in node.all_input_nodes} - inside
    inputs = [node for node in program.graph.nodes if node in read & reading.parameters.keys()]
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    return reading, inputs, outputs


def _floats(reading: Reading, outputs: Sequence[Node], nodes: Sequence[Node]) -> dict[Node, Reason]:
    """The operators of a group that stay float, and those of several results that are not one."""
    by_name = {node.name: node for node in nodes}
    found = {
        node: _reason(node, Refusal("result", "several tensors", "one tensor"))
        for node in outputs
        if not isinstance(node.meta.get("val"), torch.Tensor)
    }
    if found:
        return found
    integers = Rewriting(reading.result(outputs), ARITHMETIC).result
    again = Rewriting(integers, ARITHMETIC)
    for each in again.left():
        if each.name in by_name:
            node = by_name[each.name]
            clause, _, rest = each.reason.partition(": found ")
            what, _, allowed = rest.partition(", allowed ")
            allowed = allowed or "dequantize before it and quantize after it"
            found[node] = _reason(node, Refusal(clause, what or "float32", allowed))
    return found


def _blamed(refusal: Refusal, reading: Reading, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that a refusal is about: a call's, or those that read an input of no known type."""
    if refusal.call is not None:
        named = [node for node in nodes if node.name == refusal.call.name]
        return named or [nodes[-1]]
    name = refusal.clause.partition("'")[2].partition("'")[0]
    users = [n for n in nodes if any(each.name == name for each in n.all_input_nodes)]
    return users or [nodes[-1]]


def _last_of_fewest(program: ExportedProgram, nodes: Sequence[Node], target: Target) -> Node:
    """The last node of the shortest beginning of a group that cannot be built."""

    def fails(count: int) -> bool:
        reading, inputs, outputs = _read(program, nodes[:count])
        try:
            compile_once(built(reading, inputs, outputs), target)
        except Refusal:
            return False  # a beginning that ends in floats: another reason
        except TinyAIError:
            return True
        return False

    place = bisect.bisect_left(range(1, len(nodes)), True, key=fails)
    return nodes[place]


def _reason(node: Node, refusal: Refusal) -> Reason:
    name = operator_of(node)
    known = name in READERS
    kind, row = ("operator", name) if known else ("none", "")
    return Reason(kind, row, int(known), refusal.clause, refusal.found, refusal.allowed)


def _unbuilt(node: Node, error: TinyAIError) -> Reason:
    own = isinstance(error, DefectError)
    what = error.what.splitlines()[0]
    found = f"{what}: {error.found}" if error.found else what
    allowed = "C for whatever is taken" if own else str(error.allowed)
    clause = OWN_FAULT if own else NO_CODE
    return Reason("operator", operator_of(node), 1, clause, found, allowed)


# --- The report ----------------------------------------------------------------------------------


def explain(
    edge: Any,
    *,
    operators_not_to_delegate: Collection[str] = (),
    method: str = "",
    **options: Any,
) -> Report:
    """What ``TinyAIPartitioner`` would leave outside of delegates, and why, and the delegates.

    ``edge`` is what ``executorch.exir.to_edge`` returns, or ``to_edge_transform_and_lower`` without
    a partitioner, or an exported program of it; ``method`` is one of its methods, without it the
    only one. Raises ``OptionError`` for what is neither.
    """
    program = _program(edge, method)
    without = checked_names(operators_not_to_delegate)
    return report_of(divide(program, target_of(options), without))


def _program(edge: Any, method: str) -> ExportedProgram:
    if isinstance(edge, ExportedProgram):
        return edge
    methods = getattr(edge, "methods", None)
    names = (
        sorted(methods) if isinstance(methods, Collection) else sorted(methods() if methods else ())
    )
    name = method or (names[0] if len(names) == 1 else "")
    if name not in names:
        raise OptionError(
            "method of an edge program" if names else "edge program",
            found=repr(method or names or type(edge).__name__),
            allowed=", ".join(names) or "what executorch.exir.to_edge returns",
            hint='explain(edge, method="forward")' if names else None,
        )
    program: ExportedProgram = edge.exported_program(name)
    return program


def report_of(division: Division) -> Report:
    """The report of a program's division."""
    rows = tuple(_region_row(n, part) for n, part in enumerate(division.parts))
    return Report(tuple(_host_row(node, division) for node in division.left), rows)


def require_all(division: Division) -> None:
    """Raise ``BoundaryError`` where an operator that computes stays outside."""
    report = report_of(division)
    if report.computing:
        names = Counter(row.operator for row in report.computing)
        raise BoundaryError(
            "strict: operators that compute stay outside of the delegates",
            report=report,
            found=", ".join(f"{count} {name}" for name, count in sorted(names.items())),
            allowed="none",
            hint="what the report says of each, or TinyAIPartitioner() without strict",
        )


def _host_row(node: Node, division: Division) -> HostRow:
    reason = division.reasons.get(node) or _reason(node, _left_out(node))
    try:
        of = str(type_of(node))
    except Refusal as refusal:
        of = refusal.found
    return HostRow(
        name=node.name,
        operator=operator_of(node),
        type=of,
        reason=reason,
        computes=_computes(node),
        macs=None,
        boundary_bytes=_boundary_bytes(node, division),
        hint=f"change the model so that the clause holds: {reason.clause}, {reason.allowed}",
    )


def _left_out(node: Node) -> Refusal:
    if operator_of(node).startswith(QUANTIZATION):
        return Refusal("neighbours", "operators outside of a delegate", "operators inside of one")
    return Refusal("delegate", "one that computes nothing", "operators that compute")


def _boundary_bytes(node: Node, division: Division) -> int | None:
    inside = {each for part in division.parts for each in part.nodes}
    crossing = [each for each in node.all_input_nodes if each in inside]
    crossing += [node] * any(user in inside for user in node.users)
    try:
        return sum(fixed_type(type_of(each)).bytes for each in crossing)
    except Refusal:
        return None


def _region_row(number: int, part: Part) -> RegionRow:
    counts = Counter(operator_of(node) for node in part.nodes)
    compiled = part.compiled
    return RegionRow(
        symbol=f"tinyai_{number}",
        composites=(),
        operators=tuple(sorted(counts.items())),
        macs=compiled.graph.macs(),
        weight_bytes=compiled.source.weight_bytes,
        arena_bytes=compiled.plan.arena_bytes,
        arena_lower_bound=compiled.plan.lower_bound,
        layers=len(compiled.graph.nodes),
        dropped=compiled.graph.dropped,
    )
