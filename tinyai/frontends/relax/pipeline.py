"""The partition as a pass, and the pipelines that ``tvm.compile`` takes by value or by name."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tinyai.errors import OptionError
from tinyai.frontends.relax.hook import CONSTANTS, compiled_by, register_hook
from tinyai.frontends.relax.partition import partition_for_tinyai
from tinyai.runtime.toolchain import Toolchain
from tinyai.stages import stage
from tinyai.target import COMPILER, Target, split_target, with_host


@tvm.transform.module_pass(opt_level=0, name="tinyai.Partition")
class Partition:
    """``partition_for_tinyai`` with these arguments, as a pass."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def transform_module(self, mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        return partition_for_tinyai(mod, **self.options)


@tvm.transform.module_pass(opt_level=0, name="tinyai.WithoutConstants")
class WithoutConstants:
    """After ``RunCodegen``: without the constants that it notes of tinyai's regions, which have
    them in their code."""

    def transform_module(self, mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        noted = mod.attrs[CONSTANTS] if mod.attrs is not None and CONSTANTS in mod.attrs else {}
        own = [name for name in noted if str(name).startswith(f"{COMPILER}_")]
        if not own:
            return mod
        return mod.with_attr(CONSTANTS, {n: v for n, v in noted.items() if n not in own})


def pipeline(**options: Any) -> tvm.transform.Pass:
    """What ``tvm.compile(mod, target, relax_pipeline=...)`` takes: ``Partition(**options)``,
    ``RunCodegen``, then TVM's default pipeline of the target in force."""

    @tvm.transform.module_pass(opt_level=0, name="tinyai.pipeline")  # type: ignore[untyped-decorator]
    def run(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        passes = [Partition(**options), relax.transform.RunCodegen(), WithoutConstants()]
        passes.append(relax.get_default_pipeline(target or tvm.target.Target("llvm")))
        return tvm.transform.Sequential(passes)(mod)

    return run


def register_pipeline() -> None:
    """Register ``pipeline`` under the name of the back end; again changes nothing."""
    known = relax.pipeline.PIPELINE_MAP
    if known.get(COMPILER) is not pipeline:
        known.pop(COMPILER, None)
        relax.register_pipeline(COMPILER)(pipeline)


def register_hooks() -> None:
    """The hook and the pipeline."""
    register_hook()
    register_pipeline()


def build(
    mod: tvm.IRModule,
    *,
    target: str | Target = "tinyai, llvm",
    toolchain: Toolchain | None = None,
    **options: Any,
) -> Any:
    """Partition ``mod`` and compile it: what ``tvm.compile`` returns, which ``export_library``
    writes and ``relax.VirtualMachine`` runs.

    ``target`` names tinyai's options and the host, ``"tinyai -isa=scalar, llvm"``; ``options`` are
    those of ``partition_for_tinyai``; ``toolchain`` compiles the regions. Raises what
    ``partition_for_tinyai`` raises, ``ToolchainError`` where the C compiler fails.
    """
    if toolchain is not None:
        Toolchain.of(toolchain).check()
    own, host = split_target(target)
    partitioned = partition_for_tinyai(mod, **{**with_host(own, host), **options})
    with stage("TVM's own build"):
        passes: list[Any] = [relax.transform.RunCodegen(), WithoutConstants()]
        with compiled_by(toolchain):
            lowered = tvm.transform.Sequential(passes)(partitioned)
        return tvm.compile(lowered, host_target(host))


def host_target(host: str) -> tvm.target.Target:
    """TVM's target of a string such as "llvm -mcpu=cascadelake", which it does not parse any
    longer. Raises ``OptionError`` for one that it refuses."""
    kind, *words = host.split()
    pairs = (word.lstrip("-").partition("=") for word in words)
    options: dict[str, Any] = {name: value for name, _, value in pairs}
    if "mattr" in options:
        options["mattr"] = options["mattr"].split(",")
    try:
        return tvm.target.Target({"kind": kind, **options})
    except Exception as error:  # TVM's parsers raise errors of many kinds
        found = f"{host!r}: {str(error)[:200]}"
        raise OptionError("host target", found=found, allowed="one of TVM's") from None
