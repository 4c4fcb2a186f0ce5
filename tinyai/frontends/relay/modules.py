"""Modules as users hand them over, and as composites are looked for in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relay

from tinyai.errors import OptionError
from tinyai.frontends.relay.load import load_model
from tinyai.frontends.relay.qdq import integers_of_typed
from tinyai.model_file import check_no_params
from tinyai.source import Rounding


def module_of(mod: Any, params: Any) -> tuple[tvm.IRModule, dict[str, Any] | None]:
    """The module and parameters that a user hands over, or those of the file that he names.

    Raises ``OptionError`` where it is anything else.
    """
    if isinstance(mod, str | os.PathLike):
        check_no_params(params)
        return load_model(mod)
    if not isinstance(mod, tvm.IRModule):
        function = isinstance(mod, relay.Expr)
        raise OptionError(
            "module",
            found="None" if mod is None else f"{type(mod).__module__}.{type(mod).__name__}",
            allowed="a tvm.IRModule, or the path of an .onnx or .tflite file",
            hint="tvm.IRModule.from_expr(function)" if function else "what an importer returns",
        )
    if not isinstance(params, Mapping | None):
        raise OptionError(
            "params",
            found=f"{type(params).__module__}.{type(params).__name__}",
            allowed="a dict of arrays by the names of main's parameters, or None",
            hint="options are keywords: target=, isa=, ...",
        )
    return mod, params  # type: ignore[return-value]


def with_integers(
    mod: tvm.IRModule, params: dict[str, Any] | None, rounding: Rounding
) -> tvm.IRModule:
    """``mod`` as composites are looked for in it: parameters bound, no let bindings, integers where
    it quantizes, types inferred. The argument is not changed."""
    return integers_of_typed(with_constants(mod, params), rounding)


def with_constants(mod: tvm.IRModule, params: dict[str, Any] | None) -> tvm.IRModule:
    """``mod`` with its parameters bound, without let bindings, its types inferred."""
    mod = tvm.IRModule(mod.functions, mod.type_definitions, mod.attrs)
    if params:
        mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    if any(_has_let(func) for func in mod.functions.values()):
        # PartitionGraph cannot follow a region through let bindings.
        mod = relay.transform.ToGraphNormalForm()(relay.transform.InferType()(mod))
    return relay.transform.InferType()(mod)


def _has_let(func: Any) -> bool:
    found: list[bool] = []
    if isinstance(func, relay.Function):
        relay.analysis.post_order_visit(func, lambda e: found.append(isinstance(e, relay.Let)))
    return any(found)
