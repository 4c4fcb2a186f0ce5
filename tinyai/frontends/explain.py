"""``tinyai.explain``: of a model file without a framework, of a module by its front end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tinyai.frontends.files import explain_file, is_read
from tinyai.frontends.tvms import of_tvm
from tinyai.model_file import FileOptions, InputShapes, check_model, check_no_params, check_path
from tinyai.own import own_of
from tinyai.report import Report
from tinyai.target import Target, default_rounding, split_target

# What ``partition_for_tinyai`` has beside the target's options.
_OF_PARTITION = {"mod_name", "prune", "strict", "sealed", "compile_specs"}


def explain(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    *,
    input_shapes: InputShapes = "",
    signature: str = "",
    state: Mapping[str, str] | None = None,
    backend: str = "",
    **options: Any,
) -> Report:
    """What of a model stays on a host, each operator with the reason, and the regions.

    ``mod`` is the path of an .onnx or .tflite file, which needs no TVM; ``input_shapes``,
    ``signature``, ``state`` and ``backend`` are those of ``tinyai.compile``, ``options`` are
    ``target`` and its fields. Or it is a module of TVM's, before or after
    ``partition_for_tinyai``, with its ``params`` and the options of that, or ``backend``: what one
    of one's own leaves of it. A file goes this way too, by TVM's importers, where it has options of
    the partition or, as .tflite, ``input_shapes``.
    Regions are compiled to C to know their sizes; what is above ``arena_limit`` or ``weight_limit``
    is marked (``exceeds``) and no error.

    Raises ``OptionError`` for bad options, ``ModelError`` for a file that cannot be read, and what
    ``partition_for_tinyai`` raises.
    """
    reading = FileOptions(input_shapes, signature, state or {})
    reading.require_file(mod)
    target = options.get("target")
    said = {**({} if target is None else split_target(target)[0]), **options}
    said.pop("target", None)
    if isinstance(mod, str | os.PathLike):
        check_path(mod)
        check_no_params(params)
        if is_read(mod) and _OF_PARTITION.isdisjoint(said):
            check_model(mod)
            own = own_of(backend)
            return explain_file(mod, Target.from_options(said), reading, own)
    options |= {"backend": backend} if backend else {}
    if shapes := reading.shapes_for_tvm():
        of_relay = of_tvm("explain")
        from tinyai.frontends.relay.load import load_model

        options["rounding"] = said.get("rounding") or default_rounding(mod)
        return of_relay(*load_model(mod, shapes), **options)  # type: ignore[no-any-return]
    return of_tvm("explain")(mod, params, **options)  # type: ignore[no-any-return]
