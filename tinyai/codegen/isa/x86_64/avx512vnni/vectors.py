"""Vectors of AVX-512, for kernels that write them themselves: 16 lanes, or 64 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tinyai.codegen.ctree import CallStatement, Code, Declare
from tinyai.codegen.index import Axis
from tinyai.codegen.isa.x86_64.avx512vnni.simd import MEAN, QUOTIENT
from tinyai.codegen.isa.x86_64.avx512vnni.vector_steps import LANES, VectorSteps, lacks, load
from tinyai.codegen.placed import Placed
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType, Step

# How the names of intrinsics end.
_ENDS = {DType.INT32: "epi32", DType.FLOAT32: "ps", DType.INT8: "epi8", DType.UINT8: "epu8"}
_NAMES = {
    ("+", DType.INT32): "add",
    ("-", DType.INT32): "sub",
    ("*", DType.INT32): "mullo",
    (">>", DType.INT32): "srav",
    ("max", DType.INT32): "max",
    ("+", DType.FLOAT32): "add",
    ("*", DType.FLOAT32): "mul",
    ("/", DType.FLOAT32): "div",
    ("max", DType.INT8): "max",
    ("max", DType.UINT8): "max",
}


@dataclass(frozen=True)
class Vectors512:
    """``isa.vectors.Vectors`` in intrinsics of 512 bits, with masks."""

    lanes: int = LANES
    bytes: int = 64

    def lacks(
        self, graph: Placed, axes: Sequence[Axis], dtype: DType, chain: Sequence[Step]
    ) -> str | None:
        return lacks(graph, axes, dtype, chain)

    def mask(self, axis: Axis, lanes: int) -> Declare:
        suffix = "ULL" if lanes == 64 else ""
        rest = (1 << axis.count % lanes) - 1
        mask = f"{(1 << lanes) - 1:#x}{suffix}"
        if rest:
            mask = f"{axis.count} - {axis.var} >= {lanes} ? {mask} : {rest:#x}{suffix}"
        return Declare(f"const __mmask{lanes}", "lanes", mask)

    def load(self, address: str, dtype: DType) -> str:
        return load(address, dtype)

    def load_bytes(self, address: str) -> str:
        return f"_mm512_maskz_loadu_epi8(lanes, {address})"

    def store_bytes(self, address: str, value: str) -> CallStatement:
        return CallStatement("_mm512_mask_storeu_epi8", address, "lanes", value)

    def declare(self, name: str, value: str, dtype: DType, *, constant: bool = False) -> Declare:
        kind = "__m512" if dtype.is_float else "__m512i"
        return Declare(f"const {kind}" if constant else kind, name, value)

    def zero(self, dtype: DType) -> str:
        return "_mm512_setzero_ps()" if dtype.is_float else "_mm512_setzero_si512()"

    def all_lanes(self, number: str | int, dtype: DType) -> str:
        end = "epi8" if dtype is DType.UINT8 else _ENDS[dtype]
        return f"_mm512_set1_{end}({number})"

    def apply(
        self, operator: Literal["+", "-", "*", "/", ">>", "max"], a: str, b: str, dtype: DType
    ) -> str:
        return f"_mm512_{_NAMES[operator, dtype]}_{_ENDS[dtype]}({a}, {b})"

    def real(self, value: str) -> str:
        return f"_mm512_cvtepi32_ps({value})"

    def mean(self, epilogue: Epilogue, total: str, count: str, *, rounded: bool) -> str:
        return f"{epilogue.need(MEAN)}({total}, {count}, {1 if rounded else 0})"

    def quotient(self, epilogue: Epilogue, a: str, b: str, inverse: str) -> str:
        return f"{epilogue.need(QUOTIENT)}({a}, {b}, {inverse})"

    def steps(
        self,
        epilogue: Epilogue,
        axes: Sequence[Axis],
        value: str,
        dtype: DType,
        address: str,
        chain: Sequence[Step] | None = None,
    ) -> Code:
        return VectorSteps(epilogue, axes).write(value, dtype, address, chain)
