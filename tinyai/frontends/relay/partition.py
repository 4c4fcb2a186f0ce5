"""``partition_for_tinyai``: what tinyai takes of a module becomes regions that can be built."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm

from tinyai.backend import Compiled, CompileSpec
from tinyai.codegen.c import identifier
from tinyai.errors import OptionError, TinyAIError
from tinyai.frontends.relay.composites import with_composites
from tinyai.frontends.relay.cut import annotated_regions, inline_idle_regions, with_specs
from tinyai.frontends.relay.functions import deep_recursion, regions
from tinyai.frontends.relay.modules import module_of as module_of
from tinyai.frontends.relay.modules import with_integers
from tinyai.frontends.relay.options import (
    SpecsOfRegions,
    boolean,
    check_regions,
    check_roundings,
    options_with,
    text_of_spec,
)
from tinyai.frontends.relay.report import check_boundary
from tinyai.frontends.relay.rewriting import inlined
from tinyai.frontends.relay.seal import seal, unseal
from tinyai.frontends.relay.source import rounding_of
from tinyai.frontends.relay.trial import (
    HOST,
    Unbuilt,
    to_leave,
    trial_of,
    with_trials,
    with_unbuilt,
    without_regions,
)
from tinyai.source import Rounding
from tinyai.target import Target, default_rounding, split_target


def partition_for_tinyai(
    mod: tvm.IRModule | str | os.PathLike[str],
    params: dict[str, Any] | None = None,
    *,
    target: str | Target | None = None,
    mod_name: str = "default",
    prune: bool | str = True,
    strict: bool | str = False,
    sealed: bool | str = False,
    compile_specs: Sequence[CompileSpec] | SpecsOfRegions | str = (),
    **options: object,
) -> tvm.IRModule:
    """Cut the parts of ``mod`` that tinyai takes into functions with ``Compiler="tinyai"``.

    ``mod`` may be the path of an .onnx or .tflite file, which is loaded, and whose framework's
    integers are the regions', if no ``rounding`` is asked for. ``params`` are bound as constants: a
    pattern needs its weights. ``options`` are fields of ``tinyai.Target`` as values or strings,
    ``target`` is all of them; ``compile_specs`` are options too, for all regions or by a
    region's name for one, where they overrule the others. A region that computes nothing goes back
    to the host unless ``prune`` is False, and what turns out to have no C, with a ``DefectWarning``
    where that is a fault of tinyai's own. ``mod_name`` begins the regions' symbols. ``sealed``
    leaves the composites as ``tinyai.seal`` makes them: the quicker way to a ``relay.build``. A
    module that has regions of tinyai's already is returned as it is, and so are regions of other
    compilers. The argument is not changed.
    Raises ``OptionError`` for an unknown option or a ``mod_name`` that is no C identifier; under
    ``strict`` ``BoundaryError``, with the report of ``tinyai.explain``, where an operator that
    computes stays on the host.
    """
    if target is not None:
        own: dict[str, Any] = {"mod_name": mod_name, "prune": prune, "strict": strict}
        own |= {"sealed": sealed, "compile_specs": compile_specs}
        said = own | split_target(target)[0] | options
        return partition_for_tinyai(mod, params, **said)
    usual = default_rounding(mod)
    mod, params = module_of(mod, params)
    whole, keep_sealed = boolean("strict", strict), boolean("sealed", sealed)
    if isinstance(compile_specs, str):
        allowed = "CompileSpec values; in a target string options are -name=value"
        raise OptionError("compile specs", found=repr(compile_specs), allowed=allowed)
    apart = compile_specs if isinstance(compile_specs, Mapping) else {}
    if not isinstance(compile_specs, Mapping):
        options = options_with(compile_specs, options)
    options = {**options, "rounding": options.get("rounding") or usual}
    check_roundings(apart, options)
    partitioned = _partition(mod, params, mod_name, prune, options, apart, keep_sealed)
    if whole:
        check_boundary(partitioned, Target.from_options(options).rounding)
    return partitioned


def _partition(
    mod: tvm.IRModule,
    params: dict[str, Any] | None,
    mod_name: str,
    prune: bool | str,
    options: Mapping[str, object],
    apart: SpecsOfRegions,
    sealed: bool,
) -> tvm.IRModule:
    target = Target.from_options(options)
    identifier(mod_name, "mod_name")
    keep_idle = not boolean("prune", prune)
    if regions(mod):
        return seal(mod) if sealed else mod
    rounding = replace(rounding_of(None), mode=target.rounding)
    with deep_recursion():
        mod = with_composites(with_integers(mod, params, rounding), rounding=rounding)
        mod = _buildable_regions(mod, mod_name, target, rounding, apart, keep_idle=keep_idle)
    return mod if sealed else unseal(mod)


def _buildable_regions(
    mod: tvm.IRModule,
    mod_name: str,
    target: Target,
    rounding: Rounding,
    apart: SpecsOfRegions,
    *,
    keep_idle: bool,
) -> tvm.IRModule:
    """A module of composites in regions that can be built: what cannot stays on the host, and what
    can says which trial has its C."""
    unbuilt: list[Unbuilt] = []
    while True:
        cut = annotated_regions(mod, mod_name, rounding)
        cut = cut if keep_idle else inline_idle_regions(cut)
        cut = _with_attributes(cut, target, apart)
        found = regions(cut)
        trials = {variable.name_hint: trial_of(func) for variable, func in found.items()}
        leaving = [
            part
            for func, trial in zip(found.values(), trials.values(), strict=True)
            if isinstance(trial, TinyAIError)
            for part in to_leave(func, trial)
        ]
        if not leaving:
            break
        unbuilt += [why for _, why in leaving]
        mod = without_regions(cut, found, [call for call, _ in leaving])
    check_regions(apart, found)
    cut = with_unbuilt(inlined(cut, {}, HOST), unbuilt) if unbuilt else cut
    built = {name: trial for name, trial in trials.items() if isinstance(trial, Compiled)}
    return with_trials(cut, built)


def _with_attributes(mod: tvm.IRModule, target: Target, apart: SpecsOfRegions) -> tvm.IRModule:
    """Compile specs as an attribute of every region: the hook sees nothing but the function.
    Those of regions ``apart`` overrule the target's."""

    def specs(region: str) -> list[CompileSpec]:
        own = {spec.key: text_of_spec(spec) for spec in apart.get(region, ())}
        options = Target.from_options(target.options() | own).options()
        return [CompileSpec(name, text.encode()) for name, text in options.items()]

    return with_specs(mod, regions(mod), specs)
