"""What a back end is: a class that turns one graph, or those of several methods, into what runs."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tinyai.backend.debug_handles import DebugHandleMap
from tinyai.backend.named_data import NamedData
from tinyai.errors import OptionError
from tinyai.ir import Graph


@dataclass(frozen=True)
class CompileSpec:
    """One option of a back end: its name, and its value as bytes; what they mean, the back end
    says."""

    key: str
    value: bytes


@dataclass(frozen=True)
class PreprocessResult:
    """What a back end made of a program.

    ``processed_bytes`` is for the back end's own loader; ``debug_handle_map`` says which handles of
    the source model each node of what was made came from; ``data_store_output`` is data that other
    results may share, by key.
    """

    processed_bytes: bytes = b""
    debug_handle_map: DebugHandleMap | None = None
    data_store_output: NamedData | None = None


# The programs of each method, one for each of its partitions, in their order.
Programs = Mapping[str, Sequence[Graph]]
Specs = Sequence[CompileSpec]
Results = dict[str, list[PreprocessResult]]


class BackendDetails(abc.ABC):
    """A back end: a subclass with a static ``preprocess``, which is checked when the class is made.

    It is never instantiated: a class is the back end, and its name is the back end's.
    """

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        found = inspect.getattr_static(cls, "preprocess")
        if found is BackendDetails.__dict__["preprocess"]:
            what = "has no preprocess"
        elif not isinstance(found, staticmethod):
            kinds = {classmethod: "a class method", FunctionType: "an instance method"}
            what = f"has {kinds.get(type(found), repr(found))} as preprocess"
        else:
            return
        raise TypeError(
            f"back end {cls.__name__} {what}\n"
            "  allowed: a static method of its own or of a base\n"
            "  try:     @staticmethod\n"
            "           def preprocess(program: Graph, compile_specs: Sequence[CompileSpec]) "
            "-> PreprocessResult"
        )

    @staticmethod
    @abc.abstractmethod
    def preprocess(program: Graph, compile_specs: Specs) -> PreprocessResult:
        """What runs ``program``, under the options of ``compile_specs``. The program is not
        changed. Raises a ``TinyAIError`` for what it cannot do."""

    @classmethod
    def preprocess_multimethod(
        cls, programs: Programs, compile_specs: Mapping[str, Sequence[Specs]]
    ) -> Results:
        """``preprocess`` of the programs of each method, each with its specs; methods, and programs
        in them, in the order in which they came. A back end that shares what methods have in common
        overrides it.

        Raises ``OptionError`` where a method has no specs, or not as many as programs.
        """
        check_specs(programs, compile_specs)
        return {
            method: [
                cls.preprocess(program, specs)
                for program, specs in zip(each, compile_specs[method], strict=True)
            ]
            for method, each in programs.items()
        }


def check_specs(programs: Programs, compile_specs: Mapping[str, Sequence[Specs]]) -> None:
    """Raise ``OptionError`` where a method has no compile specs, or not as many as programs."""
    for method, each in programs.items():
        if method not in compile_specs:
            raise OptionError(
                f"missing compile specs for {method}",
                found=", ".join(compile_specs) or "specs for no method",
                allowed="a list of specs for each of the method's programs",
            )
        if len(compile_specs[method]) != len(each):
            raise OptionError(
                f"compile specs for {method}",
                found=f"{len(compile_specs[method])} lists of specs for {len(each)} programs",
                allowed="one list for each program",
            )
