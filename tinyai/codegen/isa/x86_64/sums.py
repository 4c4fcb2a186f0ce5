"""Microkernels that add two 8-bit tensors, with vectors of 256 or 512 bits."""

from __future__ import annotations

from dataclasses import dataclass

from tinyai.codegen.definitions import Definition
from tinyai.codegen.helpers import STRING_H
from tinyai.codegen.isa.microkernels import name_of
from tinyai.codegen.linear_add import FixedAdd, FloatAdd
from tinyai.codegen.quantized_add import Branch, QuantizedAdd
from tinyai.codegen.steps import Epilogue
from tinyai.ir import DType


def quantized_add(epilogue: Epilogue, add: QuantizedAdd, *, isa: str, bits: int) -> str:
    """Name of the microkernel of a sum in 16 bits."""
    branches = _Operand.of("x", add.x, add.x_type), _Operand.of("y", add.y, add.y_type)
    bounded = (add.low, add.high) != add.dtype.range
    said = [word for branch in branches for word in branch.said]
    name = name_of("add", str(add.dtype), *said, "bounded" if bounded else "", isa)
    unsigned = add.dtype is DType.UINT8
    text = AddText(branches, f"_mm{bits}", bits // 8, unsigned=unsigned, bounded=bounded)
    needs = () if bits == 512 else (STRING_H,)
    return epilogue.need(Definition(name, "add.c.j2", needs, arguments=text))


@dataclass(frozen=True)
class _Operand:
    """What the text depends on, of one of the tensors that are added."""

    name: str
    signed: bool
    scaled: bool
    times: str

    @classmethod
    def of(cls, name: str, branch: Branch, dtype: DType) -> _Operand:
        times = {0: "", 1: "once"}.get(branch.times, "times")
        return cls(name, dtype is DType.INT8, branch.scale > 0, times)

    @property
    def said(self) -> list[str]:
        """Its part of the microkernel's name."""
        words = [word for word in ("signed", "scaled") if getattr(self, word)]
        return [self.name, *words, *filter(None, [self.times])]


@dataclass(frozen=True)
class AddText:
    """Intrinsics begin with ``mm``, vectors have so many ``bytes``; the result is ``unsigned``, and
    ``bounded`` by more than its type."""

    branches: tuple[_Operand, _Operand]
    mm: str
    bytes: int
    unsigned: bool
    bounded: bool


@dataclass(frozen=True)
class FixedAddText:
    """Intrinsics begin with ``mm``, vectors have so many ``bytes``, and ``vnni`` adds to products
    in one instruction; whether x, y and the result are ``signed``, and the result ``bounded`` by
    more than its type."""

    mm: str
    bytes: int
    vnni: bool
    signed: tuple[bool, ...]
    bounded: bool


def fixed_add(epilogue: Epilogue, add: FixedAdd, *, isa: str, bits: int, vnni: bool) -> str:
    """Name of the microkernel of a sum of products of 16 bits in 32."""
    types = (add.x_type, add.y_type, add.dtype)
    bounded = (add.low, add.high) != add.dtype.range
    name = name_of("add_fixed", *map(str, types), "bounded" if bounded else "", isa)
    signed = tuple(of is DType.INT8 for of in types)
    text = FixedAddText(f"_mm{bits}", bits // 8, vnni, signed, bounded)
    needs = () if bits == 512 else (STRING_H,)
    return epilogue.need(Definition(name, "add_fixed.c.j2", needs, arguments=text))


@dataclass(frozen=True)
class FloatAddText:
    """``wide`` vectors or not, ``fused`` multiply-adds or not; whether x, y and the result are
    ``signed``."""

    wide: bool
    fused: bool
    signed: tuple[bool, ...]


def float_add(
    epilogue: Epilogue, add: FloatAdd, *, isa: str, order: Definition | None = None
) -> str:
    """Name of the microkernel of a sum in floats; with 512 bits where there is a function that puts
    packed bytes in ``order``."""
    types = (add.x_type, add.y_type, add.dtype)
    name = name_of("add_floats", *map(str, types), isa)
    signed = tuple(of is DType.INT8 for of in types)
    text = FloatAddText(order is not None, add.fused, signed)
    needs = (order,) if order else (STRING_H,)
    return epilogue.need(Definition(name, "add_floats.c.j2", needs, arguments=text))
