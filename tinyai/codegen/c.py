"""C as text: types, literals, escaped comments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tinyai.errors import OptionError
from tinyai.ir import DType

C_TYPES = {
    DType.BOOL: "uint8_t",  # C's own bool may hold no byte but 0 and 1
    DType.INT8: "int8_t",
    DType.UINT8: "uint8_t",
    DType.INT16: "int16_t",
    DType.INT32: "int32_t",
    DType.INT64: "int64_t",
    DType.FLOAT32: "float",
}
DTYPES = {c_type: dtype for dtype, c_type in C_TYPES.items()}
# A type in C, and dimensions.
Shaped = tuple[str, tuple[int, ...]]


def literal(value: Any, dtype: DType) -> str:
    """The value as a C constant of exactly this value; the lowest integers need a subtraction."""
    if dtype.is_float:
        return _float_literal(np.float32(value))
    number = int(value)
    suffix = "LL" if dtype is DType.INT64 else ""
    if dtype in (DType.INT32, DType.INT64) and number == dtype.range[0]:
        return f"({number + 1}{suffix} - 1)"
    return f"{number}{suffix}"


def signature(inputs: Iterable[Shaped], outputs: Iterable[Shaped]) -> str:
    """Types in C and dimensions of what an entry reads and writes, those of one element left out:
    "int8_t[8,8,16] float[] -> int8_t[10]". It says how much memory each pointer leads to."""
    texts = [
        " ".join(
            f"{name}[{','.join(str(dim) for dim in shape if dim != 1)}]" for name, shape in ports
        )
        for ports in (inputs, outputs)
    ]
    return " -> ".join(texts)


def less(number: int) -> str:
    """What takes a number off a value: " - 5", " + 128", or nothing."""
    return f" {'-' if number > 0 else '+'} {abs(number)}" if number else ""


def _float_literal(value: np.float32) -> str:
    if np.isnan(value):
        return '__builtin_nanf("")'
    if np.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inff()"
    text = np.format_float_scientific(value, unique=True, trim="0")
    return (
        f"{np.format_float_positional(value, unique=True, trim='0')}f"
        if (1e-4 <= abs(value) < 1e7 or value == 0)
        else f"{text}f"
    )


def is_identifier(name: str) -> bool:
    """Whether C can call something ``name``."""
    return name.isascii() and name.isidentifier()


def identifier(name: str, what: str) -> str:
    """``name``, when it is a C identifier; ``OptionError`` else."""
    if not is_identifier(name):
        raise OptionError(
            what, found=ascii(name)[:80], allowed="letters, digits and _, no digit first"
        )
    return name


def comment_text(text: str, longest: int = 200) -> str:
    """Any text made safe inside a C comment: printable ASCII, no end of comment, no trigraph."""
    shown = "".join(ch if " " <= ch <= "~" and ch != "\\" else "?" for ch in text)
    shown = (
        shown.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").replace("??", "? ?")
    )
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."
