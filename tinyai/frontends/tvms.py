"""Which TVM is there, and what of tinyai needs one."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from tinyai.errors import EnvironmentProblem

# By name, what needs a TVM with Relay.
NEED_RELAY = {
    "build": "tinyai.frontends.relay.build",
    "calibrate": "tinyai.frontends.relay.quantize",
    "explain": "tinyai.frontends.relay.explain",
    "partition_for_tinyai": "tinyai.frontends.relay.partition",
    "quantize": "tinyai.frontends.relay.quantize",
    "partition_for": "tinyai.frontends.relay.own",
    "seal": "tinyai.frontends.relay.seal",
    "unseal": "tinyai.frontends.relay.seal",
}


# What a TVM with Relax and no Relay has of these.
_OF_RELAX = {
    "build": "tinyai.frontends.relax.pipeline",
    "explain": "tinyai.frontends.relax.explain",
    "partition_for_tinyai": "tinyai.frontends.relax.partition",
}


def has(module: str) -> bool:
    """Whether a module is there."""
    try:
        return find_spec(module) is not None
    except (
        Exception
    ):  # a broken TVM raises exceptions of any kind; the doctor says what is wrong with it
        return False


def has_relax() -> bool:
    """Whether TVM has Relax and no Relay: where both are, Relax is an early one."""
    return not has("tvm.relay") and has("tvm.relax") and has("tvm_ffi")


def of_tvm(name: str) -> Any:
    """What ``tinyai.NAME`` is with the TVM that is there. Raises ``EnvironmentProblem`` where it is
    not one that has it."""
    if name in _OF_RELAX and has_relax():
        return getattr(importlib.import_module(_OF_RELAX[name]), name)
    if not has("tvm.relay"):
        raise EnvironmentProblem(
            f"tinyai.{name} needs a TVM with Relay",
            found="no module tvm.relay" + ", but tvm.relax" * has_relax(),
            allowed="a TVM with Relay, such as 0.17",
            hint="python -m tinyai doctor",
        )
    return getattr(importlib.import_module(NEED_RELAY[name]), name)
