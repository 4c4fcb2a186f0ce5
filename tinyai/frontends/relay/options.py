"""What ``partition_for_tinyai`` is asked for, as values or text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tvm

from tinyai.backend import CompileSpec
from tinyai.codegen.c import identifier
from tinyai.errors import OptionError
from tinyai.target import Target, split_target

# Compile specs by the names of regions.
SpecsOfRegions: TypeAlias = Mapping[str, Sequence[CompileSpec]]


OWN_OPTIONS = ("target", "mod_name", "prune", "strict", "sealed", "compile_specs")


def options_with(specs: Sequence[CompileSpec], options: Mapping[str, object]) -> dict[str, object]:
    """``options``, and what compile specs for all regions say. Raises ``OptionError`` for what is
    said twice."""
    said: dict[str, object] = {spec.key: text_of_spec(spec) for spec in specs}
    twice = sorted(said.keys() & options.keys())
    if twice or len(said) != len(specs):
        keys = twice or sorted(spec.key for spec in specs)
        raise OptionError("compile specs", found=f"{', '.join(keys)}, twice", allowed="once")
    return {**options, **said}


def check_roundings(apart: SpecsOfRegions, options: Mapping[str, object]) -> None:
    """Which operators a region holds depends on the rounding."""
    for region, specs in apart.items():
        if any(spec.key == "rounding" for spec in specs):
            raise OptionError(
                f"compile spec 'rounding' of region {region}",
                found="one of its own",
                allowed=f"that of all regions: {options['rounding']}",
            )


def check_regions(apart: SpecsOfRegions, found: Mapping[tvm.ir.GlobalVar, Any]) -> None:
    names = [variable.name_hint for variable in found]
    unknown = sorted(set(apart) - set(names))
    if unknown:
        raise OptionError(
            "compile specs of regions",
            found=", ".join(unknown),
            allowed=", ".join(names) or "none: there is no region",
        )


def of_target(options: Mapping[str, object]) -> dict[str, object]:
    """``options`` without the arguments that are ``partition_for_tinyai``'s own, which may be in
    a target string too; those of ``target`` among them."""
    target = options.get("target")
    said: dict[str, object] = {} if target is None else {**split_target(target)[0]}  # type: ignore[arg-type]
    return {name: value for name, value in (said | {**options}).items() if name not in OWN_OPTIONS}


def check_options(options: Mapping[str, object]) -> None:
    """Raise ``OptionError`` where ``partition_for_tinyai`` would because of these options."""
    for name in ("prune", "strict", "sealed"):
        boolean(name, str(options.get(name, False)))
    identifier(str(options.get("mod_name", "default")), "mod_name")
    Target.from_options(of_target(options))


def boolean(name: str, value: bool | str) -> bool:
    words = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in words:
        raise OptionError(f"option {name!r}", found=repr(value), allowed="True, False, or as text")
    return words[str(value).lower()]


def text_of_spec(spec: CompileSpec) -> str:
    return spec.value.decode(errors="surrogateescape")
