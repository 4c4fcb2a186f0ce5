"""A whole model tried as one graph: the network, or all that keeps it from being one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tinyai.errors import owning_faults
from tinyai.frontends.integer_ends import with_integer_ends
from tinyai.frontends.source_model import End, SourceModel, unread
from tinyai.ir import Graph, verify
from tinyai.lowering import (
    FLOATS,
    Composite,
    Walk,
    composed,
    refusal_of_composite,
    require_requantized_means,
)
from tinyai.match import match
from tinyai.network import Network, Port, State
from tinyai.ops import operators_added
from tinyai.ops.gather import index_limits
from tinyai.own import NO_BACKEND, OwnBackend
from tinyai.partition.macs import macs
from tinyai.partition.reasons import Whole
from tinyai.partition.rows import float_row, host_row
from tinyai.patterns import OPERATORS, PATTERNS, computes
from tinyai.qdq import Rewriting
from tinyai.qdq.moves import MOVES_ALONE
from tinyai.qdq.operands import is_call, operator_name
from tinyai.report import HostRow, Reason
from tinyai.source import (
    Call,
    Constant,
    Expr,
    Refusal,
    Rounding,
    Tuple,
    Unread,
    fixed_type,
    post_order,
    require,
    tensors_of,
)


@dataclass(frozen=True)
class Attempt:
    """What became of a model: a network, or None. ``model`` has integers in place of pairs,
    ``refused`` are the calls in it that stay out, in the order of computation, with the report's
    rows. ``floats`` names the dtypes of a model that computes in floats alone."""

    network: Network | None
    model: SourceModel
    refused: Mapping[Call, HostRow] = field(default_factory=dict)
    floats: str = ""

    @property
    def rows(self) -> tuple[HostRow, ...]:
        return rows_once(self.refused.values())


def rows_once(rows: Iterable[HostRow]) -> tuple[HostRow, ...]:
    """One row for the calls that an operator of a file became: the first's reason, and the result
    of the last, as a product's behind a transposition of its weights."""
    several: dict[tuple[str, str | int], list[HostRow]] = {}
    for number, row in enumerate(rows):
        key = row.operator, row.name or number
        several[key] = [*several.pop(key, ()), row]
    merged = []
    for first, *others in several.values():
        each = (first, *others)
        work = [row.macs for row in each if row.macs is not None]
        known = any(row.computes for row in each)
        of = replace(first, type=each[-1].type, computes=known, macs=sum(work) if work else None)
        merged.append(of)
    return tuple(merged)


def attempt_of(
    model: SourceModel, name: str, mode: Rounding, ends: str = "model", own: OwnBackend = NO_BACKEND
) -> Attempt:
    """The whole of ``model`` as a network, or what keeps it from being one; arguments as those of
    ``network_of``."""
    with owning_faults(f"the graph of {name}"), operators_added(own.operators):
        result = composed(model.result, own.patterns, mode)
        as_written = mode.mode == model.framework
        rewriting = Rewriting(result, mode, model.fold, as_written=as_written)
        integers = rewriting.result
        assert isinstance(integers, Tuple)
        model = model.with_outputs(integers.fields)
        if ends == "int8":
            model = with_integer_ends(model)
        floats = _floats_alone(model)
        walk = _Attempting(name, mode, model, _reasons_of_floats(rewriting), _in_pairs(result))
        refused = walk.rows(floats)
        if refused:
            return Attempt(None, model, refused, floats)
        graph = own.passed(verify(walk.graph(end.expr for end in model.outputs)))
    inputs = _ports(graph, graph.inputs, model.inputs)
    outputs = _ports(graph, graph.outputs, model.outputs)
    own_inputs = len(inputs) - len(model.initial)
    states = tuple(
        State(port, value.astype(value.dtype.newbyteorder("<")).tobytes())
        for port, value in zip(inputs[own_inputs:], model.initial, strict=True)
    )
    network = Network(
        name,
        graph,
        inputs[:own_inputs],
        outputs[: len(outputs) - len(states)],
        rounding=mode.mode,
        kernels=own.kernels,
        states=states,
    )
    return Attempt(network, model)


