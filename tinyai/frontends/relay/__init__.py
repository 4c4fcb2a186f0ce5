"""The Relay front end: reads modules into the vocabulary, cuts out regions with TVM's four passes,
and hands their C to ``relay.build``."""

from importlib import import_module
from typing import Any

# First of all: tinyai registers its hooks when TVM is imported, for which it imports modules of
# this folder. They must not be half imported then.
import tvm as tvm

_PUBLIC = {
    "compile_region": "hooks",
    "cut_regions": "cut",
    "partition_for_tinyai": "partition",
    "pattern_table": "composites",
    "regions": "functions",
    "register_hooks": "hooks",
    "register_operators": "cut",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # ``from tinyai.frontends.relay import partition`` would ask this function for it.
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
