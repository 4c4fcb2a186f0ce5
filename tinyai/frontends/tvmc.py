"""tinyai in TVM's own drivers: ``tvmc`` target strings and the registry of pattern tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.relay.op.contrib.register import register_pattern_table

from tinyai.errors import OptionError
from tinyai.frontends.relay import COMPILER, partition_for_tinyai, pattern_table

IMPORTED = (".onnx", ".tflite")


def register_drivers() -> None:
    """Make ``get_pattern_table("tinyai")`` and ``tvmc`` targets such as
    ``"tinyai -isa=scalar, llvm"`` work. Again changes nothing."""
    register_pattern_table(COMPILER, pattern_table)
    try:
        from tvm.driver.tvmc.composite_target import REGISTERED_CODEGEN
    except ImportError:  # a TVM that was built without the driver, or lacks what the driver needs
        return
    REGISTERED_CODEGEN[COMPILER] = {"config_key": None, "pass_pipeline": partition_for_tinyai}


def load_model(file: str, input_shapes: str = "") -> tuple[tvm.IRModule, dict[str, Any]]:
    """Module and parameters of an .onnx or .tflite file, by TVM's importers.

    ``input_shapes`` are tvmc's: ``"data:[1,3,32,32] other:[1,8]"``, "" for those of the file.
    Raises ``OptionError`` for a file that cannot be read or imported, or bad shapes.
    """
    from tinyai.report import safe  # brings rich, which import tinyai does without

    path = Path(file)
    if path.suffix.lower() not in IMPORTED:
        raise OptionError("model file", found=safe(file), allowed="*" + ", *".join(IMPORTED))
    if not path.is_file():
        raise OptionError("model file", found=f"{safe(file)}, no file", allowed="a file to read")
    try:
        from tvm.driver.tvmc.frontends import load_model as load
        from tvm.driver.tvmc.shape_parser import parse_shape_string

        shapes = parse_shape_string(input_shapes) if input_shapes else None
        model = load(file, shape_dict=shapes)
    except Exception as error:  # importers and parsers of files raise what they like
        raise OptionError(
            f"TVM's importer for {path.suffix.lower()} files",
            found=f"{safe(file)}: {type(error).__name__}: {safe(_last_line(error))}",
            allowed="a model that it reads",
            hint="python -m tinyai doctor, or --input-shapes where a shape is missing",
        ) from error
    return model.mod, model.params


def _last_line(error: Exception) -> str:
    """TVM's errors end with what happened, behind the frames of the C++ stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def run_tvmc(arguments: Sequence[str]) -> int:
    """TVM's command line with tinyai among its targets; its exit code."""
    from tvm.driver.tvmc.main import _main

    register_drivers()
    before = sys.argv
    sys.argv = ["tvmc", *arguments]
    try:
        return int(_main(list(arguments)) or 0)
    finally:
        sys.argv = before
