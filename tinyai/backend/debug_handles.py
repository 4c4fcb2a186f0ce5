"""Which handles of the source model each node of an emitted program came from: made step by step.

A debugger or profiler that hears of "node 7" of a program finds its operators in the model so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from tinyai.errors import OptionError

Handle: TypeAlias = "int | str"
DebugHandleMap: TypeAlias = "Mapping[int, tuple[Handle, ...]] | Mapping[str, tuple[Handle, ...]]"


class Sourced(Protocol):
    """What knows the names of the source model's operators that it came from, as an ``ir.Node``."""

    @property
    def sources(self) -> Sequence[str]: ...


class DebugHandleMapBuilder:
    """Makes a debug handle map, an entry a node of the emitted program.

    With ``generated_identifiers`` nodes are numbered from 0 in the order in which they are added;
    else each brings its identifier, all of them whole numbers or all of them text.
    """

    def __init__(self, *, generated_identifiers: bool = False) -> None:
        self._generates = generated_identifiers
        self._entries: dict[Handle, tuple[Handle, ...]] = {}

    def insert(
        self,
        *,
        nodes: Sourced | Iterable[Sourced] | None = None,
        handles: Handle | Iterable[Handle] | None = None,
        identifier: Handle | None = None,
    ) -> Handle:
        """Note that a node came from ``handles``, or from those of ``nodes``: one of the two.
        Returns its identifier. Each handle counts once, in the order given.

        Raises ``OptionError``, and the map stays as it was, where both or none of the two are
        given, or no handle is left; for an identifier that is given and generated, or neither, or
        that there is already, or of another kind than those before it.
        """
        if (nodes is None) == (handles is None):
            found = "neither" if nodes is None else "both"
            raise _misuse("entry of a debug handle map", found, "either nodes or handles")
        identifier = self._identifier(identifier)
        if nodes is not None:
            each = nodes if isinstance(nodes, Iterable) else [nodes]
            handles = [source for node in each for source in node.sources]
        found_handles = _handles(handles)
        if not found_handles:
            found = "none" if nodes is None else "nodes without sources"
            raise _misuse(f"handles of node {identifier!r}", found, "one or more")
        self._entries[identifier] = found_handles
        return identifier

    def output(self) -> DebugHandleMap:
        """The map so far; what is inserted later does not change it."""
        return dict(self._entries)  # type: ignore[return-value]  # all keys are of one type

    def _identifier(self, given: Handle | None) -> Handle:
        what = "identifier of a node"
        if self._generates:
            if given is not None:
                raise _misuse(what, repr(given), "none: this builder numbers the nodes itself")
            return len(self._entries)
        if not _is_handle(given):
            hint = "DebugHandleMapBuilder(generated_identifiers=True) numbers the nodes itself"
            raise OptionError(what, found=repr(given), allowed="a whole number or text", hint=hint)
        if given in self._entries:
            raise _misuse(what, f"{given!r} a second time", "one entry a node")
        kind = type(next(iter(self._entries), given))
        if not isinstance(given, kind):
            raise _misuse(what, repr(given), f"{kind.__name__}, as those before it")
        return given  # type: ignore[return-value]  # _is_handle said so


def _handles(handles: Handle | Iterable[Handle] | None) -> tuple[Handle, ...]:
    given = (
        list(handles) if isinstance(handles, Iterable) and not isinstance(handles, str) else None
    )
    found = [handles] if given is None else given
    wrong = [each for each in found if not _is_handle(each)]
    if wrong:
        raise _misuse("debug handle", repr(wrong[0]), "a whole number or text")
    return tuple(dict.fromkeys(found))  # type: ignore[arg-type]  # all are handles


def _is_handle(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _misuse(what: str, found: str, allowed: str) -> OptionError:
    return OptionError(what, found=found, allowed=allowed)
