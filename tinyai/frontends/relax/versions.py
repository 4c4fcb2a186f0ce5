"""What is spelled otherwise in the versions of TVM that this front end is for."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tinyai.errors import EnvironmentProblem
from tinyai.ir import Array

ALLOWED = (0, 26), (0, 27)


def require_known_version() -> None:
    """Raises ``EnvironmentProblem`` for another TVM: 0.25 merges functions with other weights."""
    try:
        found = version("apache-tvm")
    except PackageNotFoundError:
        found = str(tvm.__version__)
    if tuple(int(part) for part in found.split(".")[:2] if part.isdecimal()) not in ALLOWED:
        raise EnvironmentProblem(
            "TVM with Relax",
            found=found,
            allowed=", ".join(".".join(map(str, each)) for each in ALLOWED),
            hint='pip install "apache-tvm>=0.26,<0.28"',
        )


# 0.27: a constant of the whole IR, with a value. 0.26: Relax's own, with data.
Constant: Any = type(relax.const(0.0, "float32"))


def array_of(constant: Any) -> Array:
    held = constant.value if hasattr(constant, "value") else constant.data
    return np.asarray(held.numpy())


def number_of(expr: Any) -> float | None:
    """The value of a number, with or without a ``PrimValue`` around it; None of others."""
    inner = expr if isinstance(expr, int) else getattr(expr, "value", None)
    held = getattr(inner, "value", inner)
    return held if isinstance(held, int | float) else None


def fixed(dim: Any) -> int | None:
    """A dimension that is a number; None of any other."""
    number = number_of(dim)
    return None if number is None else int(number)


def name_of(variable: Any) -> str:
    return str(variable.name if hasattr(variable, "name") else variable.name_hint)


def typed(expr: Any, of: Any) -> Any:
    """``expr`` with the type ``of``, where it has none yet."""
    own = expr.ty
    if own is None or own.is_missing():
        relax.expr._update_type(expr, of)
    return expr
