"""The kernels that one instruction set alone has: those of the file ``rows.py`` in its folder."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from tinyai.codegen.lowered import Kernel
from tinyai.target import ARCHITECTURES

_FILES = (
    f"tinyai.codegen.isa.{architecture}.{isa}.rows"
    for architecture, isas in ARCHITECTURES.items()
    for isa in isas
)
KERNELS: tuple[Kernel, ...] = tuple(
    kernel for file in _FILES if find_spec(file) for kernel in import_module(file).KERNELS
)
