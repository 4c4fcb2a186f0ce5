"""Microkernels that add two 8-bit tensors, with vectors of 256 or 512 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyai.codegen.float_add import FloatAdd
from tinyai.codegen.isa.microkernels import name_of
from tinyai.codegen.quantized_add import Branch, QuantizedAdd
from tinyai.codegen.steps import Epilogue
from tinyai.codegen.templates import render
from tinyai.ir import DType


def quantized_add(epilogue: Epilogue, add: QuantizedAdd, *, isa: str, bits: int) -> str:
    """Name of the microkernel of a sum in 16 bits."""
    branches = [_options("x", add.x, add.x_type), _options("y", add.y, add.y_type)]
    bounded = (add.low, add.high) != add.dtype.range
    said = [word for branch in branches for word in (branch["name"], *_said(branch))]
    name = name_of("add", str(add.dtype), *said, "bounded" if bounded else "", isa)
    epilogue.helpers.add("string.h")
    epilogue.cores[name] = render(
        "add_core.c.j2",
        name=name,
        branches=branches,
        mm=f"_mm{bits}",
        bytes=bits // 8,
        unsigned=add.dtype is DType.UINT8,
        bounded=bounded,
    )
    return name


def _options(name: str, branch: Branch, dtype: DType) -> dict[str, Any]:
    """What the text depends on."""
    times = {0: "", 1: "once"}.get(branch.times, "times")
    return {
        "name": name,
        "signed": dtype is DType.INT8,
        "scaled": branch.scale > 0,
        "times": times,
    }


def _said(options: Mapping[str, Any]) -> list[str]:
    words = [word for word in ("signed", "scaled") if options[word]]
    return [*words, options["times"]] if options["times"] else words


def float_add(epilogue: Epilogue, add: FloatAdd, *, isa: str, wide: bool) -> str:
    """Name of the microkernel of a sum in floats; ``wide`` with 512 bits."""
    types = (add.x_type, add.y_type, add.dtype)
    name = name_of("add_floats", *map(str, types), isa)
    epilogue.helpers.add("string.h")
    epilogue.cores[name] = render(
        "add_floats_core.c.j2",
        name=name,
        wide=wide,
        fused=add.fused,
        signed=[of is DType.INT8 for of in types],
    )
    return name