def _ports(graph: Graph, tensors: Sequence[str], ends: Sequence[End]) -> tuple[Port, ...]:
    """Scales are those of the file, else what the graph knows; floats have none."""
    return tuple(
        Port(
            end.name,
            of.type,
            None if of.type.dtype.is_float else end.quant or of.quant,
            index_limits(graph, of.name),
        )
        for end, of in zip(ends, map(graph.tensors.__getitem__, tensors), strict=True)
    )


# What to do about floats between integers.
QUANTIZE_THE_REST = (
    "quantize the rest of the model too: tinyai quantize, or --calibrate; what is quantized "
    "already stays as it is"
)


class _Attempting(Walk):
    """Lowers all of a model; what is refused becomes an input, so that the rest is tried too."""

    def __init__(
        self,
        name: str,
        rounding: Rounding,
        model: SourceModel,
        reasons: Mapping[Expr, Refusal],
        in_pairs: bool,
    ) -> None:
        super().__init__(name, rounding)
        self._in_pairs = in_pairs
        self.refused: dict[Call, Refusal] = {}
        self._reasons = reasons
        self._rounding = rounding
        result, self._language = model.result, model.language
        self._calls = [each for each in post_order(result) if isinstance(each, Call)]
        self._whole = Whole.of([result], (), {}, None, rounding, model.language)
        for end in model.inputs:
            try:
                self.input(end.expr)
            except Refusal as refusal:  # such as one without elements
                self.refused[unread("input", end.expr.types, (), refusal, end.name)] = refusal
                self.tensors[end.expr] = ""
        taken = self._float_calls_taken() | self._float_ends()
        for call in self._calls:
            try:
                self._require_taken(call, taken)
                self.lower(call)
            except Refusal as refusal:
                self._refuse(call, refusal)

    def rows(self, floats: str) -> dict[Call, HostRow]:
        """The report's rows, in the order of computation."""
        if floats:
            kept = [each for each in self._calls if not moves_floats(each)]
            unread = {each: each.origin.refusal for each in kept if isinstance(each.origin, Unread)}
            return {
                each: self._row(each, unread[each])
                if each in unread
                else float_row(each, self._language)
                for each in kept
            }
        return {call: self._row(call, refusal) for call, refusal in self.refused.items()}

    def _row(self, call: Call, refusal: Refusal) -> HostRow:
        row = self._row_with_reason(call, refusal)
        pair, unread = is_call(call, "quantize", "dequantize"), isinstance(call.origin, Unread)
        if pair or unread or not _has_floats(call) or not self._in_pairs:
            return row
        return replace(row, hint=QUANTIZE_THE_REST)

    def _row_with_reason(self, call: Call, refusal: Refusal) -> HostRow:
        unread = isinstance(call.origin, Unread) or call.op not in OPERATORS
        told = unread or call in self._reasons
        if not told and self._whole.refusal(call) is not None:
            return host_row(call, self._whole)
        kind = "none" if refusal.clause == "operator" else "operator"
        row = "" if kind == "none" else call.spelled
        reason = Reason(kind, row, 1, refusal.clause, refusal.found, refusal.allowed)
        return host_row(call, self._whole, reason)

    def _float_calls_taken(self) -> set[Call]:
        """Floats are taken by the composites that begin or end with integers alone."""
        taken: set[Call] = set()
        rows = [row for row in PATTERNS if row.floats]
        for call in reversed(self._calls):
            if call not in taken and _has_floats(call):
                for row in rows:
                    calls = match(row.pattern, call)
                    if not calls or not self._owns(calls):
                        continue
                    if refusal_of_composite(row, call, self._rounding) is None:
                        taken.update(calls)
                        break
        return taken

    def _float_ends(self) -> set[Call]:
        """Moves of floats that lead to results by such moves alone: no value changes in them."""
        taken: set[Call] = set()
        for call in reversed(self._calls):
            users = self._whole.users_of(call)
            moves = call.op in MOVES_ALONE and {of.dtype for of in call.types} == {"float32"}
            if moves and taken.issuperset(users) and (users or call in self._whole.outputs):
                taken.add(call)
        return taken

    def _owns(self, calls: tuple[Call, ...]) -> bool:
        """Whether nothing else reads what a composite computes inside. A dequantize may have other
        readers: it is taken alone too."""
        inner = [call for call in calls[:-1] if call.op != "dequantize"]
        readers = {user for call in inner for user in self._whole.users_of(call)}
        return readers <= set(calls) and self._whole.outputs.isdisjoint(inner)

    def tensor(self, expr: Expr) -> str:
        name = super().tensor(expr)
        require(name != "", "operand", f"{expr.type} of an operator that stays out", "a known type")
        return name

    def _require_taken(self, call: Call, taken: set[Call]) -> None:
        if isinstance(call.origin, Unread):
            raise call.origin.refusal
        makes_floats = any(of.dtype.startswith("float") for of in call.types)
        known = call in taken or isinstance(call, Composite) or moves_floats(call)
        if makes_floats and not known:
            if call in self._reasons:
                raise self._reasons[call]
            dtypes = ", ".join(of.dtype for of in call.types)
            raise Refusal(f"dtype of {call.spelled}", dtypes, FLOATS)
        if self.arithmetic.needs_requantized_means and call.op == "mean":
            readers = (each for each in self._whole.users_of(call) if each.op == "requantize")
            require_requantized_means([call, *readers], self.arithmetic)

    def _refuse(self, call: Call, refusal: Refusal) -> None:
        # A quantize that cannot be told from what it reads says nothing more, nor does what reads a
        # value of unknown type.
        data = call["data"] if is_call(call, "quantize") else None
        operands = (each for arg in call.args for each in tensors_of(arg))
        follows = any(self.tensors.get(each) == "" for each in operands)
        # No reader has such an operator, whatever it reads.
        unread = isinstance(call.origin, Unread) and call.origin.refusal.clause == "operator"
        follows = follows and not unread
        if data not in self.refused and not follows:
            self.refused[call] = refusal
        for tensor in (call, *call.fields) if len(call.types) > 1 else (call,):
            try:
                self.tensors[tensor] = self.builder.input(fixed_type(tensor.types[0]))
            except Refusal:  # who reads it is refused for its type
                self.tensors[tensor] = ""


