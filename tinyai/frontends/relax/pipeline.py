"""The partition as a pass, and the pipelines that ``tvm.compile`` takes by value or by name."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tinyai.errors import OptionError
from tinyai.frontends.relax.division import regions_of
from tinyai.frontends.relax.hook import compiled_by, register_hook
from tinyai.frontends.relax.partition import partition_for_tinyai
from tinyai.frontends.relax.seal import seal
from tinyai.runtime.toolchain import Toolchain
from tinyai.stages import stage
from tinyai.target import COMPILER, Target, split_target, with_host


@tvm.transform.module_pass(opt_level=0, name="tinyai.Partition")
class Partition:
    """``partition_for_tinyai`` with these arguments, as a pass."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def transform_module(self, mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        """The module with regions, as ``partition_for_tinyai`` makes it."""
        return partition_for_tinyai(mod, **self.options)


@tvm.transform.module_pass(opt_level=0, name="tinyai.GenerateCode")
class GenerateCode:
    """``RunCodegen`` where all regions of tinyai's are sealed: of others it notes the constants in
    the module, a second time, for tinyai's have them in their code."""

    def transform_module(self, mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        regions = {
            mod.get_global_var(name): seal(region) for name, region in regions_of(mod).items()
        }
        functions = {**dict(mod.functions.items()), **regions}
        mod = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return relax.transform.RunCodegen()(mod)


def pipeline(**options: Any) -> tvm.transform.Pass:
    """What ``tvm.compile(mod, target, relax_pipeline=...)`` takes: ``Partition(**options)``,
    ``RunCodegen``, then TVM's default pipeline of the target in force."""

    @tvm.transform.module_pass(opt_level=0, name="tinyai.pipeline")  # type: ignore[untyped-decorator]
    def run(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        default = relax.get_default_pipeline(target or tvm.target.Target("llvm"))
        return tvm.transform.Sequential([Partition(**options), GenerateCode(), default])(mod)

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
        with compiled_by(toolchain):
            lowered = tvm.transform.Sequential([GenerateCode()])(partitioned)
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
