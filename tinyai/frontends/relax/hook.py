"""``relax.ext.tinyai``: what ``RunCodegen`` calls, once, with all regions of a module."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tinyai.backend import compile_graph
from tinyai.errors import OptionError, UnsupportedError
from tinyai.frontends.relax.block import RelaxBlock
from tinyai.frontends.relax.reader import free_variables
from tinyai.frontends.relax.seal import unsealed
from tinyai.frontends.relax.writer import OWN
from tinyai.ir import Graph
from tinyai.own import NO_BACKEND, OwnBackend, backend_of
from tinyai.partition.model import ModelPart
from tinyai.runtime.link import write_object
from tinyai.runtime.toolchain import Toolchain
from tinyai.source import Refusal, Rounding
from tinyai.stages import stage
from tinyai.target import COMPILER, SPECS, Target

# What compiles the C of regions; None is the target's own. TVM hands none on to the hook.
_TOOLCHAIN: ContextVar[Toolchain | None] = ContextVar("toolchain", default=None)


@contextlib.contextmanager
def compiled_by(toolchain: Toolchain | None) -> Iterator[None]:
    """Regions whose code is generated inside are compiled by this toolchain."""
    before = _TOOLCHAIN.set(toolchain)
    try:
        yield
    finally:
        _TOOLCHAIN.reset(before)


def compile_regions(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constant_names: Any
) -> list[tvm.runtime.Module]:
    """One object module of all regions."""
    with (
        stage("machine code of all regions"),
        tempfile.TemporaryDirectory(prefix="tinyai-") as folder,
    ):
        regions = [unsealed(function, last=True) for function in functions]
        targets, made = list(map(target_of, regions)), Path(folder) / "regions.o"
        sources = [
            compile_graph(
                graph_of(region), target, abi="ffi", kernels=own_of(region).kernels
            ).source
            for region, target in zip(regions, targets, strict=True)
        ]
        symbols = [str(region.attrs["global_symbol"]) for region in regions]
        entries = [f"__tvm_ffi_{symbol}" for symbol in symbols]
        write_object(sources, made, targets[0], _TOOLCHAIN.get(), symbols=entries)
        return [tvm.runtime.load_static_library(str(made), symbols)]


def target_of(function: relax.Function) -> Target:
    """The options of a region, from its attribute."""
    return Target.from_attributes({SPECS: str(function.attrs[SPECS])})


def own_of(function: relax.Function) -> OwnBackend:
    """The back end of one's own that a region was cut out with."""
    return backend_of(str(function.attrs[OWN])) if OWN in function.attrs else NO_BACKEND


def graph_of(function: relax.Function) -> Graph:
    """The graph of a region, under the name of its ``global_symbol``. Raises ``UnsupportedError``
    for what cannot be built, ``OptionError`` for what a pass made something else of."""
    symbol = str(function.attrs["global_symbol"])
    bindings = [each for part in function.body.blocks for each in part.bindings]
    result = function.body.body
    rounding = Rounding(target_of(function).rounding)
    block = RelaxBlock(bindings, [*free_variables(result)], rounding, own=own_of(function))
    unread = [i for i in block.bindings if block.kind(i) == "input" or i in block.refused]
    strange = [item for item in unread if item not in block.seen_through]
    if strange:
        raise OptionError(
            f"region {symbol}",
            found=", ".join(sorted({block.operator(item) for item in strange})),
            allowed="operators of Relax, as tinyai's partition writes them",
            hint="RunCodegen right behind the partition, or regions that are sealed (the default)",
        )
    values = {item: block(item) for item in block.order}
    whole = ModelPart(block, {each: block(each) for each in function.params}, values)
    outputs = [*free_variables(block.resolved(result))]
    try:
        return whole.graph(whole.integers(outputs), function.params, symbol)
    except Refusal as refusal:
        call = refusal.call
        what = f"operator {call.spelled} {call.name!r}" if call else "an operand"
        raise UnsupportedError(
            f"{what} in region {symbol}: {refusal.clause}",
            found=refusal.found,
            allowed=refusal.allowed,
            hint="partition with tinyai.relax.partition_for_tinyai, which leaves it on the host",
        ) from None


def register_hook() -> None:
    """Register the hook by its name; again changes nothing."""
    tvm_ffi.register_global_func(f"relax.ext.{COMPILER}", compile_regions, override=True)
