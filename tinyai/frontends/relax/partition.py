"""``partition_for_tinyai``: what tinyai takes of a module becomes functions for ``RunCodegen``."""

from __future__ import annotations

import os
import warnings
from typing import Any

import tvm
from tvm import relax

from tinyai.errors import OptionError
from tinyai.frontends.relax.division import divided, target_of
from tinyai.frontends.relax.explain import nothing_partitioned, report_of
from tinyai.frontends.relax.hook import register_hook
from tinyai.frontends.relax.seal import seal
from tinyai.frontends.relax.versions import typed
from tinyai.frontends.relax.writer import Functions, Writer
from tinyai.partition.rows import require_none_left
from tinyai.target import Target


def partition_for_tinyai(
    mod: tvm.IRModule,
    *,
    target: str | Target | None = None,
    names: str | os.PathLike[str] = "",
    strict: bool = False,
    sealed: bool = True,
    backend: str = "",
    **options: Any,
) -> tvm.IRModule:
    """Cut what tinyai takes of ``mod`` into functions with ``Codegen="tinyai"``, which
    ``relax.transform.RunCodegen()`` replaces by machine code.

    ``options`` are fields of ``tinyai.Target`` as values or strings, ``target`` is all of them;
    whose integers are computed is ``rounding``: "onnx" (the default), "tflite" or "torch", by where
    the module comes from. ``names`` is the .onnx or .tflite file that it was imported from: regions
    and reports get its names, and ``rounding`` is its own by default. With ``strict`` an operator
    that computes on the host is a ``BoundaryError`` with the report of ``explain``. ``sealed``
    functions are safe from the passes before ``RunCodegen``, which has to run in this process, and
    once. ``backend`` is the name of a back end of one's own (``tinyai.register_backend``), whose
    composites are taken first, and whose passes and kernels are used. The argument is not changed;
    regions that it has stay as they are.

    Raises ``OptionError`` for options that are none, ``EnvironmentProblem`` for another version of
    TVM. Warns where nothing is taken.
    """
    for name, value in (("strict", strict), ("sealed", sealed)):
        if not isinstance(value, bool):
            raise OptionError(f"option {name!r}", found=repr(value), allowed="True, False")
    register_hook()
    chosen = target_of(target, options, names)
    found = divided(mod, chosen, names, backend)
    report = report_of(mod, found)
    if strict:
        require_none_left(report, "what the report says of each, or partition without strict")
    if (told := nothing_partitioned(report)) is not None:
        warnings.warn(told, stacklevel=2)
    functions: Functions = {}
    blocks = {each.function: list(mod[each.function].body.blocks) for each in found}
    for each in found:
        if each.division.regions:
            writer = Writer(each, chosen.options())
            blocks[each.function][each.number] = relax.DataflowBlock(writer.bindings())
            functions |= writer.functions
    if not functions:
        return mod
    host = {variable: _with_blocks(mod[variable], new) for variable, new in blocks.items()}
    regions = {v: seal(function) if sealed else function for v, function in functions.items()}
    new = {**dict(mod.functions.items()), **host, **regions}
    return tvm.IRModule(new, attrs=mod.attrs, global_infos=mod.global_infos)


def _with_blocks(function: relax.Function, blocks: list[Any]) -> relax.Function:
    body = typed(relax.SeqExpr(blocks, function.body.body), function.body.ty)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
