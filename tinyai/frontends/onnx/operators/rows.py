"""The table of ONNX's operators: how each is read into the vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyai.frontends.onnx.facts import CONTRIB
from tinyai.frontends.onnx.reader import Read, Row, Site
from tinyai.source import Expr, require
from tinyai.vocabulary import constant

# What values are quantized to. int4 and uint4 are constants alone.
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4")
READERS: dict[tuple[str, str], Row] = {}


def reads(*operators: str) -> Callable[[Read], Read]:
    """The decorated function reads these operators of ONNX's own. It makes an expression of the
    vocabulary, or a tuple of several results, or refuses with the reason."""

    def add(read: Read) -> Read:
        READERS.update({("", name): Row(read, None) for name in operators})
        return read

    return add


def reads_contrib(*operators: str, **defaults: Any) -> Callable[[Read], Read]:
    """The same for operators of ``com.microsoft``, with the defaults of their attributes, which
    onnx does not know."""

    def add(read: Read) -> Read:
        READERS.update({(CONTRIB, name): Row(read, defaults) for name in operators})
        return read

    return add


def scale_of(site: Site, place: int, what: str = "scale") -> Expr:
    """A constant scale: one number of rank 0 or 1, or a vector."""
    value = site.value(place, what)
    require(value.dtype == np.float32, f"dtype of the {what}", value.dtype, "float32")
    return constant(_plain(value, what))


def zero_of(site: Site, place: int, of: str = "") -> Expr:
    """A constant zero point as int32, of the dtype ``of`` in the file; 0 where it is left out."""
    what = "zero point"
    value = site.value(place, what) if site.has(place) else np.zeros((), np.int32)
    dtype = site.facts.dtype(site.operand(place)) or of
    require(dtype in INTEGERS, f"dtype of the {what}", dtype, ", ".join(INTEGERS))
    require(of in ("", dtype), f"dtype of the {what}", dtype, f"{of}, as what it is of")
    return constant(_plain(value, what).astype(np.int32))


def pair_of(site: Site, place: int, of: str = "") -> tuple[Expr, Expr]:
    """The scale in this place, and the zero point behind it, of values of the dtype ``of``."""
    return scale_of(site, place), zero_of(site, place + 1, of)


def _plain(value: Any, what: str) -> Any:
    require(value.ndim <= 1, f"rank of the {what}", value.ndim, "0 or 1")
    require(value.size > 0, what, "no number", "one and more")
    return value.reshape(()) if value.size == 1 else value
