"""Model files on their way in: what a file declares is checked, then TVM's importers read it.

The importers trust a file: they follow indices out of range, tell tensors apart by names alone,
and compute constants of whatever size it asks for. So the file's own claims are held against each
other first, and what came out of the importer is typed and measured before anyone works on it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tinyai.errors import ModelError, OptionError
from tinyai.frontends.faults import Fault, check_shape, faults_of, last_line, missing, shown
from tinyai.frontends.onnx import checks as onnx_checks
from tinyai.frontends.onnx.facts import Facts, facts_of, set_shapes
from tinyai.frontends.onnx.spellings import spelled
from tinyai.frontends.relay.onnx import imported_onnx
from tinyai.frontends.relay.source import source_types, span_name
from tinyai.frontends.relay.text import module_of
from tinyai.frontends.relay.tflite import check_readings, check_results, imported_tflite
from tinyai.frontends.shapes import Shapes, check_asked, parse_shapes
from tinyai.frontends.tflite import checks as tflite_checks
from tinyai.model_file import RELAY_TEXT, InputShapes, check_model
from tinyai.safe_text import safe
from tinyai.stages import stage


def load_model(
    file: str | os.PathLike[str], input_shapes: InputShapes = "", kind: str = ""
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Module and parameters of an .onnx or .tflite file, by TVM's importers, or of Relay's text.

    ``input_shapes`` are tvmc's: ``"data:[1,3,32,32] other:[1,8]"``, "" for those of the file.
    ``kind`` is one of ``IMPORTED`` or ``RELAY_TEXT``, "" for the one that the name ends with.
    Relay's text is what ``mod.astext()`` gives, with the constants that it holds; TVM prints scales
    that are in it with six digits.
    Raises ``OptionError`` for no such file, another kind or bad shapes, ``ModelError`` for a file
    that cannot be read or imported. A file is refused too where it contradicts itself (a weight of
    more or fewer bytes than its shape says, an index to nothing, a value that is read before it is
    made) or has a tensor above ``LARGEST``.
    """
    shapes = parse_shapes(input_shapes)
    path, kind = Path(file), check_model(file, kind)
    with stage(f"read {safe(path.name, 60)}"):
        if kind in RELAY_TEXT:
            return _relay_text(path, shapes), {}
        if find_spec(kind.removeprefix(".")) is None:
            raise missing(kind.removeprefix("."))
        with faults_of(path, kind):
            return (_read_tflite if kind == ".tflite" else _read_onnx)(path, shapes)


def _read_onnx(path: Path, shapes: Shapes) -> tuple[tvm.IRModule, dict[str, Any]]:
    import onnx

    model = onnx.load(path, load_external_data=False)
    check_asked(shapes, onnx_checks.check_model(model))
    set_shapes(model, shapes)
    facts = facts_of(model)
    onnx_checks.check_external(model, path.parent)
    onnx.load_external_data_for_model(model, str(path.parent))
    model = spelled(model, facts)
    try:
        mod, params, types = imported_onnx(model, importers_shapes(shapes), facts.opset)
    except Exception as error:  # importers and parsers of files raise exceptions of any kind
        raise importers_refusal(path, ".onnx", error) from error
    _check_sizes(mod)
    _check_types(types, facts)
    return mod, params


def _read_tflite(path: Path, shapes: Shapes) -> tuple[tvm.IRModule, dict[str, Any]]:
    content = path.read_bytes()
    tflite_checks.check_identifier(content)
    model = import_module("tflite.Model").Model.GetRootAsModel(content, 0)
    check_asked(shapes, tflite_checks.check_model(model, content))
    check_readings(model, content)
    try:
        mod, params = imported_tflite(path, importers_shapes(shapes))
    except Exception as error:  # importers and parsers of files raise exceptions of any kind
        raise importers_refusal(path, ".tflite", error) from error
    _check_sizes(mod)
    if not shapes:  # which the file's do not know of
        inputs, _ = tflite_checks.ports_of(content)
        check_results(mod["main"], tflite_checks.results_of(model), dict(inputs))
    return mod, params


def importers_shapes(shapes: Shapes) -> dict[str, list[Any]]:
    """Shapes as TVM's importers take them: a dimension that is open is ``relay.Any``."""
    return {
        name: [relay.Any() if dim == -1 else dim for dim in dims] for name, dims in shapes.items()
    }


def _relay_text(path: Path, shapes: Shapes) -> tvm.IRModule:
    if shapes:
        raise OptionError(
            "input shapes",
            found=f"some, beside the text {path.name!r}",
            allowed="none: the text has them",
            hint="change the types of main's parameters",
        )
    try:
        mod = module_of(path.read_text(encoding="utf-8"))
        mod["main"]  # raises where there is none
    except Exception as error:  # parsers of files raise exceptions of any kind
        raise importers_refusal(path, "Relay", error) from error
    with faults_of(path, RELAY_TEXT[0]):
        _check_sizes(mod)
    return mod


def importers_refusal(file: str | Path, kind: str, error: Exception) -> ModelError:
    """What an importer of TVM's raised, as a message."""
    return ModelError(
        f"TVM's importer for {kind} files",
        found=f"{safe(str(file))}: {type(error).__name__}: {safe(last_line(error))}",
        allowed="a model that it reads",
        hint="python -m tinyai doctor, or --input-shapes where a shape is missing",
    )


# --- Sizes -------------------------------------------------------------------------------------


def _check_sizes(mod: tvm.IRModule) -> None:
    """No value of an imported module is larger than ``LARGEST``; dynamic shapes are not known."""

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call | relay.Var):
            for of in source_types(expr.checked_type):
                if None not in of.shape and of.dtype in _BYTES_OF:
                    name = span_name(expr) or getattr(expr, "name_hint", "")
                    check_shape(f"result {name!r}", of.shape, _BYTES_OF[of.dtype])  # type: ignore[arg-type]

    for func in mod.functions.values():
        relay.analysis.post_order_visit(func, visit)


def _check_types(types: Mapping[str, relay.TensorType], facts: Facts) -> None:
    """Each value is what ONNX's own inference makes of it: an importer that misreads an operator
    often shows by a shape."""
    for name, of in types.items():
        known = facts.values.get(name)
        if known is None or known.shape is None:
            continue
        (found,) = source_types(of)
        same = len(found.shape) == len(known.shape) and all(
            None in pair or pair[0] == pair[1]
            for pair in zip(found.shape, known.shape, strict=True)
        )
        if not same or (known.dtype and known.dtype != found.dtype):
            shape = ["?" if dim is None else dim for dim in found.shape]
            raise Fault(
                f"TVM's importer reads the value {name!r} as {found.dtype} {shown(shape)}",
                f"{known.dtype} {shown(known.shape)}, as ONNX's rules say",
                "another spelling of the operator that makes it; this is a fault of TVM's importer",
            )


_BYTES_OF = {"bool": 1} | {
    f"{kind}{8 * size}": size for kind in ("int", "uint", "float") for size in (1, 2, 4, 8)
}
