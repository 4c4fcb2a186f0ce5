"""The kernels that one instruction set alone has."""

from __future__ import annotations

from tinyai.codegen.isa.x86.avx512vnni import lanes, lookup
from tinyai.codegen.kernels.table import Kernel

KERNELS: tuple[Kernel, ...] = (*lookup.KERNELS, *lanes.KERNELS)
