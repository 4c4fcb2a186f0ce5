"""Which parts of a module tinyai takes: a division for each dataflow block."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tinyai.errors import OptionError
from tinyai.frontends.relax.block import RelaxBlock, with_value
from tinyai.frontends.relax.from_tir import read_back
from tinyai.frontends.relax.names import names_in
from tinyai.frontends.relax.versions import require_known_version
from tinyai.network import c_name
from tinyai.own import own_of
from tinyai.partition.division import Division, divide
from tinyai.source import Rounding
from tinyai.stages import stage
from tinyai.target import COMPILER, Target, default_rounding, split_target

# Attributes of functions that are somebody's already.
_TAKEN = ("Codegen", "Composite", "Primitive")
# Whose integers a module's are, where neither an option nor a file says it: most come from ONNX.
USUAL_ROUNDING = "onnx"


def target_of(
    target: str | Target | None, options: Mapping[str, Any], names: str | os.PathLike[str] = ""
) -> Target:
    """The options, with the rounding of the file that has the ``names`` where they ask for none.
    Raises ``OptionError`` for an option that is none."""
    said: dict[str, Any] = {} if target is None else {**split_target(target)[0]}
    made = Target.from_options({**said, **options})
    if made.abi != Target().abi:
        raise OptionError("option 'abi'", found=made.abi, allowed="none: it is that of tvm-ffi")
    usual = default_rounding(names) if names else USUAL_ROUNDING
    return Target.from_options({**made.options(), "rounding": made.rounding or usual})


@dataclass(frozen=True)
class Divided:
    """A dataflow block, the ``number``-th of a function's blocks, its division, and the names of
    its regions."""

    function: tvm.ir.GlobalVar
    number: int
    block: RelaxBlock
    division: Division[relax.Var]
    symbols: tuple[str, ...]


def divided(
    mod: tvm.IRModule, target: Target, names: str | os.PathLike[str] = "", backend: str = ""
) -> list[Divided]:
    """The dataflow blocks of the functions that are nobody's yet. Raises ``EnvironmentProblem`` for
    another version of TVM, ``OptionError`` for a module that is no IRModule, and for a ``backend``
    that is not registered."""
    require_known_version()
    own = own_of(backend)
    if not isinstance(mod, tvm.IRModule):
        raise OptionError(
            "module",
            found=type(mod).__name__,
            allowed="a tvm.IRModule of Relax",
            hint="tinyai.compile reads files without TVM; TVM's importers are in relax.frontend",
        )
    taken = {variable.name_hint for variable in mod.functions}
    found = []
    for function, number, bindings, results in _blocks(mod):
        rounding = Rounding(target.rounding)
        block = RelaxBlock(bindings, results, rounding, own=own)
        if names:
            known, problem = names_in(names, block, results)
            if problem is not None:
                warnings.warn(problem, stacklevel=3)
            block = RelaxBlock(bindings, results, rounding, known, own) if known else block
        with stage(f"division of a block of {function.name_hint}, and its C"):
            division = divide(block, target, block.refused)
        symbols = _symbols(c_name(f"{COMPILER}_{function.name_hint}"), taken)
        names_of_regions = tuple(itertools.islice(symbols, len(division.regions)))
        found.append(Divided(function, number, block, division, names_of_regions))
    return found


def is_hosts(function: Any) -> bool:
    """Whether a function of Relax's is nobody's yet."""
    attrs = getattr(function, "attrs", None) or {}
    return isinstance(function, relax.Function) and not any(name in attrs for name in _TAKEN)


def _blocks(mod: tvm.IRModule) -> Iterator[tuple[Any, int, list[Any], list[relax.Var]]]:
    """The bindings of each dataflow block, and which variables are known outside of it."""
    for variable, function in sorted(mod.functions.items(), key=lambda item: item[0].name_hint):
        if not is_hosts(function) or not isinstance(function.body, relax.SeqExpr):
            continue
        for number, block in enumerate(function.body.blocks):
            if isinstance(block, relax.DataflowBlock):
                bindings = [with_value(b, read_back(b.value, mod)) for b in block.bindings]
                results = [b.var for b in bindings if not isinstance(b.var, relax.DataflowVar)]
                yield variable, number, bindings, results


def _symbols(like: str, taken: set[str]) -> Iterator[str]:
    """Names of functions that the module does not have."""
    for number in itertools.count():
        name = f"{like}_{number}"
        if name not in taken:
            taken.add(name)
            yield name


def regions_of(mod: tvm.IRModule) -> dict[str, relax.Function]:
    """tinyai's regions by their names."""
    return {
        variable.name_hint: function
        for variable, function in mod.functions.items()
        if isinstance(function, relax.Function)
        and function.attrs is not None
        and "Codegen" in function.attrs
        and str(function.attrs["Codegen"]) == COMPILER
    }
