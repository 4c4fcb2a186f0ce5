"""Kernels of its own: one table of bytes, products of int16, and whatever takes lanes through an
epilogue."""

from __future__ import annotations

from tinyai.codegen.isa.x86_64.avx512vnni import lanes, lookup, patches
from tinyai.codegen.lowered import Kernel

KERNELS: tuple[Kernel, ...] = (*lookup.KERNELS, *patches.KERNELS, *lanes.KERNELS)
