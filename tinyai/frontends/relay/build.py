"""From a module to a factory that runs, in one call."""

from __future__ import annotations

import os
from typing import Any

import tvm
from tvm import relay
from tvm.relay.backend import Executor

from tinyai.errors import OptionError
from tinyai.frontends.relay.partition import partition_for_tinyai
from tinyai.frontends.relay.source import source_types, span_name
from tinyai.runtime import tvm_module
from tinyai.runtime.toolchain import Toolchain
from tinyai.safe_text import safe
from tinyai.target import Target, foreign_triple, split_target, with_host


def build(
    mod: tvm.IRModule | str | os.PathLike[str],
    params: dict[str, Any] | None = None,
    *,
    target: str | Target = "tinyai, llvm",
    mod_name: str = "default",
    toolchain: Toolchain | None = None,
    executor: Executor | None = None,
) -> tvm_module.CompiledFactory:
    """Partition ``mod``, build it, compile the regions' C; the factory runs at once and exports.

    ``mod`` may be the path of an .onnx or .tflite file, which is loaded. ``target`` names tinyai's
    options and the host: ``"tinyai -isa=scalar, llvm -mcpu=znver4"``; beside a ``Target`` the host
    is ``llvm``. A host for another machine (``"tinyai, llvm -mtriple=aarch64-linux-gnu"``) makes a
    factory to be exported, not to be run; its C is compiled by the triple's compiler
    (``aarch64-linux-gnu-gcc``), if ``toolchain`` or ``CC`` do not name one.
    ``executor`` is TVM's: graph by default, or AOT with the packed interface. The build runs at
    the opt_level of the PassContext in force, at least 3.
    Raises ``OptionError`` for a bad target or argument and for dynamic shapes, ``ToolchainError``
    where the C compiler fails.
    """
    options, host = split_target(target)
    options, triple = with_host(options, host), foreign_triple(host)
    toolchain = Toolchain.of(toolchain, triple)
    toolchain.check()
    if not isinstance(executor, Executor | None):
        raise OptionError(
            "executor",
            found=repr(executor),
            allowed="a tvm.relay.backend.Executor, or None for the graph executor",
            hint='Executor("aot", {"interface-api": "packed"})',
        )
    partitioned = partition_for_tinyai(mod, params, mod_name=mod_name, sealed=True, **options)
    _check_static(partitioned["main"])
    context = tvm.transform.PassContext.current()
    with tvm.transform.PassContext(
        opt_level=max(3, context.opt_level),
        required_pass=context.required_pass,
        disabled_pass=context.disabled_pass,
        instruments=context.instruments,
        config=dict(context.config.items()),
    ):
        built = relay.build(partitioned, target=host, executor=executor or Executor("graph"))
    make = tvm_module.for_another_machine if triple else tvm_module.compile
    return make(built, toolchain)


def _check_static(main: relay.Function) -> None:
    """The executors of ``relay.build`` want fixed shapes; its own message does not say so."""
    dynamic: list[str] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call | relay.Var) and not dynamic:
            for of in source_types(expr.checked_type):
                if None in of.shape:
                    name = expr.name_hint if isinstance(expr, relay.Var) else span_name(expr)
                    dynamic.append(f"{name or 'a value'}: {of}")

    relay.analysis.post_order_visit(main, visit)
    if dynamic:
        raise OptionError(
            "module to build",
            found=safe(dynamic[0]),
            allowed="fixed shapes, the batch too",
            hint="import it with shapes (the importers' shape=, tvmc's --input-shapes), "
            "or partition_for_tinyai and TVM's relay.vm",
        )