def _reasons_of_floats(rewriting: Rewriting) -> dict[Expr, Refusal]:
    """Why float operators between dequantize and quantize did not become integers, by what they
    are in the rewritten model: of a chain in front of a quantize, the reason of its end."""
    reasons: dict[Expr, Refusal] = {}
    for end, refusal in rewriting.refused.items():
        stack = [end]
        while stack:
            expr = stack.pop()
            if is_call(expr) and expr not in reasons and not is_call(expr, "dequantize"):
                leads = is_call(end) and end.name != expr.name
                clause = f"{operator_name(end)}, which it leads to: " if leads else ""
                clause += refusal.clause
                reasons[expr] = Refusal(clause, refusal.found, refusal.allowed)
                stack += [arg for arg in expr.args if arg.types[0].dtype.startswith("float")]
    return {rewriting.view.new[expr]: refusal for expr, refusal in reasons.items()}


def _has_floats(call: Call) -> bool:
    return any(
        of.dtype.startswith("float")
        for each in (call, *call.args)
        if not isinstance(each, Constant)
        for of in each.types
    )


def _in_pairs(result: Expr) -> bool:
    """Whether all integers of a model are those of its pairs: no operator computes in them, so that
    the quantizer takes it."""
    calls = (each for each in post_order(result) if isinstance(each, Call))
    return not any(
        call.types[0].dtype in _COMPUTED and computes(call.op)
        for call in calls
        if not is_call(call, "quantize")
    )


def moves_floats(call: Call) -> bool:
    """A float's reshape is of the same bytes: where a host would do it, there is nothing to do."""
    return call.op == "reshape" and all(of.dtype == "float32" for of in call.types)


# What quantized models compute in.
_COMPUTED = {"int8", "uint8", "int16", "uint16", "int32"}


def _floats_alone(model: SourceModel) -> str:
    """The float dtypes of a model that computes in nothing else; "" of any other. Numbers of words
    and masks may be integers beside products of floats."""
    calls = [each for each in post_order(model.result) if isinstance(each, Call)]
    dtypes = {of.dtype for call in calls for of in call.types}
    floats = {dtype for dtype in dtypes if dtype.startswith(("float", "bfloat"))}
    quantizes = any(is_call(call, "quantize", "dequantize") for call in calls)
    products = any(macs(call) for call in calls if _has_floats(call))
    computed = dtypes & _COMPUTED - ({"int32"} if products else set())
    if quantizes or computed or all(map(moves_floats, calls)):
        return ""
    return ", ".join(sorted(floats))
