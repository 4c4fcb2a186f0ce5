"""The variables of a .tflite file: values that operators keep from one call to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tinyai.frontends.source_model import End, unread
from tinyai.frontends.tflite.file import FileOperator
from tinyai.frontends.tflite.tensors import FileTensor
from tinyai.ir import Array
from tinyai.source import Constant, Expr, Refusal, require
from tinyai.vocabulary import constant

# The operators of variables: how many inputs and outputs they have, and their table of options.
KINDS = {
    "CALL_ONCE": (0, 0, "CallOnceOptions"),
    "VAR_HANDLE": (0, 1, "VarHandleOptions"),
    "READ_VARIABLE": (1, 1, "ReadVariableOptions"),
    "ASSIGN_VARIABLE": (2, 0, "AssignVariableOptions"),
}
CONTROL_FLOW = ("IF", "WHILE", "CALL")  # which may change variables in their subgraphs

# A variable's container and name, which handles of it share.
Key: TypeAlias = tuple[bytes, bytes]


@dataclass(frozen=True)
class VariableState:
    """A variable before and after a call, and its value before the first one."""

    before: End
    after: End
    initial: Array


class Variables:
    """The variables of a graph while its operators are read in their order.

    A variable that is read before anything was assigned to it in the same call is a state. One that
    no operator assigns to is a constant. What is read later in the call is what was assigned.
    """

    def __init__(self, operators: Sequence[FileOperator]) -> None:
        self._keys: dict[int, Key] = {}
        for operator in operators:
            if operator.kind == "VAR_HANDLE" and operator.options.table == "VarHandleOptions":
                container, name = map(operator.options, ("Container", "SharedName"))
                key = (container or b"", name or b"")
                self._keys |= dict.fromkeys(operator.outputs, key)
        self._assigned = {
            self._keys.get(operator.inputs[0])
            for operator in operators
            if operator.kind == "ASSIGN_VARIABLE" and operator.inputs
        }
        self._initial: dict[Key, Array] = {}
        self._tensors: dict[Key, FileTensor] = {}  # the first one that was read or assigned
        self._before: dict[Key, Expr] = {}
        self._now: dict[Key, Expr] = {}
        # Why no variable is known any more.
        self._refusal: Refusal | None = None

    def require_form(self, operator: FileOperator) -> None:
        """Raises ``Refusal`` for an operator of variables with other inputs, outputs or options."""
        inputs, outputs, table = KINDS[operator.kind]
        found = len(operator.inputs), len(operator.outputs)
        fits = found == (inputs, outputs) and -1 not in operator.inputs
        try:
            require(fits, "inputs and outputs", found, (inputs, outputs))
            operator.options.require(table)
        except Refusal as refusal:
            self._refusal = refusal
            raise

    def require_apart(self, operator: FileOperator) -> None:
        """Raises ``Refusal`` for another operator that may change a variable."""
        takes = not self._keys.keys().isdisjoint(operator.inputs)
        if takes or operator.kind in CONTROL_FLOW:
            found = f"{operator.kind}, which may change a variable"
            self._refusal = Refusal("state", found, "READ_VARIABLE and ASSIGN_VARIABLE")
            if takes:
                raise self._refusal

    def begin(self, once: Variables | None) -> None:
        """Take the constants that the subgraph of CALL_ONCE assigns as the initial values. That
        subgraph, which has none, may not call one."""
        if once is None or self._tensors:
            found = "CALL_ONCE after a variable was used, or twice"
            self._refusal = Refusal("state", found, "one, before all else")
            raise self._refusal
        self._refusal = self._refusal or once._refusal
        self._tensors = dict(once._tensors)
        self._initial = {
            key: value.value for key, value in once._now.items() if isinstance(value, Constant)
        }

    def read(self, handle: int, of: FileTensor) -> Expr:
        """The value of a variable. Raises ``Refusal`` where it is not known, or of another type."""
        key = self._known(handle, of)
        if key not in self._now:
            if key not in self._initial:
                found = "a variable that is read before it has a value"
                raise Refusal("state", found, "constants that CALL_ONCE assigns first")
            if key in self._assigned:
                self._before[key] = self._now[key] = Expr((self._tensors[key].type,))
            else:
                self._now[key] = constant(self._initial[key])
        return self._now[key]

    def assign(self, handle: int, value: Expr, of: FileTensor) -> None:
        """Let a variable have a value, from here on. One of another type is not read."""
        try:
            self._now[self._known(handle, of)] = value
        except Refusal as refusal:
            self._refusal = refusal

    def _known(self, handle: int, of: FileTensor) -> Key:
        """The variable of a handle, which has the type and the scale of a tensor."""
        if self._refusal is not None:
            raise self._refusal
        key = self._keys.get(handle)
        if key is None:
            raise Refusal("state", "a variable without a VAR_HANDLE", "one with it")
        first = self._tensors.setdefault(key, of)
        same = (first.type, first.quant) == (of.type, of.quant)
        scales = f"{of.type} {of.quant}, and before {first.type} {first.quant}"
        require(same, "types and scales of a variable", scales, "one")
        return key

    def states(self) -> tuple[VariableState, ...]:
        """The states after all operators were read, in the order of their handles."""
        states = []
        for key in dict.fromkeys(self._keys.values()):
            if key in self._before:
                before, after, of = self._before[key], self._now[key], self._tensors[key]
                name = key[1].decode(errors="replace") or of.name
                if self._refusal is not None:
                    after = unread("ASSIGN_VARIABLE", (of.type,), (), self._refusal, name)
                ends = End(name, before, of.quant), End(name, after, of.quant)
                states.append(VariableState(*ends, self._initial[key]))
        return tuple(states)
