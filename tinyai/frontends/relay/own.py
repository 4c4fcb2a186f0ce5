"""A back end of one's own beside tinyai: its patterns cut regions out, its ``preprocess`` makes
their C, ``relay.build`` calls it by its name."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relay

from tinyai.backend import BackendDetails, CompileSpec, whole_source
from tinyai.builders import OperatorRow
from tinyai.codegen.c import identifier
from tinyai.errors import OptionError
from tinyai.frontends.relay.composites import composites_of
from tinyai.frontends.relay.cut import annotated_by, with_specs
from tinyai.frontends.relay.functions import deep_recursion, regions, regions_of
from tinyai.frontends.relay.hooks import compile_with, update_constants
from tinyai.frontends.relay.modules import module_of, with_constants
from tinyai.ops import operators_added
from tinyai.patterns import PatternRow
from tinyai.target import COMPILER


@dataclass(frozen=True)
class _Registered:
    details: type[BackendDetails]
    patterns: tuple[PatternRow, ...]
    operators: Mapping[str, OperatorRow] = field(default_factory=dict)


_BACKENDS: dict[str, _Registered] = {}


def register_backend(
    name: str,
    details: type[BackendDetails],
    patterns: Sequence[PatternRow],
    operators: Mapping[str, OperatorRow] | None = None,
) -> None:
    """Let ``partition_for(name, …)`` cut out what ``patterns`` say, and ``relay.build`` call
    ``details.preprocess`` for it; again replaces what had the name.

    ``patterns`` are composites in the language of ``tinyai.match``; their operators are those of
    tinyai, and ``operators``: builders by the vocabulary's names, for this back end alone. What
    ``preprocess`` returns is C with an entry for TVM (``CompileSpec("abi", b"packed")``).
    Raises ``OptionError`` for a name that is tinyai's or no C identifier, and what is no back end.
    """
    if identifier(name, "name of a back end").startswith(COMPILER):
        raise OptionError("name of a back end", found=name, allowed=f"one without {COMPILER}")
    if not issubclass(details, BackendDetails):
        raise OptionError("back end", found=repr(details), allowed="a subclass of BackendDetails")
    own = _Registered(details, tuple(patterns), dict(operators or {}))
    _BACKENDS[name] = own

    def compile_region(func: relay.Function) -> tvm.runtime.Module:
        with operators_added(own.operators):
            return compile_with(lambda *args: whole_source(own.details.preprocess(*args)), func)

    tvm.register_func(f"relay.ext.{name}", compile_region, override=True)
    tvm.register_func(f"relay.ext.{name}.constant_updater", update_constants, override=True)


def partition_for(
    name: str,
    mod: tvm.IRModule | str | os.PathLike[str],
    params: dict[str, Any] | None = None,
    *,
    compile_specs: Sequence[CompileSpec] | Mapping[str, Sequence[CompileSpec]] = (),
    mod_name: str = "default",
) -> tvm.IRModule:
    """Cut what the back end ``name`` takes into functions with ``Compiler=name``, each with its
    compile specs: those for all, or by the region's name. ``partition_for_tinyai`` then takes of
    the rest what it can. The argument is not changed.

    Raises ``OptionError`` for a back end that is not registered, a module in which tinyai has
    regions already, and specs of a region that there is not.
    """
    own = _BACKENDS.get(name)
    if own is None:
        known = ", ".join(_BACKENDS) or "none so far"
        raise OptionError("back end", found=repr(name), allowed=f"a registered one: {known}")
    mod, params = module_of(mod, params)
    if regions(mod):
        raise OptionError(
            "module",
            found=f"one with regions of {COMPILER}",
            allowed="one without",
            hint="partition_for a back end of your own first, partition_for_tinyai after it",
        )
    with deep_recursion(), operators_added(own.operators):
        mod = with_constants(mod, params)
        mod = composites_of(mod, own.patterns, compiler=name)
        mod = annotated_by(name, mod, identifier(mod_name, "mod_name"))
    found = regions_of(mod, name)
    return with_specs(mod, found, functools.partial(_specs, compile_specs, found))


def _specs(
    given: Sequence[CompileSpec] | Mapping[str, Sequence[CompileSpec]],
    found: Mapping[tvm.ir.GlobalVar, relay.Function],
    region: str,
) -> Sequence[CompileSpec]:
    if not isinstance(given, Mapping):
        return given
    names = [variable.name_hint for variable in found]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise OptionError(
            "compile specs of regions", found=", ".join(unknown), allowed=", ".join(names)
        )
    return given.get(region, ())
