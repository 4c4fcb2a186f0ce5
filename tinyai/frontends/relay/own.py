"""What a back end of one's own takes of a Relay module: its patterns cut regions out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import tvm

from tinyai.backend import CompileSpec
from tinyai.codegen.c import identifier
from tinyai.errors import OptionError
from tinyai.frontends.relay.composites import composites_of
from tinyai.frontends.relay.cut import annotated_by, with_specs
from tinyai.frontends.relay.functions import deep_recursion, regions, regions_of
from tinyai.frontends.relay.modules import module_of, with_constants
from tinyai.frontends.relay.options import check_regions
from tinyai.ops import operators_added
from tinyai.own import OwnBackend, backend_of
from tinyai.target import COMPILER

Specs = Sequence[CompileSpec] | Mapping[str, Sequence[CompileSpec]]


def partition_for(
    name: str,
    mod: tvm.IRModule | str | os.PathLike[str],
    params: dict[str, Any] | None = None,
    *,
    compile_specs: Specs = (),
    mod_name: str = "default",
) -> tvm.IRModule:
    """Cut what the back end ``name`` takes into functions with ``Compiler=name``, each with its
    compile specs: those for all, or by the region's name. ``partition_for_tinyai`` then takes of
    the rest what it can. Warns where the back end takes nothing. The argument is not changed.

    Raises ``OptionError`` for a back end that is not registered, a module in which tinyai has
    regions already, and specs of a region that there is not.
    """
    own = backend_of(name)
    mod = regions_for(own, mod, params, mod_name)
    found = regions_of(mod, name)
    if not found:
        text = (
            f"back end {name!r} takes nothing of the module: tinyai.explain(mod, backend={name!r})"
        )
        warnings.warn(f"{text} tells why, operator by operator", stacklevel=2)
    if not isinstance(compile_specs, Mapping):
        return with_specs(mod, found, lambda region: compile_specs)
    check_regions(compile_specs, found)
    return with_specs(mod, found, lambda region: compile_specs.get(region, ()))


def regions_for(
    own: OwnBackend, mod: Any, params: dict[str, Any] | None, mod_name: str = "default"
) -> tvm.IRModule:
    """A module with the regions of a back end, without compile specs."""
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
        mod = composites_of(mod, own.patterns, compiler=own.name)
        return annotated_by(own.name, mod, identifier(mod_name, "mod_name"))


def is_cut_for(own: OwnBackend, mod: Any) -> bool:
    """Whether a module has regions of a back end already."""
    return isinstance(mod, tvm.IRModule) and bool(regions_of(mod, own.name))
