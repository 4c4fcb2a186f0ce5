"""Back ends of one's own beside tinyai, by the names that they were registered under. Knows no
front end: these ask ``backend_of`` for what they divide a model by."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tinyai.backend import BackendDetails, CompileSpec, PreprocessResult, TinyAIBackend
from tinyai.builders import OperatorRow
from tinyai.codegen.c import identifier
from tinyai.codegen.kernels import Kernel
from tinyai.errors import GraphError, OptionError, OwnCodeError, note_functions, owning_faults
from tinyai.ir import Graph, verify
from tinyai.ops import operators_added
from tinyai.patterns import PatternRow
from tinyai.target import COMPILER

Pass = Callable[[Graph], Graph]


@dataclass(frozen=True)
class OwnBackend:
    """A back end: ``patterns`` are the composites that it takes, ``operators`` the builders that it
    has beside tinyai's, ``passes`` change a graph before ``details`` has it, and ``kernels`` go
    before tinyai's where a whole model becomes a library or a C package."""

    name: str = ""
    details: type[BackendDetails] = TinyAIBackend
    patterns: tuple[PatternRow, ...] = ()
    operators: Mapping[str, OperatorRow] = field(default_factory=dict)
    passes: tuple[Pass, ...] = ()
    kernels: tuple[Kernel, ...] = ()

    def passed(self, graph: Graph) -> Graph:
        """The graph after the passes. Raises ``OwnCodeError`` where one fails, or breaks a rule."""
        for each in self.passes:
            name = getattr(each, "__qualname__", repr(each))
            with owning_faults(f"pass {name}"):
                made = each(graph)
            try:
                graph = verify(made)
            except (GraphError, AttributeError) as error:
                raise OwnCodeError(
                    f"pass {name} of the back end {self.name!r} broke the graph {graph.name}",
                    found=error if isinstance(error, GraphError) else type(made).__name__,
                    allowed="an ir.Graph that keeps the rules of ir.verify",
                ) from error
        return graph

    def preprocess(self, graph: Graph, specs: Sequence[CompileSpec]) -> PreprocessResult:
        """What ``details`` makes of a graph after the passes."""
        with owning_faults(f"preprocess of {graph.name}"), operators_added(self.operators):
            return self.details.preprocess(self.passed(graph), specs)


# What takes nothing of its own.
NO_BACKEND = OwnBackend()
_BACKENDS: dict[str, OwnBackend] = {}
_LISTENERS: list[Callable[[OwnBackend], None]] = []


def register_backend(
    name: str,
    details: type[BackendDetails],
    patterns: Sequence[PatternRow],
    operators: Mapping[str, OperatorRow] | None = None,
    *,
    passes: Sequence[Pass] = (),
    kernels: Sequence[Kernel] = (),
) -> None:
    """Let ``partition_for(name, …)`` cut out what ``patterns`` say, ``relay.build`` call
    ``details.preprocess`` for it, and ``tinyai.compile(…, backend=name)`` take it with the rest;
    again replaces what had the name.

    ``patterns`` are composites in the language of ``tinyai.match``; their operators are those of
    tinyai, and ``operators``: builders by the vocabulary's names, for this back end alone.
    ``passes`` are functions from a graph to a graph, called before ``preprocess``; with
    ``tinyai.compile`` on the graph of the whole model. What that
    returns is C with an entry for TVM (``CompileSpec("abi", b"packed")``). ``tinyai.compile`` does
    not call it: it writes C with ``kernels`` before tinyai's.
    Raises ``OptionError`` for a name that is tinyai's or no C identifier, and what is no back end.
    """
    if identifier(name, "name of a back end").startswith(COMPILER):
        raise OptionError("name of a back end", found=name, allowed=f"one without {COMPILER}")
    if not issubclass(details, BackendDetails):
        raise OptionError("back end", found=repr(details), allowed="a subclass of BackendDetails")
    added = dict(operators or {})
    own = OwnBackend(name, details, tuple(patterns), added, tuple(passes), tuple(kernels))
    _BACKENDS[name] = own
    rows = [*own.patterns, *own.operators.values(), *own.kernels]
    functions = [each for row in rows for each in vars(row).values() if callable(each)]
    note_functions([*functions, *own.passes, details], name)
    for listener in _LISTENERS:
        listener(own)


def backend_of(name: str) -> OwnBackend:
    """Raises ``OptionError`` for a back end that is not registered."""
    if name not in _BACKENDS:
        known = ", ".join(_BACKENDS) or "none so far"
        raise OptionError("back end", found=repr(name), allowed=f"a registered one: {known}")
    return _BACKENDS[name]


def own_of(name: str) -> OwnBackend:
    """``backend_of`` for an option: that takes nothing where no name is given."""
    return backend_of(name) if name else NO_BACKEND


def backend_of_file(file: str | os.PathLike[str]) -> str:
    """The name of the one back end that a Python file registers, which is run for it. Raises
    ``OptionError`` for a file that raises, or registers none or several."""
    before = dict(_BACKENDS)
    try:
        runpy.run_path(os.fspath(file), run_name="tinyai_backend")
        names = [name for name, own in _BACKENDS.items() if before.get(name) is not own]
        found = ", ".join(names) or "none"
    except Exception as error:  # a user's file raises what it likes
        names, found = [], f"{type(error).__name__}: {error}"
    if len(names) != 1:
        allowed = "a Python file that calls tinyai.register_backend once"
        raise OptionError(f"back end of {os.fspath(file)}", found=found, allowed=allowed)
    return names[0]


def when_registered(listener: Callable[[OwnBackend], None]) -> None:
    """Call ``listener`` with each back end that is registered, now and from now on; a second time
    changes nothing."""
    if listener not in _LISTENERS:
        _LISTENERS.append(listener)
        for own in _BACKENDS.values():
            listener(own)
