"""From a module to a factory that runs, in one call."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay
from tvm.relay.backend import Executor

from tinyai.frontends.relay import partition_for_tinyai
from tinyai.runtime import tvm_module
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import split_target


def build(
    mod: tvm.IRModule,
    params: dict[str, Any] | None = None,
    *,
    target: str = "tinyai, llvm",
    mod_name: str = "default",
    toolchain: Toolchain | None = None,
    executor: Executor | None = None,
) -> tvm_module.CompiledFactory:
    """Partition ``mod``, build it, compile the regions' C; the factory runs at once and exports.

    ``target`` names tinyai's options and the host: ``"tinyai -isa=scalar, llvm -mcpu=znver4"``.
    ``executor`` is TVM's: graph by default, or AOT with the packed interface. The build runs at
    the opt_level of the PassContext in force, at least 3.
    Raises ``OptionError`` for a bad target, ``ToolchainError`` where the C compiler fails.
    """
    options, host = split_target(target)
    partitioned = partition_for_tinyai(mod, params, mod_name=mod_name, sealed=True, **options)
    context = tvm.transform.PassContext.current()
    with tvm.transform.PassContext(
        opt_level=max(3, context.opt_level),
        required_pass=context.required_pass,
        disabled_pass=context.disabled_pass,
        instruments=context.instruments,
        config=dict(context.config.items()),
    ):
        built = relay.build(partitioned, target=host, executor=executor or Executor("graph"))
    return tvm_module.compile(built, toolchain)
