"""tinyai in TVM's own drivers: ``tvmc`` target strings and the registry of pattern tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import tvm
from tvm.relay.op.contrib.register import register_pattern_table

from tinyai.frontends.relay import partition_for_tinyai, pattern_table
from tinyai.target import COMPILER


def register_drivers() -> None:
    """Make ``get_pattern_table("tinyai")`` and ``tvmc`` targets such as
    ``"tinyai -isa=scalar, llvm"`` work. Again changes nothing."""
    register_pattern_table(COMPILER, pattern_table)
    try:
        from tvm.driver.tvmc.composite_target import REGISTERED_CODEGEN
    except ImportError:  # a TVM that was built without the driver, or lacks what the driver needs
        return
    REGISTERED_CODEGEN[COMPILER] = {"config_key": None, "pass_pipeline": _partition}


def _partition(mod: tvm.IRModule, *args: Any, **options: Any) -> tvm.IRModule:
    return partition_for_tinyai(mod, *args, sealed=True, **options)


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
